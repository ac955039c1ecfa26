/* reshape.c - operators that change only the shape: Reshape, Flatten, expand_dims, squeeze,
** reshape_like.
**
** All of them are views: output 0 shares the bytes of input 0, and the gradients share theirs. The
** copying kernels are for imperative calls and for results that need separate memory. Inference
** works in both directions: a single unknown dim on either side follows from the number of
** elements.
*/
#include "kernel/strided_copy.h"
#include "op/op.h"

static const struct kernel copies[] = {
  { .name = "copy", .run = copy_kernel, .types = T_ANY, .flags = K_ANYWHERE }, { 0 }
};

/* -- shared ------------------------------------------------------------------------------------ */

/* If one dim of `to` is unknown and `from` is known, infers that dim from the number of elements,
** which is the same. */
static int complete_shape(struct infer *s, const ty_desc *from, ty_desc *to)
{
  int64_t have = 1, unknown = -1;
  if (!desc_known(from) || !to->ndim) return TY_OK;
  for (int i = 0; i < to->ndim; i++) {
    if (to->dim[i] && __builtin_mul_overflow(have, to->dim[i], &have))
      have = INT64_MAX; /* fits nothing */
    if (to->dim[i]) continue;
    if (unknown >= 0) return TY_OK;
    unknown = i;
  }
  int64_t n = product_of(from, 0, from->ndim);
  char a[160], b[160];
  if (unknown < 0 ? n != have : n % have) {
    int code = infer_fail(s, TY_ESHAPE, &s->in[0], "%s with %lld elements does not fit %s",
        text_shape(from, a, sizeof a), (long long)n, text_shape(to, b, sizeof b));
    fail_argument("data", b, a);
    return code;
  }
  return unknown < 0 ? TY_OK : shape_dim(s, to, (int)unknown, n / have);
}

static int complete_both(struct infer *s)
{
  TRY(complete_shape(s, &s->in[0], &s->out[0]));
  return complete_shape(s, &s->out[0], &s->in[0]);
}

/* Infers the types. Of a second input only the shape is used. */
static int pair_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->out[0]));
  if (s->nin > 1 && s->in[1].dtype == TY_NODTYPE) s->in[1].dtype = s->in[0].dtype;
  return TY_OK;
}

/* -- Reshape ----------------------------------------------------------------------------------- */

struct reshape { struct ints shape; struct dims target_shape; int64_t reverse, keep_highest; };

static const struct param reshape_params[] = {
  { "shape",        P_INTS,  offsetof(struct reshape, shape),        "()",
    "new dims; 0 copies a dim, -1 takes what remains, -2 copies all that remain, -3 joins two dims, "
    "-4 splits one into the two that follow" },
  { "reverse",      P_BOOL,  offsetof(struct reshape, reverse),      "False", "match the dims from the right" },
  { "target_shape", P_SHAPE, offsetof(struct reshape, target_shape), "()",
    "old form: new dims, 0 takes what remains" },
  { "keep_highest", P_BOOL,  offsetof(struct reshape, keep_highest), "False", "old form: the first dim stays" },
  { 0 }
};

/* The state while the codes are read from left to right. */
struct codes {
  int64_t code[128];
  int ncode;
  int64_t src[TY_MAXDIM];                             /* dims of data */
  bool copied[TY_MAXDIM];                             /* the dim of data is part of a new dim */
  int nsrc, at;                                       /* number of dims, the next one to use */
  int64_t dst[TY_MAXDIM];                             /* new dims */
  int ndst, rest;                                     /* their number, that of code -1 or -1 */
  bool split;                                         /* a -4 was read */
};

static void reverse_dims(int64_t *d, int n)
{
  for (int i = 0; i < n / 2; i++) {
    int64_t t = d[i];
    d[i] = d[n - 1 - i];
    d[n - 1 - i] = t;
  }
}

static int append_dim(struct infer *s, struct codes *c, int64_t dim)
{
  if (c->ndst == TY_MAXDIM)
    return infer_fail(s, TY_ESHAPE, NULL, "shape: more than %d dims", TY_MAXDIM);
  c->dst[c->ndst++] = dim;
  return TY_OK;
}

static int next_dim(struct infer *s, struct codes *c, int64_t code, int64_t *dim)
{
  if (c->at >= c->nsrc)
    return infer_fail(s, TY_ESHAPE, &s->in[0], "shape: code %lld needs a dim, but all %d are used",
        (long long)code, c->nsrc);
  c->copied[c->at] = true;
  *dim = c->src[c->at++];
  return TY_OK;
}

/* Reads code -4 at i: splits the next dim in two. */
static int split_dim(struct infer *s, struct codes *c, int i)
{
  int64_t d = 0, a, b;
  if (i + 2 >= c->ncode) return infer_fail(s, TY_EVALUE, NULL, "shape: -4 needs two dims after it");
  TRY(next_dim(s, c, -4, &d));
  a = c->code[i + 1];
  b = c->code[i + 2];
  if (a < -1 || b < -1 || a == 0 || b == 0 || (a == -1 && b == -1))
    return infer_fail(s, TY_EVALUE, NULL,
        "shape: -4 expects two positive dims, one of them may be -1, got %lld and "
        "%lld",
        (long long)a, (long long)b);
  if (a == -1) a = d / b;
  if (b == -1) b = d / a;
  if (d && a * b != d)
    return infer_fail(s, TY_ESHAPE, &s->in[0], "shape: -4 cannot split %lld into %lld and %lld",
        (long long)d, (long long)a, (long long)b);
  c->split = true;
  TRY(append_dim(s, c, a));
  return append_dim(s, c, b);
}

/* Reads the code at *i, and moves *i to its last entry. */
static int read_code(struct infer *s, struct codes *c, int *i)
{
  int64_t code = c->code[*i], d = 0, e = 0;
  switch (code) {
  case 0: TRY(next_dim(s, c, code, &d)); return append_dim(s, c, d);
  case -1:
    if (c->rest >= 0) return infer_fail(s, TY_EVALUE, NULL, "shape: only one -1 is possible");
    c->rest = c->ndst;
    c->at++;
    return append_dim(
        s, c, c->split ? 1 : 0); /* after a -4 it means 1, as in the reference */
  case -2:
    while (c->at < c->nsrc) {
      TRY(next_dim(s, c, code, &d));
      TRY(append_dim(s, c, d));
    }
    return TY_OK;
  case -3:
    TRY(next_dim(s, c, code, &d));
    TRY(next_dim(s, c, code, &e));
    return append_dim(s, c, d * e);
  case -4:
    TRY(split_dim(s, c, *i));
    *i += 2;
    return TY_OK;
  default:
    if (code < 0)
      return infer_fail(
          s, TY_EVALUE, NULL, "shape: expected dims or codes 0 to -4, got %lld", (long long)code);
    c->at++;
    return append_dim(s, c, code);
  }
}

/* Returns whether all codes are dims, so that the shape does not depend on data. */
static bool is_literal(const struct ints *shape)
{
  for (int i = 0; i < shape->n; i++)
    if (shape->d[i] <= 0) return false;
  return true;
}

/* Returns the dim of code -1, which takes the dims of data that no code copies; 0: those are
** unknown, or not divisible. */
static int64_t remaining_dim(const struct codes *c)
{
  int64_t n = 1, given = 1;
  for (int i = 0; i < c->nsrc; i++)
    if (!c->copied[i]) n = size_times(n, c->src[i]);
  for (int i = 0; i < c->ncode; i++) {
    if (c->code[i] > 0) given = size_times(given, c->code[i]);
    if (c->code[i] == -4) i += 2; /* its two dims replace a copied one */
  }
  return n % given ? 0 : n / given;
}

static int shape_from_codes(struct infer *s, const struct reshape *p, ty_desc *to)
{
  struct codes c = { .rest = -1, .ncode = (int)p->shape.n, .nsrc = s->in[0].ndim };
  memcpy(c.code, p->shape.d, sizeof c.code);
  memcpy(c.src, s->in[0].dim, sizeof c.src);
  if (!c.nsrc && !is_literal(&p->shape)) return TY_OK;
  if (p->reverse) reverse_dims(c.code, c.ncode), reverse_dims(c.src, c.nsrc);
  for (int i = 0; i < c.ncode; i++) TRY(read_code(s, &c, &i));
  if (c.rest >= 0 && !c.dst[c.rest]) c.dst[c.rest] = remaining_dim(&c);
  if (p->reverse) reverse_dims(c.dst, c.ndst);
  to->ndim = c.ndst;
  memcpy(to->dim, c.dst, sizeof c.dst);
  return TY_OK;
}

static void old_form(const struct infer *s, const struct reshape *p, ty_desc *to)
{
  to->ndim = (int)p->target_shape.n;
  for (int i = 0; i < to->ndim; i++) to->dim[i] = MAX(p->target_shape.d[i], 0);
  if (p->keep_highest) to->dim[0] = s->in[0].ndim ? s->in[0].dim[0] : 0;
}

static int reshape_shape(struct infer *s)
{
  const struct reshape *p = s->param;
  ty_desc to = { 0 };
  if (p->shape.n > 0)
    TRY(shape_from_codes(s, p, &to));
  else if (p->target_shape.n > 0)
    old_form(s, p, &to);
  TRY(complete_shape(s, &s->in[0], &to));
  TRY(shape_as(s, &s->out[0], &to));
  return complete_both(s);
}

/* -- Flatten ----------------------------------------------------------------------------------- */

static int flatten_shape(struct infer *s)
{
  ty_desc *in = &s->in[0], *out = &s->out[0];
  int64_t dim[2] = { in->ndim ? in->dim[0] : 0, 1 };
  for (int i = 1; i < in->ndim; i++) dim[1] *= in->dim[i];
  if (!in->ndim) dim[1] = 0;
  TRY(shape_is(s, out, 2, dim));
  if (in->ndim) TRY(shape_dim(s, in, 0, out->dim[0]));
  return complete_both(s);
}

/* -- expand_dims, squeeze ---------------------------------------------------------------------- */

struct expand { int64_t axis; };
static const struct param expand_params[] = {
  { "axis", P_INT, offsetof(struct expand, axis), NULL,
    "index of the new axis of size 1; negative counts from the end of the result" },
  { 0 }
};

static int expand_shape(struct infer *s)
{
  const struct expand *p = s->param;
  ty_desc *in = &s->in[0], *out = &s->out[0];
  int ndim = in->ndim ? in->ndim + 1 : out->ndim, axis;
  if (!ndim) return TY_OK;
  TRY(infer_axis(s, p->axis, ndim, &axis));
  int64_t wide[TY_MAXDIM + 1] = { 0 }, narrow[TY_MAXDIM] = { 0 };
  for (int i = 0; i < in->ndim; i++) wide[i + (i >= axis)] = in->dim[i];
  wide[axis] = 1;
  TRY(shape_is(s, out, ndim, wide));
  for (int i = 0; i < ndim - 1; i++) narrow[i] = out->dim[i + (i >= axis)];
  return shape_is(s, in, ndim - 1, narrow);
}

struct squeeze { struct dims axis; };
static const struct param squeeze_params[] = {
  { "axis", P_SHAPE, offsetof(struct squeeze, axis), "None", "axes of size 1 to drop; None: all of them", NULL, NULL,
    1 },
  { 0 }
};

/* Marks in `gone` the axes to drop. *known: false if this depends on sizes that are unknown. */
static int find_squeezed(struct infer *s, bool gone[TY_MAXDIM], bool *known)
{
  const struct squeeze *p = s->param;
  ty_desc *in = &s->in[0];
  *known = in->ndim > 0;
  for (int i = 0; i < TY_MAXDIM; i++) gone[i] = false;
  for (int i = 0; in->ndim && i < p->axis.n; i++) {
    int axis;
    TRY(infer_axis(s, p->axis.d[i], in->ndim, &axis));
    if (gone[axis]) return infer_fail(s, TY_EVALUE, NULL, "axis %d is listed twice", axis);
    if (in->dim[axis] > 1)
      return infer_fail(s, TY_ESHAPE, in,
          "axis %d has size %lld; only axes of size 1 can be dropped", axis,
          (long long)in->dim[axis]);
    gone[axis] = true;
    in->dim[axis] = 1;
  }
  if (p->axis.n >= 0) return TY_OK;
  for (int i = 0; i < in->ndim; i++) gone[i] = in->dim[i] == 1, *known &= in->dim[i] != 0;
  return TY_OK;
}

static int squeeze_shape(struct infer *s)
{
  ty_desc *in = &s->in[0], *out = &s->out[0];
  bool gone[TY_MAXDIM], known;
  int64_t dim[TY_MAXDIM];
  int n = 0;
  TRY(find_squeezed(s, gone, &known));
  if (!known) return TY_OK;
  for (int i = 0; i < in->ndim; i++)
    if (!gone[i]) dim[n++] = in->dim[i];
  if (!n) dim[n++] = 1; /* one axis always stays */
  TRY(shape_is(s, out, n, dim));
  for (int i = 0, k = 0; i < in->ndim; i++)
    if (!gone[i]) TRY(shape_dim(s, in, i, out->dim[k++]));
  return TY_OK;
}

/* -- reshape_like ------------------------------------------------------------------------------ */

struct reshape_like { int64_t lhs_begin, lhs_end, rhs_begin, rhs_end; };
static const struct param like_params[] = {
  { "lhs_begin", P_INT, offsetof(struct reshape_like, lhs_begin), "None", "first dim of lhs that is replaced; None: 0", NULL,
    NULL, 1 },
  { "lhs_end",   P_INT, offsetof(struct reshape_like, lhs_end),   "None",
    "one after the last dim of lhs that is replaced; None: all to the end", NULL, NULL, 1 },
  { "rhs_begin", P_INT, offsetof(struct reshape_like, rhs_begin), "None", "first dim of rhs that is used; None: 0", NULL, NULL,
    1 },
  { "rhs_end",   P_INT, offsetof(struct reshape_like, rhs_end),   "None",
    "one after the last dim of rhs that is used; None: all to the end", NULL, NULL, 1 },
  { 0 }
};

/* Sets *from .. *to - 1 to the dims between begin and end, negative or None as in Python. */
static int replaced_range(
    struct infer *s, const ty_desc *d, int64_t begin, int64_t end, int *from, int *to)
{
  int64_t b = begin == NONE ? 0
      : begin < 0           ? begin + d->ndim
                            : begin,
          e = end == NONE ? d->ndim
      : end < 0           ? end + d->ndim
                          : end;
  if (b < 0 || e > d->ndim || b > e || (b == e && b == d->ndim && begin != NONE))
    return infer_fail(s, TY_EVALUE, d, "dims %lld to %lld of %d cannot be replaced", (long long)b,
        (long long)e, d->ndim);
  *from = (int)b;
  *to = (int)e;
  return TY_OK;
}

static int like_shape(struct infer *s)
{
  const struct reshape_like *p = s->param;
  const ty_desc *lhs = &s->in[0], *rhs = &s->in[1];
  int64_t dim[2 * TY_MAXDIM];
  int n = 0, lb, le, rb, re;
  bool whole = p->lhs_begin == NONE && p->lhs_end == NONE;
  if (!rhs->ndim || (!lhs->ndim && !whole)) return complete_both(s);
  TRY(replaced_range(s, rhs, p->rhs_begin, p->rhs_end, &rb, &re));
  if (whole)
    lb = le = 0;
  else
    TRY(replaced_range(s, lhs, p->lhs_begin, p->lhs_end, &lb, &le));
  for (int i = 0; i < lb; i++) dim[n++] = lhs->dim[i];
  for (int i = rb; i < re; i++) dim[n++] = rhs->dim[i];
  for (int i = le; !whole && i < lhs->ndim; i++) dim[n++] = lhs->dim[i];
  TRY(shape_is(s, &s->out[0], n, dim));
  return complete_both(s);
}

/* -- rows -------------------------------------------------------------------------------------- */

#define VIEW_AND(flags_) \
  .cpu = copies, .back_cpu = copies, .grad = "g0", .type = pair_type, .flags = OP_VIEW | (flags_)
#define VIEW VIEW_AND(0)

const struct op op_reshape[] = {
  { .name = "Reshape", .alias = "reshape",
    .doc = "The same elements under new dims; `shape` may hold the codes 0 (copy a dim), -1 (what remains), -2 (all "
           "that remain), -3 (join two), "
           "-4 (split one). The gradient is reshaped back.",
    .in = "data", .param = reshape_params, .param_size = sizeof(struct reshape), .shape = reshape_shape,
    .back = "_backward_reshape", VIEW },
  { .name = "Flatten", .alias = "flatten _npx_batch_flatten",
    .doc = "Joins all axes but the first: (n, a, b, ...) becomes (n, a * b * ...). The gradient takes the old dims "
           "again.",
    .in = "data", .shape = flatten_shape, .back = "_backward_copy", VIEW },
  { .name = "expand_dims", .alias = "_npi_expand_dims",
    .doc = "Puts an axis of size 1 at `axis`. The gradient loses it again.",
    .in = "data", .param = expand_params, .param_size = sizeof(struct expand), .shape = expand_shape,
    .back = "_backward_reshape", VIEW },
  { .name = "squeeze",
    .doc = "Drops axes of size 1, the listed ones or all; one axis always stays. The gradient gets them back.",
    .in = "data", .param = squeeze_params, .param_size = sizeof(struct squeeze), .shape = squeeze_shape, VIEW_AND(OP_NAMED_INPUT) },
  { .name = "reshape_like", .alias = "_npx_reshape_like",
    .doc = "lhs under the dims of rhs, or with the dims lhs_begin to lhs_end replaced by dims rhs_begin to rhs_end of "
           "rhs. rhs gets no gradient.",
    .in = "lhs rhs", .param = like_params, .param_size = sizeof(struct reshape_like), .shape = like_shape,
    .back = "_backward_copy", VIEW },
  { 0 }
};

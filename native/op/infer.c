/* infer.c - see infer.h: merging shapes and dtypes of one operator, and the errors on conflicts. */
#include "op/registry.h"

/* Writes the name of the input or output that is `slot`. */
static void slot_name(struct infer *s, const ty_desc *slot, char *buffer, size_t size)
{
  struct arena a = { 0 };
  struct ports p;
  snprintf(buffer, size, "?");
  if (!op_ports(s->op, s->param, s->nin, &a, &p)) {
    if (slot >= s->in && slot < s->in + s->nin && slot - s->in < p.nin)
      snprintf(buffer, size, "%s", p.in[slot - s->in].name);
    if (slot >= s->out && slot < s->out + s->nout && slot - s->out < p.nout)
      snprintf(buffer, size, "%s", p.out[slot - s->out].name);
  }
  arena_done(&a);
}

int infer_fail(struct infer *s, int code, const ty_desc *slot, const char *format, ...)
{
  char line[1024], name[128];
  va_list args;
  va_start(args, format);
  number_format(line, sizeof line, format, args);
  va_end(args);
  if (!slot) return fail(code, "%s: %s", s->op->name, line);
  slot_name(s, slot, name, sizeof name);
  fail(code, "%s: %s: %s", s->op->name, name, line);
  fail_argument(name, NULL, NULL);
  return code;
}

static bool desc_broadcast(const ty_desc *a, const ty_desc *b)
{
  for (int i = 1; i <= MIN(a->ndim, b->ndim); i++) {
    int64_t m = a->dim[a->ndim - i], n = b->dim[b->ndim - i];
    if (m != n && m != 1 && n != 1) return false;
  }
  return desc_known(a) && desc_known(b) && !desc_same_shape(a, b);
}

/* If an operator that needs equal shapes gets shapes that broadcast, writes which operator to use
** instead. */
static void broadcast_hint(const struct infer *s, char *hint, size_t size)
{
  char name[64];
  const char *own = s->op->name;
  *hint = 0;
  if (s->nin != 2 || !s->op->formula || !desc_broadcast(&s->in[0], &s->in[1])) return;
  if (!strncmp(own, "elemwise_", 9))
    own += 9;
  else if (*own == '_')
    own++;
  snprintf(name, sizeof name, "broadcast_%s", own);
  const struct op *other = op_find(name);
  if (other && other != s->op) snprintf(hint, size, "; %s takes these shapes", name);
}

static int fail_conflict(struct infer *s, ty_desc *slot, const ty_desc *want)
{
  char a[160], b[160], name[128], hint[128];
  broadcast_hint(s, hint, sizeof hint);
  slot_name(s, slot, name, sizeof name);
  text_shape(slot, a, sizeof a);
  text_shape(want, b, sizeof b);
  int code = fail(
      TY_ESHAPE, "%s: shape of %s is %s, but %s is needed here%s", s->op->name, name, a, b, hint);
  fail_argument(name, b, a);
  return code;
}

int shape_is(struct infer *s, ty_desc *slot, int ndim, const int64_t *dim)
{
  ty_desc want = { .ndim = ndim };
  if (ndim <= 0) return TY_OK;
  if (ndim > TY_MAXDIM)
    return infer_fail(
        s, TY_ESHAPE, slot, "%d dimensions; at most %d are possible", ndim, TY_MAXDIM);
  memcpy(want.dim, dim, sizeof *dim * (size_t)ndim);
  for (int i = 0; i < ndim; i++)
    if (dim[i] < 0)
      return infer_fail(
          s, TY_ESHAPE, slot, "axis %d would have %lld elements", i, (long long)dim[i]);
    else if (dim[i] > TENSOR_BYTES_MAX)
      return infer_fail(s, TY_ESHAPE, slot, "%lld elements along axis %d; no machine holds them",
          (long long)dim[i], i);
  if (slot->ndim && slot->ndim != ndim) return fail_conflict(s, slot, &want);
  for (int i = 0; slot->ndim && i < ndim; i++)
    if (slot->dim[i] && dim[i] && slot->dim[i] != dim[i]) return fail_conflict(s, slot, &want);
  for (int i = 0; slot->ndim && i < ndim; i++)
    if (!want.dim[i]) want.dim[i] = slot->dim[i];
  if (!desc_countable(&want)) {
    char shape[160];
    return infer_fail(s, TY_ESHAPE, slot, "a tensor of shape %s is too large",
        text_shape(&want, shape, sizeof shape));
  }
  slot->ndim = ndim;
  memcpy(slot->dim, want.dim, sizeof slot->dim);
  return TY_OK;
}

int shape_as(struct infer *s, ty_desc *slot, const ty_desc *with)
{
  return slot == with ? TY_OK : shape_is(s, slot, with->ndim, with->dim);
}

int shape_both(struct infer *s, ty_desc *a, ty_desc *b)
{
  TRY(shape_as(s, a, b));
  return shape_as(s, b, a);
}

int shape_dim(struct infer *s, ty_desc *slot, int axis, int64_t size)
{
  ty_desc want = *slot;
  if (axis < 0 || axis >= slot->ndim) return TY_OK;
  want.dim[axis] = size;
  return shape_is(s, slot, want.ndim, want.dim);
}

int type_is(struct infer *s, ty_desc *slot, int dtype)
{
  if (dtype == TY_NODTYPE || slot->dtype == dtype) return TY_OK;
  if (slot->dtype == TY_NODTYPE) {
    slot->dtype = dtype;
    return TY_OK;
  }
  char name[128];
  slot_name(s, slot, name, sizeof name);
  int code = fail(TY_EDTYPE, "%s: dtype of %s is %s, but %s is needed here; astype converts "
      "arrays, Cast symbols", s->op->name, name, dtype_name(slot->dtype), dtype_name(dtype));
  fail_argument(name, dtype_name(dtype), dtype_name(slot->dtype));
  return code;
}

int type_both(struct infer *s, ty_desc *a, ty_desc *b)
{
  TRY(type_is(s, a, b->dtype));
  return type_is(s, b, a->dtype);
}

static bool is_half(int dtype) { return dtype == TY_F16 || dtype == TY_BF16; }

int index_fits(struct infer *s, const ty_desc *slot, int64_t n)
{
  if (!is_half(slot->dtype)) return TY_OK;
  return positions_fit(s, slot, slot->dtype, n, "give them in float32 or as integers");
}

int type_index(struct infer *s, ty_desc *slot, const ty_desc *data, int64_t n)
{
  bool rounds = is_half(data->dtype) && n > dtype_counts(data->dtype);
  if (slot->dtype == TY_NODTYPE) TRY(type_is(s, slot, rounds ? TY_F32 : data->dtype));
  return index_fits(s, slot, n);
}

int positions_fit(struct infer *s, const ty_desc *slot, int dtype, int64_t n, const char *instead)
{
  if (dtype == TY_NODTYPE || n <= dtype_counts(dtype)) return TY_OK;
  return infer_fail(s, TY_EVALUE, slot, "%s%s cannot count %lld elements%s%s",
      slot ? "" : "parameter dtype: ", dtype_name(dtype), (long long)n, slot ? "; " : "",
      slot ? instead : "");
}

int check_position_dtype(int64_t dtype)
{
  static const char want[] = "uint8, int32, int64, float16, float32 or float64";
  if (dtype == TY_U8 || dtype == TY_I32 || dtype == TY_I64 || dtype == TY_F16 || dtype == TY_F32 ||
      dtype == TY_F64)
    return TY_OK;
  int code = fail(
      TY_EVALUE, "parameter dtype: expected %s, got %s", want, dtype_name((int)dtype));
  fail_argument("dtype", want, dtype_name((int)dtype));
  return code;
}

int type_all(struct infer *s)
{
  int dtype = TY_NODTYPE;
  for (int i = 0; i < s->nin && dtype == TY_NODTYPE; i++) dtype = s->in[i].dtype;
  for (int i = 0; i < s->nout && dtype == TY_NODTYPE; i++) dtype = s->out[i].dtype;
  for (int i = 0; i < s->nin; i++) TRY(type_is(s, &s->in[i], dtype));
  for (int i = 0; i < s->nout; i++) TRY(type_is(s, &s->out[i], dtype));
  return TY_OK;
}

int shape_all(struct infer *s)
{
  ty_desc known = { 0 };
  /* the second round passes back what the first one found */
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < s->nin + s->nout; i++) {
      ty_desc *slot = i < s->nin ? &s->in[i] : &s->out[i - s->nin];
      TRY(shape_as(s, slot, &known));
      if (slot->ndim) known = *slot;
    }
  return TY_OK;
}

int infer_axis(struct infer *s, int64_t axis, int ndim, int *out)
{
  if (axis < -ndim || axis >= ndim)
    return infer_fail(s, TY_EVALUE, NULL,
        "axis %lld of an array of %d dimensions; expected %d to %d", (long long)axis, ndim, -ndim,
        ndim - 1);
  *out = axis_in(axis, ndim);
  return TY_OK;
}

int op_infer(struct infer *s, int what)
{
  int input = 1;
  if (what == INFER_SHAPES)
    TRY(s->op->shape ? s->op->shape(s) : shape_all(s));
  else
    TRY(s->op->type ? s->op->type(s) : type_all(s));
  int64_t n = s->op->indices ? s->op->indices(s, &input) : 0;
  return n > 0 && input < s->nin ? index_fits(s, &s->in[input], n) : TY_OK;
}

enum { EXPLAINED = 64 };                /* inputs that a message lists */

/* Returns what an operator's function reported, without the operator's name at its beginning. */
static const char *strip_name(const char *message, const char *op)
{
  size_t n = strlen(op);
  if (!message) return "";
  return !strncmp(message, op, n) && message[n] == ':' ? message + n + 2 : message;
}

int infer_explain(int code, int what, const char *op, const char *node, const struct port *in,
    const ty_desc *d, int n)
{
  char shape[160];
  struct text t = { 0 };
  ty_failure f;
  ty_error_detail(&f);
  if (what == INFER_TYPES && n == 1) n = 0; /* the message names its type */
  text_add(&t, "%s%s%s: %s", op, node ? " " : "", node ? node : "", strip_name(f.message, op));
  for (int i = 0; i < MIN(n, EXPLAINED); i++)
    text_add(&t, "%s%s %s", i ? ", " : " (inputs: ", in[i].name,
        what == INFER_TYPES ? dtype_name(d[i].dtype) : text_shape(&d[i], shape, sizeof shape));
  if (n) text_add(&t, n > EXPLAINED ? " ...)" : ")");
  char *argument = f.argument ? mem_text(f.argument) : NULL,
       *expected = f.expected ? mem_text(f.expected) : NULL, *got = f.got ? mem_text(f.got) : NULL;
  fail(code, "%s", t.s ? t.s : "inference failed");
  fail_argument(argument, expected, got);
  text_done(&t);
  mem_free(argument);
  mem_free(expected);
  mem_free(got);
  return code;
}

/* -- for front ends ---------------------------------------------------------------------------- */

/* Infers shapes and dtypes of one call into d: nin inputs, then nout outputs. */
static int infer_alone(const struct op *op, const void *param, ty_desc *d, int nin, int nout)
{
  struct infer f = { op, param, nin, nout, d, d + nin };
  for (int round = 0; round < 2; round++) {
    TRY(op_infer(&f, INFER_TYPES));
    TRY(op_infer(&f, INFER_SHAPES));
  }
  return TY_OK;
}

int ty_op_infer(const char *name, const ty_attr *attr, int nattr, ty_desc *in, int nin,
    ty_desc *out, int nout, int *n)
{
  NEED(name && (attr || !nattr) && (in || !nin) && (out || !nout) && n, TY_ETYPE,
      "op_infer: null argument");
  const struct op *op = op_find(name);
  if (!op) return op_unknown(name);
  struct arena a = { 0 };
  struct ports ports;
  char number[16];
  ty_desc *d = NULL;
  ty_attr *more = arena_new(&a, sizeof *more * (size_t)(nattr + 1));
  void *param = arena_new(&a, op->param_size + 16);
  int code = more && param ? TY_OK : fail(TY_EMEMORY, "out of memory");
  if (!code) attr = op_counted(op, attr, &nattr, nin, more, number);
  if (!code) code = op_parse(op, attr, nattr, param);
  if (!code) code = op_ports(op, param, nin, &a, &ports);
  if (!code && ports.nin != nin)
    code = fail(TY_EVALUE, "%s: expected %d inputs, got %d", op->name, ports.nin, nin);
  if (!code) {
    d = arena_new(&a, sizeof *d * (size_t)(nin + ports.nout + 1));
    if (!d) code = fail(TY_EMEMORY, "out of memory");
  }
  if (!code) {
    if (nin) memcpy(d, in, sizeof *d * (size_t)nin);
    for (int i = 0; i < ports.nout; i++) d[nin + i].dtype = TY_NODTYPE;
    code = infer_alone(op, param, d, nin, ports.nout);
  }
  if (!code) {
    *n = ports.nvisible;
    if (nin) memcpy(in, d, sizeof *d * (size_t)nin);
    if (nout) memcpy(out, d + nin, sizeof *d * (size_t)MIN(nout, ports.nvisible));
  }
  arena_done(&a);
  return code;
}

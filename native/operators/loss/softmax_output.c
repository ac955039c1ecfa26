/* softmax_output.c - SoftmaxOutput: softmax forward, the gradient of cross entropy with a label
** backward.
**
** Data is (outer, k, inner): with multi_output classes are on axis 1, with preserve_shape on the
** last axis; otherwise each sample is one row. A label of data's shape has probabilities; else
** labels are class indices, one per row in order. Head gradients are ignored, unless out_grad is
** set, which multiplies by them.
*/
#include "op/op.h"
#include "operators/loss/softmax_loss.h"
#include "kernel/vec/softmax.h"

struct output_param {
  double grad_scale, ignore_label, smooth_alpha;
  int64_t multi_output, use_ignore, preserve_shape, normalization, out_grad;
};
enum { PER_BATCH, PER_NOTHING, PER_VALID };
#define FIELD(f) offsetof(struct output_param, f)
static const struct param output_params[] = {
  { "grad_scale",     P_FLOAT, FIELD(grad_scale),     "1",    "factor of the gradient" },
  { "ignore_label",   P_FLOAT, FIELD(ignore_label),   "-1",   "with use_ignore: rows of this label get no gradient" },
  { "multi_output",   P_BOOL,  FIELD(multi_output),   "0",    "classes are on axis 1, labels cover the axes after it" },
  { "use_ignore",     P_BOOL,  FIELD(use_ignore),     "0",    "rows whose label is ignore_label get no gradient" },
  { "preserve_shape", P_BOOL,  FIELD(preserve_shape), "0",    "classes are on the last axis" },
  { "normalization",  P_ENUM,  FIELD(normalization),  "null",
    "the gradient is divided by: null nothing, batch labels, valid labels other than ignore_label", "batch|null|valid" },
  { "out_grad",       P_BOOL,  FIELD(out_grad),       "0",    "multiply by the head gradient" },
  { "smooth_alpha",   P_FLOAT, FIELD(smooth_alpha),   "0",
    "label smoothing: what the label gives to all other classes", NULL, "[0,1]" },
  { 0 }
};

static struct split make_view(const ty_desc *d, const struct output_param *p)
{
  if (p->multi_output && d->ndim > 1) return split_at(d, 1);
  if (p->preserve_shape) return split_at(d, d->ndim - 1);
  return (struct split){ d->dim[0], desc_count(d) / MAX(d->dim[0], 1), 1 };
}

/* -- inference --------------------------------------------------------------------------------- */

static bool matches_shape(const ty_desc *a, int ndim, const int64_t *dim)
{
  if (a->ndim != ndim) return false;
  for (int i = 0; i < ndim; i++)
    if (a->dim[i] && dim[i] && a->dim[i] != dim[i]) return false;
  return true;
}

/* Infers labels of multi_output: (n, rest), unless they are given as data's shape without axis 1,
** or with 1 in its place. */
static int multi_label(struct infer *s, const ty_desc *d)
{
  ty_desc *label = &s->in[1], without = { .ndim = d->ndim - 1 }, one = *d;
  int64_t flat[2] = { d->dim[0], 1 };
  one.dim[1] = 1;
  for (int i = 0, k = 0; i < d->ndim; i++)
    if (i != 1) without.dim[k++] = d->dim[i];
  for (int i = 2; i < d->ndim; i++) flat[1] *= d->dim[i];
  if (matches_shape(label, without.ndim, without.dim)) return shape_as(s, label, &without);
  if (matches_shape(label, one.ndim, one.dim)) return shape_as(s, label, &one);
  return shape_is(s, label, 2, flat);
}

static int output_shape(struct infer *s)
{
  const struct output_param *p = s->param;
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  ty_desc d = s->in[0], *label = &s->in[1];
  if (!d.ndim || matches_shape(label, d.ndim, d.dim))
    return d.ndim && label->ndim ? shape_as(s, label, &d) : TY_OK;
  if (p->multi_output && d.ndim > 1) return multi_label(s, &d);
  return shape_is(s, label, MAX(d.ndim - 1, 1), d.dim);
}

/* Returns the number of classes; 0: labels are probabilities, or it is unknown. */
static int64_t classes_of(const struct infer *s, int *input)
{
  const ty_desc *d = &s->in[0], *label = &s->in[1];
  if (!desc_known(d) || !desc_known(label) || desc_same_shape(d, label)) return 0;
  return make_view(d, s->param).k;
}

static int output_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->out[0]));
  return type_index(s, &s->in[1], &s->in[0], classes_of(s, NULL));
}

/* -- kernels ----------------------------------------------------------------------------------- */

static const char *output_refuse(const struct call *c)
{
  return dtype_float(c->in[0].d.dtype) ? NULL : "data is not of a float dtype";
}

struct softmax_pass { const struct vec_ops *r; struct split s; void *y; const void *x; };

static void forward_body(int64_t begin, int64_t end, void *context)
{
  struct softmax_pass *f = context;
  const struct vec_ops *r = f->r;
  int64_t strips = (f->s.inner + ROW_COLS - 1) / ROW_COLS;
  for (int64_t i = begin; i < end; i++) {
    int64_t from = i % strips * ROW_COLS, start = i / strips * f->s.k * f->s.inner + from;
    if (f->s.inner == 1)
      r->softmax->soft(vec_at(r, f->y, start), vec_at(r, f->x, start), 1, false, f->s.k);
    else
      r->softmax->soft_cols(vec_at(r, f->y, start), vec_at(r, f->x, start), 1, false, f->s.k,
          f->s.inner,
          MIN(ROW_COLS, f->s.inner - from));
  }
}

static int output_forward(struct call *c)
{
  struct softmax_pass f = { vec_ops_of(c->in[0].d.dtype), make_view(&c->in[0].d, c->param),
    c->out[0].p, c->in[0].p };
  if (f.y)
    parallel_for(f.s.outer * ((f.s.inner + ROW_COLS - 1) / ROW_COLS),
        elements_ns(f.s.k * MIN(f.s.inner, ROW_COLS) * 8), forward_body, &f);
  return TY_OK;
}

/* Fails for labels that are no class: training would silently ignore them. The usual cause is
** counting classes from 1. */
static int output_examine(const struct call *c)
{
  const struct output_param *p = c->param;
  const struct operand *label = &c->in[1];
  struct split s = make_view(&c->in[0].d, p);
  if (desc_same_shape(&c->in[0].d, &label->d)) return TY_OK;
  for (int64_t i = 0; i < s.outer * s.inner; i++) {
    double x = number_at(label, i);
    if (p->use_ignore && x == p->ignore_label) continue;
    NEED(x > -1 && x < (double)s.k, TY_ERUN,
        "label %g at position %lld is not a class; classes are counted from 0, expected 0 to %lld",
        x, (long long)i, (long long)s.k - 1);
  }
  return TY_OK;
}

/* Returns whether label i of sample o is ignored; if so, sets the gradient of its classes to 0. */
static bool clear_ignored(
    const struct softmax_loss *l, int64_t o, int64_t i, int64_t from, int64_t n, void *dx)
{
  if (!l->ignore || whole_at(l->label, o * l->s.inner + i) != l->ignored) return false;
  for (int64_t j = from + (i - from % l->s.inner + l->s.inner) % l->s.inner; j < from + n;
       j += l->s.inner)
    l->r->set(dx, j - from, 0);
  return true;
}

static void one_label(
    const struct softmax_loss *l, int64_t o, int64_t i, int64_t from, int64_t n, void *dx)
{
  const struct vec_ops *r = l->r;
  int64_t k = whole_at(l->label, o * l->s.inner + i);
  if (clear_ignored(l, o, i, from, n, dx)) return;
  int64_t hit = k * l->s.inner + i;
  if (k < 0 || k >= l->s.k || hit < from || hit >= from + n) return;
  r->set(dx, hit - from, (r->get(l->p, o * l->s.k * l->s.inner + hit) - 1 + l->smooth) * l->scale);
}

void softmax_loss_part(const struct softmax_loss *l, int64_t o, int64_t from, int64_t n, void *dx)
{
  double others = l->s.k > 1 ? l->smooth / (double)(l->s.k - 1) : 0;
  l->r->affine(
      dx, vec_at(l->r, l->p, o * l->s.k * l->s.inner + from), l->scale, -others * l->scale, n);
  for (int64_t i = 0; i < l->s.inner; i++) one_label(l, o, i, from, n, dx);
}

/* Returns the number by which the gradients are divided. */
static double loss_divisor(const struct softmax_loss *l, const struct output_param *p)
{
  int64_t labels = desc_count(&l->label->d), valid = 0;
  if (p->normalization == PER_VALID) {
    for (int64_t i = 0; i < labels; i++) valid += whole_at(l->label, i) != l->ignored;
    return (double)MAX(valid, 1);
  }
  double spatial = p->multi_output ? (double)l->s.inner : 1;
  if (p->normalization == PER_NOTHING) return spatial;
  return p->multi_output ? (double)l->s.outer * spatial : (double)labels;
}

struct softmax_loss make_softmax_loss(
    const void *param, const struct operand *out, const struct operand *label)
{
  const struct output_param *p = param;
  struct softmax_loss l = { .r = vec_ops_of(out->d.dtype),
    .s = make_view(&out->d, p),
    .label = label,
    .p = out->p,
    .scale = p->grad_scale,
    .smooth = p->multi_output ? 0 : p->smooth_alpha,
    .ignore = p->use_ignore,
    .ignored = (int64_t)fmax(fmin(p->ignore_label, 1e15), -1e15) };
  if (!desc_same_shape(&out->d, &label->d)) l.scale /= loss_divisor(&l, p);
  return l;
}

struct backward { struct softmax_loss l; const void *head; void *dx; };

static void backward_body(int64_t begin, int64_t end, void *context)
{
  struct backward *b = context;
  const struct vec_ops *r = b->l.r;
  int64_t n = b->l.s.k * b->l.s.inner;
  for (int64_t o = begin; o < end; o++) {
    void *dx = vec_at(r, b->dx, o * n);
    softmax_loss_part(&b->l, o, 0, n, dx);
    if (!b->head) continue;
    r->multiply(dx, vec_at(r, b->head, o * n), n);
    for (int64_t i = 0; i < b->l.s.inner; i++) clear_ignored(&b->l, o, i, 0, n, dx);
  }
}

static void probability_gradient(const struct backward *b, int64_t n)
{
  b->l.r->gap(b->dx, b->l.p, b->l.label->p, b->l.scale, n);
  if (b->head) b->l.r->multiply(b->dx, b->head, n);
}

/* Returns the bytes of converted labels, if these are probabilities of another dtype. */
static size_t backward_scratch(
    const struct call *c)
{
  const struct output_param *p = c->param;
  const struct operand *out = &c->in[p->out_grad], *label = out + 1;
  return desc_same_shape(&out->d, &label->d) && out->d.dtype != label->d.dtype ? desc_bytes(&out->d)
                                                                               : 0;
}

static int output_backward(struct call *c)
{
  const struct output_param *p = c->param;
  const struct operand *out = &c->in[p->out_grad];
  struct operand label = out[1];
  if (c->out[1].p) memset(c->out[1].p, 0, desc_bytes(&c->out[1].d));
  if (!c->out[0].p) return TY_OK;
  struct backward b = { make_softmax_loss(p, out, &label), p->out_grad ? c->in[0].p : NULL,
    c->out[0].p };
  if (desc_same_shape(&out->d, &label.d)) {
    if (label.d.dtype != out->d.dtype)
      dtype_convert(c->tmp, out->d.dtype, label.p, label.d.dtype, desc_count(&label.d)),
          label.p = c->tmp;
    return probability_gradient(&b, desc_count(&out->d)), TY_OK;
  }
  parallel_for(b.l.s.outer, elements_ns(b.l.s.k * b.l.s.inner), backward_body, &b);
  return TY_OK;
}

static const char *output_grad(const void *p)
{
  return ((const struct output_param *)p)->out_grad ? "g0 o0 i1" : "o0 i1";
}
static const struct kernel output_cpu[] = { { "rows", output_forward, T_FLOAT | T_INT, output_refuse }, { 0 } };
static const struct kernel output_back_cpu[] = { { "rows", output_backward, T_FLOAT | T_INT, output_refuse,
                                                   backward_scratch }, { 0 } };

/* Returns whether gradients can be computed for parts of rows: each row has a class index. */
static bool in_parts(const void *param, const ty_desc *out, const ty_desc *label)
{
  const struct output_param *p = param;
  return !p->out_grad && make_view(out, p).inner == 1 &&
      !desc_same_shape(out, label);
}

const struct op op_softmax_output[] = {
  { .name = "SoftmaxOutput", .alias = "Softmax", .flags = OP_LOSS | OP_SPARED, .examine = output_examine,
    .doc = "Softmax of data; its gradient is that of cross entropy: (softmax - onehot(label)) grad_scale, whatever "
           "the head gradient. "
           "A label of data's shape is taken as probabilities.",
    .in = "data label", .param = output_params, .param_size = sizeof(struct output_param), .shape = output_shape,
    .type = output_type, .indices = classes_of,
    .grad_of = output_grad, .inplace = "0=0", .cpu = output_cpu, .back_cpu = output_back_cpu,
    .loss_in_parts = in_parts },
  { 0 }
};

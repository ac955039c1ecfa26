/* ctc_loss.c - CTCLoss: -log of the probability of a label sequence under connectionist temporal
** classification.
**
** Source: Graves et al., "Connectionist Temporal Classification", ICML 2006. Everything is computed
** in float64 on a logarithmic scale. The extended sequence has a blank before, between and after
** the labels: S = 2 L + 1 states. a(t, s): log probability of all paths that are in s at t, with
** t's symbol; b(t, s): of all ways to end from there, without t's symbol. The gradient of the loss
** by the activations, softmax - posterior, is the second output; backward multiplies it by the head
** gradients. A label sequence needs a step per label and one between two equal labels. If there are
** fewer steps, it has no path: loss and gradient are 0, as in the reference.
*/
#include "kernel/vec/softmax.h"
#include "op/op.h"

struct ctc_param { int64_t use_data_lengths, use_label_lengths, blank_label; };
enum { FIRST, LAST };
static const struct param ctc_params[] = {
  { "use_data_lengths",  P_BOOL, offsetof(struct ctc_param, use_data_lengths),  "0",
    "an input data_lengths says how many steps of each sample count" },
  { "use_label_lengths", P_BOOL, offsetof(struct ctc_param, use_label_lengths), "0",
    "an input label_lengths says how many labels each sample has" },
  { "blank_label",       P_ENUM, offsetof(struct ctc_param, blank_label),       "first",
    "first: the blank is class 0, which also ends a label; last: the last class, -1 ends a label", "first|last" },
  { 0 }
};

static const char *ctc_in(const void *param)
{
  static const char *const ports[] = { "data label", "data label label_lengths",
    "data label data_lengths", "data label data_lengths label_lengths" };
  const struct ctc_param *p = param;
  return ports[2 * (p->use_data_lengths != 0) + (p->use_label_lengths != 0)];
}

static int ctc_shape(struct infer *s)
{
  ty_desc d = s->in[0], label = s->in[1];
  if (!d.ndim) return TY_OK;
  if (d.ndim != 3)
    return infer_fail(
        s, TY_ESHAPE, &s->in[0], "expected (time, batch, classes), got %d dimensions", d.ndim);
  if (label.ndim && label.ndim != 2)
    return infer_fail(
        s, TY_ESHAPE, &s->in[1], "expected (batch, labels), got %d dimensions", label.ndim);
  if (label.ndim) TRY(shape_dim(s, &s->in[1], 0, d.dim[1]));
  if (label.ndim && d.dim[0] && label.dim[1] > d.dim[0])
    return infer_fail(s, TY_ESHAPE, &s->in[1], "%lld labels are more than the %lld steps of data",
        (long long)label.dim[1], (long long)d.dim[0]);
  for (int i = 2; i < s->nin; i++) TRY(shape_is(s, &s->in[i], 1, &d.dim[1]));
  TRY(shape_is(s, &s->out[0], 1, &d.dim[1]));
  return shape_as(s, &s->out[1], &d);
}

static int64_t ctc_classes(const struct infer *s, int *input)
{
  return s->in[0].ndim == 3 ? s->in[0].dim[2] : 0;
}

static int ctc_type(struct infer *s)
{
  for (int i = 0; i < 2; i++) TRY(type_both(s, &s->in[0], &s->out[i]));
  const struct ctc_param *p = s->param;
  const ty_desc *d = &s->in[0], *label = &s->in[1];
  int64_t steps = d->ndim == 3 && d->dim[0] ? d->dim[0] + 1 : 0,
          labels = label->ndim == 2 && label->dim[1] ? label->dim[1] + 1 : 0;
  TRY(type_index(s, &s->in[1], d, ctc_classes(s, NULL)));
  for (int i = 2; i < s->nin; i++)
    TRY(type_index(s, &s->in[i], d, p->use_data_lengths && i == 2 ? steps : labels));
  return TY_OK;
}

/* -- one sample -------------------------------------------------------------------------------- */

struct ctc {
  const struct vec_ops *r;
  const struct operand *label, *data_length, *label_length;
  int64_t T;                                          /* steps */
  int64_t N;                                          /* samples */
  int64_t A;                                          /* classes */
  int64_t L;                                          /* length of the longest label */
  int64_t blank;                                      /* the class of the blank */
  bool    first;
  const double *log_y;                                /* (T, N, A) */
  /* per sample: a (T, S), b twice (S), the extended sequence (S) */
  double *work;
  void   *loss, *grad;                                /* may be NULL */
};

struct sample {
  const struct ctc *c;
  int64_t n, steps, S;
  double *a, *b, *next, *posterior;
  int64_t *symbol;
};

static double log_add(double a, double b)
{
  double high = a > b ? a : b, low = a > b ? b : a;
  return low == -INFINITY ? high : high + log1p(exp(low - high));
}

static double log_y(const struct sample *s, int64_t t, int64_t k)
{
  return s->c->log_y[(t * s->c->N + s->n) * s->c->A + k];
}
static int64_t state_count(const struct ctc *c) { return 2 * c->L + 1; }
static int64_t work_size(const struct ctc *c) { return (c->T + 3) * state_count(c) + c->A; }

static int64_t label_count(const struct ctc *c, int64_t n)
{
  if (c->label_length) return index_at(c->label_length, n, c->L + 1);
  for (int64_t i = 0; i < c->L; i++) {
    int64_t k = whole_at(c->label, n * c->L + i);
    if (k == (c->first ? 0 : -1)) return i;
  }
  return c->L;
}

/* Fails if a label is outside the alphabet. */
static int check_labels(const struct ctc *c)
{
  for (int64_t n = 0; n < c->N; n++)
    for (int64_t i = 0, count = label_count(c, n); i < count; i++) {
      int64_t k = whole_at(c->label, n * c->L + i);
      NEED(k >= 0 && k < c->A, TY_ERUN,
          "label %g at position %lld is not a class; expected 0 to %lld%s",
          number_at(c->label, n * c->L + i), (long long)(n * c->L + i), (long long)c->A - 1,
          c->label_length ? ""
              : c->first  ? ", of which 0 ends a label"
                          : ", or -1, which ends a label");
    }
  return TY_OK;
}

/* Returns sample n, with its work arrays and its extended sequence. */
static struct sample open_sample(const struct ctc *c, int64_t n)
{
  int64_t most = state_count(c), count = label_count(c, n);
  double *work = c->work + n * work_size(c);
  struct sample s = { c, n, c->data_length ? index_at(c->data_length, n, c->T + 1) : c->T,
    2 * count + 1, work, work + c->T * most, work + (c->T + 1) * most, work + (c->T + 3) * most,
    NULL };
  s.symbol = (int64_t *)(void *)(work + (c->T + 2) * most);
  for (int64_t i = 0; i < s.S; i++)
    s.symbol[i] = i % 2 ? index_at(c->label, n * c->L + i / 2, c->A) : c->blank;
  return s;
}

/* Returns whether a path may jump from s - 2 to s: over a blank between two different labels. */
static bool may_jump(const struct sample *s, int64_t i)
{
  return i >= 2 && s->symbol[i] != s->c->blank && s->symbol[i] != s->symbol[i - 2];
}

/* Returns whether the sample has enough steps for its labels. */
static bool has_path(const struct sample *s)
{
  int64_t need = MAX(s->S / 2, 1);
  for (int64_t i = 3; i < s->S; i += 2) need += s->symbol[i] == s->symbol[i - 2];
  return need <= s->steps;
}

/* Computes a of all steps. Returns the logarithm of the probability of all paths. */
static double sum_paths(struct sample *s)
{
  int64_t S = s->S;
  for (int64_t i = 0; i < S; i++) s->a[i] = i < 2 ? log_y(s, 0, s->symbol[i]) : -INFINITY;
  for (int64_t t = 1; t < s->steps; t++) {
    const double *before = s->a + (t - 1) * S;
    for (int64_t i = 0; i < S; i++) {
      double v = before[i];
      if (i >= 1) v = log_add(v, before[i - 1]);
      if (may_jump(s, i)) v = log_add(v, before[i - 2]);
      s->a[t * S + i] = v + log_y(s, t, s->symbol[i]);
    }
  }
  const double *end = s->a + (s->steps - 1) * S;
  return S > 1 ? log_add(end[S - 1], end[S - 2]) : end[0];
}

/* Computes b of step t from b of step t + 1. */
static void step_back(struct sample *s, int64_t t)
{
  for (int64_t i = 0; i < s->S; i++) {
    double v = s->next[i] + log_y(s, t + 1, s->symbol[i]);
    if (i + 1 < s->S) v = log_add(v, s->next[i + 1] + log_y(s, t + 1, s->symbol[i + 1]));
    if (i + 2 < s->S && may_jump(s, i + 2))
      v = log_add(v, s->next[i + 2] + log_y(s, t + 1, s->symbol[i + 2]));
    s->b[i] = v;
  }
}

static void step_gradient(struct sample *s, int64_t t, double log_p)
{
  const struct ctc *c = s->c;
  for (int64_t k = 0; k < c->A; k++) s->posterior[k] = 0;
  for (int64_t i = 0; i < s->S && log_p > -INFINITY; i++)
    s->posterior[s->symbol[i]] += exp(s->a[t * s->S + i] + s->b[i] - log_p);
  for (int64_t k = 0; k < c->A; k++)
    c->r->set(c->grad, (t * c->N + s->n) * c->A + k, exp(log_y(s, t, k)) - s->posterior[k]);
}

static void ctc_gradient(struct sample *s, double log_p)
{
  const struct ctc *c = s->c;
  for (int64_t t = s->steps; t < c->T; t++)
    c->r->fill(vec_at(c->r, c->grad, (t * c->N + s->n) * c->A), 0, c->A);
  for (int64_t t = s->steps - 1; t >= 0; t--) {
    if (t == s->steps - 1)
      for (int64_t i = 0; i < s->S; i++) s->b[i] = i >= s->S - 2 ? 0 : -INFINITY;
    else
      step_back(s, t);
    step_gradient(s, t, log_p);
    double *b = s->b;
    s->b = s->next;
    s->next = b;
  }
}

static void ctc_body(int64_t begin, int64_t end, void *context)
{
  const struct ctc *c = context;
  for (int64_t n = begin; n < end; n++) {
    struct sample s = open_sample(c, n);
    bool path = has_path(&s);
    double log_p = path ? sum_paths(&s) : 0;
    if (!path) s.steps = 0;
    if (c->loss) c->r->set(c->loss, n, 0 - log_p);
    if (c->grad) ctc_gradient(&s, log_p);
  }
}

/* -- kernels ----------------------------------------------------------------------------------- */

static struct ctc make_ctc(const struct call *c)
{
  const struct ctc_param *p = c->param;
  const ty_desc *d = &c->in[0].d;
  return (struct ctc){ .r = vec_ops_of(d->dtype),
    .label = &c->in[1],
    .data_length = p->use_data_lengths ? &c->in[2] : NULL,
    .label_length = p->use_label_lengths ? &c->in[c->nin - 1] : NULL,
    .T = d->dim[0],
    .N = d->dim[1],
    .A = d->dim[2],
    .L = c->in[1].d.dim[1],
    .first = p->blank_label == FIRST,
    .blank = p->blank_label == FIRST ? 0 : d->dim[2] - 1 };
}

static size_t ctc_scratch(const struct call *c)
{
  struct ctc k = make_ctc(c);
  return sizeof(double) * (size_t)(desc_count(&c->in[0].d) + k.N * work_size(&k));
}

struct logs { double *y; int64_t classes; };
static void log_body(int64_t begin, int64_t end, void *context)
{
  struct logs *l = context;
  for (int64_t i = begin; i < end; i++)
    vec_ops_of(TY_F64)->softmax->soft(l->y + i * l->classes, l->y + i * l->classes, 1, true,
        l->classes);
}

static int ctc_forward(struct call *c)
{
  struct ctc k = make_ctc(c);
  struct logs l = { c->tmp, k.A };
  TRY(check_labels(&k));
  dtype_convert(c->tmp, TY_F64, c->in[0].p, c->in[0].d.dtype, desc_count(&c->in[0].d));
  parallel_for(k.T * k.N, elements_ns(8 * k.A), log_body, &l);
  k.log_y = c->tmp;
  k.work = l.y + desc_count(&c->in[0].d);
  k.loss = c->out[0].p;
  k.grad = c->out[1].p;
  parallel_for(k.N, elements_ns(64 * k.T * state_count(&k)), ctc_body, &k);
  return TY_OK;
}

/* Computes the gradient. in: head gradient (batch,), the gradient that forward found. */
static int ctc_backward(struct call *c)
{
  const ty_desc *d = &c->in[1].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  for (int i = 1; i < c->nout; i++)
    if (c->out[i].p) memset(c->out[i].p, 0, desc_bytes(&c->out[i].d));
  for (int64_t i = 0; c->out[0].p && i < d->dim[0] * d->dim[1]; i++)
    r->affine(vec_at(r, c->out[0].p, i * d->dim[2]), vec_at(r, c->in[1].p, i * d->dim[2]),
        r->get(c->in[0].p, i % d->dim[1]), 0, d->dim[2]);
  return TY_OK;
}

static const char *ctc_refuse(const struct call *c)
{
  return dtype_float(c->in[0].d.dtype) ? NULL : "data is not of a float dtype";
}
static const struct kernel ctc_cpu[] = { { "paths", ctc_forward, T_FLOAT | T_INT, ctc_refuse, ctc_scratch }, { 0 } };
static const struct kernel ctc_back_cpu[] = { { "rows", ctc_backward, T_FLOAT | T_INT }, { 0 } };

const struct op op_ctc_loss[] = {
  { .name = "CTCLoss", .alias = "_contrib_CTCLoss _contrib_ctc_loss ctc_loss",
    .in = "data label data_lengths label_lengths", .in_of = ctc_in,
    .out = "output0 [output1]",
    .doc = "-log of the probability of each label row (batch, labels) under activations data (time, batch, classes), "
           "softmax included: (batch,). A row that needs more steps than there are has loss and gradient 0; a label that "
           "is no class is an error.",
    .param = ctc_params, .param_size = sizeof(struct ctc_param), .shape = ctc_shape, .type = ctc_type,
    .indices = ctc_classes, .grad = "g0 o1", .cpu = ctc_cpu, .back_cpu = ctc_back_cpu },
  { 0 }
};

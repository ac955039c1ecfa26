/* linear_cross_entropy.c - FullyConnected and the cross entropy of its softmax, by slabs of rows,
** without an array of all probabilities (operators/nn/linear_cross_entropy.c). Forward computes the
** gradients, and backward copies them. */
#include "cuda/product.h"
#include "cuda/reduce.h"
#include "cuda/softmax.h"
#include "kernel/strided_copy.h"

enum {
  SLAB  = 16 << 20,                                   /* bytes of a slab of scores */
  LEAST = 64,                                         /* least rows of a slab */
};

struct slabs {
  int dtype;
  int64_t m;                                          /* rows of the data */
  int64_t n;                                          /* classes */
  int64_t k;                                          /* columns of the data */
  int64_t rows;                                       /* rows of a slab */
  int64_t last;                                       /* rows of the last slab */
  bool biased, gradient;
};

static struct slabs make_slabs(const struct call *c)
{
  const ty_desc *w = &c->in[1].d;
  struct slabs s = { .dtype = w->dtype, .n = w->dim[0], .k = w->dim[1], .biased = c->nin > 3 };
  s.m = desc_count(&c->in[0].d) / s.k;
  int64_t fits = MAX(LEAST, SLAB / (s.n * (int64_t)dtype_size(s.dtype)));
  int64_t slabs = MAX(1, (s.m + fits - 1) / fits);
  s.rows = (s.m + slabs - 1) / slabs;
  s.last = s.m - (slabs - 1) * s.rows;
  for (int i = 1; i < c->nout; i++) s.gradient |= c->out[i].p && c->run && c->run->is_train;
  return s;
}

enum { SCORES, DATA, WEIGHT, PRODUCTS };
/* Plans of all slabs but the last, and of the last one. */
struct slab_plans { struct product_plan *of[2][PRODUCTS]; };

static size_t plans_size(const struct call *c) { return sizeof(struct slab_plans); }

static void plans_done(void *state)
{
  struct slab_plans *s = state;
  for (int i = 0; i < 2 * PRODUCTS; i++) product_done(s->of[i / PRODUCTS][i % PRODUCTS]);
}

static struct product product_for(const struct slabs *s, int which, int64_t rows, bool add)
{
  struct product p = { .dtype = s->dtype, .batch = 1, .alpha = 1, .beta = add };
  p.ta = which == WEIGHT;
  p.tb = which == SCORES;
  p.biased = which == SCORES && s->biased;
  p.m = which == WEIGHT ? s->n : rows;
  p.n = which == SCORES ? s->n : s->k;
  p.k = which == SCORES ? s->k : which == DATA ? s->n : rows;
  p.lda = p.ta ? p.m : p.k;
  p.ldb = p.tb ? p.k : p.n;
  p.ldc = p.n;
  return p;
}

static const char *refuse_forward(const struct call *c)
{
  struct slabs s = make_slabs(c);
  const char *no = dtype_float(s.dtype) ? NULL : "data is not of a float dtype";
  for (int i = 0; i < 2 * PRODUCTS && !no; i++) {
    struct product p = product_for(&s, i / 2, i % 2 ? s.last : s.rows, i / 2 == WEIGHT);
    no = product_refuse(c, &p);
  }
  return no;
}

static size_t scores_bytes(const struct slabs *s)
{
  return align_up((size_t)(s->rows * s->n) * dtype_size(s->dtype), ALIGN);
}

/* Returns the bytes of a slab, of the workspace shared by products and sums, and of the number of
** valid labels. */
static size_t work_bytes(const struct call *c, const struct slabs *s)
{
  struct reduce r = cuda_reduce_all_but(s->dtype, s->rows, s->n, 1);
  size_t most = cuda_reduce_scratch(&r);
  for (int i = 0; i < 2 * PRODUCTS; i++) {
    struct product p = product_for(s, i / 2, i % 2 ? s->last : s->rows, i / 2 == WEIGHT);
    most = MAX(most, product_workspace(c, &p));
  }
  return align_up(most, ALIGN);
}

static size_t forward_scratch(const struct call *c)
{
  struct slabs s = make_slabs(c);
  return scores_bytes(&s) + work_bytes(c, &s) + sizeof(int64_t);
}

enum { PER_NOTHING, PER_BATCH, PER_VALID };

/* Replaces scores by gradients and writes the loss. valid: the number of labels that are not
** ignored; NULL: none is ignored. */
static int entropy_rows(
    const struct call *c, const struct slabs *s, int64_t first, int64_t rows, void *z, void *valid)
{
  struct { int64_t rows, k, first, ignored; double scale; int32_t ignores, gradient; } args;
  const struct operand *label = &c->in[c->nin - 1];
  const int64_t op = cuda_origin(c);
  const char *what = cuda_flag(c, "use_ignore") ? ", or ignore_label" : "";
  struct cuda_fault *fault = cuda_device(c->device)->fault;
  int team = cuda_team(rows, s->n, 1), per = (int)cuda_number(c, "normalization", PER_NOTHING);
  memset(&args, 0, sizeof args);
  args.rows = rows;
  args.k = s->n;
  args.first = first;
  args.ignored = softmax_ignored_label(c);
  args.scale = cuda_number(c, "grad_scale", 1) / (per == PER_NOTHING || valid ? 1 : (double)s->m);
  args.ignores = cuda_flag(c, "use_ignore");
  args.gradient = s->gradient;
  return softmax_loss_start(c, "linear_entropy", s->dtype, s->dtype, label->d.dtype, team,
      rows * team,
      (void *[]){ &z, &c->out[0].p, (void *)&label->p, &valid, &fault, (void *)&op, &what, &args });
}

static int slab_gradients(struct call *c, const struct slabs *s, int64_t first, int64_t rows,
    struct product_plan **plan, void *z, void *work)
{
  const struct operand *out = c->out;
  const size_t row = (size_t)s->k * dtype_size(s->dtype);
  struct product data = product_for(s, DATA, rows, false),
                 weight = product_for(s, WEIGHT, rows, first > 0);
  if (out[1].p)
    TRY(product_run(c, &data, &plan[DATA], z, c->in[1].p, NULL,
        elements_at(out[1].p, first, row), work));
  if (out[2].p)
    TRY(product_run(c, &weight, &plan[WEIGHT], z, elements_at(c->in[0].p, first, row), NULL,
        out[2].p, work));
  if (c->nout < 4 || !out[3].p) return TY_OK;
  struct reduce r = cuda_reduce_all_but(s->dtype, rows, s->n, 1);
  struct cuda_reduce f = { R_SUM, F_NONE, s->dtype, z, .y = out[3].p, .add = first > 0 };
  return cuda_reduce(c->device, &r, &f, work);
}

static int entropy_forward(struct call *c)
{
  struct slabs s = make_slabs(c);
  struct slab_plans *plans = c->state;
  char *z = c->tmp, *work = z + scores_bytes(&s), *valid = work + work_bytes(c, &s);
  if (cuda_number(c, "normalization", PER_NOTHING) != PER_VALID || !cuda_flag(c, "use_ignore"))
    valid = NULL;
  else
    TRY(softmax_count_valid(c, &c->in[c->nin - 1], valid));
  for (int i = 1; i < c->nout && !s.gradient; i++) TRY(cuda_zero(c, &c->out[i]));
  for (int64_t first = 0; first < s.m; first += s.rows) {
    bool last = first + s.rows >= s.m;
    int64_t rows = last ? s.last : s.rows;
    struct product scores = product_for(&s, SCORES, rows, false);
    TRY(product_run(c, &scores, &plans->of[last][SCORES],
        elements_at(c->in[0].p, first, (size_t)s.k * dtype_size(s.dtype)), c->in[1].p,
        s.biased ? c->in[2].p : NULL, z, work));
    TRY(entropy_rows(c, &s, first, rows, z, valid));
    if (s.gradient) TRY(slab_gradients(c, &s, first, rows, plans->of[last], z, work));
  }
  return TY_OK;
}

/* Copies the gradients that entropy_forward has written, which are in `in`. */
static int copy_gradients(struct call *c)
{
  for (int k = 0; k < c->nin; k++)
    if (c->out[k].p != c->in[k].p || c->add >> k & 1)
      TRY(cuda_times(c, &c->out[k], &c->in[k], 1, c->add >> k & 1));
  return c->add >> c->nin & 1 ? TY_OK : cuda_zero(c, &c->out[c->nin]);
}

static const struct kernel slabs[] = {
  { "slabs", entropy_forward, T_ANY, refuse_forward, forward_scratch, plans_size, plans_done,
    .flags = K_PRECISION },
  { 0 }
};
static const struct kernel copies[] = { { "copy", copy_gradients, T_ANY, .add = 7 }, { 0 } };

const struct op_kernels cuda_linear_cross_entropy[] = {
  { "_contrib_linear_cross_entropy", slabs, copies },
  { 0 }
};

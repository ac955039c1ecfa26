/* updates.c - multi_sgd_update and its kin: many weights take their steps in one launch
** (kernels/updates.cu), as many as the arguments of a kernel hold. */
#include "cuda/family.h"

enum { WEIGHTS = 40, PIECE = 4096 };                  /* as in updates.cu */
struct weight_step {
  void *out;
  const void *weight, *grad;
  void *mom, *master;
  int64_t n, block;
  double lr, wd;
};
struct step_args {
  int64_t count, first;
  double momentum, rescale, clip;
  struct weight_step step[WEIGHTS];
};

enum { MOMENTUM = 1, MASTER = 2, PRELOADED = 4 };
static bool has_momentum(const struct call *c) { return cuda_what(c) & MOMENTUM; }
static bool has_master(const struct call *c) { return cuda_what(c) & MASTER; }
static bool preloads(const struct call *c) { return cuda_what(c) & PRELOADED; }
/* inputs of a weight: weight, grad [, mom] [, weight32] */
static int stride_of(const struct call *c) { return 2 + has_momentum(c) + has_master(c); }

static const char *refuse(const struct call *c)
{
  for (int k = 0; k < c->nout; k++)
    if (c->out[k].d.dtype != c->out[0].d.dtype) return "weights of several dtypes";
  return dtype_float(c->out[0].d.dtype) ? NULL : "weights are not of a float dtype";
}

/* Weight k takes its blocks behind the `blocks` ones before it. */
static struct weight_step step_of(const struct call *c, int k, int64_t blocks)
{
  const struct operand *in = &c->in[k * stride_of(c)];
  struct weight_step s = { c->out[k].p, in[0].p, in[1].p, .n = desc_count(&in[0].d),
    .block = blocks };
  if (has_momentum(c)) s.mom = in[2].p;
  if (has_master(c)) s.master = in[stride_of(c) - 1].p;
  if (preloads(c)) return s;
  s.lr = op_reals(c->op, c->param, "lrs")->d[k];
  s.wd = op_reals(c->op, c->param, "wds")->d[k];
  return s;
}

static int run_steps(struct call *c, int first, int count)
{
  struct step_args args = { count, first, cuda_number(c, "momentum", 0),
    cuda_number(c, "rescale_grad", 1), cuda_number(c, "clip_gradient", -1) };
  const struct operand *lists = &c->in[c->nout * stride_of(c)];
  const void *lrs = preloads(c) ? lists[0].p : NULL, *wds = preloads(c) ? lists[1].p : NULL;
  int64_t blocks = 0;
  cu_function f;
  for (int k = 0; k < count; k++) {
    args.step[k] = step_of(c, first + k, blocks);
    blocks += (args.step[k].n + PIECE - 1) / PIECE;
  }
  TRY(cuda_family(c->device, FAMILY_updates, "sgd_steps", &f, "T=%s RATE=%s MOMENTUM=%d MASTER=%d",
      cuda_type(c->out[0].d.dtype), cuda_type(preloads(c) ? lists[0].d.dtype : TY_F32),
      has_momentum(c), has_master(c)));
  void *params[] = { &lrs, &wds, &args };
  return cuda_launch(c->device, f, blocks, CUDA_BLOCK, 0, params);
}

static int steps(struct call *c)
{
  for (int first = 0; first < c->nout; first += WEIGHTS)
    TRY(run_steps(c, first, MIN(WEIGHTS, c->nout - first)));
  return TY_OK;
}

struct row_args { int64_t rows, n; double lr, epsilon, rescale, clip; };
static int row_steps(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  struct row_args s = { d->dim[0], desc_count(d) / d->dim[0], cuda_number(c, "lr", 0),
    cuda_number(c, "epsilon", 0), cuda_number(c, "rescale_grad", 1),
    cuda_number(c, "clip_gradient", -1) };
  cu_function f;
  TRY(cuda_family(c->device, FAMILY_updates, "row_adagrad", &f,
      "T=%s RATE=float MOMENTUM=0 MASTER=0 TEAM=256", cuda_type(d->dtype)));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &c->in[2].p, &s };
  return cuda_run(c, f, s.rows * CUDA_BLOCK, params);
}

static const struct kernel rows[] = { { "rows", row_steps, T_FLOAT }, { 0 } };
static const struct kernel sgd[] = { { "one launch", steps, T_ANY, refuse }, { 0 } };

const struct op_kernels cuda_updates[] = {
  { "_contrib_group_adagrad_update", rows, NULL },
  { "multi_sgd_update", sgd, NULL },
  { "multi_sgd_mom_update", sgd, NULL, MOMENTUM },
  { "multi_mp_sgd_update", sgd, NULL, MASTER },
  { "multi_mp_sgd_mom_update", sgd, NULL, MOMENTUM | MASTER },
  { "preloaded_multi_sgd_update", sgd, NULL, PRELOADED },
  { "preloaded_multi_sgd_mom_update", sgd, NULL, PRELOADED | MOMENTUM },
  { "preloaded_multi_mp_sgd_update", sgd, NULL, PRELOADED | MASTER },
  { "preloaded_multi_mp_sgd_mom_update", sgd, NULL, PRELOADED | MOMENTUM | MASTER },
  { 0 }
};

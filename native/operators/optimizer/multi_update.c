/* multi_update.c - optimizer updates of many weights at once.
**
** Each is the update of one weight from update.c, run on every group of inputs with that weight's
** rates (on a GPU many in a launch), which come from lists or (preloaded) from two arrays after
** the groups. Output i is the new weight i. LAMB takes the norms between its two phases here. Norms
** are sums of squares in float64, over parts that depend on the size alone.
**
** _multi_update applies any rule: its inputs are all weights, then all gradients, then the first
** state of each weight and so on, so that one text says which memory results may use (`inplace`).
*/
#include "kernel/primitives.h"
#include "kernel/strided_copy.h"
#include "op/op.h"
#include "operators/optimizer/update.h"

struct multi {
  struct update common;                               /* parameters common to all weights */
  struct reals  lrs, wds, etas;
  struct ints   step_count;
  int64_t       count;                                /* num_weights or num_tensors */
  const char   *rule;                                 /* of _multi_update */
};

/* -- forms of groups --------------------------------------------------------------------------- */

struct form {
  const char *one;                                    /* update of one weight */
  const char *group;                                  /* names of a group's inputs; ! changes */
  int  stride;                                        /* inputs of a group */
  bool master;                                        /* weights have a float32 copy */
  bool preloaded;                                     /* arrays lrs and wds follow */
  bool scale;                                         /* rescale_grad follows */
  bool by_kind;                                       /* inputs of one kind are neighbours */
};
enum { SGD, SGD_MOM, MP_SGD, MP_SGD_MOM, PRE_SGD, PRE_SGD_MOM, PRE_MP_SGD, PRE_MP_SGD_MOM, ADAMW,
       MP_ADAMW, LAMB, MP_LAMB };
static const struct form form[] = {
  /*                   one weight             inputs of a group                   stride master preloaded scale */
  [SGD]            = { "sgd_update",          "weight grad",                           2, false, false, false },
  [SGD_MOM]        = { "sgd_mom_update",      "weight grad mom!",                      3, false, false, false },
  [MP_SGD]         = { "mp_sgd_update",       "weight grad weight32!",                 3, true,  false, false },
  [MP_SGD_MOM]     = { "mp_sgd_mom_update",   "weight grad mom! weight32!",            4, true,  false, false },
  [PRE_SGD]        = { "sgd_update",          "weight grad",                           2, false, true,  false },
  [PRE_SGD_MOM]    = { "sgd_mom_update",      "weight grad mom!",                      3, false, true,  false },
  [PRE_MP_SGD]     = { "mp_sgd_update",       "weight grad weight32!",                 3, true,  true,  false },
  [PRE_MP_SGD_MOM] = { "mp_sgd_mom_update",   "weight grad mom! weight32!",            4, true,  true,  false },
  [ADAMW]          = { "_adamw_update",       "weight grad mean! var!",                4, false, false, true  },
  [MP_ADAMW]       = { "_mp_adamw_update",    "weight grad mean! var! weight32!",      5, true,  false, true  },
  [LAMB]           = { "lamb_update_phase1",  "weight grad mean! var!",                4, false, false, false },
  [MP_LAMB]        = { "mp_lamb_update_phase1", "weight grad mean! var! weight32!",    5, true,  false, false },
};

/* Returns the index of input k of weight i. */
static int64_t input_of(const struct multi *p, const struct form *f, int64_t i, int k)
{
  return f->by_kind ? k * p->count + i : i * f->stride + k;
}

/* Finds the form of _multi_update; one NULL: there is no such rule. All operands of a rule have the
** weight's dtype and shape. */
static struct form form_of_rule(const struct multi *p)
{
  const struct op *one = p->rule ? op_find(p->rule) : NULL;
  const bool good = one && one->check == update_check && !one->type && !one->shape;
  if (!good) return (struct form){ .by_kind = true };
  struct form f = { .one = one->name, .group = one->in, .stride = 1, .by_kind = true };
  for (const char *s = one->in; *s; s++) f.stride += *s == ' ';
  return f;
}

/* Adds the name of input k of weight i: "grad_3". */
static void add_name(struct text *t, const struct form *f, int k, int64_t i)
{
  const char *s = f->group;
  for (; k; k--) s += strcspn(s, " ") + 1;
  size_t n = strcspn(s, " "), name = n - (s[n - 1] == '!');
  text_add(t, "%s%.*s_%d%s", t->n ? " " : "", (int)name, s, (int)i, name < n ? "!" : "");
}

/* Returns "weight_0 grad_0 weight_1 grad_1 lrs wds", valid until this thread's next call. */
static const char *input_names(const struct multi *p, const struct form *f)
{
  static __thread struct text t;
  const int64_t n = p->count;
  text_clear(&t);
  for (int64_t j = 0; j < n * f->stride; j++)
    add_name(&t, f, (int)(f->by_kind ? j / n : j % f->stride), f->by_kind ? j % n : j / f->stride);
  if (f->preloaded) text_add(&t, " lrs wds");
  if (f->scale) text_add(&t, " rescale_grad");
  return text_whole(&t);
}

static const char *output_names(const void *param)
{
  static __thread struct text t;
  const struct multi *p = param;
  if (p->count < 2) return "output";
  text_clear(&t);
  for (int64_t i = 0; i < p->count; i++) text_add(&t, "%soutput%d", i ? " " : "", (int)i);
  return text_whole(&t);
}

static int multi_shape(struct infer *s, const struct form *f)
{
  int64_t n = ((const struct multi *)s->param)->count;
  for (int64_t i = 0; i < n; i++) {
    ty_desc *weight = &s->in[input_of(s->param, f, i, 0)];
    for (int round = 0; round < 2; round++) {
      for (int k = 1; k < f->stride; k++)
        TRY(shape_both(s, weight, &s->in[input_of(s->param, f, i, k)]));
      TRY(shape_both(s, weight, &s->out[i]));
    }
  }
  for (int k = 0; f->preloaded && k < 2; k++) TRY(shape_is(s, &s->in[n * f->stride + k], 1, &n));
  for (int64_t i = 0; f->scale && i < n; i++)
    TRY(update_infer_number(s, &s->in[input_of(s->param, f, i, 0)], &s->in[s->nin - 1]));
  return TY_OK;
}

static int multi_type(struct infer *s, const struct form *f)
{
  int64_t n = ((const struct multi *)s->param)->count;
  for (int64_t i = 0; i < n; i++) {
    ty_desc *weight = &s->in[input_of(s->param, f, i, 0)];
    for (int k = 1; k < f->stride; k++) {
      ty_desc *other = &s->in[input_of(s->param, f, i, k)];
      TRY(f->master && k > 1 ? type_is(s, other, TY_F32) : type_both(s, weight, other));
    }
    TRY(type_both(s, weight, &s->out[i]));
  }
  return TY_OK;
}

/* -- parameters -------------------------------------------------------------------------------- */

static int list_length(const char *name, int64_t got, int64_t want)
{
  if (got == want) return TY_OK;
  char a[32], b[32];
  snprintf(a, sizeof a, "%lld numbers", (long long)want);
  snprintf(b, sizeof b, "%lld", (long long)got);
  fail(TY_EVALUE, "parameter %s: expected one number per weight, %s, got %s", name, a, b);
  fail_argument(name, a, b);
  return TY_EVALUE;
}

static void round_list(struct reals *list)
{
  for (int64_t i = 0; i < list->n; i++) list->d[i] = to_single(list->d[i]);
}

static void round_all(struct multi *p)
{
  update_check(&p->common);
  round_list(&p->lrs);
  round_list(&p->wds);
  round_list(&p->etas);
}

static int check_fields(void *param)
{
  round_all(param);
  return TY_OK;
}
static int check_lists(void *param)
{
  struct multi *p = param;
  round_all(p);
  TRY(list_length("lrs", p->lrs.n, p->count));
  return list_length("wds", p->wds.n, p->count);
}
static int check_rule(void *param)
{
  static const char expected[] =
    "an update of one weight, such as adam_update, whose arrays are all of its dtype";
  const struct multi *p = param;
  if (form_of_rule(p).one) return check_lists(param);
  const char *got = p->rule ? p->rule : "None";
  fail(TY_EVALUE, "parameter rule: expected %s, got %s", expected, got);
  fail_argument("rule", expected, got);
  return TY_EVALUE;
}
static int check_adamw(void *param)
{
  TRY(check_lists(param));
  return list_length("etas", ((struct multi *)param)->etas.n, ((struct multi *)param)->count);
}
static int check_lamb(void *param)
{
  struct multi *p = param;
  round_all(p);
  TRY(list_length("learning_rates", p->lrs.n, p->count));
  TRY(list_length("wds", p->wds.n, p->count));
  return list_length("step_count", p->step_count.n, p->count);
}

#define LIST(name, field, doc) { name, P_FLOATS, offsetof(struct multi, field), NULL, doc }
#define COUNTED(name) \
  { name, P_INT, offsetof(struct multi, count), "1", "number of weights", NULL, PORTS_RANGE }
static const struct param sgd[] = {
  LIST("lrs", lrs, "learning rates"), LIST("wds", wds, "weight decays"), RESCALE, CLIP, COUNTED("num_weights"), { 0 } };
static const struct param sgd_mom[] = {
  LIST("lrs", lrs, "learning rates"), LIST("wds", wds, "weight decays"), MOMENTUM, RESCALE, CLIP, COUNTED("num_weights"), { 0 } };
static const struct param preloaded[] = { RESCALE, CLIP, COUNTED("num_weights"), { 0 } };
static const struct param preloaded_mom[] = { MOMENTUM, RESCALE, CLIP, COUNTED("num_weights"), { 0 } };
static const struct param adamw[] = {
  LIST("lrs", lrs, "learning rates"), BETAS, NUMBER(epsilon, "1e-08", "keeps the divisor from 0"), LIST("wds", wds, "weight decays"),
  LIST("etas", etas, "multipliers of the whole step"), CLIP, COUNTED("num_weights"), { 0 } };
static const struct param rule[] = {
  { "rule", P_TEXT, offsetof(struct multi, rule), NULL, "name of the update of one weight" },
  LIST("lrs", lrs, "learning rates"), LIST("wds", wds, "weight decays"), MOMENTUM, BETAS,
  NUMBER(epsilon, "1e-08", "keeps the divisor from 0"), NUMBER(gamma1, "0.95", "decay of mean and mean square"),
  NUMBER(gamma2, "0.9", "part of the last step that is kept"), NUMBER(lamda1, "0.01", "below it a weight is 0"),
  NUMBER(beta, "1.0", "added to the root of n"), NUMBER(wd_lh, "0.0", "weight decay outside of the momentum"),
  NUMBER(clip_weights, "-1.0", "weights are cut off at +- this; negative: not at all"), RESCALE, CLIP, COUNTED("num_weights"), { 0 } };
static const struct param lamb[] = {
  LIST("learning_rates", lrs, "learning rates"), BETAS, NUMBER(epsilon, "1e-06", "keeps the divisor from 0"),
  LIST("wds", wds, "weight decays"), RESCALE, BOUNDS, CLIP, UNBIASED,
  { "step_count", P_INTS, offsetof(struct multi, step_count), NULL, "number of each weight's step, from 1" },
  COUNTED("num_tensors"), { 0 } };

/* -- running ----------------------------------------------------------------------------------- */

/* Returns the parameters of weight i. Preloaded: sets `live` to the addresses of rate and decay. */
static struct update find_rates(
    const struct call *c, const struct form *f, int64_t i, struct live_number live[2])
{
  const struct multi *p = c->param;
  struct update u = p->common;
  for (int k = 0; f->preloaded && k < 2; k++) {
    const struct operand *list = &c->in[p->count * f->stride + k];
    live[k] = (struct live_number){ k ? offsetof(struct update, wd) : offsetof(struct update, lr),
      list->d.dtype, (const char *)list->p + (size_t)i * dtype_size(list->d.dtype) };
  }
  if (!f->preloaded) u.lr = p->lrs.d[i], u.wd = p->wds.d[i];
  if (f->scale) u.eta = p->etas.d[i];
  if (p->step_count.n > i) u.t = p->step_count.d[i];
  return u;
}

static int run_group(struct call *c, const struct form *f, const struct op *one, int64_t i)
{
  struct live_number live[2];
  struct update u = find_rates(c, f, i, live);
  struct operand in[6];
  for (int k = 0; k < f->stride; k++) in[k] = c->in[input_of(c->param, f, i, k)];
  if (f->scale) in[f->stride] = c->in[c->nin - 1];
  return formula_apply(c->device, one, &u, in, f->stride + f->scale, &c->out[i], live,
      f->preloaded ? 2 : 0);
}

static int run_groups(struct call *c, const struct form *f)
{
  const struct multi *p = c->param;
  const struct op *one = op_find(f->one);
  TRY(pw_together(c->device, true));
  int code = TY_OK;
  for (int64_t i = 0; i < p->count && !code; i++) code = run_group(c, f, one, i);
  int started = pw_together(c->device, false);
  return code ? code : started;
}

enum { NORM_PARTS = 64 };                             /* most parts of an array */
struct norm_sums { const struct operand *x; int64_t n, chunk; double part[NORM_PARTS]; };

static void norm_part(int64_t begin, int64_t end, void *context)
{
  struct norm_sums *s = context;
  for (int64_t k = begin; k < end; k++) {
    double sum = 0, block[256];
    int64_t last = MIN(s->n, (k + 1) * s->chunk);
    for (int64_t i = k * s->chunk; i < last; i += COUNT(block)) {
      int64_t n = MIN(COUNT(block), last - i);
      dtype_convert(block, TY_F64, (const char *)s->x->p + (size_t)i * dtype_size(s->x->d.dtype),
          s->x->d.dtype, n);
      for (int64_t j = 0; j < n; j++) sum += block[j] * block[j];
    }
    s->part[k] = sum;
  }
}

static double sum_square(const struct operand *x)
{
  struct norm_sums s = { .x = x, .n = desc_count(&x->d) };
  int64_t parts = MAX(1, MIN(NORM_PARTS, s.n / 4096));
  double sum = 0;
  s.chunk = (s.n - 1) / parts + 1;
  parallel_chunks((s.n - 1) / s.chunk + 1, 1, norm_part, &s);
  for (int64_t k = 0; k <= (s.n - 1) / s.chunk; k++) sum += s.part[k];
  return sum;
}

/* Sets y, one number, to the root of the sum of squares of x. tmp: scratch of a device's function.
** Returns a code. */
static int compute_norm(const struct call *c, const struct operand *x, struct operand *y, void *tmp)
{
  const struct primitives *other = primitives_of(c->device);
  if (other)
    return other->norm(
        c->device, x->p, x->d.dtype, desc_count(&x->d), y->p, y->d.dtype, tmp);
  set_number(y->p, y->d.dtype, sqrt(sum_square(x)));
  return TY_OK;
}

/* Returns the dtype in which a weight's step is computed. */
static int step_dtype(const ty_desc *weight) { return weight->dtype == TY_F64 ? TY_F64 : TY_F32; }

/* bytes of two norms; scratch also holds that of computing norms, and the longest direction */
enum { NORMS = 2 * ALIGN };
static size_t direction_bytes(const struct call *c)
{
  size_t most = 0;
  for (int k = 0; k < c->nout; k++) {
    const ty_desc *d = &c->out[k].d;
    most = MAX(most, (size_t)desc_count(d) * dtype_size(step_dtype(d)));
  }
  return align_up(most, ALIGN);
}
static size_t lamb_scratch(const struct call *c)
{
  const struct primitives *other = primitives_of(c->device);
  size_t most = 0;
  for (int k = 0; other && k < c->nout; k++) {
    const ty_desc *d = &c->out[k].d;
    most = MAX(most, other->norm_scratch(step_dtype(d), desc_count(d)));
  }
  return NORMS + direction_bytes(c) + most;
}

static int run_lamb(struct call *c, const struct form *f)
{
  const struct multi *p = c->param;
  const struct op *first = op_find(f->one), *second = op_find("lamb_update_phase2");
  char *norms = c->tmp, *direction = norms + NORMS, *tmp = direction + direction_bytes(c);
  for (int64_t i = 0; i < p->count; i++) {
    struct update u = find_rates(c, f, i, NULL);
    struct operand *in = &c->in[i * f->stride], g = { direction, in[0].d, NULL };
    g.d.dtype = step_dtype(&in[0].d);
    const ty_desc one = { .dtype = g.d.dtype, .ndim = 1, .dim = { 1 } };
    const struct operand *weight = f->master ? &in[4] : &in[0],
                         *out = f->master ? &in[4] : &c->out[i];
    struct operand then[4] = { *weight, g, { norms, one, NULL }, { norms + ALIGN, one, NULL } };
    TRY(formula_apply(c->device, first, &u, in, f->stride, &g, NULL, 0));
    TRY(compute_norm(c, &in[0], &then[2], tmp));
    TRY(compute_norm(c, &g, &then[3], tmp));
    TRY(formula_apply(c->device, second, &u, then, 4, out, NULL, 0));
    if (f->master)
      TRY(device_convert(c->device, c->out[i].p, c->out[i].d.dtype, out->p, out->d.dtype,
          desc_count(&out->d)));
  }
  return TY_OK;
}

/* -- the operators ----------------------------------------------------------------------------- */

#define GLUE(id, how) \
  static const char *in_##id(const void *p) { return input_names(p, &form[id]); } \
  static int shape_##id(struct infer *s) { return multi_shape(s, &form[id]); } \
  static int type_##id(struct infer *s) { return multi_type(s, &form[id]); } \
  static int run_##id(struct call *c) { return how(c, &form[id]); }
GLUE(SGD, run_groups) GLUE(SGD_MOM, run_groups) GLUE(MP_SGD, run_groups)
GLUE(MP_SGD_MOM, run_groups)
GLUE(PRE_SGD, run_groups) GLUE(PRE_SGD_MOM, run_groups) GLUE(PRE_MP_SGD, run_groups)
GLUE(PRE_MP_SGD_MOM, run_groups)
GLUE(ADAMW, run_groups) GLUE(MP_ADAMW, run_groups)
GLUE(LAMB, run_lamb) GLUE(MP_LAMB, run_lamb)

static const char *in_rule(const void *p)
{
  const struct form f = form_of_rule(p);
  return f.one ? input_names(p, &f) : "";
}
static int shape_rule(struct infer *s)
{
  const struct form f = form_of_rule(s->param);
  return multi_shape(s, &f);
}
static int type_rule(struct infer *s)
{
  const struct form f = form_of_rule(s->param);
  return multi_type(s, &f);
}
static int run_rule(struct call *c)
{
  const struct form f = form_of_rule(c->param);
  return run_groups(c, &f);
}

/* A new weight may use the memory of the old one. */
#define MULTI(name_, id, stride_, params_, check_, doc_) \
  { .name = name_, .in = "data", .in_of = in_##id, .out_of = output_names, .doc = doc_, \
    .flags = OP_NAMED_INPUT, \
    .param = params_, .param_size = sizeof(struct multi), .check = check_, \
    .shape = shape_##id, .type = type_##id, .inplace = "*=" #stride_, \
    .cpu = (const struct kernel[]){ \
      { "multi", run_##id, T_ANY, .scratch = id >= LAMB ? lamb_scratch : NULL, \
        .flags = K_ANYWHERE }, { 0 } } }

const struct op op_multi_update[] = {
  MULTI("multi_sgd_update", SGD, 2, sgd, check_lists,
        "sgd_update for many pairs of weight and gradient; gives the new weights."),
  MULTI("multi_sgd_mom_update", SGD_MOM, 3, sgd_mom, check_lists,
        "sgd_mom_update for many triples of weight, gradient and momentum."),
  MULTI("multi_mp_sgd_update", MP_SGD, 3, sgd, check_lists,
        "mp_sgd_update for many triples of weight, gradient and master copy."),
  MULTI("multi_mp_sgd_mom_update", MP_SGD_MOM, 4, sgd_mom, check_lists,
        "mp_sgd_mom_update for many weights with gradient, momentum and master copy."),
  MULTI("preloaded_multi_sgd_update", PRE_SGD, 2, preloaded, check_fields,
        "multi_sgd_update with rates and decays in two arrays after the weights."),
  MULTI("preloaded_multi_sgd_mom_update", PRE_SGD_MOM, 3, preloaded_mom, check_fields,
        "multi_sgd_mom_update with rates and decays in two arrays."),
  MULTI("preloaded_multi_mp_sgd_update", PRE_MP_SGD, 3, preloaded, check_fields,
        "multi_mp_sgd_update with rates and decays in two arrays."),
  MULTI("preloaded_multi_mp_sgd_mom_update", PRE_MP_SGD_MOM, 4, preloaded_mom, check_fields,
        "multi_mp_sgd_mom_update with rates and decays in two arrays."),
  MULTI("_multi_adamw_update", ADAMW, 4, adamw, check_adamw,
        "_adamw_update for many weights; the last input is the scale of all gradients."),
  MULTI("_multi_mp_adamw_update", MP_ADAMW, 5, adamw, check_adamw,
        "_mp_adamw_update for many weights; the last input is the scale of all gradients."),
  MULTI("_multi_lamb_update", LAMB, 4, lamb, check_lamb,
        "Whole LAMB steps for many weights: direction, norms, scaled step."),
  MULTI("_multi_mp_lamb_update", MP_LAMB, 5, lamb, check_lamb,
        "Whole LAMB steps on float32 master copies; the norm is that of the rounded weight."),
  { .name = "_multi_update", .in = "data", .in_of = in_rule, .out_of = output_names,
    .doc = "The update that `rule` names for many weights: all weights, all gradients, each state of all; the engine's own.",
    .param = rule, .param_size = sizeof(struct multi), .check = check_rule,
    .shape = shape_rule, .type = type_rule, .inplace = "*=1",
    .cpu = (const struct kernel[]){ { "multi", run_rule, T_ANY, .flags = K_ANYWHERE }, { 0 } } },
  { 0 }
};

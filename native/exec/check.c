/* check.c - finds the first number that is not finite: reads each step's outputs after it has run,
** and in training the inputs of operators that can check theirs (op.examine). */
#include "exec/inner.h"

static double check_number_at(const void *p, int dtype, int64_t i)
{
  return dtype == TY_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

/* Finds the elements of a value in host memory; NULL: they are not floats. A copy is in *copy as
** well, for the caller to free, else *copy is NULL. */
static int check_read_floats(
    int device, const void *p, const ty_desc *d, void **copy, const void **out)
{
  *copy = NULL;
  *out = NULL;
  if (!p || (d->dtype != TY_F32 && d->dtype != TY_F64)) return TY_OK;
  *out = p;
  if (device_kind(device) != TY_GPU) return TY_OK;
  *out = *copy = mem_new(desc_bytes(d));
  NEED(*copy, TY_EMEMORY, "out of memory: the search for bad numbers");
  TRY(device_copy(TY_CPU, *copy, device, p, desc_bytes(d)));
  return device_finish(device);
}

static bool check_is_within(const void *p, const void *x, const ty_desc *d)
{
  return x && (const char *)p >= (const char *)x &&
      (const char *)p < (const char *)x + desc_bytes(d);
}

/* Adds the range of an input to t ("data in [-1, 3]"), or that an output of the step has
** overwritten it; nothing where its numbers cannot be read. */
static void check_describe_input(struct program *p, const struct step *st, const void *in,
    const ty_desc *d, const char *name, struct text *t)
{
  bool over = false;
  for (int k = 0; in && k < st->nout && st->kind == STEP_NODE; k++)
    over |= check_is_within(in, st->v.call.out[k].p, &st->v.call.out[k].d);
  for (int k = st->nin; in && k < st->npw && st->kind == STEP_POINTWISE; k++)
    over |= check_is_within(in, st->operand[k], &p->s.desc[st->pw_value[k]]);
  if (over) {
    text_add(t, "%s%s overwritten by the output", t->n ? ", " : "", name);
    return;
  }
  double lo = INFINITY, hi = -INFINITY;
  void *copy;
  const void *x;
  if (check_read_floats(st->device, in, d, &copy, &x)) x = NULL;
  for (int64_t i = 0; x && i < desc_count(d); i++) {
    lo = fmin(lo, check_number_at(x, d->dtype, i));
    hi = fmax(hi, check_number_at(x, d->dtype, i));
  }
  if (x) text_add(t, "%s%s in [%g, %g]", t->n ? ", " : "", name, lo, hi);
  mem_free(copy);
}

/* Checks that the numbers of an output are finite; the failure has the ranges of the inputs. */
static int check_output(
    struct program *p, const struct step *st, const void *data, const ty_desc *d)
{
  void *copy;
  const void *x;
  int code = check_read_floats(st->device, data, d, &copy, &x);
  int64_t i = 0, n = x && !code ? desc_count(d) : 0;
  while (i < n && isfinite(check_number_at(x, d->dtype, i))) i++;
  const double bad = i < n ? check_number_at(x, d->dtype, i) : 0;
  mem_free(copy);
  if (i == n) return code;
  struct text t = { 0 };
  const struct node *f = &p->s.g->node[st->node];
  for (int k = 0; k < f->nin && st->kind == STEP_NODE; k++) {
    const struct operand *a = &st->v.call.in[k];
    const char *port = f->kind->inport && !f->backward ? f->kind->inport[k].name : "input";
    check_describe_input(p, st, a->p, &a->d, port, &t);
  }
  for (int k = 0; k < st->nin && st->kind == STEP_POINTWISE; k++) {
    char name[32];
    snprintf(name, sizeof name, "input %d", k);
    check_describe_input(p, st, st->operand[k], &p->s.desc[st->in[k]], name, &t);
  }
  code = fail(TY_ERUN, "%s %s: element %lld of its output is %g; inputs: %s", op_label(f),
      f->name, (long long)i, bad, t.s ? t.s : "none");
  text_done(&t);
  return program_fail_step(p, st, code);
}

/* Lets the operator check its inputs, or copies of them where they are on a GPU. */
static int check_inputs(struct program *p, const struct step *st)
{
  struct call c = st->v.call;
  if (!c.op->examine || st->v.backward || !c.run->is_train) return TY_OK;
  struct operand in[2];
  void *copy[COUNT(in)] = { NULL };
  bool gpu = device_kind(st->device) == TY_GPU;
  int code = c.nin <= COUNT(in) ? TY_OK : fail(TY_EINTERNAL, "more inputs than are examined");
  for (int i = 0; i < c.nin && !code; i++) {
    in[i] = c.in[i];
    if (!gpu) continue;
    in[i].p = copy[i] = mem_new(desc_bytes(&in[i].d));
    code = copy[i]
        ? device_copy(TY_CPU, copy[i], st->device, c.in[i].p, desc_bytes(&in[i].d))
        : fail(TY_EMEMORY, "out of memory: the search for bad numbers");
  }
  c.in = in;
  if (!code && gpu) code = device_finish(st->device);
  if (!code) code = c.op->examine(&c);
  for (int i = 0; i < COUNT(in); i++) mem_free(copy[i]);
  return code ? program_fail_step(p, st, code) : TY_OK;
}

int exec_check_step(struct program *p, const struct step *st)
{
  if (st->kind == STEP_NODE) TRY(check_inputs(p, st));
  if (st->kind == STEP_NODE)
    for (int k = 0; k < st->nout; k++)
      TRY(check_output(p, st, st->v.call.out[k].p, &st->v.call.out[k].d));
  if (st->kind == STEP_POINTWISE)
    for (int k = st->nin; k < st->npw; k++)
      TRY(check_output(p, st, st->operand[k], &p->s.desc[st->pw_value[k]]));
  return TY_OK;
}

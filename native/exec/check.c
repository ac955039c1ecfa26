/* check.c - the search for the first number that is not finite: each step's outputs are looked at
** when it has run. */
#include "exec/inner.h"

static double number_at(const void *p, int dtype, int64_t i)
{
  return dtype == TY_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

/* "data in [-1, 3]" for each float input */
static void describe_inputs(struct program *p, const struct step *st, struct text *t)
{
  const struct node *n = &p->s.g->node[st->node];
  for (int k = 0; k < n->nin && st->kind == STEP_NODE; k++) {
    const struct operand *a = &st->v.call.in[k];
    if (!a->p || (a->d.dtype != TY_F32 && a->d.dtype != TY_F64)) continue;
    double lo = INFINITY, hi = -INFINITY;
    for (int64_t i = 0; i < desc_count(&a->d); i++) {
      double x = number_at(a->p, a->d.dtype, i);
      lo = fmin(lo, x);
      hi = fmax(hi, x);
    }
    text_add(t, "%s%s in [%g, %g]", t->n ? ", " : "",
        n->inport && !n->backward ? n->inport[k].name : "input", lo, hi);
  }
  for (int k = 0; k < st->nin && st->kind == STEP_POINTWISE; k++) {
    const ty_desc *d = &p->s.desc[st->in[k]];
    if (d->dtype != TY_F32 && d->dtype != TY_F64) continue;
    double lo = INFINITY, hi = -INFINITY;
    for (int64_t i = 0; i < desc_count(d); i++) {
      double x = number_at(st->operand[k], d->dtype, i);
      lo = fmin(lo, x);
      hi = fmax(hi, x);
    }
    text_add(t, "%sinput %d in [%g, %g]", t->n ? ", " : "", k, lo, hi);
  }
}

static int check_value(struct program *p, const struct step *st, const void *data, const ty_desc *d)
{
  if (!data || (d->dtype != TY_F32 && d->dtype != TY_F64)) return TY_OK;
  for (int64_t i = 0; i < desc_count(d); i++) {
    double x = number_at(data, d->dtype, i);
    if (isfinite(x)) continue;
    struct text t = { 0 };
    const struct node *n = &p->s.g->node[st->node];
    describe_inputs(p, st, &t);
    int code = fail(TY_ERUN, "%s %s: element %lld of its output is %g; inputs: %s", op_label(n),
        n->name, (long long)i, x, t.s ? t.s : "none");
    text_done(&t);
    return exec_blame(p, st, code);
  }
  return TY_OK;
}

int exec_check_step(struct program *p, const struct step *st)
{
  if (st->kind == STEP_NODE)
    for (int k = 0; k < st->nout; k++)
      TRY(check_value(p, st, st->v.call.out[k].p, &st->v.call.out[k].d));
  if (st->kind == STEP_POINTWISE)
    for (int k = st->nin; k < st->npw; k++)
      TRY(check_value(p, st, st->operand[k], &p->s.desc[st->pw_value[k]]));
  return TY_OK;
}

/* numbers.c - see numbers.h. */
#include "base/number.h"
#include "lazy/numbers.h"

enum { NO_FORM = 1 };                                 /* the form of calls without a number */
/* Slots for forms, a power of two. A new form replaces the one in its slot. */
enum { FORMS = 1024 };

/* Operators with a number as attribute, and those that take it as an array. */
static const struct {
  const char *scalar, *array;
  bool swapped;                                       /* the number is the first input */
} operators[] = {
  { "_plus_scalar", "broadcast_add", false },
  { "_minus_scalar", "broadcast_sub", false },
  { "_rminus_scalar", "broadcast_sub", true },
  { "_mul_scalar", "broadcast_mul", false },
  { "_div_scalar", "broadcast_div", false },
  { "_rdiv_scalar", "broadcast_div", true },
};

/* Returns the index of an operator with a number in `operators`; -1: it is none. */
static int find_row(const struct op *op)
{
  for (int i = 0; i < COUNT(operators); i++)
    if (!strcmp(operators[i].scalar, op->name)) return i;
  return -1;
}

static uint64_t mix_hash(uint64_t h, uint64_t word)
{
  h = (h ^ word) * 0x9E3779B97F4A7C15u;
  return h ^ h >> 29;
}

/* Computes the form of a call, at least 2, and sets its number; NO_FORM: it has none. */
static uint64_t compute_form(struct cached_call *c)
{
  const struct call *v = &c->v.call;
  const ty_desc *d = &v->in[0].d;
  const int row = v->nin == 1 ? find_row(v->op) : -1;
  if (row < 0 || c->nattr != 1 || strcmp(c->attr[0].key, "scalar")) return NO_FORM;
  if ((d->dtype != TY_F32 && d->dtype != TY_F64) || v->out[0].d.dtype != d->dtype) return NO_FORM;
  c->number = number_read(c->attr[0].value, NULL);
  uint64_t h = mix_hash(mix_hash((uint64_t)row + 2, (uint64_t)d->dtype), (uint64_t)d->device);
  for (int k = 0; k < d->ndim; k++) h = mix_hash(h, (uint64_t)d->dim[k]);
  return h | 2;
}

uint64_t number_form(struct cached_call *c, bool *argument)
{
  static struct { uint64_t form; double first; } seen[FORMS];
  *argument = false;
  if (!c->form) c->form = compute_form(c);
  if (c->form == NO_FORM) return 0;
  const uint64_t at = (c->form >> 7) & (uint64_t)(FORMS - 1);
  if (seen[at].form != c->form) {
    seen[at].form = c->form;
    seen[at].first = c->number;
  }
  *argument = seen[at].first != c->number;
  return c->form;
}

const struct op *number_operator(const struct cached_call *c, bool *first)
{
  const int row = find_row(c->v.call.op);
  *first = operators[row].swapped;
  return op_find(operators[row].array);
}

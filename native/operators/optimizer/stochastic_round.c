/* stochastic_round.c - _contrib_stochastic_round: rounds float32 to bfloat16, up or down at random,
** so that the mean is the number itself. States of optimizers need it: a running mean that is
** rounded to nearest never changes if its steps are less than half a unit in the last place.
*/
#include "base/philox.h"
#include "op/op.h"

/* numbers for which one Philox block has bits */
enum { DRAWN = 8 };

static int round_shape(struct infer *s) { return shape_both(s, &s->in[0], &s->out[0]); }
static int round_type(struct infer *s)
{
  TRY(type_is(s, &s->in[0], TY_F32));
  return type_is(s, &s->out[0], TY_BF16);
}

/* Returns the upper half of the bits after 16 random ones are added: the carry rounds up. */
static uint16_t round_bits(uint32_t bits, uint32_t noise)
{
  const uint32_t exponent = 0x7f800000;
  const bool is_nan = (bits & 0x7fffffff) > exponent;
  if ((bits & exponent) == exponent) return (uint16_t)(bits >> 16 | (is_nan ? 0x40 : 0));
  return (uint16_t)((bits + noise) >> 16);
}

static void round_groups(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const uint32_t *x = c->in[0].p;
  uint16_t *y = c->out[0].p;
  const int64_t n = desc_count(&c->in[0].d);
  for (int64_t i = begin; i < end; i++) {
    const struct philox r =
        philox(c->run->rng.seed, c->run->rng.counter, c->node, (uint64_t)i);
    for (int64_t k = 0; k < DRAWN && i * DRAWN + k < n; k++)
      y[i * DRAWN + k] = round_bits(x[i * DRAWN + k], r.w[k / 2] >> (k % 2 * 16) & 0xffff);
  }
}

static int round_forward(struct call *c)
{
  const int64_t groups = (desc_count(&c->in[0].d) + DRAWN - 1) / DRAWN;
  if (c->out[0].p) parallel_for(groups, DRAWN * NS_FUNCTION, round_groups, c);
  return TY_OK;
}

static const struct kernel cpu[] = {
  { "round", round_forward, T(TY_F32) | T(TY_BF16) }, { 0 }
};

const struct op op_stochastic_round[] = {
  { .name = "_contrib_stochastic_round", .in = "data", .flags = OP_RANDOM,
    .doc = "float32 data as bfloat16, rounded up or down at random so that the mean is data; no gradient. Infinities and NaN stay.",
    .shape = round_shape, .type = round_type, .cpu = cpu },
  { 0 }
};

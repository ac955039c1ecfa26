/* cast.c - Cast, amp_cast, amp_multicast: conversions between dtypes. They are those of
** base/convert.h: floats are truncated to integers, NaN and numbers out of range become the
** smallest int32, narrower integers wrap.
*/
#include "kernel/strided_copy.h"
#include "op/op.h"

struct cast { int64_t dtype; };
static const struct param params[] = { { "dtype", P_DTYPE, offsetof(struct cast, dtype), NULL, "dtype of the output" }, { 0 } };

static int cast_type(struct infer *s)
{
  return type_is(s, &s->out[0], (int)((const struct cast *)s->param)->dtype);
}

/* Infers the type of mixed precision, which changes float16, float32 and bfloat16 only. */
static int amp_type(struct infer *s)
{
  int d = s->in[0].dtype;
  if (d == TY_NODTYPE) return TY_OK;
  bool changes = d == TY_F16 || d == TY_F32 || d == TY_BF16;
  return type_is(s, &s->out[0], changes ? (int)((const struct cast *)s->param)->dtype : d);
}

/* -- several arrays to one dtype --------------------------------------------------------------- */

struct multicast { int64_t num_outputs, cast_narrow; };
static const struct param multi_params[] = {
  { "num_outputs", P_INT,  offsetof(struct multicast, num_outputs), NULL,    "number of arrays", NULL, INPUTS_RANGE },
  { "cast_narrow", P_BOOL, offsetof(struct multicast, cast_narrow), "False", "to the narrowest dtype, not the widest" }, { 0 } };

static const char *multi_out(const void *param)
{
  static __thread struct text t;
  text_clear(&t);
  int64_t n = ((const struct multicast *)param)->num_outputs;
  if (n < 2) return "output";
  for (int64_t i = 0; i < n; i++) text_add(&t, "%soutput%d", i ? " " : "", (int)i);
  return text_whole(&t);
}

static int multi_shape(struct infer *s)
{
  for (int i = 0; i < s->nin; i++) TRY(shape_both(s, &s->in[i], &s->out[i]));
  return TY_OK;
}

static bool takes_part(int dtype) { return dtype == TY_F16 || dtype == TY_BF16 || dtype == TY_F32; }

/* Infers the types: float16 and bfloat16 are the narrow ones; everything else is left alone. */
static int multi_type(struct infer *s)
{
  bool narrow = ((const struct multicast *)s->param)->cast_narrow;
  int to = TY_NODTYPE;
  for (int i = 0; i < s->nin; i++) {
    int d = s->in[i].dtype;
    if (d == TY_NODTYPE) return TY_OK;
    if (takes_part(d) && (to == TY_NODTYPE || (narrow ? to == TY_F32 : d == TY_F32))) to = d;
  }
  for (int i = 0; i < s->nin; i++)
    TRY(type_is(s, &s->out[i], takes_part(s->in[i].dtype) ? to : s->in[i].dtype));
  return TY_OK;
}

/* Converts inputs to outputs, forward, and gradients backward, where in and out are exchanged. */
static int convert_all(struct call *c)
{
  for (int i = 0; i < c->nout; i++) {
    const struct operand *in = &c->in[i], *out = &c->out[i];
    if (!out->p || out->p == in->p) continue;
    if (in->d.dtype == out->d.dtype)
      TRY(move_bytes(c->device, out->p, in->p, desc_bytes(&out->d)));
    else
      TRY(device_convert(
          c->device, out->p, out->d.dtype, in->p, in->d.dtype, desc_count(&out->d)));
  }
  return TY_OK;
}

static const struct kernel multi[] = {
  { "convert", convert_all, T_ANY, .flags = K_ANYWHERE }, { 0 }
};

const struct op op_cast[] = {
  { .name = "Cast", .alias = "_npi_cast _npx_cast cast", .in = "data", .flags = OP_CAST,
    .doc = "data in another dtype, same shape, converted as C does; the gradient is converted back.",
    .param = params, .param_size = sizeof(struct cast), .type = cast_type,
    .inplace = "0=0", .back_inplace = "0=0", .formula = &(const struct formula){ "a", { "g" } } },
  { .name = "amp_cast", .in = "data", .flags = OP_CAST,
    .doc = "data in another dtype if it is float16, float32 or bfloat16, else data as it is; the gradient is converted back.",
    .param = params, .param_size = sizeof(struct cast), .type = amp_type,
    .inplace = "0=0", .back_inplace = "0=0", .formula = &(const struct formula){ "a", { "g" } } },
  { .name = "amp_multicast", .in = "data_*num_outputs", .out_of = multi_out,
    .doc = "All float16, bfloat16 and float32 inputs in the widest (or narrowest) dtype among them; others as they are. "
           "Gradients are converted back.",
    .param = multi_params, .param_size = sizeof(struct multicast), .shape = multi_shape, .type = multi_type,
    .inplace = "*=1", .back_inplace = "*=1", .grad = "g*", .cpu = multi, .back_cpu = multi },
  { 0 }
};

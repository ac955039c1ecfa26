/* cast.c - Cast and amp_cast: another dtype for the same values. Conversions are C's: floats are truncated to integers,
** NaN and what does not fit become the least int32, narrower integers wrap.
*/
#include "op.h"

struct cast { int64_t dtype; };
static const struct param params[] = { { "dtype", P_DTYPE, offsetof(struct cast, dtype), NULL, "dtype of the output" }, { 0 } };

static int cast_type(struct infer *s)
{
  return type_is(s, &s->out[0], (int)((const struct cast *)s->param)->dtype);
}

/* Mixed precision changes float16, float32 and bfloat16 only. */
static int amp_type(struct infer *s)
{
  int d = s->in[0].dtype;
  if (d == TY_NODTYPE) return TY_OK;
  bool changes = d == TY_F16 || d == TY_F32 || d == TY_BF16;
  return type_is(s, &s->out[0], changes ? (int)((const struct cast *)s->param)->dtype : d);
}

const struct op op_cast[] = {
  { .name = "Cast", .alias = "_npi_cast _npx_cast cast", .in = "data", .param = params, .param_size = sizeof(struct cast), .type = cast_type,
    .doc = "data in another dtype, same shape, converted as C does; the gradient is converted back.",
    .inplace = "0=0", .back_inplace = "0=0", .row = &(const struct row){ "a", { "g" } }, .tier = 1 },
  { .name = "amp_cast", .in = "data", .param = params, .param_size = sizeof(struct cast), .type = amp_type,
    .doc = "data in another dtype if it is float16, float32 or bfloat16, else data as it is; the gradient is converted back.",
    .inplace = "0=0", .back_inplace = "0=0", .row = &(const struct row){ "a", { "g" } }, .tier = 2 },
  { 0 }
};

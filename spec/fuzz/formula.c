/* formula.c - formulas of element-wise operators (pointwise/parse.c): read, run, printed as
** CUDA.
*/
#include "fuzz.h"
#include "pointwise/pointwise.h"

static void run(struct pw_program *t, int dtype)
{
  int64_t in[2][3] = { { 1, 2, 3 }, { 0 } }, out[3];
  ty_desc d = { .dtype = dtype, .device = TY_CPU, .ndim = 1, .dim = { 3 } };
  const ty_desc operand[3] = { d, d, d };
  void *const at[3] = { in[0], in[1], out };
  struct pw_loop l;
  if (!pw_loop_make(&l, &d, operand, 3)) pw_run(TY_CPU, t, &l, at);
}

static void print(const struct pw_program *t, int dtype)
{
  const int dtypes[3] = { dtype, dtype, dtype };
  const struct pw_cuda how = { .form = PW_GENERAL, .n = 3, .ndim = 1, .dtypes = dtypes };
  struct text out = { 0 };
  pw_print(t, &out);
  pw_cuda(t, &how, "k", &out);
  text_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const int dtypes[] = { TY_F32, TY_F64, TY_I32, TY_I64 };
  if (!size) return 0;
  int dtype = dtypes[data[0] % 4], reg;
  char *text = fuzz_text(data + 1, size - 1);
  struct pw_env env = { { 0 }, NULL, NULL, NULL, 0 };
  fuzz_begin();
  struct pw_program *t = pw_new(dtype);
  MUST(t);
  for (int i = 0; i < 26; i++) env.var[i] = -1;
  env.var[0] = pw_load(t, 0);
  env.var[1] = pw_load(t, 1);
  if (!pw_formula(t, text, &env, &reg)) {
    pw_store(t, 2, reg);
    if (!pw_seal(t)) run(t, dtype), print(t, dtype);
  }
  pw_free(t);
  free(text);
  return fuzz_end(size);
}

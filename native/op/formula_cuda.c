/* formula_cuda.c - prints the formulas of an operator as CUDA source, for inspection. */
#include "op/registry.h"

/* Returns any valid value of a parameter without a default: the source is only printed. */
static const char *example_value(const struct param *q, char *buffer, size_t size)
{
  if (q->type != P_ENUM) return q->type == P_DTYPE ? "float32" : "1";
  snprintf(buffer, size, "%.*s", (int)strcspn(q->choice, "|"), q->choice);
  return buffer;
}

/* Allocates parameters with defaults and example values. Free them with mem_free, after a failure
** too. */
static int example_params(const struct op *op, void **param)
{
  ty_attr attr[32];
  char value[32][32];
  int n = 0;
  for (const struct param *q = op->param; q && q->name && n < COUNT(attr); q++)
    if (!q->init)
      attr[n].key = q->name, attr[n].value = example_value(q, value[n], sizeof value[n]), n++;
  *param = mem_new(op->param_size + 16);
  NEED(*param, TY_EMEMORY, "out of memory");
  return op_parse(op, attr, n, *param);
}

static int print_row(
    const struct op *op, const void *param, bool backward, const char *name, struct text *out)
{
  struct pw_program *t;
  int dtype[PW_ARGS], n;
  TRY(formula_build(op, param, TY_F32, backward, &t, dtype, &n));
  struct pw_cuda how = { .form = PW_GENERAL, .n = n, .ndim = 2, .dtypes = dtype };
  pw_cuda_kernel(t, &how, name, out);
  pw_free(t);
  return TY_OK;
}

/* Prints the forward kernel, and the backward one if there is a gradient. */
static int print_both(const struct op *op, const void *param, struct text *out)
{
  char name[160];
  struct pw_program *t;
  int dtype[PW_ARGS], n;
  TRY(formula_build(op, param, TY_F32, false, &t, dtype, &n));
  pw_cuda_begin(t, out);
  pw_free(t);
  snprintf(name, sizeof name, "%s_forward", op->name);
  TRY(print_row(op, param, false, name, out));
  if (!formula_find_reads(op, param)) return TY_OK;
  snprintf(name, sizeof name, "%s_backward", op->name);
  return print_row(op, param, true, name, out);
}

int ty_op_cuda(const char *name, const char **source)
{
  static __thread struct text out;
  const struct op *op = op_find(name);
  void *param = NULL;
  if (!op) return op_unknown(name ? name : "");
  NEED(source, TY_ETYPE, "op_cuda: null argument");
  NEED(op->formula, TY_EUNSUPPORTED, "%s is not made of formulas: it has no CUDA source of its own",
      op->name);
  text_clear(&out);
  int code = example_params(op, &param);
  if (!code) code = print_both(op, param, &out);
  mem_free(param);
  if (code) return code;
  *source = text_whole(&out);
  return *source ? TY_OK : fail(TY_EMEMORY, "out of memory: CUDA source");
}

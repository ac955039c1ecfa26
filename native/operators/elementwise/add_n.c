/* add_n.c - the sum of any number of equal shapes. Up to seven inputs are added in one pass over
** memory. */
#include <pthread.h>
#include "op/op.h"
#include "pointwise/pointwise.h"

/* operands of a pass; the first one may be the sum of earlier passes */
enum { PASS = 8 };
struct add_n_param { int64_t num_args; };
static const struct param params[] = {
  { "num_args", P_INT, offsetof(struct add_n_param, num_args), "1", "number of inputs", NULL, INPUTS_RANGE }, { 0 } };

/* Sets *out to the pointwise program for n operands in a compute dtype, made at its first use. */
static int find_program(int dtype, int n, const struct pw_program **out)
{
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static const struct pw_program *made[TY_I64 + 1][PASS + 1];
  static const char formula[] = "a + b + c + d + e + f + g + h";
  char text[sizeof formula];
  int code = TY_OK;
  pthread_mutex_lock(&lock);
  if (!made[dtype][n]) {
    struct pw_program *t = pw_new(dtype);
    struct pw_env env = { .op = NULL };
    int reg;
    snprintf(text, sizeof text, "%.*s", 4 * n - 3, formula);
    code = t ? TY_OK : TY_EMEMORY;
    for (int k = 0; t && k < n; k++) env.var[k] = pw_load(t, k);
    if (!code) code = pw_formula(t, text, &env, &reg);
    if (!code) pw_store(t, n, reg), code = pw_seal(t);
    if (code)
      pw_free(t);
    else
      made[dtype][n] = t;
  }
  *out = made[dtype][n];
  pthread_mutex_unlock(&lock);
  return code;
}

static int add_n_forward(struct call *c)
{
  const struct operand *out = &c->out[0];
  int n = 0; /* inputs added so far */
  for (bool first = true; n < c->nin || first; first = false) {
    const struct pw_program *t;
    struct pw_loop l;
    void *p[PASS + 1];
    ty_desc d[PASS + 1];
    int k = 0;
    if (!first) p[k++] = out->p;
    while (k < PASS && n < c->nin) p[k++] = c->in[n++].p;
    for (int i = 0; i <= k; i++) d[i] = out->d;
    p[k] = out->p;
    TRY(find_program(pw_dtype(&out->d, 1), k, &t));
    TRY(pw_loop_make(&l, &out->d, d, k + 1));
    TRY(pw_run(c->device, t, &l, p));
  }
  return TY_OK;
}

static const struct kernel cpu[] = {
  { "add_n", add_n_forward, T_ANY, .flags = K_ALIKE | K_ANYWHERE, .blocks = IN_BLOCKS(0xffff, 1) }, { 0 }
};

const struct op op_add_n[] = {
  { .name = "add_n", .alias = "ElementWiseSum _sparse_ElementWiseSum _sparse_add_n", .in = "arg*num_args",
    .doc = "The sum of all inputs, which have one shape; each of them receives the gradient of the output.",
    .param = params, .param_size = sizeof(struct add_n_param), .grad = "g0",
    .flags = OP_IDENTITY_GRAD | OP_SUM, .inplace = "0=0", .cpu = cpu },
  { 0 }
};

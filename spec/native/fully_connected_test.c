/* fully_connected_test.c - a minimal C program: builds 2a + b, binds it and runs it forward and
** backward, through tycho.h alone. */
#include "check.h"

static ty_tensor *make_pair(float x, float y)
{
  ty_desc d = { .dtype = TY_F32, .device = TY_CPU, .ndim = 1, .dim = { 2 } };
  float v[2] = { x, y };
  ty_tensor *t = NULL;
  RUN(ty_tensor_new(&d, &t));
  RUN(ty_tensor_write(t, v, sizeof v));
  return t;
}

static void expect_pair(ty_tensor *t, float x, float y, const char *what)
{
  float v[2] = { 0, 0 };
  RUN(ty_tensor_read(t, v, sizeof v));
  CHECK(v[0] == x && v[1] == y, "%s: got %g, %g, want %g, %g", what, (double)v[0], (double)v[1],
      (double)x, (double)y);
}

static ty_entry build_graph(ty_graph *g)
{
  ty_entry a, b, twice, sum;
  ty_attr scalar = { "scalar", "2" };
  RUN(ty_graph_var(g, "a", NULL, 0, &a));
  RUN(ty_graph_var(g, "b", NULL, 0, &b));
  RUN(ty_graph_op(g, "_mul_scalar", "twice", &scalar, 1, &a, 1, &twice));
  ty_entry in[2] = { twice, b };
  RUN(ty_graph_op(g, "elemwise_add", "sum", NULL, 0, in, 2, &sum));
  return sum;
}

static void run_steps(ty_exec *e, ty_tensor *grad_a, ty_tensor *grad_b)
{
  ty_tensor *out = NULL;
  RUN(ty_exec_forward(e, 1));
  RUN(ty_exec_output(e, 0, &out));
  expect_pair(out, 4, 7, "output");
  RUN(ty_exec_backward(e, &out, 1, 1));
  expect_pair(grad_a, 8, 14, "gradient of a");
  expect_pair(grad_b, 4, 7, "gradient of b");
}

int main(void)
{
  ty_graph *g = NULL;
  ty_exec *e = NULL;
  RUN(ty_graph_new(&g));
  ty_entry head = build_graph(g);
  ty_tensor *a = make_pair(1, 2), *b = make_pair(2, 3), *grad_a = make_pair(0, 0),
            *grad_b = make_pair(0, 0);
  ty_bind arg[2] = { { "a", a, grad_a, TY_WRITE, 0 }, { "b", b, grad_b, TY_WRITE, 0 } };
  ty_bind_spec spec = { .head = &head, .nhead = 1, .arg = arg, .narg = 2, .device = TY_CPU };
  RUN(ty_exec_bind(g, &spec, &e));
  if (e) run_steps(e, grad_a, grad_b);
  ty_exec_free(e);
  ty_graph_free(g);
  ty_tensor *all[] = { a, b, grad_a, grad_b };
  for (int i = 0; i < 4; i++) ty_tensor_free(all[i]);
  CHECK(ty_live("tensor") == 0, "%d live tensors", (int)ty_live("tensor"));
  return check_end();
}

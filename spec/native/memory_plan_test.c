/* memory_plan_test.c - memory plans of random graphs, through the public interface only.
**
** Each graph is bound twice, with shared memory and with a separate place for every value
** (TY_NOSHARE). Outputs and gradients must be equal bit for bit, the verifier must accept the
** plan, and planned bytes must be close to the lower bound. Argument: the number of graphs
** (default 600). Prints one line of counts.
*/
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tycho.h"

enum { MAX_VALUES = 160, MAX_VARS = 64, MAX_HEADS = 3 };
struct value { ty_entry e; int64_t rows, cols; };
struct maker {
  uint32_t seed;
  ty_graph *g;
  struct value v[MAX_VALUES];
  int n;
  char var[MAX_VARS][16];
  int64_t dim[MAX_VARS][2];
  int nvar, nop;
};

static int failed;
static void check_code(int code, const char *what)
{
  if (!code) return;
  fprintf(stderr, "%s: %s\n", what, ty_error());
  exit(1);
}

static uint32_t draw_bits(struct maker *m)
{
  uint32_t s = m->seed;
  s ^= s << 13;
  s ^= s >> 17;
  s ^= s << 5;
  return m->seed = s;
}
static int draw_below(struct maker *m, int n) { return (int)(draw_bits(m) % (uint32_t)n); }

static ty_entry add_variable(struct maker *m, int64_t rows, int64_t cols)
{
  ty_entry e;
  snprintf(m->var[m->nvar], sizeof m->var[0], "v%d", m->nvar);
  m->dim[m->nvar][0] = rows;
  m->dim[m->nvar][1] = cols;
  check_code(ty_graph_var(m->g, m->var[m->nvar++], NULL, 0, &e), "var");
  return e;
}

static void add_operator(struct maker *m, const char *op, ty_attr *attr, int nattr, ty_entry *in,
    int nin, int outs, int64_t rows, int64_t cols)
{
  char name[16];
  ty_entry out;
  snprintf(name, sizeof name, "n%d", m->nop++);
  check_code(ty_graph_op(m->g, op, name, attr, nattr, in, nin, &out), op);
  for (int k = 0; k < outs; k++) m->v[m->n++] = (struct value){ { out.node, k }, rows, cols };
}

static struct value *pick_recent(struct maker *m)
{
  return &m->v[draw_below(m, 3) ? m->n - 1 - draw_below(m, m->n < 6 ? m->n : 6)
                                : draw_below(m, m->n)];
}

static struct value *same_shape(struct maker *m, const struct value *a, bool *found)
{
  for (int i = 0; i < 20; i++) {
    struct value *b = &m->v[draw_below(m, m->n)];
    if (b->rows == a->rows && b->cols == a->cols) return *found = true, b;
  }
  return *found = false, NULL;
}

static void grow_graph(struct maker *m)
{
  static const char *const unary[] = { "tanh", "sigmoid", "relu", "negative", "square" },
                           *const binary[] = { "elemwise_add", "elemwise_mul", "elemwise_sub" };
  struct value *a = pick_recent(m), *b;
  bool found;
  char number[24], shape[48];
  ty_entry in[2] = { a->e };
  switch (draw_below(m, 11)) {
  case 0:
  case 1: add_operator(m, unary[draw_below(m, 5)], NULL, 0, in, 1, 1, a->rows, a->cols); return;
  case 2:
  case 3:
    b = same_shape(m, a, &found);
    if (found) {
      in[1] = b->e;
      add_operator(m, binary[draw_below(m, 3)], NULL, 0, in, 2, 1, a->rows, a->cols);
    }
    return;
  case 4:
    add_operator(m, "_mul_scalar", &(ty_attr){ "scalar", "0.75" }, 1, in, 1, 1, a->rows, a->cols);
    return;
  case 5: {
    int64_t hidden = 1 + draw_below(m, 40);
    if (m->nvar == MAX_VARS) return;
    snprintf(number, sizeof number, "%lld", (long long)hidden);
    ty_attr attr[] = { { "num_hidden", number }, { "no_bias", "True" } };
    struct value keep = *a;
    in[1] = add_variable(m, hidden, keep.cols);
    add_operator(m, "FullyConnected", attr, 2, in, 2, 1, keep.rows, hidden);
    return;
  }
  case 6:
    b = pick_recent(m);
    if (b->rows == a->rows && a->cols + b->cols < 400) {
      in[1] = b->e;
      add_operator(
          m, "Concat", &(ty_attr){ "num_args", "2" }, 1, in, 2, 1, a->rows, a->cols + b->cols);
    }
    return;
  case 7:
    if (a->cols % 2 == 0)
      add_operator(
          m, "SliceChannel", &(ty_attr){ "num_outputs", "2" }, 1, in, 1, 2, a->rows, a->cols / 2);
    return;
  case 8: add_operator(m, "transpose", NULL, 0, in, 1, 1, a->cols, a->rows); return;
  case 9:
    snprintf(shape, sizeof shape, "(%lld, %lld)", (long long)a->cols, (long long)a->rows);
    add_operator(m, "Reshape", &(ty_attr){ "shape", shape }, 1, in, 1, 1, a->cols, a->rows);
    return;
  default: {
    ty_attr attr[] = { { "axis", "1" }, { "keepdims", "True" } };
    struct value keep = *a;
    add_operator(m, "mean", attr, 2, in, 1, 1, keep.rows, 1);
    in[1] = m->v[m->n - 1].e;
    add_operator(m, "broadcast_mul", NULL, 0, in, 2, 1, keep.rows, keep.cols);
  }
  }
}

/* -- running one executor ---------------------------------------------------------------------- */

struct result { float *data; size_t n; };

static void take_result(struct result *r, ty_tensor *t)
{
  ty_desc d;
  check_code(ty_tensor_desc(t, &d), "desc");
  size_t n = 1;
  for (int i = 0; i < d.ndim; i++) n *= (size_t)d.dim[i];
  r->data = realloc(r->data, (r->n + n) * sizeof(float));
  check_code(ty_tensor_read(t, r->data + r->n, n * sizeof(float)), "read");
  r->n += n;
}

static void fill_array(ty_tensor *t, uint32_t seed)
{
  ty_desc d;
  check_code(ty_tensor_desc(t, &d), "desc");
  size_t n = 1;
  for (int i = 0; i < d.ndim; i++) n *= (size_t)d.dim[i];
  float *x = malloc(n * sizeof *x);
  struct maker m = { .seed = seed * 2654435761u + 1 };
  for (size_t i = 0; i < n; i++) x[i] = (float)draw_below(&m, 2001) / 1000.0f - 1.0f;
  check_code(ty_tensor_write(t, x, n * sizeof *x), "write");
  free(x);
}

static ty_exec *bind_graph(struct maker *m, const ty_entry *head, int nhead, int flags)
{
  ty_want want[MAX_VARS];
  ty_exec *e;
  int n = 0;
  for (int i = 0; i < m->nvar; i++) {
    want[n] = (ty_want){ .name = m->var[i], .req = TY_WRITE, .device = -1, .grad_device = -1 };
    want[n].desc = (ty_desc){
      .dtype = TY_NODTYPE, .ndim = 2, .dim = { m->dim[i][0], m->dim[i][1] }
    };
    n++;
  }
  ty_simple_spec spec = {
    .head = head, .want = want, .nhead = nhead, .nwant = n, .req = TY_WRITE, .flags = flags
  };
  check_code(ty_exec_simple_bind(m->g, &spec, &e), "simple_bind");
  return e;
}

static void run_graph(struct maker *m, ty_exec *e, int nhead, struct result *r)
{
  const char *const *names;
  int n;
  ty_tensor *t, *head[MAX_HEADS];
  check_code(ty_exec_names(e, TY_ARG, &names, &n), "names");
  for (int i = 0; i < n; i++) {
    check_code(ty_exec_arg(e, names[i], &t), "arg");
    fill_array(t, (uint32_t)atoi(names[i] + 1) + m->seed % 1000);
  }
  check_code(ty_exec_forward(e, 1), "forward");
  for (int h = 0; h < nhead; h++) {
    ty_desc d;
    check_code(ty_exec_output(e, h, &t), "output");
    take_result(r, t);
    check_code(ty_tensor_desc(t, &d), "desc");
    check_code(ty_tensor_new(&d, &head[h]), "new");
    fill_array(head[h], 77u + (uint32_t)h);
  }
  check_code(ty_exec_backward(e, head, nhead, 1), "backward");
  for (int i = 0; i < n; i++) {
    check_code(ty_exec_grad(e, names[i], &t), "grad");
    take_result(r, t);
  }
  for (int h = 0; h < nhead; h++) {
    check_code(ty_exec_output(e, h, &t), "output");
    take_result(r, t);
    ty_tensor_free(head[h]);
  }
}

/* -- one graph --------------------------------------------------------------------------------- */

struct tally { double ratio_sum; int graphs, above; double worst; };

static void check_graph(uint32_t seed, struct tally *tally)
{
  struct maker m = { .seed = seed * 747796405u + 2891336453u };
  check_code(ty_graph_new(&m.g), "graph");
  int64_t rows = 1 + draw_below(&m, 24), cols = 2 * (1 + draw_below(&m, 32));
  ty_entry x = add_variable(&m, rows, cols);
  m.v[m.n++] = (struct value){ x, rows, cols };
  int size = 5 + draw_below(&m, 60);
  while (m.nop < size && m.n < MAX_VALUES - 4) grow_graph(&m);
  ty_entry head[MAX_HEADS];
  int nhead = 1 + draw_below(&m, MAX_HEADS);
  /* every variable must be reachable: the sum of means of all values is the first head */
  ty_entry sum[MAX_VALUES];
  char count[16];
  for (int i = 0; i < m.n; i++) {
    ty_entry v = m.v[i].e;
    check_code(ty_graph_op(m.g, "mean", "m", NULL, 0, &v, 1, &sum[i]), "mean");
  }
  snprintf(count, sizeof count, "%d", m.n);
  check_code(
      ty_graph_op(m.g, "add_n", "total", &(ty_attr){ "num_args", count }, 1, sum, m.n, &head[0]),
      "add_n");
  for (int h = 1; h < nhead; h++) head[h] = m.v[m.n - 1 - draw_below(&m, m.n < 5 ? m.n : 5)].e;

  ty_exec *shared = bind_graph(&m, head, nhead, 0),
          *apart = bind_graph(&m, head, nhead, TY_NOSHARE);
  struct result a = { 0 }, b = { 0 };
  ty_memory memory;
  run_graph(&m, shared, nhead, &a);
  run_graph(&m, apart, nhead, &b);
  check_code(ty_exec_memory(shared, &memory), "memory");
  bool same = a.n == b.n && !memcmp(a.data, b.data, a.n * sizeof(float));
  bool plan = !ty_exec_verify(shared);
  if (!same || !plan)
    failed++,
        fprintf(
            stderr, "graph %u: %s\n", seed, !plan ? ty_error() : "shared and unshared runs differ");
  double ratio = memory.bound ? (double)memory.planned / (double)memory.bound : 1;
  tally->ratio_sum += ratio;
  tally->graphs++;
  tally->above += ratio > 1.05;
  if (ratio > tally->worst) tally->worst = ratio;
  free(a.data);
  free(b.data);
  ty_exec_free(shared);
  ty_exec_free(apart);
  ty_graph_free(m.g);
}

int main(int argc, char **argv)
{
  int graphs = argc > 1 ? atoi(argv[1]) : 600;
  struct tally t = { 0 };
  for (int i = 0; i < graphs; i++) check_graph((uint32_t)i + 1, &t);
  double mean = t.ratio_sum / graphs;
  fprintf(stderr, "plan_test: %d graphs, planned / bound: mean %.5f, worst %.4f, above 1.05: %d\n",
      graphs, mean, t.worst, t.above);
  int bad = failed + (mean > 1.01) + (t.above > (graphs + 999) / 1000);
  check_code(ty_wait(-1), "wait");
  if (ty_live("exec") || ty_live("graph") || ty_live("tensor"))
    bad++,
        fprintf(stderr, "left: %lld executors, %lld graphs, %lld tensors\n",
            (long long)ty_live("exec"), (long long)ty_live("graph"), (long long)ty_live("tensor"));
  printf("%d passed, %d failed\n", graphs - failed + 3 - (bad - failed), bad);
  return bad != 0;
}

/* verify_test.c - the verifier of memory plans (pass/memory_verify.c) finds wrong plans: the test
** changes a correct one, place by place, and compares the error texts.
*/
#include <stddef.h>
#include <string.h>
#include "check.h"
#include "exec/exec.h"

static ty_graph *g;

static ty_entry add_variable(const char *name)
{
  ty_entry e = { 0, 0 };
  RUN(ty_graph_var(g, name, NULL, 0, &e));
  return e;
}

static ty_entry add_operator(
    const char *kind, const char *name, const ty_attr *attr, int nattr, const ty_entry *in, int nin)
{
  ty_entry e = { 0, 0 };
  RUN(ty_graph_op(g, kind, name, attr, nattr, in, nin, &e));
  return e;
}

static ty_entry add_product(const char *name, ty_entry x)
{
  static const ty_attr attr[] = { { "num_hidden", "64" }, { "no_bias", "True" } };
  return add_operator("FullyConnected", name, attr, 2, &x, 1);
}

static ty_exec *bind_graph(const ty_entry *head, int nhead)
{
  ty_exec *e = NULL;
  ty_want want = { .name = "x", .desc = { .dtype = TY_F32, .ndim = 2, .dim = { 64, 64 } },
    .device = -1, .grad_device = -1 };
  ty_simple_spec spec = { .head = head, .nhead = nhead, .want = &want, .nwant = 1,
    .flags = TY_NOFUSE };
  RUN(ty_exec_simple_bind(g, &spec, &e));
  RUN(ty_exec_verify(e));
  return e;
}

static int node_called(const ty_exec *e, const char *name)
{
  int i = 0;
  while (i < e->graph.g->n && strcmp(e->graph.g->node[i].name, name)) i++;
  CHECK(i < e->graph.g->n, "%s is gone", name);
  return i;
}

static struct value *find_value(const ty_exec *e, const char *name, int out)
{
  struct program *p = e->variant[FUSED];
  return &p->value[p->value[e->graph.g->node[node_called(e, name)].first + out].root];
}

static struct step *find_step(const ty_exec *e, const char *name)
{
  struct program *p = e->variant[FUSED];
  return &p->step[p->step_of[node_called(e, name)]];
}

static void expect_refusal(ty_exec *e, const char *text)
{
  int code = ty_exec_verify(e);
  CHECK(code == TY_EINTERNAL && !strcmp(ty_error(), text), "%d: %s; expected %s", code, ty_error(),
      text);
}

/* Checks that a, which is read again at the end, shares its place with nothing until then. */
static void test_places(void)
{
  RUN(ty_graph_new(&g));
  ty_entry a = add_product("a", add_variable("x")), b = add_product("b", a),
           c = add_product("c", b), in[] = { a, c };
  ty_entry d = add_product("d", add_operator("elemwise_add", "sum", NULL, 0, in, 2)),
           head[] = { d, b };
  ty_exec *e = bind_graph(head, 1);
  struct value *pa = find_value(e, "a", 0), *pb = find_value(e, "b", 0),
               *pc = find_value(e, "c", 0);
  const int64_t at = pc->offset, of_b = pb->offset;
  CHECK(pa->kind == V_POOL && pb->kind == V_POOL && pc->kind == V_POOL, "not in the pool");
  pc->offset = pa->offset;
  expect_refusal(e, "plan: instruction 3 reads a, but its bytes hold c");
  pc->offset = at;
  pb->offset = pa->offset;
  expect_refusal(e, "plan: result 0 of b overlaps its input 0, which its operator does not allow");
  pb->offset = pa->offset + 64;
  expect_refusal(e, "plan: result 0 of b overlaps its input 0, which its operator does not allow");
  pb->offset = of_b;
  RUN(ty_exec_verify(e));

  struct step *s = find_step(e, "b"), was = *s;
  s->scratch = 256;
  s->scratch_at = pb->offset + 64;
  expect_refusal(e, "plan: scratch of instruction 1 overlaps its result");
  s->scratch_at = pa->offset;
  expect_refusal(e, "plan: instruction 1 reads a, but its bytes hold something else");
  s->scratch_at = (int64_t)1 << 40;
  RUN(ty_exec_verify(e));
  *s = was;
  s = find_step(e, "c");
  was = *s;
  s->scratch = 256;
  s->scratch_at = pa->offset + pa->bytes - 64; /* over bytes that a later step reads */
  if (s->scratch_at + 256 > pb->offset && s->scratch_at < pb->offset + pb->bytes)
    expect_refusal(e, "plan: instruction 2 reads b, but its bytes hold something else");
  else
    expect_refusal(e, "plan: instruction 3 reads a, but its bytes hold something else");
  *s = was;
  RUN(ty_exec_verify(e));
  ty_exec_free(e);

  e = bind_graph(head, 2); /* heads stay whole until the end */
  pb = find_value(e, "b", 0);
  struct value *pd = find_value(e, "d", 0);
  pd->offset = pb->offset;
  expect_refusal(e, "plan: instruction 5 reads b, but its bytes hold d");
  ty_exec_free(e);
  ty_graph_free(g);
}

static void test_results(void)
{
  RUN(ty_graph_new(&g));
  static const ty_attr attr[] = { { "num_outputs", "2" } };
  ty_entry x = add_product("a", add_variable("x")),
           s = add_operator("SliceChannel", "parts", attr, 1, &x, 1);
  ty_entry head[] = { s, { s.node, 1 } };
  ty_exec *e = bind_graph(head, 2);
  struct value *one = find_value(e, "parts", 0), *two = find_value(e, "parts", 1);
  const int64_t at = two->offset;
  two->offset = one->offset + 64;
  expect_refusal(e, "plan: two results of instruction 1 overlap");
  two->offset = at;
  const int64_t first = one->offset;
  one->offset = two->offset + two->bytes - 64;
  expect_refusal(e, "plan: two results of instruction 1 overlap");
  one->offset = first;
  RUN(ty_exec_verify(e));
  ty_exec_free(e);
  ty_graph_free(g);
}

int main(void)
{
  test_places();
  test_results();
  return check_end();
}

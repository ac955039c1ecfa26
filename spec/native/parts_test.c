/* parts_test.c - passes that read or write parts of a program that their table rows do not name
** must be reported. Builds without TY_CHECK_PASSES only run them.
*/
#include "check.h"
#include "pass/parts.h"

#ifdef TY_CHECK_PASSES
enum { CHECKED = 1 };
#else
enum { CHECKED = 0 };
#endif

enum { NODES = 3 };
static int seen;

static int write_roots(struct program *p)
{
  p->value[1].root = 2;
  return TY_OK;
}
static int read_lifetimes(struct program *p)
{
  seen = p->value[1].last;
  return TY_OK;
}
static int order_steps(struct program *p)
{
  struct step first = p->step[0];
  p->step[0] = p->step[1];
  p->step[1] = first;
  return TY_OK;
}
static int fail_late(struct program *p) { return fail(TY_ERUN, "no"); }

int main(void)
{
  struct node node[NODES] = { { 0 } };
  ty_graph g = { .node = node, .n = NODES, .nvalue = NODES };
  struct value value[NODES] = { { .root = 0 }, { .root = 1, .last = 7 }, { .root = 2 } };
  struct step step[2] = { { .scratch = 1 }, { .scratch = 2 } };
  struct program p = { .s = { .g = &g }, .value = value, .step = step, .n = 2 };

  CHECK(parts_run(&p, "a", write_roots, ROOTS, ROOTS) == TY_OK, "%s", ty_error());
  CHECK(value[1].root == 2, "root %d", value[1].root);
  value[1].root = 1;
  int code = parts_run(&p, "b", write_roots, ROOTS | LIFETIMES, OFFSETS);
  CHECK(code == (CHECKED ? TY_EINTERNAL : TY_OK), "%s", ty_error());

  CHECK(parts_run(&p, "c", read_lifetimes, LIFETIMES, OFFSETS) == TY_OK, "%s", ty_error());
  CHECK(seen == 7, "%d", seen);
  CHECK(parts_run(&p, "d", read_lifetimes, ROOTS, OFFSETS) == TY_OK, "%s", ty_error());
  CHECK((seen != 7) == CHECKED, "%d", seen);
  CHECK(value[1].last == 7, "%d", value[1].last);

  CHECK(parts_run(&p, "e", order_steps, 0, STEPS) == TY_OK, "%s", ty_error());
  CHECK(step[0].scratch == 2 && step[1].scratch == 1, "%zu, %zu", step[0].scratch, step[1].scratch);
  CHECK(parts_run(&p, "f", fail_late, 0, 0) == TY_ERUN, "%s", ty_error());
  CHECK(value[1].last == 7 && p.n == 2, "%d", p.n);
  return check_end();
}

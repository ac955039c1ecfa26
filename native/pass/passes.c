/* passes.c - the list of passes, which make a program of a graph with its gradients, in order.
**
** Each is a file with one function. It reads the parts of the program that its row names, which
** earlier passes have written, and writes the parts that its row names. The rewrites of the graph
** itself, which run before, are listed in rewrites.c.
*/
#include "pass/parts.h"
#include "pass/passes.h"

struct pass_entry {
  const char *name;
  int (*run)(struct program *p);
  int reads, writes;
};
static const struct pass_entry passes[] = {
  { "fuse",                    pass_fuse,                   GRAPH,                                            GROUPS },
  { "epilogue",                pass_epilogue,               GROUPS,                                           GROUPS|EPILOGUES },
  { "schedule",                pass_schedule,               GROUPS|EPILOGUES,                                 STEPS|GROUPS },
  { "values",                  pass_values,                 GROUPS|EPILOGUES|STEPS,                           ROOTS },
  { "group weights",           pass_group_weights,          STEPS|ROOTS,                                      STEPS },
  { "batch weight gradients",  pass_batch_weight_gradients, EPILOGUES|STEPS|ROOTS,                            ROOTS },
  { "layout",                  pass_layout,                 EPILOGUES|STEPS|ROOTS,                            BLOCKS },
  { "select",                  pass_select,                 EPILOGUES|STEPS|ROOTS|BLOCKS,                     KERNELS },
  { "liveness",                pass_liveness,               EPILOGUES|STEPS|ROOTS,                            LIFETIMES|ROOTS },
  { "fold batchnorm",          pass_fold_batchnorm,         EPILOGUES|STEPS|ROOTS|BLOCKS|KERNELS|LIFETIMES,   NORMS|KERNELS },
  { "plan",                    pass_plan,                   STEPS|ROOTS|KERNELS|LIFETIMES,                    OFFSETS },
  { "states",                  pass_states,                 STEPS|ROOTS|KERNELS,                              STATES|KERNELS },
  { "pointwise",               pass_pointwise,              STEPS|ROOTS,                                      CODE },
  { "segments",                pass_segments,               STEPS|ROOTS|KERNELS|LIFETIMES|NORMS,              SEGMENTS|KERNELS },
};

int program_compile(struct program *p)
{
  int made = GRAPH;
  for (int i = 0; i < COUNT(passes); i++) {
    const struct pass_entry *x = &passes[i];
    NEED((made & x->reads) == x->reads, TY_EINTERNAL, "pass %s comes before what it reads",
        x->name);
    TRY(parts_run(p, x->name, x->run, x->reads, x->writes));
    made |= x->writes;
  }
  return env_number("TYCHO_VERIFY", 0) ? plan_verify(p) : TY_OK;
}

/* passes.c - the list of passes: what makes a graph with its gradients a program, in order.
**
** Each is a file with one function. It reads what the list says, which earlier passes have written,
** and writes its own part of the program, or puts in another order what is there. What comes
** before, with the graph itself, is `exec_make` (exec/bind.c).
*/
#include "pass/passes.h"

/* Parts of a program. */
enum { GRAPH = 1 << 0,                                /* nodes, descriptors, devices */
       GROUPS = 1 << 1,                               /* element-wise nodes that run as one */
       EPILOGUES = 1 << 2,                            /* what kernels do of their neighbours */
       STEPS = 1 << 3,                                /* what runs, in order */
       ROOTS = 1 << 4,                                /* of values that share bytes; operands */
       BLOCKS = 1 << 5,                               /* channels of values in blocks */
       KERNELS = 1 << 6,                              /* with their scratch and state */
       LIFETIMES = 1 << 7,                            /* of roots, which are final */
       FOLDS = 1 << 8,                                /* normalisations that products may do */
       OFFSETS = 1 << 9,                              /* of values and scratch */
       STATES = 1 << 10,                              /* memory of kernels */
       CODE = 1 << 11,                                /* pointwise programs */
       SEGMENTS = 1 << 12 };

struct pass_entry {
  const char *name;
  int (*run)(struct program *p);
  int reads, writes;
};
static const struct pass_entry passes[] = {
  { "fuse",                   pass_fuse,                   GRAPH,                      GROUPS },
  { "epilogue",               pass_epilogue,               GRAPH|GROUPS,               GROUPS|EPILOGUES },
  { "schedule",               pass_schedule,               GRAPH|GROUPS|EPILOGUES,     STEPS|GROUPS },
  { "values",                 pass_values,                 GROUPS|EPILOGUES|STEPS,     ROOTS },
  { "group weights",          pass_group_weights,          STEPS|ROOTS,                STEPS },
  { "batch weight gradients", pass_batch_weight_gradients, EPILOGUES|STEPS|ROOTS,      ROOTS },
  { "layout",                 pass_layout,                 EPILOGUES|STEPS|ROOTS,      BLOCKS },
  { "select",                 pass_select,                 EPILOGUES|ROOTS|BLOCKS,     KERNELS },
  { "liveness",               pass_liveness,               EPILOGUES|STEPS|ROOTS,      LIFETIMES|ROOTS },
  { "fold batchnorm",         pass_fold_batchnorm,         KERNELS|LIFETIMES,          FOLDS|KERNELS },
  { "plan",                   pass_plan,                   ROOTS|KERNELS|LIFETIMES,    OFFSETS },
  { "states",                 pass_states,                 ROOTS|KERNELS,              STATES },
  { "pointwise",              pass_pointwise,              STEPS|ROOTS,                CODE },
  { "segments",               pass_segments,               STEPS|LIFETIMES,            SEGMENTS },
};

int program_compile(struct program *p)
{
  int there = GRAPH;
  for (int i = 0; i < COUNT(passes); i++) {
    const struct pass_entry *x = &passes[i];
    NEED((there & x->reads) == x->reads, TY_EINTERNAL, "pass %s stands before what it reads",
        x->name);
    TRY(x->run(p));
    there |= x->writes;
  }
  return env_number("TYCHO_VERIFY", 0) ? plan_verify(p) : TY_OK;
}

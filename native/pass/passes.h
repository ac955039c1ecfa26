/* passes.h - the passes from a graph to a program, and what they share. The list, with what each of
** them reads and writes, is in passes.c. */
#pragma once
#include "pass/program.h"

int pass_fuse(struct program *p);
int pass_epilogue(struct program *p);
int pass_schedule(struct program *p);
int pass_values(struct program *p);
int pass_group_weights(struct program *p);
int pass_batch_weight_gradients(struct program *p);
int pass_layout(struct program *p);
int pass_select(struct program *p);
int pass_liveness(struct program *p);
int pass_fold_batchnorm(struct program *p);
int pass_plan(struct program *p);
int pass_states(struct program *p);
int pass_pointwise(struct program *p);
int pass_segments(struct program *p);
/* Finds what the steps of each segment do together (together.c). */
int join_calls(struct program *p);

/* Which nodes run and which values are read. Arrays are in the program's arena. */
struct uses {
  /* per node: it must run, for a head, a gradient or a changed state */
  uint8_t *alive;
  /* per value: an alive node or an end reads it */
  uint8_t *used;
  /* per value: another step or an end reads it */
  uint8_t *outside;
};
/* Finds the uses of a graph (uses.c). Before the pass schedule, which makes program.step_of,
** `outside` equals `used`. */
int uses_find(struct program *p, struct uses *u);

/* Returns the formula of an output or gradient, or of a small sum; NULL: there is none (fuse.c). */
const char *formula_of(const struct node *n, int out);
/* Returns the shape that a node of a pointwise program runs over. */
const ty_desc *space_of(const struct source *s, int node);
/* Returns whether the last node of a node's pointwise program is a reduction (fuse.c). */
bool ends_in_reduction(const struct program *p, const struct step *st);
/* Returns whether every gradient kernel takes operands of further nodes (K_BATCHES;
** batch_weight_gradients.c). */
bool batches_sums(const struct op *op, int device);
/* Fills in v.call of a step, without pointers (select.c). */
int  step_call(struct program *p, struct step *st);
/* Runs a step together with the normalisation after it, if this run allows it (fold_batchnorm.c).
** *done: it has run; else the caller runs it alone. */
int  fused_norm_run(struct program *p, struct step *st, bool *done);
/* Finds offsets for n items of bytes[i] (multiples of ALIGN), which live at steps first[i] to
** last[i] (memory_fit.c). offset[i] >= 0 on entry is kept. held: the bytes of a program whose pool
** this one shares, so that the search ends early at a plan that needs no more; 0: none. *total:
** where the last item ends. *bound: the most bytes that live at one step. */
int  plan_offsets(int n, const int64_t *bytes, const int *first, const int *last, int64_t held,
    int64_t *offset, int64_t *total, int64_t *bound);
/* Returns how many changes of orders the searches of this thread have tried so far, for tests. */
int64_t plan_changes(void);

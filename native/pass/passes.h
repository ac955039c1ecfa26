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

/* What counts and is read. Arrays are in the program's arena. */
struct uses {
  uint8_t *alive;                                     /* per node: it counts */
  /* per value: an alive node or an end reads it */
  uint8_t *used;
  /* per value: something beyond its step reads it */
  uint8_t *outside;
};
/* Finds the uses of a graph (uses.c). Before program.step_of is there, `outside` equals `used`. */
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
/* Fills in v.call without pointers from what is known (select.c). */
int  step_call(struct program *p, struct step *st);
/* Runs a step that does some of what follows it (fold_batchnorm.c); *done: it has been run so. */
int  fused_norm_run(struct program *p, struct step *st, bool *done);
/* memory_fit.c. Finds places for n items, of bytes[i] (multiples of ALIGN), which live at steps
** first[i] to last[i]: offset[i], where one >= 0 on entry is kept. held: the bytes of a program
** whose pool this one shares, so that a plan that needs no more is searched for briefly; 0: none.
** *total: where the last one ends. *bound: the most bytes that live at one step. */
int  plan_offsets(int n, const int64_t *bytes, const int *first, const int *last, int64_t held,
    int64_t *offset, int64_t *total, int64_t *bound);
/* Returns how many changes of orders this thread's searches have tried so far. */
int64_t plan_changes(void);

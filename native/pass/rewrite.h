/* rewrite.h - changes of an executor's graph before it becomes a program.
**
** A rewrite is a function that changes a typed graph: the nodes, with their descriptors and
** devices. One that appends nodes does so in place; one that drops, moves or inserts nodes makes a
** new graph with a mapper, which carries descriptors, devices and heads over. rewrites.c lists the
** rewrites.
*/
#pragma once
#include "graph/graph.h"

/* A graph with descriptors, devices and ends. typed_graph_done frees the arrays. */
struct typed_graph {
  ty_graph *g;
  ty_desc *desc;                                      /* per value; room for desc_cap values */
  int desc_cap;
  int *device;                                        /* per node; NULL before they are placed */
  int forward;                                        /* nodes of the forward part */
  ty_entry *head;
  int nhead;
  /* Nodes of the bound variables: arguments, then auxiliary states. They are never dropped. */
  int *variable;
  int nvariable;
  /* Per variable: its gradient; node -1: none was asked for. */
  ty_entry *grad;
  /* Per head: the variable of its gradient; node -1: it is not read. */
  ty_entry *head_grad;
  /* Further entries, which rewrites map to the new nodes. */
  ty_entry *extra;
  int nextra;
  bool replaced;                                      /* a new node replaces nodes of the user's */
};

/* The arguments of all rewrites. Arrays are the caller's. */
struct rewrite_request {
  /* Per variable: a descriptor, with ndim 0 or TY_NODTYPE where it is to be inferred. */
  const ty_desc *variable;
  /* Per variable: its gradient is asked for. */
  const bool *with_grad;
  /* Per head: a gradient comes for it; NULL: for all. */
  const bool *head_has_grad;
  /* Marks the forward nodes that backward computes again; NULL: none. */
  void (*mark_mirrors)(const struct typed_graph *x, void *context, uint8_t *mark);
  void *context;
  int sum_cap;                                        /* struct gradient_request's cap */
  /* Nodes are not replaced by equivalent ones, so that monitors see each node of the user. */
  bool as_written;
  int default_device;
  int precision;                                      /* PRECISION_*, of products of float32 */
  const ty_place *group;                              /* ctx groups and their devices */
  int ngroup;
  /* per variable: device of its array, -1: open */
  const int *array_device;
  /* per variable: device of its gradient's array */
  const int *grad_device;
};

void typed_graph_done(struct typed_graph *x);
/* Runs all rewrites, in order. */
int  rewrite_all(struct typed_graph *x, const struct rewrite_request *r);

/* -- the rewrites ------------------------------------------------------------------------------ */

int rewrite_infer(struct typed_graph *x, const struct rewrite_request *r);
int rewrite_control_flow(struct typed_graph *x, const struct rewrite_request *r);
int rewrite_check_rows(struct typed_graph *x, const struct rewrite_request *r);
int rewrite_attention(struct typed_graph *x, const struct rewrite_request *r);
int rewrite_weight_casts(struct typed_graph *x, const struct rewrite_request *r);
int rewrite_gradient(struct typed_graph *x, const struct rewrite_request *r);
int rewrite_placement(struct typed_graph *x, const struct rewrite_request *r);

/* Infers the shapes and types that are not known. A type that stays unknown becomes float32; a
** shape that stays unknown is an error. */
int typed_graph_infer(struct typed_graph *x);

/* -- the mapper -------------------------------------------------------------------------------- */

/* A new graph that takes the place of an old one, node by node:
**
**     struct mapper m;
**     int code = mapper_begin(&m, x);
**     if (code) return code;
**     for (int i = 0; i < x->g->n && !code; i++) {
**       mapper_visit(&m, i);
**       if (drop(i)) m.entry[x->g->node[i].first] = mapper_input(&m, i, 0);
**       else code = mapper_copy(&m, i, NULL);
**     }
**     return mapper_end(&m, code);
*/
struct mapper {
  struct typed_graph *x;
  ty_graph *to;                                       /* keeps the old graph alive */
  ty_entry *entry;                                    /* per old value: what it became; node -1 */
  int *node;                                          /* per old node: its copy, -1: none */
  int *device;                                        /* per new node, -1: as its first input */
  int device_cap;
  int forward;                                        /* new nodes of the forward part, -1: open */
};
int  mapper_begin(struct mapper *m, struct typed_graph *x);
/* Notes that old node i is visited; called for each node, in order, before its new nodes are
** made. */
void mapper_visit(struct mapper *m, int i);
/* Returns what input k of old node i became. */
ty_entry mapper_input(const struct mapper *m, int i, int k);
/* Copies old node i with the inputs `in`; NULL: with what its inputs became. */
int  mapper_copy(struct mapper *m, int i, const ty_entry *in);
/* Sets the device of a node that graph_node has made in m->to. */
int  mapper_set_device(struct mapper *m, int node, int device);
/* Replaces the old graph, and infers the descriptors of new nodes. With a code other than TY_OK, or
** where it fails, the old graph stays. Frees the mapper and returns the code. */
int  mapper_end(struct mapper *m, int code);

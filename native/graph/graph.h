/* graph.h - an append-only list of nodes. A symbol becomes a graph; a bound executor has a graph
** of its own, to which the gradient pass appends. Each pass is one file that writes one array
** beside the nodes.
**
** Invariants: (1) an input's node index is smaller than its reader's; (2) nodes are never
** changed or removed; (3) a pass writes only its own array; (4) after plan, two values live at
** once never overlap unless one is an alias of the other (plan_verify derives this from the
** instructions alone).
*/
#pragma once
#include "op/registry.h"

/* What an operator with these attributes is; equal nodes share it. */
struct kind {
  const struct op *op;                                /* NULL: a variable */
  /* sorted by key: parameters as given, and __annotations__ */
  const ty_attr *attr;
  const void *param;
  const struct port *inport, *outport;
  /* what its gradient operator reads, or this one does; NULL: no gradient */
  const struct reads *reads;
  /* which of its outputs may have the bytes of which inputs; NULL: none */
  const struct in_place *in_place;
  /* given: inputs of the call that made it */
  int nattr, nin, given;
  int nout;                                           /* outputs, all */
  int nreal;                                          /* without private ones */
  int nvisible;                                       /* seen by composition */
};
struct node {
  const struct op *op;                                /* of its kind */
  const struct kind *kind;
  const char *name, *where;                           /* where: "file.lua:12" or NULL */
  const ty_entry *in;
  int nin;
  /* its outputs are values first .. first + kind->nout - 1 */
  int first;
  /* >= 0: this is the gradient (or a mirror) of that node */
  int forward;
  int nbody;
  ty_graph *const *body;                              /* subgraphs of control flow */
  const char *shown;                                  /* see `inside` */
  /* the node (counted from 1) of a byte that says whether this one runs; 0: always */
  int guard;
  /* which of the executor's own random states it takes (counted from 1); 0: that of the run, with
  ** its index as key */
  int draw;
  /* runs op->back_cpu; reads `reads`, output k is the gradient of input k */
  bool backward : 1;
  bool mirror : 1;
  /* a link, but the last, of a chain that adds up a gradient */
  bool partial_sum : 1;
  /* a variable that is the gradient of an output: no argument of the user's */
  bool head_gradient : 1;
  /* texts and bodies belong to the graph `base` */
  bool borrowed : 1;
  /* part of a node of control flow: monitors do not see it, but for its only output
  ** where that is one of the node's, under the name `shown` */
  bool inside : 1;
};
enum { RECENT_KINDS = 64 };
struct ty_graph {
  int32_t refs;
  struct arena arena;
  struct node *node;
  int n, cap;
  /* by a hash of what they say; kinds of gradient operators by that of their forward kind */
  const struct kind *recent[RECENT_KINDS], *gradient[RECENT_KINDS];
  int nvalue;                                         /* outputs of all nodes */
  ty_entry *head;                                     /* of a parsed graph */
  int nhead, version;
  /* versions of its nodes' inputs, where the file's are not those that are counted; NULL */
  const int *const *versions;
  const char *where;                                  /* origin of the nodes that follow */
  ty_graph **body;                                    /* waiting for the next ty_graph_op */
  int nbody;
  struct text printed;
  ty_graph *base;                                     /* kept alive: nodes were copied from it */
};
static inline int value_of(const ty_graph *g, ty_entry e) { return g->node[e.node].first + e.out; }
const char *node_attr(const struct node *n, const char *key);
/* Returns the kind of an operator (NULL: a variable) with nin inputs given; name: for errors. */
int graph_kind(ty_graph *g, const struct op *op, const char *name, const ty_attr *attr, int nattr,
    int nin, const struct kind **out);
/* Adds a node of a kind, with as many inputs as it has and the bodies that wait. */
int graph_add(ty_graph *g, const struct kind *kind, const char *name, const ty_entry *in,
    ty_entry *out);
int  graph_var(ty_graph *g, const char *name, const ty_attr *attr, int nattr, ty_entry *out);
int  graph_node(ty_graph *g, const struct op *op, const char *name, const ty_attr *attr, int nattr,
                /* out: its first output */
                const ty_entry *in, int nin, ty_entry *out);
int graph_clone(ty_graph *g, int of, const char *name, bool backward, const ty_entry *in, int nin,
    int nout, ty_entry *out);
/* a mirror of node `of`, or its gradient operator */
/* Returns a node's label: "FullyConnected", "_backward_FullyConnected", "null". */
const char *op_label(const struct node *n);
/* Writes the name of an output: "fc1_output", "bn_mean", "slice_output0". */
void output_name(const struct node *n, int out, char *buffer, size_t size);

/* pass/infer.c: fills desc[nvalue] from what is known; the seeds of variables are in desc
** before. */
/* Seeds descriptors with the given shapes and dtypes, __shape__ and __dtype__. */
int  infer_seed(const ty_graph *g, const ty_want *given, int n, ty_desc *desc);
/* Infers descriptors; conflicts fail, and what stays unknown stays 0. */
int  infer_run(const ty_graph *g, int what, ty_desc *desc);
/* Fails naming the first undecided argument. */
int  infer_undecided(const ty_graph *g, const ty_desc *desc, int what);

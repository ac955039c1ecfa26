/* graph.h - a graph: an append-only list of nodes. A symbol is built as one; a bound executor has
** its own copy, to which the gradient pass appends. Each pass is one file, and writes one array
** beside the nodes.
**
** Invariants: (1) an input's node index is smaller than its reader's; (2) nodes are never changed
** or removed; (3) a pass writes only its own array; (4) after plan, two values live at once never
** overlap unless one is an alias of the other (plan_verify derives this from the instructions
** alone).
*/
#pragma once
#include "op/registry.h"

/* An operator with attributes, and what follows from these. Nodes that have the same ones share a
** kind. Never changed. */
struct kind {
  const struct op *op;                                /* NULL: a variable */
  /* parameters as given and __annotations__, sorted by key */
  const ty_attr *attr;
  const void *param;
  const struct port *inport, *outport;
  /* what its gradient operator reads, or, of a gradient's kind, what this one reads; NULL: no
  ** gradient */
  const struct reads *reads;
  /* which outputs may use the memory of which inputs; NULL: none */
  const struct in_place *in_place;
  /* given: inputs that the call passed. The rest of nin are variables made for it */
  int nattr, nin, given;
  int nout;                                           /* all outputs */
  int nreal;                                          /* outputs without private ones */
  int nvisible;                                       /* outputs that composition sees */
};
struct node {
  const struct op *op;                                /* that of its kind */
  const struct kind *kind;
  /* where: line of the script that made it, "file.lua:12", or NULL */
  const char *name, *where;
  const ty_entry *in;
  int nin;
  /* its outputs are the graph's values first .. first + kind->nout - 1 */
  int first;
  /* the node of which this is the gradient or a mirror; -1: none */
  int forward;
  int nbody;
  ty_graph *const *body;                              /* subgraphs of control flow */
  const char *shown;                                  /* name for monitors; see `inside` */
  /* number + 1 of the node whose output, a byte, says whether this one runs; 0: it always runs */
  int guard;
  /* number + 1 of the executor's random state that it uses; 0: that of the run, with the node's
  ** index as key */
  int draw;
  /* the gradient operator of `forward`: runs op->back_cpu, reads kind->reads; output k is the
  ** gradient of input k */
  bool backward : 1;
  bool mirror : 1;
  /* an intermediate sum of a gradient that several nodes contribute to */
  bool partial_sum : 1;
  /* a variable for the gradient of an output, not an argument of the user */
  bool head_gradient : 1;
  /* its texts and bodies belong to graph `base` */
  bool borrowed : 1;
  /* made from the body of a control flow node: monitors do not see it, except that its only output
  ** may be an output of that node, with the name `shown` */
  bool inside : 1;
};
enum { RECENT_KINDS = 64 };
struct ty_graph {
  int32_t refs;
  struct arena arena;
  struct node *node;
  int n, cap;
  /* the latest kinds by a hash of operator and attributes; those of gradient operators by the hash
  ** of their forward kind */
  const struct kind *recent[RECENT_KINDS], *gradient[RECENT_KINDS];
  int nvalue;                                         /* number of values: outputs of all nodes */
  ty_entry *head;                                     /* outputs of a parsed graph */
  int nhead, version;
  /* a parsed graph's versions of its nodes' inputs, if the file has others than symbol_write.c
  ** would count; else NULL */
  const int *const *versions;
  const char *where;                                  /* `where` of nodes added from now on */
  ty_graph **body;                                    /* bodies for the next ty_graph_op */
  int nbody;
  struct text printed;
  ty_graph *base;                                     /* kept alive: nodes were copied from it */
};
/* Returns the index of an output among the graph's values. */
static inline int value_of(const ty_graph *g, ty_entry e) { return g->node[e.node].first + e.out; }
/* Returns an attribute's value, borrowed; NULL: the node does not have it. */
const char *node_attr(const struct node *n, const char *key);
/* Finds or makes the kind of an operator (NULL: a variable) with nin inputs passed. name: the
** node's, for errors. */
int graph_kind(ty_graph *g, const struct op *op, const char *name, const ty_attr *attr, int nattr,
    int nin, const struct kind **out);
/* Adds a node of a kind, which needs all kind->nin inputs; it gets the bodies in g->body. out: its
** first output. Texts and inputs are copied. */
int graph_add(ty_graph *g, const struct kind *kind, const char *name, const ty_entry *in,
    ty_entry *out);
/* Adds a variable. */
int  graph_var(ty_graph *g, const char *name, const ty_attr *attr, int nattr, ty_entry *out);
/* Adds a node of an operator with all of its inputs. out: its first output. */
int  graph_node(ty_graph *g, const struct op *op, const char *name, const ty_attr *attr, int nattr,
    const ty_entry *in, int nin, ty_entry *out);
/* Adds a mirror of node `of`, or with `backward` its gradient operator: the same operator and
** parameters with other inputs. out: its first output. */
int graph_clone(ty_graph *g, int of, const char *name, bool backward, const ty_entry *in, int nin,
    int nout, ty_entry *out);
/* Returns a node's label: "FullyConnected", "_backward_FullyConnected", "null". */
const char *op_label(const struct node *n);
/* Writes the name of an output: "fc1_output", "bn_mean", "slice_output0". */
void output_name(const struct node *n, int out, char *buffer, size_t size);

/* -- pass/infer.c: descriptors of all values, desc[nvalue] ------------------------------------- */

/* Sets the descriptors of variables from the given shapes and dtypes, __shape__ and __dtype__. */
int  infer_seed(const ty_graph *g, const ty_want *given, int n, ty_desc *desc);
/* Infers the other shapes (what: INFER_SHAPES) or dtypes (INFER_TYPES). Fails on conflicts; what
** cannot be inferred stays 0. */
int  infer_run(const ty_graph *g, int what, ty_desc *desc);
/* Fails if a descriptor is not known completely, naming the first such argument. */
int  infer_undecided(const ty_graph *g, const ty_desc *desc, int what);

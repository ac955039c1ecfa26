/* program.h - what a graph compiles to: steps in order, a place for every value, instructions
** ready to run. passes.c lists what makes one. A program is one variant: with fusion, or (monitor,
** partial forward) one node per step.
*/
#pragma once
#include "graph/graph.h"
#include "op/dispatch.h"
#include "pointwise/pointwise.h"

/* a copy of a value to a bound array at the end of the program */
struct grad_copy { ty_entry from; int bound, req; };
/* The graph of an executor, with what the passes need to know of its inputs and outputs. */
struct source {
  ty_graph *g;
  const ty_desc *desc;                                /* per value */
  const int *device;                                  /* per node */
  /* nodes of the forward part; all later ones belong to backward */
  int forward;
  const ty_entry *head;
  int nhead;
  const uint8_t *is_head;                             /* per value */
  /* per node: the bound tensor of a variable, -1: none */
  const int *bound;
  /* per value: bound tensor that receives it as a gradient, -1 */
  const int *grad_of;
  /* per value: TY_WRITE or TY_ADD, where grad_of >= 0 */
  const int *grad_req;
  /* per value: bound tensor that has it already, so that its producer need not run; -1 */
  const int *known;
  /* per value: >= 0: its producer adds it to that value's bytes (accumulate.c) */
  const int *into;
  /* per node: an addition that its inputs have already done; needs no step */
  const uint8_t *summed;
  /* gradients that were asked for; node -1: not this one */
  const ty_entry *end;
  int nend;
  /* gradients that cannot be written by their producer */
  const struct grad_copy *copy;
  int ncopy;
  const uint8_t *copied;                              /* per value: a copy takes it */
  /* per bound tensor: the bucket of gradients that it belongs to, -1; NULL: there are none */
  const int *bucket;
  int nbucket;
  int flags;
  /* random states of nodes that have their own (struct node) */
  const struct run *own_run;
};

enum {
  STEP_NODE,                                          /* runs one node's kernel */
  STEP_POINTWISE,                                     /* runs a group of element-wise nodes */
  STEP_COPY,                                          /* copies a value to a bound tensor */
  STEP_ADD                                            /* adds a value to a bound tensor */
};
struct step {
  int kind;                                           /* STEP_* */
  int node;                                           /* the (last) node it runs */
  /* STEP_POINTWISE: its first node, in program.member */
  int member;
  int nmember;                                        /* STEP_POINTWISE: number of its nodes */
  int bound;                                          /* STEP_COPY, STEP_ADD */
  ty_entry from;
  /* value of the byte that says whether it runs, -1: always */
  int guard;
  const uint8_t *guard_at;
  int device;
  struct invoke v;                                    /* STEP_NODE: kernel and operands */
  int *in;                                            /* values that it reads */
  /* values that it writes; -1: this output is unused */
  int *out;
  int nin, nout;
  /* STEP_POINTWISE, STEP_ADD */
  struct pw_program *pw;
  struct pw_loop *loop;
  void **operand;
  int *pw_value, npw;
  struct pw_end *end;                                 /* the reduction it ends in, NULL */
  void *end_tmp;
  void *copy_from, *copy_to;                          /* STEP_COPY */
  size_t scratch;
  int64_t scratch_at;                                 /* offset in the pool */
  /* its own; v.call.state may be another step's */
  void *state;
  int state_of;                                       /* the step whose state it shares, -1 */
  bool state_shared;                                  /* others use its state */
  int64_t ns;                                         /* of its last timed run */
  char *why;                                          /* candidates that refused */
  struct joined *before;                              /* shared work before it; NULL: none */
  struct joined *after;                               /* shared work after it; NULL: none */
  struct fused_norm *fused_norm;                      /* next steps that it can do; NULL: none */
  struct fused_norm *fused_into;                      /* of the step that can do this one; NULL */
};
/* Work that n steps share (together.c): the steps and their calls. */
struct joined { const struct together *does; int n, *step; struct call **call; };
/* A normalisation, with the sum and activation after it, that a product's step can do itself, in
** runs that allow it (fold_batchnorm.c). */
struct fused_norm {
  struct scaling scaling;
  struct epilogue epilogue;
  double *a, *d;
  int norm;                                           /* the step of the normalisation */
  int sum;                                            /* the step of the sum after it, -1: none */
  int target;                                         /* value that gets the result */
  struct operand out;
  bool done;                                          /* in the current run */
  /* versions of what scale and shift were made from */
  uint64_t seen[6];
};

enum {
  V_NONE,                                             /* no bytes */
  V_BOUND,                                            /* those of a bound tensor */
  V_POOL                                              /* bytes in the pool of its device */
};
struct value {
  int kind;
  /* the value whose memory this one has: itself, or an alias's */
  int root;
  int bound;                                          /* V_BOUND: bound tensor */
  /* of a root: the step from which its bytes are in use */
  int first;
  int last;                                           /* and the last one that uses them */
  /* of a root: the last step that writes into its bytes */
  int last_write;
  int device;
  bool pinned;                                        /* a head: in use to the end */
  bool add;                                           /* V_BOUND: its producer accumulates */
  int block;                                          /* as in struct operand */
  int64_t bytes;                                      /* of a root: rounded to ALIGN */
  int64_t offset;                                     /* of a root: in its device's pool */
  int nread;                                          /* steps that read it */
  int reader;                                         /* the last of them */
};
enum { MAX_DEVICES = 16 };
/* steps first .. last - 1, all on one device; a host step is alone */
struct segment {
  int device, slot, first, last;
  /* per device slot: the latest earlier segment there that it reads from, -1 */
  int wait[MAX_DEVICES];
  /* What follows is set by the executor. */
  struct access *read, *write;                        /* what the queue must know */
  int *read_of;                                       /* per read: its bound array, -1: not one */
  int *write_of;                                      /* per write: likewise */
  int nread, nwrite;
  int *seen;                                          /* bound arrays whose versions it gets */
  int nseen;
  struct replay *record;                              /* what its device records (exec/replay.c) */
  int nrecord;
};
/* per node: its readers are list[first[i] .. first[i + 1] - 1] */
struct readers { int *first, *list; };
/* A node whose work the kernel of another node does. */
struct fused_node {
  enum fused_kind kind;
  int node;
  ty_entry operand;                                   /* what it reads besides, node -1: nothing */
  bool exponentials;                                  /* as in struct fused_op */
};
struct fusion { int n; struct fused_node node[MOST_FUSED]; };

/* the outputs of another program, whose places this one's are to keep; program NULL: none */
struct outputs_of { const struct program *program; const ty_entry *head; int nhead; };

struct program {
  struct source s;
  struct outputs_of like;                             /* read by the pass plan only */
  struct arena arena;
  int *group;                                         /* fuse: per node, -1: alone */
  struct readers readers;
  /* epilogue: per node, the other nodes whose work its kernel does; NULL: none */
  struct fusion **fusion;
  /* epilogue: per node, the node whose kernel does its work, -1: its own */
  int *taken_by;
  /* schedule */
  struct step *step;
  int n, nforward;
  int *member;
  struct value *value;                                /* values: per value of the graph */
  int *step_of;                                       /* per node: the step that runs it, -1 */
  int ndevice, device[MAX_DEVICES];
  int64_t pool[MAX_DEVICES], bound[MAX_DEVICES], unshared[MAX_DEVICES];
  struct segment *segment;
  int nsegment, nsegment_forward;
  /* per step: a segment of this step alone, for walks; NULL before the first walk */
  struct segment *step_segment;
  /* the executor has listed the storages of its segments */
  bool ready;
  struct run run[MAX_DEVICES];                        /* per device slot: read by its kernels */
  /* Serial number of the addresses that its pointers are made of. While tasks run, it and they
  ** belong to the thread of their queue. */
  uint64_t serial;
};

/* Returns how many nodes and heads read each value, nodes that are `summed` left out. The caller
** frees it; NULL: out of memory. */
int *count_reads(const struct source *s);
/* Marks additions that the products of their parts do (accumulate.c). arrays: per value, how many
** arrays it goes to at the end; into: per value; summed: per node. */
int  accumulate_sums(const struct source *s, const int *arrays, int *into, uint8_t *summed);
/* Returns whether every candidate kernel can add to this output. */
bool can_add_to(const struct node *n, int device, int out);
/* Returns whether a node runs as part of a pointwise program (fuse.c). */
bool element_wise(const struct source *s, int node);
/* Returns whether a value is a head or goes to a bound gradient. */
bool source_takes(const struct source *s, int value);
/* Returns whether some output of a node is a head or goes to a bound gradient. */
bool source_ends_at(const struct source *s, int node);
/* Runs all passes, in order. */
int  program_compile(struct program *p);
/* Returns whether a kernel does the work of a node of this kind besides its own; f may be NULL. */
bool fusion_has(const struct fusion *f, enum fused_kind kind);
/* Returns the node whose output the kernel's output 0 is, -1: its own. */
int  fusion_result(const struct fusion *f);
/* Returns the node whose output is one more output of the kernel, -1: none. */
int  fusion_kept(const struct fusion *f);
/* Returns whether output 0 of a node stays inside a kernel, which computes another node from it. */
bool value_is_internal(const struct program *p, int node);
/* Returns whether a node writes to an input. */
bool changes_state(const struct node *n);
/* Returns whether bound arrays have the outputs of a node already, so that it does not run. */
static inline bool is_known(const struct source *s, int node)
{
  return s->known[s->g->node[node].first] >= 0;
}
/* Fails with TY_EINTERNAL where values that live at once overlap. */
int  plan_verify(const struct program *p);
/* Makes the segments again, for other buckets of gradients. */
int  program_cut(struct program *p, const int *bucket, int nbucket);
/* Returns the segment of a step, -1: t is none. */
int  find_segment(const struct program *p, int t);
/* Returns the node that has value v: the last one whose first value is at most v. */
int  find_value_node(const ty_graph *g, int v);
/* Executes one step. */
int  program_run_step(struct program *p, struct step *s);
/* Adds operator and node of a step to this thread's failure. Returns code. */
int  program_fail_step(const struct program *p, const struct step *s, int code);
/* Returns whether the front end runs a step. */
static inline bool step_is_front_end(const struct program *p, const struct step *s)
{
  return s->kind == STEP_NODE && p->s.g->node[s->node].op->flags & OP_CALLBACK;
}
/* Returns what a step's kernel does of other nodes; NULL: nothing. */
static inline const struct fusion *step_fusion(const struct program *p, const struct step *s)
{
  return s->kind == STEP_NODE ? p->fusion[s->node] : NULL;
}
/* Returns in *out whether a step's guard says that it does not run. Call it on the thread of its
** device's queue, or when its tasks are complete. Fails with what tasks of a GPU have reported. */
int step_skipped(const struct step *s, bool *out);
void program_free(struct program *p);
/* Returns whether output `out` of a kernel may have the bytes of input `in`. */
static inline bool step_in_place(const struct program *p, const struct step *s, int out, int in)
{
  const struct node *n = &p->s.g->node[s->node];
  /* what fusion_kept is made of, element by element, before the rest: of a pick only indices */
  if (out >= n->kind->nout)
    return in >= n->nin || (in == 0 && !fusion_has(step_fusion(p, s), BESIDE_PICK));
  return in_place_allowed(n->kind->in_place, out, in);
}
/* Returns whether a requested gradient is that of a loss's label, which gets none (views.c). */
bool is_label_end(const struct source *s, ty_entry e);
/* Returns the index of a device among those of the program; -1: it is none of them. */
int  program_slot(const struct program *p, int device);
/* Returns the input whose bytes output `out` of a node is (a view, or an identity formula), -1:
** none. */
int  view_of(const struct source *s, int node, int out);
/* Follows views to the value whose bytes they are. */
ty_entry view_root(const struct source *s, ty_entry e);

/* per device slot: base of the pool, versions of bound arrays; and where these are */
struct bases {
  char *pool[MAX_DEVICES];
  void *const *bound;
  const uint64_t *version[MAX_DEVICES];
};
/* Resolves operands to pointers. */
void program_resolve(struct program *p, const struct bases *b);

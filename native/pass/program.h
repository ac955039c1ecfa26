/* program.h - what a graph compiles to: steps in order, a place for every value, instructions
** ready to run. passes.c lists what makes one. A program is one variant: with fusion, or (monitor,
** partial forward) one node per step.
*/
#pragma once
#include "graph/graph.h"
#include "op/dispatch.h"
#include "pointwise/pointwise.h"

/* The graph of an executor with everything the passes ask about its ends. Arrays are indexed as
** noted. */
struct grad_copy { ty_entry from; int bound, req; };
struct source {
  ty_graph *g;
  const ty_desc *desc;                                /* per value */
  const int *device;                                  /* per node */
  /* nodes of the forward part; all later ones belong to backward */
  int forward;
  const ty_entry *head;
  int nhead;
  const uint8_t *is_head;                             /* per value */
  /* per node: place of a variable among the bound tensors, -1 */
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

/* STEP_COPY, STEP_ADD: a value into (onto) bound tensor `bound` */
enum { STEP_NODE, STEP_POINTWISE, STEP_COPY, STEP_ADD };
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
  struct joined *before;                              /* what runs before it; NULL: nothing */
  struct joined *after;                               /* what runs after it; NULL: nothing */
  struct fused_norm *fused_norm;                      /* what it can do of the next steps */
  struct fused_norm *fused_into;                      /* what can do this step */
};
/* What steps of a segment do together (together.c), and their calls. */
struct joined { const struct together *does; int n, *step; struct call **call; };
/* A step that does what follows it, in runs that allow it (fold_batchnorm.c). */
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

enum { V_NONE, V_BOUND, V_POOL };
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
/* A node that the kernel of another one does. */
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
  struct outputs_of like;                             /* read by plan alone */
  struct arena arena;
  int *group;                                         /* fuse: per node, -1: alone */
  struct readers readers;
  /* epilogue: per node, what its kernel does of others, NULL: nothing; per node, the node whose
  ** kernel does it, -1 */
  struct fusion **fusion;
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
  /* per step: it as a segment of its own, for walks; NULL before the first */
  struct segment *step_segment;
  /* the executor has listed the storages of its segments */
  bool ready;
  struct run run[MAX_DEVICES];                        /* what the kernels of each device look at */
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
/* Returns whether a kernel does something of this kind besides its node; f may be NULL. */
bool fusion_has(const struct fusion *f, enum fused_kind kind);
/* Returns the node whose output the kernel's output 0 is, -1: its own. */
int  fusion_result(const struct fusion *f);
/* Returns the node whose output is one more output of the kernel, -1: none. */
int  fusion_kept(const struct fusion *f);
/* Returns whether output 0 of a node is used by the kernel that makes it alone. */
bool value_lies_inside(const struct program *p, int node);
/* Returns whether a node writes to an input. */
bool changes_state(const struct node *n);
/* Returns whether the outputs of a node are there already, so that it does not run. */
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
/* Returns in *out whether its guard says no. Call on the thread of its device's queue, or when its
** tasks are complete. Fails with what the tasks of a GPU have reported until then. */
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
bool is_label_end(const struct source *s, ty_entry e);
int  program_slot(const struct program *p, int device);
/* Returns the input whose bytes output `out` of a node is (a view, or an identity formula), -1:
** none. */
int  view_of(const struct source *s, int node, int out);
/* Follows views to a value that is none. */
ty_entry view_root(const struct source *s, ty_entry e);

/* per device slot: base of the pool, versions of bound arrays; and where these are */
struct bases {
  char *pool[MAX_DEVICES];
  void *const *bound;
  const uint64_t *version[MAX_DEVICES];
};
/* Resolves operands to pointers. */
void program_resolve(struct program *p, const struct bases *b);

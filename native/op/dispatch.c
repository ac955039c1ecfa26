/* dispatch.c - see dispatch.h. The first candidate that accepts shapes, dtypes and parameters is
** taken. */
#include <pthread.h>
#include "base/convert.h"
#include "base/stop.h"
#include "op/dispatch.h"
#include "op/half_rows.h"
#include "device/device.h"
#include "pointwise/pointwise.h"

/* -- candidates -------------------------------------------------------------------------------- */

/* Lists of a back end; an index by operator is made at the first lookup. */
enum {
  LISTS = 64,  /* most lists: one per file of the back end */
  ROWS  = 1024 /* most entries of the index */
};
static const struct op_kernels *backend_lists[LISTS];
static int nbackend_lists;
static struct backend_kernels { const struct op *op; const struct op_kernels *kernels; } rows[ROWS];

void op_register_kernels(int kind, const struct op_kernels *list)
{
  if (kind == TY_GPU && nbackend_lists < LISTS) backend_lists[nbackend_lists++] = list;
}

static struct backend_kernels *find_backend_kernels(const struct op *op)
{
  size_t i = (uintptr_t)op / sizeof *op % ROWS;
  while (rows[i].op && rows[i].op != op) i = (i + 1) % ROWS;
  return &rows[i];
}

static void index_backend_kernels(void)
{
  for (int i = 0; i < nbackend_lists; i++)
    for (const struct op_kernels *k = backend_lists[i]; k->op; k++) {
      const struct op *op = op_find(k->op);
      if (op) *find_backend_kernels(op) = (struct backend_kernels){ op, k };
    }
}

const struct op_kernels *op_backend_kernels(const struct op *op)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, index_backend_kernels);
  return find_backend_kernels(op)->kernels;
}

struct candidates op_candidates(const struct op *op, bool backward, int device)
{
  const struct kernel *cpu = backward ? op->back_cpu : op->cpu;
  if (op->formula) cpu = backward ? formula_back_kernel : formula_kernel;
  if (op->formula || device_kind(device) != TY_GPU) return (struct candidates){ cpu, NULL };
  const struct op_kernels *own = op_backend_kernels(op);
  return (struct candidates){ !own ? NULL : backward ? own->backward : own->forward, cpu };
}

const struct kernel *next_candidate(struct candidates *c, bool *cpu_fallback)
{
  const struct kernel **list = c->own && c->own->name ? &c->own : &c->cpu;
  bool anywhere = *list && (*list)->flags & K_ANYWHERE;
  if (cpu_fallback) *cpu_fallback = list == &c->cpu && !anywhere;
  return *list && (*list)->name ? (*list)++ : NULL;
}

struct kernel_caps op_common_caps(const struct op *op, bool backward, int device)
{
  struct candidates c = op_candidates(op, backward, device);
  const struct kernel *k = next_candidate(&c, NULL);
  if (!k) return (struct kernel_caps){ 0 };
  struct kernel_caps all = { k->flags, k->fuses, k->add };
  bool fallback;
  while ((k = next_candidate(&c, &fallback))) {
    all.flags &= k->flags;
    /* run_on_cpu does sums and POST_DATA_GRAD and converts half types; a kernel that lacks PRE_ACT
    ** or PRE_KEPT_GRAD refuses a call that has it */
    const uint32_t always = CAN(POST_ADD) | CAN_ACT_OF_SUM | CAN(PRE_ACT) | CAN_HALF_GRAD |
        CAN(PRE_ADD) | CAN(PRE_KEPT_GRAD) | CAN(POST_DATA_GRAD);
    all.fuses &= k->fuses | (fallback ? always : 0);
    all.add &= k->add;
  }
  return all;
}

int ty_op_gpu(const char *name, int backward, const char **how)
{
  const struct op *op = op_find(name);
  if (!op) return op_unknown(name ? name : "");
  NEED(how, TY_ETYPE, "op_gpu: null argument");
  struct candidates c = op_candidates(op, backward, TY_GPU);
  bool cpu_fallback = false;
  const struct kernel *first = next_candidate(&c, &cpu_fallback);
  *how = !first ? "nothing" : op->formula ? "formula" : cpu_fallback ? "host" : "kernel";
  return TY_OK;
}

static bool is_half(int dtype) { return dtype == TY_F16 || dtype == TY_BF16; }

/* Returns the first dtype of an operand that the kernel does not support; TY_NODTYPE: there is
** none. A half type is unsupported only if float32 is as well; else *half is set. */
static int find_unsupported_dtype(
    const struct kernel *k, const struct operand *x, int n, bool *half)
{
  for (int i = 0; i < n; i++) {
    int d = x[i].d.dtype;
    if (d == TY_NODTYPE || k->types & T(d)) continue;
    if (!is_half(d) || !(k->types & T(TY_F32))) return d;
    *half = true;
  }
  return TY_NODTYPE;
}

/* Returns whether a call has an operand of each dtype of the kernel. */
static bool has_each_dtype(const struct kernel *k, const struct call *c)
{
  uint32_t lacks = k->types;
  for (int i = 0; i < c->nin; i++)
    if (c->in[i].d.dtype != TY_NODTYPE) lacks &= ~T(c->in[i].d.dtype);
  for (int i = 0; i < c->nout; i++)
    if (c->out[i].d.dtype != TY_NODTYPE) lacks &= ~T(c->out[i].d.dtype);
  return !lacks;
}

/* Makes float32 operands in place of the half ones; their bytes come after the kernel's scratch. */
static int make_converted(
    const struct kernel *k, struct operand *x, int n, struct operand **out, struct arena *a)
{
  *out = arena_new(a, sizeof **out * (size_t)(n + 1));
  NEED(*out, TY_EMEMORY, "out of memory");
  for (int i = 0; i < n; i++) {
    (*out)[i] = x[i];
    if (is_half(x[i].d.dtype) && !(k->types & T(x[i].d.dtype)))
      (*out)[i].d.dtype = TY_F32, (*out)[i].version = NULL;
  }
  return TY_OK;
}

/* Returns whether all float operands are bfloat16: then rounding them to that in products loses
** nothing. */
static bool is_bfloat16(const struct operand *x, int n)
{
  bool any = false;
  for (int i = 0; i < n; i++) {
    if (x[i].d.dtype != TY_BF16 && dtype_float(x[i].d.dtype)) return false;
    any |= x[i].d.dtype == TY_BF16;
  }
  return any;
}

static size_t converted_bytes(const struct operand *real, const struct operand *converted, int n)
{
  size_t bytes = 0;
  for (int i = 0; i < n; i++)
    if (real[i].d.dtype != converted[i].d.dtype)
      bytes += align_up(desc_bytes(&converted[i].d), ALIGN);
  return bytes;
}

bool kernel_blocks(const struct kernel *k, int i, bool out)
{
  return k->blocks >> (MIN(i, 15) + (out ? 16 : 0)) & 1;
}

static bool takes_blocks(const struct kernel *k, const struct call *c)
{
  for (int i = 0; i < c->nin; i++)
    if (c->in[i].block && !kernel_blocks(k, i, false)) return false;
  for (int i = 0; i < c->nout; i++)
    if (c->out[i].block && !kernel_blocks(k, i, true)) return false;
  return true;
}

static int changes_inputs(const struct invoke *v, bool *changes)
{
  const struct call *c = &v->call;
  const struct port_list *ports;
  const struct reads *reads;
  TRY(op_inputs(c->op, c->param, &ports));
  TRY(op_reads(c->op, c->param, &reads));
  *changes = v->backward ? reads && reads->changes : ports->changes;
  return TY_OK;
}

/* Returns the fused sum or gradient that a kernel cannot do, and removes it and what follows it
** from the kernel's call; NULL: there is none. */
static const struct fused_op *take_end(const struct kernel *k, struct call *c)
{
  const struct fused_op *end = k->fuses & CAN(POST_ADD) ? NULL : find_fused(c, POST_ADD);
  if (!end && !(k->fuses & CAN(POST_DATA_GRAD))) end = find_fused(c, POST_DATA_GRAD);
  if (!end) return NULL;
  c->nin = end->operand;
  c->epilogue = NULL;                                 /* nothing is fused before it */
  return end;
}

/* Returns whether a call needs PRE_ACT, or the gradient of an activation other than relu, and the
** kernel cannot do that. */
static bool lacks_activation(const struct kernel *k, const struct call *c)
{
  const struct fused_op *mask = find_fused(c, POST_ACT_GRAD);
  return !(k->fuses & CAN(PRE_ACT)) &&
      (find_fused(c, PRE_ACT) || (mask && mask->act != ACT_RELU));
}

const char *invoke_try_kernel(struct invoke *v, const struct kernel *k, struct arena *a)
{
  static __thread char reason[96];
  struct call c = v->call;
  take_end(k, &c);
  bool half = false;
  v->lacks_type = false;
  if (!takes_blocks(k, &c)) return "channels in blocks";
  if (lacks_activation(k, &c)) return "no activation of its data";
  if (find_fused(&c, PRE_KEPT_GRAD) && !(k->fuses & CAN(PRE_KEPT_GRAD)))
    return "no gradient of relu that others read";
  int d = find_unsupported_dtype(k, c.in, c.nin, &half);
  if (d == TY_NODTYPE) d = find_unsupported_dtype(k, c.out, c.nout, &half);
  v->lacks_type = d != TY_NODTYPE;
  if (v->lacks_type) return snprintf(reason, sizeof reason, "no %s", dtype_name(d)), reason;
  v->lacks_type = k->flags & K_MIXED && !has_each_dtype(k, &c);
  if (v->lacks_type) return "its operands have one dtype";
  v->half = half;
  v->cpu_fallback = false;
  v->half_in = v->half_out = NULL;
  v->rows = 0;
  if (half) {
    if (changes_inputs(v, &v->changes)) return "out of memory";
    if (make_converted(k, c.in, c.nin, &v->half_in, a) ||
        make_converted(k, c.out, c.nout, &v->half_out, a))
      return "out of memory";
    if (is_bfloat16(v->call.in, c.nin)) v->call.precision = c.precision = PRECISION_MEDIUM;
    c.in = v->half_in;
    c.out = v->half_out;
  }
  const char *no = k->refuse ? k->refuse(&c) : NULL;
  if (no) return no;
  v->kernel_scratch = k->scratch ? align_up(k->scratch(&c), ALIGN) : 0;
  v->scratch = v->kernel_scratch;
  if (half && !half_rows_plan(v, k, &c))
    v->scratch += converted_bytes(v->call.in, v->half_in, c.nin) +
        converted_bytes(v->call.out, v->half_out, c.nout);
  if (v->scratch >> 56) return "it needs more scratch than a machine holds";
  v->state = k->state ? k->state(&c) : 0;
  return NULL;
}

/* Plans the call on the CPU, over copies, with scratch in host memory. */
static int plan_cpu_fallback(struct invoke *v, struct arena *a)
{
  v->cpu_fallback = true;
  v->host_scratch = align_up(v->scratch, ALIGN);
  v->scratch = 0;
  TRY(changes_inputs(v, &v->changes));
  v->fallback_in = arena_new(a, sizeof *v->fallback_in * (size_t)(v->call.nin + 1));
  v->fallback_out = arena_new(a, sizeof *v->fallback_out * (size_t)(v->call.nout + 1));
  NEED(v->fallback_in && v->fallback_out, TY_EMEMORY, "out of memory");
  return TY_OK;
}

static size_t total_bytes(const struct call *c)
{
  size_t bytes = 0;
  for (int i = 0; i < c->nin; i++) bytes += desc_bytes(&c->in[i].d);
  for (int i = 0; i < c->nout; i++) bytes += desc_bytes(&c->out[i].d);
  return bytes;
}

/* Adds a candidate and its reason to the list of those that refused. */
static void note_refusal(struct text *why, const char *kernel, const char *reason)
{
  if (why->n) text_put(why, "; ", 2);
  text_put(why, kernel, strlen(kernel));
  text_put(why, ": ", 2);
  text_put(why, reason, strlen(reason));
}

int invoke_choose(struct invoke *v, struct arena *a, struct text *why)
{
  const struct op *op = v->call.op;
  const char *last = "it has no kernel";
  v->lacks_type = false;
  struct candidates c = op_candidates(op, v->backward, v->call.device);
  bool cpu_fallback;
  for (const struct kernel *k; (k = next_candidate(&c, &cpu_fallback));) {
    const char *no = invoke_try_kernel(v, k, a);
    if (!no) {
      v->kernel = k;
      v->call.row = k->row;
      v->brief = total_bytes(&v->call) <= SMALL_TASK;
      return cpu_fallback ? plan_cpu_fallback(v, a) : TY_OK;
    }
    if (why && !v->lacks_type) note_refusal(why, k->name, no);
    last = no;
  }
  struct text types = { 0 };
  for (int i = 0; i < v->call.nin; i++)
    text_add(&types, "%s%s", i ? ", " : "", dtype_name(v->call.in[i].d.dtype));
  int code = fail(v->lacks_type ? TY_EDTYPE : TY_EUNSUPPORTED, "%s%s: cannot run on %s: %s%s",
      v->backward ? "gradient of " : "", op->name, types.s ? types.s : "nothing", last,
      v->lacks_type ? "; Cast converts" : "");
  fail_node(op->name, NULL, NULL);
  text_done(&types);
  return code;
}

/* -- running ----------------------------------------------------------------------------------- */

/* Sets the addresses of converted operands (absent ones stay NULL), and converts those that are
** read. */
static int convert_in(int device, const struct operand *real, struct operand *converted, int n,
    char **at, uint32_t read)
{
  for (int i = 0; i < n; i++) {
    converted[i].p = real[i].p;
    if (real[i].d.dtype == converted[i].d.dtype) continue;
    if (real[i].p) converted[i].p = *at;
    *at += align_up(desc_bytes(&converted[i].d), ALIGN);
    if (converted[i].p && (i > 31 || read >> i & 1))
      TRY(device_convert(device, converted[i].p, TY_F32, real[i].p, real[i].d.dtype,
          desc_count(&real[i].d)));
  }
  return TY_OK;
}

static int convert_out(
    int device, const struct operand *real, const struct operand *converted, int n)
{
  for (int i = 0; i < n; i++)
    if (real[i].p && real[i].p != converted[i].p)
      TRY(device_convert(device, real[i].p, real[i].d.dtype, converted[i].p, TY_F32,
          desc_count(&real[i].d)));
  return TY_OK;
}

/* Runs the kernel on operands in its device's memory, converting half types if necessary. */
static int run_converted(struct invoke *v, struct call c)
{
  if (!v->half) return v->kernel->run(&c);
  if (v->rows) return half_rows_run(v, &c);
  const struct operand *in = c.in, *out = c.out;
  char *at = (char *)c.tmp + v->kernel_scratch;
  TRY(convert_in(c.device, in, v->half_in, c.nin, &at, ~0u));
  TRY(convert_in(c.device, out, v->half_out, c.nout, &at, c.add));
  c.in = v->half_in;
  c.out = v->half_out;
  c.stored = out;
  TRY(v->kernel->run(&c));
  if (stop_wanted()) return TY_OK;
  if (v->changes) TRY(convert_out(c.device, in, v->half_in, c.nin));
  /* outputs last: one may share memory with an input that was not changed */
  return convert_out(c.device, out, v->half_out, c.nout);
}

/* -- CPU fallback: kernels of the CPU over copies, for a GPU ----------------------------------- */

/* Returns where an operand's copy is: that of an earlier operand with the same address (an output
** in place of an input), else the next staging memory, at *at. */
static void *find_copy(const struct invoke *v, int i, const struct operand *x, char **at)
{
  const struct call *c = &v->call;
  for (int k = 0; k < i; k++) {
    const struct operand *real = k < c->nin ? &c->in[k] : &c->out[k - c->nin];
    if (real->p == x->p && desc_bytes(&real->d) >= desc_bytes(&x->d))
      return k < c->nin ? v->fallback_in[k].p : v->fallback_out[k - c->nin].p;
  }
  void *p = *at;
  *at += align_up(desc_bytes(&x->d), ALIGN);
  return p;
}

/* Copies the operands that the kernel reads to host memory, from `at` on, and waits for the
** copies. */
static int copy_in(struct invoke *v, char *at)
{
  const struct call *c = &v->call;
  for (int i = 0; i < c->nin + c->nout; i++) {
    bool in = i < c->nin;
    const struct operand *x = in ? &c->in[i] : &c->out[i - c->nin];
    struct operand *copy = in ? &v->fallback_in[i] : &v->fallback_out[i - c->nin];
    *copy = *x;
    if (!x->p) continue;
    copy->p = find_copy(v, i, x, &at);
    bool read = in || (i - c->nin < 32 && c->add >> (i - c->nin) & 1);
    if (read) TRY(device_copy(TY_CPU, copy->p, c->device, x->p, desc_bytes(&x->d)));
  }
  return device_finish(c->device);
}

static int copy_out(const struct invoke *v, const struct operand *copy, const struct operand *x,
    int n)
{
  for (int i = 0; i < n; i++)
    if (x[i].p)
      TRY(device_copy(v->call.device, x[i].p, TY_CPU, copy[i].p, desc_bytes(&x[i].d)));
  return TY_OK;
}

static size_t staging_bytes(const struct invoke *v)
{
  const struct call *c = &v->call;
  size_t bytes = v->host_scratch;
  for (int i = 0; i < c->nin; i++) bytes += align_up(desc_bytes(&c->in[i].d), ALIGN);
  for (int i = 0; i < c->nout; i++) bytes += align_up(desc_bytes(&c->out[i].d), ALIGN);
  return bytes;
}

static void add_part(double *y, const double *x, int64_t n)
{
  for (int64_t i = 0; i < n; i++) y[i] += x[i];
}
static void add_part_relu(double *y, const double *x, int64_t n)
{
  for (int64_t i = 0; i < n; i++) {
    y[i] += x[i];
    if (y[i] <= 0) y[i] = 0;                            /* keeps NaN */
  }
}
/* Multiply by the derivatives of activations with outputs x. */
static void slope_part_relu(double *y, const double *x, int64_t n)
{
  for (int64_t i = 0; i < n; i++) y[i] *= x[i] > 0 ? 1 : x[i] == x[i] ? 0 : x[i];
}
static void slope_part_sigmoid(double *y, const double *x, int64_t n)
{
  for (int64_t i = 0; i < n; i++) y[i] *= x[i] * (1 - x[i]);
}
static void slope_part_tanh(double *y, const double *x, int64_t n)
{
  for (int64_t i = 0; i < n; i++) y[i] *= 1 - x[i] * x[i];
}

typedef void change_part(double *y, const double *x, int64_t n);
static change_part *find_change(const struct call *c, const struct fused_op *end)
{
  if (end->kind == POST_ADD) return fused_act(c) == ACT_RELU ? add_part_relu : add_part;
  return end->act == ACT_RELU ? slope_part_relu
      : end->act == ACT_TANH  ? slope_part_tanh
                              : slope_part_sigmoid;
}

/* Applies `change` to y with x, of the same dtype and shape, piece by piece in float64. */
static void end_on_host(const struct operand *y, const struct operand *x, change_part *change)
{
  enum { PART_ELEMENTS = 256 };
  const int64_t n = desc_count(&y->d), size = (int64_t)dtype_size(y->d.dtype);
  double to[PART_ELEMENTS], by[PART_ELEMENTS];
  for (int64_t first = 0; first < n; first += PART_ELEMENTS) {
    const int64_t count = MIN(PART_ELEMENTS, n - first);
    char *at = (char *)y->p + first * size;
    dtype_convert(to, TY_F64, at, y->d.dtype, count);
    dtype_convert(by, TY_F64, (const char *)x->p + first * size, x->d.dtype, count);
    change(to, by, count);
    dtype_convert(at, y->d.dtype, to, TY_F64, count);
  }
}

/* Runs a kernel of the CPU for another device, on copies of the operands in its staging memory. */
static int run_on_cpu(struct invoke *v)
{
  struct call c = v->call;
  const struct fused_op *end = take_end(v->kernel, &c);
  void *staging;
  TRY(device_ops(c.device)->staging(c.device, staging_bytes(v), &staging));
  TRY(copy_in(v, (char *)staging + v->host_scratch));
  c.in = v->fallback_in;
  c.out = v->fallback_out;
  c.tmp = v->host_scratch ? staging : NULL;
  c.device = TY_CPU;
  TRY(run_converted(v, c));
  if (end && c.out[0].p)
    end_on_host(
        &v->fallback_out[0], &v->fallback_in[end->operand], find_change(&v->call, end));
  if (v->changes) TRY(copy_out(v, v->fallback_in, v->call.in, c.nin));
  return copy_out(v, v->fallback_out, v->call.out, c.nout);
}

struct running_call { const struct invoke *v; const struct call *c; };

/* Returns whether a call may be stopped: it changes nothing in place, so only its results are
** incomplete, and these are marked as broken. */
static bool call_may_stop(const void *context)
{
  const struct running_call *r = context;
  const struct call *c = r->c;
  bool changes = false;
  if (c->add || changes_inputs(r->v, &changes) || changes) return false;
  for (int i = 0; i < c->nout; i++)
    for (int k = 0; k < c->nin; k++)
      if (c->out[i].p && c->out[i].p == c->in[k].p) return false;
  return true;
}

int invoke_run_as(struct invoke *v, struct call *c)
{
  struct running_call r = { v, c };
  struct stop stop = { call_may_stop, &r, 0 }, *before = stop_set(&stop);
  int code = c != &v->call  ? v->kernel->run(c)
      : v->cpu_fallback ? run_on_cpu(v)
                        : run_converted(v, *c);
  stop_set(before);
  return stop.stopped ? fail(TY_EINTERRUPTED, "interrupted") : code;
}

int invoke_run(struct invoke *v)
{
  if (v->brief && !v->cpu_fallback) return run_converted(v, v->call);
  return invoke_run_as(v, &v->call);
}

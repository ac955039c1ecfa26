/* tycho.h - the whole public interface of the native engine.
**
** Read by C11, by C++ (inside extern "C") and, less its two #include lines, by LuaJIT's ffi.cdef:
** declarations only. A function that can fail returns TY_OK or a positive TY_E* code, leaves one
** line of text for ty_error() and the parts of the failure for ty_error_detail(), both per thread.
** Negative codes are events (TY_EV_*). "new" hands out a handle that "free" takes back, "keep"
** adds a reference; every other pointer is borrowed for the call; a getter's pointer is borrowed
** until the next call on the same object. Sizes are bytes, dims are elements; a dim of 0 is
** unknown, ndim 0 is a wholly unknown shape. Nodes, outputs, axes and devices count from 0.
*/
#pragma once
#include <stddef.h>
#include <stdint.h>
#pragma GCC visibility push(default)

enum { TY_OK = 0, TY_EVALUE, TY_ETYPE, TY_ENAME, TY_ESHAPE, TY_EDTYPE, TY_EINDEX, TY_ESTATE,
       TY_EDEVICE, TY_EMEMORY, TY_EIO, TY_EFORMAT, TY_EINTERRUPTED, TY_EUNSUPPORTED, TY_ERUN,
       TY_EINTERNAL, TY_EV_MONITOR = -1, TY_EV_HOST = -2 };
enum { TY_F32 = 0, TY_F64 = 1, TY_F16 = 2, TY_U8 = 3, TY_I32 = 4, TY_I8 = 5, TY_I64 = 6,
       TY_BOOL = 7, TY_BF16 = 12, TY_NODTYPE = -1 };
enum { TY_CPU = 0, TY_GPU = 256, TY_PINNED = 512, TY_MAXDIM = 16 };   /* device = kind + id */
enum { TY_NULL = 0, TY_WRITE = 1, TY_ADD = 3 };
enum { TY_ABI = 2 };
enum { TY_ARG, TY_AUX, TY_OUT };
enum { TY_MON_OFF, TY_MON_OUT, TY_MON_ALL };
enum { TY_DRY_RUN = 1, TY_MIRROR = 2, TY_NOFUSE = 4, TY_CHECK = 8, TY_NOSHARE = 16, TY_KEEP = 32,
       TY_HIGHEST = 64, TY_HIGH = 128, TY_MEDIUM = 256, TY_AS_WRITTEN = 512 };

typedef struct ty_tensor ty_tensor;
typedef struct ty_graph ty_graph;
typedef struct ty_pool ty_pool;
typedef struct ty_exec ty_exec;
typedef struct ty_bag ty_bag;         /* name -> tensor */
typedef struct ty_iter ty_iter;       /* data pipeline */
typedef struct ty_record ty_record;   /* RecordIO file */
typedef struct ty_source ty_source;   /* where samples come from, and what is done to them */
typedef struct ty_loader ty_loader;   /* threads that make batches of them */
typedef struct ty_file ty_file;       /* a file that arrays are read from when they are needed */

typedef struct { int32_t dtype, device, ndim, pad_; int64_t dim[TY_MAXDIM]; } ty_desc;
typedef struct { int32_t node, out; } ty_entry;
typedef struct { const char *key, *value; } ty_attr;
typedef struct { const char *name, *type, *init, *doc; } ty_param;
typedef struct {
  const char *name, *doc, *in, *out;
  int32_t nparam;
  int16_t added;                      /* at run time */
  int16_t loss;                       /* has a gradient that reads no head gradient */
} ty_opinfo;
typedef struct { const char *name; ty_tensor *value, *grad; int32_t req, pad_; } ty_bind;
typedef struct { const char *group; int32_t device, pad_; } ty_place;
typedef struct {
  const char *name;
  ty_desc desc;
  int32_t req, device, grad_device, shared;
} ty_want;
typedef struct {
  const ty_entry *head;
  const ty_bind *arg, *aux;
  const ty_place *place;
  int32_t nhead, narg, naux, nplace, device, flags;
  int64_t budget;
  ty_exec *shared;
  ty_pool *pool;
} ty_bind_spec;
typedef struct {
  const ty_entry *head;
  const ty_want *want;
  const ty_place *place;
  int32_t nhead, nwant, nplace, device, req, flags;
  int64_t budget;
  ty_bag *buffer;
  ty_exec *shared;
  ty_pool *pool;
} ty_simple_spec;
typedef struct {
  const ty_want *want;
  const ty_place *place;
  int32_t nwant, nplace, device, partial_shaping, allow_up_sizing, pad_;
} ty_reshape_spec;
typedef struct {
  const char *node, *op, *name;
  ty_tensor *tensor;
  int32_t kind, is_input, nin, nout;
} ty_event;
typedef struct {
  const char *op, *node, *argument, *where, *expected, *got, *message;
  int32_t code, pad_;
} ty_failure;
typedef struct {
  const char *name, *node;
  int64_t bytes, offset;
  int32_t first, last, device, alias;
} ty_value;
typedef struct { int64_t planned, bound, unshared, args, grads, aux, outputs, pool; } ty_memory;
typedef struct { const char *op, *node; int64_t bytes, ns; } ty_sample;

int         ty_abi(void);                                  /* equals TY_ABI */
const char *ty_version(void);
const char *ty_error(void);
int         ty_error_detail(ty_failure *out);              /* parts of the same failure */
const char *ty_platform(void);                             /* text of `tycho --platform` */
int         ty_devices(int kind);                          /* how many */
/* -1: all; late failures come out here */
int         ty_wait(int device);
int         ty_seed(int device, uint64_t seed);            /* -1: all, mixed with the device id */
int         ty_threads(int n);                             /* 0 asks */
/* of this thread's calls: 0 highest, 1 high, 2 medium; other numbers ask. Gives the one before */
int         ty_precision(int which);
/* 1 asks every running call to stop; 0 clears */
int         ty_interrupt(int set);
/* our SIGINT handler while on; then the old one again */
int         ty_interrupt_watch(int on);
int64_t     ty_live(const char *kind);                     /* "tensor", "exec", ...: live objects */
/* where that count is kept, NULL: there is no such kind */
const int64_t *ty_live_at(const char *kind);
void        ty_leave(void);                                /* nothing is freed any more */

int         ty_op_count(void);
int         ty_op_info(int i, ty_opinfo *out);
/* 1: monitors call an input "NODE_weight", 0: "NODE_input1" */
int         ty_op_names_inputs(int i, int *out);
int         ty_op_param(int i, int k, ty_param *out);
int         ty_op_find(const char *name, int *i);          /* aliases too */
int         ty_op_pointwise(const char *name, const char *args, const char *params,
    const char *formula, const char *const *grad,
    const char *doc);
int         ty_call(const char *op, const ty_attr *attr, int nattr, ty_tensor *const *in, int nin,
    ty_tensor **out, int nout);

int         ty_tensor_new(const ty_desc *d, ty_tensor **out);
/* new; zeros: 1 where the elements are 0 */
int         ty_tensor_blank(const ty_desc *d, ty_tensor **out, int *zeros);
int         ty_tensor_wrap(const ty_desc *d, void *data, ty_tensor **out);
int         ty_tensor_view(ty_tensor *t, const ty_desc *d, int64_t offset, ty_tensor **out);
int         ty_tensor_keep(ty_tensor *t);
void        ty_tensor_free(ty_tensor *t);
int         ty_tensor_desc(const ty_tensor *t, ty_desc *out);
int         ty_tensor_data(ty_tensor *t, void **out);      /* waits; CPU only */
/* the same for reading: it counts as no write */
int         ty_tensor_const_data(ty_tensor *t, const void **out);
int         ty_tensor_write(ty_tensor *t, const void *src, size_t bytes);
int         ty_tensor_read(ty_tensor *t, void *dst, size_t bytes);
int         ty_tensor_copy(ty_tensor *dst, ty_tensor *src);
int         ty_tensor_wait(ty_tensor *t, int for_write);
int         ty_tensor_same(const ty_tensor *a, const ty_tensor *b);

int         ty_bag_new(ty_bag **out);
void        ty_bag_free(ty_bag *b);
int         ty_bag_put(ty_bag *b, const char *name, ty_tensor *t);
int         ty_bag_get(ty_bag *b, const char *name, ty_tensor **out);
int         ty_bag_at(ty_bag *b, int i, const char **name, ty_tensor **out);
enum {
  /* the file has the names of the arrays */
  TY_PARAMS_NAMED = 1,
  /* the file has a checksum, in a word that is 0 otherwise, so that a reader detects damage */
  TY_PARAMS_CHECKED = 2
};
int         ty_params_save(const char *path, const ty_bag *b, int flags);
int         ty_params_load(const char *path, ty_bag **out, int *named);
int         ty_params_parse(const void *data, size_t bytes, ty_bag **out, int *named);

int         ty_graph_new(ty_graph **out);
int         ty_graph_keep(ty_graph *g);
void        ty_graph_free(ty_graph *g);
/* "file.lua:12" for the nodes that follow */
int         ty_graph_origin(ty_graph *g, const char *where);
int         ty_graph_var(ty_graph *g, const char *name, const ty_attr *attr, int nattr,
    ty_entry *out);
/* a body for the next ty_graph_op (control flow) */
int         ty_graph_subgraph(ty_graph *g, ty_graph *body);
int         ty_graph_op(ty_graph *g, const char *op, const char *name, const ty_attr *attr,
    int nattr, const ty_entry *in, int nin, ty_entry *out);
/* one per output of every node */
int         ty_graph_infer(ty_graph *g, const ty_want *given, int n, int partial, ty_desc *out);
/* JSON */
int         ty_graph_text(ty_graph *g, const ty_entry *head, int nhead, const char **out);
int         ty_graph_parse(const char *text, ty_graph **out);
int         ty_graph_load(const char *path, ty_graph **out);
/* of the engine that wrote what was read, as 10901 for 1.9.1; 0: the graph was not read */
int         ty_graph_version(ty_graph *g, int *out);
int         ty_graph_heads(ty_graph *g, const ty_entry **head, int *nhead);

int         ty_pool_new(ty_pool **out);
void        ty_pool_free(ty_pool *p);
int         ty_pool_bytes(ty_pool *p, int device, int64_t *out);
int         ty_pool_trim(ty_pool *p);

int         ty_exec_bind(ty_graph *g, const ty_bind_spec *spec, ty_exec **out);
int         ty_exec_simple_bind(ty_graph *g, const ty_simple_spec *spec, ty_exec **out);
int         ty_exec_reshape(ty_exec *e, const ty_reshape_spec *spec, ty_exec **out);
int         ty_exec_keep(ty_exec *e);
void        ty_exec_free(ty_exec *e);
int         ty_exec_forward(ty_exec *e, int is_train);
int         ty_exec_partial_forward(ty_exec *e, int is_train, int step, int *step_left);
int         ty_exec_backward(ty_exec *e, ty_tensor *const *head, int n, int is_train);
/* bucket[i]: with which others the gradient of argument i goes to other ranks, from 0, -1: none.
** Backward is cut where a bucket is complete, which may then be sent while the rest is made, and on
** a CPU forward where it first reads one's arguments, for which the layers before need not wait. */
int         ty_exec_buckets(ty_exec *e, const int *bucket);
int         ty_exec_resume(ty_exec *e);                    /* after TY_EV_*: goes on */
/* Instead of resume: the step of the event has failed, for this reason. What the run would have
** written from there on fails when it is read. */
int         ty_exec_abandon(ty_exec *e, const char *why);
int         ty_exec_event(ty_exec *e, ty_event *out);
/* inputs, outputs of a Lua-defined operator */
int         ty_exec_event_tensor(ty_exec *e, int part, int i, ty_tensor **out);
/* *out: an executor on the same arrays and outputs, of the graph as the user wrote it, for
** monitors; NULL: no node of e replaces others */
int         ty_exec_as_written(ty_exec *e, ty_exec **out);
int         ty_exec_monitor(ty_exec *e, int mode);
int         ty_exec_outputs(ty_exec *e, int *n);
int         ty_exec_output(ty_exec *e, int i, ty_tensor **out);
int         ty_exec_arg(ty_exec *e, const char *name, ty_tensor **out);
int         ty_exec_grad(ty_exec *e, const char *name, ty_tensor **out);
int         ty_exec_aux(ty_exec *e, const char *name, ty_tensor **out);
int         ty_exec_names(ty_exec *e, int what, const char *const **names, int *n);
int         ty_exec_print(ty_exec *e, const char **text);      /* debug_str */
int         ty_exec_program(ty_exec *e, const char **text);    /* the instruction list */
int         ty_exec_optimized(ty_exec *e, ty_graph **out);
int         ty_exec_memory(ty_exec *e, ty_memory *out);
/* placement; TY_EINDEX past the last */
int         ty_exec_value(ty_exec *e, int i, ty_value *out);
int         ty_exec_verify(ty_exec *e);
int         ty_exec_profile(ty_exec *e, ty_sample *out, int *n);

int         ty_iter_new(const char *kind, const ty_attr *attr, int nattr, ty_iter **out);
void        ty_iter_free(ty_iter *it);
int         ty_iter_reset(ty_iter *it);
/* more: 1 batch ready, 0 end, -1 not yet */
int         ty_iter_next(ty_iter *it, int wait_ms, int *more);
int         ty_iter_data(ty_iter *it, int i, ty_tensor **out);
int         ty_iter_pad(ty_iter *it, int *pad);
/* A file of arrays. What is not there when it is read, since the file has become shorter, is an
** error. Tensors keep the file open. */
/* PLAIN: as in memory. Others are converted: integers to int32 (int16, uint16) or int64 (a uint64
** that it cannot hold is an error of the read), floats and the blocks of GGUF to float32. */
enum { TY_FILE_PLAIN, TY_FILE_I16, TY_FILE_U16, TY_FILE_I32, TY_FILE_U32, TY_FILE_U64,
       TY_FILE_E4M3, TY_FILE_E5M2, TY_FILE_Q4_0, TY_FILE_Q4_1, TY_FILE_Q5_0, TY_FILE_Q5_1,
       TY_FILE_Q8_0, TY_FILE_Q4_K, TY_FILE_Q5_K, TY_FILE_Q6_K,
       TY_FILE_SWAPPED = 64 };                             /* added: big-endian */
int         ty_file_open(const char *path, ty_file **out);
/* a file of a folder, or of a folder in it; names and links that lead out of it are refused */
int         ty_file_open_in(const char *folder, const char *name, ty_file **out);
/* A file in memory: a copy of these bytes. */
int         ty_file_copy(const void *data, size_t bytes, ty_file **out);
void        ty_file_free(ty_file *f);
int         ty_file_size(ty_file *f, int64_t *bytes);
/* bytes at .. at + n - 1, at once */
int         ty_file_read(ty_file *f, int64_t at, void *to, size_t n);
/* A tensor of the host whose elements begin at byte `at` of the file. They are read when they are
** first needed, and until then take no memory. encoding: how the file has them, which decides the
** dtype unless it is PLAIN; stride: elements between neighbours along each axis, NULL: dense. */
int         ty_file_tensor(ty_file *f, int64_t at, const ty_desc *d, const int64_t *stride,
                           int encoding, ty_tensor **out);
/* Types of fields of Protocol Buffers' wire format, with the numbers that the format gives them. */
enum {
  TY_FIELD_VARINT = 0,
  /* eight bytes */
  TY_FIELD_64 = 1,
  /* a length and as many bytes: text, a message or packed numbers */
  TY_FIELD_BYTES = 2,
  /* four bytes */
  TY_FIELD_32 = 5
};
/* A file that is read a field at a time. */
typedef struct ty_wire ty_wire;
/* A field of a message. */
typedef struct {
  /* the number of the field in its message */
  int32_t number;
  /* TY_FIELD_* */
  int32_t type;
  /* where its bytes begin in the file; of TY_FIELD_BYTES those after the length */
  int64_t at;
  /* number of its bytes */
  int64_t bytes;
  /* its bits; of TY_FIELD_BYTES the length */
  uint64_t value;
} ty_field;
int         ty_wire_open(ty_file *f, ty_wire **out);
void        ty_wire_free(ty_wire *w);
/* the next field of the message that is open, at first the file; more: 0 at its end */
int         ty_wire_next(ty_wire *w, ty_field *out, int *more);
/* opens the message that the last field holds; at most 64 in each other */
int         ty_wire_enter(ty_wire *w);
/* closes it: the field after it is next */
int         ty_wire_leave(ty_wire *w);
/* the last field's bytes, at most 64 KiB, until the next call on the same reader */
int         ty_wire_bytes(ty_wire *w, const char **out);
/* the varints that the last field holds; n: how many there are */
int         ty_wire_numbers(ty_wire *w, int64_t *to, int64_t capacity, int64_t *n);
/* Up to `most` bytes from byte `skip` on of a file, plain or compressed by gzip, as uint8; NULL:
** there are none. */
int         ty_gz_read(const char *path, int64_t skip, int64_t most, ty_tensor **out);
/* Lists a folder, in any order, as the bytes of texts that end in 0: "d" for a folder, else "f",
** and the name. *out is NULL if the folder is empty. */
int         ty_folder_list(const char *path, ty_tensor **out);
int         ty_record_open(const char *path, const char *mode, ty_record **out);
/* an error if what was written could not all be stored */
int         ty_record_close(ty_record *r);
/* bytes 0 and data NULL at the end */
int         ty_record_read(ty_record *r, const char **data, size_t *bytes);
int         ty_record_write(ty_record *r, const void *data, size_t bytes);
int         ty_record_seek(ty_record *r, int64_t offset);
int         ty_record_tell(ty_record *r, int64_t *offset);

/* -- samples of data sets ---------------------------------------------------------------------- */
/* A change of an image (height, width, channels). p: in how many of 1 it happens. interp: 0 to 4 as
** in _image_resize, 9 and 10 as in ty.image. Sizes are pixels. */
enum {
  TY_STEP_RESIZE,                     /* width, height, keep_ratio (of equal numbers), interp */
  TY_STEP_CROP,                       /* column, row, width, height */
  TY_STEP_CENTER_CROP,                /* width, height, interp */
  TY_STEP_RANDOM_CROP,                /* the same */
  TY_STEP_SIZE_CROP,                  /* width, height, area from, to, ratio from, to, interp */
  TY_STEP_BORDER,                     /* above, below, left, right, value */
  TY_STEP_FLIP_COLUMNS,               /* p */
  TY_STEP_FLIP_ROWS,                  /* p */
  TY_STEP_BRIGHTNESS,                 /* least and largest factor, as the next three */
  TY_STEP_CONTRAST,
  TY_STEP_SATURATION,
  TY_STEP_HUE,
  TY_STEP_JITTER,                     /* brightness, contrast, saturation, hue */
  TY_STEP_LIGHTING,                   /* deviation */
  TY_STEP_GREY,                       /* p */
  TY_STEP_TO_TENSOR,
  TY_STEP_NORMALIZE,                  /* means (3), deviations (3), how many of each are given */
  TY_STEP_CAST,                       /* dtype */
  TY_STEP_ROTATE,                     /* degrees, zoom_in, zoom_out; float32, channels first */
  TY_STEP_RANDOM_ROTATE,              /* degrees from, to, zoom_in, zoom_out, p; the same */
  TY_STEP_MAYBE,                      /* p: of all of the next `count` steps, or none */
  TY_STEPS
};
typedef struct { int32_t kind, count; double value[8]; } ty_image_step;
/* A batch: n samples by number, at places `position` ... of the epoch. What is random follows from
** (seed, epoch, place). given: arrays of the fields that a source is given, sample by sample; they
** are kept. stack: a field becomes one array, else one for each sample. */
typedef struct {
  ty_source *source;
  const int64_t *sample;
  ty_tensor *const *given;
  int64_t n, position;
  uint64_t seed, epoch;
  int32_t stack, pad_;
} ty_batch_spec;

int         ty_source_new(ty_source **out);
void        ty_source_free(ty_source *r);
/* Fields, in order. rows: of an array of the host; those of one dimension are numbers. */
int         ty_source_rows(ty_source *r, ty_tensor *rows);
int         ty_source_files(ty_source *r, const char *const *path, int64_t n, int flag);
/* two fields: an image and its label or labels. offset: n places of records */
int         ty_source_records(ty_source *r, const char *path, const int64_t *offset, int64_t n,
                              int flag);
int         ty_source_given(ty_source *r);
/* what is done to a field that has three dimensions, instead of what was said before */
int         ty_source_steps(ty_source *r, int field, const ty_image_step *step, int n);
/* TY_EVALUE: a step with values that it cannot have */
int         ty_steps_check(const ty_image_step *step, int n);
/* the steps on one image, drawing from the stream of (seed, epoch, sample) */
int         ty_steps_run(const ty_image_step *step, int n, ty_tensor *image, uint64_t seed,
                         uint64_t epoch, uint64_t sample, ty_tensor **out);
/* the seed of the stream of a sample for what the front end draws */
uint64_t    ty_sample_seed(uint64_t seed, uint64_t epoch, uint64_t sample);

/* workers 0: a batch is made where it is waited for. Threads start with the first batch, end when
** there is nothing to do, and belong to the loader. One thread uses a loader. */
int         ty_loader_new(int workers, ty_loader **out);
void        ty_loader_free(ty_loader *l);
int         ty_loader_submit(ty_loader *l, const ty_batch_spec *spec, int64_t *batch);
/* ready: 0 when the time is over; the failure of the batch: that of its first bad sample, whose
** number is the failure's argument */
int         ty_loader_wait(ty_loader *l, int64_t batch, int wait_ms, int *ready);
/* A field of a batch that is ready, or of one of its samples (row; -1: the stacked one). out: NULL
** if it is a number, which is in `number`. */
int         ty_loader_field(ty_loader *l, int64_t batch, int field, int64_t row, ty_tensor **out,
                            double *number);
int         ty_loader_drop(ty_loader *l, int64_t batch);
/* threads that run now, of all loaders */
int         ty_loader_threads(void);

/* -- recording --------------------------------------------------------------------------------- */
/* Of this thread. While recording is on, calls on variables and on what came of them get a history;
** while training is, Dropout and its like are on. set: 0 off, 1 on, 2 off for a while (errors tell
** the difference), -1 asks. Both return what is the case afterwards. */
int         ty_recording(int set);
int         ty_training(int set);
/* the line of the script that the next calls belong to; NULL: none */
int         ty_line(const char *line);
/* Whether a run of the operator may fail for what is in its arrays: then its line must be noted. */
int         ty_op_may_fail(const char *op);
/* Two numbers of this thread, as long as it lives: whether a line must be noted for the next
** recorded call (0: it repeats one whose line is known), and whether the last call has none. Then
** ty_line_late gives it. */
const int32_t *ty_line_request(void);
void        ty_line_late(const char *line);
/* Recorded calls wait for others until their values are needed (TYCHO_LAZY). What was done so
** far: programs that are kept, runs of kept ones and of new ones, calls in all runs, calls that
** wait, whether they do. clear: the counts begin anew. */
typedef struct {
  int64_t programs, hits, misses, flushes, ops, pending, enabled;
} ty_lazy_stats;
int         ty_lazy(ty_lazy_stats *out, int clear);
/* Whether calls that follow may wait; returns whether they did. */
int         ty_lazy_enable(int on);
/* Submits the calls that wait. */
int         ty_lazy_run(void);
/* Frees the programs that are kept. */
void        ty_lazy_trim(void);
/* Bytes that this thread's calls that wait will make. */
int64_t     ty_lazy_bytes(void);
/* whether a recorded call may need what is in t */
int         ty_watched(const ty_tensor *t);
/* notes the line of a write, for the error of a backward that needs the old value; NULL: none */
int         ty_note_write(ty_tensor *t, const char *line);
/* ty_tensor_view and ty_tensor_copy, recorded */
int         ty_view(ty_tensor *x, const ty_desc *d, int64_t offset, ty_tensor **out);
int         ty_copy(ty_tensor *to, ty_tensor *from);
/* Makes a value that calls may read before ty_late_give says what it is: a copy of an array of its
** shape and type, on any device. While recording is on. What needs it before fails. It is one of
** `of` values that belong together by the number `group`, above 0. */
int         ty_late(const ty_desc *d, uint64_t group, int of, ty_tensor **out);
int         ty_late_give(ty_tensor *late, ty_tensor *value);
/* Drops the calls of this thread that wait for late values: reads of what they make fail. */
void        ty_late_drop(void);
/* *group: one whose late values heads were made of in part only; 0: there is none */
int         ty_late_missing(ty_tensor *const *head, int nhead, uint64_t *group);
/* Makes x a variable, cut from what made it, whose gradient goes to grad (of its shape, type and
** device). req: TY_NULL (grad NULL), TY_WRITE or TY_ADD. */
int         ty_variable(ty_tensor *x, ty_tensor *grad, int req);
/* Cuts x from what made it; a variable becomes a plain array. */
int         ty_detach(ty_tensor *x);
enum { TY_PLAIN, TY_VARIABLE, TY_RECORDED, TY_FREED };
/* *kind: what x is; *fresh: of a variable, backward has written its gradient since that was asked
** with clear */
int         ty_history(ty_tensor *x, int clear, int *kind, int *fresh);
enum { TY_RETAIN = 1, TY_TRAIN = 2, TY_UNREACHED = 4 };
/* Gradients of heads. head_grad[i]: NULL for ones. Without variables (nvariable 0) they go to the
** arrays of all variables that the heads reach, by their requests; else to grad[i], where
** variable[i] is a variable or what a function gave. flags: TY_RETAIN: the graph stays for another
** backward; TY_TRAIN: as in the recording; TY_UNREACHED: grad[i] stays as it is where the heads do
** not reach variable[i], which is an error otherwise. Gradients end at functions (ty_function). */
int         ty_backward(ty_tensor *const *head, ty_tensor *const *head_grad, int nhead,
                        ty_tensor *const *variable, ty_tensor *const *grad, int nvariable,
                        int flags);

/* Nodes of what was recorded; each call that gives one gives a reference. */
typedef struct history ty_step;
typedef struct {
  const char *op;                                            /* NULL: a function */
  const char *where;                                         /* line of the script, or NULL */
  const ty_attr *attr;
  uint64_t serial;                                           /* above those of its inputs' steps */
  int32_t nattr, nin, nout, train;
} ty_step_info;
/* the step that made t and which output of it t is; *out NULL: none */
int         ty_step_of(ty_tensor *t, ty_step **out, int *which);
/* The step with the largest serial number below `below` that the heads depend on, *out NULL: none.
** functions: of those alone, and nothing beyond them is looked at. */
int         ty_step_before(ty_tensor *const *head, int nhead, uint64_t below, int functions,
                           ty_step **out);
int         ty_step_info_of(const ty_step *s, ty_step_info *out);
/* what it read or gave, with the history that it has */
int         ty_step_input(ty_step *s, int i, ty_tensor **out);
int         ty_step_output(ty_step *s, int i, ty_tensor **out);
void        ty_step_free(ty_step *s);
/* Makes out[i] the results of a function of the front end on in[i], if one of these is a variable
** or recorded; *serial: that of its step, 0: there is none. */
int         ty_function(ty_tensor *const *in, int nin, ty_tensor *const *out, int nout,
                        uint64_t *serial);
/* The serial number of a function whose step is gone, each once; 0: there is none. */
uint64_t    ty_function_gone(void);

/* -- beyond the first edition ------------------------------------------------------------------ */
/* op NULL: a variable */
typedef struct {
  const char *op, *name, *where;
  const ty_attr *attr;
  const ty_entry *in;
  int32_t nattr, nin, nout, nvisible;
} ty_node;
typedef struct { int64_t allocations, instructions, segments, runs, ns; } ty_stats;

enum { TY_PROFILE_SYMBOLIC = 1, TY_PROFILE_IMPERATIVE = 2, TY_PROFILE_API = 4,
       TY_PROFILE_MEMORY = 8, TY_PROFILE_ALL = 15 };
enum { TY_PROFILE_SPAN, TY_PROFILE_TASK, TY_PROFILE_COUNTER, TY_PROFILE_MARK };
/* ns; counters: values. kind: TY_PROFILE_SPAN .. */
typedef struct {
  const char *category, *name, *node, *kernel;
  int64_t count, total, min, max;
  int32_t kind, pad_;
} ty_profile_sum;

/* names of the inputs ("x!" is mutated) and outputs ("[x]" is hidden) that these attributes give;
** checks the attributes. nin counts the inputs of a variadic operator, -1: as the attributes say */
int         ty_op_ports(const char *op, const ty_attr *attr, int nattr, int nin, const char **in,
    const char **out);
/* shapes and dtypes of an operator's visible outputs, of which `out` has room for nout, n: how many
** there are. A dim of 0 and TY_NODTYPE are unknown; `in` takes what follows for the inputs */
int         ty_op_infer(const char *op, const ty_attr *attr, int nattr, ty_desc *in, int nin,
    ty_desc *out, int nout, int *n);
/* other names of operator i, separated by spaces */
int         ty_op_alias(int i, const char **out);
/* in words: "none", "zero"; of a row its formulas, "a: g * b; b: g * a" */
int         ty_op_gradient(const char *op, const char **out);
int         ty_graph_size(ty_graph *g, int *nodes);
int         ty_graph_node(ty_graph *g, int i, ty_node *out);
/* subgraph k of node i, borrowed; NULL past the last */
int         ty_graph_body(ty_graph *g, int i, int k, ty_graph **out);
/* reads or sets a device's random state */
int         ty_rng(int device, int set, uint64_t *seed, uint64_t *counter);
/* a number of [0, 1) from that state, at once: it waits for nothing */
int         ty_rng_unit(int device, double *out);
int         ty_device_memory(int device, int64_t *total, int64_t *used, int64_t *pool);
/* what a GPU was given so far: kernels and calls of libraries; copies and fills. 0 of a CPU */
int         ty_device_work(int device, int64_t *launches, int64_t *copies);
/* waits for its last write; 1: what computed it failed, and nothing has written it since */
int         ty_tensor_failed(ty_tensor *t);
/* A state of a training: where a change in place fails, the old value counts again as soon as the
** failure has been reported. What executors are bound to is so already. */
int         ty_tensor_lasting(ty_tensor *t);
/* rows of output i that its last run filled (waits); -1: all of them, always */
int         ty_exec_rows(ty_exec *e, int i, int64_t *rows);
/* the same graph with other annotations: what reshape starts from */
int         ty_exec_regraph(ty_exec *e, ty_graph *g);
int         ty_exec_stats(ty_exec *e, ty_stats *out);
int         ty_exec_check(ty_exec *e, int on);             /* stop at the first NaN or Inf */
int         ty_exec_pool(ty_exec *e, ty_pool **out);       /* borrowed */
/* the operator's row as CUDA source */
int         ty_op_cuda(const char *op, const char **source);
/* "formula", "kernel", "host" (the CPU's, over copies), "nothing" */
int         ty_op_gpu(const char *op, int backward, const char **how);
/* a row added by ty_op_pointwise, as its definition; NULL otherwise */
int         ty_op_row(const char *op, const char **text);
/* a JPEG or PNG file -> (height, width, channels) uint8; flag 0: grey, 1: colour, -1: as stored */
int         ty_image_decode(const void *data, size_t bytes, int flag, int to_rgb, ty_tensor **out);
/* "jpeg" (quality 0..100) or "png" (compression 0..9) -> its bytes */
int         ty_image_encode(ty_tensor *image, const char *format, int quality, ty_tensor **out);
/* the parts one after the other; synced, then put in the old file's place */
int         ty_file_write(const char *path, const void *const *part, const size_t *bytes, int n);
/* a folder, with those above it that are missing; private: no other user may read it, and one that
** exists already is TY_EIO where it is another user's or open to others */
int         ty_folder_make(const char *path, int is_private);
/* raw deflated bytes that hold exactly `size` */
int         ty_inflate(const void *data, size_t bytes, void *out, size_t size);
/* of zip archives; begins with 0 */
uint32_t    ty_crc32(uint32_t before, const void *data, size_t bytes);
/* TY_PROFILE_* bits to record; 0 stops, -1 asks */
int         ty_profile(int what, int *before);
/* where; ns between writings while recording, 0: only at dump */
int         ty_profile_file(const char *path, int64_t period);
/* writes what is new; finished: stops recording as well */
int         ty_profile_dump(int finished);
/* the caller's own: a span or task from .. to; a counter's value or a mark's scope (0 global, 1
** process, 2 thread) in `from` */
int         ty_profile_add(int kind, const char *category, const char *name, int64_t from,
    int64_t to);
int64_t     ty_profile_now(void);                          /* ns */
/* per label; TY_EINDEX past the last. Texts live on */
int         ty_profile_sums(int i, ty_profile_sum *out);
int         ty_profile_reset(void);                        /* sums start afresh */
/* Groups of ranks that run one script. Sums and broadcasts are queued like other work on arrays, in
** one order on all ranks; the arrays of a call are of one dtype, on a CPU, or where ranks are
** devices on these: array i on device i % n of this process. */
typedef struct ty_comm ty_comm;
enum { TY_WIRE_FULL, TY_WIRE_F16, TY_WIRE_BF16, TY_WIRE_2BIT };      /* what float32 is sent as */
/* "mpi": this process's rank; "threads": `size` ranks of this process, out[0 .. size - 1] */
int         ty_comm_open(const char *kind, int size, ty_comm **out);
/* Ranks are GPUs, by NCCL: n of this process, after those of lower ranks of a group over MPI,
** whose ranks all call this; ranks NULL: no other processes. Sums are added in the library's order;
** there is no gathering. TY_EDEVICE says what is missing, as ty_comm_devices does, which writes the
** library's version. */
int         ty_comm_open_devices(const int *device, int n, ty_comm *ranks, ty_comm **out);
int         ty_comm_devices(char *text, size_t size);
void        ty_comm_free(ty_comm *c);
int         ty_comm_rank(const ty_comm *c);
int         ty_comm_size(const ty_comm *c);
/* from[i], added over the ranks, in to[i], which may be the same array; as one message, added in
** the order of ranks: equal bits on all; two bits mean +threshold, -threshold or 0. Of sums
** that wait for another one, that of the highest priority goes first, of several the first */
int         ty_comm_sum(ty_comm *c, ty_tensor *const *from, ty_tensor *const *to, int n, int wire,
                        double threshold, int priority);
int         ty_comm_broadcast(ty_comm *c, ty_tensor *const *x, int n, int root);
/* so many bytes of each rank, at most 1 MB; waits; 0 bytes: a barrier */
int         ty_comm_gather(ty_comm *c, const void *own, size_t bytes, void *all);
/* what a rank that is asked to end says of its last checkpoint */
int         ty_comm_note(const char *text);
int         ty_comm_abort(ty_comm *c, const char *text);           /* ends all ranks */
int         ty_comm_stats(const ty_comm *c, int64_t *messages, int64_t *bytes, int64_t *ns);
#pragma GCC visibility pop

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

/* Returns the TY_ABI of the library, which a program compares with that of its header. */
int         ty_abi(void);
const char *ty_version(void);
const char *ty_error(void);
/* Writes the parts of the failure that ty_error() describes; a part that is unknown is NULL. The
** texts are borrowed until this thread's next failure. */
int         ty_error_detail(ty_failure *out);
/* Returns the text of `tycho --platform`, borrowed until this thread's next call. */
const char *ty_platform(void);
/* Returns the number of devices of a kind: TY_CPU, TY_GPU or TY_PINNED. */
int         ty_devices(int kind);
/* Waits until the work of a device (-1: of all) is done. Returns the failure of a task that ran
** late, if nothing has reported it before. */
int         ty_wait(int device);
/* Sets the random state of a device; -1: of all, by the seed mixed with its number. */
int         ty_seed(int device, uint64_t seed);
/* Sets the number of threads that kernels use, if n > 0. Returns the number that is in use. */
int         ty_threads(int n);
/* Sets the precision of this thread's products of float32: 0 highest, 1 high, 2 medium; another
** number changes nothing. Returns the precision before the call. */
int         ty_precision(int which);
/* Asks every running call to stop with TY_EINTERRUPTED (set 1), or withdraws that (0). */
int         ty_interrupt(int set);
/* Installs a handler of SIGINT that calls ty_interrupt(1); `on` 0 restores the one before. Calls
** nest. */
int         ty_interrupt_watch(int on);
/* Returns the number of live objects of a kind ("tensor", "graph", "exec", "pool", "iter", "bag",
** "storage", "history", "recorded"), or of "bytes" of native memory; -1: there is no such kind. */
int64_t     ty_live(const char *kind);
/* Returns where that count is kept, for as long as the process runs; NULL: no such kind. */
const int64_t *ty_live_at(const char *kind);
/* Makes every later call of a "free" function do nothing. Call when the process is about to end. */
void        ty_leave(void);

int         ty_op_count(void);
int         ty_op_info(int i, ty_opinfo *out);
/* Writes 1 if monitors call an input of operator i "NODE_weight", 0 if "NODE_input1". */
int         ty_op_names_inputs(int i, int *out);
/* Writes 1 if runs of operator i may take random numbers, else 0. */
int         ty_op_draws(int i, int *out);
int         ty_op_param(int i, int k, ty_param *out);
/* Finds an operator by its name or an alias; TY_ENAME: there is none. */
int         ty_op_find(const char *name, int *i);
int         ty_op_pointwise(const char *name, const char *args, const char *params,
    const char *formula, const char *const *grad,
    const char *doc);
int         ty_call(const char *op, const ty_attr *attr, int nattr, ty_tensor *const *in, int nin,
    ty_tensor **out, int nout);

int         ty_tensor_new(const ty_desc *d, ty_tensor **out);
/* Makes a tensor like ty_tensor_new; *zeros: 1 if its elements are 0, 0 if they are undefined. */
int         ty_tensor_blank(const ty_desc *d, ty_tensor **out, int *zeros);
/* Makes a tensor of the caller's memory, which must outlive it and be aligned to an element. */
int         ty_tensor_wrap(const ty_desc *d, void *data, ty_tensor **out);
/* Makes a tensor on the bytes of t from `offset` on; it keeps them alive. TY_EINDEX if t has fewer,
** or if they are not aligned to an element. */
int         ty_tensor_view(ty_tensor *t, const ty_desc *d, int64_t offset, ty_tensor **out);
int         ty_tensor_keep(ty_tensor *t);
void        ty_tensor_free(ty_tensor *t);
/* Frees the n tensors t[which[i]], which may have left the processor's caches, faster than one by
** one. */
void        ty_tensors_free(ty_tensor *const *t, const int32_t *which, int n);
int         ty_tensor_desc(const ty_tensor *t, ty_desc *out);
/* Waits for the tensor's work and gives its memory, for reading and writing. The call counts as a
** write, so ask again before each one. TY_EDEVICE if the tensor is on a GPU. */
int         ty_tensor_data(ty_tensor *t, void **out);
/* Gives the memory for reading only; it counts as no write. Otherwise like ty_tensor_data. */
int         ty_tensor_const_data(ty_tensor *t, const void **out);
int         ty_tensor_write(ty_tensor *t, const void *src, size_t bytes);
int         ty_tensor_read(ty_tensor *t, void *dst, size_t bytes);
int         ty_tensor_copy(ty_tensor *dst, ty_tensor *src);
int         ty_tensor_wait(ty_tensor *t, int for_write);
/* Returns 1 if both are the same bytes in the same shape and dtype. */
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
/* Reads the arrays of a file into a new bag. *named: 1 if the file has their names, 0 if they are
** named by their position. */
int         ty_params_load(const char *path, ty_bag **out, int *named);
int         ty_params_parse(const void *data, size_t bytes, ty_bag **out, int *named);

int         ty_graph_new(ty_graph **out);
int         ty_graph_keep(ty_graph *g);
void        ty_graph_free(ty_graph *g);
/* Sets the line of the script ("file.lua:12") that errors name for nodes added from now on; NULL:
** none. The text is copied. */
int         ty_graph_origin(ty_graph *g, const char *where);
int         ty_graph_var(ty_graph *g, const char *name, const ty_attr *attr, int nattr,
    ty_entry *out);
/* Adds a body for the next ty_graph_op, an operator of control flow. Keeps a reference to it. */
int         ty_graph_subgraph(ty_graph *g, ty_graph *body);
int         ty_graph_op(ty_graph *g, const char *op, const char *name, const ty_attr *attr,
    int nattr, const ty_entry *in, int nin, ty_entry *out);
/* Infers shapes and dtypes from those of variables. Writes a descriptor for each output of each
** node, in their order, so `out` holds as many. What stays unknown is an error unless `partial`. */
int         ty_graph_infer(ty_graph *g, const ty_want *given, int n, int partial, ty_desc *out);
/* Writes the graph of these heads as JSON. The text is the graph's. */
int         ty_graph_text(ty_graph *g, const ty_entry *head, int nhead, const char **out);
int         ty_graph_parse(const char *text, ty_graph **out);
int         ty_graph_load(const char *path, ty_graph **out);
/* Writes the version of the engine that wrote the file of the graph, as 10901 for 1.9.1; 0: the
** graph was not read from one. */
int         ty_graph_version(ty_graph *g, int *out);
int         ty_graph_heads(ty_graph *g, const ty_entry **head, int *nhead);

int         ty_pool_new(ty_pool **out);
void        ty_pool_free(ty_pool *p);
/* Writes the bytes that a pool holds on a device, or with -1 on all. */
int         ty_pool_bytes(ty_pool *p, int device, int64_t *out);
/* Frees what a pool (NULL: every pool) holds without using it. */
int         ty_pool_trim(ty_pool *p);

int         ty_exec_bind(ty_graph *g, const ty_bind_spec *spec, ty_exec **out);
int         ty_exec_simple_bind(ty_graph *g, const ty_simple_spec *spec, ty_exec **out);
int         ty_exec_reshape(ty_exec *e, const ty_reshape_spec *spec, ty_exec **out);
int         ty_exec_keep(ty_exec *e);
void        ty_exec_free(ty_exec *e);
int         ty_exec_forward(ty_exec *e, int is_train);
int         ty_exec_partial_forward(ty_exec *e, int is_train, int step, int *step_left);
int         ty_exec_backward(ty_exec *e, ty_tensor *const *head, int n, int is_train);
/* Groups the gradients that go to other ranks: bucket[i] is the group of argument i, from 0, or -1
** for none. Backward is cut where a group is complete, so that it can be sent while the rest is
** computed. On a CPU forward is cut where it first reads arguments of a group, so that the layers
** before them need not wait. */
int         ty_exec_buckets(ty_exec *e, const int *bucket);
/* Continues a run that returned an event (TY_EV_*). TY_ESTATE if none did. */
int         ty_exec_resume(ty_exec *e);
/* Ends a run that returned an event, instead of resume: the event's step has failed, for this
** reason. What the run would have written from there on fails when it is read. */
int         ty_exec_abandon(ty_exec *e, const char *why);
int         ty_exec_event(ty_exec *e, ty_event *out);
/* Gives input (part TY_ARG) or output (TY_OUT) i of the event's node, borrowed until the next call
** on e. Inputs are read-only unless they are auxiliary states. */
int         ty_exec_event_tensor(ty_exec *e, int part, int i, ty_tensor **out);
/* Makes an executor on the same arrays and outputs, of the graph as the user wrote it, for
** monitors; *out is NULL if no node of e replaces others. */
int         ty_exec_as_written(ty_exec *e, ty_exec **out);
int         ty_exec_monitor(ty_exec *e, int mode);
int         ty_exec_outputs(ty_exec *e, int *n);
int         ty_exec_output(ty_exec *e, int i, ty_tensor **out);
int         ty_exec_arg(ty_exec *e, const char *name, ty_tensor **out);
int         ty_exec_grad(ty_exec *e, const char *name, ty_tensor **out);
int         ty_exec_aux(ty_exec *e, const char *name, ty_tensor **out);
int         ty_exec_names(ty_exec *e, int what, const char *const **names, int *n);
/* Writes the text of Executor:debug_str, borrowed until the next text of e. */
int         ty_exec_print(ty_exec *e, const char **text);
/* Writes the list of instructions, borrowed until the next text of e. */
int         ty_exec_program(ty_exec *e, const char **text);
/* Makes a graph of the forward part as it runs; the caller frees it. */
int         ty_exec_optimized(ty_exec *e, ty_graph **out);
int         ty_exec_memory(ty_exec *e, ty_memory *out);
/* Writes where the plan places value i of its pool; TY_EINDEX past the last. */
int         ty_exec_value(ty_exec *e, int i, ty_value *out);
/* Checks the memory plan: no instruction may overwrite what a later one reads. */
int         ty_exec_verify(ty_exec *e);
/* Waits for the device and turns timing on. Writes at most *n samples of the last run, one for each
** instruction, and the number of instructions to *n. */
int         ty_exec_profile(ty_exec *e, ty_sample *out, int *n);

int         ty_iter_new(const char *kind, const ty_attr *attr, int nattr, ty_iter **out);
void        ty_iter_free(ty_iter *it);
int         ty_iter_reset(ty_iter *it);
/* Waits at most wait_ms milliseconds for the next batch. *more: 1 there is one, 0 the epoch has
** ended, -1 it is not ready yet. */
int         ty_iter_next(ty_iter *it, int wait_ms, int *more);
int         ty_iter_data(ty_iter *it, int i, ty_tensor **out);
int         ty_iter_pad(ty_iter *it, int *pad);
/* Encodings of arrays in a file. PLAIN is as in memory. Others are converted: floats and the blocks
** of GGUF to float32, int16 and uint16 to int32, others to int64. A uint64 that an int64 cannot
** hold is an error of the read. */
enum { TY_FILE_PLAIN, TY_FILE_I16, TY_FILE_U16, TY_FILE_I32, TY_FILE_U32, TY_FILE_U64,
       TY_FILE_E4M3, TY_FILE_E5M2, TY_FILE_Q4_0, TY_FILE_Q4_1, TY_FILE_Q5_0, TY_FILE_Q5_1,
       TY_FILE_Q8_0, TY_FILE_Q4_K, TY_FILE_Q5_K, TY_FILE_Q6_K,
       TY_FILE_SWAPPED = 64 };                             /* added: big-endian */
/* Opens a file of arrays. A part that is missing when it is read, since the file has become
** shorter, is an error. Tensors keep the file open. */
int         ty_file_open(const char *path, ty_file **out);
/* Opens a file in a folder or in a folder of it. TY_EFORMAT if the name or a link leads out. */
int         ty_file_open_in(const char *folder, const char *name, ty_file **out);
/* Makes a file in memory of a copy of these bytes. */
int         ty_file_copy(const void *data, size_t bytes, ty_file **out);
void        ty_file_free(ty_file *f);
int         ty_file_size(ty_file *f, int64_t *bytes);
/* Reads bytes at .. at + n - 1, without waiting for other work. */
int         ty_file_read(ty_file *f, int64_t at, void *to, size_t n);
/* Makes a tensor of the host whose elements begin at byte `at` of the file. They are read when they
** are first needed, and until then take no memory. encoding: TY_FILE_*, which decides the dtype
** unless it is PLAIN. stride: elements between neighbours along each axis; NULL: dense. */
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
/* Reads the next field of the message that is open, at first the file. *more: 0 at its end. */
int         ty_wire_next(ty_wire *w, ty_field *out, int *more);
/* Opens the message that the last field holds. TY_EFORMAT if it is a number, or if 64 are open. */
int         ty_wire_enter(ty_wire *w);
/* Closes the message that is open; the field after it is the next one. */
int         ty_wire_leave(ty_wire *w);
/* Gives the last field's bytes, at most 64 KiB, borrowed until the next call on the same reader. */
int         ty_wire_bytes(ty_wire *w, const char **out);
/* Reads the varints that the last field holds, at most `capacity`. *n: how many it holds. */
int         ty_wire_numbers(ty_wire *w, int64_t *to, int64_t capacity, int64_t *n);
/* Reads up to `most` bytes from byte `skip` on of a file, plain or compressed by gzip, as uint8.
** *out is NULL if there are none. */
int         ty_gz_read(const char *path, int64_t skip, int64_t most, ty_tensor **out);
/* Lists a folder, in any order, as the bytes of texts that end in 0: "d" for a folder, else "f",
** and the name. *out is NULL if the folder is empty. */
int         ty_folder_list(const char *path, ty_tensor **out);
/* Opens a file of records; mode: "r" or "w". */
int         ty_record_open(const char *path, const char *mode, ty_record **out);
/* Closes and frees the file. TY_EIO if not all that was written could be stored. */
int         ty_record_close(ty_record *r);
/* Reads the next record, borrowed until the next call; *bytes 0 and *data NULL at the end. */
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
/* Adds a field: row i of an array of the host for sample i; of an array of one dimension, a number.
** Keeps a reference to the array. */
int         ty_source_rows(ty_source *r, ty_tensor *rows);
/* Adds a field: the image in path[i] for sample i; flag as in ty_image_decode. Copies the paths. */
int         ty_source_files(ty_source *r, const char *const *path, int64_t n, int flag);
/* Adds two fields, an image and its label or labels. offset: byte of each of n records in the file.
** TY_EUNSUPPORTED: a source has one file of records. */
int         ty_source_records(ty_source *r, const char *path, const int64_t *offset, int64_t n,
                              int flag);
/* Adds a field whose arrays come with each batch (ty_batch_spec, given). */
int         ty_source_given(ty_source *r);
/* Sets the steps that change a field of three dimensions; they replace those set before. */
int         ty_source_steps(ty_source *r, int field, const ty_image_step *step, int n);
/* Checks the values of steps; TY_EVALUE names the first that a step cannot have. */
int         ty_steps_check(const ty_image_step *step, int n);
/* Runs the steps on one image. Random numbers come from the stream of (seed, epoch, sample). */
int         ty_steps_run(const ty_image_step *step, int n, ty_tensor *image, uint64_t seed,
                         uint64_t epoch, uint64_t sample, ty_tensor **out);
/* Returns the seed of a sample's stream, for random numbers that the front end draws. */
uint64_t    ty_sample_seed(uint64_t seed, uint64_t epoch, uint64_t sample);

/* Makes a loader of up to `workers` threads; 0: ty_loader_wait makes the batch itself. The threads
** start with the first batch and end when there is nothing to do. One thread uses a loader. */
int         ty_loader_new(int workers, ty_loader **out);
void        ty_loader_free(ty_loader *l);
/* Queues a batch and writes its number. Copies what the spec points to, keeps source and arrays. */
int         ty_loader_submit(ty_loader *l, const ty_batch_spec *spec, int64_t *batch);
/* Waits at most wait_ms milliseconds for a batch. *ready: 0 if the time is over. Returns the
** failure of its first bad sample, whose number is the failure's argument. */
int         ty_loader_wait(ty_loader *l, int64_t batch, int wait_ms, int *ready);
/* Gives a field of a batch that is ready: of a sample (row), or the stacked one (-1). *out is a new
** reference, or NULL if the field is a number, which is written to *number. */
int         ty_loader_field(ty_loader *l, int64_t batch, int field, int64_t row, ty_tensor **out,
                            double *number);
/* Frees a batch, ready or not, as soon as no thread works on it. */
int         ty_loader_drop(ty_loader *l, int64_t batch);
/* Returns the number of threads of all loaders that run now. */
int         ty_loader_threads(void);

/* -- recording --------------------------------------------------------------------------------- */
/* Turns this thread's recording off (0), on (1) or off for a while (2; errors then say so); -1
** asks. While it is on, calls on variables and on their results get a history. Returns whether it
** is on. */
int         ty_recording(int set);
/* Turns this thread's training mode, in which Dropout and its like are active, off (0) or on (1);
** -1 asks. Returns whether it is on. */
int         ty_training(int set);
/* Sets the line of the script that this thread's next calls belong to; NULL: none. */
int         ty_line(const char *line);
/* Returns 1 if a run of the operator may fail because of values in its arrays, so that the line of
** the call must be set before it. */
int         ty_op_may_fail(const char *op);
/* Returns two numbers of this thread, valid as long as it lives: whether the next recorded call
** needs a line (0: it repeats one whose line is known), and whether the last call lacks one, which
** ty_line_late then sets. */
const int32_t *ty_line_request(void);
/* Sets the line of the last recorded call. */
void        ty_line_late(const char *line);
/* Counts of recorded calls, which wait for others until their values are needed (TYCHO_LAZY). */
typedef struct {
  /* programs that are kept */
  int64_t programs;
  /* runs of kept programs */
  int64_t hits;
  /* programs that had to be made */
  int64_t misses;
  /* times that waiting calls were submitted */
  int64_t flushes;
  /* calls in all of them */
  int64_t ops;
  /* calls of this thread that wait now */
  int64_t pending;
  /* 1 if calls may wait */
  int64_t enabled;
} ty_lazy_stats;
/* Writes the counts so far; `clear` then sets hits, misses, flushes and ops to 0. */
int         ty_lazy(ty_lazy_stats *out, int clear);
/* Lets later recorded calls wait, or not (0, which runs those that wait). Returns the setting
** before. */
int         ty_lazy_enable(int on);
/* Submits the calls that wait. */
int         ty_lazy_run(void);
/* Frees the programs that are kept. */
void        ty_lazy_trim(void);
/* Returns the bytes of the arrays that this thread's calls that wait are to make. */
int64_t     ty_lazy_bytes(void);
/* Returns 1 if a recorded call may still need the values in t. */
int         ty_watched(const ty_tensor *t);
/* Notes the line of a write to t, for the error of a backward that needs the old values; NULL:
** none. */
int         ty_note_write(ty_tensor *t, const char *line);
/* Makes a view like ty_tensor_view; while recording is on, with a history. */
int         ty_view(ty_tensor *x, const ty_desc *d, int64_t offset, ty_tensor **out);
/* Copies like ty_tensor_copy; while recording is on, `to` gets a history. */
int         ty_copy(ty_tensor *to, ty_tensor *from);
/* Makes a late value: recorded calls may read it before ty_late_give gives its contents, an array
** of its shape and type on any device. Recording must be on. A call that needs the contents before
** fails. group: a number above 0 that the late values that belong together share; size: how many
** there are. */
int         ty_late(const ty_desc *d, uint64_t group, int size, ty_tensor **out);
/* Gives a value of ty_late its contents, an array of its shape and dtype. TY_ESTATE if it was given
** before, or if the calls that wait for it were dropped. */
int         ty_late_give(ty_tensor *late, ty_tensor *value);
/* Drops the calls of this thread that wait for late values: reads of what they make fail. */
void        ty_late_drop(void);
/* Writes the number of a group of late values of which the heads depend on some but not on all; 0:
** there is none. */
int         ty_late_missing(ty_tensor *const *head, int nhead, uint64_t *group);
/* Makes x a variable, cut from what made it, whose gradient goes to grad (of its shape, type and
** device). req: TY_NULL (grad NULL), TY_WRITE or TY_ADD. */
int         ty_variable(ty_tensor *x, ty_tensor *grad, int req);
/* Cuts x from what made it; a variable becomes a plain array. */
int         ty_detach(ty_tensor *x);
enum { TY_PLAIN, TY_VARIABLE, TY_RECORDED, TY_FREED };
/* Writes what x is (TY_PLAIN ..), and to *fresh whether backward has written the gradient of a
** variable since the last call with `clear`. */
int         ty_history(ty_tensor *x, int clear, int *kind, int *fresh);
enum { TY_RETAIN = 1, TY_TRAIN = 2, TY_UNREACHED = 4 };
/* Computes gradients of heads. head_grad[i]: NULL for ones. Without variables (nvariable 0) they
** go to the arrays of all variables that the heads reach, by their requests; else to grad[i], where
** variable[i] is a variable or a result of a function (ty_function), where gradients end. flags:
** TY_RETAIN keeps the graph for another backward; TY_TRAIN: as in the recording; TY_UNREACHED
** leaves grad[i] as it is if the heads do not reach variable[i], which is an error otherwise. */
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
/* Finds the step that made t, and which output of it t is. *out is a reference; NULL: none. */
int         ty_step_of(ty_tensor *t, ty_step **out, int *which);
/* Finds the step with the largest serial number below `below` that the heads depend on; *out NULL:
** none. functions: considers functions only, and nothing that they depend on. */
int         ty_step_before(ty_tensor *const *head, int nhead, uint64_t below, int functions,
                           ty_step **out);
int         ty_step_info_of(const ty_step *s, ty_step_info *out);
/* Gives input i of a step, a new reference, with the history that it had. */
int         ty_step_input(ty_step *s, int i, ty_tensor **out);
/* Gives output i of a step, a new reference, with its history. */
int         ty_step_output(ty_step *s, int i, ty_tensor **out);
void        ty_step_free(ty_step *s);
/* Makes out[i] the results of a function of the front end on in[i], if one of these is a variable
** or recorded; *serial: that of its step, 0: there is none. */
int         ty_function(ty_tensor *const *in, int nin, ty_tensor *const *out, int nout,
                        uint64_t *serial);
/* Returns the serial number of a function whose step was freed, each once; 0: there is none. */
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

/* Checks attributes, and writes the names of the inputs ("x!" is mutated) and outputs ("[x]" is
** hidden) that they give, borrowed until this thread's next call. nin: number of inputs of a
** variadic operator; -1: as the attributes say. */
int         ty_op_ports(const char *op, const ty_attr *attr, int nattr, int nin, const char **in,
    const char **out);
/* Infers shapes and dtypes of an operator's visible outputs: writes at most nout of them, and their
** number to *n. A dim of 0 and TY_NODTYPE are unknown; those of `in` are completed, too. */
int         ty_op_infer(const char *op, const ty_attr *attr, int nattr, ty_desc *in, int nin,
    ty_desc *out, int nout, int *n);
/* Writes the other names of operator i, separated by spaces. */
int         ty_op_alias(int i, const char **out);
/* Describes an operator's gradient in words: "none", "zero"; of an operator by formulas these, as
** "a: g * b; b: g * a". Borrowed until this thread's next call. */
int         ty_op_gradient(const char *op, const char **out);
int         ty_graph_size(ty_graph *g, int *nodes);
int         ty_graph_node(ty_graph *g, int i, ty_node *out);
/* Gives subgraph k of node i, borrowed; NULL past the last. */
int         ty_graph_body(ty_graph *g, int i, int k, ty_graph **out);
/* Sets a device's random state, if `set`, then reads it. */
int         ty_rng(int device, int set, uint64_t *seed, uint64_t *counter);
/* Draws a number of [0, 1) from that state, without waiting for other work. */
int         ty_rng_unit(int device, double *out);
/* Writes bytes of a device: of all of its memory, of arrays, and of pools. */
int         ty_device_memory(int device, int64_t *total, int64_t *used, int64_t *pool);
/* Counts what a GPU was given so far: kernels and calls of libraries, and copies and fills; 0 for a
** CPU. */
int         ty_device_work(int device, int64_t *launches, int64_t *copies);
/* Waits for the last write of t. Returns 1 if it failed and nothing has written t since, else 0. */
int         ty_tensor_failed(ty_tensor *t);
/* Marks t as state of a training: if a change in place fails, its old value is valid again as soon
** as the failure has been reported. Arrays that executors are bound to are marked already. */
int         ty_tensor_lasting(ty_tensor *t);
/* Waits for output i and writes how many of its rows the last run filled; -1: its shape is
** static. */
int         ty_exec_rows(ty_exec *e, int i, int64_t *rows);
/* Replaces the graph that ty_exec_reshape starts from by the same one with other annotations. Keeps
** a reference to it. */
int         ty_exec_regraph(ty_exec *e, ty_graph *g);
int         ty_exec_stats(ty_exec *e, ty_stats *out);
/* Makes later runs fail at the first NaN or infinity (on 1), or not. */
int         ty_exec_check(ty_exec *e, int on);
/* Gives the pool of the executor's arrays, borrowed. */
int         ty_exec_pool(ty_exec *e, ty_pool **out);
/* Writes the CUDA source of an operator by formulas, borrowed until this thread's next call.
** TY_EUNSUPPORTED for others. */
int         ty_op_cuda(const char *op, const char **source);
/* Writes how GPUs compute an operator or its gradient (backward 1): "formula", "kernel", "host" (by
** the CPU's kernel, over copies) or "nothing". The text is constant. */
int         ty_op_gpu(const char *op, int backward, const char **how);
/* Gives the definition of an operator added by ty_op_pointwise; NULL for others. */
int         ty_op_row(const char *op, const char **text);
/* Decodes a JPEG or PNG file to (height, width, channels) uint8. flag: 0 grey, 1 colour, -1 as
** stored. Channels are blue, green, red unless to_rgb is 1. */
int         ty_image_decode(const void *data, size_t bytes, int flag, int to_rgb, ty_tensor **out);
/* Encodes an image as "jpeg" (quality 0..100) or "png" (compression 0..9); *out: its bytes. */
int         ty_image_encode(ty_tensor *image, const char *format, int quality, ty_tensor **out);
/* Writes the parts one after the other to a new file, which takes the old one's place when it is
** complete and synced. */
int         ty_file_write(const char *path, const void *const *part, const size_t *bytes, int n);
/* Makes a folder and those above it that are missing. is_private: no other user may read it; TY_EIO
** if it exists and is another user's or open to others. */
int         ty_folder_make(const char *path, int is_private);
/* Inflates raw deflated bytes into exactly `size` bytes; another size is an error. */
int         ty_inflate(const void *data, size_t bytes, void *out, size_t size);
/* Returns the CRC-32 of zip archives of bytes that follow those of `before`, at first 0. */
uint32_t    ty_crc32(uint32_t before, const void *data, size_t bytes);
/* Sets what is recorded, bits TY_PROFILE_*; 0 stops, -1 changes nothing. *before (unless NULL): the
** bits before. */
int         ty_profile(int what, int *before);
/* Sets the file of later events, and the time in ns between writings while recording; 0: only
** ty_profile_dump writes. */
int         ty_profile_file(const char *path, int64_t period);
/* Writes the events since the last writing to the file; `finished` stops recording as well. */
int         ty_profile_dump(int finished);
/* Records an event of the caller: a span or task between two times in ns; of a counter `from` is
** its value, of a mark its scope (0 global, 1 process, 2 thread). Does nothing while recording is
** off. */
int         ty_profile_add(int kind, const char *category, const char *name, int64_t from,
    int64_t to);
/* Returns the time of the profiler's clock in ns. */
int64_t     ty_profile_now(void);
/* Writes the sums of label i; TY_EINDEX past the last. Its texts stay valid while the process
** runs. */
int         ty_profile_sums(int i, ty_profile_sum *out);
/* Sets the sums of all labels to 0. */
int         ty_profile_reset(void);
/* Groups of ranks that run one script. Sums and broadcasts are queued like other work on arrays, in
** one order on all ranks; the arrays of a call are of one dtype, on a CPU, or where ranks are
** devices on these: array i on device i % n of this process. */
typedef struct ty_comm ty_comm;
enum { TY_WIRE_FULL, TY_WIRE_F16, TY_WIRE_BF16, TY_WIRE_2BIT };      /* what float32 is sent as */
/* Opens a group: "mpi" writes this process's rank to *out; "threads" makes `size` ranks of this
** process, out[0 .. size - 1]. */
int         ty_comm_open(const char *kind, int size, ty_comm **out);
/* Opens a group whose ranks are GPUs, by NCCL: n of this process, numbered after those of lower
** ranks of a group over MPI, whose ranks all call this; ranks NULL: there are no other processes.
** Sums are added in the library's order; ty_comm_gather fails. TY_EDEVICE says what is missing. */
int         ty_comm_open_devices(const int *device, int n, ty_comm *ranks, ty_comm **out);
/* Writes the version of the library that ty_comm_open_devices uses, or returns TY_EDEVICE. */
int         ty_comm_devices(char *text, size_t size);
void        ty_comm_free(ty_comm *c);
int         ty_comm_rank(const ty_comm *c);
int         ty_comm_size(const ty_comm *c);
/* Adds from[i] over the ranks into to[i], which may be the same array, as one message. Ranks are
** added in their order, so that all get equal bits. wire: TY_WIRE_*; with 2BIT each number is sent
** as +threshold, -threshold or 0. Of sums that wait, the one of the highest priority goes first, of
** equal ones the earliest. */
int         ty_comm_sum(ty_comm *c, ty_tensor *const *from, ty_tensor *const *to, int n, int wire,
                        double threshold, int priority);
int         ty_comm_broadcast(ty_comm *c, ty_tensor *const *x, int n, int root);
/* Gathers `bytes` bytes of each rank, at most 1 MiB, in the order of ranks, and waits for them.
** With 0 bytes it is a barrier. */
int         ty_comm_gather(ty_comm *c, const void *own, size_t bytes, void *all);
/* Sets the text about its last checkpoint that this rank prints if it is asked to end. Copied. */
int         ty_comm_note(const char *text);
/* Ends all ranks. `text` is logged as the reason; NULL: "ended by the script". */
int         ty_comm_abort(ty_comm *c, const char *text);
/* Writes the number of the group's messages so far, their bytes, and the time that they took in
** ns. */
int         ty_comm_stats(const ty_comm *c, int64_t *messages, int64_t *bytes, int64_t *ns);
#pragma GCC visibility pop

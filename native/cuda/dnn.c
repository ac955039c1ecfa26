/* dnn.c - see dnn.h. A convolution is a cuDNN graph: the operation, then bias and relu, without
** storing intermediate results. cuDNN ranks its engines for the graph. Of those that are
** deterministic and precise enough, the first one is used, or with TYCHO_TUNE=1 the fastest
** (trial.h). Plans are kept for the life of the process, like compiled kernels. */
#include <dlfcn.h>
#include <pthread.h>
#include "cuda/cudnn.h"
#include "cuda/dnn.h"
#include "cuda/trial.h"

enum { PARTS = 24, CHOICES = 64, NOTES = 16, BUCKETS = 256 };
enum { ID_X = 1, ID_W, ID_Y, ID_BIAS, ID_SUM, ID_BIASED };

struct dnn_plan {
  struct dnn_plan *next;
  struct dnn_convolution c;
  int device;
  /* descriptors that the plan refers to */
  dnn_thing part[PARTS];
  int n;
  dnn_thing plan;                                     /* NULL: there is none */
  int64_t workspace;
};

static struct dnn_functions dnn;
static dnn_handle handles[CUDA_DEVICES];
static struct dnn_plan *plans[BUCKETS];
/* guards the library, the handles and the plans */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int loaded;                                    /* 0: not tried, 1: yes, -1: failed */
static int version;                                   /* of cuDNN, 91900 */

/* -- the library ------------------------------------------------------------------------------- */

static bool load_cudnn(void)
{
  void *lib = cuda_library(CUDA_CUDNN, NULL);
  bool good = lib != NULL;
#define FIND(name, symbol, arguments) \
  if (good) *(void **)&dnn.name = dlsym(lib, symbol), good = dnn.name != NULL;
  DNN_FUNCTIONS(FIND)
#undef FIND
  if (good) version = cuda_library_version(CUDA_CUDNN, lib);
  return good;
}

/* Returns cuDNN's handle; NULL: there is no cuDNN. Call under the lock. */
static dnn_handle open_handle(int device)
{
  dnn_handle *h = &handles[device_id(device)];
  if (cuda_enter(device)) return NULL;
  if (!loaded) loaded = load_cudnn() ? 1 : -1;
  if (loaded > 0 && !*h && dnn.Create(h)) *h = NULL;
  return *h;
}

/* -- descriptors; after the first that fails the others do nothing ----------------------------- */

struct dnn_builder { struct dnn_plan *to; bool bad; };

static dnn_thing make_descriptor(struct dnn_builder *b, int kind)
{
  struct dnn_plan *p = b->to;
  dnn_thing t = NULL;
  b->bad = b->bad || p->n == PARTS || dnn.CreateThing(kind, &t);
  if (!b->bad) p->part[p->n++] = t;
  return t;
}

static void set_attribute(
    struct dnn_builder *b, dnn_thing t, int name, int type, int64_t n, const void *from)
{
  b->bad = b->bad || dnn.Set(t, name, type, n, from);
}
static void set_thing(struct dnn_builder *b, dnn_thing t, int name, dnn_thing part)
{
  set_attribute(b, t, name, DNN_THING, 1, &part);
}
static void set_whole(struct dnn_builder *b, dnn_thing t, int name, int64_t v)
{
  set_attribute(b, t, name, DNN_INT64, 1, &v);
}
static void set_code(struct dnn_builder *b, dnn_thing t, int name, int type, int32_t v)
{
  set_attribute(b, t, name, type, 1, &v);
}

static dnn_thing finalize_descriptor(struct dnn_builder *b, dnn_thing t)
{
  b->bad = b->bad || dnn.Finalize(t);
  return t;
}

/* -- the graph of a convolution ---------------------------------------------------------------- */

static int type_of(int dtype)
{
  return dtype == TY_F64   ? DNN_F64
      : dtype == TY_F16    ? DNN_F16
      : dtype == TY_BF16   ? DNN_BF16
                           : DNN_F32;
}
static int compute_type(const struct dnn_convolution *c)
{
  return c->dtype == TY_F64 ? DNN_F64 : DNN_F32;
}

/* Describes a tensor (first, channels, space); NULL: space is 1. A virtual one has no memory. */
static dnn_thing make_tensor(struct dnn_builder *b, const struct dnn_convolution *c, int id,
    int64_t first, int64_t channels, const int64_t *space, bool is_virtual)
{
  int64_t dim[5] = { first, channels }, stride[5], step = 1;
  int n = c->axes + 2;
  for (int i = 2; i < n; i++) dim[i] = space ? space[i - 2] : 1;
  for (int k = 0; k < n; k++) { /* from the innermost axis: channels, or the last of space */
    int i = c->channels_last ? (k == 0 ? 1 : k < n - 1 ? n - k : 0) : n - 1 - k;
    stride[i] = step;
    step *= dim[i];
  }
  dnn_thing t = make_descriptor(b, DNN_TENSOR);
  set_code(b, t, DNN_TENSOR_TYPE, DNN_DATA_TYPE, is_virtual ? compute_type(c) : type_of(c->dtype));
  set_attribute(b, t, DNN_TENSOR_DIMS, DNN_INT64, n, dim);
  set_attribute(b, t, DNN_TENSOR_STRIDES, DNN_INT64, n, stride);
  set_whole(b, t, DNN_TENSOR_ID, id);
  set_whole(b, t, DNN_TENSOR_ALIGNED, c->aligned);
  set_attribute(b, t, DNN_TENSOR_VIRTUAL, DNN_BOOLEAN, 1, &is_virtual);
  return finalize_descriptor(b, t);
}

static dnn_thing make_result(
    struct dnn_builder *b, const struct dnn_convolution *c, int id, bool is_virtual)
{
  return make_tensor(b, c, id, c->n, c->filters, c->out, is_virtual);
}

static dnn_thing make_window(struct dnn_builder *b, const struct dnn_convolution *c)
{
  dnn_thing t = make_descriptor(b, DNN_CONVOLUTION);
  set_code(b, t, DNN_CONVOLUTION_COMPUTE, DNN_DATA_TYPE, compute_type(c));
  set_code(b, t, DNN_CONVOLUTION_MODE, DNN_MODE, DNN_CROSS_CORRELATION);
  set_whole(b, t, DNN_SPATIAL_AXES, c->axes);
  set_attribute(b, t, DNN_DILATIONS, DNN_INT64, c->axes, c->dilate);
  set_attribute(b, t, DNN_STRIDES, DNN_INT64, c->axes, c->stride);
  set_attribute(b, t, DNN_PAD_BEFORE, DNN_INT64, c->axes, c->before);
  set_attribute(b, t, DNN_PAD_AFTER, DNN_INT64, c->axes, c->after);
  return finalize_descriptor(b, t);
}

static dnn_thing add_convolution(
    struct dnn_builder *b, const struct dnn_convolution *c, dnn_thing y)
{
  static const struct { int kind, first, x, w, y; } how[] = {
    [DNN_MAKES_Y] = { DNN_OP_FORWARD, DNN_FORWARD_ALPHA, DNN_FORWARD_X, DNN_FORWARD_W,
      DNN_FORWARD_Y },
    [DNN_MAKES_X] = { DNN_OP_DATA, DNN_DATA_ALPHA, DNN_DATA_DX, DNN_DATA_W, DNN_DATA_DY },
    [DNN_MAKES_W] = { DNN_OP_FILTER, DNN_FILTER_ALPHA, DNN_FILTER_X, DNN_FILTER_DW,
      DNN_FILTER_DY },
  };
  const double alpha = 1, beta = c->add;
  const int first = how[c->makes].first;
  dnn_thing x = make_tensor(b, c, ID_X, c->n, c->channels, c->in, false);
  dnn_thing w = make_tensor(b, c, ID_W, c->filters, c->channels / c->groups, c->kernel, false);
  dnn_thing k = make_window(b, c), t = make_descriptor(b, how[c->makes].kind);
  set_attribute(b, t, first, DNN_DOUBLE, 1, &alpha);
  set_attribute(b, t, first + 1, DNN_DOUBLE, 1, &beta);
  set_thing(b, t, first + 2, k);
  set_thing(b, t, how[c->makes].x, x);
  set_thing(b, t, how[c->makes].w, w);
  set_thing(b, t, how[c->makes].y, y);
  return finalize_descriptor(b, t);
}

/* Adds y = formula(x, other) to the graph; NULL other: of x alone. */
static dnn_thing add_pointwise(struct dnn_builder *b, const struct dnn_convolution *c, int formula,
    dnn_thing x, dnn_thing other, dnn_thing y)
{
  dnn_thing f = make_descriptor(b, DNN_POINTWISE);
  set_code(b, f, DNN_POINTWISE_MODE, DNN_FORMULA, formula);
  set_code(b, f, DNN_POINTWISE_COMPUTE, DNN_DATA_TYPE, compute_type(c));
  set_code(b, f, DNN_POINTWISE_NAN, DNN_NAN_RULE, DNN_NAN_STAYS);
  finalize_descriptor(b, f);
  dnn_thing t = make_descriptor(b, DNN_OP_POINTWISE);
  set_thing(b, t, DNN_OP_FORMULA, f);
  set_thing(b, t, DNN_OP_X, x);
  if (other) set_thing(b, t, DNN_OP_B, other);
  set_thing(b, t, DNN_OP_Y, y);
  return finalize_descriptor(b, t);
}

static dnn_thing make_graph(struct dnn_builder *b, const struct dnn_convolution *c, dnn_handle h)
{
  dnn_thing op[3], t;
  int n = 0;
  dnn_thing y = make_result(b, c, c->biased || c->relu ? ID_SUM : ID_Y, c->biased || c->relu);
  op[n++] = add_convolution(b, c, y);
  if (c->biased) {
    dnn_thing bias = make_tensor(b, c, ID_BIAS, 1, c->filters, NULL, false), sum = y;
    y = make_result(b, c, c->relu ? ID_BIASED : ID_Y, c->relu);
    op[n++] = add_pointwise(b, c, DNN_ADD, sum, bias, y);
  }
  if (c->relu) op[n++] = add_pointwise(b, c, DNN_RELU, y, NULL, make_result(b, c, ID_Y, false));
  t = make_descriptor(b, DNN_GRAPH);
  set_attribute(b, t, DNN_GRAPH_HANDLE, DNN_HANDLE, 1, &h);
  set_attribute(b, t, DNN_GRAPH_OPS, DNN_THING, n, op);
  return finalize_descriptor(b, t);
}

/* -- the choice of an engine ------------------------------------------------------------------- */

/* Returns whether the settings allow an engine. Equal settings give equal bits; TF32 and narrow
** sums are used only where they were allowed. */
static bool is_allowed(const struct dnn_convolution *c, dnn_thing config)
{
  dnn_thing engine = NULL;
  int32_t note[NOTES];
  int64_t n = 0, one = 0;
  if (dnn.CreateThing(DNN_ENGINE, &engine)) return false;
  bool good = !dnn.Get(config, DNN_CONFIG_ENGINE, DNN_THING, 1, &one, &engine) &&
      !dnn.Get(engine, DNN_ENGINE_NOTES, DNN_NOTE, NOTES, &n, note);
  for (int64_t i = 0; good && i < MIN(n, NOTES); i++)
    switch (note[i]) {
    case DNN_TENSOR_CORE: good = c->dtype != TY_F32 || c->tf32; break;
    case DNN_DOWN_CONVERTS:
    case DNN_REDUCED_SUMS:
    case DNN_NONDETERMINISTIC: good = false; break;
    default: break;
    }
  dnn.DestroyThing(engine);
  return good;
}

/* Returns a plan within the workspace, or NULL. */
static dnn_thing plan_with(
    const struct dnn_convolution *c, dnn_handle h, dnn_thing config, int64_t *workspace)
{
  dnn_thing t = NULL;
  int64_t n = 0;
  if (!is_allowed(c, config) || dnn.CreateThing(DNN_PLAN, &t)) return NULL;
  if (!dnn.Set(t, DNN_PLAN_HANDLE, DNN_HANDLE, 1, &h) &&
      !dnn.Set(t, DNN_PLAN_CONFIG, DNN_THING, 1, &config) && !dnn.Finalize(t) &&
      !dnn.Get(t, DNN_PLAN_WORKSPACE, DNN_INT64, 1, &n, workspace) && *workspace <= c->most)
    return t;
  dnn.DestroyThing(t);
  return NULL;
}

/* A plan, the engine's settings that it was made from, and the bytes of its workspace. */
struct candidate { dnn_thing config, plan; int64_t workspace; };

/* Makes plans with the first allowed engines of the library's ranking in this mode, at most `most`.
** Returns how many. */
static int find_candidates(struct dnn_plan *p, dnn_handle h, dnn_thing g, int mode,
    struct candidate *out, int most)
{
  struct dnn_builder b = { p };
  dnn_thing config[CHOICES] = { NULL }, choice = make_descriptor(&b, DNN_CHOICE);
  int64_t n = 0;
  int found = 0;
  set_thing(&b, choice, DNN_CHOICE_GRAPH, g);
  set_code(&b, choice, DNN_CHOICE_MODE, DNN_HEURISTIC, mode);
  finalize_descriptor(&b, choice);
  for (int i = 0; i < CHOICES; i++) b.bad = b.bad || dnn.CreateThing(DNN_CONFIG, &config[i]);
  if (!b.bad && dnn.Get(choice, DNN_CHOICE_RESULTS, DNN_THING, CHOICES, &n, config)) n = 0;
  for (int64_t i = 0; i < MIN(n, CHOICES) && found < most; i++) {
    struct candidate *c = &out[found];
    c->plan = plan_with(&p->c, h, config[i], &c->workspace);
    if (!c->plan) continue;
    c->config = config[i];
    config[i] = NULL;
    found++;
  }
  for (int i = 0; i < CHOICES; i++)
    if (config[i]) dnn.DestroyThing(config[i]);
  return found;
}

static int execute_plan(
    const struct dnn_plan *p, dnn_thing plan, struct dnn_arrays a, void *workspace)
{
  const int64_t id[] = { ID_X, ID_W, ID_Y, ID_BIAS };
  void *const at[] = { a.x, a.w, a.y, a.bias };
  const int64_t n = p->c.biased ? 4 : 3;
  dnn_thing pack = NULL;
  int bad = dnn.CreateThing(DNN_PACK, &pack);
  if (!bad) bad = dnn.Set(pack, DNN_PACK_IDS, DNN_INT64, n, id);
  if (!bad) bad = dnn.Set(pack, DNN_PACK_POINTERS, DNN_POINTER, n, at);
  if (!bad) bad = dnn.Set(pack, DNN_PACK_WORKSPACE, DNN_POINTER, 1, &workspace);
  if (!bad) bad = dnn.Finalize(pack);
  if (!bad) bad = dnn.SetStream(handles[device_id(p->device)], cuda_stream(p->device));
  if (!bad) bad = dnn.Execute(handles[device_id(p->device)], plan, pack);
  if (pack) dnn.DestroyThing(pack);
  return bad;
}

/* A convolution that is timed, by each of these plans. */
struct timed_convolution {
  const struct dnn_plan *p;
  const struct candidate *candidate;
  size_t x, w, y, bias;                               /* bytes, of ALIGN each */
};

static size_t array_bytes(
    const struct dnn_convolution *c, int64_t first, int64_t channels, const int64_t *space)
{
  int64_t n = first * channels;
  for (int i = 0; i < c->axes; i++) n *= space[i];
  return align_up((size_t)n * dtype_size(c->dtype), ALIGN);
}

static bool start_convolution(void *of, int i, char *memory)
{
  const struct timed_convolution *m = of;
  char *w = memory + m->x, *y = w + m->w, *bias = y + m->y;
  return !execute_plan(
      m->p, m->candidate[i].plan, (struct dnn_arrays){ memory, w, y, bias }, bias + m->bias);
}

/* Returns which of n candidates to use. */
static int time_candidates(const struct dnn_plan *p, const struct candidate *candidate, int n)
{
  const struct dnn_convolution *c = &p->c;
  struct text what = { 0 };
  struct timed_convolution m = { p, candidate,
    .x = array_bytes(c, c->n, c->channels, c->in),
    .w = array_bytes(c, c->filters, c->channels / c->groups, c->kernel),
    .y = array_bytes(c, c->n, c->filters, c->out),
    .bias = align_up((size_t)c->filters * dtype_size(c->dtype), ALIGN) };
  struct trial trial = { p->device, n, m.x + m.w + m.y + m.bias, start_convolution, &m };
  int64_t workspace = 0;
  for (int i = 0; i < n; i++) workspace = MAX(workspace, candidate[i].workspace);
  trial.bytes += (size_t)workspace;
  text_add(&what, "cuDNN %d, convolution ", version);
  for (size_t i = 0; i < sizeof *c; i++) text_add(&what, "%02x", ((const unsigned char *)c)[i]);
  const int way = what.lost ? 0 : trial_choose(&trial, what.s);
  text_done(&what);
  return way;
}

/* Chooses one of the engines that the library ranks in this mode. */
static bool choose_engine(struct dnn_plan *p, dnn_handle h, dnn_thing g, int mode)
{
  struct candidate all[TRIAL_WAYS];
  const int n = find_candidates(p, h, g, mode, all, trial_ways());
  const int way = n > 1 ? time_candidates(p, all, n) : 0;
  const bool kept = n && p->n + 2 <= PARTS;
  for (int i = 0; i < n; i++) {
    if (kept && i == way) continue;
    dnn.DestroyThing(all[i].plan);
    dnn.DestroyThing(all[i].config);
  }
  if (!kept) return false;
  p->part[p->n++] = all[way].config;
  p->part[p->n++] = p->plan = all[way].plan;
  p->workspace = all[way].workspace;
  return true;
}

static void build_plan(struct dnn_plan *p)
{
  dnn_handle h = open_handle(p->device);
  struct dnn_builder b = { p };
  dnn_thing g = make_graph(&b, &p->c, h);
  if (!b.bad &&
      (choose_engine(p, h, g, DNN_CHOOSE_BEST) || choose_engine(p, h, g, DNN_CHOOSE_FALLBACK)))
    return;
  while (p->n) dnn.DestroyThing(p->part[--p->n]);
}

/* Finds or makes the plan; plan.plan is NULL if cuDNN has none. Returns NULL if out of memory or
** without cuDNN. Call under the lock. */
static const struct dnn_plan *find_plan(int device, const struct dnn_convolution *c)
{
  uint32_t h = (uint32_t)device;
  if (!open_handle(device)) return NULL;
  for (size_t i = 0; i < sizeof *c; i++) h = 31 * h + ((const unsigned char *)c)[i];
  struct dnn_plan **head = &plans[h % BUCKETS], *p = *head;
  while (p && (p->device != device || memcmp(&p->c, c, sizeof *c))) p = p->next;
  if (p || !(p = NEW(struct dnn_plan))) return p;
  p->c = *c;
  p->device = device;
  build_plan(p);
  p->next = *head;
  return *head = p;
}

/* -- the interface ----------------------------------------------------------------------------- */

const char *dnn_refuse(int device, const struct dnn_convolution *c)
{
  pthread_mutex_lock(&lock);
  const struct dnn_plan *p = find_plan(device, c);
  pthread_mutex_unlock(&lock);
  return !p ? CUDA_MISSING("cuDNN") : !p->plan ? "cuDNN does not do it" : NULL;
}

size_t dnn_workspace(int device, const struct dnn_convolution *c)
{
  pthread_mutex_lock(&lock);
  const struct dnn_plan *p = find_plan(device, c);
  pthread_mutex_unlock(&lock);
  return p && p->plan ? (size_t)p->workspace : 0;
}

/* Returns the plan for arrays at these addresses. If they are less aligned than planned, it is
** another one with the same workspace. */
static const struct dnn_plan *fitting_plan(
    int device, const struct dnn_convolution *c, struct dnn_arrays a)
{
  const struct dnn_plan *p = find_plan(device, c);
  uintptr_t bits = (uintptr_t)a.x | (uintptr_t)a.w | (uintptr_t)a.y | (uintptr_t)a.bias;
  if (!p || !p->plan || bits % (uintptr_t)c->aligned == 0) return p;
  struct dnn_convolution loose = *c;
  loose.aligned = (int32_t)(bits & -bits);
  loose.most = p->workspace;
  return find_plan(device, &loose);
}

int dnn_run(int device, const struct dnn_convolution *c, struct dnn_arrays a, void *workspace)
{
  pthread_mutex_lock(&lock);
  const struct dnn_plan *p = fitting_plan(device, c, a);
  int status = p && p->plan ? execute_plan(p, p->plan, a, workspace) : 0;
  pthread_mutex_unlock(&lock);
  NEED(p && p->plan, TY_ERUN, "cuDNN has no way to make a convolution of these arrays");
  cuda_count(device, 1, 0);
  NEED(!status, TY_ERUN,
      "cuDNN: a convolution of %lld x %lld channels to %lld filters fails with status %d",
      (long long)c->n, (long long)c->channels, (long long)c->filters, status);
  return TY_OK;
}

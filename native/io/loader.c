/* loader.c - loaders (ty_loader_*): threads make batches of samples before they are needed.
**
** Requested batches are in a list, in order. Each thread takes a few samples of the first batch
** that has any left, makes them, and stores them at their places, so results do not depend on the
** threads. A failure belongs to a sample; a batch reports that of its first bad sample. Threads end
** after a while without work, and the next request starts them again, so no threads remain after a
** loop that is left early.
*/
#include <errno.h>
#include <pthread.h>
#include <time.h>
#include "base/interrupt.h"
#include "base/system.h"
#include "io/source.h"

enum {
  MOST_WORKERS = 256,                                 /* most threads */
  MOST_CHUNK = 16,                                    /* most samples taken at once */
  CHUNKS_PER_WORKER = 4                               /* fewest chunks per thread */
};
/* nanoseconds that an idle thread waits before it ends */
#define IDLE_NS 50000000

struct loader_batch {
  struct loader_batch *next;
  int64_t id, n, position;
  struct ty_source *source;
  uint64_t seed, epoch;
  bool stack;
  int64_t *sample;
  ty_tensor **given;                                    /* by sample */
  /* by field */
  ty_tensor *stacked[MOST_FIELDS];
  /* by sample and field: descriptor, and its own array if it is not stacked */
  ty_desc *desc;
  ty_tensor **own;
  double *number;
  /* atomic: samples differ in shape or dtype */
  bool uneven;
  /* under the lock, like the fields below: samples begun or skipped */
  int64_t begun;
  int64_t done;                                         /* samples finished or skipped */
  int64_t bad;                                          /* the first sample that failed; n: none */
  int running;                                          /* threads working on it */
  bool dropped;
  int code;
  struct failure *failure;
};

enum slot_state { EMPTY, RUNNING, ENDED };
struct worker_slot { pthread_t thread; enum slot_state state; struct ty_loader *loader; };

struct ty_loader {
  pthread_mutex_t lock;
  pthread_cond_t work, ready;
  int workers;                                          /* threads */
  int idle;                                             /* of these, waiting for work */
  bool quit;
  struct worker_slot *slot;
  struct loader_batch *first;
  int64_t made;
  /* for samples made in the caller's thread */
  struct sample_maker maker;
};

static int threads_running;                             /* atomic; of all loaders */

/* -- one batch --------------------------------------------------------------------------------- */

static void batch_free(struct loader_batch *b)
{
  int fields = b->source->fields;
  for (int64_t i = 0; b->given && i < b->n * b->source->given; i++) ty_tensor_free(b->given[i]);
  for (int64_t i = 0; b->own && i < b->n * fields; i++) ty_tensor_free(b->own[i]);
  for (int f = 0; f < fields; f++) ty_tensor_free(b->stacked[f]);
  failure_drop(b->failure);
  ty_source_free(b->source);
  void *rest[] = { b->sample, b->given, b->desc, b->own, b->number, b };
  for (int i = 0; i < COUNT(rest); i++) mem_free(rest[i]);
}

/* Finds the array in which field f is stacked; the first finished sample makes it. */
static int batch_stacked(
    struct ty_loader *l, struct loader_batch *b, int f, const ty_desc *d, ty_tensor **out)
{
  *out = __atomic_load_n(&b->stacked[f], __ATOMIC_ACQUIRE);
  if (*out) return TY_OK;
  ty_desc all = { .dtype = d->dtype, .device = TY_CPU, .ndim = d->ndim + 1, .dim = { b->n } };
  NEED(d->ndim < TY_MAXDIM, TY_ESHAPE, "a batch has at most %d dimensions", TY_MAXDIM);
  for (int i = 0; i < d->ndim; i++) all.dim[i + 1] = d->dim[i];
  pthread_mutex_lock(&l->lock);
  int code = b->stacked[f] ? TY_OK : ty_tensor_new(&all, out);
  if (code == TY_OK && !b->stacked[f]) __atomic_store_n(&b->stacked[f], *out, __ATOMIC_RELEASE);
  *out = b->stacked[f];
  pthread_mutex_unlock(&l->lock);
  return code;
}

static size_t value_bytes(const ty_desc *d)
{
  return d->ndim ? desc_bytes(d) : dtype_size(d->dtype);
}

static bool value_fits(const ty_tensor *stacked, const ty_desc *d)
{
  return stacked->d.dtype == d->dtype && stacked->d.ndim == d->ndim + 1 &&
      !memcmp(stacked->d.dim + 1, d->dim, sizeof *d->dim * (size_t)d->ndim);
}

/* Stores field f of sample i of a batch: in the stacked array, as a number or as a tensor. */
static int value_store(
    struct ty_loader *l, struct loader_batch *b, int64_t i, int f, const struct sample_value *v)
{
  int64_t offset = i * b->source->fields + f;
  size_t bytes = value_bytes(&v->d);
  b->desc[offset] = v->d;
  b->desc[offset].device = TY_CPU;
  if (b->stack) {
    ty_tensor *stacked;
    TRY(batch_stacked(l, b, f, &v->d, &stacked));
    if (value_fits(stacked, &v->d))
      memcpy((char *)tensor_at(stacked) + (size_t)i * bytes, v->p, bytes);
    else
      __atomic_store_n(&b->uneven, true, __ATOMIC_RELAXED);
    return TY_OK;
  }
  if (!v->d.ndim) {
    dtype_convert(&b->number[offset], TY_F64, v->p, v->d.dtype, 1);
    return TY_OK;
  }
  TRY(ty_tensor_new(&b->desc[offset], &b->own[offset]));
  memcpy(tensor_at(b->own[offset]), v->p, bytes);
  return TY_OK;
}

static int sample_run(
    struct ty_loader *l, struct loader_batch *b, int64_t i, struct sample_maker *m)
{
  const struct ty_source *r = b->source;
  struct rng rng = { b->seed, b->epoch, (uint64_t)(b->position + i), 0 };
  for (int f = 0; f < r->fields; f++) {
    struct sample_value v;
    TRY(sample_make(r, f, b->sample[i], b->given + i * r->given, rng, m, &v));
    TRY(value_store(l, b, i, f, &v));
  }
  return TY_OK;
}

static struct failure *sample_failure(const struct loader_batch *b, int64_t i, int code)
{
  char what[600], number[32];
  snprintf(what, sizeof what, "%s", ty_error());
  snprintf(number, sizeof number, "%lld", (long long)b->sample[i]);
  fail(code, "sample %s: %s", number, what);
  fail_argument(number, NULL, NULL);
  return failure_take(code);
}

/* Writes dtype and shape of a field: "float32 (3,)", or "float32 (a number)". */
static const char *text_value(const ty_desc *d, char *buffer, size_t size)
{
  char shape[96];
  const char *what = d->ndim ? text_shape(d, shape, sizeof shape) : "(a number)";
  snprintf(buffer, size, "%s %s", dtype_name(d->dtype), what);
  return buffer;
}

/* Makes a failure of the batch that names the first sample whose dtype or shape differs from that
** of sample 0. */
static void batch_find_uneven(struct loader_batch *b)
{
  char got[128], want[128];
  int fields = b->source->fields;
  for (int64_t i = 1; i < b->n && !b->failure; i++)
    for (int f = 0; f < fields && !b->failure; f++) {
      const ty_desc *a = &b->desc[f], *d = &b->desc[i * fields + f];
      bool alike = a->dtype == d->dtype && a->ndim == d->ndim &&
          !memcmp(a->dim, d->dim, sizeof *a->dim * (size_t)a->ndim);
      if (alike) continue;
      b->code = a->dtype == d->dtype ? TY_ESHAPE : TY_EDTYPE;
      fail(b->code, "field %d is %s, that of sample %lld of the same batch %s", f,
          text_value(d, got, sizeof got), (long long)b->sample[0],
          text_value(a, want, sizeof want));
      b->failure = sample_failure(b, i, b->code);
    }
}

/* Makes samples [from, to). Returns the first that fails, or `to`. */
static int64_t batch_run(struct ty_loader *l, struct loader_batch *b, int64_t from, int64_t to,
    struct sample_maker *m, int *code, struct failure **failure)
{
  for (int64_t i = from; i < to; i++) {
    *code = sample_run(l, b, i, m);
    if (*code == TY_OK) continue;
    *failure = sample_failure(b, i, *code);
    return i;
  }
  return to;
}

/* Notes finished samples, and the failure of one. Of several failures that of the first sample
** counts; later samples are not begun. Call under the lock. */
static void batch_note(struct loader_batch *b, int64_t from, int64_t to, int64_t end, int code,
    struct failure *failure)
{
  b->done += to - from;
  if (failure && end < b->bad) {
    failure_drop(b->failure);
    b->bad = end;
    b->code = code;
    b->failure = failure;
    b->done += b->n - b->begun;
    b->begun = b->n;
  } else
    failure_drop(failure);
  if (b->done == b->n && b->uneven && !b->failure) batch_find_uneven(b);
}

/* -- threads ----------------------------------------------------------------------------------- */

static struct loader_batch *loader_work(struct ty_loader *l)
{
  struct loader_batch *b = l->first;
  while (b && (b->dropped || b->begun == b->n)) b = b->next;
  return b;
}

static void batch_unlink(struct ty_loader *l, struct loader_batch *b)
{
  struct loader_batch **at = &l->first;
  while (*at != b) at = &(*at)->next;
  *at = b->next;
  batch_free(b);
}

/* Makes a few samples of b. Call under the lock, which is released meanwhile. */
static void worker_run(struct ty_loader *l, struct loader_batch *b, struct sample_maker *m)
{
  int64_t chunk = MAX(1, MIN(b->n / (CHUNKS_PER_WORKER * l->workers), MOST_CHUNK));
  int64_t from = b->begun, to = MIN(from + chunk, b->n), end;
  int code = TY_OK;
  struct failure *failure = NULL;
  b->begun = to;
  b->running++;
  pthread_mutex_unlock(&l->lock);
  end = batch_run(l, b, from, to, m, &code, &failure);
  pthread_mutex_lock(&l->lock);
  b->running--;
  batch_note(b, from, to, end, code, failure);
  if (b->dropped && !b->running)
    batch_unlink(l, b);
  else if (b->done == b->n)
    pthread_cond_broadcast(&l->ready);
}

static struct timespec time_after(int64_t ns)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  ns += t.tv_nsec;
  t.tv_sec += (time_t)(ns / 1000000000);
  t.tv_nsec = (long)(ns % 1000000000);
  return t;
}

static void *loader_run_worker(void *argument)
{
  struct worker_slot *slot = argument;
  struct ty_loader *l = slot->loader;
  struct sample_maker m = { 0 };
  bool idle = false;
  pthread_mutex_lock(&l->lock);
  while (!l->quit) {
    struct loader_batch *b = loader_work(l);
    if (b) {
      idle = false;
      worker_run(l, b, &m);
      continue;
    }
    if (idle) break;
    struct timespec until = time_after(IDLE_NS);
    l->idle++;
    idle = pthread_cond_timedwait(&l->work, &l->lock, &until) == ETIMEDOUT;
    l->idle--;
  }
  pthread_mutex_unlock(&l->lock);
  sample_maker_done(&m);
  pthread_mutex_lock(&l->lock);
  slot->state = ENDED;
  __atomic_sub_fetch(&threads_running, 1, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&l->lock);
  return NULL;
}

/* Starts the workers. Call under the lock. Fails only if no thread runs at all. */
static int loader_start(struct ty_loader *l)
{
  int running = 0;
  for (int i = 0; i < l->workers; i++) {
    struct worker_slot *s = &l->slot[i];
    if (s->state == ENDED) sys_join(s->thread);
    if (s->state != RUNNING) {
      s->state = sys_thread(&s->thread, loader_run_worker, s) == 0 ? RUNNING : EMPTY;
      if (s->state == RUNNING) __atomic_add_fetch(&threads_running, 1, __ATOMIC_RELAXED);
    }
    running += s->state == RUNNING;
  }
  NEED(running, TY_EMEMORY, "cannot start a thread of a loader");
  return TY_OK;
}

int ty_loader_threads(void) { return __atomic_load_n(&threads_running, __ATOMIC_RELAXED); }

/* -- making and freeing ------------------------------------------------------------------------ */

int ty_loader_new(int workers, ty_loader **out)
{
  NEED(out, TY_ETYPE, "loader_new: null argument");
  NEED(workers >= 0 && workers <= MOST_WORKERS, TY_EVALUE, "num_workers is %d, expected 0 to %d",
      workers, MOST_WORKERS);
  ty_loader *l = NEW(ty_loader);
  if (!l) return TY_EMEMORY;
  l->slot = NEWS(struct worker_slot, workers);
  if (!l->slot) return mem_free(l), TY_EMEMORY;
  l->workers = workers;
  for (int i = 0; i < workers; i++) l->slot[i].loader = l;
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&l->lock, NULL);
  pthread_cond_init(&l->work, &attributes);
  pthread_cond_init(&l->ready, &attributes);
  pthread_condattr_destroy(&attributes);
  live_add(LIVE_ITER, 1);
  *out = l;
  return TY_OK;
}

void ty_loader_free(ty_loader *l)
{
  if (!l || mem_kept() || sys_forked()) return;          /* a lost thread may hold its lock */
  pthread_mutex_lock(&l->lock);
  l->quit = true;
  pthread_cond_broadcast(&l->work);
  pthread_mutex_unlock(&l->lock);
  for (int i = 0; i < l->workers; i++) {
    pthread_mutex_lock(&l->lock);
    enum slot_state state = l->slot[i].state;
    pthread_mutex_unlock(&l->lock);
    if (state != EMPTY) sys_join(l->slot[i].thread);
  }
  for (struct loader_batch *b = l->first, *next; b; b = next) {
    next = b->next;
    batch_free(b);
  }
  sample_maker_done(&l->maker);
  pthread_cond_destroy(&l->work);
  pthread_cond_destroy(&l->ready);
  pthread_mutex_destroy(&l->lock);
  mem_free(l->slot);
  mem_free(l);
  live_add(LIVE_ITER, -1);
}

/* -- use --------------------------------------------------------------------------------------- */

static int spec_check(const ty_batch_spec *s)
{
  const struct ty_source *r = s->source;
  NEED(s->n > 0 && r->fields, TY_EVALUE, "a batch has samples and fields");
  for (int f = 0; f < r->fields; f++) {
    if (r->field[f].rows) TRY(ty_tensor_wait(r->field[f].rows, 0));
    for (int64_t i = 0; i < s->n && r->field[f].origin != GIVEN; i++) {
      char number[32];
      if (s->sample[i] >= 0 && s->sample[i] < r->field[f].count) continue;
      snprintf(number, sizeof number, "%lld", (long long)s->sample[i]);
      fail(TY_EINDEX, "there is no sample %s, the data set has %lld", number,
          (long long)r->field[f].count);
      fail_argument(number, NULL, NULL);
      return TY_EINDEX;
    }
  }
  return TY_OK;
}

static int batch_make(const ty_batch_spec *s, struct loader_batch *b)
{
  int64_t fields = s->source->fields, given = s->n * s->source->given;
  void *p;
  b->sample = NEWS(int64_t, s->n);
  b->given = NEWS(ty_tensor *, given);
  b->desc = NEWS(ty_desc, s->n * fields);
  if (!b->sample || !b->given || !b->desc) return TY_EMEMORY;
  if (!s->stack) {
    b->own = NEWS(ty_tensor *, s->n * fields);
    b->number = NEWS(double, s->n * fields);
    if (!b->own || !b->number) return TY_EMEMORY;
  }
  memcpy(b->sample, s->sample, sizeof *b->sample * (size_t)s->n);
  for (int64_t i = 0; i < given; i++) {
    TRY(ty_tensor_data(s->given[i], &p));
    TRY(ty_tensor_keep(s->given[i]));
    b->given[i] = s->given[i];
  }
  return TY_OK;
}

int ty_loader_submit(ty_loader *l, const ty_batch_spec *spec, int64_t *id)
{
  NEED(l && spec && spec->source && spec->sample && id, TY_ETYPE, "loader_submit: null argument");
  NEED(spec->given || !spec->source->given, TY_ETYPE, "loader_submit: no arrays are given");
  if (l->workers) TRY(sys_have_threads());
  TRY(spec_check(spec));
  struct loader_batch *b = NEW(struct loader_batch);
  if (!b) return TY_EMEMORY;
  *b = (struct loader_batch){ .id = l->made++, .n = spec->n, .position = spec->position,
    .source = source_keep(spec->source), .seed = spec->seed, .epoch = spec->epoch,
    .stack = spec->stack, .bad = spec->n };
  int code = batch_make(spec, b);
  if (code == TY_OK) {
    pthread_mutex_lock(&l->lock);
    if (l->workers) code = loader_start(l);
    struct loader_batch **end = &l->first;
    while (*end) end = &(*end)->next;
    if (code == TY_OK) *end = b;
    if (l->idle) pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
  }
  *id = b->id;
  if (code != TY_OK) batch_free(b);
  return code;
}

static int batch_find(ty_loader *l, int64_t id, struct loader_batch **out)
{
  *out = l->first;
  while (*out && ((*out)->id != id || (*out)->dropped)) *out = (*out)->next;
  NEED(*out, TY_EINDEX, "there is no batch %lld", (long long)id);
  return TY_OK;
}

/* Makes a batch in the caller's thread. */
static int batch_run_here(ty_loader *l, struct loader_batch *b)
{
  while (b->begun < b->n) {
    int64_t i = b->begun++;
    int code = TY_OK;
    struct failure *failure = NULL;
    if (interrupt_pending()) {
      b->begun = i;
      return fail(TY_EINTERRUPTED, "interrupted");
    }
    int64_t end = batch_run(l, b, i, i + 1, &l->maker, &code, &failure);
    batch_note(b, i, i + 1, end, code, failure);
  }
  return TY_OK;
}

int ty_loader_wait(ty_loader *l, int64_t id, int wait_ms, int *ready)
{
  NEED(l && ready, TY_ETYPE, "loader_wait: null argument");
  NEED(!interrupt_pending(), TY_EINTERRUPTED, "interrupted"); /* also if the batch is ready */
  struct loader_batch *b;
  struct failure *failure;
  TRY(sys_have_threads());
  pthread_mutex_lock(&l->lock);
  int code = batch_find(l, id, &b);
  pthread_mutex_unlock(&l->lock);
  TRY(code);
  if (!l->workers) TRY(batch_run_here(l, b));
  struct timespec until = time_after((int64_t)wait_ms * 1000000);
  pthread_mutex_lock(&l->lock);
  while (b->done < b->n && !interrupt_pending())
    if (pthread_cond_timedwait(&l->ready, &l->lock, &until) == ETIMEDOUT) break;
  *ready = b->done == b->n;
  failure = *ready && b->failure ? failure_keep(b->failure) : NULL;
  pthread_mutex_unlock(&l->lock);
  if (failure) {
    code = failure_report(failure);
    failure_drop(failure);
    return code;
  }
  NEED(*ready || !interrupt_pending(), TY_EINTERRUPTED, "interrupted");
  return TY_OK;
}

int ty_loader_field(
    ty_loader *l, int64_t id, int field, int64_t row, ty_tensor **out, double *number)
{
  NEED(l && out && number, TY_ETYPE, "loader_field: null argument");
  struct loader_batch *b;
  pthread_mutex_lock(&l->lock);
  int code = batch_find(l, id, &b);
  bool done = code == TY_OK && b->done == b->n;
  pthread_mutex_unlock(&l->lock);
  TRY(code);
  NEED(done, TY_ESTATE, "batch %lld is not ready", (long long)id);
  NEED(field >= 0 && field < b->source->fields && row >= -1 && row < b->n && b->stack == (row < 0),
      TY_EINDEX, "batch %lld has no field %d, row %lld", (long long)id, field, (long long)row);
  int64_t offset = row * b->source->fields + field;
  *out = b->stack ? b->stacked[field] : b->own[offset];
  if (!*out) *number = b->number[offset];
  return *out ? ty_tensor_keep(*out) : TY_OK;
}

int ty_loader_drop(ty_loader *l, int64_t id)
{
  NEED(l, TY_ETYPE, "loader_drop: null loader");
  struct loader_batch *b;
  pthread_mutex_lock(&l->lock);
  int code = batch_find(l, id, &b);
  if (code == TY_OK) {
    b->dropped = true;
    if (!b->running) batch_unlink(l, b);
  }
  pthread_mutex_unlock(&l->lock);
  return code;
}

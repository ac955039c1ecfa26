/* iter.c - iterators (ty_iter_*): a thread makes batches of samples before they are needed.
**
** A thread fills a ring of `ahead` slots from the reader; ty_iter_next returns the oldest as new
** tensors. At the end of an epoch round_batch completes the last batch with the first samples
** (`pad` counts them), and the next epoch begins after those. Otherwise missing rows are 0, or the
** kind drops the batch. A reset discards batches made ahead: the next epoch depends only on those
** that were returned. `skip_samples` skips that many samples of the first epoch, and `first_epoch`
** is its number (to continue where another iterator stopped). A failure of the thread is returned
** by ty_iter_next after the batches before it.
**
** Order of calls: new; next, data (0: data, 1: label), pad ...; reset; ...; free. One thread at a
** time may use an iterator.
*/
#include <pthread.h>
#include <time.h>
#include "base/system.h"
#include "io/reader.h"

static const struct reader_kind *const KINDS[] = { &reader_mnist, &reader_csv, &reader_libsvm,
  &reader_raw, &reader_image_record, &reader_image_det_record };

struct batch_slot { char *data; float *label; int pad; bool wrapped; };

struct ty_iter {
  struct reader *reader;
  int batch, ahead;
  bool round;
  size_t data_bytes, label_bytes;                     /* of a sample */
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  /* under the lock */
  bool started, quit, paused, filling, ended;
  int head, filled, code;
  struct failure *failure;
  bool wrapped;                                       /* the last batch returned was completed */
  int64_t epoch;                                      /* first_epoch plus the number of resets */
  struct batch_slot *slot;
  ty_tensor *out[2];
  int pad;
};

/* -- the thread -------------------------------------------------------------------------------- */

static int read_row(struct ty_iter *it, struct batch_slot *s, int row, bool *more)
{
  char *data = s->data + (size_t)row * it->data_bytes;
  float *label = s->label + (size_t)row * (it->label_bytes / sizeof(float));
  return it->reader->kind->next(it->reader, data, label, more);
}

/* Completes a batch with samples from the beginning, repeatedly if there are few. */
static int borrow_rows(struct ty_iter *it, struct batch_slot *s, int row)
{
  bool fresh = false;
  while (row < it->batch) {
    bool more;
    TRY(read_row(it, s, row, &more));
    if (more) {
      row++;
      fresh = false;
      continue;
    }
    NEED(!fresh, TY_EFORMAT, "the files of the iterator became empty");
    it->reader->epoch++;
    TRY(it->reader->kind->rewind(it->reader));
    fresh = true;
  }
  return TY_OK;
}

/* Fills a slot. *any: there is a batch; *last: it is the last one of the epoch. */
static int fill_slot(struct ty_iter *it, struct batch_slot *s, bool *any, bool *last)
{
  int row = 0;
  bool more = true;
  while (row < it->batch && more) {
    TRY(read_row(it, s, row, &more));
    row += more;
  }
  *last = row < it->batch;
  *any = row > 0 && !(*last && it->reader->kind->drops);
  s->pad = it->batch - row;
  s->wrapped = *any && *last && it->round;
  if (s->wrapped) return borrow_rows(it, s, row);
  memset(s->data + (size_t)row * it->data_bytes, 0, (size_t)s->pad * it->data_bytes);
  memset(s->label + (size_t)row * (it->label_bytes / sizeof(float)), 0,
      (size_t)s->pad * it->label_bytes);
  if (it->reader->kind->silent) s->pad = 0;
  return TY_OK;
}

static void *iter_run(void *argument)
{
  struct ty_iter *it = argument;
  pthread_mutex_lock(&it->lock);
  for (;;) {
    while (!it->quit && (it->paused || it->ended || it->filled == it->ahead))
      pthread_cond_wait(&it->changed, &it->lock);
    if (it->quit) break;
    struct batch_slot *s = &it->slot[(it->head + it->filled) % it->ahead];
    bool any = false, last = true;
    it->filling = true;
    pthread_mutex_unlock(&it->lock);
    int code = fill_slot(it, s, &any, &last);
    struct failure *failure = code == TY_OK ? NULL : failure_take(code);
    pthread_mutex_lock(&it->lock);
    it->filling = false;
    if (code == TY_OK)
      it->filled += any;
    else {
      it->code = code;
      it->failure = failure;
    }
    it->ended = last || code != TY_OK;
    pthread_cond_broadcast(&it->changed);
  }
  pthread_mutex_unlock(&it->lock);
  return NULL;
}

/* -- making and freeing ------------------------------------------------------------------------ */

static int open_reader(const char *kind, const struct options *o, struct reader **out)
{
  for (int i = 0; i < COUNT(KINDS); i++)
    if (!strcmp(KINDS[i]->name, kind)) return KINDS[i]->open(o, out);
  return fail(TY_ENAME, "there is no iterator called '%s'", kind);
}

static int new_slots(struct ty_iter *it)
{
  it->slot = NEWS(struct batch_slot, it->ahead);
  if (!it->slot) return TY_EMEMORY;
  for (int i = 0; i < it->ahead; i++) {
    it->slot[i].data = mem_new((size_t)it->batch * it->data_bytes + 1);
    it->slot[i].label = mem_new((size_t)it->batch * it->label_bytes + 1);
    if (!it->slot[i].data || !it->slot[i].label) return TY_EMEMORY;
  }
  return TY_OK;
}

static int iter_start(struct ty_iter *it)
{
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&it->lock, NULL);
  pthread_cond_init(&it->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  it->started = true; /* first: the thread uses the fields next to it */
  if (sys_thread(&it->thread, iter_run, it) == 0) return TY_OK;
  it->started = false;
  return fail(TY_EMEMORY, "cannot start the thread of an iterator");
}

static int skip_samples(struct ty_iter *it, int64_t n)
{
  bool fresh = false;
  while (n > 0) {
    bool more;
    TRY(read_row(it, it->slot, 0, &more));
    if (more) {
      n--;
      fresh = false;
      continue;
    }
    NEED(!fresh, TY_EFORMAT, "the files of the iterator are empty");
    it->reader->epoch++;
    TRY(it->reader->kind->rewind(it->reader));
    fresh = true;
  }
  it->epoch = it->reader->epoch;
  return TY_OK;
}

static int set_up(struct ty_iter *it, const char *kind, const struct options *o)
{
  int64_t batch, ahead, skip;
  TRY(option_int(o, "skip_samples", 0, 0, &skip));
  TRY(option_int(o, "batch_size", 1, 1, &batch));
  TRY(option_int(o, "prefetch_buffer", 4, 1, &ahead));
  TRY(option_bool(o, "round_batch", true, &it->round));
  NEED(
      batch <= INT32_MAX && ahead <= 4096, TY_EVALUE, "batch_size or prefetch_buffer is too large");
  it->batch = (int)batch;
  it->ahead = (int)ahead;
  TRY(open_reader(kind, o, &it->reader));
  it->data_bytes = desc_bytes(&it->reader->data);
  it->label_bytes = desc_bytes(&it->reader->label);
  NEED(MAX(it->data_bytes, it->label_bytes) <= (size_t)(TENSOR_BYTES_MAX / batch), TY_EVALUE,
      "a batch of %lld samples is too large", (long long)batch);
  if (it->reader->kind->drops) it->round = false;
  TRY(new_slots(it));
  TRY(skip_samples(it, skip));
  return iter_start(it);
}

int ty_iter_new(const char *kind, const ty_attr *attr, int nattr, ty_iter **out)
{
  NEED(kind && out, TY_ETYPE, "iter_new: null argument");
  struct options o = { attr, nattr };
  ty_iter *it = NEW(ty_iter);
  if (!it) return TY_EMEMORY;
  live_add(LIVE_ITER, 1);
  int code = set_up(it, kind, &o);
  if (code != TY_OK) {
    ty_iter_free(it);
    return code;
  }
  *out = it;
  return TY_OK;
}

static void iter_stop(struct ty_iter *it)
{
  pthread_mutex_lock(&it->lock);
  it->quit = true;
  pthread_cond_broadcast(&it->changed);
  pthread_mutex_unlock(&it->lock);
  sys_join(it->thread);
  pthread_cond_destroy(&it->changed);
  pthread_mutex_destroy(&it->lock);
}

void ty_iter_free(ty_iter *it)
{
  /* in a fork a lost thread may hold its lock */
  if (!it || mem_kept() || sys_forked()) return;
  if (it->started) iter_stop(it);
  if (it->reader) it->reader->kind->close(it->reader);
  for (int i = 0; it->slot && i < it->ahead; i++) {
    mem_free(it->slot[i].data);
    mem_free(it->slot[i].label);
  }
  for (int i = 0; i < 2; i++) ty_tensor_free(it->out[i]);
  failure_drop(it->failure);
  mem_free(it->slot);
  mem_free(it);
  live_add(LIVE_ITER, -1);
}

/* -- use --------------------------------------------------------------------------------------- */

int ty_iter_reset(ty_iter *it)
{
  NEED(it, TY_ETYPE, "iter_reset: null iterator");
  int code = TY_OK;
  TRY(sys_have_threads());
  pthread_mutex_lock(&it->lock);
  it->paused = true;
  while (it->filling) pthread_cond_wait(&it->changed, &it->lock);
  if (!it->wrapped || it->code != TY_OK) {
    it->reader->epoch = it->epoch + 1;
    code = it->reader->kind->rewind(it->reader);
  }
  it->epoch = it->reader->epoch;
  failure_drop(it->failure);
  it->failure = NULL;
  it->code = it->head = it->filled = 0;
  it->paused = it->ended = it->wrapped = false;
  pthread_cond_broadcast(&it->changed);
  pthread_mutex_unlock(&it->lock);
  return code;
}

/* Waits until there is a batch, the end or a failure. Returns false on timeout. */
static bool iter_await(struct ty_iter *it, int wait_ms)
{
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += wait_ms / 1000;
  until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
  if (until.tv_nsec >= 1000000000) {
    until.tv_sec++;
    until.tv_nsec -= 1000000000;
  }
  while (it->filled == 0 && !it->ended) {
    if (wait_ms < 0)
      pthread_cond_wait(&it->changed, &it->lock);
    else if (pthread_cond_timedwait(&it->changed, &it->lock, &until) != 0)
      break;
  }
  return it->filled > 0 || it->ended;
}

static int hand_out(struct ty_iter *it, int i, const ty_desc *row, const void *bytes)
{
  ty_desc d = *row;
  for (int k = d.ndim; k > 0; k--) d.dim[k] = d.dim[k - 1];
  d.ndim++;
  d.dim[0] = it->batch;
  if (i == 1 && row->ndim == 1 && row->dim[0] == 1) d.ndim = 1; /* one label per sample: a vector */
  ty_tensor_free(it->out[i]);
  it->out[i] = NULL;
  TRY(ty_tensor_new(&d, &it->out[i]));
  return ty_tensor_write(it->out[i], bytes, desc_bytes(&d));
}

int ty_iter_next(ty_iter *it, int wait_ms, int *more)
{
  NEED(it && more, TY_ETYPE, "iter_next: null argument");
  TRY(sys_have_threads());
  pthread_mutex_lock(&it->lock);
  bool ready = iter_await(it, wait_ms), any = it->filled > 0;
  struct failure *failure = ready && !any && it->failure ? failure_keep(it->failure) : NULL;
  struct batch_slot *s = &it->slot[it->head];
  pthread_mutex_unlock(&it->lock);
  *more = !ready ? -1 : any;
  if (failure) {
    int code = failure_report(failure);
    failure_drop(failure);
    return code;
  }
  if (!any) return TY_OK;
  TRY(hand_out(it, 0, &it->reader->data, s->data));
  TRY(hand_out(it, 1, &it->reader->label, s->label));
  it->pad = s->pad;
  pthread_mutex_lock(&it->lock);
  it->wrapped = s->wrapped;
  it->head = (it->head + 1) % it->ahead;
  it->filled--;
  pthread_cond_broadcast(&it->changed);
  pthread_mutex_unlock(&it->lock);
  return TY_OK;
}

int ty_iter_data(ty_iter *it, int i, ty_tensor **out)
{
  NEED(it && out, TY_ETYPE, "iter_data: null argument");
  NEED(i >= 0 && i < 2, TY_EINDEX, "an iterator has array 0 (data) and 1 (label), not %d", i);
  NEED(it->out[i], TY_ESTATE, "there is no batch; call next first");
  *out = it->out[i];
  return TY_OK;
}

int ty_iter_pad(ty_iter *it, int *pad)
{
  NEED(it && pad, TY_ETYPE, "iter_pad: null argument");
  *pad = it->pad;
  return TY_OK;
}

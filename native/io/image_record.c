/* image_record.c - "image_record": labelled images of a record file, decoded and augmented by
** several threads; "image_det_record": the same with boxes of objects as labels.
**
** The reader's thread (iter.c) puts jobs, each the offset of a record, into a ring. Workers take
** them in order, and read, decode and augment the image into the job's memory; the reader takes the
** results in order. So batches do not depend on the number of threads. A failure belongs to its
** job, and is returned in its turn.
**
** Which records: with an index (path_imgidx) each part has an equal share of its entries; without,
** the records that begin within an equal share of the bytes. With `shuffle` their order is a
** permutation determined by (seed, epoch).
*/
#include <pthread.h>
#include "base/system.h"
#include "io/augment.h"
#include "io/det_augment.h"
#include "io/label_list.h"
#include "io/record_file.h"

enum {
  HEADER = 24,                                        /* bytes before an image in a record */
  MOST_THREADS = 64,                                  /* most threads that decode */
  SIZES = 4                                           /* numbers before a label's objects */
};

struct decode_job {
  int64_t at, epoch;
  uint64_t number;
  void *data;
  float *label;
  int code;
  struct failure *failure;
  bool done;
};

struct image_record {
  struct reader base;
  struct augment augment;
  bool boxes;                                         /* `det` is used, not `augment` */
  struct det_augment det;
  struct record_file file;
  int64_t begin, end;                                 /* of the part, in bytes */
  int64_t *offset;                                    /* of its records; NULL: not known */
  int64_t count;                                      /* of its records */
  int64_t *order;                                     /* permutation; NULL: the file's order */
  struct label_list labels;
  bool listed;                                        /* labels come from path_imglist */
  uint64_t seed, seed_aug;
  int64_t width;                                      /* labels of an image; -1: any (boxes) */
  int64_t capacity;                                   /* most labels of an image */
  float filler;                                       /* fills the space after the labels */
  int64_t next;                                       /* number of the next job in the epoch */
  int64_t at;                                         /* its offset in the file */
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  pthread_t thread[MOST_THREADS];
  struct decode_job *job;
  int threads, started, ring;
  /* Jobs of the epoch so far. Under the lock. */
  int64_t made, begun, taken, running;
  bool quit;
};

/* -- which records ----------------------------------------------------------------------------- */

/* Finds the first record that begins at `at` or later. */
static int find_record(const struct image_record *r, int64_t at, int64_t *out)
{
  uint32_t words[4096];
  for (at = (int64_t)align_up((size_t)at, 4); at <= r->file.size - RECORD_HEAD;) {
    int64_t n = MIN((int64_t)COUNT(words), (r->file.size - at) / 4);
    TRY(record_file_bytes(&r->file, at, words, (size_t)n * 4));
    for (int64_t i = 0; i + 1 < n; i++)
      if (words[i] == RECORD_MAGIC && words[i + 1] >> 29 <= RECORD_FIRST) {
        *out = at + 4 * i;
        return TY_OK;
      }
    at += 4 * (n - 1); /* the last word read may be the start of a head */
  }
  *out = r->file.size;
  return TY_OK;
}

static int add_offset(struct image_record *r, int *cap, int64_t at)
{
  NEED(r->count < INT32_MAX && GROW(r->offset, (int)r->count, *cap), TY_EMEMORY, "out of memory");
  r->offset[r->count++] = at;
  return TY_OK;
}

static int by_offset(const void *a, const void *b)
{
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Reads the offsets of this part's records from an index of lines "key TAB offset". */
static int read_index(struct image_record *r, const char *path, int64_t parts, int64_t index)
{
  struct line_reader l = { 0 };
  char *line = NULL;
  int cap = 0, code = stream_open(&l.stream, path);
  while (code == TY_OK && (code = lines_next(&l, &line)) == TY_OK && line) {
    char *tab = strchr(line, '\t'), *end = NULL;
    int64_t at = tab ? strtoll(tab + 1, &end, 10) : 0;
    if (tab && end != tab + 1 && at >= 0)
      code = add_offset(r, &cap, at);
    else
      code = fail(
          TY_EFORMAT, "'%s', line %lld: expected a key and an offset", path, (long long)l.number);
  }
  lines_close(&l);
  TRY(code);
  if (!r->count) return TY_OK;
  qsort(r->offset, (size_t)r->count, sizeof *r->offset, by_offset);
  int64_t share = (r->count + parts - 1) / parts, from = MIN(share * index, r->count),
          to = MIN(from + share, r->count);
  memmove(r->offset, r->offset + from, sizeof *r->offset * (size_t)(to - from));
  r->count = to - from;
  return TY_OK;
}

static int list_records(struct image_record *r)
{
  int cap = 0;
  for (int64_t at = r->begin, n; at < r->end;) {
    TRY(add_offset(r, &cap, at));
    TRY(record_file_read(&r->file, at, NULL, &n, &at));
  }
  return TY_OK;
}

static int find_part(struct image_record *r, int64_t parts, int64_t index)
{
  int64_t share = (int64_t)align_up((size_t)((r->file.size + parts - 1) / parts), 4), bytes;
  uint32_t flag;
  /* check that it is a record file */
  if (r->file.size) TRY(record_file_head(&r->file, 0, &flag, &bytes));
  TRY(find_record(r, MIN(share * index, r->file.size), &r->begin));
  return find_record(r, MIN(share * (index + 1), r->file.size), &r->end);
}

/* -- labels ------------------------------------------------------------------------------------ */

/* Returns the largest number of labels of an image. */
static int widest_label(struct image_record *r)
{
  r->capacity = 0;
  for (int64_t i = 0; i < r->labels.n; i++) r->capacity = MAX(r->capacity, r->labels.row[i].n);
  if (!r->listed && !r->offset) TRY(list_records(r));
  for (int64_t i = 0; !r->listed && i < r->count; i++) {
    uint32_t labels;
    int64_t bytes, next;
    TRY(record_file_read(&r->file, r->offset[i], NULL, &bytes, &next));
    if (bytes < HEADER)
      return record_file_broken(&r->file, r->offset[i], "shorter than the header of an image");
    TRY(record_file_bytes(&r->file, r->offset[i] + RECORD_HEAD, &labels, 4));
    if ((bytes - HEADER) / 4 < labels)
      return record_file_broken(&r->file, r->offset[i], "the record ends within its labels");
    r->capacity = MAX(r->capacity, MAX(labels, 1));
  }
  return TY_OK;
}

static int make_label_space(struct image_record *r, const struct options *o)
{
  double filler;
  TRY(option_real(o, "label_pad_value", -1, &filler));
  TRY(option_int(o, "label_pad_width", 0, -1, &r->capacity));
  r->filler = (float)filler;
  if (r->capacity <= 0) TRY(widest_label(r));
  NEED(r->capacity <= 1 << 20, TY_EVALUE, "an image has %lld labels, at most 1048576 are possible",
      (long long)r->capacity);
  r->base.label = (ty_desc){ .dtype = TY_F32, .ndim = 1, .dim = { SIZES + r->capacity } };
  return TY_OK;
}

/* -- one sample -------------------------------------------------------------------------------- */

struct worker { struct buffer text; struct workspace workspace; };

/* Finds the labels of an image, and how many bytes precede its file. */
static int find_label(const struct image_record *r, const char *text, int64_t n,
    const float **label, int64_t *labels, int64_t *head)
{
  struct image_head image;
  TRY(image_head_read(text, n, &image));
  *head = image.bytes;
  *label = image.label;
  *labels = image.labels;
  if (r->listed) TRY(label_list_find(&r->labels, image.id, label, labels));
  NEED(r->width < 0 || *labels == r->width, TY_ESHAPE,
      "the record has %lld labels, label_width is %lld", (long long)*labels, (long long)r->width);
  return TY_OK;
}

/* Writes a label: channels, height and width of the image, the number of labels, these, and
** fillers. */
static int put_boxes(const struct image_record *r, struct worker *w, const struct decode_job *j,
    struct file_bytes file, struct rng *rng, const float *label, int64_t n)
{
  float *out = j->label + SIZES;
  NEED(n <= r->capacity, TY_ESHAPE, "the image has %lld labels, label_pad_width is %lld",
      (long long)n, (long long)r->capacity);
  TRY(det_label_check(label, n));
  memcpy(out, label, sizeof(float) * (size_t)n);
  TRY(det_augment_run(&r->det, file, rng, &w->workspace, out, &n, j->label, j->data));
  j->label[SIZES - 1] = (float)n;
  for (int64_t i = n; i < r->capacity; i++) out[i] = r->filler;
  return TY_OK;
}

static int make_sample(const struct image_record *r, struct worker *w, const struct decode_job *j)
{
  struct rng rng = { r->seed_aug, (uint64_t)j->epoch, j->number, 0 };
  int64_t n, next, head = 0, labels;
  const float *label;
  TRY(record_file_read(&r->file, j->at, &w->text, &n, &next));
  TRY(find_label(r, w->text.p, n, &label, &labels, &head));
  struct file_bytes file = { (const uint8_t *)w->text.p + head, (size_t)(n - head) };
  if (r->boxes) return put_boxes(r, w, j, file, &rng, label, labels);
  memcpy(j->label, label, sizeof(float) * (size_t)labels);
  return augment_run(&r->augment, file, &rng, &w->workspace, j->data);
}

/* Runs a job. If it fails, names the record in the failure, which the job owns. */
static int run_job(const struct image_record *r, struct worker *w, struct decode_job *j)
{
  int code = make_sample(r, w, j);
  if (code == TY_OK) return code;
  char what[400];
  snprintf(what, sizeof what, "%s", ty_error());
  if (!strstr(what, r->file.path))
    fail(code, "'%s', record at byte %lld: %s", r->file.path, (long long)j->at, what);
  fail_argument(r->file.path, NULL, NULL);
  j->failure = failure_take(code);
  return code;
}

static void *worker_run(void *argument)
{
  struct image_record *r = argument;
  struct worker w = { 0 };
  pthread_mutex_lock(&r->lock);
  for (;;) {
    while (!r->quit && r->begun == r->made) pthread_cond_wait(&r->work, &r->lock);
    if (r->quit) break;
    struct decode_job *j = &r->job[r->begun++ % r->ring];
    if (j->done) continue; /* reading it has failed */
    r->running++;
    pthread_mutex_unlock(&r->lock);
    int code = run_job(r, &w, j);
    pthread_mutex_lock(&r->lock);
    j->code = code;
    j->done = true;
    r->running--;
    pthread_cond_broadcast(&r->done);
  }
  pthread_mutex_unlock(&r->lock);
  mem_free(w.text.p);
  workspace_done(&w.workspace);
  return NULL;
}

/* -- the reader -------------------------------------------------------------------------------- */

/* Returns in *at the offset of the next record of the epoch. Returns false at its end. */
static bool next_offset(struct image_record *r, int64_t *at, int *code)
{
  int64_t n;
  *code = TY_OK;
  if (r->offset) {
    if (r->next == r->count) return false;
    *at = r->offset[r->order ? r->order[r->next] : r->next];
    return true;
  }
  if (r->at >= r->end) return false;
  *at = r->at;
  *code = record_file_read(&r->file, r->at, NULL, &n, &r->at);
  if (*code != TY_OK) r->at = r->end;
  return true;
}

/* Makes jobs for the next records while the ring has room. Not under the lock. */
static void hand_out(struct image_record *r)
{
  int64_t at;
  int code;
  while (r->made - r->taken < r->ring && next_offset(r, &at, &code)) {
    struct decode_job *j = &r->job[r->made % r->ring];
    j->at = at;
    j->epoch = r->base.epoch;
    j->number = (uint64_t)r->next++;
    j->code = code;
    j->failure = code == TY_OK ? NULL : failure_take(code);
    j->done = code != TY_OK;
    pthread_mutex_lock(&r->lock);
    r->made++;
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
  }
}

static int next_image(struct reader *reader, void *data, float *label, bool *more)
{
  struct image_record *r = (struct image_record *)reader;
  hand_out(r);
  *more = r->taken < r->made;
  if (!*more) return TY_OK;
  struct decode_job *j = &r->job[r->taken++ % r->ring];
  pthread_mutex_lock(&r->lock);
  while (!j->done) pthread_cond_wait(&r->done, &r->lock);
  pthread_mutex_unlock(&r->lock);
  if (j->code != TY_OK) {
    failure_report(j->failure);
    failure_drop(j->failure);
    j->failure = NULL;
    return j->code;
  }
  memcpy(data, j->data, desc_bytes(&r->base.data));
  memcpy(label, j->label, desc_bytes(&r->base.label));
  return TY_OK;
}

/* Shuffles the order of the records by seed and epoch. */
static void mix_seed(struct image_record *r)
{
  struct rng c = { r->seed, (uint64_t)r->base.epoch, 0, 0 };
  for (int64_t i = 0; i < r->count; i++) r->order[i] = i;
  for (int64_t i = r->count - 1; i > 0; i--) {
    c.sample = (uint64_t)i, c.used = 0;
    int64_t k = rng_below(&c, i + 1), held = r->order[i];
    r->order[i] = r->order[k];
    r->order[k] = held;
  }
}

/* Begins the next epoch; waits for jobs of the old one and drops their results. */
static int rewind_images(struct reader *reader)
{
  struct image_record *r = (struct image_record *)reader;
  pthread_mutex_lock(&r->lock);
  r->begun = r->made;
  while (r->running > 0) pthread_cond_wait(&r->done, &r->lock);
  r->begun = r->made = r->taken = 0;
  pthread_mutex_unlock(&r->lock);
  for (int i = 0; i < r->ring; i++) {
    failure_drop(r->job[i].failure);
    r->job[i].failure = NULL;
  }
  r->next = 0;
  r->at = r->begin;
  if (r->order) mix_seed(r);
  return TY_OK;
}

static void close_images(struct reader *reader)
{
  struct image_record *r = (struct image_record *)reader;
  pthread_mutex_lock(&r->lock);
  r->quit = true;
  pthread_cond_broadcast(&r->work);
  pthread_mutex_unlock(&r->lock);
  for (int i = 0; i < r->started; i++) pthread_join(r->thread[i], NULL);
  for (int i = 0; r->job && i < r->ring; i++) {
    failure_drop(r->job[i].failure);
    mem_free(r->job[i].data);
    mem_free(r->job[i].label);
  }
  record_file_close(&r->file);
  pthread_cond_destroy(&r->work);
  pthread_cond_destroy(&r->done);
  pthread_mutex_destroy(&r->lock);
  augment_close(&r->augment);
  det_augment_close(&r->det);
  label_list_free(&r->labels);
  void *rest[] = { r->job, r->offset, r->order, r };
  for (int i = 0; i < COUNT(rest); i++) mem_free(rest[i]);
}

/* -- opening ----------------------------------------------------------------------------------- */

static int find_images(struct image_record *r, const struct options *o)
{
  int64_t parts, index;
  bool shuffle;
  const char *path = option_text(o, "path_imgidx", "");
  TRY(option_part(o, &parts, &index));
  TRY(option_bool(o, "shuffle", false, &shuffle));
  TRY(*path ? read_index(r, path, parts, index) : find_part(r, parts, index));
  if (shuffle && !*path) TRY(list_records(r));
  if (shuffle && r->offset) {
    r->order = NEWS(int64_t, r->count);
    if (!r->order) return TY_EMEMORY;
  }
  path = option_text(o, "path_imglist", "");
  r->listed = *path != 0;
  if (r->listed) TRY(label_list_read(path, MAX(r->width, 0), &r->labels));
  return r->boxes ? make_label_space(r, o) : TY_OK;
}

static int read_shapes(struct image_record *r, const struct options *o)
{
  int dtype;
  int64_t seed;
  TRY(option_shape(o, "data_shape", NULL, &r->base.data));
  TRY(dtype_parse(option_text(o, "dtype", "float32"), &dtype));
  NEED(dtype == TY_F32 || dtype == TY_U8 || (dtype == TY_I8 && !r->boxes), TY_EDTYPE,
      "dtype is %s, expected float32%s or uint8", dtype_name(dtype), r->boxes ? "" : ", int8");
  r->base.data.dtype = dtype;
  TRY(option_int(o, "label_width", r->boxes ? -1 : 1, r->boxes ? -1 : 1, &r->width));
  NEED(r->width <= 1 << 20, TY_EVALUE, "label_width is %lld, at most 1048576 are possible",
      (long long)r->width);
  r->base.label = (ty_desc){ .dtype = TY_F32, .ndim = 1, .dim = { r->width } };
  TRY(option_int(o, "seed", 0, INT64_MIN, &seed));
  r->seed = (uint64_t)seed;
  TRY(option_int(o, "seed_aug", seed, INT64_MIN, &seed));
  r->seed_aug = (uint64_t)seed;
  return r->boxes ? det_augment_open(o, &r->base.data, dtype, &r->det)
                  : augment_open(o, &r->base.data, dtype, &r->augment);
}

static int start_workers(struct image_record *r, const struct options *o)
{
  int64_t threads;
  TRY(option_int(o, "preprocess_threads", 4, 1, &threads));
  r->threads = (int)MIN(threads, MOST_THREADS);
  r->ring = 2 * r->threads + 2;
  r->job = NEWS(struct decode_job, r->ring);
  if (!r->job) return TY_EMEMORY;
  for (int i = 0; i < r->ring; i++) {
    r->job[i].data = mem_new(desc_bytes(&r->base.data));
    r->job[i].label = mem_new(desc_bytes(&r->base.label));
    if (!r->job[i].data || !r->job[i].label) return TY_EMEMORY;
  }
  for (; r->started < r->threads; r->started++)
    NEED(sys_thread(&r->thread[r->started], worker_run, r) == 0, TY_EMEMORY,
        "cannot start a thread of an iterator");
  return TY_OK;
}

static int set_up(struct image_record *r, const struct options *o)
{
  TRY(read_shapes(r, o));
  TRY(record_file_open(&r->file, option_text(o, "path_imgrec", "")));
  TRY(find_images(r, o));
  TRY(option_int(o, "first_epoch", 0, 0, &r->base.epoch));
  TRY(start_workers(r, o));
  return rewind_images(&r->base);
}

static int open_record(
    const struct options *o, const struct reader_kind *kind, bool boxes, struct reader **out)
{
  struct image_record *r = NEW(struct image_record);
  if (!r) return TY_EMEMORY;
  r->base.kind = kind;
  r->boxes = boxes;
  r->file.fd = -1;
  pthread_mutex_init(&r->lock, NULL);
  pthread_cond_init(&r->work, NULL);
  pthread_cond_init(&r->done, NULL);
  int code = set_up(r, o);
  if (code != TY_OK) {
    close_images(&r->base);
    return code;
  }
  *out = &r->base;
  return TY_OK;
}

static int open_images(const struct options *o, struct reader **out)
{
  return open_record(o, &reader_image_record, false, out);
}

static int open_boxes(const struct options *o, struct reader **out)
{
  return open_record(o, &reader_image_det_record, true, out);
}

const struct reader_kind reader_image_record = { "image_record", open_images, next_image,
  rewind_images, close_images, .silent = true };
const struct reader_kind reader_image_det_record = { "image_det_record", open_boxes, next_image,
  rewind_images, close_images };

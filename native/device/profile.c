/* profile.c - the profiler: a list of events, sums per label, and the trace file.
**
** Events come from queue threads (operators, by exec/profile.c and imperative/call.c), from the
** allocator (bytes in use) and from the front end (its own tasks, frames, counters and marks).
** Everything is done under one lock. Labels are interned, so an event takes 40 bytes. Sums per
** label are updated with each event, so the list may be written and dropped at any time. The file
** is a Chrome trace: spans of one thread as B and E pairs that nest, tasks as b and e, counters as
** C, marks as i; pid is the device (PIDS below), tid a number per thread. After each dump it is
** valid JSON: the next dump overwrites the closing bracket. Without events no file is written.
*/
#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/json.h"
#include "base/system.h"
#include "device/profile.h"
#include "device/queue.h"

enum {
  MAX_EVENTS = 1 << 22,  /* most events kept; later ones are counted as lost */
  BATCH      = 1 << 14,  /* events between two checks of the period of continuous dumping */
  PIDS       = SLOTS + 1 /* slots of devices, then the host */
};
enum { SPAN, TASK, COUNTER, MARK }; /* as TY_PROFILE_SPAN .. */

struct label {
  char *category, *name, *node, *kernel;
  int kind;
  ty_profile_sum sum;
};
struct event { int32_t kind, label, pid, tid; int64_t bytes, from, to; };

int profile_what;
static pthread_mutex_t profile_lock = PTHREAD_MUTEX_INITIALIZER;
static struct label *labels;
static int nlabel, label_cap;
/* Hash table of label indices + 1, at most half full. */
static int *table;
static int table_size;                                /* a power of two */
static struct event *events;
static int nevent, event_cap;
static int64_t lost;                                  /* events dropped: too many or too deep */
static int64_t origin;                                /* ns; time 0 of the file */
static struct file {
  char *path;
  int64_t period;                                     /* ns between dumps; 0: not continuous */
  int64_t last;                                       /* ns; time of the last dump */
  int64_t tail;                                       /* offset of the next event */
  bool open;                                          /* the file exists */
  bool named[PIDS];                                   /* the device's name has been written */
} file;

int64_t profile_now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Returns the number of the caller's thread, from 1. */
static int profile_thread_number(void)
{
  static int threads;
  static __thread int mine;
  if (!mine) mine = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
  return mine;
}

/* -- labels ------------------------------------------------------------------------------------ */

/* Adds a text with its end to a hash (FNV-1a). */
static uint64_t hash_mix(uint64_t h, const char *s)
{
  do h = (h ^ (uint8_t)*s) * 0x100000001B3u;
  while (*s++);
  return h;
}

/* Returns the table's entry of a label, or the free entry where it belongs. */
static int *label_find_entry(const struct profile_label *l)
{
  uint64_t h = hash_mix(0xCBF29CE484222325u + (uint64_t)l->kind, l->category);
  h = hash_mix(hash_mix(hash_mix(h, l->name), l->node), l->kernel);
  for (;; h++) {
    int *at = &table[h & (uint64_t)(table_size - 1)];
    if (!*at) return at;
    const struct label *a = &labels[*at - 1];
    if (a->kind == l->kind && !strcmp(a->name, l->name) && !strcmp(a->node, l->node) &&
        !strcmp(a->kernel, l->kernel) && !strcmp(a->category, l->category))
      return at;
  }
}

/* Copies a label to the end of the list. Returns its index; -1: out of memory. */
static int label_add(const struct profile_label *l)
{
  if (!GROW(labels, nlabel, label_cap)) return -1;
  struct label a = { mem_text(l->category), mem_text(l->name), mem_text(l->node),
    mem_text(l->kernel), l->kind, { 0 } };
  if (!a.category || !a.name || !a.node || !a.kernel) {
    mem_free(a.category);
    mem_free(a.name);
    mem_free(a.node);
    mem_free(a.kernel);
    return -1;
  }
  labels[nlabel] = a;
  return nlabel++;
}

/* Returns the index of a label, adding it at its first use; -1: out of memory. Call under
** profile_lock. */
static int label_get(const struct profile_label *l)
{
  if (2 * (nlabel + 1) > table_size) {
    int size = table_size ? 2 * table_size : 256, *old = table, *new = NEWS(int, size);
    if (!new) return -1;
    table = new;
    table_size = size;
    for (int i = 0; i < nlabel; i++) {
      const struct label *a = &labels[i];
      struct profile_label copy = { a->category, a->name, a->node, a->kernel, a->kind };
      *label_find_entry(&copy) = i + 1;
    }
    mem_free(old);
  }
  int *at = label_find_entry(l), i = *at - 1;
  if (i < 0 && (i = label_add(l)) >= 0) *at = i + 1;
  return i;
}

/* -- the file ---------------------------------------------------------------------------------- */

/* Orders events by thread, then by when they begin, outer ones first. */
static int event_compare(const void *a, const void *b)
{
  const struct event *x = a, *y = b;
  if (x->pid != y->pid) return x->pid < y->pid ? -1 : 1;
  if (x->tid != y->tid) return x->tid < y->tid ? -1 : 1;
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  return x->to > y->to ? -1 : x->to < y->to;
}

/* Prints the fields that all phases of an event have in common. */
static void event_print_head(struct text *t, const struct event *e, const char *phase, int64_t at)
{
  const struct label *l = &labels[e->label];
  text_add(t, "%s\n{\"name\": ", t->n ? "," : "");
  json_quote(t, l->name);
  text_add(t, ", \"cat\": ");
  json_quote(t, l->category);
  text_add(t, ", \"ph\": \"%s\", \"ts\": %.3f, \"pid\": %d, \"tid\": %d", phase,
      (double)(at - origin) / 1e3, e->pid, e->tid);
}

static void event_print_end(struct text *t, const struct event *e)
{
  event_print_head(t, e, "E", e->to);
  text_add(t, "}");
}

static void event_print_begin(struct text *t, const struct event *e)
{
  const struct label *l = &labels[e->label];
  event_print_head(t, e, "B", e->from);
  text_add(t, ", \"args\": {");
  const char *between = "";
  if (*l->node) {
    text_add(t, "\"node\": ");
    json_quote(t, l->node);
    between = ", ";
  }
  if (*l->kernel) {
    text_add(t, "%s\"kernel\": ", between);
    json_quote(t, l->kernel);
    between = ", ";
  }
  if (e->bytes) text_add(t, "%s\"bytes\": %lld", between, (long long)e->bytes);
  text_add(t, "}}");
}

/* Prints the name of a device's lane, once per file. */
static void profile_print_process(struct text *t, int pid)
{
  if (file.named[pid]) return;
  file.named[pid] = true;
  int device = slot_device(pid), kind = device_kind(device);
  const char *what = kind == TY_GPU ? "gpu"
      : kind == COMM_QUEUE          ? "comm"
      : kind == COLLECTIVE_QUEUE    ? "collective"
                                    : "cpu";
  text_add(t,
      "%s\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": %d, \"args\": {\"name\": \"",
      t->n ? "," : "", pid);
  if (pid == SLOTS)
    text_add(t, "host\"}}");
  else
    text_add(t, "%s/%d\"}}", what, device_id(device));
}

/* Prints all events: spans of one thread as brackets that nest, the others in between. */
static void profile_print_events(struct text *t)
{
  enum { DEPTH = 64 };
  int open[DEPTH], depth = 0;
  static int ids;
  qsort(events, (size_t)nevent, sizeof *events, event_compare);
  for (int i = 0; i < nevent; i++) {
    const struct event *e = &events[i];
    while (depth &&
        (events[open[depth - 1]].to <= e->from || events[open[depth - 1]].tid != e->tid ||
            events[open[depth - 1]].pid != e->pid))
      event_print_end(t, &events[open[--depth]]);
    profile_print_process(t, e->pid);
    switch (e->kind) {
    case SPAN:
      if (depth == DEPTH) {
        lost++;
        break;
      }
      event_print_begin(t, e);
      open[depth++] = i;
      break;
    case TASK:
      event_print_head(t, e, "b", e->from);
      text_add(t, ", \"id\": %d}", ids);
      event_print_head(t, e, "e", e->to);
      text_add(t, ", \"id\": %d}", ids++);
      break;
    case COUNTER:
      event_print_head(t, e, "C", e->from);
      text_add(t, ", \"args\": {\"value\": %lld}}", (long long)e->bytes);
      break;
    default:
      event_print_head(t, e, "i", e->from);
      text_add(t, ", \"s\": \"%s\"}", e->bytes == 0 ? "g" : e->bytes == 1 ? "p" : "t");
    }
  }
  while (depth) event_print_end(t, &events[open[--depth]]);
}

static const char *profile_path(void) { return file.path ? file.path : "profile.json"; }

/* Writes `before`, a text and the end of the document at an offset of the trace file. */
static bool profile_write_text(FILE *f, int64_t at, const char *before, const struct text *t)
{
  return !fseek(f, (long)at, SEEK_SET) && fputs(before, f) >= 0 &&
      fwrite(t->s, 1, t->n, f) == t->n &&
      fprintf(f, "\n], \"displayTimeUnit\": \"ms\", \"otherData\": {\"lost\": \"%lld\"}}\n",
          (long long)lost) > 0 &&
      !fflush(f);
}

/* Restores the trace file after a failed write: removes it if it was new. */
static void profile_restore_file(void)
{
  const struct text nothing = { .s = "" };
  struct stat st;
  if (stat(profile_path(), &st) || !S_ISREG(st.st_mode)) return; /* a device or a pipe stays */
  if (!file.open) {
    unlink(profile_path());
    return;
  }
  FILE *f = NULL;
  if (!sys_truncate(profile_path(), (off_t)file.tail)) f = sys_fopen(profile_path(), "r+b");
  if (!f) return;
  profile_write_text(f, file.tail, "", &nothing);
  fclose(f);
}

/* Writes all events and drops them; if that fails, they stay for the next time. Call under
** profile_lock. */
static int profile_write_events(void)
{
  struct text t = { 0 };
  if (!nevent) return TY_OK;
  FILE *f = file.open ? sys_fopen(profile_path(), "r+b") : NULL;
  if (!f) {
    file.open = false; /* it was removed: begin a new one */
    memset(file.named, 0, sizeof file.named);
    f = sys_fopen(profile_path(), "wb");
  }
  if (!f)
    return fail(TY_EIO, "cannot write the profile to %s: %s", profile_path(), strerror(errno));
  const struct file old = file;
  const int64_t old_lost = lost, at = file.open ? file.tail : 0;
  const char *before = file.open ? "," : "{\"traceEvents\": [";
  profile_print_events(&t);
  bool good = !t.lost && profile_write_text(f, at, before, &t);
  int error = errno;
  if (fclose(f) && good) good = false, error = errno;
  int code = TY_OK;
  if (t.lost) code = fail(TY_EMEMORY, "out of memory: profile");
  else if (!good)
    code = fail(TY_EIO, "cannot write the profile to %s: %s", profile_path(), strerror(error));
  if (code) {
    file = old;
    lost = old_lost;
    profile_restore_file();
  } else {
    file.open = true;
    file.tail = at + (int64_t)(strlen(before) + t.n);
    nevent = 0;
  }
  text_done(&t);
  return code;
}

/* -- recording --------------------------------------------------------------------------------- */

/* Adds an event, and `counted` to the sums of its label. */
static void profile_record(const struct profile_label *of, struct event e, int64_t counted)
{
#define TEXT(part) of->part ? of->part : ""
  struct profile_label l = { TEXT(category), TEXT(name), TEXT(node), TEXT(kernel), e.kind };
#undef TEXT
  pthread_mutex_lock(&profile_lock);
  e.label = label_get(&l);
  if (e.label >= 0) {
    ty_profile_sum *s = &labels[e.label].sum;
    s->min = s->count ? MIN(s->min, counted) : counted;
    s->max = s->count ? MAX(s->max, counted) : counted;
    s->total += counted;
    s->count++;
  }
  if (e.label < 0 || nevent >= MAX_EVENTS || !GROW(events, nevent, event_cap))
    lost++;
  else {
    if (!origin) origin = e.from;
    events[nevent++] = e;
    bool due = nevent % BATCH == 0 && e.to - file.last > file.period;
    if (file.period && (nevent >= MAX_EVENTS || due)) {
      file.last = e.to;
      profile_write_events(); /* a failure is tried again with the next batch */
    }
  }
  pthread_mutex_unlock(&profile_lock);
}

static int profile_pid(int device) { return device < 0 ? SLOTS : device_slot(device); }

void profile_span(
    const struct profile_label *l, int device, int64_t bytes, int64_t from, int64_t to)
{
  profile_record(l,
      (struct event){ SPAN, 0, profile_pid(device), profile_thread_number(), bytes, from, to },
      to - from);
}

void profile_wait(int device, int other, int64_t from)
{
  char where[32], name[64];
  snprintf(name, sizeof name, "wait for %s", device_name(other, where, sizeof where));
  struct profile_label l = { .category = "wait", .name = name };
  profile_span(&l, device, 0, from, profile_now());
}

void profile_counter(const char *category, const char *name, int device, int64_t value)
{
  struct profile_label l = { category, name, "", "", 0 };
  int64_t now = profile_now();
  profile_record(&l,
      (struct event){ COUNTER, 0, profile_pid(device), profile_thread_number(), value, now, now },
      value);
}

void profile_call(const char *name, int64_t from)
{
  struct profile_label l = { "api", name, "", "", 0 };
  if (from) profile_span(&l, PROFILE_HOST, 0, from, profile_now());
}

/* -- the public functions ---------------------------------------------------------------------- */

int ty_profile(int what, int *before)
{
  NEED(what >= -1 && what <= TY_PROFILE_ALL, TY_EVALUE,
      "profile: %d; expected bits of TY_PROFILE_ALL, or -1 to ask", what);
  int was = __atomic_load_n(&profile_what, __ATOMIC_RELAXED);
  if (what >= 0) was = __atomic_exchange_n(&profile_what, what, __ATOMIC_RELAXED);
  if (before) *before = was;
  return TY_OK;
}

/* Sets the file for later events. Earlier ones are written to the old file if it exists. */
int ty_profile_file(const char *path, int64_t period)
{
  NEED(path && *path && period >= 0, TY_EVALUE, "profile: no file name");
  char *copy = mem_text(path);
  NEED(copy, TY_EMEMORY, "out of memory");
  pthread_mutex_lock(&profile_lock);
  int code = file.open ? profile_write_events() : TY_OK;
  mem_free(file.path);
  file = (struct file){ .path = copy, .period = period, .last = profile_now() };
  struct stat st;
  if (!stat(path, &st) && S_ISREG(st.st_mode)) unlink(path); /* a device or a pipe stays */
  pthread_mutex_unlock(&profile_lock);
  return code;
}

int ty_profile_dump(int finished)
{
  pthread_mutex_lock(&profile_lock);
  int code = profile_write_events();
  pthread_mutex_unlock(&profile_lock);
  if (finished) __atomic_store_n(&profile_what, 0, __ATOMIC_RELAXED);
  return code;
}

int ty_profile_add(int kind, const char *category, const char *name, int64_t from, int64_t to)
{
  NEED(kind >= TY_PROFILE_SPAN && kind <= TY_PROFILE_MARK && category && name, TY_EVALUE,
      "profile: bad event");
  if (!profile_is_on(TY_PROFILE_ALL)) return TY_OK;
  struct profile_label l = { category, name, "", "", 0 };
  bool timed = kind == TY_PROFILE_SPAN || kind == TY_PROFILE_TASK;
  int64_t now = timed ? 0 : profile_now();
  struct event e = { kind, 0, SLOTS, profile_thread_number(), timed ? 0 : from, timed ? from : now,
    timed ? MAX(from, to) : now };
  profile_record(&l, e, timed ? e.to - e.from : from);
  return TY_OK;
}

int64_t ty_profile_now(void) { return profile_now(); }

int ty_profile_sums(int i, ty_profile_sum *out)
{
  NEED(out, TY_ETYPE, "profile: null argument");
  pthread_mutex_lock(&profile_lock);
  int n = nlabel;
  if (i >= 0 && i < n) { /* borrowing texts is safe: labels are never dropped */
    const struct label *l = &labels[i];
    *out = l->sum;
    out->category = l->category;
    out->name = l->name;
    out->node = l->node;
    out->kernel = l->kernel;
    out->kind = l->kind;
  }
  pthread_mutex_unlock(&profile_lock);
  return i >= 0 && i < n ? TY_OK : fail(TY_EINDEX, "profile: label %d of %d", i, n);
}

int ty_profile_reset(void)
{
  pthread_mutex_lock(&profile_lock);
  for (int i = 0; i < nlabel; i++) labels[i].sum = (ty_profile_sum){ 0 };
  pthread_mutex_unlock(&profile_lock);
  return TY_OK;
}

__attribute__((constructor)) static void profile_start(void)
{
  if (env_number("TYCHO_PROFILE", 0)) profile_what = TY_PROFILE_ALL;
}

void profile_close(void)
{
  if (ty_profile_dump(1)) fprintf(stderr, "tycho: %s\n", ty_error());
}

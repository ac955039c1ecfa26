/* base.c - errors, memory, text, counters and the interrupt flag: what every other file of the
** core stands on.
**
** A failure is built in fixed thread-local buffers, so that telling "out of memory" needs no
** memory; failure_take copies it to the heap for a queue thread that must hand it to whoever
** waits. Every TY_EMEMORY text ends in the memory report of the allocation that failed. Nothing
** here knows devices: the bytes of tensors are counted by device/device.c.
*/
#include <ctype.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include "base/base.h"

/* -- errors ------------------------------------------------------------------------------------ */

struct parts {
  int  code;
  char op[128], node[256], argument[128], where[256], expected[512], got[512], message[2048];
};
static __thread struct parts now;
static __thread char memory_report[256];              /* of this thread's last refused allocation */

struct failure { struct parts parts; int refs, told; uint64_t epoch; };
/* taken when there is no memory for a failure of its own */
static struct failure spare = { .refs = 1 << 30 };
static uint64_t interrupts;                           /* grows when the interrupt flag is cleared */

static void part(char *to, size_t size, const char *text)
{
  if (text && *text && !*to) snprintf(to, size, "%s", text);
}

int fail(int code, const char *format, ...)
{
  char text[sizeof now.message];
  va_list a;
  va_start(a, format);
  vsnprintf(text, sizeof text, format, a); /* first: arguments may point into the current failure */
  va_end(a);
  memset(&now, 0, offsetof(struct parts, message));
  now.op[0] = now.node[0] = now.argument[0] = now.where[0] = now.expected[0] = now.got[0] = 0;
  now.code = code;
  bool report = code == TY_EMEMORY && *memory_report && !strstr(text, memory_report);
  size_t n = strlen(text);
  memcpy(now.message, text, n + 1);
  if (report)
    snprintf(now.message + n, sizeof now.message - n, "%s%s", n ? "; " : "", memory_report);
  return code;
}

void fail_node(const char *op, const char *node, const char *where)
{
  part(now.op, sizeof now.op, op);
  part(now.node, sizeof now.node, node);
  part(now.where, sizeof now.where, where);
}

void fail_argument(const char *argument, const char *expected, const char *got)
{
  part(now.argument, sizeof now.argument, argument);
  part(now.expected, sizeof now.expected, expected);
  part(now.got, sizeof now.got, got);
}

const char *ty_error(void) { return now.message; }

int ty_error_detail(ty_failure *out)
{
  NEED(out, TY_ETYPE, "ty_error_detail: out is missing");
  const char *text[] = { now.op, now.node, now.argument, now.where, now.expected, now.got };
  for (int i = 0; i < COUNT(text); i++)
    if (!*text[i]) text[i] = NULL;
  *out = (ty_failure){ text[0], text[1], text[2], text[3], text[4], text[5], now.message, now.code,
    0 };
  return TY_OK;
}

struct failure *failure_take(int code)
{
  struct failure *f = malloc(sizeof *f);
  if (!f) {
    f = &spare;
    __atomic_store_n(&f->told, 0, __ATOMIC_RELEASE);
    f->parts.code = code;
    return f;
  }
  *f = (struct failure){
    .parts = now, .refs = 1, .epoch = __atomic_load_n(&interrupts, __ATOMIC_ACQUIRE)
  };
  f->parts.code = code;
  return f;
}

struct failure *failure_keep(struct failure *f)
{
  if (f) __atomic_add_fetch(&f->refs, 1, __ATOMIC_RELAXED);
  return f;
}

void failure_drop(struct failure *f)
{
  if (f && f != &spare && __atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL) == 0) free(f);
}

/* An interruption that has been dealt with (the flag is clear again) is nobody's news any more. */
bool failure_told(const struct failure *f)
{
  if (__atomic_load_n(&f->told, __ATOMIC_ACQUIRE)) return true;
  return f->parts.code == TY_EINTERRUPTED &&
      f->epoch != __atomic_load_n(&interrupts, __ATOMIC_ACQUIRE);
}

void failure_void(struct failure *f) { __atomic_store_n(&f->told, 1, __ATOMIC_RELEASE); }

int failure_tell(struct failure *f)
{
  now = f->parts;
  if (!*now.message) snprintf(now.message, sizeof now.message, "out of memory while a task failed");
  failure_void(f);
  return now.code;
}

/* -- memory ------------------------------------------------------------------------------------ */

/* smaller blocks are never refused on behalf of the limit */
enum { SMALL = 65536 };
static int64_t host_bytes;
static __thread uint64_t calls;

uint64_t mem_count(void) { return calls; }
int64_t  mem_bytes(void) { return __atomic_load_n(&host_bytes, __ATOMIC_RELAXED); }

int64_t mem_limit(void)
{
  static int64_t limit = -1; /* 0: none */
  int64_t n = __atomic_load_n(&limit, __ATOMIC_RELAXED);
  if (n >= 0) return n;
  n = MAX(env_number("TYCHO_MEM_LIMIT", 0), 0);
  __atomic_store_n(&limit, n, __ATOMIC_RELAXED);
  return n;
}

int fail_memory(const char *place, size_t wanted, int64_t used, int64_t cached)
{
  char limit[32] = "none";
  if (mem_limit()) snprintf(limit, sizeof limit, "%lld", (long long)mem_limit());
  snprintf(memory_report, sizeof memory_report,
      "%s: %zu bytes wanted, %lld in use, %lld kept for reuse, limit %s, %lld live tensors, %lld executors",
      place, wanted, (long long)used, (long long)cached, limit, (long long)ty_live("tensor"),
      (long long)ty_live("exec"));
  return fail(TY_EMEMORY, "out of memory");
}

static bool admitted(size_t bytes)
{
  int64_t limit = mem_limit();
  return bytes < SIZE_MAX / 2 && (bytes < SMALL || !limit || mem_bytes() + (int64_t)bytes <= limit);
}

static void counted(void *p, int sign)
{
  __atomic_add_fetch(&host_bytes, sign * (int64_t)malloc_usable_size(p), __ATOMIC_RELAXED);
}

void *mem_new(size_t bytes)
{
  void *p = admitted(bytes) ? calloc(1, bytes ? bytes : 1) : NULL;
  if (!p) return fail_memory("host", bytes, mem_bytes(), 0), NULL;
  counted(p, 1);
  calls++;
  return p;
}

void *mem_grow(void *p, size_t bytes)
{
  if (!p) return mem_new(bytes);
  if (!admitted(bytes)) return fail_memory("host", bytes, mem_bytes(), 0), NULL;
  int64_t old = (int64_t)malloc_usable_size(p);
  void *q = realloc(p, bytes ? bytes : 1);
  if (!q) return fail_memory("host", bytes, mem_bytes(), 0), NULL;
  __atomic_add_fetch(&host_bytes, (int64_t)malloc_usable_size(q) - old, __ATOMIC_RELAXED);
  calls++;
  return q;
}

void mem_free(void *p)
{
  if (!p) return;
  counted(p, -1);
  free(p);
}

char *mem_text(const char *s)
{
  size_t n = strlen(s) + 1;
  char *copy = mem_new(n);
  return copy ? memcpy(copy, s, n) : NULL;
}

bool grow_array(void **p, int n, int *cap, size_t size)
{
  if (n < *cap) return true;
  int more = *cap ? *cap * 2 : 8;
  if (*cap > 1 << 29) return fail(TY_EMEMORY, "out of memory: array of %d elements", *cap), false;
  void *q = mem_grow(*p, (size_t)more * size);
  if (!q) return false;
  *p = q;
  *cap = more;
  return true;
}

/* Blocks double in size up to 64 KB, so that a small graph costs one kilobyte and a large one
** few blocks. What is larger than the next one has a block of its own, behind the one that is
** being filled. */
struct arena_block { struct arena_block *next; size_t used, size; _Alignas(16) char bytes[]; };

void *arena_new(struct arena *a, size_t bytes)
{
  if (bytes > SIZE_MAX / 4) return fail_memory("host", bytes, mem_bytes(), 0), NULL;
  bytes = align_up(bytes ? bytes : 1, 16);
  struct arena_block *b = a->head;
  if (!b || b->size - b->used < bytes) {
    size_t size = b ? MIN(b->size * 2, SMALL - sizeof *b) : 1024 - sizeof *b;
    struct arena_block *more = mem_new(sizeof *more + MAX(size, bytes)),
                       **at = b && bytes > size ? &b->next : &a->head;
    if (!more) return NULL;
    more->size = MAX(size, bytes);
    more->next = *at;
    *at = b = more;
  }
  b->used += bytes;
  return b->bytes + b->used - bytes;
}

char *arena_text(struct arena *a, const char *s)
{
  size_t n = strlen(s) + 1;
  char *copy = arena_new(a, n);
  return copy ? memcpy(copy, s, n) : NULL;
}

void arena_done(struct arena *a)
{
  for (struct arena_block *b = a->head, *next; b; b = next) {
    next = b->next;
    mem_free(b);
  }
  a->head = NULL;
}

/* -- text -------------------------------------------------------------------------------------- */

static bool room(struct text *t, size_t n)
{
  if (t->lost) return false;
  if (t->cap - t->n > n) return true;
  size_t cap = MAX(t->cap * 2, t->n + n + 64);
  char *s = mem_grow(t->s, cap);
  if (!s) return t->lost = true, false;
  t->s = s;
  t->cap = cap;
  return true;
}

void text_put(struct text *t, const char *s, size_t n)
{
  if (!room(t, n)) return;
  memcpy(t->s + t->n, s, n);
  t->n += n;
  t->s[t->n] = 0;
}

void text_add(struct text *t, const char *format, ...)
{
  va_list a, again;
  va_start(a, format);
  va_copy(again, a);
  int n = vsnprintf(NULL, 0, format, a);
  if (n >= 0 && room(t, (size_t)n)) {
    vsnprintf(t->s + t->n, t->cap - t->n, format, again);
    t->n += (size_t)n;
  }
  va_end(again);
  va_end(a);
}

void text_done(struct text *t)
{
  mem_free(t->s);
  *t = (struct text){ 0 };
}

const char *text_shape(const ty_desc *d, char *buffer, size_t size)
{
  if (d->ndim <= 0) return snprintf(buffer, size, "(?)"), buffer;
  size_t n = 0;
  for (int i = 0; i < d->ndim && i < TY_MAXDIM && n < size; i++) {
    char dim[24] = "?";
    if (d->dim[i]) snprintf(dim, sizeof dim, "%lld", (long long)d->dim[i]);
    n += (size_t)snprintf(buffer + n, size - n, "%s%s", i ? ", " : "(", dim);
  }
  if (n < size) snprintf(buffer + n, size - n, d->ndim == 1 ? ",)" : ")");
  return buffer;
}

/* Edit distance with neighbouring letters swapped as one step; another case of the same letter
** costs a quarter, a separator a half, so that "fullyconnected" and "fully_connected" are near
** "FullyConnected". */
static double change(char a, char b)
{
  if (a == b) return 0;
  return tolower((unsigned char)a) == tolower((unsigned char)b) ? 0.25 : 1;
}

static double gap(char c) { return c == '_' || c == '-' || c == ' ' ? 0.5 : 1; }

double name_distance(const char *a, const char *b)
{
  enum { LONG = 64 };
  double row[3][LONG + 1];
  int na = (int)MIN(strlen(a), LONG), nb = (int)MIN(strlen(b), LONG);
  double *old = row[0], *last = row[1], *next = row[2];
  last[0] = 0;
  for (int j = 1; j <= nb; j++) last[j] = last[j - 1] + gap(b[j - 1]);
  for (int i = 1; i <= na; i++) {
    next[0] = last[0] + gap(a[i - 1]);
    for (int j = 1; j <= nb; j++) {
      double d = MIN(last[j] + gap(a[i - 1]), next[j - 1] + gap(b[j - 1]));
      d = MIN(d, last[j - 1] + change(a[i - 1], b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d = MIN(d, old[j - 2] + 1);
      next[j] = d;
    }
    double *t = old;
    old = last;
    last = next;
    next = t;
  }
  return last[nb];
}

/* -- live objects and environment -------------------------------------------------------------- */

static const char *const kinds[LIVE_KINDS] = { "tensor", "graph", "exec", "pool", "iter", "bag", "storage" };
static int64_t counts[LIVE_KINDS], native_bytes;

void live(int kind, int by) { __atomic_add_fetch(&counts[kind], by, __ATOMIC_RELAXED); }
void live_bytes(int64_t by) { __atomic_add_fetch(&native_bytes, by, __ATOMIC_RELAXED); }

int64_t ty_live(const char *kind)
{
  if (kind && !strcmp(kind, "bytes")) return __atomic_load_n(&native_bytes, __ATOMIC_RELAXED);
  for (int i = 0; kind && i < LIVE_KINDS; i++)
    if (!strcmp(kind, kinds[i])) return __atomic_load_n(&counts[i], __ATOMIC_RELAXED);
  return -1;
}

const char *env_text(const char *name, const char *otherwise)
{
  const char *s = getenv(name);
  return s && *s ? s : otherwise;
}

/* "4096", "64k", "2G"; text that is no number counts as unset. */
int64_t env_number(const char *name, int64_t otherwise)
{
  const char *s = env_text(name, NULL);
  if (!s) return otherwise;
  char *end;
  errno = 0;
  long long n = strtoll(s, &end, 10);
  static const char units[] = "kmgt";
  const char *unit = end != s && *end ? strchr(units, tolower((unsigned char)*end)) : NULL;
  int shift = unit ? (int)(unit - units + 1) * 10 : 0;
  int64_t most = INT64_MAX >> shift;
  if (end == s || errno || (*end && (!unit || end[1])) || n > most || n < -most) return otherwise;
  return n * (1ll << shift);
}

bool env_disabled(const char *what)
{
  const char *s = env_text("TYCHO_DISABLE", "");
  for (size_t n = strlen(what); *s; s += strcspn(s, ","), s += *s == ',') {
    s += strspn(s, " ");
    size_t word = strcspn(s, ", ");
    if (word == n && !strncmp(s, what, n)) return true;
  }
  return false;
}

/* -- interruption ------------------------------------------------------------------------------ */

static int interrupt, watchers;
static struct sigaction before;
static pthread_mutex_t watch = PTHREAD_MUTEX_INITIALIZER;

bool interrupted(void) { return __atomic_load_n(&interrupt, __ATOMIC_RELAXED); }

int ty_interrupt(int set)
{
  int was = __atomic_exchange_n(&interrupt, set != 0, __ATOMIC_ACQ_REL);
  if (was && !set) __atomic_add_fetch(&interrupts, 1, __ATOMIC_ACQ_REL);
  return TY_OK;
}

static void signalled(int number)
{
  (void)number;
  __atomic_store_n(&interrupt, 1, __ATOMIC_RELAXED);
}

int ty_interrupt_watch(int on)
{
  int code = 0;
  pthread_mutex_lock(&watch);
  struct sigaction ours = { .sa_handler = signalled, .sa_flags = SA_RESTART };
  sigemptyset(&ours.sa_mask);
  if (on && watchers++ == 0) code = sigaction(SIGINT, &ours, &before);
  if (!on && watchers > 0 && --watchers == 0) code = sigaction(SIGINT, &before, NULL);
  pthread_mutex_unlock(&watch);
  NEED(!code, TY_EINTERNAL, "cannot set the handler of SIGINT: %s", strerror(errno));
  return TY_OK;
}

/* -- edition ----------------------------------------------------------------------------------- */

int         ty_abi(void) { return TY_ABI; }
const char *ty_version(void) { return "0.1.0"; }

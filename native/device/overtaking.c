/* overtaking.c - tasks that run before earlier ones of their queue.
**
** Strict order costs time in two cases. While the head of a CPU's queue waits for a message, say an
** update of weights for the sum of their gradients over the ranks, later tasks that do not depend
** on it can run: the next forward, whose first layers have their weights already. And of several
** messages that are ready, the one that is needed first should go first (task.choose).
**
** A task may overtake earlier ones if it waits for no other queue, reads nothing that they write,
** writes nothing that they read or write, and is not `in_order` like one of them. A scan walks the
** queue from its head and notes the accesses of the tasks it has passed in a hash table by storage.
** Entries of earlier scans count as free.
*/
#include "device/queue_state.h"

enum {
  ACCESSES    = 8192,         /* entries of the table of accesses; a power of two */
  MAX_USED    = ACCESSES / 2, /* entries in use at most */
  SCAN_TASKS  = 512,          /* tasks that a scan looks at, at most */
  CANDIDATES  = 64            /* tasks that `choose` gets to choose from, at most */
};

/* -- what tasks access ------------------------------------------------------------------------- */

struct scan {
  struct queue *q;
  int used;                                           /* entries of the table */
  bool in_order;                                      /* one of the tasks so far is */
};

/* Returns the table's entry of a storage, or the free entry where it belongs. */
static struct noted_access *scan_find_access(const struct scan *l, const struct storage *s)
{
  size_t at = (size_t)(((uintptr_t)s >> 4) * 0x9E3779B97F4A7C15u >> 40);
  for (;; at++) {
    struct noted_access *t = &l->q->accesses[at & (ACCESSES - 1)];
    if (t->scan != l->q->scan || t->storage == s) return t;
  }
}

/* Returns the storage of access i of a task: reads, then writes. */
static const struct storage *slot_storage(const struct slot *s, int i)
{
  int write = i - s->task.nread;
  return write < 0 ? s->task.read[i].storage : s->task.write[write].storage;
}

/* Notes the accesses of a task. Returns false if the table is full. */
static bool scan_add_task(struct scan *l, const struct slot *s)
{
  int n = s->task.nread + s->task.nwrite;
  if (l->used + n > MAX_USED) return false;
  for (int i = 0; i < n; i++) {
    const struct storage *x = slot_storage(s, i);
    struct noted_access *t = scan_find_access(l, x);
    if (t->scan != l->q->scan) {
      *t = (struct noted_access){ x, l->q->scan, false };
      l->used++;
    }
    t->written |= i >= s->task.nread;
  }
  l->in_order |= s->task.in_order;
  return true;
}

/* -- which tasks may run ----------------------------------------------------------------------- */

/* Returns whether a task may run before those that the scan has passed. */
static bool scan_allows_task(const struct scan *l, const struct slot *s)
{
  if (l->in_order && s->task.in_order) return false;
  for (int i = 0; i < s->nwait; i++)
    if (!ticket_past(s->wait[i * RING])) return false;
  for (int i = 0; i < s->task.nread; i++)
    if (storage_failed(&s->task.read[i])) return false; /* a failure is reported in order */
  for (int i = 0; i < s->task.nread + s->task.nwrite; i++) {
    const struct noted_access *t = scan_find_access(l, slot_storage(s, i));
    if (t->scan == l->q->scan && (i >= s->task.nread || t->written)) return false;
  }
  return true;
}

/* Finds up to `most` tasks that could run now, in the order of submission. If the head has a
** `choose`, the search stops at the first task without one. Returns how many were found. */
static int queue_find_runnable(struct queue *q, struct slot **found, int most)
{
  struct scan l = { .q = q };
  uint64_t end = MIN(LOAD(q->submitted), q->started + SCAN_TASKS);
  bool choose = q->slot[q->started % RING].task.choose;
  int n = 0;
  if (!q->accesses) q->accesses = NEWS(struct noted_access, ACCESSES);
  if (!q->accesses) return 0;
  if (!++q->scan) q->scan = 1, memset(q->accesses, 0, sizeof *q->accesses * ACCESSES);
  for (uint64_t k = q->started; k < end; k++) {
    struct slot *s = &q->slot[k % RING];
    if (queue_went_early(q, k + 1)) continue;
    if (choose && !s->task.choose) break;
    if (scan_allows_task(&l, s)) found[n++] = s;
    if (n == most || !scan_add_task(&l, s)) break;
  }
  return n;
}

/* -- the next task ----------------------------------------------------------------------------- */

/* Returns the queue of a message for which the task waits; -1: it waits for none. */
static int slot_awaited_message(const struct slot *s)
{
  for (int i = 0; i < s->nwait; i++) {
    const struct ticket *t = &s->wait[i * RING];
    if (device_kind(t->device) == COMM_QUEUE && !ticket_past(*t)) return t->device;
  }
  return -1;
}

/* Sleeps until a task of any queue has completed or one was submitted to q since the caller read
** `ready_events` and `submitted`. */
static void queue_wait_ready(struct queue *q, uint64_t ready_events, uint64_t submitted)
{
  int64_t from = profile_is_on(TY_PROFILE_SYMBOLIC) ? profile_now() : 0;
  int other = slot_awaited_message(&q->slot[q->started % RING]);
  pthread_mutex_lock(&q->lock);
  STORE(q->sleeping, 1);
  while (LOAD(q->ready_events) == ready_events && LOAD(q->submitted) == submitted &&
      !LOAD(queue_closing))
    pthread_cond_wait(&q->wake, &q->lock);
  STORE(q->sleeping, 0);
  pthread_mutex_unlock(&q->lock);
  if (from && other >= 0) profile_wait(q->device, other, from);
}

struct slot *queue_next(struct queue *q)
{
  struct slot *head = &q->slot[q->started % RING], *s = head;
  if (!queue_is_free(q) || !has_memory(q->device) || slot_awaited_message(head) < 0) return head;
  STORE(q->waits_for_ready, 1);
  __atomic_add_fetch(&queue_waiting_for_ready, 1, __ATOMIC_SEQ_CST);
  for (;;) {
    uint64_t ready_events = LOAD(q->ready_events), submitted = LOAD(q->submitted);
    if (queue_find_runnable(q, &s, 1) || slot_awaited_message(head) < 0 || LOAD(queue_closing))
      break;
    queue_wait_ready(q, ready_events, submitted);
  }
  __atomic_sub_fetch(&queue_waiting_for_ready, 1, __ATOMIC_SEQ_CST);
  STORE(q->waits_for_ready, 0);
  return s;
}

struct slot *queue_choose(struct queue *q, struct slot *head)
{
  struct slot *s[CANDIDATES];
  void *context[CANDIDATES];
  if (!head->task.choose || !queue_is_free(q)) return head;
  int n = queue_find_runnable(q, s, CANDIDATES);
  if (!n || s[0] != head) return head;
  for (int i = 0; i < n; i++) context[i] = s[i]->task.context;
  return s[head->task.choose(context, n)];
}

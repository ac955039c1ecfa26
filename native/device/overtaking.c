/* overtaking.c - tasks that run before others that stand in front of them.
**
** Order costs time in two cases. Where the head of a CPU's queue waits for a message, say an update
** of weights for the sum of its gradients over the ranks, those behind it that need nothing of it
** go on: the next forward, whose first layers have their weights already. And messages go by
** choice, since the first one to be ready need not be the first one to be needed.
**
** A task may go before those in front of it that have not run where it waits for nobody, reads
** nothing that one of these writes, and writes nothing that one of them touches; and not where both
** are `in_order`. A look goes through the queue from its head and keeps what the tasks that it has
** met touch, by address, in a table that the next look takes over as empty.
*/
#include "device/queue_state.h"

/* entries of the table, a power of two; tasks that a look takes in; candidates among them */
enum { ENTRIES = 8192, FULL = ENTRIES / 2, REACH = 512, CANDIDATES = 64 };

/* -- what tasks touch -------------------------------------------------------------------------- */

struct look {
  struct queue *q;
  int used;
  bool in_order; /* of those that were met, one is */
};

static struct touched *touched_at(const struct look *l, const struct storage *s)
{
  size_t at = (size_t)(((uintptr_t)s >> 4) * 0x9E3779B97F4A7C15u >> 40);
  for (;; at++) {
    struct touched *t = &l->q->touched[at & (ENTRIES - 1)];
    if (t->look != l->q->look || t->storage == s) return t;
  }
}

static const struct touched *met(const struct look *l, const struct storage *s)
{
  const struct touched *t = touched_at(l, s);
  return t->look == l->q->look ? t : NULL;
}

static void meet(struct look *l, const struct storage *s, bool written)
{
  struct touched *t = touched_at(l, s);
  if (t->look != l->q->look) {
    *t = (struct touched){ s, l->q->look, false };
    l->used++;
  }
  t->written |= written;
}

/* Whether there is room for it. */
static bool take_in(struct look *l, const struct slot *s)
{
  if (l->used + s->task.nread + s->task.nwrite > FULL) return false;
  for (int i = 0; i < s->task.nread + s->task.nwrite; i++)
    meet(l, s->list[i].storage, i >= s->task.nread);
  l->in_order |= s->task.in_order;
  return true;
}

static bool begin(struct look *l, struct queue *q)
{
  *l = (struct look){ .q = q };
  if (!q->touched) q->touched = NEWS(struct touched, ENTRIES);
  if (!q->touched) return false;
  if (!++q->look) q->look = 1, memset(q->touched, 0, sizeof *q->touched * ENTRIES);
  return true;
}

/* -- who may go -------------------------------------------------------------------------------- */

static bool waits(const struct slot *s)
{
  for (int i = 0; i < s->nwait; i++)
    if (!ticket_past(s->wait[i * RING])) return true;
  return false;
}

static bool reads_failure(const struct slot *s)
{
  for (int i = 0; i < s->task.nread; i++)
    if (storage_failed(&s->list[i])) return true;
  return false;
}

static bool may_go(const struct look *l, const struct slot *s)
{
  if (waits(s) || reads_failure(s) || (l->in_order && s->task.in_order)) return false;
  for (int i = 0; i < s->task.nread + s->task.nwrite; i++) {
    const struct touched *t = met(l, s->list[i].storage);
    if (t && (i >= s->task.nread || t->written)) return false;
  }
  return true;
}

/* Tasks that could run now, in the order of submission; no further than one without `choose`
** where the head has it. */
static int find(struct queue *q, struct slot **found, int most)
{
  struct look l;
  uint64_t end = MIN(LOAD(q->submitted), q->ran + REACH);
  bool choose = q->slot[q->ran % RING].task.choose;
  int n = 0;
  if (!begin(&l, q)) return 0;
  for (uint64_t k = q->ran; k < end; k++) {
    struct slot *s = &q->slot[k % RING];
    if (queue_went_early(q, k + 1)) continue;
    if (choose && !s->task.choose) break;
    if (may_go(&l, s)) found[n++] = s;
    if (n == most || !take_in(&l, s)) break;
  }
  return n;
}

/* -- the next one ------------------------------------------------------------------------------ */

/* The queue of a message that the task waits for; -1: it waits for none. */
static int awaited_message(const struct slot *s)
{
  for (int i = 0; i < s->nwait; i++) {
    const struct ticket *t = &s->wait[i * RING];
    if (device_kind(t->device) == COMM_QUEUE && !ticket_past(*t)) return t->device;
  }
  return -1;
}

/* Until something passes that it may wait for, or something is submitted. */
static void listen(struct queue *q, uint64_t news, uint64_t submitted)
{
  int64_t from = profiling(TY_PROFILE_SYMBOLIC) ? profile_now() : 0;
  int other = awaited_message(&q->slot[q->ran % RING]);
  pthread_mutex_lock(&q->lock);
  STORE(q->sleeping, 1);
  while (LOAD(q->news) == news && LOAD(q->submitted) == submitted && !LOAD(queue_closing))
    pthread_cond_wait(&q->wake, &q->lock);
  STORE(q->sleeping, 0);
  pthread_mutex_unlock(&q->lock);
  if (from && other >= 0) profile_wait(q->device, other, from);
}

struct slot *queue_next(struct queue *q)
{
  struct slot *head = &q->slot[q->ran % RING], *s = head;
  if (!queue_is_free(q) || !has_memory(q->device) || awaited_message(head) < 0) return head;
  STORE(q->listens, 1);
  __atomic_add_fetch(&queue_listening, 1, __ATOMIC_SEQ_CST);
  for (;;) {
    uint64_t news = LOAD(q->news), submitted = LOAD(q->submitted);
    if (find(q, &s, 1) || awaited_message(head) < 0 || LOAD(queue_closing)) break;
    listen(q, news, submitted);
  }
  __atomic_sub_fetch(&queue_listening, 1, __ATOMIC_SEQ_CST);
  STORE(q->listens, 0);
  return s;
}

struct slot *queue_choose(struct queue *q, struct slot *head)
{
  struct slot *s[CANDIDATES];
  void *context[CANDIDATES];
  if (!head->task.choose || !queue_is_free(q)) return head;
  int n = find(q, s, CANDIDATES);
  if (!n || s[0] != head) return head;
  for (int i = 0; i < n; i++) context[i] = s[i]->task.context;
  return s[head->task.choose(context, n)];
}

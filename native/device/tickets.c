/* tickets.c - the table of queues, and waiting for a task of one of them.
**
** A waiter polls for SPIN_NS before it sleeps, and yields its core between polls: if the team of
** the task uses all cores, a waiter that kept one would delay it.
*/
#include "base/system.h"
#include "device/queue_state.h"

struct queue *queue_table[SLOTS];

int queue_closing;
int queue_waiting_for_ready;

bool ticket_past(struct ticket t)
{
  if (!t.seq) return true;
  struct queue *q = queue_at(t.device);
  return !q || __atomic_load_n(&q->done, __ATOMIC_ACQUIRE) >= t.seq ||
      (!t.whole && queue_went_early(q, t.seq));
}

void ticket_wait(struct ticket t)
{
  if (ticket_past(t) || sys_forked()) return;
  struct queue *q = queue_at(t.device);
  for (int64_t until = profile_now() + SPIN_NS; profile_now() < until; sched_yield())
    if (ticket_past(t)) return;
  pthread_mutex_lock(&q->lock);
  STORE(q->awaited, MIN(q->awaited, t.seq)); /* before its thread sees `waiting` grow */
  __atomic_add_fetch(&q->waiting, 1, __ATOMIC_SEQ_CST);
  if (LOAD(q->sleeping)) pthread_cond_signal(&q->wake);
  for (;;) {
    /* before ticket_past, since the queue increments `done` before it reads `awaited` */
    STORE(q->awaited, MIN(q->awaited, t.seq));
    if (ticket_past(t) || LOAD(queue_closing)) break;
    pthread_cond_wait(&q->past, &q->lock);
  }
  __atomic_sub_fetch(&q->waiting, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&q->lock);
}

void queue_notify_ready(void)
{
  for (int i = 0; i < SLOTS; i++) {
    struct queue *q = __atomic_load_n(&queue_table[i], __ATOMIC_ACQUIRE);
    if (!q || !LOAD(q->waits_for_ready)) continue;
    pthread_mutex_lock(&q->lock);
    STORE(q->ready_events, q->ready_events + 1);
    pthread_cond_signal(&q->wake);
    pthread_mutex_unlock(&q->lock);
  }
}

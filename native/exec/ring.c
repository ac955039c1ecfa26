/* ring.c - the contexts of submitted tasks, a ring that is made once: a run allocates nothing. */
#include "exec/inner.h"

void exec_wait_runs(const ty_exec *e)
{
  for (int i = 0; i < e->submit.nring; i++) ticket_wait(e->submit.ring[i].ticket);
}

struct ticket exec_last_ticket(const ty_exec *e)
{
  const struct exec_submission *s = &e->submit;
  return s->nring ? s->ring[(s->next + s->nring - 1) % s->nring].ticket : (struct ticket){ 0 };
}

void exec_free_ring(ty_exec *e)
{
  if (e->submit.ring) mem_free(e->submit.ring[0].version);
  if (e->submit.ring) mem_free(e->submit.ring[0].address);
  for (int i = 0; i < e->submit.nring; i++) mem_free(e->submit.ring[i].timed);
  mem_free(e->submit.ring);
  mem_free(e->submit.ticket);
}

enum {
  RUNS_AHEAD = 4,                                       /* runs that may wait at once */
  RUNS_AHEAD_MOVABLE = 2,                               /* of contexts that hold all addresses */
  SPARE_CONTEXTS = 7                                    /* per run: more runs of few segments */
};

int exec_make_ring(ty_exec *e, const struct program *p)
{
  const bool movable = e->bind.movable;
  const int n = (movable ? RUNS_AHEAD_MOVABLE : RUNS_AHEAD) * (p->nsegment + SPARE_CONTEXTS);
  if (n <= e->submit.nring) return TY_OK;
  exec_wait_runs(e);
  const size_t arrays = (size_t)n * (size_t)e->bind.nbound;
  struct ctx *ring = NEWS(struct ctx, n);
  uint64_t *version = NEWS(uint64_t, arrays + 1);
  void **address = movable ? NEWS(void *, arrays + 1) : NULL;
  struct ticket *tickets = NEWS(struct ticket, p->nsegment + 1);
  if (!ring || !version || (movable && !address) || !tickets)
    return mem_free(ring), mem_free(version), mem_free(address), mem_free(tickets),
           fail(TY_EMEMORY, "out of memory: executor");
  exec_free_ring(e);
  e->submit.ring = ring;
  e->submit.nring = n;
  e->submit.next = 0;
  e->submit.ticket = tickets;
  for (int i = 0; i < n; i++) {
    const size_t at = (size_t)i * (size_t)e->bind.nbound;
    ring[i].version = version + at;
    ring[i].address = address ? address + at : NULL;
  }
  e->stats.allocations += e->stats.runs ? 3 + movable : 0;
  return TY_OK;
}

struct ctx *exec_next_context(ty_exec *e)
{
  struct exec_submission *s = &e->submit;
  struct ctx *c = &s->ring[s->next];
  /* wait for half of the ring, so that the caller sleeps once for many runs */
  if (!ticket_past(c->ticket)) ticket_wait(s->ring[(s->next + s->nring / 2) % s->nring].ticket);
  ticket_wait(c->ticket);                               /* that ticket may be another device's */
  s->next = (s->next + 1) % s->nring;
  return c;
}

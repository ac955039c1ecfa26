/* ring.c - the contexts of submitted tasks, a ring that is made once: a run allocates nothing. */
#include "exec/inner.h"

void exec_wait_runs(const ty_exec *e)
{
  for (int i = 0; i < e->nring; i++) ticket_wait(e->ring[i].ticket);
}

void exec_free_ring(ty_exec *e)
{
  if (e->ring) mem_free(e->ring[0].version);
  for (int i = 0; i < e->nring; i++) mem_free(e->ring[i].timed);
  mem_free(e->ring);
  mem_free(e->seg_ticket);
}

int exec_make_ring(ty_exec *e, const struct program *p)
{
  int n = 4 * p->nsegment + 28;
  if (n <= e->nring) return TY_OK;
  exec_wait_runs(e);
  struct ctx *ring = NEWS(struct ctx, n);
  uint64_t *version = NEWS(uint64_t, (size_t)n * (size_t)e->nbound + 1);
  struct ticket *tickets = NEWS(struct ticket, p->nsegment + 1);
  if (!ring || !version || !tickets)
    return mem_free(ring), mem_free(version), mem_free(tickets),
           fail(TY_EMEMORY, "out of memory: executor");
  exec_free_ring(e);
  e->ring = ring;
  e->nring = n;
  e->at_ring = 0;
  e->seg_ticket = tickets;
  for (int i = 0; i < n; i++) ring[i].version = version + (size_t)i * (size_t)e->nbound;
  e->stats.allocations += e->stats.runs ? 3 : 0;
  return TY_OK;
}

struct ctx *exec_next_context(ty_exec *e)
{
  struct ctx *c = &e->ring[e->at_ring];
  if (!ticket_past(c->ticket)) ticket_wait(e->ring[(e->at_ring + e->nring / 2) % e->nring].ticket);
  ticket_wait(c->ticket);                               /* the other may be of another device */
  e->at_ring = (e->at_ring + 1) % e->nring;
  return c;
}

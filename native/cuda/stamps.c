/* stamps.c - events with times. CUDA reports only the time between two events, so each pair of
** stamps is placed by its distance from the previous pair, and the first one by the host's time
** when it was placed.
**
** The two clocks drift apart. The host's clock bounds the device's: an event cannot happen before
** its stamp was placed, or after the host has seen it happen. A time outside of these bounds is
** moved to the bound, and all later times move with it. */
#include "cuda/stamps.h"
#include "device/profile.h"

/* left: the host's time when it was placed, by profile_now. next: in the list of unused stamps. */
struct stamp { struct stamp *next; cu_event event; int64_t left; };

static struct stamp *new_stamp(void)
{
  struct stamp *s = NEW(struct stamp);
  if (!s || !cu_api.EventCreate(&s->event, 0)) return s;
  mem_free(s);
  return NULL;
}

static void give_back(struct stamp_clock *k, struct stamp *s)
{
  if (!s) return;
  s->next = k->unused;
  k->unused = s;
}

int stamp_leave(struct stamp_clock *k, cu_stream stream, void **made)
{
  struct stamp *s = k->unused ? k->unused : new_stamp();
  NEED(s, TY_EMEMORY, "out of memory: times of a GPU");
  if (s == k->unused) k->unused = s->next;
  s->left = profile_now();
  int code = cuda_check(cu_api.EventRecord(s->event, stream), "leaving a stamp");
  if (code)
    give_back(k, s);
  else
    *made = s;
  return code;
}

/* Writes the ns between two events that have happened to *ns; returns false if the driver fails. */
static bool elapsed_ns(const struct stamp *a, const struct stamp *b, int64_t *ns)
{
  float ms;
  if (cu_api.EventElapsedTime(&ms, a->event, b->event)) return false;
  *ns = (int64_t)((double)ms * 1e6);
  return true;
}

bool stamp_read(struct stamp_clock *k, void *first, void *last, int64_t *from, int64_t *to)
{
  struct stamp *a = first, *b = last;
  int64_t length = 0, lead = 0;
  bool good = a && b && elapsed_ns(a, b, &length) && (!k->base || elapsed_ns(k->base, a, &lead));
  give_back(k, b);
  if (!good) return give_back(k, a), false;
  int64_t begin = k->base ? k->at + lead : a->left;
  begin = MAX(MIN(begin, profile_now() - length), a->left);
  give_back(k, k->base);
  k->base = a;
  k->at = begin;
  *from = MAX(begin, k->end);
  *to = k->end = *from + length;
  return true;
}

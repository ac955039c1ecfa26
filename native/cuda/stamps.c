/* stamps.c - events with times. CUDA reports only how far apart two events are, so each pair is
** placed by its distance from an earlier one, the first by the host's clock when it was left.
**
** The two clocks drift apart. The host's bounds the device's: nothing was reached before it was
** left, or after it is seen to have been reached. What would be outside is moved to the bound,
** and all that comes later with it.
*/
#include "cuda/stamps.h"
#include "device/profile.h"

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

/* Gives the ns between two events that the stream has reached; false: the driver does not know
** them. */
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

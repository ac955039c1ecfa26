/* segments.c - segments: sequences of steps on one device that its queue gets as one task. A
** segment ends where the device changes, where backward begins, before and after a step of the
** front end, and where a bucket of gradients is complete, which can then be sent while the next
** ones are computed. On a CPU a forward segment also ends before the first read of a bucket's
** weights, which may not have arrived yet. A segment waits for the segments of other devices that
** it reads from.
*/
#include "pass/passes.h"

/* Returns the segment of a step. Segments are in the order of their steps, without gaps. */
int find_segment(const struct program *p, int t)
{
  int low = 0, high = p->nsegment - 1;
  while (low < high) {
    int middle = (low + high) / 2;
    if (t < p->segment[middle].last)
      high = middle;
    else
      low = middle + 1;
  }
  return t < 0 ? -1 : low;
}

static void segment_note_write(const struct program *p, int bound, int t, int *last)
{
  int b = p->s.bucket[bound];
  if (b >= 0) last[b] = t;
}

/* Marks the last step that writes into each bucket: it ends a segment. */
static int segment_find_complete(struct program *p, bool *ends)
{
  int *last = p->s.nbucket ? NEWS(int, p->s.nbucket) : NULL;
  if (!p->s.nbucket) return TY_OK;
  NEED(last, TY_EMEMORY, "out of memory: segments");
  for (int t = p->nforward; t < p->n; t++) {
    const struct step *st = &p->step[t];
    if (st->bound >= 0) segment_note_write(p, st->bound, t, last);
    for (int k = 0; k < st->nout; k++)
      if (st->out[k] >= 0 && p->value[st->out[k]].kind == V_BOUND)
        segment_note_write(p, p->value[st->out[k]].bound, t, last);
  }
  for (int b = 0; b < p->s.nbucket; b++)
    if (last[b]) ends[last[b]] = true;
  mem_free(last);
  return TY_OK;
}

/* Marks the first step of forward that reads weights of each bucket: it begins a segment. */
static int segment_find_needed(struct program *p, bool *ends)
{
  bool *seen = p->s.nbucket ? NEWS(bool, p->s.nbucket) : NULL;
  if (!p->s.nbucket) return TY_OK;
  NEED(seen, TY_EMEMORY, "out of memory: segments");
  for (int t = 0; t < p->nforward; t++)
    for (int k = 0; k < p->step[t].nin && device_kind(p->step[t].device) == TY_CPU; k++) {
      const struct value *x = &p->value[p->value[p->step[t].in[k]].root];
      int b = x->kind == V_BOUND ? p->s.bucket[x->bound] : -1;
      if (b < 0 || seen[b]) continue;
      seen[b] = true;
      if (t > 0) ends[t - 1] = true;
    }
  mem_free(seen);
  return TY_OK;
}

int pass_segments(struct program *p)
{
  p->segment = arena_new(&p->arena, sizeof *p->segment * (size_t)(p->n + 2));
  bool *ends = arena_new(&p->arena, sizeof *ends * (size_t)(p->n + 1));
  NEED(p->segment && ends, TY_EMEMORY, "out of memory: segments");
  TRY(segment_find_needed(p, ends));
  TRY(segment_find_complete(p, ends));
  p->nsegment = p->nsegment_forward = 0;
  for (int t = 0; t < p->n; t++) {
    bool fresh = t == 0 || t == p->nforward || p->step[t].device != p->step[t - 1].device ||
        ends[t - 1];
    if (fresh || step_is_front_end(p, &p->step[t]) || step_is_front_end(p, &p->step[t - 1])) {
      struct segment *g = &p->segment[p->nsegment++];
      *g = (struct segment){ .device = p->step[t].device,
        .slot = program_slot(p, p->step[t].device),
        .first = t,
        .last = t + 1 };
      for (int i = 0; i < MAX_DEVICES; i++) g->wait[i] = -1;
    }
    else
      p->segment[p->nsegment - 1].last = t + 1;
    if (t < p->nforward) p->nsegment_forward = p->nsegment;
  }
  for (int t = 0; t < p->n && p->ndevice > 1; t++) { /* what a step reads from another device */
    struct segment *here = &p->segment[find_segment(p, t)];
    for (int k = 0; k < p->step[t].nin; k++) {
      const struct value *x = &p->value[p->value[p->step[t].in[k]].root];
      if (x->kind == V_NONE || x->first < 0 || x->device == p->step[t].device) continue;
      int slot = program_slot(p, x->device);
      here->wait[slot] = MAX(here->wait[slot], find_segment(p, x->last_write));
    }
  }
  return join_calls(p);
}

int program_cut(struct program *p, const int *bucket, int nbucket)
{
  p->s.bucket = bucket;
  p->s.nbucket = nbucket;
  return pass_segments(p);
}

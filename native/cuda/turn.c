/* turn.c - see turn.h. */
#include "cuda/turn.h"
#include "cuda/family.h"
#include "kernel/primitives.h"
#include "kernel/strided_copy.h"

static int64_t space_of(const ty_desc *d) { return product_of(d, 2, d->ndim); }

bool turn_moves(const ty_desc *d) { return d->dim[1] > 1 && space_of(d) > 1; }

static int turn_axes(int device, const ty_desc *d, void *to, const void *from, bool last)
{
  struct move m = { 0 };
  int64_t c = d->dim[1], s = space_of(d);
  int64_t *plain = last ? m.from : m.to, *turned = last ? m.to : m.from;
  move_axis(&m, d->dim[0], c * s, c * s);
  move_axis(&m, last ? s : c, 0, 0);
  move_axis(&m, last ? c : s, 0, 0);
  int channels = last ? 2 : 1, space = 3 - channels;
  plain[channels] = s;
  plain[space] = 1;
  turned[channels] = 1;
  turned[space] = c;
  return cuda_primitives.move(device, &m, to, from, dtype_size(d->dtype));
}

int turn_last(int device, const ty_desc *d, void *to, const void *plain)
{
  return turn_axes(device, d, to, plain, true);
}

int turn_plain(int device, const ty_desc *d, void *to, const void *last)
{
  return turn_axes(device, d, to, last, false);
}

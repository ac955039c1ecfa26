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

/* -- many arrays ------------------------------------------------------------------------------- */

enum { MOST = 96 };                                   /* arrays per launch, as in kernels/turn.cu */
enum { SHARED = 48 << 10 };                           /* bytes of shared memory on any device */

struct turned_array { void *to; const void *from; int32_t first, rows, columns; };
struct turn_args { struct turned_array of[MOST]; int32_t n; };

/* Returns the bytes of a slice in shared memory, where rows are padded to an odd length. */
static int64_t slice_bytes(const ty_desc *d, bool last)
{
  const int64_t rows = last ? d->dim[1] : space_of(d), columns = last ? space_of(d) : d->dim[1];
  return rows * (columns | 1) * (int64_t)dtype_size(d->dtype);
}

bool turn_joins(const ty_desc *d)
{
  return turn_moves(d) && slice_bytes(d, true) <= SHARED && slice_bytes(d, false) <= SHARED &&
      d->dim[0] <= INT32_MAX / MOST;
}

static int start_turns(int device, const struct turn_args *s, int64_t blocks, size_t size,
    size_t shared)
{
  cu_function f;
  TRY(cuda_family(device, FAMILY_turn, "turn_slices", &f, "UNIT=u%d", (int)(8 * size)));
  void *params[] = { (void *)s };
  return cuda_launch(device, f, blocks, CUDA_BLOCK, shared, params);
}

/* Converts those arrays of the list whose elements have this size. */
static int turn_size(int device, const struct turn *list, int n, bool last, size_t size)
{
  struct turn_args s = { .n = 0 };
  int64_t blocks = 0, shared = 0;
  for (int i = 0; i <= n; i++) {
    if (s.n && (i == n || s.n == MOST)) {
      TRY(start_turns(device, &s, blocks, size, (size_t)shared));
      s.n = 0;
      blocks = shared = 0;
    }
    if (i == n || dtype_size(list[i].d->dtype) != size) continue;
    const ty_desc *d = list[i].d;
    const int32_t c = (int32_t)d->dim[1], space = (int32_t)space_of(d);
    s.of[s.n++] = (struct turned_array){ list[i].to, list[i].from, (int32_t)blocks,
      last ? c : space, last ? space : c };
    blocks += d->dim[0];
    shared = MAX(shared, slice_bytes(d, last));
  }
  return TY_OK;
}

int turn_many(int device, const struct turn *list, int n, bool last)
{
  for (size_t size = 2; size <= 8; size *= 2) TRY(turn_size(device, list, n, last, size));
  return TY_OK;
}

int turn_last(int device, const ty_desc *d, void *to, const void *plain)
{
  return turn_axes(device, d, to, plain, true);
}

int turn_plain(int device, const ty_desc *d, void *to, const void *last)
{
  return turn_axes(device, d, to, last, false);
}

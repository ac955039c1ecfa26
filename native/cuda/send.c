/* send.c - copies between pageable memory of the host and a GPU, through pinned buffers. Copies to
** the device can overlap with the work of its queue's stream (staging_land). */
#include "cuda/send.h"

/* Bytes of a pinned buffer, and the least bytes of a landing. */
enum { PIECE_BYTES = 4 << 20, LEAST_LANDING = 64 << 10 };

int staging_new(struct staging *s)
{
  for (int i = 0; i < 2; i++) {
    TRY(cuda_check(cu_api.MemHostAlloc((void **)&s->p[i], PIECE_BYTES, CU_HOST_PORTABLE),
        "allocating pinned memory"));
    TRY(cuda_check(cu_api.EventCreate(&s->sent[i], CU_EVENT_DISABLE_TIMING), "making an event"));
  }
  return TY_OK;
}

void staging_done(struct staging *s)
{
  for (int i = 0; i < 2; i++) {
    if (s->p[i]) cu_api.MemFreeHost(s->p[i]);
    if (s->sent[i]) cu_api.EventDestroy(s->sent[i]);
  }
}

int landings_new(struct landings *l)
{
  TRY(cuda_check(cu_api.StreamCreate(&l->stream, CU_STREAM_NON_BLOCKING), "making a stream"));
  for (int i = 0; i < LANDINGS; i++)
    TRY(cuda_check(
        cu_api.EventCreate(&l->at[i].taken, CU_EVENT_DISABLE_TIMING), "making an event"));
  return TY_OK;
}

void landings_done(struct landings *l)
{
  if (l->stream) cu_api.StreamDestroy(l->stream);
  for (int i = 0; i < LANDINGS; i++)
    if (l->at[i].taken) cu_api.EventDestroy(l->at[i].taken);
}

static int wait_event(cu_event e)
{
  return cuda_check(cu_api.EventSynchronize(e), "a copy between host and GPU");
}

/* -- to the device ----------------------------------------------------------------------------- */

/* Sends a piece of at most PIECE_BYTES through buffer i, once its previous copy has ended. */
static int send_piece(struct staging *s, int i, cu_pointer to, const char *from, size_t bytes,
    cu_stream stream)
{
  if (s->used[i]) TRY(wait_event(s->sent[i]));
  memcpy(s->p[i], from, bytes);
  TRY(cuda_check(cu_api.MemcpyHtoDAsync(to, s->p[i], bytes, stream), "a copy to the GPU"));
  TRY(cuda_check(cu_api.EventRecord(s->sent[i], stream), "a copy to the GPU"));
  s->used[i] = true;
  return TY_OK;
}

int staging_send(struct staging *s, cu_pointer to, const char *from, size_t bytes, cu_stream stream)
{
  for (int i = 0; bytes; i ^= 1) {
    size_t n = MIN(bytes, (size_t)PIECE_BYTES);
    TRY(send_piece(s, i, to, from, n, stream));
    to += n, from += n, bytes -= n;
  }
  return TY_OK;
}

/* Gives a landing at least this capacity. Waits for the copy out of the old memory before it is
** freed. Returns false if there is not enough device memory. */
static bool has_capacity(struct landing *l, size_t bytes)
{
  if (l->bytes >= bytes) return true;
  size_t size = LEAST_LANDING;
  while (size < bytes) size *= 2;
  if (l->used && cu_api.EventSynchronize(l->taken)) return false;
  if (l->p) cu_api.MemFree(l->p);
  *l = (struct landing){ .taken = l->taken };
  if (cu_api.MemAlloc(&l->p, size)) return l->p = 0, false;
  l->bytes = size;
  return true;
}

static int land_piece(struct staging *s, int i, struct landings *all, struct landing *l,
    cu_pointer to, const char *from, size_t bytes, cu_stream stream)
{
  static const char *const what = "a copy to the GPU";
  if (l->used) TRY(cuda_check(cu_api.StreamWaitEvent(all->stream, l->taken, 0), what));
  TRY(send_piece(s, i, l->p, from, bytes, all->stream));
  TRY(cuda_check(cu_api.StreamWaitEvent(stream, s->sent[i], 0), what));
  TRY(cuda_check(cu_api.MemcpyDtoDAsync(to, l->p, bytes, stream), what));
  TRY(cuda_check(cu_api.EventRecord(l->taken, stream), what));
  l->used = true;
  return TY_OK;
}

int staging_land(struct staging *s, struct landings *all, cu_pointer to, const char *from,
    size_t bytes, cu_stream stream)
{
  for (int i = 0; bytes; i ^= 1) {
    size_t n = MIN(bytes, (size_t)PIECE_BYTES);
    struct landing *l = &all->at[all->next++ % LANDINGS];
    if (!has_capacity(l, n)) return staging_send(s, to, from, bytes, stream);
    TRY(land_piece(s, i, all, l, to, from, n, stream));
    to += n, from += n, bytes -= n;
  }
  return TY_OK;
}

/* -- to the host ------------------------------------------------------------------------------- */

int staging_fetch(struct staging *s, char *to, cu_pointer from, size_t bytes, cu_stream stream)
{
  size_t pieces = (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
  for (size_t k = 0; k <= pieces; k++) {
    int i = k & 1, before = !i;
    if (k < pieces) {
      size_t n = MIN(bytes - k * PIECE_BYTES, (size_t)PIECE_BYTES);
      if (s->used[i] && k < 2) TRY(wait_event(s->sent[i]));
      TRY(cuda_check(cu_api.MemcpyDtoHAsync(s->p[i], from + k * PIECE_BYTES, n, stream),
          "a copy from the GPU"));
      TRY(cuda_check(cu_api.EventRecord(s->sent[i], stream), "a copy from the GPU"));
      s->used[i] = true;
    }
    if (!k) continue;
    TRY(wait_event(s->sent[before]));
    memcpy(to + (k - 1) * PIECE_BYTES, s->p[before],
        MIN(bytes - (k - 1) * PIECE_BYTES, (size_t)PIECE_BYTES));
  }
  return TY_OK;
}

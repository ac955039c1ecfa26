/* storage.c - storages: references, sources, release. allocate.c makes those that own memory of
** their device.
*/
#include "device/queue.h"

void storage_give_back(void *owner, void *data)
{
  (void)owner;
  (void)data;
}

/* 2^64 divided by the golden ratio, odd: the first n multiples are at least 2^64 / (3 n) apart
** modulo 2^64 (Knuth, The Art of Computer Programming, vol. 3, 6.4). */
#define VERSION_STRIDE 0x9E3779B97F4A7C15u

int storage_wrap(int device, void *data, size_t bytes, void (*release)(void *, void *), void *owner,
    struct storage **out)
{
  static uint64_t storages;
  struct storage *s = mem_block(sizeof *s);
  NEED(s, TY_EMEMORY, "out of memory");
  /* with up to 2^31 storages a version meets another storage's only after 2^30 writes */
  const uint64_t version = __atomic_add_fetch(&storages, 1, __ATOMIC_RELAXED) * VERSION_STRIDE;
  *s = (struct storage){ data, bytes, device, .refs = 1, .version = version, .release = release,
    .owner = owner };
  live_add(LIVE_STORAGE, 1);
  *out = s;
  return TY_OK;
}

int storage_lazy(int device, size_t bytes, struct storage_source source, struct storage **out)
{
  struct storage_source *own = NEW(struct storage_source);
  NEED(own, TY_EMEMORY, "out of memory");
  *own = source;
  int code = storage_wrap(device, NULL, bytes, NULL, NULL, out);
  if (code) return mem_free(own), code;
  (*out)->source = own;
  return TY_OK;
}

struct storage_source storage_promise;
int (*storage_settle)(struct storage *s);
int (*storage_settle_reads)(struct storage *s);

int storage_promised(int device, size_t bytes, struct storage **out)
{
  TRY(storage_wrap(device, NULL, bytes, NULL, NULL, out));
  (*out)->source = &storage_promise;
  return TY_OK;
}

void storage_unfulfil(struct storage *s)
{
  if (s->release == storage_give_back) block_free(s->device, s->data, s->bytes);
  s->data = NULL;
  s->release = NULL;
  __atomic_store_n(&s->source, &storage_promise, __ATOMIC_RELEASE);
}

void storage_drop_source(struct storage *s)
{
  struct storage_source *source = s->source;
  __atomic_store_n(&s->source, NULL, __ATOMIC_RELEASE);
  if (source == &storage_promise) return;
  if (source && source->drop) source->drop(source->context);
  mem_free(source);
}

struct storage *storage_keep(struct storage *s)
{
  __atomic_add_fetch(&s->refs, 1, __ATOMIC_RELAXED);
  return s;
}

void storage_free(struct storage *s)
{
  if (!s || __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL)) return;
  failure_drop(s->failed);
  if (s->source) storage_drop_source(s);
  if (s->release == storage_give_back && s->data)
    block_free(s->device, s->data, s->bytes);
  else if (s->release)
    s->release(s->owner, s->data);
  mem_block_free(s, sizeof *s);
  live_add(LIVE_STORAGE, -1);
}

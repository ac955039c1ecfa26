/* allocate.c - storages that own memory of their device. If it is short, pools are trimmed first.
*/
#include <pthread.h>
#include "device/queue.h"

/* Allocates a block; if memory is short, trims the pools and tries again. */
static int block_new_trimmed(int device, size_t bytes, void **out, bool *blank)
{
  int code = block_new(device, bytes, out, blank);
  if (code != TY_EMEMORY) return code;
  ty_pool_trim(NULL);
  return block_new(device, bytes, out, blank);
}

/* Makes a storage with memory; *blank tells whether it is zeros. */
static int storage_make(int device, size_t bytes, struct storage **out, bool *blank)
{
  void *p = NULL;
  TRY(device_open(device));
  TRY(block_new_trimmed(device, bytes, &p, blank));
  int code = storage_wrap(device, p, bytes, storage_give_back, NULL, out);
  if (code) block_free(device, p, bytes);
  return code;
}

int storage_new(int device, size_t bytes, struct storage **out)
{
  bool blank;
  return storage_make(device, bytes, out, &blank);
}

int storage_zeros(int device, size_t bytes, struct storage **out)
{
  bool blank;
  TRY(storage_make(device, bytes, out, &blank));
  if (!blank) device_ops(device)->clear((*out)->data, bytes);
  return TY_OK;
}

int storage_fulfil(struct storage *s)
{
  void *p = NULL;
  bool blank;
  if (!s->data) {
    TRY(device_open(s->device));
    TRY(block_new_trimmed(s->device, s->bytes, &p, &blank));
    s->data = p;
    s->release = storage_give_back;
  }
  __atomic_store_n(&s->source, NULL, __ATOMIC_RELEASE);
  return TY_OK;
}

int storage_load_now(struct storage *s)
{
  static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
  if (__atomic_load_n(&s->source, __ATOMIC_ACQUIRE) == &storage_promise) return storage_settle(s);
  int code = TY_OK;
  pthread_mutex_lock(&loading);
  if (s->source) {
    void *p = NULL;
    bool blank;
    code = block_new_trimmed(s->device, s->bytes, &p, &blank);
    if (!code && (code = s->source->load(s->source->context, p, s->bytes)))
      block_free(s->device, p, s->bytes);
    if (!code) {
      s->data = p;
      s->release = storage_give_back;
      storage_drop_source(s);
    }
  }
  pthread_mutex_unlock(&loading);
  return code;
}

/* device.c - random states of devices, and the public functions that concern a whole device.
**
** Kinds and names are in kinds.c, queues in queue.c, bytes in storage.c, the CPU itself in cpu.c.
*/
#include <pthread.h>
#include "device/profile.h"
#include "device/queue.h"
#include "base/philox.h"

/* -- random states ----------------------------------------------------------------------------- */

static pthread_mutex_t states_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rng_state states[SLOTS];
/* false: the state is derived from base_seed */
static bool seeded[SLOTS];
static uint64_t base_seed;

/* Derives the seed of device `id` from the common seed; that of device 0 is the common seed itself.
** SplitMix64 (Steele et al. 2014). */
static uint64_t rng_derive_seed(uint64_t seed, int id)
{
  if (id == 0) return seed;
  uint64_t z = seed + 0x9E3779B97F4A7C15u * (uint64_t)id;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/* Returns the state of a device. Call under states_lock. */
static struct rng_state *rng_get_state(int device)
{
  int slot = device_slot(device);
  if (!seeded[slot])
    states[slot] = (struct rng_state){ rng_derive_seed(base_seed, slot & (IDS - 1)), 0 };
  seeded[slot] = true;
  return &states[slot];
}

struct rng_state device_next_rng(int device)
{
  pthread_mutex_lock(&states_lock);
  struct rng_state *s = rng_get_state(device), d = *s;
  s->counter++;
  pthread_mutex_unlock(&states_lock);
  return d;
}

int ty_seed(int device, uint64_t seed)
{
  if (device != -1) TRY(device_check(device));
  pthread_mutex_lock(&states_lock);
  if (device == -1) {
    base_seed = seed;
    memset(seeded, 0, sizeof seeded);
  }
  else {
    *rng_get_state(device) = (struct rng_state){ seed, 0 };
  }
  pthread_mutex_unlock(&states_lock);
  return TY_OK;
}

int ty_rng(int device, int set, uint64_t *seed, uint64_t *counter)
{
  TRY(device_check(device));
  NEED(seed && counter, TY_ETYPE, "ty_rng: seed or counter is missing");
  pthread_mutex_lock(&states_lock);
  struct rng_state *s = rng_get_state(device);
  if (set) *s = (struct rng_state){ *seed, *counter };
  *seed = s->seed;
  *counter = s->counter;
  pthread_mutex_unlock(&states_lock);
  return TY_OK;
}

int ty_rng_unit(int device, double *out)
{
  TRY(device_check(device));
  NEED(out, TY_ETYPE, "ty_rng_unit: out is missing");
  struct rng_state d = device_next_rng(device);
  struct philox p = philox(d.seed, d.counter, 0, 0);
  *out = unit_f64(p.w[0], p.w[1]);
  return TY_OK;
}

/* -- questions --------------------------------------------------------------------------------- */

int ty_devices(int kind)
{
  const struct device_ops *ops = device_ops(kind);
  return ops ? ops->count() : 0;
}

int ty_device_memory(int device, int64_t *total, int64_t *used, int64_t *pool)
{
  TRY(device_open(device));
  NEED(total && used && pool, TY_ETYPE, "ty_device_memory: a result is missing");
  *total = device_ops(device)->memory(device);
  memory_in_use(device, used, pool);
  return TY_OK;
}

int ty_device_work(int device, int64_t *launches, int64_t *copies)
{
  TRY(device_open(device));
  NEED(launches && copies, TY_ETYPE, "ty_device_work: a result is missing");
  *launches = *copies = 0;
  if (device_ops(device)->work) device_ops(device)->work(device, launches, copies);
  return TY_OK;
}

int ty_wait(int device)
{
  if (device != -1) TRY(device_check(device));
  int64_t from = profile_begin();
  int code = storage_settle ? storage_settle(NULL) : TY_OK;
  if (!code) code = device_wait(device);
  profile_call("waitall", from);
  return code;
}

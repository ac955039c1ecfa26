/* device.c - the devices: kinds, names, random states, and the public calls that concern a whole
** device.
**
** cpu(0) .. cpu(63) always exist, each with a queue of its own; cpu_pinned(i) is memory of
** cpu(i). Other kinds exist once a plugin has registered its device_ops. Queues are in queue.c,
** bytes in storage.c, the CPU itself in cpu.c.
*/
#include <pthread.h>
#include "device/collective.h"
#include "device/profile.h"
#include "device/queue.h"
#include "base/philox.h"

static const struct device_ops *kinds[2] = { &cpu_ops, NULL };             /* TY_CPU, TY_GPU */

void (*device_closing)(void);

void device_register(int kind, const struct device_ops *ops)
{
  __atomic_store_n(&kinds[kind == TY_GPU], ops, __ATOMIC_RELEASE);
}

const struct device_ops *device_ops(int device)
{
  int kind = device_kind(device);
  if (device < 0 || kind > TY_PINNED) return NULL;
  return __atomic_load_n(&kinds[kind == TY_GPU], __ATOMIC_ACQUIRE);
}

static const struct collective_ops *collectives;

void collective_register(const struct collective_ops *ops)
{
  collectives = ops;
  order_register(COLLECTIVE_QUEUE, ops->order);
}

const struct collective_ops *collective_ops(void) { return collectives; }

const struct device_ops *queue_ops(int device)
{
  static const struct device_ops no_memory = { .name = "comm" };
  return has_memory(device)                     ? device_ops(device)
      : device_kind(device) == COLLECTIVE_QUEUE ? collectives->queue
                                                : &no_memory;
}

static const struct device_ops *either_ops(int a, int b)
{
  return device_ops(device_kind(a) == TY_GPU ? a : b);
}

int device_copy(int dst_device, void *dst, int src_device, const void *src, size_t bytes)
{
  return either_ops(dst_device, src_device)->copy(dst_device, dst, src_device, src, bytes);
}

int device_fill(int device, void *data, int value, size_t bytes)
{
  return device_ops(device)->fill(device, data, value, bytes);
}

int device_convert(int device, void *dst, int dst_type, const void *src, int src_type, int64_t n)
{
  return device_ops(device)->convert(device, dst, dst_type, src, src_type, n);
}

int device_finish(int device)
{
  const struct device_ops *ops = device_ops(device);
  return ops->finish ? ops->finish(device) : TY_OK;
}

const char *device_name(int device, char *buffer, size_t size)
{
  const char *kind = device_kind(device) == TY_GPU ? "gpu"
      : device_kind(device) == COMM_QUEUE          ? "comm"
      : device_kind(device) == COLLECTIVE_QUEUE    ? "collective"
      : device_kind(device) == TY_PINNED           ? "cpu_pinned"
                                                   : "cpu";
  snprintf(buffer, size, "%s(%d)", kind, device_id(device));
  return buffer;
}

int device_parse(const char *text, int *device)
{
  static const struct {
    const char *name;
    int kind;
  } names[] = {
    { "cpu_pinned", TY_PINNED },
    { "cpu", TY_CPU },
    { "gpu", TY_GPU },
  };
  for (int i = 0; i < COUNT(names); i++) {
    size_t n = strlen(names[i].name);
    if (strncmp(text, names[i].name, n)) continue;
    long id = 0;
    if (text[n]) {
      char *end = NULL;
      if (text[n] == '(') id = strtol(text + n + 1, &end, 10);
      bool good = end && end > text + n + 1 && !strcmp(end, ")");
      NEED(good, TY_EVALUE, "bad device '%s': expected for instance cpu(0)", text);
    }
    NEED(id >= 0 && id < IDS, TY_EDEVICE, "bad device '%s': ids are 0 to %d", text, IDS - 1);
    *device = names[i].kind + (int)id;
    return TY_OK;
  }
  return fail(TY_EVALUE, "bad device '%s': expected cpu(i), gpu(i) or cpu_pinned(i)", text);
}

static int check(int device)
{
  bool good = device >= 0 && device_kind(device) <= TY_PINNED && device_id(device) < IDS;
  NEED(good, TY_EDEVICE, "there is no device number %d", device);
  return TY_OK;
}

int device_open(int device)
{
  TRY(check(device));
  const struct device_ops *ops = device_ops(device);
  char name[32];
  NEED(ops, TY_EDEVICE, "%s does not exist: this build has no code for it",
      device_name(device, name, sizeof name));
  return ops->open(device);
}

/* -- random states ----------------------------------------------------------------------------- */

static struct rng_state state[SLOTS];
/* false: the state still follows from base_seed */
static bool seeded[SLOTS];
static uint64_t base_seed;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

/* Seeds of devices 1, 2, ... derived from one; device 0 takes it as it is. SplitMix64 (Steele et
** al. 2014). */
static uint64_t mixed(uint64_t seed, int id)
{
  if (id == 0) return seed;
  uint64_t z = seed + 0x9E3779B97F4A7C15u * (uint64_t)id;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static struct rng_state *state_of(int device) /* under the guard */
{
  int slot = device_slot(device);
  if (!seeded[slot]) state[slot] = (struct rng_state){ mixed(base_seed, slot & (IDS - 1)), 0 };
  seeded[slot] = true;
  return &state[slot];
}

struct rng_state device_next_rng(int device)
{
  pthread_mutex_lock(&guard);
  struct rng_state *s = state_of(device), d = *s;
  s->counter++;
  pthread_mutex_unlock(&guard);
  return d;
}

int ty_seed(int device, uint64_t seed)
{
  if (device != -1) TRY(check(device));
  pthread_mutex_lock(&guard);
  if (device == -1) {
    base_seed = seed;
    memset(seeded, 0, sizeof seeded);
  }
  else {
    *state_of(device) = (struct rng_state){ seed, 0 };
  }
  pthread_mutex_unlock(&guard);
  return TY_OK;
}

int ty_rng(int device, int set, uint64_t *seed, uint64_t *counter)
{
  TRY(check(device));
  NEED(seed && counter, TY_ETYPE, "ty_rng: seed or counter is missing");
  pthread_mutex_lock(&guard);
  struct rng_state *s = state_of(device);
  if (set) *s = (struct rng_state){ *seed, *counter };
  *seed = s->seed;
  *counter = s->counter;
  pthread_mutex_unlock(&guard);
  return TY_OK;
}

int ty_rng_unit(int device, double *out)
{
  TRY(check(device));
  NEED(out, TY_ETYPE, "ty_rng_unit: no place for the result");
  struct rng_state d = device_next_rng(device);
  struct philox p = philox(d.seed, d.counter, 0, 0);
  *out = unit_f64(p.w[0], p.w[1]);
  return TY_OK;
}

/* -- asking ------------------------------------------------------------------------------------ */

int ty_devices(int kind)
{
  const struct device_ops *ops = device_ops(kind);
  return ops ? ops->count() : 0;
}

int ty_device_memory(int device, int64_t *total, int64_t *used, int64_t *pool)
{
  TRY(device_open(device));
  NEED(total && used && pool, TY_ETYPE, "ty_device_memory: no place for the result");
  *total = device_ops(device)->memory(device);
  memory_in_use(device, used, pool);
  return TY_OK;
}

int ty_device_work(int device, int64_t *launches, int64_t *copies)
{
  TRY(device_open(device));
  NEED(launches && copies, TY_ETYPE, "ty_device_work: no place for the result");
  *launches = *copies = 0;
  if (device_ops(device)->work) device_ops(device)->work(device, launches, copies);
  return TY_OK;
}

int ty_wait(int device)
{
  if (device != -1) TRY(check(device));
  int64_t from = profile_begin();
  int code = device_wait(device);
  profile_call("waitall", from);
  return code;
}

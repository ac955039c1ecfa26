/* kinds.c - the kinds of devices: registered operations, names, and calls that are passed to the
** operations of a device.
**
** cpu(0) .. cpu(63) always exist; cpu_pinned(i) is memory of cpu(i). Another kind exists once a
** back end has registered its operations.
*/
#include "device/collective.h"
#include "device/queue.h"

/* TY_CPU, TY_GPU. Atomic. */
static const struct device_ops *kinds[2] = { &cpu_ops, NULL };

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

static const struct collective_ops *collectives; /* NULL: no back end has any */

void collective_register(const struct collective_ops *ops)
{
  collectives = ops;
  order_register(COLLECTIVE_QUEUE, ops->order);
}

/* Indexed by the slot of a kind's first device. */
static const struct order_ops *orders[SLOTS];

void order_register(int kind, const struct order_ops *ops) { orders[device_slot(kind)] = ops; }

const struct order_ops *queue_order_ops(int device)
{
  return orders[device_slot(device_kind(device))];
}

const struct collective_ops *collective_ops(void) { return collectives; }

const struct device_ops *queue_ops(int device)
{
  static const struct device_ops no_memory = { .name = "comm" };
  return has_memory(device)                     ? device_ops(device)
      : device_kind(device) == COLLECTIVE_QUEUE ? collectives->queue
                                                : &no_memory;
}

int device_copy(int dst_device, void *dst, int src_device, const void *src, size_t bytes)
{
  /* the side that is a GPU, if there is one, does the copy */
  int device = device_kind(dst_device) == TY_GPU ? dst_device : src_device;
  return device_ops(device)->copy(dst_device, dst, src_device, src, bytes);
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

int device_check(int device)
{
  bool good = device >= 0 && device_kind(device) <= TY_PINNED && device_id(device) < IDS;
  NEED(good, TY_EDEVICE, "there is no device number %d", device);
  return TY_OK;
}

int device_open(int device)
{
  TRY(device_check(device));
  const struct device_ops *ops = device_ops(device);
  char name[32];
  NEED(ops, TY_EDEVICE, "%s does not exist: this build has no code for it",
      device_name(device, name, sizeof name));
  return ops->open(device);
}

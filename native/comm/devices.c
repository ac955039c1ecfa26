/* devices.c - groups whose ranks are devices: a library of their back end (NCCL) moves and adds
** (device/collective.h). A process may have several ranks. Before a group is opened, processes
** exchange handshakes with the group's id and their numbers of devices.
*/
#include "comm/comm.h"

enum { LOCAL = 16 }; /* most ranks of a process */
struct device_world {
  struct comm_world world;
  struct collective *group;
  int local, device[LOCAL];
};

int comm_devices_at(const struct comm_world *w, int i)
{
  return ((const struct device_world *)w)->device[i];
}

/* -- opening ----------------------------------------------------------------------------------- */

int ty_comm_devices(char *text, size_t size)
{
  const struct collective_ops *ops = collective_ops();
  NEED(text && size, TY_ETYPE, "ty_comm_devices: the text is missing");
  NEED(ops, TY_EDEVICE, "this build has no code for sums over devices");
  return ops->find(text, size);
}

void comm_devices_offer(struct comm_handshake *g, int n, bool makes_id)
{
  memset(g, 0, sizeof *g);
  g->devices = n;
  int code = ty_comm_devices(g->text, sizeof g->text);
  if (!code && makes_id) code = collective_ops()->make_id(g->id);
  if (code) snprintf(g->text, sizeof g->text, "%s", ty_error());
  if (code) failure_drop(failure_take(code));
  g->found = !code;
}

static int devices_check_handshakes(const struct comm_handshake *g, int ranks)
{
  for (int r = 0; r < ranks; r++) {
    if (ranks == 1) NEED(g[r].found, TY_EDEVICE, "%s", g[r].text);
    NEED(g[r].found, TY_EDEVICE, "rank %d of %d: %s", r, ranks, g[r].text);
    NEED(!strcmp(g[r].text, g[0].text), TY_EDEVICE, "rank 0 has %s, rank %d %s", g[0].text, r,
        g[r].text);
  }
  return TY_OK;
}

int comm_devices_check(const int *device, int n)
{
  char name[32];
  NEED(device && n >= 1 && n <= LOCAL, TY_EVALUE, "a group of %d devices in one process: 1 to %d",
      n, LOCAL);
  for (int i = 0; i < n; i++) {
    device_name(device[i], name, sizeof name);
    NEED(device_kind(device[i]) == TY_GPU, TY_EDEVICE, "sums over devices are for GPUs, not %s",
        name);
    for (int k = 0; k < i; k++)
      NEED(device[k] != device[i], TY_EVALUE, "%s is twice in a group: each array needs a GPU of "
          "its own", name);
    TRY(device_open(device[i]));
  }
  return TY_OK;
}

int comm_devices_open(const int *device, int n, const struct comm_handshake *all, int size, int own,
    struct comm_world **out)
{
  TRY(devices_check_handshakes(all, size));
  struct device_world *w = NEW(struct device_world);
  NEED(w, TY_EMEMORY, "out of memory: a group of devices");
  w->local = n;
  memcpy(w->device, device, sizeof *device * (size_t)n);
  for (int r = 0; r < size; r++) {
    if (r < own) w->world.rank += all[r].devices;
    w->world.size += all[r].devices;
  }
  int code =
      collective_ops()->open(all[0].id, device, n, w->world.rank, w->world.size, &w->group);
  if (code) return mem_free(w), code;
  *out = &w->world;
  return TY_OK;
}

/* -- operations -------------------------------------------------------------------------------- */

enum { MAX_PARTS = 512 }; /* most parts in one call of the library */

/* Sums (root -1) or broadcasts all parts. */
static int devices_move_pieces(
    struct device_world *w, const struct comm_part *part, int n, int dtype, int root)
{
  const struct collective_ops *ops = collective_ops();
  struct collective_part piece[MAX_PARTS];
  int most = MAX_PARTS / w->local * w->local;
  for (int at = 0; at < n; at += most) {
    int k = MIN(n - at, most);
    for (int i = 0; i < k; i++)
      piece[i] = (struct collective_part){ part[at + i].from, part[at + i].to, part[at + i].n,
        i % w->local };
    TRY(root < 0 ? ops->sum(w->group, piece, k, dtype)
                 : ops->broadcast(w->group, piece, k, dtype, root));
  }
  return TY_OK;
}

static int devices_sum_arrays(struct comm_world *w, const struct comm_part *part, int n, int dtype)
{
  return devices_move_pieces((struct device_world *)w, part, n, dtype, -1);
}

static int devices_broadcast_arrays(
    struct comm_world *w, const struct comm_part *part, int n, int dtype, int root)
{
  return devices_move_pieces((struct device_world *)w, part, n, dtype, root);
}

void comm_devices_abort(void)
{
  const struct collective_ops *ops = collective_ops();
  if (ops) ops->abort();
}

static void devices_abort_all(struct comm_world *w, int status) { comm_devices_abort(); }

static void devices_close_group(struct comm_world *w)
{
  collective_ops()->close(((struct device_world *)w)->group);
  mem_free(w);
}

const struct comm_ops comm_devices = {
  .name = "devices",
  .size = sizeof(struct comm_ops),
  .abort = devices_abort_all,
  .close = devices_close_group,
  .sum_arrays = devices_sum_arrays,
  .broadcast_arrays = devices_broadcast_arrays,
};

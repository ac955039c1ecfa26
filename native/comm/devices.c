/* devices.c - groups whose ranks are devices: a library of their back end (NCCL) moves and adds
** (device/collective.h). A process has several ranks of a group; ranks of other processes are found
** by way of a group of processes, which carries the library's id and who has how many devices.
*/
#include "comm/comm.h"
#include "device/collective.h"

enum { LOCAL = 16 };
struct device_world {
  struct comm_world world;
  struct collective *group;
  int local, device[LOCAL];
};

int comm_devices_at(const struct comm_world *w, int i)
{
  return ((const struct device_world *)w)->device[i];
}

/* -- finding each other ------------------------------------------------------------------------ */

/* what processes tell each other; text: the library that is there, or why there is none */
struct greeting {
  int32_t devices;
  bool found;
  char text[256], id[COLLECTIVE_ID];
};

int ty_comm_devices(char *text, size_t size)
{
  const struct collective_ops *ops = collective_ops();
  NEED(text && size, TY_ETYPE, "ty_comm_devices: no place for the text");
  NEED(ops, TY_EDEVICE, "this build has no code for sums over devices");
  return ops->find(text, size);
}

/* As far as this process can tell; what is missing is told to the others, who would wait. */
static void greet(struct greeting *g, int n, bool makes_id)
{
  memset(g, 0, sizeof *g);
  g->devices = n;
  int code = ty_comm_devices(g->text, sizeof g->text);
  if (!code && makes_id) code = collective_ops()->make_id(g->id);
  if (code) snprintf(g->text, sizeof g->text, "%s", ty_error());
  if (code) failure_drop(failure_take(code));
  g->found = !code;
}

static int check_greetings(const struct greeting *g, int ranks)
{
  for (int r = 0; r < ranks; r++) {
    if (ranks == 1) NEED(g[r].found, TY_EDEVICE, "%s", g[r].text);
    NEED(g[r].found, TY_EDEVICE, "rank %d of %d: %s", r, ranks, g[r].text);
    NEED(!strcmp(g[r].text, g[0].text), TY_EDEVICE, "rank 0 has %s, rank %d %s", g[0].text, r,
        g[r].text);
  }
  return TY_OK;
}

static int find_others(struct device_world *w, ty_comm *ranks, char id[COLLECTIVE_ID])
{
  int n = ranks ? ty_comm_size(ranks) : 1, own = ranks ? ty_comm_rank(ranks) : 0;
  struct greeting *all = NEWS(struct greeting, (size_t)n), mine;
  NEED(all, TY_EMEMORY, "out of memory: a group of devices");
  greet(&mine, w->local, own == 0);
  all[0] = mine;
  int code = ranks ? ty_comm_gather(ranks, &mine, sizeof mine, all) : TY_OK;
  if (!code) code = check_greetings(all, n);
  for (int r = 0; r < n; r++) {
    if (r < own) w->world.rank += all[r].devices;
    w->world.size += all[r].devices;
  }
  memcpy(id, all[0].id, COLLECTIVE_ID);
  mem_free(all);
  return code;
}

static int check_devices(const int *device, int n)
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

int comm_devices_open(const int *device, int n, ty_comm *ranks, struct comm_world **out)
{
  char id[COLLECTIVE_ID];
  TRY(check_devices(device, n));
  struct device_world *w = NEW(struct device_world);
  NEED(w, TY_EMEMORY, "out of memory: a group of devices");
  w->local = n;
  memcpy(w->device, device, sizeof *device * (size_t)n);
  int code = find_others(w, ranks, id);
  if (!code) code = collective_ops()->open(id, device, n, w->world.rank, w->world.size, &w->group);
  if (code) return mem_free(w), code;
  *out = &w->world;
  return TY_OK;
}

/* -- what they do ------------------------------------------------------------------------------ */

enum { PARTS = 512 };                                 /* of one call of the library's */

static int in_pieces(
    struct device_world *w, const struct comm_part *part, int n, int dtype, int root)
{
  const struct collective_ops *ops = collective_ops();
  struct collective_part piece[PARTS];
  int most = PARTS / w->local * w->local;
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

static int sum_arrays(struct comm_world *w, const struct comm_part *part, int n, int dtype)
{
  return in_pieces((struct device_world *)w, part, n, dtype, -1);
}

static int broadcast_arrays(
    struct comm_world *w, const struct comm_part *part, int n, int dtype, int root)
{
  return in_pieces((struct device_world *)w, part, n, dtype, root);
}

void comm_devices_abort(void)
{
  const struct collective_ops *ops = collective_ops();
  if (ops) ops->abort();
}

static void end(struct comm_world *w, int status) { comm_devices_abort(); }

static void close_group(struct comm_world *w)
{
  collective_ops()->close(((struct device_world *)w)->group);
  mem_free(w);
}

const struct comm_ops comm_devices = {
  .name = "devices",
  .size = sizeof(struct comm_ops),
  .abort = end,
  .close = close_group,
  .sum_arrays = sum_arrays,
  .broadcast_arrays = broadcast_arrays,
};

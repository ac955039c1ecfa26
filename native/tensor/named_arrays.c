/* named_arrays.c - ty_bag: named tensors in the order of insertion. A tensor replaces an earlier
** one of the same name. A bag owns a reference to each; names and tensors that it returns are
** borrowed, and valid until it changes.
*/
#include "tensor/tensor.h"

struct item { char *name; ty_tensor *tensor; };
struct ty_bag {
  struct item *item;
  int n, cap;
  int *slot;                                          /* hash table of item indices + 1 */
  int slots;                                          /* a power of two */
};

int ty_bag_new(ty_bag **out)
{
  NEED(out, TY_ETYPE, "ty_bag_new: no place for the result");
  ty_bag *b = NEW(ty_bag);
  NEED(b, TY_EMEMORY, "out of memory");
  live_add(LIVE_BAG, 1);
  *out = b;
  return TY_OK;
}

void ty_bag_free(ty_bag *b)
{
  if (!b || mem_kept()) return;
  for (int i = 0; i < b->n; i++) {
    mem_free(b->item[i].name);
    ty_tensor_free(b->item[i].tensor);
  }
  mem_free(b->item);
  mem_free(b->slot);
  mem_free(b);
  live_add(LIVE_BAG, -1);
}

/* Returns the slot of a name, or the empty one where it belongs. */
static int *find_array(ty_bag *b, const char *name)
{
  uint32_t mask = (uint32_t)b->slots - 1, h = name_hash(name) & mask;
  while (b->slot[h] && strcmp(b->item[b->slot[h] - 1].name, name)) h = (h + 1) & mask;
  return &b->slot[h];
}

static int widen_array(ty_bag *b)
{
  if (b->slots > b->n * 2) return TY_OK;
  int slots = b->slots ? b->slots * 2 : 16;
  int *fresh = NEWS(int, slots);
  NEED(fresh, TY_EMEMORY, "out of memory");
  mem_free(b->slot);
  b->slot = fresh;
  b->slots = slots;
  for (int i = 0; i < b->n; i++) *find_array(b, b->item[i].name) = i + 1;
  return TY_OK;
}

int ty_bag_put(ty_bag *b, const char *name, ty_tensor *t)
{
  NEED(b && name && t, TY_ETYPE, "ty_bag_put: the bag, the name or the tensor is missing");
  TRY(widen_array(b));
  int *slot = find_array(b, name);
  if (!*slot) {
    NEED(GROW(b->item, b->n, b->cap), TY_EMEMORY, "out of memory");
    char *copy = mem_text(name);
    NEED(copy, TY_EMEMORY, "out of memory");
    b->item[b->n++] = (struct item){ copy, NULL };
    *slot = b->n;
  }
  struct item *item = &b->item[*slot - 1];
  ty_tensor_keep(t);
  ty_tensor_free(item->tensor);
  item->tensor = t;
  return TY_OK;
}

int ty_bag_get(ty_bag *b, const char *name, ty_tensor **out)
{
  NEED(
      b && name && out, TY_ETYPE, "ty_bag_get: the bag, the name or the result's place is missing");
  int at = b->slots ? *find_array(b, name) : 0;
  if (!at) {
    fail(TY_ENAME, "there is no array named '%s'", name);
    fail_argument(name, NULL, NULL);
    return TY_ENAME;
  }
  *out = b->item[at - 1].tensor;
  return TY_OK;
}

int ty_bag_at(ty_bag *b, int i, const char **name, ty_tensor **out)
{
  NEED(b, TY_ETYPE, "ty_bag_at: the bag is missing");
  NEED(i >= 0 && i < b->n, TY_EINDEX, "array %d of a bag of %d", i, b->n);
  if (name) *name = b->item[i].name;
  if (out) *out = b->item[i].tensor;
  return TY_OK;
}

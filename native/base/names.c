/* names.c - see names.h. The hash table has one slot per name (open addressing); entries of the
** same name are linked by `next`. */
#include "base/names.h"
#include "base/base.h"

static const char *name_of(const struct names *x, int entry)
{
  return *(const char *const *)(x->entry + (size_t)entry * x->stride);
}

uint32_t name_hash(const char *s)
{
  uint32_t h = 2166136261u;
  for (; *s; s++) h = (h ^ (unsigned char)*s) * 16777619u;
  return h;
}

/* Returns the slot of a name, or the free one where it belongs. */
static int *find_slot(const struct names *x, const char *name)
{
  uint32_t mask = (uint32_t)x->slots - 1, h = name_hash(name) & mask;
  while (x->slot[h] != -1 && strcmp(name_of(x, x->slot[h]), name)) h = (h + 1) & mask;
  return &x->slot[h];
}

int names_index(struct names *x, const void *entries, size_t stride, int n)
{
  *x = (struct names){ .entry = entries, .stride = stride, .n = n, .slots = 16 };
  while (x->slots < 2 * n) x->slots *= 2;
  x->slot = NEWS(int, x->slots);
  x->next = NEWS(int, n);
  x->turn = NEWS(int, n);
  if (!x->slot || !x->next || !x->turn) {
    names_done(x);
    return fail(TY_EMEMORY, "out of memory: names");
  }
  for (int i = 0; i < x->slots; i++) x->slot[i] = -1;
  for (int i = n - 1; i >= 0; i--) {                  /* backwards, so that chains run forwards */
    if (!name_of(x, i)) continue;
    int *slot = find_slot(x, name_of(x, i));
    x->next[i] = *slot;
    x->turn[i] = i;
    *slot = i;
  }
  return TY_OK;
}

void names_done(struct names *x)
{
  mem_free(x->slot);
  mem_free(x->next);
  mem_free(x->turn);
  *x = (struct names){ 0 };
}

int names_first(const struct names *x, const char *name) { return *find_slot(x, name); }

int names_next(const struct names *x, int entry) { return x->next[entry]; }

int names_take(struct names *x, const char *name)
{
  int first = names_first(x, name), entry = first < 0 ? -1 : x->turn[first];
  if (entry >= 0) x->turn[first] = x->next[entry];
  return entry;
}

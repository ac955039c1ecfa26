/* names.h - an index over a list of entries that begin with their name: finding one takes the same
** time however long the list is. */
#pragma once
#include <stddef.h>
#include <stdint.h>

uint32_t name_hash(const char *name);                 /* FNV-1a (Fowler, Noll, Vo) */

struct names {
  const char *entry;                                  /* borrowed */
  size_t stride;
  /* slot: the first entry of a name, -1: free; slots is a power of two. next: the next entry of
  ** the same name, in the order of the list, -1: none. turn: of the first of a name, the entry
  ** that names_take gives next, -1: none */
  int n, slots, *slot, *next, *turn;
};

/* Entries without a name (NULL) are left out. On TY_EMEMORY nothing is to be freed. */
int  names_index(struct names *x, const void *entries, size_t stride, int n);
void names_done(struct names *x);
int  names_first(const struct names *x, const char *name);  /* an entry, -1: there is none */
int  names_next(const struct names *x, int entry);          /* -1: that was the last */
/* the first entry of a name, at the next call the second and so on; -1: all were given */
int  names_take(struct names *x, const char *name);

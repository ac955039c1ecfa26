/* names.h - an index over a list of entries that begin with their name: finding one takes the same
** time however long the list is. */
#pragma once
#include <stddef.h>
#include <stdint.h>

uint32_t name_hash(const char *name);                 /* FNV-1a (Fowler, Noll, Vo) */

struct names {
  const char *entry;                                  /* borrowed */
  size_t stride;
  int n;                                              /* entries */
  int slots;                                          /* of the hash table; a power of two */
  int *slot;                                          /* first entry of a name; -1: free */
  int *next;                                          /* next entry of the same name; -1: none */
  int *turn; /* first entries: the next for names_take; -1 */
};

/* Makes an index; entries without a name (NULL) are left out. If it fails, nothing is to be
** freed. */
int  names_index(struct names *x, const void *entries, size_t stride, int n);
void names_done(struct names *x);
int  names_first(const struct names *x, const char *name);  /* an entry, -1: there is none */
int  names_next(const struct names *x, int entry);          /* -1: that was the last */
/* Returns the first entry of a name, at the next call the second and so on; -1: all were given. */
int  names_take(struct names *x, const char *name);

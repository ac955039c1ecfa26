/* names.h - a hash index over an array of entries, each of which begins with a pointer to its
** name. */
#pragma once
#include <stddef.h>
#include <stdint.h>

uint32_t name_hash(const char *name);                 /* FNV-1a (Fowler, Noll, Vo) */

struct names {
  const char *entry;                                  /* borrowed */
  size_t stride;
  int n;                                              /* number of entries */
  int slots;                                          /* size of the hash table, a power of two */
  /* per slot: first entry of a name; -1: free */
  int *slot;
  /* per entry: next one of that name; -1: none */
  int *next;
  /* per first entry of a name: what names_take returns next; -1: nothing is left */
  int *turn;
};

/* Makes an index of n entries, `stride` bytes apart, which are borrowed. Entries whose name is NULL
** are left out. If it fails, nothing has to be freed. */
int  names_index(struct names *x, const void *entries, size_t stride, int n);
void names_done(struct names *x);
/* Returns the first entry of a name; -1: there is none. */
int  names_first(const struct names *x, const char *name);
/* Returns the next entry with the same name; -1: that was the last. */
int  names_next(const struct names *x, int entry);
/* Returns the first entry of a name, at the next call the second, and so on; -1: there are no
** more. */
int  names_take(struct names *x, const char *name);

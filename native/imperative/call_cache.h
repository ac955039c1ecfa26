/* call_cache.h - a cache of what a call of one operator needs besides its arrays: parameters,
** ports, shapes, device, kernel.
**
** All of that follows from the operator, the texts of its attributes and the descriptors of its
** arrays, so a call that was made before costs one look-up. A cached call is shared by queued
** tasks; those of one device run one after another, so the pointers in `v.call` and the kernel's
** state belong to the task that runs. Each cached_call_find is followed by a cached_call_release,
** when the runs that it was for have ended.
*/
#pragma once
#include "op/dispatch.h"

struct cached_call {
  /* in, out: descriptors; a run sets the pointers */
  struct invoke v;
  struct ports ports;
  /* attributes as given */
  const ty_attr *attr;
  int nattr;
  const struct in_place *in_place;
  struct run run;
  void *state;                                        /* v.call.state */
  int device;
  int precision;                                      /* PRECISION_*, of its scope */
  bool small;                                         /* struct task */
  int refs;                                           /* atomic */
  struct arena arena;                                 /* holds all of this */
  uint64_t form;                                      /* lazy/numbers.h; 0: not computed yet */
  double number;                                      /* of a call that has a form */
  const char *key;                                    /* nkey 0: not remembered */
  size_t nkey;
  uint64_t hash;
};
struct call_key {
  const struct op *op;
  const ty_attr *attr;
  int nattr;
  ty_tensor *const *in;
  int nin;
  /* given outputs, NULL where one is to be made */
  ty_tensor *const *out;
  int nout;
  const char *where;                                  /* line of the script, lives on; NULL */
};
/* Finds the cached call of a key, or makes it, with a reference for the caller. Checks all of the
** call's arguments: attributes, number of arrays, shapes, dtypes, devices. */
int  cached_call_find(const struct call_key *q, struct cached_call **out);
/* Adds a reference and returns r. */
struct cached_call *cached_call_keep(struct cached_call *r);
/* Drops a reference, the last one frees the call; r may be NULL. */
void cached_call_release(struct cached_call *r);
/* Returns whether two cached calls have the same key. They may be two objects, since a call that
** the cache has dropped is made anew while the old one is still in use. */
static inline bool cached_call_same(const struct cached_call *a, const struct cached_call *b)
{
  return a == b ||
      (a->nkey && a->nkey == b->nkey && a->hash == b->hash && !memcmp(a->key, b->key, a->nkey));
}

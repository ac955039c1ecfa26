/* symbol_draft.h - the nodes of a symbol file before they are built (symbol_read.c). */
#pragma once
#include "graph/graph.h"
#include "base/json.h"

struct input { int node, out, version; };
struct draft {
  const char *op, *name;                              /* op NULL: a variable */
  ty_attr *attr;
  struct input *in;
  size_t *body;                                       /* where its subgraphs begin in the text */
  int nattr, cap, nin, nbody;
  /* 0 new, 1 open, 2 done; its number in the graph */
  int mark, index;
};
struct file {
  const char *text;
  struct arena *arena;
  struct draft *node;
  int n, cap;
  struct input *head;
  int nhead;
  int *order, norder;
  int version;
};

ty_attr *draft_attr(struct draft *d, const char *key);                       /* NULL */
int draft_reserve_attrs(struct file *f, struct draft *d, int more);
int draft_add_attr(struct file *f, struct draft *d, const char *key, const char *value);
int draft_reserve(struct file *f, int n);                /* for n drafts */
/* Names of the inputs; only attributes that are parameters count, so that it works before the
** keys are repaired. */
int draft_ports(const struct draft *d, struct arena *a, struct ports *out);
int draft_upgrade(struct file *f);                    /* from f->version to the present */

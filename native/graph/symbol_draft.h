/* symbol_draft.h - the nodes of a symbol file before they are built (symbol_read.c). */
#pragma once
#include "graph/graph.h"
#include "base/json.h"

struct input { int node, out, version; };
struct draft {
  const char *op, *name;                              /* op NULL: a variable */
  ty_attr *attr;
  int nattr, cap;
  struct input *in;
  int nin;
  const struct json *bodies;
  /* 0 new, 1 open, 2 done; its number in the graph */
  int mark, index;
};
struct file {
  struct arena *arena;
  struct draft *node;
  int n, cap;
  struct input *head;
  int nhead;
  int *order, norder;
  int version;
};

ty_attr *draft_attr(struct draft *d, const char *key);                       /* NULL */
int draft_add_attr(struct file *f, struct draft *d, const char *key, const char *value);
int draft_room(struct file *f, int n);                /* for n drafts */
/* Names of the inputs; only attributes that are parameters count, so that it works before the
** keys are repaired. */
int draft_ports(struct file *f, const struct draft *d, struct ports *out);
int draft_upgrade(struct file *f);                    /* from f->version to the present */

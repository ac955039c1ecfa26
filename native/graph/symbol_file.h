/* symbol_file.h - shared by the writer (symbol_write.c) and the reader (symbol_read.c) of symbol
** files. */
#pragma once
#include "graph/graph.h"

enum { FILE_VERSION = 10901 };                        /* major * 10000 + minor * 100 + patch */

/* The nodes that heads reach, depth-first: the order of a file. In the caller's arena. */
struct listing {
  int *order, n;                                      /* nodes in the file's order */
  /* per node: its index in `order`; -1: not reached */
  int *id;
  int **version;                                      /* [node][input]: versions as counted */
  const int *const *given;                            /* used instead of `version`; NULL: none */
};
/* Lists the nodes that the heads reach. */
int listing_make(
    const ty_graph *g, const ty_entry *head, int nhead, struct arena *a, struct listing *out);
/* Counts the versions of the inputs of the listed nodes into l->version. */
int listing_versions(const ty_graph *g, struct listing *l, struct arena *a);
/* Appends the JSON of the nodes that the heads reach. version: instead of counted ones, or NULL. */
int graph_print(const ty_graph *g, const ty_entry *head, int nhead, const int *const *version,
    struct text *out);

/* symbol_file.h - what the writer (symbol_write.c) and the reader (symbol_read.c) of symbol
** files share. */
#pragma once
#include "graph/graph.h"

enum { FILE_VERSION = 10901 };                        /* major * 10000 + minor * 100 + patch */

/* The nodes that heads reach, depth-first. */
struct listing {
  int *order, n;                                      /* nodes, in the order of the file */
  int *id;                                            /* per node: its index there, plus 1 */
  int **version;                                      /* [node][input], counted */
  const int *const *given;                            /* taken instead of `version`; NULL: none */
};
int listing_make(
    const ty_graph *g, const ty_entry *head, int nhead, struct arena *a, struct listing *out);
int listing_versions(const ty_graph *g, struct listing *l, struct arena *a);
int graph_print(const ty_graph *g, const ty_entry *head, int nhead, const int *const *version,
    struct text *out);

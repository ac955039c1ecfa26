/* symbol.c - files of graphs (graph/symbol_read.c), with inference of shapes and types over them.
** What is read is written, and that text is read as itself.
*/
#include "fuzz.h"
#include "graph/graph.h"

static void write_and_read(ty_graph *g)
{
  const ty_entry *head;
  const char *text, *again;
  int n;
  ty_graph *h = NULL;
  MUST(!ty_graph_heads(g, &head, &n));
  if (ty_graph_text(g, head, n, &text)) return;
  char *kept = fuzz_text(text, strlen(text));
  MUST(!ty_graph_parse(kept, &h));
  MUST(!ty_graph_heads(h, &head, &n));
  MUST(!ty_graph_text(h, head, n, &again) && !strcmp(kept, again));
  ty_graph_free(h);
  free(kept);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  ty_graph *g = NULL;
  char *text = fuzz_text(data, size);
  fuzz_begin();
  if (!ty_graph_parse(text, &g)) {
    ty_desc *desc = calloc((size_t)g->nvalue + 1, sizeof *desc);
    MUST(desc);
    ty_graph_infer(g, NULL, 0, 1, desc);
    free(desc);
    write_and_read(g);
  }
  ty_graph_free(g);
  free(text);
  return fuzz_end(size);
}

/* label_list.c - see label_list.h. */
#include "io/label_list.h"
#include "base/base.h"

static int add_label(struct label_list *t, float v)
{
  NEED(t->values < INT32_MAX && GROW(t->value, (int)t->values, t->cap_value), TY_EMEMORY,
      "out of memory");
  t->value[t->values++] = v;
  return TY_OK;
}

static int wrong_row(const struct line_reader *l, int64_t width)
{
  char labels[40] = "labels";
  if (width) snprintf(labels, sizeof labels, "%lld labels", (long long)width);
  return fail(TY_EFORMAT, "'%s', line %lld: expected a number, %s and a path between tabs",
      l->stream.path, (long long)l->number, labels);
}

static int read_row(struct label_list *t, const struct line_reader *l, char *line, int64_t width)
{
  char *end, *after;
  struct label_row row = { strtoll(line, &end, 10), t->values, 0 };
  if (end == line) return wrong_row(l, width);
  for (; *end == '\t' && (width == 0 || row.n < width); row.n++, end = after) {
    float v = (float)number_read(end + 1, &after);
    if (after == end + 1 || *after != '\t') break; /* the path */
    TRY(add_label(t, v));
  }
  if (*end != '\t' || row.n < MAX(width, 1)) return wrong_row(l, width);
  NEED(t->n < INT32_MAX && GROW(t->row, (int)t->n, t->cap), TY_EMEMORY, "out of memory");
  t->row[t->n++] = row;
  return TY_OK;
}

static int by_id(const void *a, const void *b)
{
  const struct label_row *x = a, *y = b;
  return x->id != y->id ? (x->id > y->id) - (x->id < y->id) : (x->at > y->at) - (x->at < y->at);
}

int label_list_read(const char *path, int64_t width, struct label_list *out)
{
  struct line_reader l = { 0 };
  char *line = NULL;
  int code = stream_open(&l.stream, path);
  while (code == TY_OK && (code = lines_next(&l, &line)) == TY_OK && line)
    code = read_row(out, &l, line, width);
  lines_close(&l);
  if (code == TY_OK && out->n) qsort(out->row, (size_t)out->n, sizeof *out->row, by_id);
  return code;
}

int label_list_find(const struct label_list *t, int64_t id, const float **value, int64_t *n)
{
  int64_t low = 0, high = t->n;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (t->row[middle].id < id)
      low = middle + 1;
    else
      high = middle;
  }
  NEED(low < t->n && t->row[low].id == id, TY_ENAME, "path_imglist has no labels of image %lld",
      (long long)id);
  *value = t->value + t->row[low].at;
  *n = t->row[low].n;
  return TY_OK;
}

void label_list_free(struct label_list *t)
{
  mem_free(t->row);
  mem_free(t->value);
}

/* table.c - "csv" and "libsvm": samples as lines of text.
**
** csv: numbers separated by commas, as many as the shape has elements, with an optional comma at
** the end; labels are in a separate file, or 0. The first line is skipped as a header if none of
** its fields is a number, or if `header` says so. libsvm: a label, optionally with a weight, then
** index:value pairs, indices from 0; labels may also be such pairs in a separate file; weights,
** query numbers (qid:) and text after # are ignored. Empty lines are skipped. Numbers become
** float32, or float64 if `dtype` says so.
*/
#include "io/reader.h"

struct table_reader {
  struct reader base;
  struct line_reader data;
  /* stream.file NULL: there are no labels */
  struct line_reader label;
  double *row;
  int64_t columns, labels, parts, index, from, to, at;
  bool sparse;
  enum { DETECT, PRESENT, ABSENT } header;            /* of each file */
};

/* -- one line ---------------------------------------------------------------------------------- */

static int bad_line(const struct line_reader *l, const char *what)
{
  fail(TY_EFORMAT, "'%s', line %lld: %s", l->stream.path, (long long)l->number, what);
  fail_argument(l->stream.path, NULL, NULL);
  return TY_EFORMAT;
}

static const char *skip_blanks(const char *s)
{
  while (*s == ' ' || *s == '\t') s++;
  return s;
}

static bool field_is_number(const char *s)
{
  char *end;
  s = skip_blanks(s);
  if (*s && strchr("0123456789+-.", *s)) return true;
  number_read(s, &end); /* nan, inf */
  const char *rest = skip_blanks(end);
  return end > s && (!*rest || *rest == ',');
}

static bool line_has_number(const char *s)
{
  for (; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
    if (field_is_number(s)) return true;
  return false;
}

/* Reads the next line that has a sample; *line is NULL past the last one. */
static int next_line(const struct table_reader *t, struct line_reader *l, char **line)
{
  bool first = l->number == 0;
  for (;; first = false) {
    TRY(lines_next(l, line));
    if (!*line) return TY_OK;
    if (t->sparse) {
      (*line)[strcspn(*line, "#")] = 0;
      if (*skip_blanks(*line)) return TY_OK;
    }
    else if (!first || t->header == ABSENT || (t->header == DETECT && line_has_number(*line)))
      return TY_OK;
  }
}

static int wrong_count(const struct line_reader *l, int64_t got, int64_t want)
{
  char what[96];
  if (got < want)
    snprintf(
        what, sizeof what, "%lld numbers, the shape needs %lld", (long long)got, (long long)want);
  else
    snprintf(what, sizeof what, "more than the %lld numbers that the shape needs", (long long)want);
  return bad_line(l, what);
}

static int parse_csv(const struct line_reader *l, const char *s, int64_t n, double *out)
{
  for (int64_t i = 0; i < n; i++) {
    char *end;
    out[i] = number_read(s, &end);
    if (end == s)
      return *skip_blanks(s) ? bad_line(l, "a number is expected") : wrong_count(l, i, n);
    s = skip_blanks(end);
    if (i + 1 < n && *s != ',')
      return *s ? bad_line(l, "a comma is expected") : wrong_count(l, i + 1, n);
    if (*s == ',') s++;
  }
  return *skip_blanks(s) ? wrong_count(l, n, n) : TY_OK;
}

/* Skips the number of a query (of rankings). */
static const char *skip_query(const char *s)
{
  s = skip_blanks(s);
  return strncmp(s, "qid:", 4) ? s : skip_blanks(s + 4 + strcspn(s + 4, " \t"));
}

/* Reads a label, and skips a colon and weight after it. */
static int parse_label(const struct line_reader *l, const char *s, double *label, char **end)
{
  *label = number_read(s, end);
  if (*end == s) return bad_line(l, "a label is expected");
  if (**end != ':') return TY_OK;
  s = *end + 1;
  number_read(s, end);
  return *end == s ? bad_line(l, "a weight is expected after ':'") : TY_OK;
}

/* Parses index:value pairs into a dense row. */
static int parse_pairs(const struct line_reader *l, const char *s, int64_t n, double *out)
{
  memset(out, 0, (size_t)n * sizeof *out);
  for (s = skip_query(s); *s; s = skip_blanks(s)) {
    char *end;
    long long i = strtoll(s, &end, 10);
    if (end == s || *end != ':') return bad_line(l, "index:value is expected");
    if (i < 0) return bad_line(l, "a negative index");
    if (i >= n) return bad_line(l, "an index outside the shape");
    s = end + 1;
    out[i] = number_read(s, &end);
    if (end == s) return bad_line(l, "a number is expected after ':'");
    s = end;
  }
  return TY_OK;
}

/* -- samples ----------------------------------------------------------------------------------- */

static void store_number(const struct table_reader *t, void *out)
{
  if (t->base.data.dtype == TY_F64)
    memcpy(out, t->row, (size_t)t->columns * sizeof *t->row);
  else
    for (int64_t i = 0; i < t->columns; i++) ((float *)out)[i] = (float)t->row[i];
}

static int read_label(struct table_reader *t, float *label)
{
  char *line;
  TRY(next_line(t, &t->label, &line));
  if (!line) return bad_line(&t->label, "there are fewer labels than samples");
  TRY(t->sparse ? parse_pairs(&t->label, line + strcspn(line, " \t"), t->labels, t->row)
                : parse_csv(&t->label, line, t->labels, t->row));
  for (int64_t i = 0; i < t->labels; i++) label[i] = (float)t->row[i];
  return TY_OK;
}

static int parse_row(struct table_reader *t, char *line, float *label)
{
  if (!t->sparse) return parse_csv(&t->data, line, t->columns, t->row);
  char *end;
  double own;
  TRY(parse_label(&t->data, line, &own, &end));
  if (!t->label.stream.file) label[0] = (float)own;
  return parse_pairs(&t->data, end, t->columns, t->row);
}

static int next_row(struct reader *r, void *data, float *label, bool *more)
{
  struct table_reader *t = (struct table_reader *)r;
  char *line;
  *more = t->at < t->to;
  if (!*more) return TY_OK;
  TRY(next_line(t, &t->data, &line));
  *more = line != NULL;
  if (!line) return TY_OK;
  t->at++;
  memset(label, 0, (size_t)t->labels * sizeof *label);
  TRY(parse_row(t, line, label));
  store_number(t, data);
  return t->label.stream.file ? read_label(t, label) : TY_OK;
}

static int skip_lines(const struct table_reader *t, struct line_reader *l, int64_t n)
{
  char *line;
  for (int64_t i = 0; i < n; i++) TRY(next_line(t, l, &line));
  return TY_OK;
}

static int rewind_table(struct reader *r)
{
  struct table_reader *t = (struct table_reader *)r;
  TRY(lines_rewind(&t->data));
  if (t->label.stream.file) TRY(lines_rewind(&t->label));
  t->at = t->from;
  TRY(skip_lines(t, &t->data, t->from));
  return t->label.stream.file ? skip_lines(t, &t->label, t->from) : TY_OK;
}

/* -- opening ----------------------------------------------------------------------------------- */

static void close_table(struct reader *r)
{
  struct table_reader *t = (struct table_reader *)r;
  lines_close(&t->data);
  lines_close(&t->label);
  mem_free(t->row);
  mem_free(t);
}

/* Sets the range of samples of this part. Samples are counted only if there are several parts. */
static int set_range(struct table_reader *t)
{
  t->to = INT64_MAX;
  if (t->parts == 1) return TY_OK;
  int64_t count = 0;
  for (char *line;; count++) {
    TRY(next_line(t, &t->data, &line));
    if (!line) break;
  }
  cut_part(count, t->parts, t->index, &t->from, &t->to);
  return rewind_table(&t->base);
}

static int open_files(struct table_reader *t, const struct options *o)
{
  const char *labels = option_text(o, t->sparse ? "label_libsvm" : "label_csv", "NULL");
  TRY(option_shape(o, "data_shape", NULL, &t->base.data));
  TRY(option_shape(o, "label_shape", "(1,)", &t->base.label));
  TRY(option_part(o, &t->parts, &t->index));
  bool header;
  TRY(option_bool(o, "header", false, &header));
  t->header = !option_text(o, "header", NULL) ? DETECT : header ? PRESENT : ABSENT;
  if (!strcmp(option_text(o, "dtype", "float32"), "float64")) t->base.data.dtype = TY_F64;
  t->columns = desc_count(&t->base.data);
  t->labels = desc_count(&t->base.label);
  t->row = NEWS(double, MAX(t->columns, t->labels));
  if (!t->row) return TY_EMEMORY;
  TRY(stream_open(&t->data.stream, option_text(o, t->sparse ? "data_libsvm" : "data_csv", "")));
  if (strcmp(labels, "NULL")) TRY(stream_open(&t->label.stream, labels));
  return set_range(t);
}

static int open_table(const struct options *o, bool sparse, struct reader **out)
{
  struct table_reader *t = NEW(struct table_reader);
  if (!t) return TY_EMEMORY;
  t->sparse = sparse;
  t->base.kind = sparse ? &reader_libsvm : &reader_csv;
  int code = open_files(t, o);
  if (code != TY_OK) {
    close_table(&t->base);
    return code;
  }
  *out = &t->base;
  return TY_OK;
}

static int open_csv(const struct options *o, struct reader **out)
{
  return open_table(o, false, out);
}
static int open_libsvm(const struct options *o, struct reader **out)
{
  return open_table(o, true, out);
}

const struct reader_kind reader_csv = { "csv", open_csv, next_row, rewind_table, close_table };
const struct reader_kind reader_libsvm = { "libsvm", open_libsvm, next_row, rewind_table,
  close_table };

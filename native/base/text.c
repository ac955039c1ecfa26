/* text.c - see text.h. */
#include <ctype.h>
#include "base/base.h"

static bool text_reserve(struct text *t, size_t n)
{
  if (t->lost) return false;
  if (t->cap - t->n > n) return true;
  size_t cap = MAX(t->cap * 2, t->n + n + 64);
  char *s = mem_grow(t->s, cap);
  if (!s) return t->lost = true, false;
  t->s = s;
  t->cap = cap;
  return true;
}

void text_put(struct text *t, const char *s, size_t n)
{
  if (!text_reserve(t, n)) return;
  memcpy(t->s + t->n, s, n);
  t->n += n;
  t->s[t->n] = 0;
}

void text_add(struct text *t, const char *format, ...)
{
  va_list a, again;
  va_start(a, format);
  va_copy(again, a);
  const size_t left = t->lost ? 0 : t->cap - t->n;
  int n = number_format(left ? t->s + t->n : NULL, left, format, a);
  if (n >= 0 && text_reserve(t, (size_t)n)) {
    if ((size_t)n >= left) number_format(t->s + t->n, t->cap - t->n, format, again);
    t->n += (size_t)n;
  }
  else if (left)
    t->s[t->n] = 0;
  va_end(again);
  va_end(a);
}

void text_done(struct text *t)
{
  mem_free(t->s);
  *t = (struct text){ 0 };
}

void text_clear(struct text *t)
{
  t->n = 0;
  t->lost = false;
}

const char *text_whole(const struct text *t)
{
  return t->lost ? NULL : t->n ? t->s : "";
}

const char *text_shape(const ty_desc *d, char *buffer, size_t size)
{
  if (d->ndim <= 0) return snprintf(buffer, size, "(?)"), buffer;
  size_t n = 0;
  for (int i = 0; i < d->ndim && i < TY_MAXDIM && n < size; i++) {
    char dim[24] = "?";
    if (d->dim[i]) snprintf(dim, sizeof dim, "%lld", (long long)d->dim[i]);
    n += (size_t)snprintf(buffer + n, size - n, "%s%s", i ? ", " : "(", dim);
  }
  if (n < size) snprintf(buffer + n, size - n, d->ndim == 1 ? ",)" : ")");
  return buffer;
}

/* Returns the cost of replacing letter a by b: a quarter if only their case differs. */
static double edit_cost(char a, char b)
{
  if (a == b) return 0;
  return tolower((unsigned char)a) == tolower((unsigned char)b) ? 0.25 : 1;
}

/* Returns the cost of a letter that only one name has: a half for a separator. */
static double name_gap(char c) { return c == '_' || c == '-' || c == ' ' ? 0.5 : 1; }

double name_distance(const char *a, const char *b)
{
  enum { LONG = 64 };
  double row[3][LONG + 1];
  int na = (int)MIN(strlen(a), LONG), nb = (int)MIN(strlen(b), LONG);
  double *old = row[0], *last = row[1], *next = row[2];
  last[0] = 0;
  for (int j = 1; j <= nb; j++) last[j] = last[j - 1] + name_gap(b[j - 1]);
  for (int i = 1; i <= na; i++) {
    next[0] = last[0] + name_gap(a[i - 1]);
    for (int j = 1; j <= nb; j++) {
      double d = MIN(last[j] + name_gap(a[i - 1]), next[j - 1] + name_gap(b[j - 1]));
      d = MIN(d, last[j - 1] + edit_cost(a[i - 1], b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d = MIN(d, old[j - 2] + 1);
      next[j] = d;
    }
    double *t = old;
    old = last;
    last = next;
    next = t;
  }
  return last[nb];
}

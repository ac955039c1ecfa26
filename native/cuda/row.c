/* row.c - see row.h. */
#include "cuda/row.h"
#include "base/number.h"

enum { MOST_PARAMETERS = 24 };

/* The values of a row's arguments, other than operands. Parameters point to them, so they must stay
** valid until the launch. */
struct row_values {
  _Alignas(16) unsigned char sizes[CUDA_ROW_BYTES];
  struct cuda_draw_key key;
  struct cuda_fault *fault;
  int64_t op;
  int32_t add;
  void *absent;                                       /* NULL, for operands that do not exist */
};

/* -- words ------------------------------------------------------------------------------------- */

/* Returns the operand that "o0" or "i12" at *s names, NULL if the call has none of that index.
** Advances *s past the name. */
static struct operand *find_operand(const struct call *c, const char **s)
{
  const bool out = **s == 'o';
  char *end;
  const long i = strtol(*s + 1, &end, 10);
  *s = end;
  return i < (out ? c->nout : c->nin) ? (out ? c->out : c->in) + i : NULL;
}

/* Returns the text for kind ('$', '#', '^' or '%') and what *s names, and advances *s past it.
** numbers: for '%'; buffer: may receive the text. */
static const char *find_word(
    const struct call *c, char kind, const char **s, const int64_t *numbers, char buffer[32])
{
  if (kind == '%') {
    char *end;
    const long k = strtol(*s, &end, 10);
    *s = end;
    snprintf(buffer, 32, "%lld", (long long)numbers[k]);
    return buffer;
  }
  const struct operand *x = find_operand(c, s);
  const int dtype = x ? x->d.dtype : TY_F32;
  if (kind == '^') return cuda_index(x ? desc_count(&x->d) : 0);
  return kind == '#' ? cuda_unit(dtype_size(dtype)) : cuda_type(dtype);
}

/* Writes words to `to`, with '$', '#', '^' and '%' replaced as in row.h. numbers: for '%'; NULL:
** '%' is plain text. Returns false if `size` bytes do not suffice. */
static bool write_words(
    const struct call *c, const char *words, const int64_t *numbers, char *to, size_t size)
{
  const char *const end = to + size - 1;
  for (const char *s = words; *s && to < end;) {
    char buffer[32];
    if (!strchr(numbers ? "$#^%" : "$#^", *s)) {
      *to++ = *s++;
      continue;
    }
    const char kind = *s++, *word = find_word(c, kind, &s, numbers, buffer);
    while (*word && to < end) *to++ = *word++;
  }
  *to = 0;
  return to < end;
}

static int start_kernel(const struct call *c, enum cuda_family family, const char *kernel,
    const char *words, const int64_t *numbers, int64_t n, void **params)
{
  char defines[CUDA_WORDS];
  cu_function f;
  NEED(write_words(c, words, numbers, defines, sizeof defines), TY_EINTERNAL, "%s: too many words",
      kernel);
  TRY(cuda_family_find(c->device, family, kernel, defines, &f));
  return cuda_run(c, f, n, params);
}

int cuda_start(const struct call *c, enum cuda_family family, const char *kernel, const char *words,
    int64_t n, void **params)
{
  return start_kernel(c, family, kernel, words, NULL, n, params);
}

int cuda_start_words(const struct call *c, enum cuda_family family, const char *kernel, int64_t n,
    void **params, const char *words, ...)
{
  char text[CUDA_WORDS];
  va_list args;
  va_start(args, words);
  const int size = number_format(text, sizeof text, words, args);
  va_end(args);
  NEED(size < CUDA_WORDS, TY_EINTERNAL, "%s: too many words", kernel);
  return start_kernel(c, family, kernel, text, NULL, n, params);
}

/* -- arguments --------------------------------------------------------------------------------- */

static bool is_word(const char *s, size_t n, const char *word)
{
  return strlen(word) == n && !strncmp(s, word, n);
}

/* Returns the address of the value that an argument of n characters names; NULL if the name is
** unknown. */
static void *find_argument(struct call *c, struct row_values *v, const char *s, size_t n)
{
  if (*s == 'o' && n > 1 && s[1] != 'p') {
    struct operand *x = find_operand(c, &s);
    return x ? &x->p : &v->absent;
  }
  if (*s == 'i') {
    struct operand *x = find_operand(c, &s);
    return x ? &x->p : &v->absent;
  }
  if (*s == 's') return v->sizes + (n > 1 ? 8 * strtol(s + 1, NULL, 10) : 0);
  if (is_word(s, n, "-")) return &v->absent;
  if (is_word(s, n, "tmp")) return &c->tmp;
  if (is_word(s, n, "add")) return &v->add;
  if (is_word(s, n, "key")) return &v->key;
  if (is_word(s, n, "fault")) return &v->fault;
  if (is_word(s, n, "op")) return &v->op;
  return NULL;
}

int cuda_run_row(struct call *c)
{
  const struct cuda_row *row = c->row;
  struct row_values v;
  void *params[MOST_PARAMETERS];
  int n = 0;
  bool writes = false, wanted = false;
  v.key = cuda_draw_key(c);
  v.fault = cuda_device(c->device)->fault;
  v.op = cuda_origin(c);
  v.add = (int32_t)(c->add & 1);
  v.absent = NULL;
  for (const char *s = row->arguments + strspn(row->arguments, " "); *s; s += strspn(s, " ")) {
    const size_t length = strcspn(s, " ");
    void *argument = n < MOST_PARAMETERS ? find_argument(c, &v, s, length) : NULL;
    NEED(argument, TY_EINTERNAL, "%s: the row's argument %s", row->kernel, s);
    if (*s == 'o' && !is_word(s, length, "op")) {
      writes = true;
      wanted = wanted || *(void **)argument;
    }
    if (s[length - 1] == '~') wanted = true;
    params[n++] = argument;
    s += length;
  }
  for (int i = 0; i < c->nout; i++)
    if (row->zeros >> i & 1) TRY(cuda_zero(c, &c->out[i]));
  if (writes && !wanted) return TY_OK;
  int64_t threads;
  if (row->sizes)
    threads = row->sizes(c, v.sizes);
  else {
    threads = desc_count(&c->out[0].d);
    memcpy(v.sizes, &threads, sizeof threads);
  }
  if (threads < 0) return TY_OK;
  return start_kernel(
      c, row->family, row->kernel, row->words, (int64_t *)v.sizes, threads, params);
}

/* user_formula.c - element-wise operators added by users at run time (ty_op_pointwise).
**
** Such an operator lives as long as the process: graphs, programs and front ends refer to it. Its
** definition is one line of text with fields separated by tabs (name, inputs, parameters, formula,
** gradients, documentation), which symbol files contain.
*/
#include <ctype.h>
#include <pthread.h>
#include "base/number.h"
#include "op/registry.h"
#include "pointwise/pointwise.h"

enum { INPUTS = 6, PARAMS = 16 };                     /* most of an operator */
struct user_row {
  struct op op;
  struct formula formula;
  struct param param[PARAMS + 1];
  struct arena arena;
  const char *text;
  struct user_row *next;
};
static struct user_row *rows;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct user_row *find_field(const char *name)
{
  struct user_row *r = rows;
  while (r && strcmp(r->op.name, name)) r = r->next;
  return r;
}

/* Reads the next word. One that is too long is cut and ends with "...", which no name can. */
static bool next_word(const char **s, char *out, size_t size)
{
  *s += strspn(*s, " ,");
  size_t n = strcspn(*s, " ,");
  snprintf(out, size, "%.*s%s", n < size ? (int)n : 40, *s, n < size ? "" : "...");
  *s += n;
  return n > 0;
}

static bool is_identifier(const char *s)
{
  if (!isalpha((unsigned char)*s) && *s != '_') return false;
  for (; *s; s++)
    if (!isalnum((unsigned char)*s) && *s != '_') return false;
  return true;
}

static int fail_line(const char *argument, const char *format, const char *what)
{
  char line[512];
  snprintf(line, sizeof line, format, what);
  fail(TY_EVALUE, "op_pointwise: %s", line);
  fail_argument(argument, NULL, what);
  return TY_EVALUE;
}

static bool read_number(const char *s)
{
  char *end;
  number_read(s, &end);
  return end != s && !*end;
}

/* Reads numeric parameters, required or with a default: "slope beta=1". */
static int read_params(struct user_row *r, const char *s)
{
  char w[128];
  int n = 0;
  while (next_word(&s, w, sizeof w)) {
    char *equal = strchr(w, '=');
    if (equal) *equal = 0;
    if (!is_identifier(w)) return fail_line("params", "'%s' is no name for a parameter", w);
    if (n == PARAMS) return fail_line("params", "more than 16 parameters (%s)", w);
    for (int i = 0; i < n; i++)
      if (!strcmp(r->param[i].name, w))
        return fail_line("params", "two parameters are called '%s'", w);
    if (equal && !read_number(equal + 1))
      return fail_line("params", "the default of '%s' is no number", w);
    char *name = arena_text(&r->arena, w), *init = equal ? arena_text(&r->arena, equal + 1) : NULL;
    NEED(name && (init || !equal), TY_EMEMORY, "out of memory");
    r->param[n] = (struct param){ .name = name,
      .type = P_FLOAT,
      .at = (size_t)n * sizeof(double),
      .init = init,
      .doc = "number in the formula" };
    n++;
  }
  r->op.param = r->param;
  r->op.param_size = (size_t)n * sizeof(double);
  return TY_OK;
}

static bool check_lists(const char *words, const char *w)
{
  char other[128];
  while (next_word(&words, other, sizeof other))
    if (!strcmp(other, w)) return true;
  return false;
}

static int read_args(struct user_row *r, const char *s, int *count)
{
  char w[128];
  struct text in = { 0 };
  int n = 0, code = TY_OK;
  while (!code && next_word(&s, w, sizeof w)) {
    if (!is_identifier(w))
      code = fail_line("args", "'%s' is no name for an input", w);
    else if (in.n && check_lists(in.s, w))
      code = fail_line("args", "two inputs are called '%s'", w);
    else if (++n > INPUTS)
      code = fail_line("args", "more than 6 inputs (%s)", w);
    else
      text_add(&in, "%s%s", n > 1 ? " " : "", w);
  }
  if (!code && !n) code = fail_line("args", "an operator needs at least one input%s", "");
  if (!code) r->op.in = in.lost ? NULL : arena_text(&r->arena, in.s);
  if (!code && !r->op.in) code = fail(TY_EMEMORY, "out of memory");
  text_done(&in);
  *count = n;
  return code;
}

/* Returns a copy in one line, with spaces for tabs and line breaks, which separate fields and
** definitions. */
static char *one_line(struct arena *a, const char *s)
{
  char *copy = arena_text(a, s);
  for (char *c = copy; c && *(c += strcspn(c, "\t\n\r"));) *c = ' ';
  return copy;
}

/* Checks a formula by building a pointwise program. It may use the inputs, and in gradients y and
** g. */
static int try_formula(
    struct user_row *r, const char *text, int inputs, bool gradient, const char *argument)
{
  double numbers[PARAMS] = { 0 };
  struct pw_program *t = pw_new(TY_F64);
  NEED(t, TY_EMEMORY, "out of memory");
  struct pw_env env = formula_env(&r->op, numbers, 0);
  int reg;
  for (int i = 0; i < inputs; i++) env.var[i] = pw_load(t, i);
  if (gradient)
    env.var['y' - 'a'] = pw_load(t, INPUTS), env.var['g' - 'a'] = pw_load(t, INPUTS + 1);
  int code = pw_formula(t, text, &env, &reg);
  pw_free(t);
  if (code) fail_argument(argument, NULL, text);
  return code;
}

/* Infers the shape of broadcast inputs; nothing while one is unknown. */
static int shape_broadcast(struct infer *s)
{
  int64_t dim[TY_MAXDIM];
  int ndim = 0;
  for (int i = 0; i < s->nin; i++) {
    if (!desc_known(&s->in[i])) return TY_OK;
    ndim = MAX(ndim, s->in[i].ndim);
  }
  for (int k = 0; k < ndim; k++) dim[k] = 1;
  for (int i = 0; i < s->nin; i++)
    for (int k = 0; k < s->in[i].ndim; k++) {
      int64_t d = s->in[i].dim[k], *to = &dim[k + ndim - s->in[i].ndim];
      if (d != 1 && *to != 1 && d != *to)
        return infer_fail(s, TY_ESHAPE, &s->in[i], "%lld does not broadcast with %lld",
            (long long)d, (long long)*to);
      if (*to == 1) *to = d;
    }
  return shape_is(s, &s->out[0], ndim, dim);
}

/* Fills in an operator from the texts of its definition, which are copied. */
static int fill_op(struct user_row *r, const char *name, const char *args, const char *params,
    const char *formula, const char *const *grad, const char *doc)
{
  int inputs;
  r->op.name = arena_text(&r->arena, name);
  r->op.doc = one_line(&r->arena, doc ? doc : "");
  r->op.formula = &r->formula;
  r->op.flags = OP_BROADCAST;
  TRY(read_args(r, args, &inputs));
  TRY(read_params(r, params ? params : ""));
  TRY(try_formula(r, formula, inputs, false, "formula"));
  r->formula.y = one_line(&r->arena, formula);
  NEED(r->op.name && r->op.doc && r->formula.y, TY_EMEMORY, "out of memory");
  for (int k = 0; grad && k < inputs; k++) {
    if (!grad[k]) continue;
    TRY(try_formula(r, grad[k], inputs, true, "grad"));
    r->formula.grad[k] = one_line(&r->arena, grad[k]);
    NEED(r->formula.grad[k], TY_EMEMORY, "out of memory");
  }
  if (inputs > 1) r->op.shape = shape_broadcast;
  return TY_OK;
}

/* Makes r->text: all fields of the definition, separated by tabs. */
static int define_text(struct user_row *r, const char *params)
{
  struct text t = { 0 };
  text_add(&t, "%s\t%s\t%s\t%s", r->op.name, r->op.in, params ? params : "", r->formula.y);
  for (int k = 0; k < INPUTS; k++)
    text_add(&t, "\t%s", r->formula.grad[k] ? r->formula.grad[k] : "");
  text_add(&t, "\t%s", r->op.doc);
  r->text = t.lost ? NULL : arena_text(&r->arena, t.s);
  text_done(&t);
  return r->text ? TY_OK : fail(TY_EMEMORY, "out of memory");
}

static void drop_op(struct user_row *r)
{
  arena_done(&r->arena);
  mem_free(r);
}

/* Adds the operator, unless an identical one exists. */
static int add_op(struct user_row *r)
{
  pthread_mutex_lock(&lock);
  struct user_row *old = find_field(r->op.name);
  bool same = old && !strcmp(old->text, r->text), taken = !old && op_find(r->op.name);
  int code = old || taken ? TY_OK : op_add(&r->op);
  bool added = !old && !taken && !code;
  if (added) r->next = rows, rows = r;
  pthread_mutex_unlock(&lock);
  if (added) return TY_OK;
  if (taken || (old && !same)) {
    code = fail(TY_ENAME, "op_pointwise: there is an operator '%s' already, with %s", r->op.name,
        old ? "other formulas" : "other code");
    fail_argument(r->op.name, NULL, NULL);
  }
  drop_op(r);
  return code;
}

int ty_op_pointwise(const char *name, const char *args, const char *params, const char *formula,
    const char *const *grad, const char *doc)
{
  NEED(name && args && formula, TY_ETYPE, "op_pointwise: name, inputs and formula are needed");
  if (!is_identifier(name)) return fail_line("name", "'%s' is no name for an operator", name);
  struct user_row *r = NEW(struct user_row);
  NEED(r, TY_EMEMORY, "out of memory");
  int code = fill_op(r, name, args, params, formula, grad, doc);
  if (!code) code = define_text(r, params);
  if (code) return drop_op(r), code;
  return add_op(r);
}

int ty_op_row(const char *op, const char **text)
{
  NEED(op && text, TY_ETYPE, "op_row: null argument");
  pthread_mutex_lock(&lock);
  const struct user_row *r = find_field(op);
  *text = r ? r->text : NULL;
  pthread_mutex_unlock(&lock);
  return TY_OK;
}

int formula_define(const char *lines)
{
  char *copy = mem_text(lines), *line = copy, *rest = NULL;
  NEED(copy, TY_EMEMORY, "out of memory");
  int code = TY_OK;
  for (line = strtok_r(copy, "\n", &rest); line && !code; line = strtok_r(NULL, "\n", &rest)) {
    char *field[5 + INPUTS], *s = line;
    int n = 0;
    while (s && n < COUNT(field)) {
      field[n++] = s;
      s = strchr(s, '\t');
      if (s) *s++ = 0;
    }
    if (n < COUNT(field)) {
      code = fail(
          TY_EFORMAT, "tycho_rows: a definition with %d fields; expected %d", n, COUNT(field));
      break;
    }
    const char *grad[INPUTS];
    for (int k = 0; k < INPUTS; k++) grad[k] = *field[4 + k] ? field[4 + k] : NULL;
    code = ty_op_pointwise(field[0], field[1], field[2], field[3], grad, field[4 + INPUTS]);
  }
  mem_free(copy);
  return code;
}

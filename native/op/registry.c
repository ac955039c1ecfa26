/* registry.c - the registry of operators: lookup by name, parsing of parameters, names of ports,
** listing for front ends.
**
** The tables of operators/ are handed in before main (operators/all.c). Operators added at run time (ty_op_pointwise, in user_formula.c) go through op_add. Lookups
** are by a hash table that is built on first use.
*/
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include "op/registry.h"
#include "pointwise/pointwise.h"

static const struct op *const *tables;
static int ntables;

void op_register(const struct op *const *list, int n)
{
  tables = list;
  ntables = n;
}

/* -- lookup ---------------------------------------------------------------------------------- */

enum { SLOTS = 4096 };
struct slot { const char *name; const struct op *op; };
static struct {
  pthread_once_t once;
  pthread_mutex_t lock;
  struct slot slot[SLOTS];
  const struct op **list; int n, cap, builtin;
  struct arena names;
} all = { PTHREAD_ONCE_INIT, PTHREAD_MUTEX_INITIALIZER, { { 0 } }, NULL, 0, 0, 0, { 0 } };

static uint32_t hash(const char *s)
{
  uint32_t h = 2166136261u;
  while (*s) h = (h ^ (unsigned char)*s++) * 16777619u;
  return h;
}

static struct slot *find_slot(const char *name)
{
  uint32_t i = hash(name) % SLOTS;
  while (all.slot[i].name && strcmp(all.slot[i].name, name)) i = (i + 1) % SLOTS;
  return &all.slot[i];
}

static void put_name(const char *name, const struct op *op)
{
  struct slot *s = find_slot(name);
  if (!s->name) s->name = name, s->op = op;
}

static void put_aliases(const struct op *op)
{
  const char *s = op->alias ? op->alias : "";
  while (*s) {
    size_t n = strcspn(s, " ");
    char *name = arena_new(&all.names, n + 1);
    if (name && n) memcpy(name, s, n), put_name(name, op);
    s += n + strspn(s + n, " ");
  }
}

static void put(const struct op *op)
{
  if (!GROW(all.list, all.n, all.cap)) return;
  all.list[all.n++] = op;
  put_name(op->name, op);
}

static void fill(void)
{
  for (int i = 0; i < ntables; i++)
    for (const struct op *op = tables[i]; op->name; op++) put(op);
  for (int i = 0; i < all.n; i++)
    put_aliases(all.list[i]); /* after all names: a name wins over an alias */
  all.builtin = all.n;
}

const struct op *op_find(const char *name)
{
  pthread_once(&all.once, fill);
  return name ? find_slot(name)->op : NULL;
}

const struct op *op_at(int i)
{
  pthread_once(&all.once, fill);
  return i >= 0 && i < all.n ? all.list[i] : NULL;
}
int op_count(void)
{
  pthread_once(&all.once, fill);
  return all.n;
}

int op_add(const struct op *op)
{
  pthread_once(&all.once, fill);
  pthread_mutex_lock(&all.lock);
  put(op);
  put_aliases(op);
  pthread_mutex_unlock(&all.lock);
  return TY_OK;
}

/* The nearest registered names, for "did you mean". */
static void nearest(const char *name, struct text *t)
{
  bool used[3 * SLOTS / 4] = { false };
  for (int k = 0; k < 3; k++) {
    int best = -1;
    double near = 1e9;
    for (int i = 0; i < all.n && i < COUNT(used); i++) {
      double d = used[i] ? 1e9 : name_distance(name, all.list[i]->name);
      if (d < near) near = d, best = i;
    }
    if (best < 0) return;
    used[best] = true;
    text_add(t, "%s%s", k ? ", " : "", all.list[best]->name);
  }
}

int op_unknown(const char *name)
{
  struct text t = { 0 };
  nearest(name, &t);
  int code = fail(TY_ENAME, "there is no operator '%s'; nearest: %s", name, t.s ? t.s : "");
  fail_argument(name, t.s, name);
  text_done(&t);
  return code;
}

/* -- parameters: from text to a struct --------------------------------------------------------- */

static const char *const type_text[] = { "", "int", "float", "boolean", "enum", "dtype", "string", "Shape(tuple)", "tuple of ints",
    "tuple of floats" };

static bool read_int(const char **s, int64_t *out)
{
  char *end;
  errno = 0;
  double d = strtod(*s, &end); /* "2", "2L", "2.0" and "1e3" are integers */
  if (end == *s) return false;
  int64_t v = strtoll(*s, NULL, 10);
  if (d >= -9.2e18 && d <= 9.2e18 && (double)v != d) v = (int64_t)d;
  if (d != floor(d) || !(d >= -9.3e18 && d <= 9.3e18)) return false;
  *s = *end == 'L' ? end + 1 : end;
  *out = MAX(v, NONE + 1); /* no number is None */
  return true;
}

static const char *skip(const char *s)
{
  while (isspace((unsigned char)*s)) s++;
  return s;
}
static bool is_none(const char *s) { return !strcmp(s, "None") || !strcmp(s, "null"); }

/* "(2, 3)", "[2,3]", "2", "()", entries may be None. put() stores one entry; returns the count,
** -1 on nonsense. */
static int read_list(
    const char *s, int cap, bool (*entry)(const char **s, int i, void *out), void *out)
{
  s = skip(s);
  char close = *s == '(' ? ')' : *s == '[' ? ']' : 0;
  int n = 0;
  if (close) s = skip(s + 1);
  while (*s && *s != close) {
    if (n == cap || !entry(&s, n, out)) return -1;
    n++;
    s = skip(s);
    if (*s == ',' && close)
      s = skip(s + 1);
    else if (*s == ',')
      s = skip(s + 1);
    else
      break;
  }
  if (close && *s++ != close) return -1;
  return *skip(s) ? -1 : n;
}

static bool entry_int(const char **s, int i, void *out)
{
  int64_t *d = out;
  if (!strncmp(*s, "None", 4)) {
    *s += 4;
    d[i] = NONE;
    return true;
  }
  return read_int(s, &d[i]);
}

bool shape_parse(const char *s, struct dims *out)
{
  int n = read_list(s, COUNT(out->d), entry_int, out->d);
  out->n = n;
  return n >= 0;
}

static bool entry_real(const char **s, int i, void *out)
{
  char *end;
  ((double *)out)[i] = strtod(*s, &end);
  bool ok = end != *s;
  *s = end;
  return ok;
}

static bool read_bool(const char *s, int64_t *out)
{
  static const char *const yes[] = { "True", "true", "1" }, *const no[] = { "False", "false", "0" };
  for (int i = 0; i < 3; i++) {
    if (!strcmp(s, yes[i])) return *out = 1, true;
    if (!strcmp(s, no[i])) return *out = 0, true;
  }
  return false;
}

static bool read_choice(const char *choice, const char *s, int64_t *out)
{
  size_t n = strlen(s);
  for (int64_t i = 0; choice && *choice; i++) {
    size_t m = strcspn(choice, "|");
    if (m == n && !strncmp(choice, s, n)) return *out = i, true;
    choice += m + (choice[m] == '|');
  }
  return false;
}

static void set_none(const struct param *p, void *field)
{
  switch (p->type) {
  case P_INT: *(int64_t *)field = NONE; break;
  case P_FLOAT: *(double *)field = NAN; break;
  case P_TEXT: *(const char **)field = NULL; break;
  default: *(int64_t *)field = -1; /* booleans, enums, dtypes; lists: n = -1 */
  }
}

static bool read_list_field(const struct param *p, const char *s, void *field)
{
  int n = p->type == P_FLOATS ? read_list(s, 128, entry_real, ((struct reals *)field)->d)
      : p->type == P_INTS     ? read_list(s, 128, entry_int, ((struct ints *)field)->d)
                              : read_list(s, 16, entry_int, ((struct dims *)field)->d);
  if (n < 0) return false;
  *(int64_t *)field = n; /* all three begin with n */
  return true;
}

static bool read_field(const struct param *p, const char *s, void *field)
{
  int dtype;
  char *end;
  switch (p->type) {
  case P_INT: return read_int(&s, field) && !*skip(s);
  case P_FLOAT: *(double *)field = strtod(s, &end); return end != s && !*skip(end);
  case P_BOOL: return read_bool(s, field);
  case P_ENUM: return read_choice(p->choice, s, field);
  case P_TEXT: *(const char **)field = s; return true;
  case P_DTYPE:
    if (dtype_parse(s, &dtype)) return false;
    *(int64_t *)field = dtype;
    return true;
  default: return read_list_field(p, s, field);
  }
}

/* "[1,]", "[0,1]" */
static bool number_in(const char *range, double v)
{
  char *end;
  const char *s = range + 1;
  double lo = strtod(s, &end);
  if (end != s && !(v >= lo)) return false;
  s = strchr(s, ',') + 1;
  double hi = strtod(s, &end);
  return end == s || v <= hi;
}

static bool in_range(const struct param *p, const void *field)
{
  if (!p->range) return true;
  if (p->type != P_SHAPE)
    return number_in(
        p->range, p->type == P_FLOAT ? *(const double *)field : (double)*(const int64_t *)field);
  const struct dims *d = field;
  for (int64_t i = 0; i < d->n; i++)
    if (!number_in(p->range, (double)d->d[i])) return false;
  return true;
}

static const char *describe_type(const struct param *p, char *buffer, size_t size)
{
  snprintf(buffer, size, "%s%s%s%s%s", p->type == P_ENUM ? "one of " : "",
      p->type == P_ENUM ? p->choice : type_text[p->type], p->range ? " in " : "",
      p->range ? p->range : "", p->none ? " or None" : "");
  return buffer;
}

static int bad_value(const struct op *op, const struct param *p, const char *s)
{
  char want[512];
  describe_type(p, want, sizeof want);
  int code = fail(TY_EVALUE, "%s: parameter %s: expected %s, got '%s'", op->name, p->name, want, s);
  fail_node(op->name, NULL, NULL);
  fail_argument(p->name, want, s);
  return code;
}

static int parse_one(const struct op *op, const struct param *p, const char *s, void *param)
{
  void *field = (char *)param + p->at;
  bool none = is_none(s) && (p->none || p->type == P_TEXT);
  if (none) return set_none(p, field), TY_OK;
  if (!read_field(p, s, field) || !in_range(p, field)) return bad_value(op, p, s);
  return TY_OK;
}

static const struct param *find_param(const struct op *op, const char *key)
{
  for (const struct param *p = op->param; p && p->name; p++)
    if (!strcmp(p->name, key)) return p;
  return NULL;
}

static bool annotation(const char *key)
{
  size_t n = strlen(key);
  return n > 4 && key[0] == '_' && key[1] == '_' && key[n - 1] == '_' && key[n - 2] == '_';
}

static int unknown_param(const struct op *op, const char *key)
{
  struct text names = { 0 };
  const char *near = NULL;
  double best = 1e9;
  for (const struct param *p = op->param; p && p->name; p++) {
    double d = name_distance(key, p->name);
    if (d < best) best = d, near = p->name;
    text_add(&names, "%s%s", p == op->param ? "" : ", ", p->name);
  }
  int code = fail(TY_ENAME, "%s has no parameter '%s'%s%s%s; it takes: %s", op->name, key,
      near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "",
      names.s ? names.s : "none");
  fail_node(op->name, NULL, NULL);
  fail_argument(key, names.s, key);
  text_done(&names);
  return code;
}

static const char *given(const ty_attr *attr, int n, const char *key)
{
  for (int i = 0; i < n; i++)
    if (!strcmp(attr[i].key, key)) return attr[i].value;
  return NULL;
}

static int missing_param(const struct op *op, const struct param *p)
{
  char want[512];
  int code = fail(TY_EVALUE, "%s: required parameter %s is missing (%s)", op->name, p->name,
      describe_type(p, want, sizeof want));
  fail_node(op->name, NULL, NULL);
  fail_argument(p->name, want, "nothing");
  return code;
}

int op_parse(const struct op *op, const ty_attr *attr, int nattr, void *param)
{
  if (!(op->flags & OP_CALLBACK))
    for (int i = 0; i < nattr; i++)
      if (!annotation(attr[i].key) && !find_param(op, attr[i].key))
        return unknown_param(op, attr[i].key);
  for (const struct param *p = op->param; p && p->name; p++) {
    const char *s = given(attr, nattr, p->name);
    if (!s) s = p->init;
    if (!s) return missing_param(op, p);
    TRY(parse_one(op, p, s, param));
  }
  return op->check ? op->check(param) : TY_OK;
}

bool op_has_param(const struct op *op, const char *key) { return find_param(op, key) != NULL; }

double op_number(const struct op *op, const void *param, const char *key, bool *found)
{
  const struct param *p = find_param(op, key);
  const void *field = p ? (const char *)param + p->at : NULL;
  *found = p &&
      (p->type == P_FLOAT || p->type == P_INT || p->type == P_BOOL || p->type == P_ENUM ||
          p->type == P_DTYPE);
  if (!*found) return NAN;
  return p->type == P_FLOAT ? *(const double *)field : (double)*(const int64_t *)field;
}

const char *op_reads(const struct op *op, const void *param)
{
  if (op->formula) return formula_reads_of(op, param);
  return op->grad_of ? op->grad_of(param) : op->grad;
}

/* -- ports ------------------------------------------------------------------------------------- */

static char *port_name(struct arena *a, const char *s, size_t n, int k)
{
  char *name = arena_new(a, n + 12);
  if (!name) return NULL;
  memcpy(name, s, n);
  if (k >= 0) snprintf(name + n, 12, "%d", k);
  return name;
}

static int times(const struct op *op, const void *param, const char *key, size_t n)
{
  char name[64];
  bool found;
  snprintf(name, sizeof name, "%.*s", (int)n, key);
  double v = op_number(op, param, name, &found);
  return found && v >= 0 && v < 1e6 ? (int)v : 0;
}

static int count_ports(const char *s)
{
  int n = 0;
  while (*s) {
    s += strspn(s, " ");
    n += *s != 0;
    s += strcspn(s, " ");
  }
  return n;
}

/* Adds the ports of one token: "name", "name!", "name*param", "[name]", "{name}". */
static bool add_token(const struct op *op, const void *param, const char *s, size_t n, int fill_up,
    struct arena *a, struct port *out, int *at, int cap)
{
  struct port p = { .hidden = *s == '[', .secret = *s == '{' };
  if (p.hidden || p.secret) s++, n -= 2;
  const char *star = memchr(s, '*', n);
  size_t len = star ? (size_t)(star - s) : n;
  if (s[len - 1] == '!') p.mutated = true, len--;
  int k = !star      ? 1
      : fill_up >= 0 ? fill_up
                     : times(op, param, star + 1, (size_t)(s + n - star) - 1);
  for (int i = 0; i < k && *at < cap; i++) {
    p.name = port_name(a, s, len, star ? i : -1);
    if (!p.name) return false;
    out[(*at)++] = p;
  }
  return true;
}

static int list_ports(const struct op *op, const void *param, const char *text, int given_n,
    struct arena *a, struct port **out, int *n)
{
  int tokens = count_ports(text), cap = tokens + 4;
  const char *star = strchr(text, '*');
  if (star) {
    size_t len = strcspn(star + 1, " ]}");
    cap += given_n > 0 ? given_n : times(op, param, star + 1, len);
  }
  *out = arena_new(a, sizeof(struct port) * (size_t)cap);
  NEED(*out, TY_EMEMORY, "out of memory");
  *n = 0;
  for (const char *s = text + strspn(text, " "); *s; s += strspn(s, " ")) {
    size_t len = strcspn(s, " ");
    int fill_up = star && given_n >= 0 ? MAX(given_n - (tokens - 1), 0) : -1;
    NEED(add_token(op, param, s, len, fill_up, a, *out, n, cap), TY_EMEMORY, "out of memory");
    s += len;
  }
  return TY_OK;
}

/* "arg*num_args" counts its inputs: n of them have been given. Control flow, which has no
** kernel, counts its bodies too. */
static int check_count(const struct op *op, const void *param, const char *in, int n)
{
  const char *star = strchr(in, '*');
  char key[64];
  bool found;
  if (n < 0 || !star || !op->cpu) return TY_OK;
  snprintf(key, sizeof key, "%.*s", (int)strcspn(star + 1, " ]}"), star + 1);
  double count = op_number(op, param, key, &found);
  if (!found || count == n) return TY_OK;
  int code = fail(
      TY_EVALUE, "%s: parameter %s is %.0f, but %d inputs are given", op->name, key, count, n);
  fail_argument(key, NULL, NULL);
  return code;
}

int op_ports(const struct op *op, const void *param, int n, struct arena *a, struct ports *out)
{
  const char *in = op->in_of ? op->in_of(param) : op->in,
             *outs = op->out_of ? op->out_of(param) : op->out;
  TRY(check_count(op, param, in ? in : "", n));
  TRY(list_ports(op, param, in ? in : "", n, a, &out->in, &out->nin));
  TRY(list_ports(op, param, outs ? outs : "output", -1, a, &out->out, &out->nout));
  out->nvisible = out->nreal = 0;
  for (int i = 0; i < out->nout; i++) {
    out->nreal += !out->out[i].secret;
    out->nvisible += !out->out[i].secret && !out->out[i].hidden;
  }
  return TY_OK;
}

/* The reference declares no input names for most operators of one input; monitors then number
** them. */
bool monitor_input_named(const struct op *op)
{
  static const char *const named[] = { "LRN", "Dropout", "softmax", "log_softmax", "softmin",
    "MakeLoss", "BlockGrad" };
  for (int i = 0; i < COUNT(named); i++)
    if (!strcmp(op->name, named[i])) return true;
  return op->in && strcmp(op->in, "data");
}

bool op_variadic(const struct op *op, char *key, size_t size)
{
  const char *star = op->in ? strchr(op->in, '*') : NULL;
  if (!star) return false;
  snprintf(key, size, "%.*s", (int)strcspn(star + 1, " "), star + 1);
  return true;
}

/* Attributes with the count of a variadic operator filled in. `more` has room for nattr + 1
** entries and `number` for a count. */
const ty_attr *op_counted(
    const struct op *op, const ty_attr *attr, int *nattr, int nin, ty_attr *more, char number[16])
{
  static __thread char key[64];
  if (nin < 0 || !op_variadic(op, key, sizeof key) || !*key || given(attr, *nattr, key) ||
      !find_param(op, key))
    return attr;
  if (*nattr) memcpy(more, attr, sizeof *attr * (size_t)*nattr);
  snprintf(number, 16, "%d", nin);
  more[(*nattr)++] = (ty_attr){ key, number };
  return more;
}

/* -- listing for front ends -------------------------------------------------------------------- */

int ty_op_count(void) { return op_count(); }

int ty_op_info(int i, ty_opinfo *out)
{
  const struct op *op = op_at(i);
  NEED(op && out, TY_EINDEX, "operator %d of %d", i, op_count());
  int n = 0;
  for (const struct param *p = op->param; p && p->name; p++) n++;
  *out = (ty_opinfo){ op->name, op->doc ? op->doc : "", op->in ? op->in : "",
    op->out ? op->out : "output", n, i >= all.builtin };
  return TY_OK;
}

int ty_op_param(int i, int k, ty_param *out)
{
  static __thread char type[512];
  const struct op *op = op_at(i);
  NEED(op && out, TY_EINDEX, "operator %d of %d", i, op_count());
  for (const struct param *p = op->param; p && p->name; p++, k--)
    if (k == 0) {
      *out = (ty_param){ p->name, describe_type(p, type, sizeof type), p->init,
        p->doc ? p->doc : "" };
      return TY_OK;
    }
  return fail(TY_EINDEX, "%s has fewer parameters", op->name);
}

int ty_op_alias(int i, const char **out)
{
  const struct op *op = op_at(i);
  NEED(op && out, TY_EINDEX, "operator %d of %d", i, op_count());
  *out = op->alias ? op->alias : "";
  return TY_OK;
}

/* the formulas of a row, as "a: g * b; b: g * a"; inputs without one get zeros */
static void print_formulas(struct text *t, const struct formula *row)
{
  for (int k = 0; k < 6; k++)
    if (row->grad[k]) text_add(t, "%s%c: %s", t->n ? "; " : "", 'a' + k, row->grad[k]);
  if (!t->n) text_add(t, "zero");
}

int ty_op_gradient(const char *name, const char **out)
{
  static __thread struct text t;
  const struct op *op = op_find(name);
  if (!op) return op_unknown(name);
  t.n = 0;
  if (op->flags & OP_ZERO_GRAD)
    text_add(&t, "zero");
  else if (op->flags & OP_IDENTITY_GRAD)
    text_add(&t, "the head gradient itself");
  else if (op->formula)
    print_formulas(&t, op->formula);
  else if (!op->grad && !op->grad_of)
    text_add(&t, "none");
  else
    text_add(&t, op->flags & OP_LOSS ? "its own, head gradients are not read" : "of its inputs");
  *out = t.s;
  return TY_OK;
}

int ty_op_find(const char *name, int *i)
{
  NEED(name && i, TY_ETYPE, "op_find: null argument");
  const struct op *op = op_find(name);
  if (!op) return op_unknown(name);
  for (int k = 0; k < all.n; k++)
    if (all.list[k] == op) return *i = k, TY_OK;
  return fail(TY_EINTERNAL, "operator %s is not listed", name);
}

static void print_ports(struct text *t, const struct port *p, int n)
{
  for (int i = 0; i < n; i++)
    if (!p[i].secret)
      text_add(t, "%s%s%s%s%s", i ? " " : "", p[i].hidden ? "[" : "", p[i].name,
          p[i].mutated ? "!" : "", p[i].hidden ? "]" : "");
}

int ty_op_ports(
    const char *name, const ty_attr *attr, int nattr, int nin, const char **in, const char **out)
{
  static __thread struct text ti, to;
  const struct op *op = op_find(name);
  if (!op) return op_unknown(name);
  struct arena a = { 0 };
  struct ports ports;
  char number[16];
  ty_attr *more = arena_new(&a, sizeof *more * (size_t)(nattr + 1));
  void *param = arena_new(&a, op->param_size + 16);
  int code = more && param ? TY_OK : fail(TY_EMEMORY, "out of memory");
  if (!code) attr = op_counted(op, attr, &nattr, nin, more, number);
  if (!code) code = op_parse(op, attr, nattr, param);
  if (!code) code = op_ports(op, param, nin, &a, &ports);
  if (!code) {
    ti.n = to.n = 0;
    text_put(&ti, "", 0);
    text_put(&to, "", 0);
    print_ports(&ti, ports.in, ports.nin);
    print_ports(&to, ports.out, ports.nout);
    *in = ti.n ? ti.s : "";
    *out = to.n ? to.s : "";
  }
  arena_done(&a);
  return code;
}

/* param.c - parses the texts of attributes into the parameter structs of operators.
**
** A field's type, default, range and choices are in the operator's table (op/param.h). Numbers and
** lists are read as the reference's Python prints them: "2L", "1e3", "(2, None)", "[1]".
*/
#include <ctype.h>
#include <errno.h>
#include "op/registry.h"

static const char *const type_text[] = { "", "int", "float", "boolean", "enum", "dtype", "string",
  "Shape(tuple)", "tuple of ints", "tuple of floats" };

static bool read_int(const char **s, int64_t *out)
{
  char *end;
  errno = 0;
  double d = number_read(*s, &end); /* "2", "2L", "2.0" and "1e3" are integers */
  if (end == *s) return false;
  int64_t v = strtoll(*s, NULL, 10);
  if (d >= -9.2e18 && d <= 9.2e18 && (double)v != d) v = (int64_t)d;
  if (d != floor(d) || !(d >= -9.3e18 && d <= 9.3e18)) return false;
  *s = *end == 'L' ? end + 1 : end;
  *out = MAX(v, NONE + 1); /* keeps a number from being NONE */
  return true;
}

static const char *skip_blanks(const char *s)
{
  while (isspace((unsigned char)*s)) s++;
  return s;
}
static bool is_none(const char *s) { return !strcmp(s, "None") || !strcmp(s, "null"); }

/* Reads "(2, 3)", "[2,3]", "2", "()". entry() reads and stores one entry. Returns the count, -1 for
** text that is not a list. */
static int read_list(
    const char *s, int cap, bool (*entry)(const char **s, int i, void *out), void *out)
{
  s = skip_blanks(s);
  char close = *s == '(' ? ')' : *s == '[' ? ']' : 0;
  int n = 0;
  if (close) s = skip_blanks(s + 1);
  while (*s && *s != close) {
    if (n == cap || !entry(&s, n, out)) return -1;
    n++;
    s = skip_blanks(s);
    if (*s != ',') break;
    s = skip_blanks(s + 1);
  }
  if (close && *s++ != close) return -1;
  return *skip_blanks(s) ? -1 : n;
}

/* Reads an entry that is a number. */
static bool entry_number(const char **s, int i, void *out)
{
  return read_int(s, &((int64_t *)out)[i]);
}

/* Reads an entry that is a number or None. */
static bool entry_bound(const char **s, int i, void *out)
{
  if (strncmp(*s, "None", 4)) return entry_number(s, i, out);
  *s += 4;
  ((int64_t *)out)[i] = NONE;
  return true;
}

bool shape_parse(const char *s, struct dims *out)
{
  int n = read_list(s, COUNT(out->d), entry_bound, out->d);
  out->n = n;
  return n >= 0;
}

static bool entry_real(const char **s, int i, void *out)
{
  char *end;
  ((double *)out)[i] = number_read(*s, &end);
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

/* Returns the capacity of a list parameter; 0: it is no list. */
static int max_entries(const struct param *p)
{
  return p->type == P_FLOATS || p->type == P_INTS ? 128 : p->type == P_SHAPE ? 16 : 0;
}

static bool read_list_field(const struct param *p, const char *s, void *field)
{
  const int most = max_entries(p);
  bool (*const entry)(const char **, int, void *) =
      p->none == NONE_ENTRY ? entry_bound : entry_number;
  int n = p->type == P_FLOATS ? read_list(s, most, entry_real, ((struct reals *)field)->d)
      : p->type == P_INTS     ? read_list(s, most, entry, ((struct ints *)field)->d)
                              : read_list(s, most, entry, ((struct dims *)field)->d);
  if (n < 0) return false;
  *(int64_t *)field = n; /* all list types begin with n */
  return true;
}

static bool read_field(const struct param *p, const char *s, void *field)
{
  int dtype;
  char *end;
  switch (p->type) {
  case P_INT: return read_int(&s, field) && !*skip_blanks(s);
  case P_FLOAT: *(double *)field = number_read(s, &end); return end != s && !*skip_blanks(end);
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

/* Returns whether a number is in a range: "[1,]", "[0,1]". */
static bool number_in(const char *range, double v)
{
  char *end;
  const char *s = range + 1;
  double lo = number_read(s, &end);
  if (end != s && !(v >= lo)) return false;
  s = strchr(s, ',') + 1;
  double hi = number_read(s, &end);
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

const char *param_type(const struct param *p, char *buffer, size_t size)
{
  snprintf(buffer, size, "%s%s%s%s%s", p->type == P_ENUM ? "one of " : "",
      p->type == P_ENUM ? p->choice : type_text[p->type], p->range ? " in " : "",
      p->range ? p->range : "", p->none == NONE_WHOLE ? " or None" : "");
  return buffer;
}

/* Writes what an error expects of a parameter: "an int of at least 1". */
static const char *describe_expected(const struct param *p, char *buffer, size_t size)
{
  static const char *const noun[] = { "", "an int", "a number", "a boolean", "", "a dtype", "text",
    "a list of ints", "a list of ints", "a list of numbers" };
  char bounds[96] = "", low[32] = "", high[32] = "";
  if (p->type == P_ENUM) return param_type(p, buffer, size);
  if (p->range && !strcmp(p->range, "[-2147483648,2147483647]"))
    snprintf(bounds, sizeof bounds, " of 32 bits");
  else if (p->range) {
    sscanf(p->range, "[%31[^],]", low);
    sscanf(strchr(p->range, ','), ",%31[^]]", high);
    const char *from = *low && *high ? " from " : *low ? " of at least " : "";
    snprintf(bounds, sizeof bounds, "%s%s%s%s", from,
        low, *high ? *low ? " to " : " of at most " : "", high);
  }
  snprintf(buffer, size, "%s%s%s", noun[p->type], bounds, p->none == NONE_WHOLE ? " or None" : "");
  return buffer;
}

/* Returns the error's text for a list that has more numbers than its field holds. */
static const char *too_long(const struct param *p, const char *s, char *want, size_t size)
{
  static __thread char got[32];
  const int most = max_entries(p);
  int n = 1;
  for (const char *at = s; (at = strchr(at, ',')); at++) n += !strchr(")]", *skip_blanks(at + 1));
  if (!most || n <= most) return s;
  snprintf(want, size, "at most %d numbers", most);
  snprintf(got, sizeof got, "%d", n);
  return got;
}

/* Writes the advice of `elsewhere` about a word. */
static void find_elsewhere(const struct param *p, const char *word, char *hint, size_t size)
{
  size_t n = strlen(word);
  *hint = 0;
  for (const char *at = p->elsewhere, *next; at && n; at = next) {
    const char *text = strchr(at, ':'), *end = strchr(at, ';');
    next = end ? end + 2 : NULL;
    for (const char *own = at; own < text; own += strcspn(own, " :") + 1)
      if (strcspn(own, " :") == n && !strncmp(own, word, n))
        snprintf(hint, size, "; %.*s", (int)(end ? end - text - 2 : (long)strlen(text + 2)),
            text + 2);
  }
}

int param_fail(const char *name, const char *expected, const char *format, ...)
{
  char got[128];
  va_list args;
  va_start(args, format);
  number_format(got, sizeof got, format, args);
  va_end(args);
  const int code = fail(TY_EVALUE, "parameter %s: expected %s, got %s", name, expected, got);
  fail_argument(name, expected, got);
  return code;
}

static int bad_value(const struct op *op, const struct param *p, const char *s)
{
  char want[512], hint[128];
  describe_expected(p, want, sizeof want);
  s = too_long(p, s, want, sizeof want);
  find_elsewhere(p, s, hint, sizeof hint);
  int code = fail(TY_EVALUE, "%s: parameter %s: expected %s, got '%s'%s", op->name, p->name, want,
      s, hint);
  fail_node(op->name, NULL, NULL);
  fail_argument(p->name, want, s);
  return code;
}

static int parse_one(const struct op *op, const struct param *p, const char *s, void *param)
{
  void *field = (char *)param + p->at;
  bool none = is_none(s) && (p->none == NONE_WHOLE || p->type == P_TEXT);
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

static bool is_annotation(const char *key)
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

const char *attr_given(const ty_attr *attr, int n, const char *key)
{
  for (int i = 0; i < n; i++)
    if (!strcmp(attr[i].key, key)) return attr[i].value;
  return NULL;
}

static int missing_param(const struct op *op, const struct param *p)
{
  char want[512];
  int code = fail(TY_EVALUE, "%s: parameter %s is missing; expected %s", op->name, p->name,
      describe_expected(p, want, sizeof want));
  fail_node(op->name, NULL, NULL);
  fail_argument(p->name, want, "nothing");
  return code;
}

/* Calls the operator's check of its parameters. Puts its name in front of the error, so that
** operators may share a check. */
static int check_record(const struct op *op, void *param)
{
  const int code = op->check(param);
  if (code) fail_prefix(op->name), fail_node(op->name, NULL, NULL);
  return code;
}

int op_parse(const struct op *op, const ty_attr *attr, int nattr, void *param)
{
  if (op->param && !(op->flags & OP_CALLBACK))
    for (int i = 0; i < nattr; i++)
      if (!is_annotation(attr[i].key) && !find_param(op, attr[i].key))
        return unknown_param(op, attr[i].key);
  for (const struct param *p = op->param; p && p->name; p++) {
    const char *s = attr_given(attr, nattr, p->name);
    if (!s) s = p->init;
    if (!s) return missing_param(op, p);
    TRY(parse_one(op, p, s, param));
  }
  return op->check ? check_record(op, param) : TY_OK;
}

bool op_has_param(const struct op *op, const char *key) { return find_param(op, key) != NULL; }

const char *op_param_name(const struct op *op, const char *key)
{
  const struct param *p = find_param(op, key);
  return p ? p->name : NULL;
}

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

bool op_word(const struct op *op, const void *param, const char *key, const char *word)
{
  const struct param *p = find_param(op, key);
  int64_t value;
  return p && p->type == P_ENUM && read_choice(p->choice, word, &value) &&
      *(const int64_t *)((const char *)param + p->at) == value;
}

const struct reals *op_reals(const struct op *op, const void *param, const char *key)
{
  const struct param *p = find_param(op, key);
  return p && p->type == P_FLOATS ? (const void *)((const char *)param + p->at) : NULL;
}

const struct dims *op_dims(const struct op *op, const void *param, const char *key)
{
  const struct param *p = find_param(op, key);
  return p && p->type == P_SHAPE ? (const void *)((const char *)param + p->at) : NULL;
}

/* symbol_node.c - reads the nodes of a symbol file from its text, one at a time. */
#include "base/json.h"
#include "base/names.h"
#include "graph/symbol_reader.h"
#include "op/registry.h"

int file_fail(const struct file *f, const char *at, const char *what, const char *got)
{
  int code = fail(TY_EFORMAT, "byte %zu: expected %s, got %s", (size_t)(at - f->text), what, got);
  fail_argument(NULL, what, got);
  return code;
}

const char *file_type_name(const char *v)
{
  static const char *const names[] = { "a text", "a number", "a list", "an object" };
  return names[json_type(v)];
}

/* -- fields ------------------------------------------------------------------------------------ */

static int unknown_field(const struct file *f, const char *key)
{
  struct arena a = { 0 };
  const char *name = json_text(key, &a);
  int code = fail(TY_EFORMAT, "byte %zu: unknown field \"%s\"", (size_t)(json_value(key) - f->text),
      name ? name : "");
  fail_argument(name, NULL, NULL);
  arena_done(&a);
  return code;
}

int file_read_fields(const struct file *f, const char *object, const char *const *names, int n,
    int required, const char **out)
{
  if (json_type(object) != J_OBJECT)
    return file_fail(f, object, "an object", file_type_name(object));
  for (int i = 0; i < n; i++) out[i] = NULL;
  for (const char *v, *key = json_first(object); key; key = json_next(v)) {
    int i = 0;
    while (i < n && !json_is(key, names[i])) i++;
    if (i == n) return unknown_field(f, key);
    v = json_value(key);
    if (!out[i]) out[i] = v;
  }
  for (int i = 0; i < required; i++) {
    if (out[i]) continue;
    int code = fail(
        TY_EFORMAT, "byte %zu: field \"%s\" is missing", (size_t)(object - f->text), names[i]);
    fail_argument(names[i], "a field", "nothing");
    return code;
  }
  return TY_OK;
}

int file_read_number(const struct file *f, const char *v, const char *what, int *out)
{
  if (json_type(v) != J_NUMBER) return file_fail(f, v, what, file_type_name(v));
  double number = json_number(v);
  bool fits = number >= 0 && number < 2147483647;
  if (!fits || number != (double)(int)number) return file_fail(f, v, what, "another number");
  *out = (int)number;
  return TY_OK;
}

int file_read_entry(const struct file *f, const char *v, struct input *out)
{
  static const char *const what[] = { "the number of a node", "the number of an output",
    "a version" };
  int *field[] = { &out->node, &out->out, &out->version }, n = 0;
  *out = (struct input){ 0, 0, 0 };
  const char *entry = json_type(v) == J_LIST ? json_first(v) : NULL;
  for (; entry && n < 3; entry = json_next(entry), n++)
    TRY(file_read_number(f, entry, what[n], field[n]));
  return n < 2 || entry ? file_fail(f, v, "[node, output, version]", file_type_name(v)) : TY_OK;
}

int file_count_items(const char *list)
{
  int n = 0;
  for (const char *v = json_first(list); v; v = json_next(v)) n++;
  return n;
}

/* -- a node in the text ------------------------------------------------------------------------ */

static const char *const fields[FIELDS] = { "op", "name", "inputs", "attrs", "attr", "param",
  "subgraphs", "control_deps", "backward_source_id" };

int file_node_fields(const struct file *f, int node, const char **v)
{
  TRY(file_read_fields(f, f->node[node].at, fields, FIELDS, INPUTS + 1, v));
  for (int i = OP; i <= NAME; i++)
    if (json_type(v[i]) != J_TEXT) return file_fail(f, v[i], "a text", file_type_name(v[i]));
  if (json_type(v[INPUTS]) != J_LIST)
    return file_fail(f, v[INPUTS], "a list", file_type_name(v[INPUTS]));
  if (json_is(v[OP], "null") && json_first(v[INPUTS]))
    return file_fail(f, f->node[node].at, "no inputs of a variable", "some");
  return TY_OK;
}

bool file_is_variable(const struct file *f, int node)
{
  const char *v[FIELDS];
  return node < f->n && !file_node_fields(f, node, v) && json_is(v[OP], "null");
}

int file_fail_memory(void) { return fail(TY_EMEMORY, "out of memory: symbol file"); }

/* Drops repeated attributes; the first one stays. */
static int drop_repeated(struct parsed_node *d)
{
  struct names x;
  int n = 0;
  if (d->nattr < 2) return TY_OK;
  TRY(names_index(&x, d->attr, sizeof *d->attr, d->nattr));
  /* borrows `turn`, which only names_take needs */
  for (int i = 0; i < d->nattr; i++)
    if (names_first(&x, d->attr[i].key) == i) x.turn[n++] = i;
  for (int i = 0; i < n; i++) d->attr[i] = d->attr[x.turn[i]];
  d->nattr = n;
  names_done(&x);
  return TY_OK;
}

static int read_attrs(
    const struct file *f, const char *const *dict, struct arena *a, struct parsed_node *d)
{
  for (int i = ATTRS; i <= PARAM; i++) {
    if (!dict[i]) continue;
    if (json_type(dict[i]) != J_OBJECT)
      return file_fail(f, dict[i], "an object of texts", file_type_name(dict[i]));
    for (const char *v, *key = json_first(dict[i]); key; key = json_next(v)) {
      v = json_value(key);
      if (json_type(v) != J_TEXT) return file_fail(f, v, "a text", file_type_name(v));
      const char *name = json_text(key, a), *value = json_text(v, a);
      if (!name || !value) return file_fail_memory();
      TRY(parsed_add_attr(d, a, name, value));
    }
  }
  return drop_repeated(d);
}

static int read_inputs(
    const struct file *f, const char *list, struct arena *a, struct parsed_node *d)
{
  const int n = file_count_items(list);
  d->in = n ? arena_new(a, sizeof *d->in * (size_t)n) : NULL;
  if (n && !d->in) return file_fail_memory();
  for (const char *v = json_first(list); v; v = json_next(v))
    TRY(file_read_entry(f, v, &d->in[d->nin++]));
  return TY_OK;
}

static int check_bodies(const struct file *f, const char *list)
{
  if (json_type(list) != J_LIST)
    return file_fail(f, list, "a list of graphs", file_type_name(list));
  for (const char *v = json_first(list); v; v = json_next(v))
    if (json_type(v) != J_OBJECT) return file_fail(f, v, "an object", file_type_name(v));
  return TY_OK;
}

int file_parse_node(const struct file *f, int node, struct arena *a, struct parsed_node *out)
{
  const char *v[FIELDS];
  *out = (struct parsed_node){ 0 };
  TRY(file_node_fields(f, node, v));
  if (!json_is(v[OP], "null")) {
    out->op_name = json_text(v[OP], a);
    if (!out->op_name) return file_fail_memory();
    out->op = op_find(out->op_name);
  }
  out->name = json_text(v[NAME], a);
  if (!out->name) return file_fail_memory();
  TRY(read_attrs(f, v, a, out));
  if (v[BODIES]) TRY(check_bodies(f, v[BODIES]));
  out->bodies = v[BODIES];
  return read_inputs(f, v[INPUTS], a, out);
}

/* -- attributes of a node ---------------------------------------------------------------------- */

const char *parsed_attr(const struct parsed_node *d, const char *key)
{
  for (int i = 0; i < d->nattr; i++)
    if (!strcmp(d->attr[i].key, key)) return d->attr[i].value;
  return NULL;
}

int parsed_add_attr(struct parsed_node *d, struct arena *a, const char *key, const char *value)
{
  if (d->nattr == d->cap) {
    ty_attr *more = arena_new(a, sizeof *more * (size_t)(2 * d->cap + 4));
    NEED(more, TY_EMEMORY, "out of memory: attributes");
    if (d->nattr) memcpy(more, d->attr, sizeof *more * (size_t)d->nattr);
    d->attr = more;
    d->cap = 2 * d->cap + 4;
  }
  d->attr[d->nattr++] = (ty_attr){ key, value };
  return TY_OK;
}

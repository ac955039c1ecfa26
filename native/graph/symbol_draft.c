/* symbol_draft.c - the nodes of a symbol file before they are built: their attributes and ports,
** and what brings old files up to the present form. Source: the reference's reader.
*/
#include "op/registry.h"
#include "graph/symbol_draft.h"
#include "graph/symbol_file.h"

ty_attr *draft_attr(struct draft *d, const char *key)
{
  for (int i = 0; i < d->nattr; i++)
    if (!strcmp(d->attr[i].key, key)) return &d->attr[i];
  return NULL;
}

int draft_reserve_attrs(struct file *f, struct draft *d, int more)
{
  const int cap = d->nattr + more;
  if (cap <= d->cap) return TY_OK;
  ty_attr *attr = arena_new(f->arena, sizeof *attr * (size_t)cap);
  NEED(attr, TY_EMEMORY, "out of memory: attributes");
  if (d->nattr) memcpy(attr, d->attr, sizeof *attr * (size_t)d->nattr);
  d->attr = attr;
  d->cap = cap;
  return TY_OK;
}

int draft_add_attr(struct file *f, struct draft *d, const char *key, const char *value)
{
  if (d->nattr == d->cap) TRY(draft_reserve_attrs(f, d, d->cap + 2));
  d->attr[d->nattr++] = (ty_attr){ key, value };
  return TY_OK;
}

static void drop_attr(struct draft *d, const char *key)
{
  int n = 0;
  for (int i = 0; i < d->nattr; i++)
    if (strcmp(d->attr[i].key, key)) d->attr[n++] = d->attr[i];
  d->nattr = n;
}

int draft_reserve(struct file *f, int n)
{
  if (n <= f->cap) return TY_OK;
  int cap = MAX(n, 2 * f->cap);
  struct draft *more = arena_new(f->arena, sizeof *more * (size_t)cap);
  NEED(more, TY_EMEMORY, "out of memory: symbol file of %d nodes", n);
  if (f->n) memcpy(more, f->node, sizeof *more * (size_t)f->n);
  f->node = more;
  f->cap = cap;
  return TY_OK;
}

static const struct op *op_of(const struct draft *d)
{
  const struct op *op = op_find(d->op);
  if (!op) op_unknown(d->op), fail_node(d->op, d->name, NULL);
  return op;
}

int draft_ports(const struct draft *d, struct arena *a, struct ports *out)
{
  const struct op *op = op_of(d);
  if (!op) return TY_ENAME;
  ty_attr *known = arena_new(a, sizeof *known * (size_t)(d->nattr + 2));
  void *param = arena_new(a, op->param_size + 16);
  char number[16];
  int n = 0;
  NEED(known && param, TY_EMEMORY, "out of memory: node %s", d->name);
  for (int i = 0; i < d->nattr; i++)
    if (op->flags & OP_CALLBACK || op_has_param(op, d->attr[i].key)) known[n++] = d->attr[i];
  const ty_attr *counted = op_counted(op, known, &n, d->nin, known, number);
  int code = op_parse(op, counted, n, param);
  if (!code) code = op_ports(op, param, op_variadic(op) ? d->nin : -1, a, out);
  if (code) fail_node(op->name, d->name, NULL);
  return code;
}

/* -- upgrades ---------------------------------------------------------------------------------- */

static const char *const hidden[] = { "ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage" };

static char *wrapped(struct file *f, const char *key)
{
  char *name = arena_new(f->arena, strlen(key) + 5);
  if (name) sprintf(name, "__%s__", key);
  return name;
}

static int set_hidden(struct file *f, struct draft *d, const char *key, const char *value)
{
  char *name = wrapped(f, key);
  NEED(name, TY_EMEMORY, "out of memory: attributes");
  drop_attr(d, name);
  return draft_add_attr(f, d, name, value);
}

/* The variable that input `prefix` of an operator reads, NULL if there is none. */
static struct draft *input_variable(
    struct file *f, const struct draft *d, const char *prefix, size_t n)
{
  struct ports p;
  if (!d->op || draft_ports(d, f->arena, &p)) return NULL;
  for (int k = 0; k < d->nin && k < p.nin; k++) {
    struct draft *v = &f->node[d->in[k].node];
    if (strlen(p.in[k].name) == n && !strncmp(p.in[k].name, prefix, n)) return v->op ? NULL : v;
  }
  return NULL;
}

/* "lr_mult" is spelled "__lr_mult__" now; "weight_lr_mult" of an operator belongs to its weight. */
static int repair_key(struct file *f, struct draft *d, const ty_attr *given, bool *gone)
{
  size_t n = strlen(given->key);
  *gone = false;
  for (int h = 0; h < COUNT(hidden); h++) {
    size_t m = strlen(hidden[h]);
    if (n < m || strcmp(given->key + n - m, hidden[h])) continue;
    struct draft *to = n == m          ? d
        : given->key[n - m - 1] == '_' ? input_variable(f, d, given->key, n - m - 1)
                                       : NULL;
    if (!to) continue;
    *gone = true;
    return set_hidden(f, to, hidden[h], given->value);
  }
  return TY_OK;
}

static int repair_keys(struct file *f, struct draft *d)
{
  for (int i = 0; i < d->nattr; i++) {
    ty_attr given = d->attr[i];
    bool gone;
    TRY(repair_key(f, d, &given, &gone));
    if (!gone) continue;
    drop_attr(d, given.key);
    i = -1; /* the list has changed; each pass removes one bare key */
  }
  return TY_OK;
}

/* Auxiliary states were not stored once: missing last inputs become variables with the
** operator's attributes. */
static int add_missing_inputs(struct file *f, int index)
{
  struct ports p;
  TRY(draft_ports(&f->node[index], f->arena, &p));
  int have = f->node[index].nin;
  if (p.nin <= have) return TY_OK;
  struct input *in = arena_new(f->arena, sizeof *in * (size_t)p.nin);
  NEED(in, TY_EMEMORY, "out of memory: inputs");
  if (have) memcpy(in, f->node[index].in, sizeof *in * (size_t)have);
  for (int k = have; k < p.nin; k++) {
    TRY(draft_reserve(f, f->n + 2));
    struct draft *d = &f->node[index], *v = &f->node[f->n];
    size_t size = strlen(d->name) + strlen(p.in[k].name) + 2;
    char *name = arena_new(f->arena, size);
    NEED(name, TY_EMEMORY, "out of memory: names");
    snprintf(name, size, "%s_%s", d->name, p.in[k].name);
    *v = (struct draft){ .name = name };
    for (int i = 0; i < d->nattr; i++) TRY(draft_add_attr(f, v, d->attr[i].key, d->attr[i].value));
    in[k] = (struct input){ f->n++, 0, 0 };
  }
  f->node[index].in = in;
  f->node[index].nin = p.nin;
  return TY_OK;
}

/* Initialisers that operators give to the variables of their inputs. */
static const struct { const char *op; int input; const char *init; } initialisers[] = {
  { "BatchNorm",                 3, "[\"zero\", {}]" },
  { "BatchNorm",                 4, "[\"one\", {}]" },
  { "BatchNorm_v1",              3, "[\"zero\", {}]" },
  { "BatchNorm_v1",              4, "[\"one\", {}]" },
  { "LeakyReLU",                 1, "[\"Constant\", {\"value\": 0.25}]" },
  { "IdentityAttachKLSparseReg", 1, "[\"zero\", {}]" },
};

static int annotate(struct file *f, const struct draft *d)
{
  for (int i = 0; i < COUNT(initialisers); i++) {
    if (strcmp(d->op, initialisers[i].op) || initialisers[i].input >= d->nin) continue;
    struct draft *v = &f->node[d->in[initialisers[i].input].node];
    if (v->op || draft_attr(v, "__init__")) continue;
    TRY(draft_add_attr(f, v, "__init__", initialisers[i].init));
  }
  return TY_OK;
}

static void drop_flat_axis(struct draft *d)
{
  const ty_attr *axis = draft_attr(d, "axis");
  bool concerned = !strcmp(d->op, "argmax") || !strcmp(d->op, "argmin");
  if (concerned && axis && !strcmp(axis->value, "-1")) drop_attr(d, "axis");
}

int draft_upgrade(struct file *f)
{
  int n = f->n; /* variables that are added need none of this */
  for (int i = 0; i < n && f->version < FILE_VERSION; i++) TRY(repair_keys(f, &f->node[i]));
  for (int i = 0; i < n && f->version < 900; i++)
    if (f->node[i].op) TRY(add_missing_inputs(f, i));
  for (int i = 0; i < n && f->version < 904; i++)
    if (f->node[i].op) TRY(annotate(f, &f->node[i]));
  for (int i = 0; i < n && f->version < 905; i++)
    if (f->node[i].op) drop_flat_axis(&f->node[i]);
  return TY_OK;
}

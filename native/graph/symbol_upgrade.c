/* symbol_upgrade.c - converts nodes of old symbol files to the present form.
**
** Most of it is done when a node is read. Attributes that an operator's node sets for variables are
** collected before, since variables are built before their readers. Source: the reference's reader.
*/
#include "op/registry.h"
#include "graph/symbol_file.h"
#include "graph/symbol_reader.h"

static void drop_attr(struct parsed_node *d, const char *key)
{
  int n = 0;
  for (int i = 0; i < d->nattr; i++)
    if (strcmp(d->attr[i].key, key)) d->attr[n++] = d->attr[i];
  d->nattr = n;
}

static int set_attr(struct parsed_node *d, struct arena *a, const char *key, const char *value)
{
  drop_attr(d, key);
  return parsed_add_attr(d, a, key, value);
}

/* -- keys: "lr_mult" is spelled "__lr_mult__" now ---------------------------------------------- */

static const struct { const char *bare, *key; } hidden[] = {
  { "ctx_group",       "__ctx_group__"       },
  { "lr_mult",         "__lr_mult__"         },
  { "wd_mult",         "__wd_mult__"         },
  { "force_mirroring", "__force_mirroring__" },
  { "mirror_stage",    "__mirror_stage__"    },
};

/* Finds the operator's inputs from its parameters alone, since other keys are not yet repaired. It
** has none if the parameters do not determine them. */
static int find_ports(struct parsed_node *d, struct arena *a)
{
  ty_attr *known = arena_new(a, sizeof *known * (size_t)(d->nattr + 2));
  void *param = arena_new(a, d->op->param_size + 16);
  char number[16];
  int n = 0;
  NEED(known && param, TY_EMEMORY, "out of memory: attributes");
  d->has_ports = true;
  for (int i = 0; i < d->nattr; i++)
    if (d->op->flags & OP_CALLBACK || op_has_param(d->op, d->attr[i].key)) known[n++] = d->attr[i];
  const ty_attr *counted = op_counted(d->op, known, &n, d->nin, known, number);
  int code = op_parse(d->op, counted, n, param);
  if (!code) code = op_ports(d->op, param, op_variadic(d->op) ? d->nin : -1, a, &d->ports);
  if (code) d->ports = (struct ports){ 0 };
  return code == TY_EMEMORY ? code : TY_OK;
}

enum { STAYS = -2, OF_NODE = -1 };

/* Returns the input whose name is the first n bytes of a key such as "weight_lr_mult", if it is a
** variable; else STAYS. */
static int input_called(
    const struct file *f, const struct parsed_node *d, const char *prefix, size_t n)
{
  for (int k = 0; k < d->nin && k < d->ports.nin; k++)
    if (strlen(d->ports.in[k].name) == n && !strncmp(d->ports.in[k].name, prefix, n))
      return file_is_variable(f, d->in[k].node) ? k : STAYS;
  return STAYS;
}

/* Returns whose attribute a key is: the node's, that of the variable of an input (its number), or
** STAYS: the key is not changed. "weight_lr_mult" of an operator is its weight's. */
static int find_owner(const struct file *f, struct parsed_node *d, struct arena *a, const char *key,
    int *owner, const char **now)
{
  size_t n = strlen(key);
  *owner = STAYS;
  for (int h = 0; h < COUNT(hidden) && *owner == STAYS; h++) {
    size_t m = strlen(hidden[h].bare);
    if (n < m || strcmp(key + n - m, hidden[h].bare)) continue;
    *now = hidden[h].key;
    if (n == m) *owner = OF_NODE;
    if (n == m || !d->op || key[n - m - 1] != '_') continue;
    if (!d->has_ports) TRY(find_ports(d, a));
    *owner = input_called(f, d, key, n - m - 1);
  }
  return TY_OK;
}

/* Repairs the keys of the node itself, and removes those for other nodes. */
static int repair_keys(const struct file *f, struct parsed_node *d, struct arena *a)
{
  ty_attr *given = arena_new(a, sizeof *given * (size_t)(d->nattr + 1));
  int own = 0, stay = 0;
  NEED(given, TY_EMEMORY, "out of memory: attributes");
  for (int i = 0; i < d->nattr; i++) {
    const char *now = NULL;
    int owner;
    TRY(find_owner(f, d, a, d->attr[i].key, &owner, &now));
    if (owner == OF_NODE) given[own++] = (ty_attr){ now, d->attr[i].value };
    if (owner == STAYS) d->attr[stay++] = d->attr[i];
  }
  d->nattr = stay;
  for (int i = 0; i < own; i++) TRY(set_attr(d, a, given[i].key, given[i].value));
  return TY_OK;
}

/* -- inherited attributes ---------------------------------------------------------------------- */

static int add_inherited(struct file *f, struct inherited_attr attr)
{
  NEED(GROW(f->inherited, f->ninherited, f->inherited_cap), TY_EMEMORY,
      "out of memory: attributes");
  attr.order = f->ninherited;
  attr.value = arena_text(&f->arena, attr.value);
  NEED(attr.value, TY_EMEMORY, "out of memory: attributes");
  f->inherited[f->ninherited++] = attr;
  return TY_OK;
}

/* Notes keys such as "weight_lr_mult" for variables. */
static int give_keys(struct file *f, int node, struct parsed_node *d, struct arena *a)
{
  for (int i = 0; i < d->nattr; i++) {
    const char *now = NULL;
    int k;
    TRY(find_owner(f, d, a, d->attr[i].key, &k, &now));
    if (k < 0) continue;
    const struct inherited_attr attr = {
      .key = now, .value = d->attr[i].value, .to = d->in[k].node, .from = node
    };
    TRY(add_inherited(f, attr));
  }
  return TY_OK;
}

static const struct { const char *op; int input; const char *init; } initialisers[] = {
  { "BatchNorm",                 3, "[\"zero\", {}]" },
  { "BatchNorm",                 4, "[\"one\", {}]" },
  { "BatchNorm_v1",              3, "[\"zero\", {}]" },
  { "BatchNorm_v1",              4, "[\"one\", {}]" },
  { "LeakyReLU",                 1, "[\"Constant\", {\"value\": 0.25}]" },
  { "IdentityAttachKLSparseReg", 1, "[\"zero\", {}]" },
};

const char *upgrade_initialiser(const struct parsed_node *d, int input)
{
  for (int i = 0; i < COUNT(initialisers); i++)
    if (!strcmp(d->op_name, initialisers[i].op) && initialisers[i].input == input)
      return initialisers[i].init;
  return NULL;
}

static int give_initialisers(struct file *f, int node, const struct parsed_node *d)
{
  for (int k = 0; k < d->nin; k++) {
    const char *init = upgrade_initialiser(d, k);
    if (!init || !file_is_variable(f, d->in[k].node)) continue;
    const struct inherited_attr attr = { "__init__", init, d->in[k].node, node, 0, true };
    TRY(add_inherited(f, attr));
  }
  return TY_OK;
}

static int find_inherited(struct file *f, int node)
{
  struct arena a = { 0 };
  struct parsed_node d;
  int code = file_is_variable(f, node) ? TY_OK : file_parse_node(f, node, &a, &d);
  if (!code && !file_is_variable(f, node)) {
    code = give_keys(f, node, &d, &a);
    if (!code && f->version < 904) code = give_initialisers(f, node, &d);
  }
  arena_done(&a);
  return code;
}

static int compare_receivers(const void *a, const void *b)
{
  const struct inherited_attr *g = a, *h = b;
  return g->to < h->to ? -1 : g->to > h->to;
}

/* Orders by variable; then if_absent ones last; then by the order of the file. */
static int compare_inherited(const void *a, const void *b)
{
  const struct inherited_attr *g = a, *h = b;
  if (g->to != h->to) return compare_receivers(g, h);
  if (g->if_absent != h->if_absent) return g->if_absent ? 1 : -1;
  return g->order < h->order ? -1 : 1;
}

int upgrade_begin(struct file *f)
{
  for (int i = 0; i < f->n; i++) TRY(find_inherited(f, i));
  if (f->ninherited)
    qsort(f->inherited, (size_t)f->ninherited, sizeof *f->inherited, compare_inherited);
  return TY_OK;
}

/* Returns the first inherited attribute of a node; NULL: there is none. */
static const struct inherited_attr *first_inherited(const struct file *f, int node)
{
  const struct inherited_attr key = { .to = node }, *g;
  if (!f->ninherited) return NULL;
  g = bsearch(&key, f->inherited, (size_t)f->ninherited, sizeof key, compare_receivers);
  while (g && g > f->inherited && g[-1].to == node) g--;
  return g;
}

static const struct inherited_attr *next_inherited(
    const struct file *f, const struct inherited_attr *g)
{
  return g + 1 - f->inherited < f->ninherited && g[1].to == g->to ? g + 1 : NULL;
}

/* -- a node ------------------------------------------------------------------------------------ */

static void drop_flat_axis(struct parsed_node *d)
{
  const char *axis = parsed_attr(d, "axis");
  bool concerned = !strcmp(d->op_name, "argmax") || !strcmp(d->op_name, "argmin");
  if (concerned && axis && !strcmp(axis, "-1")) drop_attr(d, "axis");
}

/* Applies inherited attributes and those of the node itself in the order of the file: the last one
** counts. */
int upgrade_attrs(const struct file *f, int node, struct parsed_node *d, struct arena *a)
{
  bool repaired = false;
  for (const struct inherited_attr *g = first_inherited(f, node); g; g = next_inherited(f, g)) {
    if (!repaired && (g->if_absent || g->from > node)) {
      TRY(repair_keys(f, d, a));
      repaired = true;
    }
    if (!g->if_absent || !parsed_attr(d, g->key)) TRY(set_attr(d, a, g->key, g->value));
  }
  if (!repaired) TRY(repair_keys(f, d, a));
  if (d->op_name && f->version < 905) drop_flat_axis(d);
  return TY_OK;
}

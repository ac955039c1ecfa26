/* registry.c - the registry of operators: lookup by name, and listing for front ends.
**
** operators/all.c registers the tables of operators/ before main. Operators made at run time
** (ty_op_pointwise, in user_formula.c) are added by op_add. Lookups use a hash table that is built
** on first use.
*/
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

/* -- lookup ------------------------------------------------------------------------------------ */

enum {
  SLOTS = 4096,                                       /* entries of the hash table */
  MOST = SLOTS / 2                                    /* most operators */
};
struct named_op { const char *name; const struct op *op; };
static struct {
  pthread_once_t once;
  pthread_mutex_t lock;
  struct named_op entry[SLOTS];
  const struct op *list[MOST];
  int n, named, builtin;
  bool lost;                                            /* an alias is missing: out of memory */
  struct arena names;
} all = { .once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER };

static struct named_op *find_slot(const char *name)
{
  uint32_t i = name_hash(name) % SLOTS;
  while (all.entry[i].name && strcmp(all.entry[i].name, name)) i = (i + 1) % SLOTS;
  return &all.entry[i];
}

static void put_name(const char *name, const struct op *op)
{
  struct named_op *s = find_slot(name);
  if (s->name) return;
  *s = (struct named_op){ name, op };
  all.named++;
}

static void put_aliases(const struct op *op)
{
  const char *s = op->alias ? op->alias : "";
  while (*s) {
    size_t n = strcspn(s, " ");
    char *name = arena_new(&all.names, n + 1);
    if (!name) all.lost = true;
    if (name && n) memcpy(name, s, n), put_name(name, op);
    s += n + strspn(s + n, " ");
  }
}

static int add_op(const struct op *op)
{
  NEED(all.n < MOST && all.named < 3 * SLOTS / 4, TY_EMEMORY,
      "operator %s: there are %d operators of %d names, and no room for more", op->name, all.n,
      all.named);
  /* a failure is ignored: parsing is repeated, and fails, where the text is needed */
  op_parse_texts(op);
  all.list[all.n++] = op;
  put_name(op->name, op);
  return TY_OK;
}

static void fill_registry(void)
{
  for (int i = 0; i < ntables; i++)
    for (const struct op *op = tables[i]; op->name; op++)
      if (add_op(op)) all.lost = true;
  for (int i = 0; i < all.n; i++)
    put_aliases(all.list[i]); /* after all names: names win over aliases */
  all.builtin = all.n;
}

const struct op *op_find(const char *name)
{
  pthread_once(&all.once, fill_registry);
  return name ? find_slot(name)->op : NULL;
}

const struct op *op_at(int i)
{
  pthread_once(&all.once, fill_registry);
  return i >= 0 && i < all.n ? all.list[i] : NULL;
}
int op_count(void)
{
  pthread_once(&all.once, fill_registry);
  return all.n;
}

int op_add(const struct op *op)
{
  pthread_once(&all.once, fill_registry);
  pthread_mutex_lock(&all.lock);
  int code = add_op(op);
  if (!code) put_aliases(op);
  pthread_mutex_unlock(&all.lock);
  return code;
}

/* Adds the nearest registered names to an error, for "did you mean". */
static void add_nearest(const char *name, struct text *t)
{
  bool used[MOST] = { false };
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
  NEED(!all.lost, TY_EMEMORY, "there was no memory for the names of all operators");
  add_nearest(name, &t);
  int code = fail(TY_ENAME, "there is no operator '%s'; nearest: %s", name, t.s ? t.s : "");
  fail_argument(name, t.s, name);
  text_done(&t);
  return code;
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
    op->out ? op->out : "output", n, i >= all.builtin,
    !!(op->flags & (OP_LOSS | OP_WEIGHTED_LOSS)) };
  return TY_OK;
}

int ty_op_names_inputs(int i, int *out)
{
  const struct op *op = op_at(i);
  NEED(op && out, TY_EINDEX, "operator %d of %d", i, op_count());
  *out = monitor_input_named(op);
  return TY_OK;
}

int ty_op_draws(int i, int *out)
{
  const struct op *op = op_at(i);
  NEED(op && out, TY_EINDEX, "operator %d of %d", i, op_count());
  *out = (op->flags & OP_RANDOM) != 0;
  return TY_OK;
}

int ty_op_param(int i, int k, ty_param *out)
{
  static __thread char type[512];
  const struct op *op = op_at(i);
  NEED(op && out, TY_EINDEX, "operator %d of %d", i, op_count());
  for (const struct param *p = op->param; p && p->name; p++, k--)
    if (k == 0) {
      *out = (ty_param){ p->name, param_type(p, type, sizeof type), p->init,
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

/* Prints the formulas of gradients: "a: g * b; b: g * a"; 0 for inputs without one. */
static void print_formulas(struct text *t, const struct formula *row)
{
  for (int k = 0; k < 6; k++)
    if (row->grad[k]) text_add(t, "%s%c: %s", t->n ? "; " : "", 'a' + k, row->grad[k]);
  if (!t->n) text_add(t, "zero");
}

int ty_op_gradient(const char *name, const char **out)
{
  NEED(name && out, TY_ETYPE, "op_gradient: null argument");
  static __thread struct text t;
  const struct op *op = op_find(name);
  if (!op) return op_unknown(name);
  text_clear(&t);
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
  *out = text_whole(&t);
  return *out ? TY_OK : fail(TY_EMEMORY, "out of memory");
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
  NEED(name && in && out, TY_ETYPE, "op_ports: null argument");
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
    text_clear(&ti);
    text_clear(&to);
    print_ports(&ti, ports.in, ports.nin);
    print_ports(&to, ports.out, ports.nout);
    *in = text_whole(&ti);
    *out = text_whole(&to);
    if (!*in || !*out) code = fail(TY_EMEMORY, "out of memory: ports of %s", name);
  }
  arena_done(&a);
  return code;
}

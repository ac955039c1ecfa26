/* infer.c - shapes and dtypes of every value, from what is known, in both directions.
**
** Sweeps go forward and backward over the nodes until nothing new is learned; an operator's
** shape() and type() fill in whatever follows, inputs from outputs too (a begin state gets its
** batch size so). A dim of 0 is unknown, ndim 0 a wholly unknown shape, TY_NODTYPE an unknown
** dtype. Conflicts fail with node, argument and both shapes. Order of calls: infer_seed, then
** infer_run for shapes and for dtypes in any order.
*/
#include "pass/control_flow.h"
#include "op/registry.h"

/* -- seeds ------------------------------------------------------------------------------------- */

static void seed_attr(const struct node *n, ty_desc *d)
{
  struct dims shape;
  const char *s = node_attr(n, "__shape__"), *t = node_attr(n, "__dtype__");
  if (s && !desc_known(d) && shape_parse(s, &shape) && shape.n > 0 && shape.n <= TY_MAXDIM) {
    d->ndim = (int)shape.n;
    for (int i = 0; i < d->ndim; i++) d->dim[i] = shape.d[i] > 0 ? shape.d[i] : 0;
  }
  if (t && d->dtype == TY_NODTYPE && dtype_size(atoi(t))) d->dtype = atoi(t);
}

static int unknown_given(const ty_graph *g, const char *name)
{
  struct text t = { 0 };
  for (int i = 0; i < g->n; i++)
    if (!g->node[i].op && t.n < 400) text_add(&t, "%s%s", t.n ? ", " : "", g->node[i].name);
  int code = fail(
      TY_ENAME, "there is no argument '%s'; arguments are: %s", name, t.s ? t.s : "none");
  fail_argument(name, t.s, name);
  text_done(&t);
  return code;
}

static void seed_given(const ty_want *given, ty_desc *d)
{
  if (given->desc.ndim) {
    d->ndim = given->desc.ndim;
    memcpy(d->dim, given->desc.dim, sizeof d->dim);
  }
  if (given->desc.dtype != TY_NODTYPE) d->dtype = given->desc.dtype;
}

/* Gives each variable all that is given under its name. found: per entry, a variable has its
** name. */
static void seed_variables(
    const ty_graph *g, const struct names *names, const ty_want *given, bool *found, ty_desc *desc)
{
  for (int i = 0; i < g->n; i++) {
    const struct node *n = &g->node[i];
    if (n->op) continue;
    for (int k = names_first(names, n->name); k >= 0; k = names_next(names, k)) {
      seed_given(&given[k], &desc[n->first]);
      found[k] = true;
    }
    seed_attr(n, &desc[n->first]);
  }
}

int infer_seed(const ty_graph *g, const ty_want *given, int n, ty_desc *desc)
{
  struct names names;
  for (int v = 0; v < g->nvalue; v++) desc[v] = (ty_desc){ .dtype = TY_NODTYPE };
  TRY(names_index(&names, given, sizeof *given, n));
  bool *found = NEWS(bool, n);
  int code = found ? TY_OK : fail(TY_EMEMORY, "out of memory: inference");
  if (!code) seed_variables(g, &names, given, found, desc);
  for (int k = 0; k < n && !code; k++)
    if (!found[k]) code = unknown_given(g, given[k].name);
  mem_free(found);
  names_done(&names);
  return code;
}

/* -- sweeps ------------------------------------------------------------------------------------ */

struct sweep { const ty_graph *g; int what; ty_desc *desc, *work; uint8_t *done; int64_t unknown; };

static int64_t count_unknown(int what, const ty_desc *d)
{
  int64_t n = 0;
  if (what == INFER_TYPES) return d->dtype == TY_NODTYPE;
  for (int i = 0; i < d->ndim; i++) n += d->dim[i] == 0;
  return d->ndim ? n : TY_MAXDIM + 1;
}

static void take_back(int what, ty_desc *d, const ty_desc *from)
{
  if (what == INFER_TYPES)
    d->dtype = from->dtype;
  else
    d->ndim = from->ndim, memcpy(d->dim, from->dim, sizeof d->dim);
}

/* Returns what an operator's function reported, without the operator's name at its beginning. */
static const char *bare_message(const char *message, const char *op)
{
  size_t n = strlen(op);
  if (!message) return "";
  return !strncmp(message, op, n) && message[n] == ':' ? message + n + 2 : message;
}

/* Adds the descriptors of a failed node's inputs to the message. Returns code. */
static int explain_failure(struct sweep *s, const struct node *n, int code)
{
  char shape[160];
  struct text t = { 0 };
  ty_failure f;
  ty_error_detail(&f);
  text_add(&t, "%s %s: %s", n->op->name, n->name, bare_message(f.message, n->op->name));
  for (int i = 0; i < n->nin; i++) {
    const ty_desc *d = &s->desc[value_of(s->g, n->in[i])];
    text_add(&t, "%s%s %s", i ? ", " : " (inputs: ", n->kind->inport[i].name,
        s->what == INFER_TYPES ? dtype_name(d->dtype) : text_shape(d, shape, sizeof shape));
  }
  if (n->nin) text_add(&t, ")");
  char *argument = f.argument ? mem_text(f.argument) : NULL,
       *expected = f.expected ? mem_text(f.expected) : NULL, *got = f.got ? mem_text(f.got) : NULL;
  fail(code, "%s", t.s ? t.s : "inference failed");
  fail_node(n->op->name, n->name, n->where);
  fail_argument(argument, expected, got);
  text_done(&t);
  mem_free(argument);
  mem_free(expected);
  mem_free(got);
  return code;
}

static int visit_node(struct sweep *s, int i)
{
  const struct node *n = &s->g->node[i];
  if (!n->op || n->backward || s->done[i]) return TY_OK;
  struct infer f = { n->op, n->kind->param, n->nin, n->kind->nout, s->work, s->work + n->nin };
  for (int k = 0; k < n->nin; k++) f.in[k] = s->desc[value_of(s->g, n->in[k])];
  for (int k = 0; k < n->kind->nout; k++) f.out[k] = s->desc[n->first + k];
  int code = n->op->control ? control_infer(n, &f, s->what) : op_infer(&f, s->what);
  if (code) return explain_failure(s, n, code);
  int64_t unknown = 0;
  for (int k = 0; k < n->nin; k++)
    take_back(s->what, &s->desc[value_of(s->g, n->in[k])], &f.in[k]),
        unknown += count_unknown(s->what, &f.in[k]);
  for (int k = 0; k < n->kind->nout; k++)
    take_back(s->what, &s->desc[n->first + k], &f.out[k]),
        unknown += count_unknown(s->what, &f.out[k]);
  s->done[i] = unknown == 0; /* everything known and consistent: need not be seen again */
  s->unknown += unknown;
  return TY_OK;
}

static int sweep_all(struct sweep *s)
{
  int64_t before = INT64_MAX;
  for (int round = 0; round < 1000; round++) {
    s->unknown = 0;
    for (int i = 0; i < s->g->n; i++) TRY(visit_node(s, i));
    if (!s->unknown) return TY_OK;
    for (int i = s->g->n - 1; i >= 0; i--) TRY(visit_node(s, i));
    if (s->unknown >= before) return TY_OK;
    before = s->unknown;
  }
  return TY_OK;
}

int infer_run(const ty_graph *g, int what, ty_desc *desc)
{
  int ports = 1;
  for (int i = 0; i < g->n; i++) ports = MAX(ports, g->node[i].nin + g->node[i].kind->nout);
  struct sweep s = { g, what, desc, NEWS(ty_desc, ports), NEWS(uint8_t, g->n), 0 };
  int code = s.work && s.done ? sweep_all(&s) : fail(TY_EMEMORY, "out of memory: inference");
  mem_free(s.work);
  mem_free(s.done);
  return code;
}

/* Fails with the first argument whose shape (or dtype) is not known; the failure's candidates are
** up to ten of them. */
int infer_undecided(const ty_graph *g, const ty_desc *desc, int what)
{
  struct text t = { 0 };
  const char *first = NULL;
  int n = 0, code = what == INFER_TYPES ? TY_EDTYPE : TY_ESHAPE;
  for (int pass = 0; pass < 2 && !n; pass++) /* variables first; if all are known, operators */
    for (int i = 0; i < g->n; i++)
      for (int k = 0; k < g->node[i].kind->nout; k++) {
        if (!g->node[i].op != !pass || !count_unknown(what, &desc[g->node[i].first + k])) continue;
        if (!first) first = g->node[i].name;
        if (n++ < 10) text_add(&t, "%s%s", t.n ? ", " : "", g->node[i].name);
      }
  if (n) {
    char got[160] = "unknown";
    fail(code, "the %s of these cannot be inferred from what was given: %s%s; give %s",
        what == INFER_TYPES ? "dtypes" : "shapes", t.s ? t.s : "", n > 10 ? ", ..." : "",
        what == INFER_TYPES ? "the dtype of more arguments (type_dict)"
                            : "the shape of more arguments");
    fail_argument(first, t.s, got);
  }
  text_done(&t);
  return n ? code : TY_OK;
}

int ty_graph_infer(ty_graph *g, const ty_want *given, int n, int partial, ty_desc *out)
{
  NEED(g && out, TY_ETYPE, "graph_infer: null argument");
  ty_desc *desc = NEWS(ty_desc, g->nvalue);
  NEED(desc, TY_EMEMORY, "out of memory: inference");
  int code = infer_seed(g, given, n, desc);
  if (!code) code = infer_run(g, INFER_SHAPES, desc);
  if (!code) code = infer_run(g, INFER_TYPES, desc);
  if (!code && !partial) code = infer_undecided(g, desc, INFER_SHAPES);
  if (!code && !partial) code = infer_undecided(g, desc, INFER_TYPES);
  for (int i = 0; !code && i < g->n; i++)
    for (int k = 0; k < g->node[i].kind->nreal; k++) *out++ = desc[g->node[i].first + k];
  mem_free(desc);
  return code;
}

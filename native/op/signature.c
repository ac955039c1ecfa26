/* signature.c - see signature.h; and the ports of a node.
**
** Lists are found by a hash of their text. Readers take no lock: an entry is complete when it is
** linked into its chain, and never removed.
*/
#include <pthread.h>
#include "op/registry.h"

/* -- lists, one per distinct text -------------------------------------------------------------- */

enum text_kind { READS, PORTS, IN_PLACE };
union text_list { struct reads reads; struct port_list ports; struct in_place in_place; };
struct interned {
  struct interned *next;
  const char *text;
  enum text_kind kind;
  union text_list list;
};
enum {
  CHAINS = 1024,                                      /* chains of the hash table */
  POWERS = 32                                         /* lists of 1, 2, 4 ... ports */
};
static struct {
  pthread_mutex_t lock;
  struct arena arena;
  struct interned *chain[CHAINS];
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Returns the length of the next word of a text; 0: there is none. */
static size_t next_word(const char **s)
{
  *s += strspn(*s, " ");
  return strcspn(*s, " ");
}

static int count_words(const char *s)
{
  int n = 0;
  for (size_t len; (len = next_word(&s)); s += len) n++;
  return n;
}

static int bad_text(const char *what, const char *text)
{
  return fail(TY_EINTERNAL, "operator text '%s': expected %s", text, what);
}

/* Parses "g0 i1 o2 i3!", "g* i* o*". */
static int parse_reads(const char *text, struct reads *out)
{
  struct read *list = arena_new(&all.arena, sizeof *list * (size_t)count_words(text));
  NEED(list, TY_EMEMORY, "out of memory: operators");
  const char *s = text;
  for (size_t len; (len = next_word(&s)); s += len) {
    struct read *r = &list[out->n++];
    bool known = *s == READ_HEAD || *s == READ_IN || *s == READ_OUT;
    if (!known || len < 2) return bad_text("g, i or o and a number or *", text);
    *r = (struct read){ .kind = *s, .all = s[1] == '*', .changed = s[len - 1] == '!' };
    if (!r->all) r->k = atoi(s + 1);
    out->heads |= r->kind == READ_HEAD;
    out->changes |= r->changed;
  }
  out->read = list;
  return TY_OK;
}

static const char *copy_piece(const char *s, size_t n)
{
  char *copy = arena_new(&all.arena, n + 1);
  return copy ? memcpy(copy, s, n) : NULL;
}

/* Parses one of "name", "name!", "name~", "name*count", "[name]", "{name}". */
static int parse_port(const char *s, size_t n, struct port_text *p)
{
  *p = (struct port_text){ .hidden = *s == '[', .secret = *s == '{' };
  if ((p->hidden || p->secret) && n < 2) return bad_text("[name] or {name}", s);
  if (p->hidden || p->secret) s++, n -= 2;
  const char *star = memchr(s, '*', n);
  size_t len = star ? (size_t)(star - s) : n;
  p->mutated = len && s[len - 1] == '!';
  p->overwritten = len && s[len - 1] == '~';
  p->name = copy_piece(s, len - p->mutated - p->overwritten);
  p->count = star ? copy_piece(star + 1, n - len - 1) : NULL;
  NEED(p->name && (!star || p->count), TY_EMEMORY, "out of memory: operators");
  return TY_OK;
}

/* Makes the ports of a text without counts, which nodes share. */
static int fix_ports(struct port_list *list)
{
  struct port *p = arena_new(&all.arena, sizeof *p * (size_t)list->n);
  NEED(p, TY_EMEMORY, "out of memory: operators");
  for (int i = 0; i < list->n; i++) {
    const struct port_text *t = &list->port[i];
    p[i] = (struct port){ t->name, t->mutated, t->overwritten, t->hidden, t->secret };
  }
  list->fixed = p;
  return TY_OK;
}

static int parse_ports(const char *text, struct port_list *out)
{
  struct port_text *list = arena_new(&all.arena, sizeof *list * (size_t)count_words(text));
  NEED(list, TY_EMEMORY, "out of memory: operators");
  out->counted = -1;
  const char *s = text;
  for (size_t len; (len = next_word(&s)); s += len) {
    struct port_text *p = &list[out->n++];
    TRY(parse_port(s, len, p));
    if (p->count && out->counted < 0) out->counted = out->n - 1;
    out->changes |= p->mutated;
  }
  out->port = list;
  if (out->counted < 0) return fix_ports(out);
  if (out->n > 1) return TY_OK;
  out->numbered = arena_new(&all.arena, sizeof *out->numbered * POWERS);
  NEED(out->numbered, TY_EMEMORY, "out of memory: operators");
  return TY_OK;
}

/* Parses "0=0 0=1", "*=3". */
static int parse_in_place(const char *text, struct in_place *out)
{
  struct shared_pair *list = arena_new(&all.arena, sizeof *list * (size_t)count_words(text));
  NEED(list, TY_EMEMORY, "out of memory: operators");
  const char *s = text;
  for (size_t len; (len = next_word(&s)); s += len) {
    if (sscanf(s, "*=%d", &out->every) == 1) continue;
    struct shared_pair *p = &list[out->n++];
    if (sscanf(s, "%d=%d", &p->out, &p->in) != 2) return bad_text("output=input", text);
  }
  out->pair = list;
  return TY_OK;
}

static int parse_text(const char *text, enum text_kind kind, union text_list *out)
{
  switch (kind) {
  case READS: return parse_reads(text, &out->reads);
  case PORTS: return parse_ports(text, &out->ports);
  default: return parse_in_place(text, &out->in_place);
  }
}

static const struct interned *find_list(
    struct interned *const *chain, const char *text, enum text_kind kind)
{
  const struct interned *e = __atomic_load_n(chain, __ATOMIC_ACQUIRE);
  while (e && (e->kind != kind || strcmp(e->text, text))) e = e->next;
  return e;
}

/* Parses a text and adds the list. Call under the lock. */
static int add_list(struct interned **chain, const char *text, enum text_kind kind)
{
  if (find_list(chain, text, kind)) return TY_OK;
  struct interned *e = arena_new(&all.arena, sizeof *e);
  NEED(e, TY_EMEMORY, "out of memory: operators");
  e->text = arena_text(&all.arena, text);
  NEED(e->text, TY_EMEMORY, "out of memory: operators");
  e->kind = kind;
  TRY(parse_text(e->text, kind, &e->list));
  e->next = *chain;
  __atomic_store_n(chain, e, __ATOMIC_RELEASE);
  return TY_OK;
}

/* Gets the parsed list of a text, which is kept for the life of the process. */
static int get_list(const char *text, enum text_kind kind, const union text_list **out)
{
  struct interned **chain = &all.chain[(name_hash(text) + kind) % CHAINS];
  const struct interned *e = find_list(chain, text, kind);
  if (!e) {
    pthread_mutex_lock(&all.lock);
    int code = add_list(chain, text, kind);
    pthread_mutex_unlock(&all.lock);
    TRY(code);
    e = find_list(chain, text, kind);
  }
  *out = &e->list;
  return TY_OK;
}

int find_reads(const char *text, const struct reads **out)
{
  const union text_list *list = NULL;
  if (text) TRY(get_list(text, READS, &list));
  *out = list ? &list->reads : NULL;
  return TY_OK;
}

static int get_ports(const char *text, const struct port_list **out)
{
  const union text_list *list;
  TRY(get_list(text, PORTS, &list));
  *out = &list->ports;
  return TY_OK;
}

int op_in_place(const struct op *op, bool backward, const struct in_place **out)
{
  const char *text = backward ? op->back_inplace : op->inplace;
  const union text_list *list = NULL;
  if (text) TRY(get_list(text, IN_PLACE, &list));
  *out = list ? &list->in_place : NULL;
  return TY_OK;
}

int op_inputs(const struct op *op, const void *param, const struct port_list **out)
{
  if (!op->in_of || !param) return get_ports(op->in ? op->in : "", out);
  const char *text = op->in_of(param);
  NEED(text, TY_EMEMORY, "out of memory: inputs of %s", op->name);
  return get_ports(text, out);
}

static int op_outputs(const struct op *op, const void *param, const struct port_list **out)
{
  if (!op->out_of || !param) return get_ports(op->out ? op->out : "output", out);
  const char *text = op->out_of(param);
  NEED(text, TY_EMEMORY, "out of memory: outputs of %s", op->name);
  return get_ports(text, out);
}

int op_parse_texts(const struct op *op)
{
  const struct port_list *ports;
  const struct in_place *pairs;
  const struct reads *reads;
  TRY(op_inputs(op, NULL, &ports));
  TRY(op_outputs(op, NULL, &ports));
  TRY(op_in_place(op, false, &pairs));
  TRY(op_in_place(op, true, &pairs));
  TRY(find_reads(op->shown, &reads));
  return find_reads(op->grad, &reads);
}

/* -- lists of an operator ---------------------------------------------------------------------- */

bool in_place_allowed(const struct in_place *pairs, int out, int in)
{
  if (!pairs) return false;
  if (pairs->every) return in == out * pairs->every;
  for (int i = 0; i < pairs->n; i++)
    if (pairs->pair[i].out == out && pairs->pair[i].in == in) return true;
  return false;
}

struct read_walk reads_walk(const struct reads *reads, int nin, int nout)
{
  return (struct read_walk){ .reads = reads, .nin = nin, .nout = nout, .operand = -1 };
}

bool reads_next(struct read_walk *w)
{
  for (; w->reads && w->i < w->reads->n; w->i++, w->next = 0) {
    const struct read *r = &w->reads->read[w->i];
    const int n = r->kind == READ_IN ? w->nin : w->nout, k = r->all ? w->next : r->k;
    if (k >= n || (w->next && !r->all)) continue;
    w->next++;
    w->operand++;
    w->kind = r->kind;
    w->k = k;
    w->changed = r->changed;
    return true;
  }
  return false;
}

/* -- ports of a node --------------------------------------------------------------------------- */

static const char *number_name(struct arena *a, const char *name, int k)
{
  size_t n = (size_t)snprintf(NULL, 0, "%s%d", name, k) + 1;
  char *text = arena_chars(a, n);
  if (text) snprintf(text, n, "%s%d", name, k);
  return text;
}

/* Makes the 2^power numbered ports, unless they exist. Call under the lock. */
static int make_numbered(const struct port_list *list, int power)
{
  const struct port_text *t = list->port;
  if (list->numbered[power]) return TY_OK;
  struct port *p = arena_new(&all.arena, sizeof *p << power);
  NEED(p, TY_EMEMORY, "out of memory: operators");
  for (size_t k = 0; k < (size_t)1 << power; k++) {
    p[k] = (struct port){ number_name(&all.arena, t->name, (int)k), t->mutated, t->overwritten,
      t->hidden, t->secret };
    NEED(p[k].name, TY_EMEMORY, "out of memory: operators");
  }
  __atomic_store_n(&list->numbered[power], p, __ATOMIC_RELEASE);
  return TY_OK;
}

/* Finds at least n numbered ports, data0 data1 ..., which nodes share. */
static int numbered_ports(const struct port_list *list, int n, const struct port **out)
{
  int power = 0;
  while ((size_t)1 << power < (size_t)n) power++;
  *out = __atomic_load_n(&list->numbered[power], __ATOMIC_ACQUIRE);
  if (*out) return TY_OK;
  pthread_mutex_lock(&all.lock);
  int code = make_numbered(list, power);
  pthread_mutex_unlock(&all.lock);
  *out = list->numbered[power];
  return code;
}

static int read_count(const struct op *op, const void *param, const char *key)
{
  bool found;
  double v = op_number(op, param, key, &found);
  return found && v >= 0 && v <= 1e6 ? (int)v : 0;
}

/* Returns the number of ports of one text. n: inputs that are passed, -1: as the parameters say. */
static int count_ports(
    const struct op *op, const void *param, const struct port_list *list, int i, int n)
{
  if (!list->port[i].count) return 1;
  return n >= 0 ? MAX(n - (list->n - 1), 0) : read_count(op, param, list->port[i].count);
}

/* Lists the ports of a text, with counted ones expanded. n: see count_ports. *out belongs to `a`
** or to the process. */
static int list_ports(const struct op *op, const void *param, const struct port_list *list, int n,
    struct arena *a, const struct port **out, int *count)
{
  int cap = 0;
  *count = list->n;
  if (list->counted < 0) return *out = list->fixed, TY_OK;
  for (int i = 0; i < list->n; i++) cap += count_ports(op, param, list, i, n);
  if (list->numbered) return *count = cap, numbered_ports(list, cap, out);
  struct port *p = arena_new(a, sizeof *p * (size_t)cap);
  NEED(p, TY_EMEMORY, "out of memory");
  *out = p;
  for (int i = 0; i < list->n; i++) {
    const struct port_text *t = &list->port[i];
    for (int k = 0, times = count_ports(op, param, list, i, n); k < times; k++) {
      *p = (struct port){ t->name, t->mutated, t->overwritten, t->hidden, t->secret };
      if (t->count) p->name = number_name(a, t->name, k);
      NEED(p->name, TY_EMEMORY, "out of memory");
      p++;
    }
  }
  *count = cap;
  return TY_OK;
}

/* Checks that the count of "arg*num_args" is n, the number of inputs passed. For control flow,
** which has no kernel, the count includes bodies. */
static int check_count(
    const struct op *op, const void *param, const struct port_list *in, int n)
{
  bool found;
  if (n < 0 || in->counted < 0 || !op->cpu) return TY_OK;
  const char *key = in->port[in->counted].count;
  double count = op_number(op, param, key, &found);
  if (!found || count == n) return TY_OK;
  int code = fail(TY_EVALUE, "%s: parameter %s is %.0f, but the number of inputs is %d", op->name,
      key, count, n);
  fail_argument(key, NULL, NULL);
  return code;
}

int op_ports(const struct op *op, const void *param, int n, struct arena *a, struct ports *out)
{
  const struct port_list *in = NULL, *outs = NULL;
  TRY(op_inputs(op, param, &in));
  TRY(check_count(op, param, in, n));
  TRY(list_ports(op, param, in, n, a, &out->in, &out->nin));
  TRY(op_outputs(op, param, &outs));
  TRY(list_ports(op, param, outs, -1, a, &out->out, &out->nout));
  out->nvisible = out->nreal = 0;
  for (int i = 0; i < out->nout; i++) {
    out->nreal += !out->out[i].secret;
    out->nvisible += !out->out[i].secret && !out->out[i].hidden;
  }
  return TY_OK;
}

/* The reference declares no input names for most operators of one input, so its monitors number
** it. */
bool monitor_input_named(const struct op *op)
{
  if (op->flags & (OP_NAMED_INPUT | OP_NUMBERED_INPUTS)) return op->flags & OP_NAMED_INPUT;
  return op->in && strcmp(op->in, "data");
}

const char *op_variadic(const struct op *op)
{
  const struct port_list *in;
  if (op_inputs(op, NULL, &in) || in->counted < 0) return NULL;
  return in->port[in->counted].count;
}

const ty_attr *op_counted(
    const struct op *op, const ty_attr *attr, int *nattr, int nin, ty_attr *more, char number[16])
{
  const char *key = nin < 0 ? NULL : op_variadic(op);
  if (!key || !*key || attr_given(attr, *nattr, key) || !op_has_param(op, key)) return attr;
  if (*nattr) memcpy(more, attr, sizeof *attr * (size_t)*nattr);
  snprintf(number, 16, "%d", nin);
  more[(*nattr)++] = (ty_attr){ key, number };
  return more;
}

/* formula.c - see formula.h.
**
** A pointwise program is built once per operator, dtype and direction, and kept for ever. Numeric
** parameters are not part of it, but operands of one element that point into the parameter struct,
** so that a learning rate that changes at each step needs no new program. Their signs are part of
** it (a formula may ask whether $clip >= 0), and so are the values of enums and booleans. A kernel
** finds its program and strides at its first run and keeps them in its state.
*/
#include <pthread.h>
#include "op/registry.h"
#include "pointwise/ir.h"

enum {
  MOST_INPUTS = 6,                                    /* most inputs of an operator with formulas */
  KEY_BYTES = 256,                                    /* most bytes of a key of the cache */
  BUCKETS = 1024                                      /* buckets of the cache */
};

/* -- text -------------------------------------------------------------------------------------- */

enum { READ_G = 1 << 6, READ_Y = 1 << 7 };            /* bits 0 .. 5 are inputs */

static bool in_word(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

/* Returns the variables of a formula as bits: letters that are neither in a word nor after a $. */
static int find_letters(const char *formula)
{
  int mask = 0;
  for (const char *s = formula; s && *s; s++) {
    if (in_word(s[1]) || (s > formula && (in_word(s[-1]) || s[-1] == '$'))) continue;
    mask |= *s >= 'a' && *s < 'a' + MOST_INPUTS ? 1 << (*s - 'a')
        : *s == 'g'                             ? READ_G
        : *s == 'y'                             ? READ_Y
                                                : 0;
  }
  return mask;
}

/* Returns the reads for a set of variables; each list is made once. */
static const struct reads *reads_of_letters(int mask)
{
  enum { SETS = 1 << (MOST_INPUTS + 2) };
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static struct reads list[SETS];
  static struct read item[SETS][MOST_INPUTS + 2];
  pthread_mutex_lock(&lock);
  struct reads *r = &list[mask];
  if (!r->read) {
    struct read *x = item[mask];
    int n = 0;
    if (mask & READ_G) x[n++] = (struct read){ .kind = READ_HEAD };
    for (int k = 0; k < MOST_INPUTS; k++)
      if (mask >> k & 1) x[n++] = (struct read){ .kind = READ_IN, .k = k };
    if (mask & READ_Y) x[n++] = (struct read){ .kind = READ_OUT };
    *r = (struct reads){ .n = n, .heads = mask & READ_G, .read = x };
  }
  pthread_mutex_unlock(&lock);
  return r;
}

static bool has_gradient(const struct op *op)
{
  for (int k = 0; k < MOST_INPUTS; k++)
    if (op->formula->grad[k]) return true;
  return false;
}

char formula_letter(char kind, int k)
{
  return kind == READ_HEAD ? 'g' : kind == READ_OUT ? 'y' : (char)('a' + k);
}

/* Returns the reads for the variables of all gradients of an operator; NULL: it has none. */
static const struct reads *find_all_letters(const struct op *op)
{
  int mask = 0;
  if (!has_gradient(op)) return NULL;
  for (int k = 0; k < MOST_INPUTS; k++) mask |= find_letters(op->formula->grad[k]);
  return reads_of_letters(mask);
}

/* -- parameters -------------------------------------------------------------------------------- */

/* Looks up $name (pw_env.parameter). A number is an operand if env->numbers is above 0; enums and
** booleans never are. */
static bool read_parameter(
    const struct pw_env *env, const char *name, size_t n, double *value, int *operand)
{
  int at = 0;
  *operand = -1;
  for (const struct param *q = env->param ? env->op->param : NULL; q && q->name; q++) {
    bool number = q->type == P_FLOAT || q->type == P_INT, found;
    if (strlen(q->name) == n && !memcmp(q->name, name, n)) {
      *value = op_number(env->op, env->param, q->name, &found);
      if (number && env->numbers > 0) *operand = env->numbers + at;
      return found;
    }
    at += number;
  }
  return false;
}

struct pw_env formula_env(const struct op *op, const void *param, int numbers)
{
  struct pw_env env = { .parameter = read_parameter, .op = op, .param = param, .numbers = numbers };
  for (int i = 0; i < COUNT(env.var); i++) env.var[i] = -1;
  return env;
}

/* -- making a pointwise program ---------------------------------------------------------------- */

/* What determines a pointwise program. */
struct plan {
  const struct op *op;
  const void *param;
  int dtype;
  bool backward;
  uint32_t want;                                      /* outputs to store */
  const struct port_list *ports;                      /* of the operator itself */
  const struct reads *reads;                          /* backward */
};

/* Builds an operator's program. Operands: its inputs, its output, the inputs that it changes,
** numbers. */
static int build_forward(const struct plan *p, struct pw_program *t)
{
  const struct port_text *port = p->ports->port;
  int nin = p->ports->n, at = nin + 1, reg;
  for (int k = 0; k < nin; k++) at += port[k].mutated;
  struct pw_env env = formula_env(p->op, p->param, at);
  for (int i = 0; i < nin && i < MOST_INPUTS; i++) env.var[i] = pw_load(t, i);
  TRY(pw_formula(t, p->op->formula->y, &env, &reg));
  if (p->want & 1) pw_store(t, nin, reg);
  for (int k = 0, to = nin + 1; k < nin; k++)
    if (port[k].mutated) pw_store(t, to++, env.var[k]);
  return TY_OK;
}

/* Builds the program of an operator's gradients. Operands: what they read, the gradients,
** numbers. */
static int build_backward(const struct plan *p, struct pw_program *t)
{
  const int nin = p->ports->n, n = p->reads->n;
  int reg;
  struct pw_env env = formula_env(p->op, p->param, n + nin);
  for (int i = 0; i < n; i++) {
    const struct read *r = &p->reads->read[i];
    env.var[formula_letter(r->kind, r->k) - 'a'] = pw_load(t, i);
  }
  for (int k = 0; k < nin; k++) {
    const char *f = p->op->formula->grad[k];
    if (!(p->want >> k & 1) || !f) continue;
    struct pw_env e = env;
    TRY(pw_formula(t, f, &e, &reg));
    pw_store(t, n + k, reg);
  }
  return TY_OK;
}

static int build_program(const struct plan *p, struct pw_program **out)
{
  struct pw_program *t = pw_new(p->dtype);
  NEED(t, TY_EMEMORY, "out of memory: pointwise program");
  int code = p->backward ? build_backward(p, t) : build_forward(p, t);
  if (!code) code = pw_seal(t);
  if (code)
    pw_free(t);
  else
    *out = t;
  return code;
}

int formula_build(const struct op *op, const void *param, int dtype, bool backward,
    struct pw_program **out, int dtypes[PW_ARGS], int *n)
{
  struct plan p = { .op = op, .param = param, .dtype = dtype, .backward = backward, .want = ~0u };
  TRY(op_inputs(op, NULL, &p.ports));
  if (backward) p.reads = formula_find_reads(op, param);
  int nin = p.ports->n, k = backward ? p.reads->n + nin : nin + 1;
  for (int i = 0; i < nin; i++) k += !backward && p.ports->port[i].mutated;
  for (int i = 0; i < k && i < PW_ARGS; i++) dtypes[i] = dtype;
  for (const struct param *q = op->param; q && q->name; q++) {
    if (q->type != P_FLOAT && q->type != P_INT) continue;
    NEED(k < PW_ARGS, TY_EUNSUPPORTED, "%s: the formula has too many operands", op->name);
    dtypes[k++] = q->type == P_FLOAT ? TY_F64 : TY_I64;
  }
  *n = k;
  return build_program(&p, out);
}

/* -- the cache --------------------------------------------------------------------------------- */

/* What a cache entry holds for an operator, dtype and parameters. */
enum cached_part { CACHED_FORWARD, CACHED_BACKWARD, CACHED_LETTERS };

struct cached {
  struct cached *next;                                /* in its bucket */
  const struct op *op;
  uint8_t key[KEY_BYTES];
  size_t nkey;
  struct pw_program *pw;                              /* NULL: of letters */
  const struct reads *reads;                          /* of letters */
};

static struct {
  pthread_mutex_t lock;
  struct cached *bucket[BUCKETS];
} cache = { PTHREAD_MUTEX_INITIALIZER, { 0 } };

static uint8_t number_sign(double v) { return v != v ? 3 : v > 0 ? 2 : v < 0 ? 1 : 0; }

/* Writes the cache key of a program. Returns its length; 0: the parameters do not fit. */
static size_t make_key(const struct plan *p, enum cached_part what, uint8_t key[KEY_BYTES])
{
  uint8_t *k = key;
  int32_t head[3] = { (int32_t)what, p->dtype, (int32_t)p->want };
  memcpy(k, head, sizeof head);
  k += sizeof head;
  for (const struct param *q = p->op->param; q && q->name; q++) {
    const char *field = (const char *)p->param + q->at;
    int64_t v;
    memcpy(&v, field, sizeof v);
    if (k + sizeof v > key + KEY_BYTES) return 0;
    if (q->type == P_FLOAT)
      *k++ = number_sign(*(const double *)(const void *)field);
    else if (q->type == P_INT)
      *k++ = number_sign((double)v);
    else if (q->type == P_BOOL || q->type == P_ENUM || q->type == P_DTYPE)
      memcpy(k, &v, sizeof v), k += sizeof v;
  }
  return (size_t)(k - key);
}

static struct cached **find_cached(const struct op *op, const uint8_t *key, size_t n)
{
  uint64_t h = (uint64_t)(uintptr_t)op * 0x9E3779B97F4A7C15u;
  for (size_t i = 0; i < n; i++) h = (h ^ key[i]) * 1099511628211u;
  struct cached **e = &cache.bucket[(h >> 32) % BUCKETS];
  while (*e && ((*e)->op != op || (*e)->nkey != n || memcmp((*e)->key, key, n))) e = &(*e)->next;
  return e;
}

static int find_live_letters(const struct plan *p, const struct reads **reads);

/* Finds an entry, or makes it. Call under the lock. */
static int add_cached(
    const struct plan *p, enum cached_part what, const uint8_t *key, size_t n, struct cached **out)
{
  struct cached **at = find_cached(p->op, key, n);
  if (!*at) {
    struct cached *e = NEW(struct cached);
    NEED(e, TY_EMEMORY, "out of memory: pointwise program");
    e->op = p->op;
    e->nkey = n;
    memcpy(e->key, key, n);
    int code = what == CACHED_LETTERS ? find_live_letters(p, &e->reads) : build_program(p, &e->pw);
    if (code) {
      mem_free(e);
      return code;
    }
    *at = e;
  }
  *out = *at;
  return TY_OK;
}

/* Finds or makes the entry of a plan. */
static int get_cached(const struct plan *p, enum cached_part what, struct cached **out)
{
  uint8_t key[KEY_BYTES] = { 0 };
  size_t n = make_key(p, what, key);
  NEED(n, TY_EUNSUPPORTED, "%s: the formula has too many parameters", p->op->name);
  pthread_mutex_lock(&cache.lock);
  int code = add_cached(p, what, key, n, out);
  pthread_mutex_unlock(&cache.lock);
  return code;
}

/* -- what gradients read once enums and booleans are known ------------------------------------- */

/* Finds what the gradients of a plan read, given the values of its enums and booleans. */
static int find_live_letters(const struct plan *p, const struct reads **reads)
{
  struct plan full = *p;
  struct pw_program *t;
  int mask = 0;
  full.backward = true;
  full.reads = find_all_letters(p->op);
  TRY(build_program(&full, &t));
  for (int n = 0; n < full.reads->n; n++)
    for (int i = 0; i < t->nget; i++) {
      const struct read *r = &full.reads->read[n];
      if (t->get[i].operand == n)
        mask |= r->kind == READ_HEAD ? READ_G : r->kind == READ_OUT ? READ_Y : 1 << r->k;
    }
  pw_free(t);
  *reads = reads_of_letters(mask);
  return TY_OK;
}

const struct reads *formula_find_reads(const struct op *op, const void *param)
{
  const struct reads *all = find_all_letters(op);
  bool choice = false;
  for (const struct param *q = op->param; q && q->name; q++)
    choice |= q->type == P_BOOL || q->type == P_ENUM;
  if (!all || !choice || !param) return all;
  struct plan p = { .op = op, .param = param, .dtype = TY_F32, .want = ~0u };
  struct cached *e;
  return op_inputs(op, NULL, &p.ports) || get_cached(&p, CACHED_LETTERS, &e) ? all : e->reads;
}

int op_reads(const struct op *op, const void *param, const struct reads **out)
{
  if (op->formula) return *out = formula_find_reads(op, param), TY_OK;
  return find_reads(op->grad_of ? op->grad_of(param) : op->grad, out);
}

/* -- kernels ----------------------------------------------------------------------------------- */

/* An output that is summed over axes after the pointwise program. */
struct sum_out {
  int output;
  /* offset in scratch; below 0: it is input -1 - at */
  int64_t at;
};

/* A kernel's state, filled in at its first run. */
struct formula_state {
  bool done;
  bool sweeps;                                        /* formula->sweep can be used */
  const struct pw_program *pw;                        /* NULL: nothing is computed */
  struct pw_loop loop;
  int n;                                              /* operands that are not numbers */
  int number[PW_ARGS];                                /* offsets of numbers in the parameters */
  int nnumber;
  uint32_t mutated;                                   /* bits: inputs that are written */
  ty_desc space;
  struct sum_out sum[MOST_INPUTS];
  int nsum;
  struct pw_end end;                                  /* the sum that ends it; operand -1: none */
  int64_t end_at;                                     /* offset of its scratch */
  const struct live_number *live;                     /* numbers in the device's memory */
  int nlive;
};

/* Returns the number in device memory that replaces the parameter at an offset; NULL: none does. */
static const struct live_number *find_live_number(const struct formula_state *r, int at)
{
  for (int i = 0; i < r->nlive; i++)
    if (r->live[i].at == at) return &r->live[i];
  return NULL;
}

/* Lists the numeric parameters, and appends the descriptors of these operands to the n others. */
static int add_numbers(const struct op *op, ty_desc *d, int n, struct formula_state *r)
{
  for (const struct param *q = op->param; q && q->name; q++) {
    if (q->type != P_FLOAT && q->type != P_INT) continue;
    NEED(n + r->nnumber < PW_ARGS, TY_EUNSUPPORTED, "%s: the formula has too many operands",
        op->name);
    const struct live_number *live = find_live_number(r, (int)q->at);
    int own = q->type == P_FLOAT ? TY_F64 : TY_I64;
    d[n + r->nnumber] = (ty_desc){ .dtype = live ? live->dtype : own, .ndim = 1, .dim = { 1 } };
    r->number[r->nnumber++] = (int)q->at;
  }
  return TY_OK;
}

/* Sets the addresses of the operands that are numbers. */
static void put_numbers(const struct formula_state *r, const void *param, void **operand)
{
  for (int i = 0; i < r->nnumber; i++) {
    const struct live_number *live = find_live_number(r, r->number[i]);
    const char *own = (const char *)param + r->number[i];
    operand[r->n + i] = (void *)(uintptr_t)(live ? live->p : own);
  }
}

/* Returns as bits which operands are numbers in host memory. */
static uint32_t find_number_operands(const struct formula_state *r)
{
  uint32_t mask = 0;
  for (int i = 0; i < r->nnumber; i++)
    if (!find_live_number(r, r->number[i])) mask |= 1u << (r->n + i);
  return mask;
}

static int compute_dtype(const struct operand *in, int nin, const struct operand *out, int nout)
{
  ty_desc d[2 * PW_ARGS];
  int n = 0;
  for (int k = 0; k < nin && n < COUNT(d); k++) d[n++] = in[k].d;
  for (int k = 0; k < nout && n < COUNT(d); k++) d[n++] = out[k].d;
  return pw_dtype(d, n);
}

/* Returns whether all operands have the same shape and float dtype. */
static bool can_sweep(
    const struct op *op, const struct operand *in, int nin, const struct operand *out)
{
  if (!op->formula->sweep || (out->d.dtype != TY_F32 && out->d.dtype != TY_F64)) return false;
  for (int k = 0; k < nin; k++)
    if (in[k].d.dtype != out->d.dtype || !desc_same_shape(&in[k].d, &out->d)) return false;
  return true;
}

/* Fills in the state for a forward kernel. */
static int prepare_forward(const struct op *op, const void *param, const struct operand *in,
    int nin, const struct operand *out, struct formula_state *r)
{
  ty_desc d[PW_ARGS];
  struct plan p = {
    .op = op, .param = param, .dtype = compute_dtype(in, nin, out, 1), .want = out->p != NULL
  };
  struct cached *e;
  NEED(nin <= MOST_INPUTS, TY_EUNSUPPORTED, "%s: a formula reads at most %d inputs", op->name,
      MOST_INPUTS);
  TRY(op_inputs(op, NULL, &p.ports));
  for (int k = 0; k < nin; k++) d[k] = in[k].d;
  d[nin] = out->d;
  r->n = nin + 1;
  r->nnumber = 0;
  for (int k = 0; k < nin; k++)
    if (p.ports->port[k].mutated) r->mutated |= 1u << k, d[r->n++] = in[k].d;
  TRY(add_numbers(op, d, r->n, r));
  TRY(get_cached(&p, CACHED_FORWARD, &e));
  r->pw = e->pw;
  TRY(pw_loop_make(&r->loop, &out->d, d, r->n + r->nnumber));
  r->loop.numbers = find_number_operands(r);
  r->sweeps = can_sweep(op, in, nin, out);
  r->done = true;
  return TY_OK;
}

static int run_forward(int device, const struct op *op, const void *param, const struct operand *in,
    int nin, const struct operand *out, struct formula_state *r)
{
  void *operand[PW_ARGS];
  if (!r->done) TRY(prepare_forward(op, param, in, nin, out, r));
  bool sweeps = r->sweeps && out->p && device_kind(device) != TY_GPU;
  if (sweeps && op->formula->sweep(param, in, out)) return TY_OK;
  int n = 0;
  for (; n < nin; n++) operand[n] = in[n].p;
  operand[n++] = out->p;
  for (int k = 0; k < nin && n < r->n; k++)
    if (r->mutated >> k & 1) operand[n++] = in[k].p;
  put_numbers(r, param, operand);
  return pw_run(device, r->pw, &r->loop, operand);
}

int formula_apply(int device, const struct op *op, void *param, const struct operand *in, int nin,
    const struct operand *out, const struct live_number *live, int nlive)
{
  struct formula_state r;
  bool here = device_kind(device) != TY_GPU;
  r.done = false;
  r.nnumber = r.nsum = 0;
  r.mutated = 0;
  r.live = live;
  r.nlive = here ? 0 : nlive;
  for (int i = 0; here && i < nlive; i++)
    dtype_convert((char *)param + live[i].at, TY_F64, live[i].p, live[i].dtype, 1);
  return run_forward(device, op, param, in, nin, out, &r);
}

static int formula_forward(struct call *c)
{
  return run_forward(c->device, c->op, c->param, c->in, c->nin, c->out, c->state);
}
static size_t measure_state(const struct call *c) { return sizeof(struct formula_state); }

/* Returns the shape that all operands broadcast to. */
static ty_desc find_space(const struct call *c)
{
  ty_desc s = { 0 };
  for (int i = 0; i < c->nin + c->nout; i++)
    s.ndim = MAX(s.ndim, (i < c->nin ? &c->in[i] : &c->out[i - c->nin])->d.ndim);
  for (int k = 0; k < s.ndim; k++) s.dim[k] = 1;
  for (int i = 0; i < c->nin + c->nout; i++) {
    const ty_desc *d = &(i < c->nin ? &c->in[i] : &c->out[i - c->nin])->d;
    for (int k = 0; k < d->ndim; k++)
      s.dim[s.ndim - d->ndim + k] = MAX(s.dim[s.ndim - d->ndim + k], d->dim[k]);
  }
  return s;
}

/* Returns whether gradient k is smaller than the space over which the formula runs. */
static bool is_summed(const struct call *c, const ty_desc *space, int k)
{
  return c->out[k].p && c->op->formula->grad[k] && desc_count(&c->out[k].d) != desc_count(space);
}

/* Returns whether gradient k is the head gradient itself. */
static bool is_head(const struct call *c, int k) { return !strcmp(c->op->formula->grad[k], "g"); }

static size_t count_summed_bytes(const ty_desc *space, int dtype)
{
  return align_up((size_t)desc_count(space) * dtype_size(dtype), ALIGN);
}

/* Returns the output whose sum can end the program, if the device supports that; -1: none. Other
** outputs are summed after it. */
static int find_end_output(const struct call *c, const ty_desc *space)
{
  int last = -1;
  for (int k = 0; k < c->nout && k < MOST_INPUTS; k++)
    if (is_summed(c, space, k) && !is_head(c, k)) last = k;
  return pw_can_end(c->device) && desc_count(space) > 0 ? last : -1;
}

/* Returns the sum of output k over the axes of the space along which it has size 1 or which it
** lacks. */
static struct pw_end find_end(const struct call *c, const ty_desc *space, int k)
{
  const ty_desc *d = &c->out[k].d;
  struct pw_end end = { .operand = c->nin + k, .kind = R_SUM, .finish = F_NONE, .dtype = d->dtype };
  reduce_plan_to(space, d, &end.over);
  return end;
}

/* Returns the bytes for gradients that are summed after the program, and for the sum that ends
** it. */
static size_t measure_scratch(const struct call *c)
{
  ty_desc space = find_space(c);
  size_t bytes = 0;
  space.dtype = compute_dtype(c->in, c->nin, c->out, c->nout);
  const int last = find_end_output(c, &space);
  for (int k = 0; k < c->nout && k < MOST_INPUTS; k++)
    if (is_summed(c, &space, k) && !is_head(c, k) && k != last)
      bytes += count_summed_bytes(&space, space.dtype);
  if (last < 0) return bytes;
  const struct pw_end end = find_end(c, &space, last);
  return bytes + pw_end_scratch(c->device, &end);
}

/* Returns the index of the head gradient among the reads. */
static int find_head_operand(const struct reads *reads)
{
  int n = 0;
  while (n < reads->n && reads->read[n].kind != READ_HEAD) n++;
  return n;
}

/* Fills in the state for a backward kernel. */
static int prepare_backward(struct call *c, struct formula_state *r)
{
  ty_desc d[PW_ARGS];
  struct plan p = { .op = c->op, .param = c->param, .backward = true };
  struct cached *e;
  p.dtype = compute_dtype(c->in, c->nin, c->out, c->nout);
  p.reads = formula_find_reads(c->op, c->param);
  TRY(op_inputs(c->op, NULL, &p.ports));
  size_t used = 0;
  NEED(c->nin + c->nout <= PW_ARGS, TY_EUNSUPPORTED, "%s: the formula has too many operands",
      c->op->name);
  r->space = find_space(c);
  r->space.dtype = p.dtype;
  r->n = c->nin + c->nout;
  r->nsum = r->nnumber = 0;
  r->end.operand = -1;
  const int last = find_end_output(c, &r->space);
  for (int k = 0; k < c->nin; k++) d[k] = c->in[k].d;
  for (int k = 0; k < c->nout; k++) {
    d[c->nin + k] = c->out[k].d;
    if (!c->out[k].p || !c->op->formula->grad[k]) { /* the program does not compute it */
      d[c->nin + k] = (ty_desc){ .dtype = p.dtype, .ndim = 1, .dim = { 1 } };
      continue;
    }
    if (!is_summed(c, &r->space, k)) {
      p.want |= 1u << k;
      continue;
    }
    d[c->nin + k] = r->space;
    if (k == last) {
      r->end = find_end(c, &r->space, k);
      p.want |= 1u << k;
      continue;
    }
    r->sum[r->nsum++] = (struct sum_out){ k,
      is_head(c, k) ? -1 - find_head_operand(p.reads) : (int64_t)used };
    if (is_head(c, k)) continue;
    p.want |= 1u << k;
    used += count_summed_bytes(&r->space, p.dtype);
  }
  r->end_at = (int64_t)used;
  TRY(add_numbers(c->op, d, r->n, r));
  if (p.want) {
    TRY(get_cached(&p, CACHED_BACKWARD, &e));
    r->pw = e->pw;
  }
  TRY(pw_loop_make(&r->loop, &r->space, d, r->n + r->nnumber));
  r->loop.numbers = find_number_operands(r);
  r->done = true;
  return TY_OK;
}

static int formula_backward(struct call *c)
{
  struct formula_state *r = c->state;
  void *operand[PW_ARGS];
  if (!r->done) TRY(prepare_backward(c, r));
  for (int k = 0; k < c->nin; k++) operand[k] = c->in[k].p;
  for (int k = 0; k < c->nout; k++) {
    operand[c->nin + k] = c->out[k].p;
    if (c->out[k].p && !c->op->formula->grad[k])
      TRY(device_fill(c->device, c->out[k].p, 0, desc_bytes(&c->out[k].d)));
  }
  for (int i = 0; i < r->nsum; i++)
    operand[c->nin + r->sum[i].output] = r->sum[i].at < 0 ? NULL : (char *)c->tmp + r->sum[i].at;
  put_numbers(r, c->param, operand);
  if (r->end.operand >= 0)
    TRY(pw_run_end(c->device, r->pw, &r->loop, operand, &r->end,
        pw_end_scratch(c->device, &r->end) ? (char *)c->tmp + r->end_at : NULL));
  else if (r->pw)
    TRY(pw_run(c->device, r->pw, &r->loop, operand));
  for (int i = 0; i < r->nsum; i++) {
    const struct operand *out = &c->out[r->sum[i].output];
    int64_t at = r->sum[i].at;
    if (at < 0)
      TRY(sum_to(c->device, out->p, &out->d, c->in[-1 - at].p, &c->in[-1 - at].d));
    else
      TRY(sum_to(c->device, out->p, &out->d, (char *)c->tmp + at, &r->space));
  }
  return TY_OK;
}

const struct kernel formula_kernel[] = { { "row", formula_forward, T_ANY, .state = measure_state },
  { 0 } };
const struct kernel formula_back_kernel[] = {
  { "row_back", formula_backward, T_ANY, .scratch = measure_scratch, .state = measure_state }, { 0 }
};

/* call.c - ty_call: one operator on tensors, at once (queued on their device).
**
** Parses the attributes, infers the outputs, allocates those that are not given, chooses a kernel and submits one task
** that holds everything it needs. An output that is given may be an input too: where the operator may not work in
** place, the result goes to a temporary tensor first.
*/
#include "invoke.h"
#include "profile.h"

struct imperative {                                   /* lives in its own arena; freed by the task */
  struct arena arena;
  struct invoke v;
  struct run run;
  struct ports ports;
  struct storage *tmp;
  void *state;
  ty_tensor **in, **out, **target;                    /* out: what the kernel writes; target[i]: where it goes afterwards, or NULL */
  int nin, nout;
};

static void drop(void *context)
{
  struct imperative *m = context;
  for (int i = 0; m->in && i < m->nin; i++) ty_tensor_free(m->in[i]);
  for (int i = 0; m->out && i < m->nout; i++) ty_tensor_free(m->out[i]);
  for (int i = 0; m->target && i < m->nout; i++) ty_tensor_free(m->target[i]);
  if (m->state && m->v.kernel && m->v.kernel->done) m->v.kernel->done(m->state);
  mem_free(m->state);
  if (m->tmp) storage_free(m->tmp);
  struct arena a = m->arena;
  arena_done(&a);
}

/* One look at the clock on either side. */
static int run_timed(struct imperative *m)
{
  const struct call *c = &m->v.call;
  int64_t from = profile_now(), bytes = 0;
  int code = invoke_run(&m->v), device = m->nout ? m->out[0]->d.device : m->nin ? m->in[0]->d.device : TY_CPU;
  int64_t to = profile_now();
  for (int i = 0; i < m->nin; i++) bytes += (int64_t)desc_bytes(&c->in[i].d);
  for (int i = 0; i < m->nout; i++) bytes += (int64_t)desc_bytes(&c->out[i].d);
  struct profile_label l = { "imperative", c->op->name, "", m->v.kernel->name, 0 };
  profile_span(&l, device, bytes, from, to);
  return code;
}

static int run(void *context)
{
  struct imperative *m = context;
  if (m->tmp) m->v.call.tmp = m->tmp->data;
  int code = profiling(TY_PROFILE_IMPERATIVE) ? run_timed(m) : invoke_run(&m->v);
  if (code) fail_node(m->v.call.op->name, NULL, NULL);
  for (int i = 0; !code && i < m->nout; i++)
    if (m->target[i]) memcpy(tensor_at(m->target[i]), tensor_at(m->out[i]), desc_bytes(&m->out[i]->d));
  return code;
}

/* -- what is called with what -------------------------------------------------------------------------- */

static int parse(struct imperative *m, const struct op *op, const ty_attr *attr, int nattr, int nin)
{
  char number[16];
  ty_attr *copy = arena_new(&m->arena, sizeof *copy * (size_t)(nattr + 1));
  void *param = arena_new(&m->arena, op->param_size + 16);
  NEED(copy && param, TY_EMEMORY, "out of memory");
  attr = op_counted(op, attr, &nattr, nin, copy, number);
  for (int i = 0; i < nattr; i++) {                   /* texts must outlive the caller's */
    copy[i].key = attr[i].key;
    copy[i].value = arena_text(&m->arena, attr[i].value);
    NEED(copy[i].value, TY_EMEMORY, "out of memory");
  }
  TRY(op_parse(op, copy, nattr, param));
  TRY(op_ports(op, param, nin, &m->arena, &m->ports));
  if (m->ports.nin != nin) {
    int code = fail(TY_EVALUE, "%s: expected %d inputs, got %d", op->name, m->ports.nin, nin);
    fail_node(op->name, NULL, NULL);
    return code;
  }
  m->v.call.op = op;
  m->v.call.param = param;
  return TY_OK;
}

static int take_inputs(struct imperative *m, ty_tensor *const *in, int nin)
{
  m->in = arena_new(&m->arena, sizeof *m->in * (size_t)(nin + 1));
  m->v.call.in = arena_new(&m->arena, sizeof(struct arr) * (size_t)(nin + 1));
  NEED(m->in && m->v.call.in, TY_EMEMORY, "out of memory");
  for (int i = 0; i < nin; i++) {
    NEED(in[i], TY_ETYPE, "%s: input %s is missing", m->v.call.op->name, m->ports.in[i].name);
    m->v.call.in[i].d = in[i]->d;
    m->in[i] = in[i];
    ty_tensor_keep(in[i]);
    m->nin = i + 1;
  }
  m->v.call.nin = nin;
  return TY_OK;
}

static int infer_outputs(struct imperative *m)
{
  struct call *c = &m->v.call;
  c->nout = m->ports.nout;
  c->out = arena_new(&m->arena, sizeof(struct arr) * (size_t)(c->nout + 1));
  ty_desc *d = arena_new(&m->arena, sizeof *d * (size_t)(c->nin + c->nout + 1));
  NEED(c->out && d, TY_EMEMORY, "out of memory");
  for (int i = 0; i < c->nin; i++) d[i] = c->in[i].d;
  for (int i = 0; i < c->nout; i++) d[c->nin + i].dtype = TY_NODTYPE;
  struct infer f = { c->op, c->param, c->nin, c->nout, d, d + c->nin };
  for (int round = 0; round < 2; round++) {
    TRY(op_infer(&f, INFER_TYPES));
    TRY(op_infer(&f, INFER_SHAPES));
  }
  for (int i = 0; i < c->nout; i++) c->out[i].d = f.out[i];
  return TY_OK;
}

/* Shapes that the contents of the inputs decide; waits for them. */
static int measure_outputs(struct imperative *m)
{
  struct call *c = &m->v.call;
  if (!c->op->measure) return TY_OK;
  for (int i = 0; i < m->nin; i++) {
    NEED(device_kind(m->in[i]->d.device) != TY_GPU, TY_EDEVICE, "%s: it runs on a CPU only", c->op->name);
    TRY(ty_tensor_wait(m->in[i], 0));
    c->in[i].p = tensor_at(m->in[i]);
  }
  return c->op->measure(c);
}

/* Outputs that nothing determines take the shape and dtype of the given array, else float32. */
static int complete_output(struct imperative *m, int i, const ty_tensor *given)
{
  struct call *c = &m->v.call;
  ty_desc *d = &c->out[i].d;
  char want[160], got[160];
  if (given && d->dtype == TY_NODTYPE) d->dtype = given->d.dtype;
  if (given && !desc_known(d)) *d = (ty_desc){ .dtype = d->dtype, .ndim = given->d.ndim }, memcpy(d->dim, given->d.dim, sizeof d->dim);
  if (d->dtype == TY_NODTYPE) d->dtype = TY_F32;
  if (!desc_known(d)) return fail(TY_ESHAPE, "%s: the shape of %s cannot be inferred", c->op->name, m->ports.out[i].name);
  if (!given) return TY_OK;
  if (given->d.dtype != d->dtype) {
    int code = fail(TY_EDTYPE, "%s: out is %s, but the result is %s", c->op->name, dtype_name(given->d.dtype), dtype_name(d->dtype));
    fail_argument("out", dtype_name(d->dtype), dtype_name(given->d.dtype));
    return code;
  }
  if (desc_same_shape(&given->d, d)) return TY_OK;
  int code = fail(TY_ESHAPE, "%s: out has shape %s, but the result has %s", c->op->name, text_shape(&given->d, got, sizeof got),
      text_shape(d, want, sizeof want));
  fail_argument("out", want, got);
  return code;
}

static int find_device(struct imperative *m, ty_tensor **out, int nout, const ty_attr *attr, int nattr, int *device)
{
  const struct op *op = m->v.call.op;
  *device = -1;
  for (int i = 0; i < nattr; i++)
    if (!strcmp(attr[i].key, "ctx") && op_has_param(op, "ctx") && *attr[i].value) TRY(device_parse(attr[i].value, device));
  for (int i = 0; i < m->nin + nout; i++) {
    const ty_tensor *t = i < m->nin ? m->in[i] : out[i - m->nin];
    if (!t) continue;
    char a[32], b[32];
    if (*device < 0) *device = t->d.device;
    if (*device == t->d.device) continue;
    int code = fail(TY_EDEVICE, "%s: all arrays must be on one device; %s is on %s, others on %s; use as_in_context", op->name,
                    i < m->nin ? m->ports.in[i].name : "out", device_name(t->d.device, a, sizeof a), device_name(*device, b, sizeof b));
    fail_argument(i < m->nin ? m->ports.in[i].name : "out", b, a);
    return code;
  }
  if (*device < 0) *device = TY_CPU;
  return device_open(*device);
}

/* -- memory ------------------------------------------------------------------------------------------------ */

static bool overlap(const ty_tensor *a, const ty_tensor *b)
{
  if (a->storage != b->storage) return false;
  int64_t ea = a->offset + (int64_t)desc_bytes(&a->d), eb = b->offset + (int64_t)desc_bytes(&b->d);
  return a->offset < eb && b->offset < ea;
}

/* May the kernel write output i over input k? Element by element (rows) or where the operator says so; never elsewhere. */
static bool may_share(struct imperative *m, int i, int k, const ty_tensor *given)
{
  const struct op *op = m->v.call.op;
  const ty_tensor *in = m->in[k];
  if (given->offset != in->offset || !desc_same_shape(&given->d, &in->d) || given->d.dtype != in->d.dtype) return false;
  return op->row || inplace_allowed(op->inplace, i, k);
}

static int place_output(struct imperative *m, int i, ty_tensor *given, int device)
{
  ty_desc d = m->v.call.out[i].d;
  d.device = device;
  bool direct = given != NULL;
  for (int k = 0; given && k < m->nin; k++) if (overlap(given, m->in[k]) && !may_share(m, i, k, given)) direct = false;
  if (direct) { ty_tensor_keep(given); m->out[i] = given; return TY_OK; }
  TRY(ty_tensor_new(&d, &m->out[i]));
  if (given) { ty_tensor_keep(given); m->target[i] = given; }
  return TY_OK;
}

static int take_outputs(struct imperative *m, ty_tensor **out, int nout, int device)
{
  int n = m->ports.nout;
  m->out = arena_new(&m->arena, sizeof *m->out * (size_t)(n + 1));
  m->target = arena_new(&m->arena, sizeof *m->target * (size_t)(n + 1));
  NEED(m->out && m->target, TY_EMEMORY, "out of memory");
  m->nout = n;
  for (int i = 0; i < n; i++) {
    ty_tensor *given = i < nout ? out[i] : NULL;
    if (given) NEED(!given->readonly, TY_ESTATE, "%s: out is read-only", m->v.call.op->name);
    TRY(complete_output(m, i, given));
    TRY(place_output(m, i, given, device));
  }
  return TY_OK;
}

static int prepare(struct imperative *m, int device)
{
  struct invoke *v = &m->v;
  for (int i = 0; i < m->nin; i++) v->call.in[i].p = tensor_at(m->in[i]);
  for (int i = 0; i < m->nout; i++) v->call.out[i].p = tensor_at(m->out[i]);
  v->call.run = &m->run;
  if (v->call.op->flags & OP_RANDOM) m->run.draw = device_draw(device);
  TRY(invoke_choose(v, &m->arena, NULL));
  if (v->scratch) TRY(storage_new(device, v->scratch, &m->tmp));
  if (v->state) {
    m->state = mem_new(v->state);
    NEED(m->state, TY_EMEMORY, "out of memory");
    v->call.state = m->state;
  }
  return TY_OK;
}

static int submit(struct imperative *m, int device)
{
  struct storage **read = arena_new(&m->arena, sizeof *read * (size_t)(m->nin + 1));
  struct storage **write = arena_new(&m->arena, sizeof *write * (size_t)(m->nin + 2 * m->nout + 2));
  NEED(read && write, TY_EMEMORY, "out of memory");
  int nw = 0;
  for (int i = 0; i < m->nin; i++) {
    read[i] = m->in[i]->storage;
    if (!m->ports.in[i].mutated) continue;
    NEED(!m->in[i]->readonly, TY_ESTATE, "%s: %s is read-only and would be changed", m->v.call.op->name, m->ports.in[i].name);
    write[nw++] = m->in[i]->storage;
  }
  for (int i = 0; i < m->nout; i++) write[nw++] = m->out[i]->storage;
  for (int i = 0; i < m->nout; i++) if (m->target[i]) write[nw++] = m->target[i]->storage;
  size_t held = m->tmp ? m->tmp->bytes : 0;
  struct task t = { run, drop, m, read, write, m->nin, nw, NULL, 0, held };
  return device_submit(device, &t, NULL);
}

/* -- the public function --------------------------------------------------------------------------------------- */

static int prepare_all(struct imperative *m, const struct op *op, const ty_attr *attr, int nattr, ty_tensor *const *in, int nin,
    ty_tensor **out, int nout,
                       int *device)
{
  TRY(parse(m, op, attr, nattr, nin));
  NEED(nout >= m->ports.nvisible, TY_EVALUE, "%s: it has %d outputs, room for %d was given", op->name, m->ports.nvisible, nout);
  TRY(take_inputs(m, in, nin));
  TRY(infer_outputs(m));
  TRY(measure_outputs(m));
  TRY(find_device(m, out, MIN(nout, m->ports.nout), attr, nattr, device));
  TRY(take_outputs(m, out, nout, *device));
  return prepare(m, *device);
}

int ty_call(const char *name, const ty_attr *attr, int nattr, ty_tensor *const *in, int nin, ty_tensor **out, int nout)
{
  const struct op *op = op_find(name);
  if (!op) return op_unknown(name ? name : "");
  NEED(out || !nout, TY_ETYPE, "%s: no room for outputs", op->name);
  struct arena a = { 0 };
  struct imperative *m = arena_new(&a, sizeof *m);
  NEED(m, TY_EMEMORY, "out of memory");
  m->arena = a;
  int device = 0, code = prepare_all(m, op, attr, nattr, in, nin, out, nout, &device);
  if (code) {
    fail_node(op->name, NULL, NULL);
    return drop(m), code;
  }
  ty_tensor *made[256];
  int n = MIN(m->nout, MIN(nout, COUNT(made)));
  for (int i = 0; i < n; i++) { made[i] = m->target[i] ? m->target[i] : m->out[i]; ty_tensor_keep(made[i]); }
  code = submit(m, device);                           /* from here on m belongs to the task */
  for (int i = 0; i < n; i++) {
    if (code || out[i]) ty_tensor_free(made[i]);      /* the caller's own array, or nothing on failure */
    else out[i] = made[i];
  }
  return code;
}

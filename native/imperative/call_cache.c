/* call_cache.c - see call_cache.h. Makes cached calls, and finds them by the bytes of their keys.
**
** Order of making: parse the attributes, name the ports, infer the outputs, compute the shapes that
** depend on contents, find the device, choose a kernel. The cache does not keep calls of operators
** whose output shapes depend on contents, nor calls whose key is too long.
*/
#include <pthread.h>
#include "imperative/call_cache.h"

/* -- making ------------------------------------------------------------------------------------ */

/* Parses the attributes, names the ports, and checks the numbers of inputs and outputs. */
static int parse_attributes(struct cached_call *r, const struct call_key *q)
{
  char number[16];
  const struct op *op = q->op;
  int nattr = q->nattr;
  ty_attr *copy = arena_new(&r->arena, sizeof *copy * (size_t)(nattr + 1));
  void *param = arena_new(&r->arena, op->param_size + 16);
  NEED(copy && param, TY_EMEMORY, "out of memory");
  const ty_attr *attr = op_counted(op, q->attr, &nattr, q->nin, copy, number);
  for (int i = 0; i < nattr; i++) { /* texts must outlive the caller's */
    copy[i].key = attr[i].key;
    copy[i].value = arena_text(&r->arena, attr[i].value);
    NEED(copy[i].value, TY_EMEMORY, "out of memory");
  }
  r->attr = copy;
  r->nattr = nattr;
  TRY(op_parse(op, copy, nattr, param));
  TRY(op_ports(op, param, q->nin, &r->arena, &r->ports));
  TRY(op_in_place(op, false, &r->in_place));
  NEED(r->ports.nin == q->nin, TY_EVALUE, "%s: expected %d inputs, got %d", op->name, r->ports.nin,
      q->nin);
  NEED(q->nout >= r->ports.nvisible, TY_EVALUE, "%s: it has %d outputs, room for %d was given",
      op->name, r->ports.nvisible, q->nout);
  r->v.call.op = op;
  r->v.call.param = param;
  return TY_OK;
}

static int describe_inputs(struct cached_call *r, const struct call_key *q)
{
  struct call *c = &r->v.call;
  c->in = arena_new(&r->arena, sizeof *c->in * (size_t)(q->nin + 1));
  NEED(c->in, TY_EMEMORY, "out of memory");
  for (int i = 0; i < q->nin; i++) {
    NEED(q->in[i], TY_ETYPE, "%s: input %s is missing", c->op->name, r->ports.in[i].name);
    c->in[i].d = q->in[i]->d;
  }
  c->nin = q->nin;
  return TY_OK;
}

/* Adds the inputs of a call to the message of its failed inference. Returns code. */
static int explain_call(const struct cached_call *r, int what, int code)
{
  const struct call *c = &r->v.call;
  ty_desc *d = NEWS(ty_desc, c->nin);
  for (int i = 0; d && i < c->nin; i++) d[i] = c->in[i].d;
  if (d) infer_explain(code, what, c->op->name, NULL, r->ports.in, d, c->nin);
  mem_free(d);
  return code;
}

static int infer_outputs(struct cached_call *r)
{
  struct call *c = &r->v.call;
  c->nout = r->ports.nout;
  c->out = arena_new(&r->arena, sizeof *c->out * (size_t)(c->nout + 1));
  ty_desc *d = arena_new(&r->arena, sizeof *d * (size_t)(c->nin + c->nout + 1));
  NEED(c->out && d, TY_EMEMORY, "out of memory");
  for (int i = 0; i < c->nin; i++) d[i] = c->in[i].d;
  for (int i = 0; i < c->nout; i++) d[c->nin + i].dtype = TY_NODTYPE;
  struct infer f = { c->op, c->param, c->nin, c->nout, d, d + c->nin };
  for (int round = 0; round < 4; round++) {
    const int what = round % 2 ? INFER_SHAPES : INFER_TYPES, code = op_infer(&f, what);
    if (code) return explain_call(r, what, code);
  }
  for (int i = 0; i < c->nout; i++) c->out[i].d = f.out[i];
  return TY_OK;
}

/* Computes output shapes that depend on the contents of the inputs; waits for these. Does nothing
** for other operators. */
static int measure_outputs(struct cached_call *r, const struct call_key *q)
{
  struct call *c = &r->v.call;
  if (!c->op->measure) return TY_OK;
  for (int i = 0; i < q->nin; i++) {
    ty_tensor *t = q->in[i];
    TRY(ty_tensor_wait(t, 0));
    c->in[i].p = tensor_at(t);
    if (device_kind(t->d.device) != TY_GPU) continue;
    c->in[i].p = arena_new(&r->arena, desc_bytes(&t->d));
    NEED(c->in[i].p, TY_EMEMORY, "out of memory");
    TRY(ty_tensor_read(t, c->in[i].p, desc_bytes(&t->d)));
  }
  return c->op->measure(c);
}

/* Completes output i where inference left something open: from the given array, the dtype otherwise
** float32. Fails where the given array does not have the output's shape and dtype. */
static int complete_output(struct cached_call *r, int i, const ty_tensor *given)
{
  const struct op *op = r->v.call.op;
  ty_desc *d = &r->v.call.out[i].d;
  char want[160], got[160];
  if (given && d->dtype == TY_NODTYPE) d->dtype = given->d.dtype;
  if (given && !desc_known(d))
    *d = (ty_desc){ .dtype = d->dtype, .ndim = given->d.ndim },
    memcpy(d->dim, given->d.dim, sizeof d->dim);
  if (d->dtype == TY_NODTYPE) d->dtype = TY_F32;
  if (!desc_known(d))
    return fail(
        TY_ESHAPE, "%s: the shape of %s cannot be inferred", op->name, r->ports.out[i].name);
  d->device = r->device;
  if (!given) return TY_OK;
  if (given->d.dtype != d->dtype) {
    int code = fail(TY_EDTYPE, "%s: out is %s, but the result is %s", op->name,
        dtype_name(given->d.dtype), dtype_name(d->dtype));
    fail_argument("out", dtype_name(d->dtype), dtype_name(given->d.dtype));
    return code;
  }
  if (desc_same_shape(&given->d, d)) return TY_OK;
  int code = fail(TY_ESHAPE, "%s: out has shape %s, but the result has %s", op->name,
      text_shape(&given->d, got, sizeof got), text_shape(d, want, sizeof want));
  fail_argument("out", want, got);
  return code;
}

/* Sets the device: that of the attribute ctx or of the arrays, else the CPU. Fails where two
** differ, and where the device cannot be opened. */
static int set_device(struct cached_call *r, const struct call_key *q)
{
  int device = -1, nout = MIN(q->nout, r->ports.nout);
  for (int i = 0; i < q->nattr; i++)
    if (!strcmp(q->attr[i].key, "ctx") && op_has_param(q->op, "ctx") && *q->attr[i].value)
      TRY(device_parse(q->attr[i].value, &device));
  for (int i = 0; i < q->nin + nout; i++) {
    const ty_tensor *t = i < q->nin ? q->in[i] : q->out[i - q->nin];
    if (!t) continue;
    char a[32], b[32];
    if (device < 0) device = t->d.device;
    if (device == t->d.device) continue;
    const char *what = i < q->nin ? r->ports.in[i].name : "out";
    int code = fail(TY_EDEVICE,
        "%s: all arrays must be on one device; %s is on %s, others on %s; use as_in_context",
        q->op->name, what, device_name(t->d.device, a, sizeof a), device_name(device, b, sizeof b));
    fail_argument(what, b, a);
    return code;
  }
  r->device = device < 0 ? TY_CPU : device;
  return device_open(r->device);
}

/* Fills in all that a call of this key needs. */
static int fill_call(struct cached_call *r, const struct call_key *q)
{
  TRY(parse_attributes(r, q));
  TRY(describe_inputs(r, q));
  TRY(infer_outputs(r));
  TRY(measure_outputs(r, q));
  TRY(set_device(r, q));
  for (int i = 0; i < r->ports.nout; i++)
    TRY(complete_output(r, i, i < q->nout ? q->out[i] : NULL));
  struct call *c = &r->v.call;
  size_t bytes = 0;
  for (int i = 0; i < c->nin && bytes <= SMALL_TASK; i++) bytes += desc_bytes(&c->in[i].d);
  for (int i = 0; i < c->nout && bytes <= SMALL_TASK; i++) bytes += desc_bytes(&c->out[i].d);
  r->small = bytes <= SMALL_TASK;
  c->run = &r->run;
  c->device = r->device;
  c->precision = r->precision = precision_now();
  TRY(invoke_choose(&r->v, &r->arena, NULL));
  if (!r->v.state) return TY_OK;
  r->state = c->state = mem_new(r->v.state);
  return r->state ? TY_OK : TY_EMEMORY;
}

struct cached_call *cached_call_keep(struct cached_call *r)
{
  __atomic_add_fetch(&r->refs, 1, __ATOMIC_RELAXED);
  return r;
}

void cached_call_release(struct cached_call *r)
{
  if (!r || __atomic_sub_fetch(&r->refs, 1, __ATOMIC_ACQ_REL)) return;
  if (r->state && r->v.kernel && r->v.kernel->done) r->v.kernel->done(r->state);
  mem_free(r->state);
  struct arena a = r->arena;
  arena_done(&a);
}

/* -- keys -------------------------------------------------------------------------------------- */

enum {
  MOST_KEY_BYTES = 8192,
  SLOTS          = 2048                               /* calls in the cache, at most */
};
struct key_bytes {
  size_t n;
  bool full;                                          /* too long, or not for the cache */
  char s[MOST_KEY_BYTES];
};

/* Appends bytes to a key, or marks it as full. */
static void put_bytes(struct key_bytes *k, const void *p, size_t n)
{
  if (k->full || n > MOST_KEY_BYTES - k->n) {
    k->full = true;
    return;
  }
  memcpy(k->s + k->n, p, n);
  k->n += n;
}

static void put_text(struct key_bytes *k, const char *s) { put_bytes(k, s, strlen(s) + 1); }

static void put_array(struct key_bytes *k, const ty_tensor *t)
{
  int32_t head[3] = { t ? t->d.dtype : TY_NODTYPE, t ? t->d.device : 0, t ? t->d.ndim : 0 };
  put_bytes(k, head, sizeof head);
  if (t) put_bytes(k, t->d.dim, sizeof *t->d.dim * (size_t)t->d.ndim);
}

static void write_key(struct key_bytes *k, const struct call_key *q)
{
  int32_t head[4] = { q->nattr, q->nin, q->nout, precision_now() };
  k->n = 0;
  k->full = q->op->measure != NULL;
  put_bytes(k, &q->op, sizeof q->op);
  put_bytes(k, head, sizeof head);
  for (int i = 0; i < q->nattr; i++) put_text(k, q->attr[i].key), put_text(k, q->attr[i].value);
  for (int i = 0; i < q->nin; i++) put_array(k, q->in[i]);
  for (int i = 0; i < q->nout; i++) put_array(k, q->out[i]);
  while (k->n % 8 && !k->full) put_bytes(k, "", 1);
}

static uint64_t hash_key(const struct key_bytes *k)
{
  uint64_t h = k->n;
  for (size_t i = 0; i < k->n; i += 8) {
    uint64_t w;
    memcpy(&w, k->s + i, sizeof w);
    h = (h ^ w) * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
  }
  return h;
}

/* -- the cache --------------------------------------------------------------------------------- */

/* A cached call is in its own slot (hash % SLOTS) or in that slot's neighbour: a new one takes its
** own slot, and the call that was there moves to the neighbour, whose call is dropped. */
static struct call_cache { pthread_mutex_t lock; struct cached_call *slot[SLOTS]; } known = {
  PTHREAD_MUTEX_INITIALIZER, { 0 }
};

/* Returns whether a call, which may be NULL, has a key. */
static bool call_matches(const struct cached_call *r, const struct key_bytes *k, uint64_t h)
{
  return r && r->hash == h && r->nkey == k->n && !memcmp(r->key, k->s, k->n);
}

/* Returns the cached call of a key, with a reference; NULL: there is none. */
static struct cached_call *find_call(const struct key_bytes *k, uint64_t h)
{
  size_t at = h % SLOTS;
  pthread_mutex_lock(&known.lock);
  struct cached_call *r = known.slot[at];
  if (!call_matches(r, k, h)) r = known.slot[at ^ 1];
  if (call_matches(r, k, h))
    __atomic_add_fetch(&r->refs, 1, __ATOMIC_RELAXED);
  else
    r = NULL;
  pthread_mutex_unlock(&known.lock);
  return r;
}

/* Adds a call that no other thread has yet to the cache, with a reference; not if memory is out. */
static void remember_call(struct cached_call *r, const struct key_bytes *k, uint64_t h)
{
  char *copy = arena_new(&r->arena, k->n);
  if (!copy) return;
  r->key = memcpy(copy, k->s, k->n);
  r->nkey = k->n;
  r->hash = h;
  r->refs = 2;
  pthread_mutex_lock(&known.lock);
  struct cached_call **at = &known.slot[h % SLOTS], **next = &known.slot[(h % SLOTS) ^ 1],
                     *old = *next;
  *next = *at;
  *at = r;
  pthread_mutex_unlock(&known.lock);
  cached_call_release(old);
}

int cached_call_find(const struct call_key *q, struct cached_call **out)
{
  struct key_bytes k;
  write_key(&k, q);
  uint64_t h = k.full ? 0 : hash_key(&k);
  if (!k.full && (*out = find_call(&k, h))) return TY_OK;
  struct arena a = { 0 };
  struct cached_call *r = arena_new(&a, sizeof *r);
  NEED(r, TY_EMEMORY, "out of memory");
  r->arena = a;
  r->refs = 1;
  int code = fill_call(r, q);
  if (code) return cached_call_release(r), code;
  *out = r;
  if (!k.full) remember_call(*out, &k, h);
  return TY_OK;
}

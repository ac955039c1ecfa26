/* dispatch.c - see dispatch.h. Candidates stand in order; the first that accepts shapes, dtypes
** and parameters is taken. */
#include "op/dispatch.h"
#include "pointwise/pointwise.h"

const struct kernel *op_kernels(const struct op *op, bool backward)
{
  if (op->formula) return backward ? formula_back_kernel : formula_kernel;
  return backward ? op->back_cpu : op->cpu;
}

bool inplace_allowed(const char *pairs, int out, int in)
{
  if (pairs && pairs[0] == '*') return in == out * atoi(pairs + 2);
  for (const char *s = pairs; s && *s;) {
    int o, i, n;
    if (sscanf(s, " %d=%d%n", &o, &i, &n) < 2) return false;
    if (o == out && i == in) return true;
    s += n;
  }
  return false;
}

static bool is_half(int dtype) { return dtype == TY_F16 || dtype == TY_BF16; }

/* The first operand dtype that the kernel lacks, half types only if it lacks float32 too;
** TY_NODTYPE: none. */
static int lacking(const struct kernel *k, const struct operand *x, int n, bool *half)
{
  for (int i = 0; i < n; i++) {
    int d = x[i].d.dtype;
    if (d == TY_NODTYPE || k->types & T(d)) continue;
    if (!is_half(d) || !(k->types & T(TY_F32))) return d;
    *half = true;
  }
  return TY_NODTYPE;
}

/* Float32 stand-ins for the half operands; their bytes lie behind the kernel's own scratch. */
static int stand_in(
    const struct kernel *k, struct operand *x, int n, struct operand **out, struct arena *a)
{
  *out = arena_new(a, sizeof **out * (size_t)(n + 1));
  NEED(*out, TY_EMEMORY, "out of memory");
  for (int i = 0; i < n; i++) {
    (*out)[i] = x[i];
    if (is_half(x[i].d.dtype) && !(k->types & T(x[i].d.dtype)))
      (*out)[i].d.dtype = TY_F32, (*out)[i].version = NULL;
  }
  return TY_OK;
}

static size_t converted_bytes(const struct operand *real, const struct operand *stand, int n)
{
  size_t bytes = 0;
  for (int i = 0; i < n; i++)
    if (real[i].d.dtype != stand[i].d.dtype) bytes += align_up(desc_bytes(&stand[i].d), ALIGN);
  return bytes;
}

bool kernel_blocks(const struct kernel *k, int i, bool out)
{
  return k->blocks >> (MIN(i, 15) + (out ? 16 : 0)) & 1;
}

static bool takes_blocks(const struct kernel *k, const struct call *c)
{
  for (int i = 0; i < c->nin; i++)
    if (c->in[i].block && !kernel_blocks(k, i, false)) return false;
  for (int i = 0; i < c->nout; i++)
    if (c->out[i].block && !kernel_blocks(k, i, true)) return false;
  return true;
}

const char *invoke_asks(struct invoke *v, const struct kernel *k, struct arena *a)
{
  static __thread char reason[96];
  struct call c = v->call;
  bool half = false;
  if (!takes_blocks(k, &c)) return "channels in blocks";
  int d = lacking(k, c.in, c.nin, &half);
  if (d == TY_NODTYPE) d = lacking(k, c.out, c.nout, &half);
  if (d != TY_NODTYPE) return snprintf(reason, sizeof reason, "no %s", dtype_name(d)), reason;
  v->half = half;
  v->half_in = v->half_out = NULL;
  if (half) {
    if (stand_in(k, c.in, c.nin, &v->half_in, a) || stand_in(k, c.out, c.nout, &v->half_out, a))
      return "out of memory";
    c.in = v->half_in;
    c.out = v->half_out;
  }
  const char *no = k->refuse ? k->refuse(&c) : NULL;
  if (no) return no;
  v->kernel_scratch = k->scratch ? align_up(k->scratch(&c), ALIGN) : 0;
  v->scratch = v->kernel_scratch;
  if (half)
    v->scratch += converted_bytes(v->call.in, v->half_in, c.nin) +
        converted_bytes(v->call.out, v->half_out, c.nout);
  if (v->scratch >> 56) return "it needs more scratch than a machine holds";
  v->state = k->state ? k->state(&c) : 0;
  return NULL;
}

int invoke_choose(struct invoke *v, struct arena *a, struct text *why)
{
  const struct op *op = v->call.op;
  const char *last = "it has no kernel";
  for (const struct kernel *k = op_kernels(op, v->backward); k && k->name; k++) {
    const char *no = invoke_asks(v, k, a);
    if (!no) {
      v->kernel = k;
      return TY_OK;
    }
    if (why) text_add(why, "%s%s: %s", why->n ? "; " : "", k->name, no);
    last = no;
  }
  struct text types = { 0 };
  for (int i = 0; i < v->call.nin; i++)
    text_add(&types, "%s%s", i ? ", " : "", dtype_name(v->call.in[i].d.dtype));
  int code = fail(strncmp(last, "no ", 3) ? TY_EUNSUPPORTED : TY_EDTYPE,
      "%s%s: cannot run on %s: %s", v->backward ? "gradient of " : "", op->name,
      types.s ? types.s : "nothing", last);
  fail_node(op->name, NULL, NULL);
  text_done(&types);
  return code;
}

/* -- running ----------------------------------------------------------------------------------- */

/* Gives the stand-ins their memory (p of absent operands stays NULL); converts those that are
** read. */
static char *enter(
    const struct operand *real, struct operand *stand, int n, char *at, uint32_t read)
{
  for (int i = 0; i < n; i++) {
    if (real[i].d.dtype == stand[i].d.dtype) {
      stand[i].p = real[i].p;
      continue;
    }
    stand[i].p = real[i].p ? at : NULL;
    at += align_up(desc_bytes(&stand[i].d), ALIGN);
    if (stand[i].p && (i > 31 || read >> i & 1))
      dtype_convert(stand[i].p, TY_F32, real[i].p, real[i].d.dtype, desc_count(&real[i].d));
  }
  return at;
}

static void leave(const struct operand *real, const struct operand *stand, int n)
{
  for (int i = 0; i < n; i++)
    if (real[i].p && real[i].p != stand[i].p)
      dtype_convert(real[i].p, real[i].d.dtype, stand[i].p, TY_F32, desc_count(&real[i].d));
}

static bool changes_inputs(const struct invoke *v)
{
  const char *ports = v->backward
      ? (v->call.op->grad_of ? v->call.op->grad_of(v->call.param) : v->call.op->grad)
      : v->call.op->in_of ? v->call.op->in_of(v->call.param)
                          : v->call.op->in;
  return ports && strchr(ports, '!');
}

int invoke_run(struct invoke *v)
{
  if (!v->half) return v->kernel->run(&v->call);
  struct call c = v->call;
  char *at = (char *)c.tmp + v->kernel_scratch;
  at = enter(c.in, v->half_in, c.nin, at, ~0u);
  enter(c.out, v->half_out, c.nout, at, c.add);
  c.in = v->half_in;
  c.out = v->half_out;
  TRY(v->kernel->run(&c));
  if (changes_inputs(v)) leave(v->call.in, v->half_in, c.nin);
  leave(v->call.out, v->half_out,
      c.nout); /* last: an output may lie on an input that did not change */
  return TY_OK;
}

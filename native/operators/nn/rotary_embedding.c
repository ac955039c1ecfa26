/* rotary_embedding.c - _contrib_rotary_embedding: rotates pairs of elements of each head by an
** angle that is proportional to the position.
**
** Pair i of the n rotated elements of a head, at position p, is rotated by p base^(-2 i / n).
** Cosines and sines are computed in double for the first position of a chunk, and for the others by
** addition theorems. The gradient rotates back. Source: Su et al., RoFormer, arXiv:2104.09864.
*/
#include "kernel/vec/vec.h"
#include "op/op.h"

struct rotary_param { int64_t heads, layout, size, interleaved, use_offset; double base, scale; };
enum { ROTARY_NTC, ROTARY_TNC, ROTARY_NHTC };         /* layout */
#define FIELD(f) offsetof(struct rotary_param, f)
static const struct param params[] = {
  { "heads",       P_INT,   FIELD(heads),       "1",     "heads of data; unused with layout NHTC", NULL, "[1,]" },
  { "layout",      P_ENUM,  FIELD(layout),      "NTC",   "NTC (batch, length, heads * size), TNC (length, batch, heads * size), "
    "NHTC (batch, heads, length, size)", "NTC|TNC|NHTC" },
  { "base",        P_FLOAT, FIELD(base),        "10000", "pair i of n numbers turns by position base^(-2 i / n)" },
  { "scale",       P_FLOAT, FIELD(scale),       "1",     "factor of positions" },
  { "size",        P_INT,   FIELD(size),        "0",     "how many numbers of each head turn; 0: all", NULL, "[0,]" },
  { "interleaved", P_BOOL,  FIELD(interleaved), "0",     "pairs are neighbours; else number i and number i + size / 2" },
  { "use_offset",  P_BOOL,  FIELD(use_offset),  "0",
    "there is an input offset: the position of each sample's first row; else 0" },
  { 0 }
};

static int rotary_check(void *param)
{
  const struct rotary_param *p = param;
  if (!(p->base > 0) || isinf(p->base))
    return param_fail("base", "a finite number above 0", "%g", p->base);
  return isfinite(p->scale) ? TY_OK : param_fail("scale", "a finite number", "%g", p->scale);
}

static const char *input_ports(const void *p)
{
  return ((const struct rotary_param *)p)->use_offset ? "data offset" : "data";
}
static const char *gradient_reads(const void *p)
{
  return ((const struct rotary_param *)p)->use_offset ? "g0 i1" : "g0";
}

/* The layout of the data. Distances are in elements. */
struct rotary {
  const struct vec_ops *r;
  int64_t samples, heads, length;
  int64_t size;                                       /* numbers of a head */
  int64_t sample, head, row;                          /* from one to the next */
  int64_t turned;                                     /* elements of a head that are rotated */
};

static struct rotary make_rotary(const struct rotary_param *p, const ty_desc *d)
{
  const int64_t *dim = d->dim;
  struct rotary x = { .r = vec_ops_of(d->dtype) };
  if (p->layout == ROTARY_NHTC) {
    x.samples = dim[0], x.heads = dim[1], x.length = dim[2], x.size = dim[3];
    x.sample = dim[1] * dim[2] * dim[3], x.head = dim[2] * dim[3], x.row = dim[3];
  }
  else {
    const bool time_first = p->layout == ROTARY_TNC;
    x.samples = dim[time_first], x.length = dim[!time_first];
    x.heads = p->heads, x.size = x.head = dim[2] / p->heads;
    x.sample = time_first ? dim[2] : dim[1] * dim[2];
    x.row = time_first ? dim[1] * dim[2] : dim[2];
  }
  x.turned = p->size ? p->size : x.size;
  return x;
}

static int rotary_shape(struct infer *s)
{
  const struct rotary_param *p = s->param;
  ty_desc *x = &s->in[0];
  TRY(shape_both(s, x, &s->out[0]));
  if (!x->ndim) return TY_OK;
  const bool nhtc = p->layout == ROTARY_NHTC;
  if (x->ndim != (nhtc ? 4 : 3))
    return infer_fail(s, TY_ESHAPE, x, "expected %s, got %d dimensions",
        nhtc ? "(batch, heads, length, size)"
             : p->layout == ROTARY_TNC ? "(length, batch, heads * size)"
                                       : "(batch, length, heads * size)",
        x->ndim);
  const int64_t width = x->dim[nhtc ? 3 : 2], heads = nhtc ? 1 : p->heads;
  if (width % heads)
    return infer_fail(s, TY_ESHAPE, x, "a row of %lld numbers cannot be divided into %lld heads",
        (long long)width, (long long)heads);
  const int64_t turned = p->size ? p->size : width / heads;
  if (turned % 2 || (width && turned > width / heads))
    return infer_fail(s, TY_ESHAPE, x, "%lld of %lld numbers of a head cannot turn in pairs",
        (long long)turned, (long long)(width / heads));
  if (p->use_offset) return shape_is(s, &s->in[1], 1, &x->dim[p->layout == ROTARY_TNC]);
  return TY_OK;
}

static int rotary_type(struct infer *s)
{
  const struct rotary_param *p = s->param;
  TRY(type_both(s, &s->in[0], &s->out[0]));
  const ty_desc *x = &s->in[0];
  if (x->dtype == TY_NODTYPE) return TY_OK;
  if (!dtype_float(x->dtype))
    return infer_fail(s, TY_EDTYPE, x, "expected a float type, got %s", dtype_name(x->dtype));
  const int axis = p->layout == ROTARY_NHTC ? 2 : p->layout == ROTARY_NTC;
  const int64_t rows = x->ndim > axis ? x->dim[axis] : 0;
  return p->use_offset ? type_index(s, &s->in[1], x, rows ? rows + 1 : 0) : TY_OK;
}

/* -- kernels ----------------------------------------------------------------------------------- */

enum {
  ROTARY_CHUNK = 64,                                  /* positions of a chunk */
  ROTARY_PAIRS = 512,                                 /* pairs whose angles are kept at a time */
};

struct rotary_job {
  const struct rotary_param *p;
  struct rotary x;
  const struct operand *offset;                       /* NULL: 0 */
  const char *from;
  char *to;
  double sense;                                       /* 1: forward, -1: back */
};

#define TURN_PAIRS(T) \
  { \
    const T *x = from; \
    T *y = to; \
    for (int64_t i = 0; i < pairs; i++) { \
      const T a = x[i * step], b = x[i * step + apart], c = (T)cosine[i], s = (T)sine[i]; \
      y[i * step] = a * c - b * s; \
      y[i * step + apart] = a * s + b * c; \
    } \
  }

/* Rotates pairs of one head at one position. */
static void turn_pairs(const struct rotary_job *j, const void *from, void *to, int64_t pairs,
    const double *cosine, const double *sine)
{
  const int64_t step = j->p->interleaved ? 2 : 1, apart = j->p->interleaved ? 1 : j->x.turned / 2;
  if (j->x.r->dtype == TY_F64)
    TURN_PAIRS(double)
  else
    TURN_PAIRS(float)
}

/* Rotates pairs from `first` on, at most ROTARY_PAIRS, of the rows of a chunk of one sample. */
static void turn_chunk(const struct rotary_job *j, int64_t sample, int64_t row, int64_t first)
{
  const struct rotary *x = &j->x;
  const int64_t pairs = MIN(ROTARY_PAIRS, x->turned / 2 - first),
                rows = MIN(ROTARY_CHUNK, x->length - row);
  const double start = j->offset ? (double)whole_at(j->offset, sample) : 0;
  double cosine[ROTARY_PAIRS], sine[ROTARY_PAIRS], cosine_1[ROTARY_PAIRS], sine_1[ROTARY_PAIRS];
  for (int64_t i = 0; i < pairs; i++) {
    const double angle = j->sense * j->p->scale *
        pow(j->p->base, -2.0 * (double)(first + i) / (double)x->turned);
    cosine_1[i] = cos(angle), sine_1[i] = sin(angle);
    cosine[i] = cos(angle * (start + (double)row)), sine[i] = sin(angle * (start + (double)row));
  }
  const int64_t in_head = first * (j->p->interleaved ? 2 : 1);
  for (int64_t k = 0; k < rows; k++) {
    for (int64_t h = 0; h < x->heads; h++) {
      const int64_t e = sample * x->sample + h * x->head + (row + k) * x->row + in_head;
      turn_pairs(j, vec_at(x->r, j->from, e), vec_at(x->r, j->to, e), pairs, cosine, sine);
    }
    for (int64_t i = 0; i < pairs; i++) {
      const double c = cosine[i];
      cosine[i] = c * cosine_1[i] - sine[i] * sine_1[i];
      sine[i] = c * sine_1[i] + sine[i] * cosine_1[i];
    }
  }
}

static int64_t count_chunks(const struct rotary *x)
{
  return (x->length + ROTARY_CHUNK - 1) / ROTARY_CHUNK;
}

static void turn_range(int64_t begin, int64_t end, void *context)
{
  const struct rotary_job *j = context;
  const struct rotary *x = &j->x;
  for (int64_t i = begin; i < end; i++) {
    const int64_t sample = i / count_chunks(x), row = i % count_chunks(x) * ROTARY_CHUNK;
    for (int64_t first = 0; first < x->turned / 2; first += ROTARY_PAIRS)
      turn_chunk(j, sample, row, first);
    if (x->turned == x->size || j->from == j->to) continue;
    for (int64_t k = row; k < MIN(row + ROTARY_CHUNK, x->length); k++)
      for (int64_t h = 0; h < x->heads; h++) {
        const int64_t e = sample * x->sample + h * x->head + k * x->row + x->turned;
        memcpy(vec_at(x->r, j->to, e), vec_at(x->r, j->from, e),
            x->r->size * (size_t)(x->size - x->turned));
      }
  }
}

static int rotary_turn(const struct call *c, double sense)
{
  const struct rotary_param *p = c->param;
  struct rotary_job j = { p, make_rotary(p, &c->in[0].d), p->use_offset ? &c->in[1] : NULL,
    c->in[0].p, c->out[0].p, sense };
  if (p->use_offset && c->nout > 1 && c->out[1].p)
    memset(c->out[1].p, 0, desc_bytes(&c->out[1].d));
  if (!j.to) return TY_OK;
  parallel_for(j.x.samples * count_chunks(&j.x),
      elements_ns(MIN(j.x.length, ROTARY_CHUNK) * j.x.heads * j.x.size), turn_range, &j);
  return TY_OK;
}

static int rotary_forward(struct call *c)  { return rotary_turn(c, 1); }
static int rotary_backward(struct call *c) { return rotary_turn(c, -1); }

static const struct kernel cpu[] = { { "rows", rotary_forward, T_FLOAT | T_INT }, { 0 } };
static const struct kernel back_cpu[] = { { "rows", rotary_backward, T_FLOAT | T_INT }, { 0 } };

const struct op op_rotary_embedding[] = {
  { .name = "_contrib_rotary_embedding",
    .doc = "Pairs of numbers of each head of queries or keys, turned by position base^(-2 i / size): the products of turned queries "
           "and keys depend on how far apart they are. data (N, T, heads * size) or as layout says, offset (N,). An offset that is "
           "given by name needs no use_offset. The gradient turns back.",
    .in = "data offset", .in_of = input_ports, .out = "output",
    .param = params, .param_size = sizeof(struct rotary_param), .check = rotary_check,
    .shape = rotary_shape, .type = rotary_type, .grad_of = gradient_reads,
    .inplace = "0=0", .back_inplace = "0=0", .cpu = cpu, .back_cpu = back_cpu },
  { 0 }
};

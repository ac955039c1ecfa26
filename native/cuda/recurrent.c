/* recurrent.c - RNN on a GPU. For each layer and direction the inputs of all steps are one product;
** then one kernel computes all steps (kernels/recurrence.cu), or, if the recurrent weight is large
** or there are many samples, each step is a recurrent product and a kernel for the cells
** (kernels/cells.cu). Layers with one kernel for all steps run concurrently if the GPU has enough
** processors for two: struct recurrent_wave. Products are by cublasLt. See recurrent_forward.c,
** recurrent_backward.c. */
#include "cuda/recurrent.h"
#include "base/laws.h"

struct recurrent recurrent_make(const struct call *c, const ty_desc *data)
{
  static const int gates[] = { 3, 4, 1, 1 };
  struct recurrent r = { .c = c, .dtype = data->dtype, .size = dtype_size(data->dtype),
    .time = data->dim[0], .batch = data->dim[1], .inputs = data->dim[2] };
  r.mode = (int)cuda_number(c, "mode", LSTM);
  r.units = (int64_t)cuda_number(c, "state_size", 1);
  r.layers = (int64_t)cuda_number(c, "num_layers", 1);
  r.directions = 1 + cuda_flag(c, "bidirectional");
  r.rows = gates[r.mode] * r.units;
  int64_t projection = (int64_t)cuda_number(c, "projection_size", 0);
  r.projects = projection > 0;
  r.outputs = r.projects ? projection : r.units;
  r.drops = cuda_number(c, "p", 0) > 0 && c->run && c->run->is_train;
  return r;
}

static int64_t input_size(const struct recurrent *r, int64_t layer)
{
  return layer ? output_row(r) : r->inputs;
}

static int64_t weight_count(const struct recurrent *r, int64_t layer)
{
  int64_t projection = r->projects ? r->outputs * r->units : 0;
  return r->rows * (input_size(r, layer) + r->outputs) + projection;
}

struct recurrent_pass recurrent_make_pass(
    const struct recurrent *r, int64_t layer, int64_t d, const void *x, void *y)
{
  int64_t first = weight_count(r, 0), other = weight_count(r, 1);
  int64_t begin = layer ? r->directions * (first + (layer - 1) * other) : 0;
  struct recurrent_pass l = { .layer = layer, .d = d, .in = input_size(r, layer), .x = x,
    .y = y ? recurrent_element(r, y, d * r->outputs) : NULL, .end = r->time };
  l.wx = begin + d * weight_count(r, layer);
  l.wh = l.wx + r->rows * l.in;
  l.wr = l.wh + r->rows * r->outputs;
  l.bx = r->directions * (first + (r->layers - 1) * other) +
      (layer * r->directions + d) * 2 * r->rows;
  l.bh = l.bx + r->rows;
  return l;
}

int64_t recurrent_step(const struct recurrent *r)
{
  return r->batch * (r->rows + (recurrent_keeps(r) ? r->units : 0));
}

void *recurrent_kept(const struct recurrent *r, const struct recurrent_pass *l, int64_t t)
{
  int64_t step = (l->layer * r->directions + l->d) * r->time + t;
  return recurrent_element(r, r->reserve, step * recurrent_step(r));
}

void *recurrent_inner(const struct recurrent *r, int64_t layer)
{
  int64_t steps = r->layers * r->directions * r->time;
  if (!r->reserve) return r->inner[layer & 1];
  return recurrent_element(r, r->reserve, steps * recurrent_step(r) + layer * layer_size(r));
}

void *recurrent_take(struct recurrent_scratch *s, size_t bytes)
{
  void *p = s->base ? s->base + s->used : NULL;
  s->used += align_up(bytes, ALIGN);
  return p;
}

/* -- products ---------------------------------------------------------------------------------- */

static struct product make_product(const struct recurrent *r, const struct recurrent_product *p)
{
  return (struct product){ .dtype = r->dtype, .ta = p->ta, .tb = p->tb, .m = p->m, .n = p->n,
    .k = p->k, .lda = p->lda, .ldb = p->ldb, .ldc = p->ldc, .batch = 1, .alpha = 1 };
}

int recurrent_multiply(const struct recurrent *r, int plan, const struct recurrent_product *p,
    const void *a, const void *b, void *c, bool add)
{
  struct recurrent_plans *plans = r->c->state;
  struct product x = make_product(r, p);
  x.beta = add;
  return product_run(r->c, &x, &plans->of[plan], a, b, NULL, c, r->work);
}

int recurrent_multiply_sums(const struct recurrent *r, int plan, const struct recurrent_product *p,
    const void *a, const void *b, void *c, void *sums)
{
  struct recurrent_plans *plans = r->c->state;
  struct product x = make_product(r, p);
  return product_run_sums(
      r->c, &x, &plans->with_sums[plan], a, b, c, sums, false, r->work);
}

size_t recurrent_work_sums(const struct recurrent *r, const struct recurrent_product *p, int n)
{
  size_t most = 0;
  for (int i = 0; i < n; i++) {
    struct product x = make_product(r, &p[i]);
    most = MAX(most, product_sums_workspace(r->c, &x));
  }
  return align_up(most, ALIGN);
}

size_t recurrent_work(const struct recurrent *r, const struct recurrent_product *p, int n)
{
  size_t most = 0;
  for (int i = 0; i < n; i++) {
    struct product x = make_product(r, &p[i]);
    most = MAX(most, product_workspace(r->c, &x));
  }
  return align_up(most, ALIGN);
}

/* -- kernels ----------------------------------------------------------------------------------- */

struct cell_sizes make_cell_sizes(const struct recurrent *r, bool first)
{
  int64_t row = output_row(r);
  return (struct cell_sizes){ r->batch * r->units, r->units, row, first ? r->units : row, row };
}

int recurrent_cells(const struct recurrent *r, const char *kernel, int64_t n, int arrays,
    const struct cell_sizes *s, void **params)
{
  enum { MOST = 9 };
  void *p[MOST];
  cu_function f;
  for (int i = 0; i < arrays; i++) p[i] = *(void **)params[i];
  int pack = cuda_pack(r->dtype, r->units, p, arrays);
  if (s->h_row % pack || s->h0_row % pack || s->dy_row % pack) pack = 1;
  TRY(cuda_family(r->c->device, FAMILY_cells, kernel, &f, "T=%s RELU=%d PACK=%d",
      cuda_type(r->dtype), r->mode == RNN_RELU, pack));
  return cuda_run(r->c, f, n / pack, params);
}

int recurrent_dropout(
    const struct recurrent *r, const struct recurrent_pass *l, void *y, const void *x)
{
  const int64_t step = r->batch * output_row(r), begin = l->begin * step;
  struct cuda_draw_key key = cuda_draw_key(r->c);
  double keep = 1 - cuda_number(r->c, "p", 0);
  uint32_t limit = keep >= 1 ? UINT32_MAX : (uint32_t)(keep * 4294967296.0);
  union cuda_scalar scale = cuda_make_scalar(r->dtype, 1 / keep);
  int64_t n = (l->end - l->begin) * step, first = l->layer * layer_size(r) + begin;
  y = recurrent_element(r, y, begin);
  x = recurrent_element(r, x, begin);
  const char *type = cuda_type(r->dtype);
  cu_function f;
  TRY(cuda_family(r->c->device, FAMILY_dropout, "dropout_part", &f, "T=%s FACTOR=%s AXES=1", type,
      type));
  void *params[] = { &y, &x, &first, &n, &key, &limit, &scale };
  return cuda_run(r->c, f, n, params);
}

/* -- all steps in one launch ------------------------------------------------------------------- */

/* Most bytes of a weight that a block reads from the cache at each step: at 64 bytes per cycle and
** 1.7 GHz they take as long as the two launches of a step, about 4 us. */
enum { STREAMED = 448 << 10 };
enum {
  MOST_SAMPLES = 4,                                   /* with sums in registers */
  MOST_SAMPLES_WIDE = 2                               /* the same in float64 */
};
enum { FEW_THREADS = 256, MANY_THREADS = 1024, LOAD = 16 };
/* Elements of a weight below which FEW_THREADS are enough. */
enum { SMALL_WEIGHT = 1 << 14 };

/* Returns the bytes of shared memory that a block needs besides the rows of the weight, with loads
** of `pack` elements: states and sums, which are float for half types. */
static int64_t beside_rows(
    const struct recurrent *r, const struct recurrence_plan *k, bool backward, int pack)
{
  const int64_t slices = k->threads / (r->units / pack);
  const int64_t rest = (backward ? recurrent_keeps(r) : r->mode == LSTM) ? r->units : 0;
  const int64_t numbers = (backward ? slices : 1) * r->units + r->rows + rest;
  return k->samples * numbers * (int64_t)(r->dtype == TY_F64 ? sizeof(double) : sizeof(float));
}

struct recurrence_plan recurrence_make_plan(const struct recurrent *r, bool backward)
{
  const struct cuda_device *d = cuda_device(r->c->device);
  struct recurrence_plan k = { 1, r->rows * r->units < SMALL_WEIGHT ? FEW_THREADS : MANY_THREADS,
    0 };
  const int pack = LOAD / (int)r->size;
  const int most = r->dtype == TY_F64 ? MOST_SAMPLES_WIDE : MOST_SAMPLES;
  while (k.samples < most && r->batch > (int64_t)k.samples * d->processors) k.samples *= 2;
  const bool fits = !r->projects && r->batch > 0 && r->time > 0 && r->units <= k.threads &&
      r->batch <= (int64_t)k.samples * d->processors;
  const int64_t row = r->units * (int64_t)r->size;
  if (!fits) return (struct recurrence_plan){ 0 };
  const int64_t beside = MAX(beside_rows(r, &k, backward, 1),
      r->units % pack ? 0 : beside_rows(r, &k, backward, pack));
  /* the part after the rows begins at a multiple of LOAD bytes */
  k.held = MIN(MAX((d->shared - beside) / LOAD * LOAD / row, 0), r->rows);
  const bool good = beside <= d->shared && (r->rows - k.held) * row <= STREAMED;
  return good ? k : (struct recurrence_plan){ 0 };
}

static int64_t count_blocks(const struct recurrent *r, const struct recurrence_plan *k)
{
  return (r->batch + k->samples - 1) / k->samples;
}

int recurrence_run(const struct recurrent *r, const struct recurrent_pass *l, bool backward,
    void **params, int n)
{
  struct recurrence_plan k = recurrence_make_plan(r, backward);
  struct { int64_t time, batch, units, y_row, kept, held, reversed, begin, end; } s = { r->time,
    r->batch, r->units, output_row(r), recurrent_step(r), k.held, l->d, l->begin, l->end };
  void *const weight[] = { recurrent_element(r, r->weights, l->wh) };
  void *carry = l->carry;
  const int pack = cuda_pack(r->dtype, r->units, weight, 1);
  const size_t rows = align_up((size_t)(k.held * r->units) * r->size, LOAD);
  cu_function f;
  TRY(cuda_family(r->c->device, FAMILY_recurrence,
      backward ? "recurrence_backward" : "recurrence_forward", &f,
      "T=%s MODE=%d SAMPLES=%d THREADS=%d PACK=%d", cuda_type(r->dtype), r->mode, k.samples,
      k.threads, pack));
  params[n] = &carry;
  params[n + 1] = &s;
  return cuda_launch(r->c->device, f, count_blocks(r, &k), k.threads,
      rows + (size_t)beside_rows(r, &k, backward, pack), params);
}

/* -- concurrent layers ------------------------------------------------------------------------- */

enum {
  /* Least steps of a chunk. A chunk needs two more launches, about 3 us in a recorded graph; a step
  ** takes about 4 us, by NVIDIA's specifications (2026-11). Not measured on a GPU. */
  LEAST_STEPS = 8,
  /* chunks of a layer, each of which has a mark on both streams */
  MOST_CHUNKS = CUDA_MARKS / 2,
};

struct recurrent_wave recurrent_make_wave(const struct recurrent *r, bool backward)
{
  const struct recurrence_plan k = recurrence_make_plan(r, backward);
  const struct cuda_device *d = cuda_device(r->c->device);
  const int64_t chunks = MIN(r->time / LEAST_STEPS, MOST_CHUNKS);
  if (r->layers < 2 || r->directions > 1 || !k.samples || chunks < 2 || !d->waves ||
      2 * count_blocks(r, &k) > d->processors)
    return (struct recurrent_wave){ 0 };
  const int64_t steps = (r->time + chunks - 1) / chunks;
  return (struct recurrent_wave){ (int)((r->time + steps - 1) / steps), steps };
}

void recurrent_set_chunk(
    const struct recurrent *r, const struct recurrent_wave *w, struct recurrent_pass *l, int i)
{
  l->begin = i * w->steps;
  l->end = MIN(l->begin + w->steps, r->time);
}

size_t recurrent_stream_work(const struct recurrent *r, const struct recurrent_wave *w, bool runs,
    size_t (*count)(const struct recurrent *, const struct recurrent_wave *))
{
  struct recurrent_plans *plans = r->c->state;
  if (!runs) return count(r, w);
  if (!w->chunks) return 0;
  if (!plans->work) plans->work = count(r, w);
  return plans->work;
}

int recurrent_mark(bool second, int chunk) { return second * MOST_CHUNKS + chunk; }

size_t recurrent_carry_bytes(const struct recurrent *r, const struct recurrent_wave *w)
{
  const size_t size = r->dtype == TY_F64 ? sizeof(double) : sizeof(float);
  return w->chunks ? 2 * (size_t)(r->batch * r->units) * size : 0;
}

/* -- plans ------------------------------------------------------------------------------------- */

const char *recurrent_refuse(const struct call *c)
{
  struct recurrent r = recurrent_make(c, &c->in[0].d);
  struct recurrent_product step = { r.batch, r.rows, r.outputs, r.outputs, r.outputs, r.rows,
    .tb = true };
  struct product p = make_product(&r, &step);
  return product_refuse(c, &p);
}

size_t recurrent_plans_size(const struct call *c) { return sizeof(struct recurrent_plans); }

void recurrent_plans_done(void *state)
{
  struct recurrent_plans *s = state;
  for (int i = 0; i < MOST_PLANS; i++) product_done(s->of[i]);
  for (int i = 0; i < MOST_PLANS_WITH_SUMS; i++) product_done(s->with_sums[i].plan);
}

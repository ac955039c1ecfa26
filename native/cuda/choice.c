/* choice.c - _sample_multinomial, _sample_unique_zipfian, _shuffle (kernels/choice.cu). */
#include "cuda/row.h"


/* -- classes ----------------------------------------------------------------------------------- */

static int draw_classes(struct call *c)
{
  static const char *const want = "no distribution; expected numbers of 0 or more, not all 0";
  const ty_desc *x = &c->in[0].d, *y = &c->out[0].d;
  struct cuda_draw_key key = cuda_draw_key(c);
  struct cuda_fault *fault = cuda_device(c->device)->fault;
  int64_t classes = x->dim[x->ndim - 1], rows = desc_count(x) / classes, n = desc_count(y);
  int64_t each = n / rows;
  void *sums = c->tmp, *none = NULL, **ln_p = c->nout > 1 ? &c->out[1].p : &none;
  const int64_t op = cuda_origin(c);
  TRY(cuda_start(c, FAMILY_choice, "add_up", "T=$i0 Y=$o0", rows,
      (void *[]){ &sums, &c->in[0].p, &rows, &classes, &fault, (void *)&op, (void *)&want }));
  return cuda_start(c, FAMILY_choice, "draw_classes", "T=$i0 Y=$o0", n,
      (void *[]){ &c->out[0].p, ln_p, &sums, &c->in[0].p, &n, &each, &classes, &key });
}

static size_t sums_scratch(const struct call *c)
{
  return sizeof(double) * (size_t)desc_count(&c->in[0].d);
}

/* Computes the gradient. in, if logarithms of probabilities were requested: their head gradient,
** data, drawn classes. */
static int draw_classes_back(struct call *c)
{
  const struct operand *dx = &c->out[0];
  if (c->nin < 3) return cuda_zero(c, dx);
  if (!dx->p) return TY_OK;
  int64_t n = desc_count(&dx->d), classes = dx->d.dim[dx->d.ndim - 1];
  int64_t each = desc_count(&c->in[2].d) / (n / classes);
  return cuda_start(c, FAMILY_choice, "draw_classes_back", "T=$o0 Y=$i2", n,
      (void *[]){ (void *)&dx->p, &c->in[0].p, &c->in[1].p, &c->in[2].p, &n, &each, &classes });
}

/* -- numbers without repetition ---------------------------------------------------------------- */

/* Same as in kernels/choice.cu. */
struct zipfian_args { int64_t rows, each, max, slots; double turns; };

/* Returns the sizes. The number of slots of a row is a power of two, and at most half of them are
** used. */
static struct zipfian_args make_zipfian_args(const struct call *c)
{
  const int64_t *dim = c->out[0].d.dim;
  double max = cuda_number(c, "range_max", 1);
  struct zipfian_args s = { dim[0], dim[1], (int64_t)max, 4, log(max + 1) };
  while (s.slots < 2 * s.each) s.slots *= 2;
  return s;
}

static size_t zipfian_scratch(const struct call *c)
{
  struct zipfian_args s = make_zipfian_args(c);
  return sizeof(int64_t) * (size_t)(s.rows * s.slots);
}

/* Refuses a range_max that a double may not represent exactly. */
static const char *refuse_large(const struct call *c)
{
  return cuda_number(c, "range_max", 1) < 0x1p53 ? NULL : "range_max is no exact double";
}

static int draw_zipfian(struct call *c)
{
  struct zipfian_args s = make_zipfian_args(c);
  struct cuda_draw_key key = cuda_draw_key(c);
  TRY(device_fill(c->device, c->tmp, 0, zipfian_scratch(c)));
  return cuda_start(c, FAMILY_choice, "unique_zipfian", "T=float Y=i64", s.rows,
      (void *[]){ &c->out[0].p, &c->out[1].p, &c->tmp, &s, &key });
}

/* -- permutations ------------------------------------------------------------------------------ */

static int64_t entries_of(const struct call *c) { return c->in[0].d.dim[0]; }

static size_t shuffle_scratch(const struct call *c)
{
  int64_t n = entries_of(c);
  return 2 * cuda_keys_bytes(n) + 2 * align_up((size_t)n * sizeof(int64_t), ALIGN);
}

static int shuffle_rows(struct call *c)
{
  int64_t n = entries_of(c), count = desc_count(&c->in[0].d), row = count / n;
  size_t list = (size_t)n * sizeof(int64_t);
  struct cuda_draw_key key = cuda_draw_key(c);
  char *at = c->tmp;
  void *steps = cuda_piece(&at, cuda_keys_bytes(n)), *space = cuda_piece(&at, cuda_keys_bytes(n));
  void *leaves = cuda_piece(&at, list), *order = at;
  if (!c->out[0].p) return TY_OK;
  TRY(cuda_start(c, FAMILY_choice, "list_steps", "T=float Y=i64", n,
      (void *[]){ &steps, &n, &key }));
  TRY(cuda_sort_keys(c, &steps, space, n, n));
  TRY(device_fill(c->device, leaves, 0, list));
  TRY(cuda_start(c, FAMILY_choice, "first_steps", "T=float Y=i64", n,
      (void *[]){ &leaves, &steps, &n }));
  TRY(cuda_start(c, FAMILY_choice, "order_entries", "T=float Y=i64", n,
      (void *[]){ &order, &leaves, &steps, &n }));
  const char *words = count <= INT32_MAX ? "UNIT=#i0 I=i64 INDEX=u32" : "UNIT=#i0 I=i64 INDEX=i64";
  return cuda_start(c, FAMILY_rows, "take_rows", words, count,
      (void *[]){ &c->out[0].p, &c->in[0].p, &order, &count, &n, &n, &row });
}

static const struct kernel classes[] = {
  { "philox", draw_classes, T_FLOAT | T_INT, .scratch = sums_scratch, .flags = K_DRAWS_ON_DEVICE },
  { 0 }
};
static const struct kernel classes_back[] = {
  { "add", draw_classes_back, T_FLOAT | T_INT }, { 0 }
};
static const struct kernel numbers[] = {
  { "philox", draw_zipfian, T(TY_I64), refuse_large, zipfian_scratch, .flags = K_DRAWS_ON_DEVICE },
  { 0 }
};
static const struct kernel permutes[] = {
  { "permute", shuffle_rows, T_ANY, .scratch = shuffle_scratch, .flags = K_DRAWS_ON_DEVICE }, { 0 }
};

const struct op_kernels cuda_choice[] = {
  { "_sample_multinomial", classes, classes_back },
  { "_sample_unique_zipfian", numbers, NULL },
  { "_shuffle", permutes, NULL },
  { 0 }
};

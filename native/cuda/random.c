/* random.c - the random numbers of kernel/primitives.h, and Dropout, on a GPU (kernels/random.cu,
** dropout.cu). */
#include "cuda/row.h"
#include "kernel/primitives.h"
#include "kernel/strided_copy.h"

/* Draws numbers whose parameters are in arrays, which a kernel checks first. */
static int numbers_of_rows(
    int device, const struct random_numbers *r, void *y, int dtype, int64_t n)
{
  char words[128];
  struct cuda_fault *fault = cuda_device(device)->fault;
  const int64_t op = cuda_origin(r->call);
  int64_t rows = n / r->each;
  const char *type = cuda_type(dtype), *of = cuda_type(r->pa->d.dtype);
  void *none = NULL, *a = r->pa->p, *b = r->pb ? r->pb->p : none;
  cu_function look, f;
  snprintf(words, sizeof words, r->draws ? "DRAW=%s" : "LAW=%s AFFINE=%s_affine",
      r->draws ? r->law : r->standard, r->law);
  TRY(cuda_family(device, FAMILY_random, "look", &look, "T=%s P=%s VALID=%s_valid %s", type, of,
      r->law, words));
  TRY(cuda_family(device, FAMILY_random, r->draws ? "draw_rows" : "standard_rows", &f,
      "T=%s P=%s VALID=%s_valid %s", type, of, r->law, words));
  void *of_look[] = { &a, &b, &rows, &fault, (void *)&op, (void *)&r->want };
  TRY(cuda_launch(device, look, cuda_blocks(device, rows), CUDA_BLOCK, 0, of_look));
  void *params[] = { &y, &n, (void *)&r->key, &a, &b, (void *)&r->each };
  return cuda_launch(device, f, cuda_blocks(device, n), CUDA_BLOCK, 0, params);
}

int cuda_numbers(int device, const struct random_numbers *r, void *y, int dtype, int64_t n)
{
  const char *key = !r->law ? "" : r->draws ? "DRAW=" : "LAW=";
  const char *law = !r->law ? "" : r->draws ? r->law : r->standard;
  const char *name = !r->law ? "whole_numbers" : r->draws ? "draw" : "standard";
  cu_function f;
  void *numbers[] = { &y, &n, (void *)&r->key, (void *)&r->a, (void *)&r->b, (void *)&r->limit };
  void *whole[] = { &y, &n, (void *)&r->key, (void *)&r->low, (void *)&r->span };
  if (r->pa) return numbers_of_rows(device, r, y, dtype, n);
  TRY(cuda_family(device, FAMILY_random, name, &f, "T=%s %s%s", cuda_type(dtype), key, law));
  return cuda_launch(
      device, f, cuda_blocks(device, n), CUDA_BLOCK, 0, r->law ? numbers : whole);
}

/* -- Dropout ----------------------------------------------------------------------------------- */

/* Returns the type in which factors are multiplied. */
static int factor_type(const ty_desc *d) { return d->dtype == TY_F64 ? TY_F64 : TY_F32; }

/* Returns the shape of the factors: the data's, with 1 along `axes`. */
static ty_desc make_factors_desc(const struct call *c, const ty_desc *d)
{
  const struct dims *axes = op_dims(c->op, c->param, "axes");
  ty_desc factors = *d;
  for (int i = 0; i < axes->n; i++) factors.dim[axis_in(axes->d[i], d->ndim)] = 1;
  return factors;
}

/* Numbers of a Philox block. */
enum { DRAWN = 4 };

static int run_dropout(const struct call *c, void *y, const void *x, int dtype, void *mask,
    int mask_dtype, int64_t n)
{
  struct cuda_draw_key key = cuda_draw_key(c);
  double keep = 1 - cuda_number(c, "p", 0.5);
  uint32_t limit = keep >= 1 ? UINT32_MAX : (uint32_t)(keep * 4294967296.0);
  union cuda_scalar scale = cuda_make_scalar(dtype, 1 / keep);
  void *arrays[] = { y, mask, (void *)x };
  const int packs = MIN(cuda_pack(dtype, n, arrays, 3), cuda_pack(mask_dtype, n, arrays, 3));
  const int pack = n % DRAWN ? 1 : packs, items = MAX(pack, DRAWN);
  return cuda_start_words(c, FAMILY_dropout, "dropout", (n + items - 1) / items,
      (void *[]){ &y, &mask, &x, &n, &key, &limit, &scale }, "T=%s FACTOR=%s AXES=1 PACK=%d",
      cuda_type(dtype), cuda_type(mask_dtype), pack);
}

static int times_shared(
    const struct call *c, void *y, const void *x, const void *factor, const ty_desc *d)
{
  ty_desc factors = make_factors_desc(c, d);
  int64_t args[1 + 2 * TY_MAXDIM] = { desc_count(d) }, stride = 1;
  for (int i = d->ndim - 1; i >= 0; stride *= factors.dim[i], i--) {
    args[1 + 2 * i] = d->dim[i];
    args[2 + 2 * i] = factors.dim[i] > 1 ? stride : 0;
  }
  return cuda_start_words(c, FAMILY_dropout, "times_shared", args[0],
      (void *[]){ &y, &x, &factor, args }, "T=%s FACTOR=%s AXES=%d", cuda_type(d->dtype),
      cuda_type(factor_type(d)), d->ndim);
}

static bool drops_elements(const struct call *c)
{
  return cuda_number(c, "p", 0.5) > 0 && (c->run->is_train || cuda_word(c, "mode", "always"));
}

static int pass_data(struct call *c, const ty_desc *d, void *y, struct operand *mask)
{
  uint64_t bits = 0;
  if (y) TRY(move_bytes(c->device, y, c->in[0].p, desc_bytes(d)));
  if (!mask || !mask->p) return TY_OK;
  set_number(&bits, mask->d.dtype, 1);
  return move_fill(c->device, mask->p, &bits, dtype_size(mask->d.dtype), desc_count(&mask->d));
}

/* Drops elements; mask: output 1, or NULL. */
static int drop_elements(struct call *c, const ty_desc *d, void *y, struct operand *mask)
{
  ty_desc factors = make_factors_desc(c, d);
  void *kept = mask ? mask->p : NULL;
  int64_t n = desc_count(d), m = desc_count(&factors);
  if (!drops_elements(c)) return pass_data(c, d, y, mask);
  if (n == m && y) return run_dropout(c, y, c->in[0].p, d->dtype, kept, d->dtype, n);
  if (kept) TRY(run_dropout(c, NULL, NULL, d->dtype, kept, d->dtype, m));
  if (!y) return TY_OK;
  TRY(run_dropout(c, NULL, NULL, d->dtype, c->tmp, factor_type(d), m));
  return times_shared(c, y, c->in[0].p, c->tmp, d);
}

static int drop_forward(struct call *c)
{
  return drop_elements(c, &c->in[0].d, c->out[0].p, &c->out[1]);
}

static int drop_backward(struct call *c)
{
  return c->out[0].p ? drop_elements(c, &c->out[0].d, c->out[0].p, NULL) : TY_OK;
}

static size_t drop_scratch(const struct call *c)
{
  ty_desc factors = make_factors_desc(c, &c->out[0].d);
  factors.dtype = factor_type(&factors);
  return op_dims(c->op, c->param, "axes")->n > 0 ? desc_bytes(&factors) : 0;
}

static const struct kernel drops[] = {
  { "philox", drop_forward, T_FLOATS, .scratch = drop_scratch, .flags = K_DRAWS_ON_DEVICE }, { 0 }
};
static const struct kernel drops_back[] = {
  { "philox", drop_backward, T_FLOATS, .scratch = drop_scratch, .flags = K_DRAWS_ON_DEVICE }, { 0 }
};

const struct op_kernels cuda_random[] = {
  { "Dropout", drops, drops_back },
  { 0 }
};

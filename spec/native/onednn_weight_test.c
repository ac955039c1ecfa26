/* onednn_weight_test.c - our copy of a weight's gradient out of blocks against oneDNN's own, and
** which forms are ours. */
#include "random.h"
#include "check.h"
#ifndef TY_DNNL
int main(void) { return check_end(); }
#else
#include "kernel/conv/onednn_weight.h"

static void copy(onednn_desc from, const float *x, onednn_desc to, float *y)
{
  dnnl_stream_t s = onednn_stream();
  dnnl_primitive_t copier = onednn_copier(from, to);
  dnnl_memory_t a = onednn_memory(from), b = onednn_memory(to);
  CHECK(onednn_copy(copier, s, a, (void *)x, b, y) && !dnnl_stream_wait(s), "oneDNN's copy failed");
  dnnl_memory_destroy(a), dnnl_memory_destroy(b);
  dnnl_primitive_destroy(copier);
  dnnl_stream_destroy(s);
}

static onednn_desc described(const dnnl_dims_t dim, dnnl_format_tag_t tag)
{
  onednn_desc d = onednn_tagged(4, dim, tag);
  CHECK(d, "no such form");
  return d;
}

static void try(dnnl_format_tag_t tag, int b)
{
  const dnnl_dims_t dim = { b * (1 + below(5)), b * (1 + below(9)), 1, 1 };
  const int64_t n = dim[0] * dim[1];
  onednn_desc plain = described(dim, dnnl_abcd), inner = described(dim, tag);
  CHECK(weight_turned(inner) == b, "form %d is not recognised", (int)tag);
  float *x = numbers_of(n), *want = numbers_of(n), *got = numbers_of(n);
  copy(inner, x, plain, want);
  weight_leave(b, inner, x, got);
  CHECK(!memcmp(want, got, (size_t)n * sizeof(float)), "%d outputs, %d inputs", (int)dim[0],
      (int)dim[1]);
  onednn_desc_free(plain), onednn_desc_free(inner);
  mem_free(x), mem_free(want), mem_free(got);
}

static void refuse(const dnnl_dims_t dim, dnnl_format_tag_t tag)
{
  onednn_desc d = described(dim, tag);
  CHECK(!weight_turned(d), "form %d, %d x %d", (int)tag, (int)dim[0], (int)dim[1]);
  onednn_desc_free(d);
}

int main(void)
{
  parallel_queue(true);
  if (!onednn_engine()) return check_end();
  for (int i = 0; i < 30; i++) try(dnnl_OIhw16i16o, 16), try(dnnl_OIhw8i8o, 8);
  refuse((dnnl_dims_t){ 24, 16, 1, 1 }, dnnl_OIhw16i16o); /* padded */
  refuse((dnnl_dims_t){ 32, 16, 3, 3 }, dnnl_OIhw16i16o);
  refuse((dnnl_dims_t){ 32, 16, 1, 1 }, dnnl_OIhw16o16i);
  refuse((dnnl_dims_t){ 32, 16, 1, 1 }, dnnl_abcd);
  return check_end();
}
#endif

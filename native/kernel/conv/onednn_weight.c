/* onednn_weight.c - see onednn_weight.h. A unit of work is a block of outputs with all its
** inputs; every line of memory is written whole. */
#include "kernel/conv/onednn_weight.h"
#include "kernel/gemm/gemm.h"
#include "kernel/gemm/isa.h"

/* Is it a dense array of this form? */
static bool tagged(onednn_desc inner, const dnnl_dim_t *dim, dnnl_format_tag_t tag)
{
  onednn_desc d = onednn_tagged(4, dim, tag);
  bool same = d && dnnl_memory_desc_equal(d, inner);
  onednn_desc_free(d);
  return same;
}

int weight_turned(onednn_desc inner)
{
  static const struct {
    dnnl_format_tag_t tag;
    int b;
  } known[] = { { dnnl_OIhw16i16o, 16 }, { dnnl_OIhw8i8o, 8 } };
  const dnnl_dim_t *dim;
  if (onednn_dims(inner, &dim) != 4 || dim[2] != 1 || dim[3] != 1) return 0;
  for (int i = 0; i < COUNT(known); i++)
    if (dim[0] % known[i].b == 0 && dim[1] % known[i].b == 0 && tagged(inner, dim, known[i].tag))
      return known[i].b;
  return 0;
}

struct leaving {
  const struct gemm_type *t;
  int b;
  int64_t inputs;
  const float *blocked;
  float *plain;
};

static void some_outputs(int64_t begin, int64_t end, void *context)
{
  const struct leaving *l = context;
  for (int64_t o = begin; o < end; o++)
    for (int64_t i = 0; i < l->inputs; i += l->b) {
      const int64_t at = o * l->b * l->inputs;
      l->t->strip(
          l->b, l->b, l->blocked + at + i * l->b, l->b, 1, (int)l->inputs, l->plain + at + i);
    }
}

void weight_leave(int b, onednn_desc inner, const float *blocked, float *plain)
{
  const dnnl_dim_t *dim;
  onednn_dims(inner, &dim);
  struct leaving l = { gemm_type(TY_F32), b, dim[1], blocked, plain };
  parallel_for(dim[0] / b, MAX(1, 16384 / (b * l.inputs)), some_outputs, &l);
}

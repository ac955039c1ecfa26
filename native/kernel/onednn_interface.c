/* onednn_interface.c - see onednn_interface.h. */
#include "kernel/onednn.h"

#if DNNL_VERSION_MAJOR < 3

static onednn_desc onednn_check_desc(dnnl_memory_desc_t *d, dnnl_status_t failed)
{
  if (!failed) return d;
  mem_free(d);
  return NULL;
}

onednn_desc onednn_strided(int n, const dnnl_dims_t dim, const dnnl_dims_t step)
{
  dnnl_memory_desc_t *d = mem_new(sizeof *d);
  return d ? onednn_check_desc(d, dnnl_memory_desc_init_by_strides(d, n, dim, dnnl_f32, step))
           : NULL;
}

onednn_desc onednn_tagged(
    int n, const dnnl_dims_t dim, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
  dnnl_memory_desc_t *d = mem_new(sizeof *d);
  return d ? onednn_check_desc(d, dnnl_memory_desc_init_by_tag(d, n, dim, type, tag)) : NULL;
}

void onednn_desc_free(onednn_desc d) { mem_free((void *)d); }

static dnnl_primitive_desc_t onednn_make_primitive_desc(const dnnl_convolution_desc_t *d,
    dnnl_status_t failed, dnnl_primitive_desc_t hint, dnnl_primitive_attr_t attr)
{
  dnnl_primitive_desc_t p;
  return failed || dnnl_primitive_desc_create(&p, d, attr, onednn_engine(), hint) ? NULL : p;
}

dnnl_primitive_desc_t onednn_forward(
    const struct onednn_conv *c, dnnl_prop_kind_t kind, dnnl_primitive_attr_t attr)
{
  dnnl_convolution_desc_t d;
  dnnl_status_t failed = dnnl_dilated_convolution_forward_desc_init(&d, kind,
      dnnl_convolution_direct, c->d[X], c->d[W], c->bias, c->d[Y], c->stride, c->dilate, c->pad,
      c->pad);
  return onednn_make_primitive_desc(&d, failed, NULL, attr);
}

dnnl_primitive_desc_t onednn_back_data(
    const struct onednn_conv *c, dnnl_primitive_desc_t hint, dnnl_primitive_attr_t attr)
{
  dnnl_convolution_desc_t d;
  dnnl_status_t failed = dnnl_dilated_convolution_backward_data_desc_init(
      &d, dnnl_convolution_direct, c->d[X], c->d[W], c->d[Y], c->stride, c->dilate, c->pad, c->pad);
  return onednn_make_primitive_desc(&d, failed, hint, attr);
}

dnnl_primitive_desc_t onednn_back_weight(
    const struct onednn_conv *c, dnnl_primitive_desc_t hint, dnnl_primitive_attr_t attr)
{
  dnnl_convolution_desc_t d;
  dnnl_status_t failed = dnnl_dilated_convolution_backward_weights_desc_init(&d,
      dnnl_convolution_direct, c->d[X], c->d[W], NULL, c->d[Y], c->stride, c->dilate, c->pad,
      c->pad);
  return onednn_make_primitive_desc(&d, failed, hint, attr);
}

bool onednn_append_sum(dnnl_post_ops_t ops) { return !dnnl_post_ops_append_sum(ops, 1); }
bool onednn_append_act(dnnl_post_ops_t ops, dnnl_alg_kind_t kind)
{
  return !dnnl_post_ops_append_eltwise(ops, 1, kind, 0, 0);
}

#else

onednn_desc onednn_strided(int n, const dnnl_dims_t dim, const dnnl_dims_t step)
{
  dnnl_memory_desc_t d;
  return dnnl_memory_desc_create_with_strides(&d, n, dim, dnnl_f32, step) ? NULL : d;
}

onednn_desc onednn_tagged(
    int n, const dnnl_dims_t dim, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
  dnnl_memory_desc_t d;
  return dnnl_memory_desc_create_with_tag(&d, n, dim, type, tag) ? NULL : d;
}

void onednn_desc_free(onednn_desc d) { dnnl_memory_desc_destroy((dnnl_memory_desc_t)d); }

dnnl_primitive_desc_t onednn_forward(
    const struct onednn_conv *c, dnnl_prop_kind_t kind, dnnl_primitive_attr_t attr)
{
  dnnl_primitive_desc_t p;
  dnnl_status_t failed = dnnl_convolution_forward_primitive_desc_create(&p, onednn_engine(), kind,
      dnnl_convolution_direct, c->d[X], c->d[W], c->bias, c->d[Y], c->stride, c->dilate, c->pad,
      c->pad, attr);
  return failed ? NULL : p;
}

dnnl_primitive_desc_t onednn_back_data(
    const struct onednn_conv *c, dnnl_primitive_desc_t hint, dnnl_primitive_attr_t attr)
{
  dnnl_primitive_desc_t p;
  dnnl_status_t failed = dnnl_convolution_backward_data_primitive_desc_create(&p, onednn_engine(),
      dnnl_convolution_direct, c->d[X], c->d[W], c->d[Y], c->stride, c->dilate, c->pad, c->pad,
      hint, attr);
  return failed ? NULL : p;
}

dnnl_primitive_desc_t onednn_back_weight(
    const struct onednn_conv *c, dnnl_primitive_desc_t hint, dnnl_primitive_attr_t attr)
{
  dnnl_primitive_desc_t p;
  dnnl_status_t failed = dnnl_convolution_backward_weights_primitive_desc_create(&p,
      onednn_engine(), dnnl_convolution_direct, c->d[X], c->d[W], NULL, c->d[Y], c->stride,
      c->dilate, c->pad, c->pad, hint, attr);
  return failed ? NULL : p;
}

bool onednn_append_sum(dnnl_post_ops_t ops)
{
  return !dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
}

bool onednn_append_act(dnnl_post_ops_t ops, dnnl_alg_kind_t kind)
{
  /* oneDNN's alpha: 1 is the steepness of softrelu, 0 the slope of relu below 0 */
  const float alpha = kind == dnnl_eltwise_soft_relu;
  return !dnnl_post_ops_append_eltwise(ops, kind, alpha, 0);
}

#endif

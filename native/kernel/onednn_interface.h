/* onednn_interface.h - hides the differences between oneDNN 2 (2.5 and later) and oneDNN 3: memory
** descriptors, convolutions, post-ops.
**
** A descriptor is a pointer in both. Free those made by functions below with onednn_desc_free;
** those returned by a primitive or memory object belong to it. */
#pragma once
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>

#if DNNL_VERSION_MAJOR < 3
typedef const dnnl_memory_desc_t *onednn_desc;
#else
typedef const_dnnl_memory_desc_t onednn_desc;
#endif

/* Return descriptions of memory of float32, or of a type; NULL on failure. */
onednn_desc onednn_strided(int n, const dnnl_dims_t dim, const dnnl_dims_t step);
onednn_desc onednn_tagged(
    int n, const dnnl_dims_t dim, dnnl_data_type_t type, dnnl_format_tag_t tag);
void        onednn_desc_free(onednn_desc d);

enum { X, W, Y, OPERANDS };                           /* data, weight, output, or their gradients */

struct onednn_conv { onednn_desc d[OPERANDS], bias; dnnl_dims_t stride, dilate, pad; };

/* Return primitive descriptors of a direction; NULL on failure. hint: that of the forward
** direction. */
dnnl_primitive_desc_t onednn_forward(
    const struct onednn_conv *c, dnnl_prop_kind_t kind, dnnl_primitive_attr_t attr);
dnnl_primitive_desc_t onednn_back_data(
    const struct onednn_conv *c, dnnl_primitive_desc_t hint, dnnl_primitive_attr_t attr);
dnnl_primitive_desc_t onednn_back_weight(
    const struct onednn_conv *c, dnnl_primitive_desc_t hint, dnnl_primitive_attr_t attr);

bool onednn_append_sum(dnnl_post_ops_t ops);
bool onednn_append_act(dnnl_post_ops_t ops, dnnl_alg_kind_t kind);

/* dnnl.h - what we use of oneDNN's interface, to compile against both of its versions whichever is
** installed. -DDNNL_VERSION_MAJOR=2 or 3 picks one. Nothing can be linked with it; the numbers of
** the constants are not oneDNN's.
*/
#pragma once
#include <stddef.h>
#include <stdint.h>

#define DNNL_MAX_NDIMS 12
#define DNNL_MEMORY_NONE NULL
enum {
  DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST,
  DNNL_ARG_DIFF_WEIGHTS,
  DNNL_ARG_SCRATCHPAD, DNNL_ARG_FROM = DNNL_ARG_SRC, DNNL_ARG_TO = DNNL_ARG_DST
};

typedef enum { dnnl_success, dnnl_unimplemented } dnnl_status_t;
typedef enum { dnnl_data_type_undef, dnnl_bf16, dnnl_f32 } dnnl_data_type_t;
typedef enum { dnnl_cpu = 1 } dnnl_engine_kind_t;
typedef enum { dnnl_stream_default_flags } dnnl_stream_flags_t;
typedef enum { dnnl_scratchpad_mode_library, dnnl_scratchpad_mode_user } dnnl_scratchpad_mode_t;
typedef enum { dnnl_forward_training = 1, dnnl_forward_inference } dnnl_prop_kind_t;
typedef enum {
  dnnl_convolution_direct = 1, dnnl_convolution_winograd, dnnl_eltwise_relu, dnnl_eltwise_tanh,
  dnnl_eltwise_soft_relu,
  dnnl_eltwise_logistic
} dnnl_alg_kind_t;
typedef enum {
  dnnl_format_tag_undef, dnnl_format_tag_any, dnnl_nCw8c, dnnl_nCw16c, dnnl_nChw8c, dnnl_nChw16c,
  dnnl_nCdhw8c, dnnl_nCdhw16c, dnnl_nCw4c, dnnl_nChw4c, dnnl_nCdhw4c,
  dnnl_abcd, dnnl_OIhw8i8o, dnnl_OIhw16i16o, dnnl_OIhw16o16i
} dnnl_format_tag_t;
typedef enum {
  dnnl_query_impl_info_str = 1, dnnl_query_src_md, dnnl_query_diff_src_md, dnnl_query_weights_md,
  dnnl_query_diff_weights_md,
  dnnl_query_dst_md, dnnl_query_diff_dst_md, dnnl_query_scratchpad_md,
#if DNNL_VERSION_MAJOR >= 3
  dnnl_query_ndims_s32, dnnl_query_dims
#endif
} dnnl_query_t;

typedef int64_t dnnl_dim_t, dnnl_dims_t[DNNL_MAX_NDIMS];

typedef struct dnnl_engine *dnnl_engine_t;
typedef struct dnnl_stream *dnnl_stream_t;
typedef struct dnnl_memory *dnnl_memory_t;
typedef struct dnnl_primitive *dnnl_primitive_t;
typedef struct dnnl_primitive_desc *dnnl_primitive_desc_t;
typedef struct dnnl_primitive_attr *dnnl_primitive_attr_t;
typedef struct dnnl_post_ops *dnnl_post_ops_t;
typedef const struct dnnl_memory *const_dnnl_memory_t;
typedef const struct dnnl_primitive *const_dnnl_primitive_t;
typedef const struct dnnl_primitive_desc *const_dnnl_primitive_desc_t;
typedef const struct dnnl_primitive_attr *const_dnnl_primitive_attr_t;
typedef const struct dnnl_post_ops *const_dnnl_post_ops_t;
typedef struct { int arg; dnnl_memory_t memory; } dnnl_exec_arg_t;
typedef struct { int major, minor, patch; } dnnl_version_t;

/* -- where the versions differ ----------------------------------------------------------------- */

#if DNNL_VERSION_MAJOR < 3

typedef struct { int ndims; dnnl_dims_t dims; } dnnl_memory_desc_t;
typedef struct { int kind; } dnnl_convolution_desc_t;
typedef const void *const_dnnl_op_desc_t;
typedef const dnnl_memory_desc_t *md_t;

dnnl_status_t dnnl_memory_desc_init_by_strides(dnnl_memory_desc_t *, int, const dnnl_dims_t,
    dnnl_data_type_t, const dnnl_dims_t);
dnnl_status_t dnnl_memory_desc_init_by_tag(dnnl_memory_desc_t *, int, const dnnl_dims_t,
    dnnl_data_type_t, dnnl_format_tag_t);
dnnl_status_t dnnl_dilated_convolution_forward_desc_init(dnnl_convolution_desc_t *,
    dnnl_prop_kind_t, dnnl_alg_kind_t, md_t, md_t, md_t, md_t, const dnnl_dims_t, const dnnl_dims_t,
    const dnnl_dims_t, const dnnl_dims_t);
dnnl_status_t dnnl_dilated_convolution_backward_data_desc_init(dnnl_convolution_desc_t *,
    dnnl_alg_kind_t, md_t, md_t, md_t, const dnnl_dims_t, const dnnl_dims_t, const dnnl_dims_t,
    const dnnl_dims_t);
dnnl_status_t dnnl_dilated_convolution_backward_weights_desc_init(dnnl_convolution_desc_t *,
    dnnl_alg_kind_t, md_t, md_t, md_t, md_t, const dnnl_dims_t, const dnnl_dims_t, const
    dnnl_dims_t, const dnnl_dims_t);
dnnl_status_t dnnl_primitive_desc_create(dnnl_primitive_desc_t *, const_dnnl_op_desc_t,
    const_dnnl_primitive_attr_t, dnnl_engine_t, const_dnnl_primitive_desc_t);
dnnl_status_t dnnl_post_ops_append_sum(dnnl_post_ops_t, float);
dnnl_status_t dnnl_post_ops_append_eltwise(dnnl_post_ops_t, float, dnnl_alg_kind_t, float, float);

#else

typedef struct dnnl_memory_desc *dnnl_memory_desc_t;
typedef const struct dnnl_memory_desc *const_dnnl_memory_desc_t, *md_t;

dnnl_status_t dnnl_memory_desc_create_with_strides(dnnl_memory_desc_t *, int, const dnnl_dims_t,
    dnnl_data_type_t, const dnnl_dims_t);
dnnl_status_t dnnl_memory_desc_create_with_tag(dnnl_memory_desc_t *, int, const dnnl_dims_t,
    dnnl_data_type_t, dnnl_format_tag_t);
dnnl_status_t dnnl_memory_desc_destroy(dnnl_memory_desc_t);
dnnl_status_t dnnl_memory_desc_query(const_dnnl_memory_desc_t, dnnl_query_t, void *);
dnnl_status_t dnnl_convolution_forward_primitive_desc_create(dnnl_primitive_desc_t *, dnnl_engine_t,
    dnnl_prop_kind_t, dnnl_alg_kind_t, md_t, md_t, md_t, md_t, const dnnl_dims_t, const dnnl_dims_t,
    const dnnl_dims_t, const dnnl_dims_t, const_dnnl_primitive_attr_t);
dnnl_status_t dnnl_convolution_backward_data_primitive_desc_create(dnnl_primitive_desc_t *,
    dnnl_engine_t, dnnl_alg_kind_t, md_t, md_t, md_t, const dnnl_dims_t, const dnnl_dims_t, const
    dnnl_dims_t, const dnnl_dims_t, const_dnnl_primitive_desc_t, const_dnnl_primitive_attr_t);
dnnl_status_t dnnl_convolution_backward_weights_primitive_desc_create(dnnl_primitive_desc_t *,
    dnnl_engine_t, dnnl_alg_kind_t, md_t, md_t, md_t, md_t, const dnnl_dims_t, const dnnl_dims_t,
    const dnnl_dims_t, const dnnl_dims_t, const_dnnl_primitive_desc_t, const_dnnl_primitive_attr_t);
dnnl_status_t dnnl_post_ops_append_sum(dnnl_post_ops_t, float, int32_t, dnnl_data_type_t);
dnnl_status_t dnnl_post_ops_append_eltwise(dnnl_post_ops_t, dnnl_alg_kind_t, float, float);

#endif

/* -- where they agree, but for what a memory descriptor is ------------------------------------- */

dnnl_status_t dnnl_engine_create(dnnl_engine_t *, dnnl_engine_kind_t, size_t);
dnnl_status_t dnnl_stream_create(dnnl_stream_t *, dnnl_engine_t, unsigned);
dnnl_status_t dnnl_stream_wait(dnnl_stream_t);
dnnl_status_t dnnl_stream_destroy(dnnl_stream_t);
dnnl_status_t dnnl_memory_create(dnnl_memory_t *, md_t, dnnl_engine_t, void *);
dnnl_status_t dnnl_memory_destroy(dnnl_memory_t);
dnnl_status_t dnnl_memory_get_memory_desc(const_dnnl_memory_t, md_t *);
dnnl_status_t dnnl_memory_set_data_handle(dnnl_memory_t, void *);
int           dnnl_memory_desc_equal(md_t, md_t);
size_t        dnnl_memory_desc_get_size(md_t);
dnnl_status_t dnnl_post_ops_create(dnnl_post_ops_t *);
dnnl_status_t dnnl_post_ops_destroy(dnnl_post_ops_t);
dnnl_status_t dnnl_primitive_attr_create(dnnl_primitive_attr_t *);
dnnl_status_t dnnl_primitive_attr_destroy(dnnl_primitive_attr_t);
dnnl_status_t dnnl_primitive_attr_set_post_ops(dnnl_primitive_attr_t, const_dnnl_post_ops_t);
dnnl_status_t dnnl_primitive_attr_set_scratchpad_mode(dnnl_primitive_attr_t,
    dnnl_scratchpad_mode_t);
dnnl_status_t dnnl_primitive_desc_destroy(dnnl_primitive_desc_t);
dnnl_status_t dnnl_primitive_desc_query(const_dnnl_primitive_desc_t, dnnl_query_t, int, void *);
md_t          dnnl_primitive_desc_query_md(const_dnnl_primitive_desc_t, dnnl_query_t, int);
dnnl_status_t dnnl_primitive_create(dnnl_primitive_t *, const_dnnl_primitive_desc_t);
dnnl_status_t dnnl_primitive_destroy(dnnl_primitive_t);
dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t, dnnl_stream_t, int, const
    dnnl_exec_arg_t *);
dnnl_status_t dnnl_reorder_primitive_desc_create(dnnl_primitive_desc_t *, md_t, dnnl_engine_t, md_t,
    dnnl_engine_t, const_dnnl_primitive_attr_t);
dnnl_status_t dnnl_sgemm(char, char, dnnl_dim_t, dnnl_dim_t, dnnl_dim_t, float, const float *,
    dnnl_dim_t, const float *, dnnl_dim_t, float, float *, dnnl_dim_t);
const dnnl_version_t *dnnl_version(void);

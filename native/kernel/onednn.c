/* onednn.c - see onednn.h. */
#include <pthread.h>
#include "kernel/onednn.h"

static dnnl_engine_t engine;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void onednn_open_engine(void)
{
  if (env_disabled("dnnl") || dnnl_engine_create(&engine, dnnl_cpu, 0)) engine = NULL;
}

dnnl_engine_t onednn_engine(void)
{
  pthread_once(&once, onednn_open_engine);
  return engine;
}

dnnl_stream_t onednn_stream(void)
{
  dnnl_stream_t s;
  return dnnl_stream_create(&s, onednn_engine(), dnnl_stream_default_flags) ? NULL : s;
}

dnnl_memory_t onednn_memory(onednn_desc d)
{
  dnnl_memory_t m;
  return dnnl_memory_create(&m, d, onednn_engine(), DNNL_MEMORY_NONE) ? NULL : m;
}

dnnl_primitive_t onednn_copier(onednn_desc from, onednn_desc to)
{
  dnnl_primitive_desc_t d;
  dnnl_primitive_t p;
  if (dnnl_reorder_primitive_desc_create(&d, from, onednn_engine(), to, onednn_engine(), NULL))
    return NULL;
  if (dnnl_primitive_create(&p, d)) p = NULL;
  dnnl_primitive_desc_destroy(d);
  return p;
}

bool onednn_copy(dnnl_primitive_t copier, dnnl_stream_t s, dnnl_memory_t from, void *from_data,
    dnnl_memory_t to, void *to_data)
{
  dnnl_exec_arg_t arg[] = { { DNNL_ARG_FROM, from }, { DNNL_ARG_TO, to } };
  if (dnnl_memory_set_data_handle(from, from_data) || dnnl_memory_set_data_handle(to, to_data))
    return false;
  return !dnnl_primitive_execute(copier, s, 2, arg);
}

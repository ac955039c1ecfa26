/* onednn.h - oneDNN: one engine for the process, a stream per instruction, memory objects whose
** data is set at each run.
**
** Functions return false or NULL if oneDNN fails; the caller then uses its own kernel. They set no
** failure. */
#pragma once
#include "kernel/kernel.h"
#include "kernel/onednn_interface.h"

dnnl_engine_t   onednn_engine(void);                /* NULL: none, or TYCHO_DISABLE names dnnl */
dnnl_stream_t   onednn_stream(void);
dnnl_memory_t   onednn_memory(onednn_desc d);         /* without data */
dnnl_primitive_t onednn_copier(onednn_desc from, onednn_desc to);
bool onednn_copy(dnnl_primitive_t copier, dnnl_stream_t s, dnnl_memory_t from, void *from_data,
    dnnl_memory_t to, void *to_data);

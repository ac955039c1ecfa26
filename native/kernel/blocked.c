/* blocked.c - see blocked.h. */
#include "kernel/blocked.h"
#include "base/parallel.h"
#include "kernel/gemm/gemm.h"
#include "kernel/gemm/isa.h"

static int (*gpu_block)(const ty_desc *d, int precision);

void channel_block_register(int kind, int (*block)(const ty_desc *d, int precision))
{
  if (kind == TY_GPU) gpu_block = block;
}

int cpu_channel_block(void)
{
  return cpu_isa() == CPU_BASELINE ? 0 : gemm_type(TY_F32)->w;
}

int channel_block(const ty_desc *d, int precision)
{
  if (device_kind(d->device) == TY_GPU) return gpu_block ? gpu_block(d, precision) : 0;
  int block = device_kind(d->device) == TY_CPU ? cpu_channel_block() : 0;
  bool good = block && (d->dtype == TY_F32 || d->dtype == TY_U8) && d->dim[1] % block == 0;
  return good ? block : 0;
}

struct blocking { const struct gemm_type *t; int64_t b, space; const float *from; float *to; };

/* Copies blocks begin .. end - 1 of all images. */
static void blocked_enter_range(int64_t begin, int64_t end, void *context)
{
  const struct blocking *k = context;
  for (int64_t at = begin * k->b * k->space; begin < end; begin++, at += k->b * k->space)
    k->t->strip(k->b, k->space, k->from + at, k->space, 1, (int)k->b, k->to + at);
}

static void blocked_leave_range(int64_t begin, int64_t end, void *context)
{
  const struct blocking *k = context;
  for (int64_t at = begin * k->b * k->space; begin < end; begin++, at += k->b * k->space)
    k->t->strip(k->space, k->b, k->from + at, k->b, 1, (int)k->space, k->to + at);
}

static void blocked_move(const ty_desc *d, int64_t n, const float *from, float *to,
    parallel_fn range)
{
  struct blocking k = { gemm_type(TY_F32), cpu_channel_block(), 1, from, to };
  for (int i = 2; i < d->ndim; i++) k.space *= d->dim[i];
  parallel_for_stoppable(n * d->dim[1] / k.b, elements_ns(k.b * k.space), range, &k);
}

void block_enter(const ty_desc *d, int64_t n, const float *plain, float *blocks)
{
  blocked_move(d, n, plain, blocks, blocked_enter_range);
}

void block_leave(const ty_desc *d, int64_t n, const float *blocks, float *plain)
{
  blocked_move(d, n, blocks, plain, blocked_leave_range);
}

void block_enter_span(
    int64_t channels, int64_t n, const float *plain, int64_t plane, float *blocks)
{
  gemm_type(TY_F32)->strip(channels, n, plain, plane, 1, cpu_channel_block(), blocks);
}

void block_leave_span(int64_t n, const float *blocks, int64_t plane, float *plain)
{
  const int b = cpu_channel_block();
  gemm_type(TY_F32)->strip(n, b, blocks, b, 1, (int)plane, plain);
}

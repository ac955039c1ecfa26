/* attention.c - whether attention on a device multiplies like plain products. See attention.h. */
#include "kernel/attention.h"
#include "device/device.h"

static bool (*gpu_answer)(const struct attention_widths *h);

void attention_register(int kind, bool (*alike)(const struct attention_widths *h))
{
  if (kind == TY_GPU) gpu_answer = alike;
}

bool attention_multiplies_alike(const struct attention_widths *h)
{
  return device_kind(h->device) == TY_GPU && gpu_answer && gpu_answer(h);
}

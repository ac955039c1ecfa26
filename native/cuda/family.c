/* family.c - see family.h; the texts of kernels/ are taken into the library as they stand. */
#include "cuda/family.h"

#define TEXT(name, file) \
  __asm__(".pushsection .rodata\n" \
          "cuda_text_" #name ":\n" \
          ".incbin \"native/" file "\"\n" \
          ".byte 0\n" \
          ".popsection\n"); \
  extern const char cuda_text_##name[] __attribute__((visibility("hidden")));

TEXT(prelude, "cuda/kernels/prelude.cuh")
TEXT(philox, "base/philox.h")
#define FAMILY(name) TEXT(name, "cuda/kernels/" #name ".cu")
CUDA_FAMILIES(FAMILY)
#undef FAMILY

static const struct { const char *name, *text; } families[] = {
#define ROW(name) { #name ".cu", cuda_text_##name },
  CUDA_FAMILIES(ROW)
#undef ROW
};

/* They stand in front of each source, whose key they are a part of. */
static const struct { const char *name, *text; } headers[] = {
  { "prelude.cuh", cuda_text_prelude },
  { "philox.h", cuda_text_philox },
};

const char *cuda_type(int dtype)
{
  static const char *const name[] = { [TY_F32] = "float", [TY_F64] = "double", [TY_F16] = "f16",
    [TY_U8] = "u8", [TY_I32] = "i32", [TY_I8] = "i8", [TY_I64] = "i64", [TY_BOOL] = "bool8",
    [TY_BF16] = "bf16" };
  return name[dtype];
}

int cuda_family(
    int device, enum cuda_family family, const char *defines, const char *name, cu_function *out)
{
  static const char *const options[] = { "--std=c++17", "--fmad=false", NULL };
  struct text t = { 0 };
  for (int i = 0; i < COUNT(headers); i++)
    text_add(&t, "#line 1 \"%s\"\n%s\n", headers[i].name, headers[i].text);
  for (const char *s = defines + strspn(defines, " "); *s; s += strspn(s, " ")) {
    size_t n = strcspn(s, " "), key = strcspn(s, "= ");
    text_add(&t, "#define %.*s %.*s\n", (int)key, s, (int)(n > key ? n - key - 1 : 0), s + key + 1);
    s += n;
  }
  text_add(&t, "#line 1 \"%s\"\n%s", families[family].name, families[family].text);
  int code = t.lost ? fail(TY_EMEMORY, "out of memory: CUDA source")
                    : cuda_compile(device, t.s, options, name, out);
  text_done(&t);
  return code;
}

size_t cuda_state_size(const struct call *c) { return sizeof(struct cuda_state); }

int cuda_state(const struct call *c, enum cuda_family family, const char *name, cu_function *out,
    const char *defines, ...)
{
  struct cuda_state *s = c->state;
  char words[512];
  va_list args;
  if (!s->f) {
    va_start(args, defines);
    vsnprintf(words, sizeof words, defines, args);
    va_end(args);
    TRY(cuda_family(c->device, family, words, name, &s->f));
  }
  *out = s->f;
  return TY_OK;
}

int64_t cuda_blocks(int device, int64_t n, int block)
{
  int64_t most = (int64_t)cuda_device(device)->processors * (8192 / block);
  return MAX(MIN((n + block - 1) / block, most), 1);
}

/* family.c - see family.h. The files of kernels/ are embedded in the library unchanged. A kernel is
** compiled from a family's text without the other kernels. */
#include <pthread.h>
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
TEXT(laws, "base/laws.h")
TEXT(boxes_header, "kernel/element/boxes.h")
TEXT(choice_header, "kernel/element/choice.h")
TEXT(deform_header, "kernel/element/deform.h")
TEXT(hawkes_header, "kernel/element/hawkes.h")
TEXT(entropy_header, "kernel/element/entropy.h")
TEXT(proposal_header, "kernel/element/proposal.h")
TEXT(levels_header, "kernel/element/levels.h")
TEXT(regions_header, "kernel/element/regions.h")
TEXT(density_header, "kernel/element/density.h")
TEXT(corners, "kernel/element/corners.h")
TEXT(resample_header, "kernel/element/resample.h")
TEXT(team, "cuda/kernels/team.cuh")
TEXT(draw_header, "cuda/kernels/draw.cuh")
TEXT(tensor_header, "cuda/kernels/tensor.cuh")
TEXT(pixel_header, "image/pixel.h")
TEXT(taps_header, "image/taps.h")
TEXT(fault_header, "cuda/kernels/fault.cuh")
TEXT(keys_header, "cuda/kernels/keys.cuh")
TEXT(window_header, "cuda/kernels/window.cuh")
#define FAMILY(name) TEXT(name, "cuda/kernels/" #name ".cu")
CUDA_FAMILIES(FAMILY)
#undef FAMILY

struct source_file { const char *name, *text; };
static const struct source_file families[] = {
#define ROW(name) { #name ".cu", cuda_text_##name },
  CUDA_FAMILIES(ROW)
#undef ROW
};

/* The files in front of each source, and so a part of its key. */
static const struct source_file headers[] = {
  { "prelude.cuh", cuda_text_prelude },
  { "philox.h", cuda_text_philox },
};
/* Headers that a family includes after the definitions. team.cuh follows them in every family. */
static const struct { enum cuda_family family; struct source_file file; } shared[] = {
  { FAMILY_decoding, { "fault.cuh", cuda_text_fault_header } },
  { FAMILY_flash_attention, { "draw.cuh", cuda_text_draw_header } },
  { FAMILY_flash_attention, { "tensor.cuh", cuda_text_tensor_header } },
  { FAMILY_rows, { "fault.cuh", cuda_text_fault_header } },
  { FAMILY_factors, { "fault.cuh", cuda_text_fault_header } },
  { FAMILY_triangular, { "fault.cuh", cuda_text_fault_header } },
  { FAMILY_softmax_loss, { "fault.cuh", cuda_text_fault_header } },
  { FAMILY_boxes, { "boxes.h", cuda_text_boxes_header } },
  { FAMILY_choice, { "choice.h", cuda_text_choice_header } },
  { FAMILY_choice, { "draw.cuh", cuda_text_draw_header } },
  { FAMILY_choice, { "fault.cuh", cuda_text_fault_header } },
  { FAMILY_levels, { "fault.cuh", cuda_text_fault_header } },
  { FAMILY_ctc, { "fault.cuh", cuda_text_fault_header } },
  { FAMILY_dropout, { "draw.cuh", cuda_text_draw_header } },
  { FAMILY_deform, { "deform.h", cuda_text_deform_header } },
  { FAMILY_entropy, { "entropy.h", cuda_text_entropy_header } },
  { FAMILY_proposal, { "boxes.h", cuda_text_boxes_header } },
  { FAMILY_proposal, { "proposal.h", cuda_text_proposal_header } },
  { FAMILY_boxes, { "keys.cuh", cuda_text_keys_header } },
  { FAMILY_choice, { "keys.cuh", cuda_text_keys_header } },
  { FAMILY_deform, { "keys.cuh", cuda_text_keys_header } },
  { FAMILY_proposal, { "keys.cuh", cuda_text_keys_header } },
  { FAMILY_rows, { "keys.cuh", cuda_text_keys_header } },
  { FAMILY_sampler, { "keys.cuh", cuda_text_keys_header } },
  { FAMILY_sort, { "keys.cuh", cuda_text_keys_header } },
  { FAMILY_taps, { "keys.cuh", cuda_text_keys_header } },
  { FAMILY_hawkes, { "hawkes.h", cuda_text_hawkes_header } },
  { FAMILY_hawkes, { "fault.cuh", cuda_text_fault_header } },
  { FAMILY_images, { "pixel.h", cuda_text_pixel_header } },
  { FAMILY_images, { "draw.cuh", cuda_text_draw_header } },
  { FAMILY_levels, { "levels.h", cuda_text_levels_header } },
  { FAMILY_pool, { "levels.h", cuda_text_levels_header } },
  { FAMILY_quantized, { "levels.h", cuda_text_levels_header } },
  { FAMILY_quantized, { "window.cuh", cuda_text_window_header } },
  { FAMILY_unfold, { "window.cuh", cuda_text_window_header } },
  { FAMILY_regions, { "regions.h", cuda_text_regions_header } },
  { FAMILY_density, { "density.h", cuda_text_density_header } },
  { FAMILY_random, { "laws.h", cuda_text_laws } },
  { FAMILY_random, { "fault.cuh", cuda_text_fault_header } },
  { FAMILY_resample, { "resample.h", cuda_text_resample_header } },
  { FAMILY_resize, { "taps.h", cuda_text_taps_header } },
  { FAMILY_sampler, { "corners.h", cuda_text_corners } },
  { FAMILY_tune, { "pixel.h", cuda_text_pixel_header } },
  { FAMILY_tune, { "draw.cuh", cuda_text_draw_header } },
};
static const struct source_file team = { "team.cuh", cuda_text_team };

const char *cuda_type(int dtype)
{
  static const char *const name[] = { [TY_F32] = "float", [TY_F64] = "double", [TY_F16] = "f16",
    [TY_U8] = "u8", [TY_I32] = "i32", [TY_I8] = "i8", [TY_I64] = "i64", [TY_BOOL] = "bool8",
    [TY_BF16] = "bf16" };
  return name[dtype];
}

const char *cuda_unit(size_t size)
{
  return size == 1 ? "u8" : size == 2 ? "u16" : size == 4 ? "u32" : size == 8 ? "u64" : "u128";
}

static void add_file(struct text *t, const struct source_file *f)
{
  text_add(t, "#line 1 \"%s\"\n%s\n", f->name, f->text);
}

/* The beginning and the end of a kernel in a family's file, each at the beginning of a line. */
static const char kernel_begin[] = "\nextern \"C\" __global__ void ", kernel_end[] = "\n}\n";

/* Returns the name of the kernel that begins at k, after its bounds if there are some. */
static const char *kernel_name(const char *k)
{
  static const char bounds[] = "__launch_bounds__(";
  const char *name = k + sizeof kernel_begin - 1;
  return strncmp(name, bounds, sizeof bounds - 1) ? name : strchr(name, ')') + 2;
}

/* Adds a family's file without its other kernels, so that a variant of one kernel compiles only
** that kernel. Lines keep their numbers. */
static void add_kernel(struct text *t, const struct source_file *f, const char *name)
{
  const size_t n = strlen(name);
  const char *from = f->text, *at = from;
  int line = 1;
  text_add(t, "#line 1 \"%s\"\n", f->name);
  for (const char *k = strstr(from, kernel_begin); k; k = strstr(k + 1, kernel_begin)) {
    const char *own = kernel_name(k), *end = strstr(k, kernel_end);
    if (!end || (!strncmp(own, name, n) && own[n] == '(')) continue;
    end += sizeof kernel_end - 1;
    text_put(t, from, (size_t)(k + 1 - from));
    for (; at < end; at++) line += *at == '\n';
    text_add(t, "#line %d \"%s\"\n", line, f->name);
    from = end;
  }
  text_add(t, "%s\n", from);
}

int cuda_family_compile(int device, enum cuda_family family, const char *before,
    const char *defines, const char *name, cu_function *out)
{
  static const char *const options[] = { "--std=c++17", "--fmad=false", NULL };
  struct text t = { 0 };
  for (int i = 0; i < COUNT(headers); i++) add_file(&t, &headers[i]);
  text_add(&t, "%s", before);
  for (const char *s = defines + strspn(defines, " "); *s; s += strspn(s, " ")) {
    size_t n = strcspn(s, " "), key = strcspn(s, "= ");
    text_add(&t, "#define %.*s %.*s\n", (int)key, s, (int)(n > key ? n - key - 1 : 0), s + key + 1);
    s += n;
  }
  for (int i = 0; i < COUNT(shared); i++)
    if (shared[i].family == family) add_file(&t, &shared[i].file);
  add_file(&t, &team);
  add_kernel(&t, &families[family], name);
  int code = t.lost ? fail(TY_EMEMORY, "out of memory: CUDA source")
                    : cuda_compile(device, t.s, options, name, out);
  text_done(&t);
  return code;
}

/* -- compiled kernels -------------------------------------------------------------------------- */

enum { BUCKETS = 1024 };
struct family_function {
  struct family_function *next;
  int device;
  enum cuda_family family;
  const char *name;
  char defines[CUDA_WORDS];
  cu_function f;
};
static struct family_function *known[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct family_function **bucket_of(const struct family_function *k)
{
  uint32_t h = name_hash(k->name) + 31 * name_hash(k->defines);
  h += (uint32_t)(k->device * 64 + k->family);
  return &known[h % BUCKETS];
}

static const struct family_function *find_function(
    const struct family_function *list, const struct family_function *k)
{
  for (; list; list = list->next)
    if (list->device == k->device && list->family == k->family && !strcmp(list->name, k->name) &&
        !strcmp(list->defines, k->defines))
      return list;
  return NULL;
}

/* Adds a function to a list of kept functions. Call it under the lock. */
static int add_function(struct family_function **head, struct family_function *k)
{
  TRY(cuda_family_compile(k->device, k->family, "", k->defines, k->name, &k->f));
  struct family_function *made = NEW(struct family_function);
  NEED(made, TY_EMEMORY, "out of memory");
  *made = *k;
  made->next = *head;
  __atomic_store_n(head, made, __ATOMIC_RELEASE);
  return TY_OK;
}

/* Finds the function that k names, or compiles it. */
static int find_or_add(struct family_function *k, cu_function *out)
{
  struct family_function **head = bucket_of(k);
  const struct family_function *found = find_function(__atomic_load_n(head, __ATOMIC_ACQUIRE), k);
  int code = TY_OK;
  if (!found) {
    pthread_mutex_lock(&lock);
    found = find_function(*head, k);
    if (!found) code = add_function(head, k);
    pthread_mutex_unlock(&lock);
  }
  *out = found ? found->f : k->f;
  return code;
}

int cuda_family(int device, enum cuda_family family, const char *name, cu_function *out,
    const char *defines, ...)
{
  struct family_function k = { .device = device, .family = family, .name = name };
  va_list args;
  va_start(args, defines);
  int n = number_format(k.defines, sizeof k.defines, defines, args);
  va_end(args);
  NEED(n < CUDA_WORDS, TY_EINTERNAL, "%s: too many constants", name);
  return find_or_add(&k, out);
}

int cuda_family_find(int device, enum cuda_family family, const char *name, const char *defines,
    cu_function *out)
{
  struct family_function k = { .device = device, .family = family, .name = name };
  NEED(strlen(defines) < CUDA_WORDS, TY_EINTERNAL, "%s: too many constants", name);
  strcpy(k.defines, defines);
  return find_or_add(&k, out);
}

/* -- small things ------------------------------------------------------------------------------ */

int64_t cuda_blocks(int device, int64_t n)
{
  enum { WAVES = 32 };
  int64_t most = (int64_t)cuda_device(device)->processors * WAVES;
  return MAX(MIN((n + CUDA_BLOCK - 1) / CUDA_BLOCK, most), 1);
}

int cuda_run(const struct call *c, cu_function f, int64_t n, void **params)
{
  return cuda_launch(c->device, f, cuda_blocks(c->device, n), CUDA_BLOCK, 0, params);
}

int cuda_pack(int dtype, int64_t n, void *const *arrays, int count)
{
  enum { LOAD = 16 };
  const int pack = LOAD / (int)dtype_size(dtype);
  for (int i = 0; i < count; i++)
    if ((uintptr_t)arrays[i] % LOAD) return 1;
  return n % pack ? 1 : pack;
}

int cuda_held(int64_t k, int threads, int pack, int most)
{
  int held = 1;
  while ((int64_t)held * threads * pack < k && held * pack <= most) held *= 2;
  return threads > 1 && held * pack <= most ? held : 0;
}

int cuda_team(int64_t rows, int64_t k, int64_t inner)
{
  enum { MANY_ROWS = 4096, SHORT_ROW = 8, LONG_ROW = 1024 };
  if (inner > 1 ? rows >= MANY_ROWS || k <= 64 : k <= SHORT_ROW) return 1;
  return k <= LONG_ROW ? 32 : CUDA_BLOCK;
}

double cuda_number(const struct call *c, const char *name, double otherwise)
{
  bool found;
  double v = op_number(c->op, c->param, name, &found);
  return found ? v : otherwise;
}

int cuda_zero(const struct call *c, const struct operand *x)
{
  return x->p ? device_fill(c->device, x->p, 0, desc_bytes(&x->d)) : TY_OK;
}

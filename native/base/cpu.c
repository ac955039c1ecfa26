/* cpu.c - see cpu.h. Each answer is found once and kept. */
#include "base/base.h"
#include <unistd.h>
#ifdef __aarch64__
#  include <sys/auxv.h>
#elif defined __x86_64__ && defined __linux__
#  include <cpuid.h>
#  include <sys/syscall.h>
#endif

#define NAME(isa) #isa,
static const char *const paths[] = { EACH_ISA(NAME) };

static int find_best_isa(void)
{
#if defined __x86_64__
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    return CPU_BASELINE; /* every processor with AVX2 has F16C */
  bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return wide ? CPU_AVX512 : CPU_AVX2;
#elif defined __aarch64__
  return CPU_NEON; /* every aarch64 processor has it */
#else
  return CPU_BASELINE;
#endif
}

long cpu_second_cache(void)
{
#ifdef _SC_LEVEL2_CACHE_SIZE
  static long bytes = -1;
  long known = __atomic_load_n(&bytes, __ATOMIC_RELAXED);
  if (known < 0) {
    known = MAX(sysconf(_SC_LEVEL2_CACHE_SIZE), 0);
    __atomic_store_n(&bytes, known, __ATOMIC_RELAXED);
  }
  return known;
#else
  return 0;
#endif
}

int cpu_isa(void)
{
  static int isa = -1;
  int known = __atomic_load_n(&isa, __ATOMIC_RELAXED);
  if (known >= 0) return known;
  const char *asked = env_text("TYCHO_CPU", "");
  int best = find_best_isa(), chosen = best;
  for (int i = 0; i < COUNT(paths); i++)
    if (!strcmp(asked, paths[i])) chosen = MIN(i, best);
  __atomic_store_n(&isa, chosen, __ATOMIC_RELAXED);
  return chosen;
}

/* Returns whether cpu_isa() is the largest set of all, and not because TYCHO_CPU names it. */
static bool is_unrestricted(void)
{
  return cpu_isa() == COUNT(paths) - 1 && strcmp(env_text("TYCHO_CPU", ""), cpu_isa_name());
}

static bool find_narrow(void)
{
#if defined __x86_64__
  return is_unrestricted() && __builtin_cpu_supports("avx512bf16") &&
      __builtin_cpu_supports("avx512vnni");
#elif defined __aarch64__
  return cpu_multiplies_bytes() && getauxval(AT_HWCAP2) & HWCAP2_BF16;
#else
  return false;
#endif
}

bool cpu_multiplies_narrow(void)
{
  static int narrow = -1;
  int known = __atomic_load_n(&narrow, __ATOMIC_RELAXED);
  if (known < 0) __atomic_store_n(&narrow, known = find_narrow(), __ATOMIC_RELAXED);
  return known;
}

#if defined __x86_64__ && defined __linux__
enum {
  /* AMX's bfloat16, tiles and 8-bit integers in EDX of CPUID's leaf 7 */
  TILE_BITS = 1 << 22 | 1 << 24 | 1 << 25,
  /* arch_prctl code by which a process asks Linux to save a component of the processor's state
  ** (Documentation/arch/x86/xstate.rst) */
  REQUEST_STATE = 0x1023,
  /* number of the component that holds the tiles' data */
  TILE_STATE = 18,
};

static bool find_tiles(void)
{
  unsigned a, b, c, d;
  return cpu_multiplies_narrow() && !env_disabled("amx") &&
      __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & TILE_BITS) == TILE_BITS &&
      !syscall(SYS_arch_prctl, REQUEST_STATE, TILE_STATE);
}
#else
static bool find_tiles(void) { return false; }
#endif

bool cpu_multiplies_tiles(void)
{
  static int tiles = -1;
  int known = __atomic_load_n(&tiles, __ATOMIC_RELAXED);
  if (known < 0) __atomic_store_n(&tiles, known = find_tiles(), __ATOMIC_RELAXED);
  return known;
}

bool cpu_multiplies_bytes(void)
{
#if defined __aarch64__
  return is_unrestricted() && getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#else
  return cpu_multiplies_narrow();
#endif
}

const char *cpu_isa_name(void) { return paths[cpu_isa()]; }

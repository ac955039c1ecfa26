/* cpu.h - the instruction set for which kernels are chosen, and what else the processor has. */
#pragma once
#include <stdbool.h>

/* EACH_ISA(X): X(name) for each instruction set for which the files in folders `isa` are compiled,
** in the order of CPU_*, the smallest first. The Makefile has their compiler flags. */
#if defined __x86_64__
enum { CPU_BASELINE, CPU_AVX2, CPU_AVX512 };
#define EACH_ISA(X) X(baseline) X(avx2) X(avx512)
#elif defined __aarch64__
enum { CPU_BASELINE, CPU_NEON };
#define EACH_ISA(X) X(baseline) X(neon)
#else
enum { CPU_BASELINE };
#define EACH_ISA(X) X(baseline)
#endif
/* Returns CPU_*: the best set this machine runs, or a smaller one that TYCHO_CPU names. */
int  cpu_isa(void);
/* Returns whether there are instructions for products of bfloat16 and of 8-bit integers
** (AVX512-BF16 and AVX512-VNNI; BFDOT and SDOT). TYCHO_CPU=avx512 or neon turns them off. */
bool cpu_multiplies_narrow(void);
/* Returns whether such products have tiles too (AMX), and the system saves the state of these.
** TYCHO_DISABLE=amx turns them off. */
bool cpu_multiplies_tiles(void);
/* Returns whether there are instructions for products of 8-bit integers at least. */
bool cpu_multiplies_bytes(void);
/* Returns the bytes of a core's second-level cache; 0: unknown. */
long cpu_second_cache(void);
/* Returns the name of cpu_isa(): "baseline" "avx2" "avx512" "neon". */
const char *cpu_isa_name(void);

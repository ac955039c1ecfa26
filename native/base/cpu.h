/* cpu.h - the instruction set that kernels are chosen by. */
#pragma once
#include <stdbool.h>

/* EACH_ISA(X): X for each instruction set that files in a folder isa are compiled for, in the order
** of CPU_*, the least first. The Makefile has their flags. */
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
/* CPU_*: the best this machine runs, at most TYCHO_CPU */
int  cpu_isa(void);
/* products of bfloat16 and of 8-bit integers have instructions of their own here (AVX512-BF16 and
** AVX512-VNNI, BFDOT and SDOT). TYCHO_CPU=avx512 or neon asks for the set without them. */
bool cpu_multiplies_narrow(void);
/* Returns whether they have tiles too (AMX) whose state the system keeps. TYCHO_DISABLE=amx: no. */
bool cpu_multiplies_tiles(void);
bool cpu_multiplies_bytes(void);                      /* at least those of 8-bit integers */
/* Returns the bytes of a core's second cache; 0 where the system does not say. */
long cpu_second_cache(void);
const char *cpu_isa_name(void);                       /* "baseline" "avx2" "avx512" "neon" */

/* cpu.h - the instruction set that kernels are chosen by. */
#pragma once

enum { CPU_BASELINE, CPU_AVX2, CPU_AVX512 };
/* CPU_*: the best this machine runs, at most TYCHO_CPU */
int  cpu_level(void);
/* products of bfloat16 and of 8-bit integers have instructions of their own here (AVX512-BF16 and
** AVX512-VNNI). TYCHO_CPU=avx512 asks for the level without them. */
bool cpu_multiplies_narrow(void);
const char *cpu_path(void);                           /* "baseline" "avx2" "avx512" */

/* cpu.h - the instruction set that kernels are chosen by. */
#pragma once

enum { CPU_BASELINE, CPU_AVX2, CPU_AVX512 };
/* CPU_*: the best this machine runs, at most TYCHO_CPU */
int  cpu_level(void);
const char *cpu_path(void);                           /* "baseline" "avx2" "avx512" */

/* intrinsics.h - compiler intrinsics for files in folders `isa`.
**
** GCC's immintrin.h declares those of all processors and takes a quarter of a second, most of the
** compile time of some of these files. For GCC 12 to 14, which have the same set of headers, only
** the needed ones are included; they demand that _IMMINTRIN_H_INCLUDED is defined. Other compilers
** include immintrin.h.
*/
#pragma once

#if defined __AVX2__
#if defined __clang__ || !defined __GNUC__ || __GNUC__ < 12 || __GNUC__ > 14
#include <immintrin.h>
#else
#define _IMMINTRIN_H_INCLUDED
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#include <fmaintrin.h>
#include <f16cintrin.h>
#ifdef __AVX512F__
#include <avx512fintrin.h>
#include <avx512vlintrin.h>
#include <avx512bwintrin.h>
#include <avx512dqintrin.h>
#include <avx512vlbwintrin.h>
#include <avx512vldqintrin.h>
#endif
#ifdef __AVX512VNNI__
#include <avx512vnniintrin.h>
#endif
#ifdef __AVX512BF16__
#include <avx512bf16vlintrin.h>
#include <avx512bf16intrin.h>
#endif
#endif
#elif defined __SSE2__
#include <emmintrin.h>
#elif defined TY_NEON
#include <arm_neon.h>
#endif

/* qualifiers.h - qualifiers of functions and variables. */
#pragma once
#define __CUDASIM__ 1
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDA_ARCH__ 900
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#ifndef CUDASIM_HOST                                  /* libstdc++ spells an attribute like it */
#define __noinline__ __attribute__((noinline))
#endif
#undef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))
#undef __align__
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
/* `const struct args __grid_constant__ x` is passed by reference: no copy per thread */
#define __grid_constant__ &
#ifndef __clang__
#define __builtin_assume(x) ((void)0)
#endif

/* One block runs at a time, so its shared variables are static ones. Their own section lets the
** stand-in spoil them between blocks. `extern __shared__ T name[]` is rewritten to
** CUDASIM_DYNAMIC(T, name) before the compiler sees it (nvrtc/source.cc). */
#define __shared__ static __attribute__((section("cudasim_shared")))
extern "C" __attribute__((aligned(1024))) unsigned char cudasim_dynamic[];
#define CUDASIM_DYNAMIC(T, name) static T (&name)[] = reinterpret_cast<T (&)[]>(cudasim_dynamic)

/* code that the checker must not watch, since it acts as the hardware */
#if defined(__SANITIZE_THREAD__)
#define CUDASIM_WATCHED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CUDASIM_WATCHED 1
#endif
#endif
#ifdef CUDASIM_WATCHED
#define CUDASIM_PLAIN __attribute__((no_sanitize("thread"), noinline))
#else
#define CUDASIM_PLAIN
#endif

/* kernel.h - what a compiled source exports of each kernel: a function that calls it with
** parameters whose types only the compiler knows, and the sizes of these. */
#pragma once

extern "C" struct cudasim_kernel {
  /* for the thread cudasim_self */
  void (*run)(void **parameters);
  int count, max_threads;
  size_t bytes[64];
};

namespace cudasim {
template <size_t... I> struct list {};
template <size_t N, size_t... I> struct upto : upto<N - 1, N - 1, I...> {};
template <size_t... I> struct upto<0, I...> { typedef list<I...> type; };

/* Calls a kernel; p[i] is the address of parameter i. */
template <class... A, size_t... I>
CUDASIM_PLAIN static inline void call(void (*kernel)(A...), void **p, list<I...>)
{
  kernel(*(std::remove_reference_t<A> *)p[I]...);
}
template <class... A> CUDASIM_PLAIN static inline void call(void (*kernel)(A...), void **p)
{
  call(kernel, p, typename upto<sizeof...(A)>::type());
}
template <class... A>
constexpr cudasim_kernel describe(void (*run)(void **), void (*)(A...), int max_threads)
{
  return { run, (int)sizeof...(A), max_threads, { sizeof(std::remove_reference_t<A>)..., 0 } };
}
}

/* `id` is what cuModuleGetFunction looks for; `kernel` may be a template's instance */
#define CUDASIM_KERNEL(id, max_threads, ...) \
  static void cudasim_run_##id(void **p) { cudasim::call(__VA_ARGS__, p); } \
  extern "C" const cudasim_kernel cudasim_kernel_##id; \
  const cudasim_kernel cudasim_kernel_##id = \
      cudasim::describe(cudasim_run_##id, __VA_ARGS__, max_threads);

/* addresses of the shared variables of this source, for the driver */
extern "C" {
extern char __start_cudasim_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_cudasim_shared[] __attribute__((weak, visibility("hidden")));
}
#define CUDASIM_MODULE \
  extern "C" CUDASIM_PLAIN void cudasim_shared_range(char **from, char **to) \
  { \
    *from = __start_cudasim_shared; \
    *to = __stop_cudasim_shared; \
  }

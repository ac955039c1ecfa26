/* atomics.h - atomic operations. Fibres switch at barriers and warp operations only, so a plain
** update is atomic; the checker gets it as an atomic one. */
#pragma once

extern "C" void cudasim_atomic(const volatile void *p, int bytes);
#ifdef CUDASIM_WATCHED
#define CUDASIM_TELL(p, n) cudasim_atomic(p, n)
#else
#define CUDASIM_TELL(p, n) (void)0
#endif

/* keeps T out of deduction by the operand: the type of *p decides */
template <class T> struct cudasim_same { typedef T type; };

#define CUDASIM_ATOMIC(name, expression) \
  template <class T> \
  CUDASIM_PLAIN static inline T name(T *p, typename cudasim_same<T>::type v) \
  { \
    CUDASIM_TELL(p, sizeof *p); \
    T old = *p; \
    *p = (T)(expression); \
    return old; \
  } \
  template <class T> static inline T name##_block(T *p, typename cudasim_same<T>::type v) \
  { \
    return name(p, v); \
  } \
  template <class T> static inline T name##_system(T *p, typename cudasim_same<T>::type v) \
  { \
    return name(p, v); \
  }
CUDASIM_ATOMIC(atomicAdd, old + v)
CUDASIM_ATOMIC(atomicSub, old - v)
CUDASIM_ATOMIC(atomicExch, v)
CUDASIM_ATOMIC(atomicMin, v < old ? v : old)
CUDASIM_ATOMIC(atomicMax, old < v ? v : old)
CUDASIM_ATOMIC(atomicAnd, old & v)
CUDASIM_ATOMIC(atomicOr, old | v)
CUDASIM_ATOMIC(atomicXor, old ^ v)
CUDASIM_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
CUDASIM_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)
#undef CUDASIM_ATOMIC

template <class T>
CUDASIM_PLAIN static inline T atomicCAS(
    T *p, typename cudasim_same<T>::type expected, typename cudasim_same<T>::type v)
{
  CUDASIM_TELL(p, sizeof *p);
  T old = *p;
  if (old == expected) *p = v;
  return old;
}

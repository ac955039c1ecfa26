/* test.h - what the stand-in's own tests share. They call the functions of the libraries, as a
** program does. A fault on purpose must be reported (`found`); all else must leave no finding. */
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>
#include "../driver/abi.h"
#include "../nvrtc/abi.h"
#include "functions.h"

extern int passed, failed;
extern CUstream stream;
extern CUcontext context;

#define CHECK(x) \
  do { \
    if (x) \
      passed++; \
    else { \
      failed++; \
      printf("FAIL %s:%d: %s (%s)\n", __FILE__, __LINE__, #x, cudasim_why()); \
    } \
  } while (0)
#define OK(x) CHECK_CODE(x, 0)
#define CHECK_CODE(x, want) \
  do { \
    int code_ = (int)(x); \
    if (code_ == (int)(want)) \
      passed++; \
    else { \
      failed++; \
      printf("FAIL %s:%d: %s: %d, not %d (%s)\n", __FILE__, __LINE__, #x, code_, (int)(want), \
          cudasim_why()); \
    } \
  } while (0)
/* Checks that the last finding contains a text, and forgets it. */
#define FOUND(words) \
  do { \
    CHECK(strstr(cudasim_why(), words)); \
    cudasim_forget(); \
  } while (0)

/* Compiles a source, loads it and finds a kernel. */
CUfunction compile_kernel(const char *source, const char *name);
std::string compile_image(const char *source, std::string *log = nullptr);
/* Returns device memory with these numbers. */
template <class T> CUdeviceptr copy_up(const std::vector<T> &x);
/* Returns device memory that is not written. */
CUdeviceptr new_memory(size_t bytes);
/* Returns n numbers from device memory. */
template <class T> std::vector<T> copy_down(CUdeviceptr d, size_t n);
CUresult launch_kernel(CUfunction f, unsigned blocks, unsigned threads, unsigned dynamic,
    std::vector<void *> parameters, CUstream on = stream);
CUresult finish_stream();

template <class T> CUdeviceptr copy_up(const std::vector<T> &x)
{
  CUdeviceptr d = new_memory(x.size() * sizeof(T));
  OK(cuMemcpyHtoDAsync_v2(d, x.data(), x.size() * sizeof(T), stream));
  return d;
}

template <class T> std::vector<T> copy_down(CUdeviceptr d, size_t n)
{
  std::vector<T> x(n);
  OK(cuMemcpyDtoHAsync_v2(x.data(), d, n * sizeof(T), stream));
  OK(cuStreamSynchronize(stream));
  return x;
}

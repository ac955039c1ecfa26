/* test.cc - see test.h. */
#include "test.h"

int passed, failed;
CUstream stream;
CUcontext context;
void run_all(); /* the tests of a program */

std::string compile_image(const char *source, std::string *log)
{
  nvrtcProgram p;
  std::string image, text;
  size_t n = 0;
  const char *options[] = { "--gpu-architecture=sm_90", "--std=c++17" };
  OK(nvrtcCreateProgram(&p, source, "test.cu", 0, nullptr, nullptr));
  nvrtcResult r = nvrtcCompileProgram(p, 2, options);
  nvrtcGetProgramLogSize(p, &n);
  text.resize(n);
  nvrtcGetProgramLog(p, &text[0]);
  if (log)
    *log = text;
  else if (r)
    printf("%s\n", text.c_str());
  if (!r) {
    OK(nvrtcGetCUBINSize(p, &n));
    image.resize(n);
    OK(nvrtcGetCUBIN(p, &image[0]));
  }
  nvrtcDestroyProgram(&p);
  return image;
}

CUfunction compile_kernel(const char *source, const char *name)
{
  CUmodule m;
  CUfunction f = nullptr;
  std::string image = compile_image(source);
  OK(cuModuleLoadData(&m, image.data()));
  OK(cuModuleGetFunction(&f, m, name));
  return f;
}

CUdeviceptr new_memory(size_t bytes)
{
  CUdeviceptr d = 0;
  OK(cuMemAlloc_v2(&d, bytes));
  return d;
}

CUresult launch_kernel(CUfunction f, unsigned blocks, unsigned threads, unsigned dynamic,
    std::vector<void *> parameters, CUstream on)
{
  return cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, dynamic, on, parameters.data(), nullptr);
}

CUresult finish_stream() { return cuStreamSynchronize(stream); }

int main()
{
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  run_all();
  CHECK(cudasim_findings() == 0);
  printf("%d passed, %d failed, 0 skipped\n", passed, failed);
  fflush(stdout);
  return failed ? 1 : 0;
}

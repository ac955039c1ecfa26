/* source.h - what is done to a source in CUDA before a C++ compiler sees it. */
#pragma once
#include <string>
#include <vector>

struct Kernel { std::string name, bounds; };
/* The kernels that a source defines by themselves (templates are named by expressions). */
std::vector<Kernel> find_kernels(const std::string &source);
/* `extern __shared__ T name[];` becomes CUDASIM_DYNAMIC(T, name); lines stay where they are. */
std::string rewrite_dynamic(const std::string &source);

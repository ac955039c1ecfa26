/* source.h - changes to the text of a CUDA source before it is compiled as C++. */
#pragma once
#include <string>
#include <vector>

struct Kernel { std::string name, bounds; };
/* Finds the kernels that a source defines itself (templates are named by expressions). */
std::vector<Kernel> find_kernels(const std::string &source);
/* Replaces `extern __shared__ T name[];` by CUDASIM_DYNAMIC(T, name); lines keep their numbers. */
std::string rewrite_dynamic(const std::string &source);

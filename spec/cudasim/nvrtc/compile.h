/* compile.h - runs the host's compiler. */
#pragma once
#include <string>
#include <vector>

struct Compiled { bool good; std::string image, log; };
/* Compiles a source with CUDASIM_KERNEL lines to a shared library; `options` are the user's -D, -I
** and -std. The library is kept by contents: one source is compiled once per folder of builds. */
Compiled compile_source(
    const std::string &source, const std::string &name, const std::vector<std::string> &options);

/* compile.h - runs the host's compiler. */
#pragma once
#include <string>
#include <vector>

struct Compiled { bool good; std::string image, log; };
/* A source with CUDASIM_KERNEL lines as a shared library; `options` are -D, -I, -std of the user's.
** Kept by its contents: the same source is compiled once per folder of builds. */
Compiled compile(const std::string &source, const std::string &name,
    const std::vector<std::string> &options);

/* flags.h - how sources are compiled, and the precompiled header with them (the Makefile reads the
** lines of #define). No contraction: equal formulas give equal bits on the host and here. */
#pragma once
#define CUDASIM_LANGUAGE "-std=c++17 -fno-exceptions -fno-rtti -fno-asynchronous-unwind-tables"
#define CUDASIM_NUMBERS "-ffp-contract=off -fno-math-errno -fno-trapping-math"
#define CUDASIM_CODE "-O1 -fPIC -w -fno-strict-aliasing"
#define CUDASIM_FLAGS CUDASIM_LANGUAGE " " CUDASIM_NUMBERS " " CUDASIM_CODE
#define CUDASIM_WATCH "-gdwarf-4 -g1 -fsanitize=thread"

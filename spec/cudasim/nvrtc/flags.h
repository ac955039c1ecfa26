/* flags.h - how sources are compiled, and the precompiled header with them (the Makefile reads the
** lines of #define). No contraction: equal formulas give equal bits on the host and here. */
#pragma once
#define CUDASIM_FLAGS "-std=c++17 -O1 -fPIC -w -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-strict-aliasing -fno-exceptions -fno-rtti -fno-asynchronous-unwind-tables"
#define CUDASIM_WATCH "-gdwarf-4 -g1 -fsanitize=thread"

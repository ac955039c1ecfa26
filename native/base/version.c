/* version.c - the version of the library and of its binary interface. */
#include "tycho.h"

int         ty_abi(void) { return TY_ABI; }
const char *ty_version(void) { return "0.1.0"; }

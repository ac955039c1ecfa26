/* env.h - settings from the environment: TYCHO_*. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

const char *env_text(const char *name, const char *otherwise);
int64_t env_number(const char *name, int64_t otherwise);
bool env_disabled(const char *what);                  /* TYCHO_DISABLE names it */

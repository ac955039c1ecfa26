/* env.h - settings from the environment: TYCHO_*. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Returns the text of a variable, owned by the environment; `otherwise` if it is unset or empty. */
const char *env_text(const char *name, const char *otherwise);
/* Returns the number in a variable: "4096", "64k", "2G" (k: 1024); `otherwise` if it is unset, no
** number, or out of range. */
int64_t env_number(const char *name, int64_t otherwise);
/* Returns whether the list TYCHO_DISABLE ("amx,dnnl") has `what`. */
bool env_disabled(const char *what);

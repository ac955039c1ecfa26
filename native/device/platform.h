/* platform.h - what a back end adds to ty_platform: lines of its own. */
#pragma once
#include "base/base.h"

/* Makes ty_platform call `add` for the back end's lines. */
void platform_register(void (*add)(struct text *t));

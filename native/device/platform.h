/* platform.h - what a back end adds to ty_platform: lines of its own. */
#pragma once
#include "base/base.h"

void platform_register(void (*tell)(struct text *t));

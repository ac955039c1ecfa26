/* platform.h - what a back end adds to ty_platform where it has devices: lines of its own. */
#pragma once
#include "base/base.h"

void platform_register(void (*tell)(struct text *t));

/* platform.h - lines that a back end adds to the text of ty_platform. */
#pragma once
#include "base/base.h"

/* Registers a function that adds lines to the text. */
void platform_register(void (*add)(struct text *t));

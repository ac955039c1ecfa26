/* base.h - what every other file of the core uses: errors, memory, text, settings. */
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tycho.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

#include "base/cpu.h"
#include "base/env.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/names.h"
#include "base/number.h"
#include "base/text.h"

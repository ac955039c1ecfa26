/* winograd_inner.h - what winograd.c and winograd_weight.c share. */
#pragma once
#include "winograd.h"
#include "winograd_isa.h"

const struct winograd_isa *winograd_isa(void);        /* of this processor */

struct tiles { int64_t down, across, all; };          /* of an image; of all images */
struct place { int64_t image, y, x, n; };             /* where a run of tiles begins in the result, and how many */
struct tiles tiles_of(const struct window *w);
struct place place_of(const struct tiles *s, int64_t t, int64_t n);
int64_t      plane_of(int64_t tiles, int64_t channels);

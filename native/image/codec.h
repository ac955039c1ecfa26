/* codec.h - JPEG and PNG files in memory <-> pixels (bytes, red green blue[ alpha] or grey).
**
** Files that end early, have a wrong size in their header or are damaged within their pixels are
** refused with TY_EFORMAT before large memory is taken. Sixteen bits become their high byte;
** orientation tags are ignored; CMYK becomes RGB.
**
** Order of calls: image_measure fills in the size, the caller makes room, image_decode fills it.
*/
#pragma once
#include "image/image.h"

struct file_bytes { const uint8_t *data; size_t n; };

/* Measures a file. flag 0: grey, above 0: three channels, below 0: as stored (1, 3 or, with
** transparency, 4). Leaves out->p alone. */
int image_measure(struct file_bytes file, int flag, struct pixels *out);
/* Decodes a file into to->p, to->c channels. */
int image_decode(struct file_bytes file, const struct pixels *to);
void swap_red_blue(const struct pixels *a);

/* The codecs, one file each. measure gives the stored channels; encode adds the file to a text. */
bool jpeg_is(struct file_bytes file);
int  jpeg_measure(struct file_bytes file, struct pixels *out);
int  jpeg_decode(struct file_bytes file, const struct pixels *to);
int  jpeg_encode(const struct pixels *from, int quality, struct text *out);
bool png_is(struct file_bytes file);
int  png_measure(struct file_bytes file, struct pixels *out);
int  png_decode(struct file_bytes file, const struct pixels *to);
int  png_encode(const struct pixels *from, int level, struct text *out);

/* codec.h - decodes and encodes JPEG and PNG files in memory. Pixels are bytes: red, green, blue[,
** alpha], or grey.
**
** Files that end early, have a wrong size in their header or damaged pixels fail with TY_EFORMAT. A
** header alone cannot cause allocation of much more memory than the file has. 16-bit samples are
** reduced to their high byte; orientation tags are ignored; CMYK is converted to RGB.
**
** Order of calls: image_measure fills in the size, the caller allocates out->p, image_decode fills
** it.
*/
#pragma once
#include "image/image.h"

struct file_bytes { const uint8_t *data; size_t n; };

/* Finds the size of an image. flag 0: grey; above 0: three channels; below 0: the stored ones (1, 3
** or, with transparency, 4). Does not set out->p. */
int image_measure(struct file_bytes file, int flag, struct pixels *out);
/* Decodes a file into to->p, to->c channels. */
int image_decode(struct file_bytes file, const struct pixels *to);
/* Swaps red and blue in place. */
void swap_red_blue(const struct pixels *a);

/* The codecs. measure finds size and stored channels; encode appends the file to a text. */
bool jpeg_is(struct file_bytes file);
int  jpeg_measure(struct file_bytes file, struct pixels *out);
int  jpeg_decode(struct file_bytes file, const struct pixels *to);
int  jpeg_encode(const struct pixels *from, int quality, struct text *out);
bool png_is(struct file_bytes file);
int  png_measure(struct file_bytes file, struct pixels *out);
int  png_decode(struct file_bytes file, const struct pixels *to);
int  png_encode(const struct pixels *from, int level, struct text *out);

/* image.c - JPEG and PNG files (image/jpeg.c, image/png.c) through the augmenter of
** ImageRecordIter (io/augment.c). The first two bytes choose what is done.
*/
#include "fuzz.h"
#include "io/augment.h"
#include "tycho.h"

enum { MOST_PIXELS = 1 << 20 };                       /* larger images take too long here */

static const ty_attr GENTLE[] = { { "resize", "10" }, { "rand_crop", "True" },
  { "rand_mirror", "True" }, { "brightness", "0.3" } };
static const ty_attr ROUGH[] = { { "max_rotate_angle", "20" }, { "max_shear_ratio", "0.3" },
  { "max_aspect_ratio", "0.2" }, { "pad", "3" }, { "random_h", "30" }, { "random_s", "20" },
  { "pca_noise", "0.1" } };
static const ty_attr RESIZED[] = { { "random_resized_crop", "True" }, { "max_aspect_ratio", "1.3" },
  { "min_aspect_ratio", "0.7" }, { "max_random_area", "1.0" }, { "min_random_area", "0.1" } };

static void augment(struct file_bytes file, int how, int channels)
{
  static const struct options way[] = { { GENTLE, 4 }, { ROUGH, 7 }, { RESIZED, 5 } };
  ty_desc shape = { .dtype = TY_F32, .ndim = 3, .dim = { channels, 8, 8 } };
  struct augment a;
  struct workspace s = { 0 };
  struct rng rng = { .seed = 5, .sample = (uint64_t)how };
  float out[4 * 8 * 8];
  if (augment_open(&way[how % 3], &shape, TY_F32, &a)) return;
  augment_run(&a, file, &rng, &s, out);
  workspace_done(&s);
  augment_close(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size < 2) return 0;
  struct file_bytes file = { data + 2, size - 2 };
  struct pixels stored = { 0 };
  int flag = data[0] % 3 - 1;
  ty_tensor *image = NULL;
  fuzz_begin();
  bool small = !image_measure(file, flag, &stored) && stored.h * stored.w <= MOST_PIXELS;
  fuzz_end(size);
  if (!small) return 0;
  if (!ty_image_decode(file.data, file.n, flag, data[0] & 4, &image)) ty_tensor_free(image);
  augment(file, data[1], data[0] & 8 ? 1 : 3);
  return fuzz_end(size + (size_t)(stored.h * stored.w * 4));
}

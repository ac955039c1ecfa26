/* image_record.c - records of labelled images (io/image_record.c), with boxes as labels or without
** (io/det_augment.c). Three bytes say how, and how long the texts are that follow: a list of labels
** (io/label_list.c) and an index, each missing where it is empty; the rest is the record file.
*/
#include "readers.h"

enum { BOXES = 1, SHUFFLE = 2, WIDE = 4, HEAD = 3 };

/* The next n bytes, or what there is of them, as a file. */
static const char *piece(int slot, const uint8_t **at, size_t *left, size_t n)
{
  const size_t taken = MIN(n, *left);
  const char *path = taken ? fuzz_file(slot, *at, taken) : "";
  *at += taken;
  *left -= taken;
  return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size <= HEAD) return 0;
  const int how = data[0];
  const uint8_t *at = data + HEAD;
  size_t left = size - HEAD;
  const ty_attr attr[] = { { "path_imglist", piece(0, &at, &left, data[1]) },
    { "path_imgidx", piece(1, &at, &left, data[2]) }, { "path_imgrec", piece(2, &at, &left, left) },
    { "shuffle", how & SHUFFLE ? "True" : "False" }, { "data_shape", "(3, 8, 8)" },
    { "preprocess_threads", "1" }, { "rand_crop_prob", "0.5" }, { "rand_pad_prob", "0.5" },
    { "rand_mirror_prob", "0.5" }, { "max_pad_scale", "2" }, { "rand_mirror", "True" },
    { "label_width", how & WIDE ? "3" : how & BOXES ? "-1" : "1" } };
  fuzz_begin();
  read_all(how & BOXES ? &reader_image_det_record : &reader_image_record, attr, COUNT(attr));
  return fuzz_end(size * 1032);                           /* a byte of an image may be many */
}

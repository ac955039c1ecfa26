/* image_test.c - the threads of the image iterator: equal batches on any number of them, resets
** and ends at any time, damaged records in the middle. It must pass under ThreadSanitizer and
** AddressSanitizer.
*/
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "check.h"

enum { IMAGES = 37, HEADER = 24, BATCH = 5, EPOCHS = 3 };

static char path[] = "/tmp/tycho_image_XXXXXX";
static int64_t live_before;

static void put_record(ty_record *r, int number, bool damaged)
{
  ty_desc d = { .dtype = TY_U8, .device = TY_CPU, .ndim = 3, .dim = { 9 + number % 4, 11, 3 } };
  uint8_t pixels[12 * 11 * 3], record[4096] = { 0 };
  ty_tensor *image, *bytes;
  ty_desc size;
  float label = (float)number;
  for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 7 + (size_t)number * 31);
  RUN(ty_tensor_new(&d, &image));
  RUN(ty_tensor_write(image, pixels, (size_t)(d.dim[0] * 33)));
  RUN(ty_image_encode(image, number % 2 ? "jpeg" : "png", number % 2 ? 90 : 3, &bytes));
  RUN(ty_tensor_desc(bytes, &size));
  memcpy(record + 4, &label, sizeof label);
  RUN(ty_tensor_read(bytes, record + HEADER, (size_t)size.dim[0]));
  if (damaged) record[HEADER + 1] = 0;
  RUN(ty_record_write(r, record, HEADER + (size_t)size.dim[0]));
  ty_tensor_free(image);
  ty_tensor_free(bytes);
}

static void write_records(int damaged)
{
  ty_record *r;
  RUN(ty_record_open(path, "w", &r));
  for (int i = 0; i < IMAGES; i++) put_record(r, i, i == damaged);
  ty_record_close(r);
}

static ty_iter *open_images(const char *threads)
{
  ty_iter *it = NULL;
  const ty_attr attr[] = {
    { "path_imgrec", path },
    { "data_shape", "(3, 8, 8)" },
    { "batch_size", "5" },
    { "shuffle", "True" },
    { "seed", "3" },
    { "rand_crop", "True" },
    { "rand_mirror", "True" },
    { "brightness", "0.3" },
    { "max_rotate_angle", "10" },
    { "preprocess_threads", threads },
    { "round_batch", "True" },
    { "prefetch_buffer", "2" },
  };
  RUN(ty_iter_new("image_record", attr, sizeof attr / sizeof *attr, &it));
  return it;
}

/* A number that follows from all batches of some epochs. */
static uint64_t hash_epochs(ty_iter *it, int epochs)
{
  static uint8_t bytes[4 * BATCH * 3 * 64];
  uint64_t hash = 1469598103934665603u;
  for (int e = 0; e < epochs; e++) {
    for (int more = 1; more;) {
      ty_tensor *t;
      RUN(ty_iter_next(it, -1, &more));
      if (more != 1) break;
      RUN(ty_iter_data(it, 0, &t));
      RUN(ty_tensor_read(t, bytes, sizeof bytes));
      for (size_t i = 0; i < sizeof bytes; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    RUN(ty_iter_reset(it));
  }
  return hash;
}

static void test_any_number_of_threads(void)
{
  ty_iter *one = open_images("1");
  uint64_t want = hash_epochs(one, EPOCHS);
  ty_iter_free(one);
  for (int n = 2; n <= 8; n += 3) {
    char text[16];
    snprintf(text, sizeof text, "%d", n);
    ty_iter *it = open_images(text);
    CHECK(hash_epochs(it, EPOCHS) == want, "%d threads give other batches", n);
    ty_iter_free(it);
  }
}

static void test_resets_and_ends(void)
{
  for (int batches = 0; batches < 12; batches++) {
    ty_iter *it = open_images("4");
    int more = 1;
    for (int i = 0; i < batches && more; i++) RUN(ty_iter_next(it, -1, &more));
    RUN(ty_iter_reset(it));
    RUN(ty_iter_next(it, -1, &more));
    CHECK(more == 1, "no batch after a reset after %d", batches);
    ty_iter_free(it);
  }
}

static void test_damage(void)
{
  write_records(20);
  ty_iter *it = open_images("4");
  for (int e = 0; e < EPOCHS; e++) {
    int more = 1, code = TY_OK, n = 0;
    while (more == 1 && (code = ty_iter_next(it, -1, &more)) == TY_OK && more) n++;
    CHECK(code == TY_EFORMAT && n < 8, "status %d after %d batches", code, n);
    CHECK(strstr(ty_error(), path) != NULL, "the error does not name the file: %s", ty_error());
    RUN(ty_iter_reset(it));
  }
  ty_iter_free(it);
}

int main(void)
{
  close(mkstemp(path));
  live_before = ty_live("tensor");
  write_records(-1);
  test_any_number_of_threads();
  test_resets_and_ends();
  test_damage();
  CHECK(ty_live("tensor") == live_before, "tensors leak: %lld", (long long)ty_live("tensor"));
  CHECK(ty_live("iter") == 0, "iterators leak: %lld", (long long)ty_live("iter"));
  unlink(path);
  return check_end();
}

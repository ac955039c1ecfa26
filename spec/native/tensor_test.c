/* tensor_test.c - tensors: conversions of types, copies and views, files of arrays. */
#include <unistd.h>
#include "base/convert.h"
#include "floats.h"

static void test_conversion(void)
{
  float x[] = { -1.5f, 300.7f, NAN, INFINITY, 3e9f, 0 };
  uint8_t u8[6];
  int8_t i8[6];
  int32_t i32[6];
  int64_t i64[6];
  uint8_t b[6];
  uint16_t h[6];
  float back[6];
  dtype_convert(u8, TY_U8, x, TY_F32, 6);
  SURE(u8[0] == 255 && u8[1] == 44 && u8[2] == 0);
  dtype_convert(i8, TY_I8, x, TY_F32, 6);
  SURE(i8[0] == -1 && i8[1] == 44);
  dtype_convert(i32, TY_I32, x, TY_F32, 6);
  SURE(i32[0] == -1 && i32[1] == 300 && i32[2] == INT32_MIN && i32[3] == INT32_MIN &&
      i32[4] == INT32_MIN);
  dtype_convert(i64, TY_I64, x, TY_F32, 6);
  SURE(i64[2] == INT64_MIN && i64[3] == INT64_MIN && i64[4] == 3000000000);
  dtype_convert(b, TY_BOOL, x, TY_F32, 6);
  SURE(b[0] == 1 && b[2] == 1 && b[5] == 0);
  dtype_convert(h, TY_F16, i64, TY_I64, 2);
  dtype_convert(back, TY_F32, h, TY_F16, 2);
  SURE(back[0] == -1 && back[1] == 300);
  SURE(float_to_half(65520.0f) == 0x7c00 && float_to_half(65519.0f) == 0x7bff);
  SURE(float_to_half(0x1p-25f) == 0 && float_to_half(0x1.8p-25f) == 1);
  SURE(float_to_bf16(1.00390625f) == 0x3f80 && float_to_bf16(1.01171875f) == 0x3f82);
  for (uint32_t i = 0; i < 65536; i++) {
    float f = half_to_float((uint16_t)i);
    if (f == f && float_to_half(f) != i) SURE(!"half types do not survive a round trip");
  }
}

static void test_copies(void)
{
  ty_tensor *a = new_floats(TY_CPU, 8, 2.75f), *b, *view, *c;
  ty_desc d = { .dtype = TY_I32, .device = TY_CPU + 1, .ndim = 1, .dim = { 8 } };
  ty_desc four = { .dtype = TY_F32, .ndim = 1, .dim = { 4 } }, ints = four;
  int32_t got[8];
  RUN(ty_tensor_new(&d, &b));
  RUN(ty_tensor_copy(b, a));
  RUN(ty_tensor_read(b, got, sizeof got));
  SURE(got[7] == 2);
  ints.dtype = TY_I32;
  RUN(ty_tensor_view(a, &four, 16, &view));
  RUN(ty_tensor_view(a, &ints, 8, &c));
  RUN(ty_tensor_copy(c, view)); /* overlapping, another dtype */
  RUN(ty_tensor_read(c, got, 16));
  SURE(got[0] == 2 && got[3] == 2);
  SURE(ty_tensor_same(view, view) && !ty_tensor_same(view, c));
  SURE(ty_tensor_copy(a, view) == TY_ESHAPE && ty_tensor_read(a, got, 5) == TY_ESHAPE);
  SURE(ty_tensor_view(a, &four, 20, &c) == TY_EINDEX &&
      ty_tensor_view(a, &four, -4, &c) == TY_EINDEX);
  SURE(ty_tensor_view(a, &four, 1, &c) == TY_EINDEX);
  view->readonly = 1;
  SURE(ty_tensor_write(view, got, 16) == TY_ESTATE);
  ty_tensor_free(c);
  ty_tensor_free(view);
  ty_tensor_free(b);
  ty_tensor_free(a);
}

/* -- files ------------------------------------------------------------------------------------- */

static void check_loaded(ty_bag *b, ty_tensor *a)
{
  const char *name;
  ty_tensor *t;
  float x[3];
  RUN(ty_bag_at(b, 0, &name, &t));
  SURE(!strcmp(name, "arg:w") && desc_same_shape(&t->d, &a->d));
  RUN(ty_tensor_read(t, x, sizeof x));
  SURE(x[0] == 1.5f && x[2] == 1.5f);
  SURE(ty_bag_get(b, "aux:m", &t) == TY_OK && t->d.dtype == TY_I32);
  SURE(ty_bag_get(b, "none", &t) == TY_ENAME && ty_bag_at(b, 2, NULL, NULL) == TY_EINDEX);
}

static void test_files(void)
{
  char path[64], bytes[512];
  snprintf(path, sizeof path, "/tmp/queue_test_%ld.params", (long)getpid());
  ty_tensor *a = new_floats(TY_CPU, 3, 1.5f), *i;
  ty_desc d = { .dtype = TY_I32, .ndim = 2, .dim = { 2, 2 } };
  ty_bag *b, *again;
  int named;
  RUN(ty_tensor_new(&d, &i));
  RUN(ty_tensor_copy(i, i));
  RUN(ty_bag_new(&b));
  RUN(ty_bag_put(b, "arg:w", i));
  RUN(ty_bag_put(b, "aux:m", i));
  RUN(ty_bag_put(b, "arg:w", a)); /* replaces, in place */
  memset(tensor_at(i), 0, 16);
  RUN(ty_params_save(path, b, 1));
  RUN(ty_params_load(path, &again, &named));
  SURE(named == 1);
  check_loaded(again, a);
  ty_bag_free(again);
  FILE *f = fopen(path, "rb");
  size_t n = fread(bytes, 1, sizeof bytes, f);
  fclose(f);
  SURE(n == 24 + 44 + 56 + 8 + 26);
  for (size_t cut = 0; cut < n; cut++)
    SURE(ty_params_parse(bytes, cut, &again, &named) == TY_EFORMAT);
  SURE(ty_params_save("/nonexistent/x.params", b, 1) == TY_EIO);
  SURE(ty_params_load("/nonexistent", &again, &named) == TY_EIO);
  unlink(path);
  ty_bag_free(b);
  ty_tensor_free(a);
  ty_tensor_free(i);
}

int main(void)
{
  test_conversion();
  test_copies();
  test_files();
  SURE(ty_live("tensor") == 0 && ty_live("storage") == 0 && ty_live("bag") == 0);
  return check_end();
}

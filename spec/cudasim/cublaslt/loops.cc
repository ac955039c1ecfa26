/* loops.cc - the products themselves: column by column of the result, a vector of sums at once. */
#include <vector>
#include "product.h"
using namespace cudasim;

/* Writes op(A) of a batch to *out, column by column, in the type of the sums. */
template <class T>
static void pack_matrix(std::vector<T> *out, const Matrix &m, int64_t batch, bool tf32)
{
  out->resize((size_t)(m.rows * m.cols));
  const char *p = m.of(batch);
  size_t at = 0;
  for (int64_t j = 0; j < m.cols; j++)
    for (int64_t i = 0; i < m.rows; i++) {
      T v = (T)load_number(p, m.type, i * m.rs + j * m.cs);
      if (tf32) {                                     /* 10 bits of fraction, ties away from 0 */
        float f = (float)v;
        uint32_t u;
        memcpy(&u, &f, 4);
        if (isfinite(f)) u = (u + 0x1000) & ~0x1fffu;
        memcpy(&f, &u, 4);
        v = (T)f;
      }
      (*out)[at++] = v;
    }
}

static double compute_gelu(double x)
{
  return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
  double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
  double inner = 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
}

static bool get_bit(const char *bits, int64_t i) { return bits[i / 8] >> i % 8 & 1; }

static void set_bit(char *bits, int64_t i, bool on)
{
  char mask = (char)(1 << i % 8);
  bits[i / 8] = on ? (char)(bits[i / 8] | mask) : (char)(bits[i / 8] & ~mask);
}

/* Returns an element of the result after the epilogue, and writes what the epilogue keeps (aux). */
static double finish_element(const Product &p, double v, int64_t batch, int64_t row, int64_t col)
{
  int64_t at = batch * p.aux_stride + row + col * p.aux_ld;
  if (p.epilogue & BIAS) v += load_number(p.bias, p.bias_type, batch * p.bias_stride + row);
  /* as the library sets the mask: 1 for 0, though relu's gradient is 0 there, and 0 for NaN */
  if (p.epilogue & AUX && p.epilogue & RELU) set_bit(p.aux, at, v >= 0);
  if (p.epilogue & AUX && p.epilogue & GELU) store_number(p.aux, p.aux_type, at, v);
  if (p.epilogue & RELU) return v > 0 ? v : v != v ? v : 0;
  if (p.epilogue & GELU) return compute_gelu(v);
  if (p.epilogue & DRELU) return get_bit(p.aux, at) ? v : 0;
  if (p.epilogue & DGELU) return v * gelu_slope(load_number(p.aux, p.aux_type, at));
  return v;
}

/* Sums the rows or columns of a packed matrix: the gradient of a bias that was added to it. */
template <class T> static void sum_rows(const Product &p, const std::vector<T> &a, int64_t n)
{
  for (int64_t i = 0; i < n; i++) {
    T sum = 0;
    for (size_t at = (size_t)i; at < a.size(); at += (size_t)n) sum += a[at];
    store_number(p.bias, p.bias_type, i, (double)sum);
  }
}

template <class T> static void sum_columns(const Product &p, const std::vector<T> &b, int64_t n)
{
  for (size_t i = 0, at = 0; at < b.size(); i++) {
    T sum = 0;
    for (int64_t j = 0; j < n; j++) sum += b[at++];
    store_number(p.bias, p.bias_type, (int64_t)i, (double)sum);
  }
}

template <class T> static void multiply_by(const Product &p)
{
  int64_t m = p.d.rows, n = p.d.cols, depth = p.a.cols;
  double alpha = p.scales_on_device ? load_number(p.alpha, p.scale, 0) : p.by[0];
  double beta = p.scales_on_device ? load_number(p.beta, p.scale, 0) : p.by[1];
  bool tf32 = p.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && p.a.type == F32;
  std::vector<T> a, b, sums((size_t)m);
  std::vector<double> gradient((size_t)(p.epilogue & BIAS_GRADIENT ? m : 0));
  for (int64_t z = 0; z < p.d.batch; z++) {
    pack_matrix(&a, p.a, z, tf32);
    pack_matrix(&b, p.b, z, tf32);
    if (p.epilogue & SUM_A) sum_rows(p, a, m);
    if (p.epilogue & SUM_B) sum_columns(p, b, depth);
    for (int64_t j = 0; j < n; j++) {
      for (T &s : sums) s = 0;
      for (int64_t k = 0; k < depth; k++) {
        const T *column = &a[(size_t)(k * m)], y = b[(size_t)(j * depth + k)];
        for (int64_t i = 0; i < m; i++) sums[(size_t)i] += column[i] * y;
      }
      for (int64_t i = 0; i < m; i++) {
        double v = alpha * (double)sums[(size_t)i];
        if (beta != 0) v += beta * load_number(p.c.of(z), p.c.type, i * p.c.rs + j * p.c.cs);
        v = finish_element(p, v, z, i, j);
        if (p.epilogue & BIAS_GRADIENT) gradient[(size_t)i] += v;
        store_number(p.d.of(z), p.d.type, i * p.d.rs + j * p.d.cs, v);
      }
    }
  }
  for (size_t i = 0; i < gradient.size(); i++)
    store_number(p.bias, p.bias_type, (int64_t)i, gradient[i]);
}

void run_product(const Product &p)
{
  if (p.exact())
    multiply_by<int32_t>(p);
  else if (p.d.type == F64)
    multiply_by<double>(p);
  else
    multiply_by<float>(p);
}

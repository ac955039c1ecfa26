/* loops.h - LAPACK's routines by plain loops in double: matrices are columns first, A(i, j) is at
** a[j * ld + i]. Signs are LAPACK's. */
#pragma once
#include <algorithm>
#include <math.h>
#include <stddef.h>
#include <vector>

namespace cudasim {

/* a matrix of T as doubles, taken and given back */
template <class T> struct Columns {
  T *p;
  size_t ld;
  std::vector<double> x;
  int m, n;
  Columns(T *p, int m, int n, int ld) : p(p), ld((size_t)ld), x((size_t)m * n), m(m), n(n)
  {
    for (int j = 0; j < n; j++)
      for (int i = 0; i < m; i++) at(i, j) = p[j * this->ld + i];
  }
  double &at(int i, int j) { return x[(size_t)j * m + i]; }
  void give_back()
  {
    for (int j = 0; j < n; j++)
      for (int i = 0; i < m; i++) p[j * ld + i] = (T)at(i, j);
  }
};

/* Factors a in place. Returns the index of the first zero pivot, counted from 1, or 0. */
template <class T> int factor_lu(Columns<T> &a, int *pivot)
{
  int info = 0;
  for (int k = 0; k < a.n && k < a.m; k++) {
    int best = k;
    for (int i = k + 1; i < a.m; i++)
      if (fabs(a.at(i, k)) > fabs(a.at(best, k))) best = i;
    pivot[k] = best + 1;
    if (a.at(best, k) == 0) {
      if (!info) info = k + 1;
      continue;
    }
    for (int j = 0; best != k && j < a.n; j++) std::swap(a.at(k, j), a.at(best, j));
    for (int i = k + 1; i < a.m; i++) {
      a.at(i, k) /= a.at(k, k);
      for (int j = k + 1; j < a.n; j++) a.at(i, j) -= a.at(i, k) * a.at(k, j);
    }
  }
  return info;
}

/* Solves A x = b, or A' x = b, in place of b. */
template <class T> void lu_solve(Columns<T> &a, const int *pivot, Columns<T> &b, bool turned)
{
  int n = a.n;
  for (int c = 0; c < b.n; c++) {
    for (int k = 0; !turned && k < n; k++) std::swap(b.at(k, c), b.at(pivot[k] - 1, c));
    for (int i = 0; i < n; i++) {                     /* L, whose diagonal is 1, or U' */
      for (int k = 0; k < i; k++) b.at(i, c) -= (turned ? a.at(k, i) : a.at(i, k)) * b.at(k, c);
      if (turned) b.at(i, c) /= a.at(i, i);
    }
    for (int i = n - 1; i >= 0; i--) {
      for (int k = i + 1; k < n; k++)
        b.at(i, c) -= (turned ? a.at(k, i) : a.at(i, k)) * b.at(k, c);
      if (!turned) b.at(i, c) /= a.at(i, i);
    }
    for (int k = n - 1; turned && k >= 0; k--) std::swap(b.at(k, c), b.at(pivot[k] - 1, c));
  }
}

/* Computes the QR factors in place by Householder's reflections, as dgeqr2 does. */
template <class T> void factor_qr(Columns<T> &a, T *tau)
{
  for (int k = 0; k < a.n && k < a.m; k++) {
    double rest = 0, alpha = a.at(k, k);
    for (int i = k + 1; i < a.m; i++) rest += a.at(i, k) * a.at(i, k);
    tau[k] = 0;
    if (rest == 0) continue;
    double beta = -copysign(sqrt(alpha * alpha + rest), alpha), t = (beta - alpha) / beta;
    for (int i = k + 1; i < a.m; i++) a.at(i, k) /= alpha - beta;
    for (int j = k + 1; j < a.n; j++) {
      double sum = a.at(k, j);
      for (int i = k + 1; i < a.m; i++) sum += a.at(i, k) * a.at(i, j);
      a.at(k, j) -= t * sum;
      for (int i = k + 1; i < a.m; i++) a.at(i, j) -= t * sum * a.at(i, k);
    }
    a.at(k, k) = beta;
    tau[k] = (T)t;
  }
}

/* Makes the first n columns of the product of the reflections, in place. */
template <class T> void form_q(Columns<T> &a, const T *tau, int reflections)
{
  std::vector<double> v = a.x;
  auto of = [&](int i, int k) -> double {
    return i == k ? 1 : v[(size_t)k * a.m + i];
  };
  for (int j = 0; j < a.n; j++)
    for (int i = 0; i < a.m; i++) a.at(i, j) = i == j;
  for (int k = reflections - 1; k >= 0; k--)
    for (int j = 0; j < a.n; j++) {
      double sum = 0;
      for (int i = k; i < a.m; i++) sum += of(i, k) * a.at(i, j);
      for (int i = k; i < a.m; i++) a.at(i, j) -= tau[k] * sum * of(i, k);
    }
}

/* Computes eigenvectors as columns and ascending eigenvalues by Jacobi's rotations. Copies the
** triangle that `upper` names over the other one first. Returns 0, or the number of elements that
** the last of 60 sweeps still rotated. */
template <class T> int compute_eigen(Columns<T> &a, bool upper, T *values)
{
  int n = a.n, left = 0;
  std::vector<double> v((size_t)n * n);
  for (int j = 0; j < n; j++)
    for (int i = 0; i < j; i++) {
      double &low = a.at(j, i), &high = a.at(i, j);
      (upper ? low : high) = upper ? high : low;
    }
  for (int i = 0; i < n; i++) v[(size_t)i * n + i] = 1;
  for (int sweep = 0; sweep < 60; sweep++) {
    left = 0;
    for (int p = 0; p < n; p++)
      for (int q = p + 1; q < n; q++) {
        double g = a.at(p, q);
        if (fabs(g) <= 1e-300 || fabs(g) < 1e-18 * sqrt(fabs(a.at(p, p) * a.at(q, q)))) continue;
        left++;
        double theta = (a.at(q, q) - a.at(p, p)) / (2 * g);
        double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
        double c = 1 / sqrt(t * t + 1), s = t * c;
        for (int k = 0; k < n; k++) {
          double x = a.at(k, p), y = a.at(k, q);
          a.at(k, p) = c * x - s * y;
          a.at(k, q) = s * x + c * y;
        }
        for (int k = 0; k < n; k++) {
          double x = a.at(p, k), y = a.at(q, k);
          a.at(p, k) = c * x - s * y;
          a.at(q, k) = s * x + c * y;
          double &vx = v[(size_t)p * n + k], &vy = v[(size_t)q * n + k];
          double ux = vx, uy = vy;
          vx = c * ux - s * uy;
          vy = s * ux + c * uy;
        }
        a.at(p, q) = a.at(q, p) = 0;
      }
    if (!left) break;
  }
  std::vector<int> order(n);
  for (int i = 0; i < n; i++) order[i] = i;
  std::stable_sort(
      order.begin(), order.end(), [&](int i, int j) { return a.at(i, i) < a.at(j, j); });
  for (int j = 0; j < n; j++) values[j] = (T)a.at(order[j], order[j]);
  for (int j = 0; j < n; j++)
    for (int i = 0; i < n; i++) a.at(i, j) = v[(size_t)order[j] * n + i];
  return left;
}

}

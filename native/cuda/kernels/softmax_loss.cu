// softmax_loss.cu - the gradient of SoftmaxOutput, softmax_cross_entropy with its gradient, and the
// rows of _contrib_linear_cross_entropy. Method: one team per row. Bound: bytes, one read and one
// write.
#ifndef T
#include "prelude.cuh"
#define T float      // data
#define TO float     // softmax, or the gradient of data
#define LABEL i32
#define TEAM 32
#include "team.cuh"
#include "fault.cuh"
#endif

typedef computes<TO>::type C;
typedef accumulates<TO>::type A;

// Sizes. hit, other: subtracted from the probability of the label's class, and of other classes.
// ignores: whether rows whose label is `ignored` get zeros.
struct loss_args {
  i64 rows, k, inner, ignored;
  double scale, hit, other;
  i32 ignores;
};

// Computes the gradient of SoftmaxOutput with class numbers as labels, from the softmax p. valid:
// number of labels, which divides the scale; NULL: 1. head: head gradient; NULL: ones.
extern "C" __global__ void softmax_loss(TO *dx, const TO *p, const LABEL *label, const TO *head,
    const i64 *valid, const struct loss_args __grid_constant__ x)
{
  C scale = (C)(valid ? x.scale / (double)(*valid > 1 ? *valid : 1) : x.scale);
  EACH_ROW(row, x.rows)
  {
    i64 at = row_start(row, x.k, x.inner), l = get<i64>(label[row]);
    EACH_OF_TEAM(j, 0, x.k)
    {
      i64 e = at + j * x.inner;
      C d = (get<C>(p[e]) - (C)(j == l ? x.hit : x.other)) * scale;
      if (head) d *= get<C>(head[e]);
      set(dx[e], x.ignores && l == x.ignored ? 0 : d);
    }
  }
}

// Computes the gradient of SoftmaxOutput with probabilities as labels, element by element.
extern "C" __global__ void probability_loss(
    TO *dx, const TO *p, const LABEL *label, const TO *head, i64 n, C scale)
{
  EACH(i, n)
  {
    C d = (get<C>(p[i]) - get<C>(label[i])) * scale;
    set(dx[i], head ? d * get<C>(head[i]) : d);
  }
}

// Counts the labels other than the ignored one. Launch it as one team.
extern "C" __global__ void count_valid(i64 *valid, const LABEL *label, i64 n, i64 ignored)
{
  i64 count = 0;
  EACH_OF_TEAM(i, 0, n) count += get<i64>(label[i]) != ignored;
  count = team_sum(count);
  if (LEADS) *valid = count;
}

// Writes -log of the softmax at each row's label.
extern "C" __global__ void cross_entropy(
    double *loss, const T *x, const LABEL *label, i64 rows, i64 k)
{
  EACH_ROW(row, rows)
  {
    soft_row<C> s = soft_sums<A>(x + row * k, k, 1, (C)1);
    C p = exp_of(get<C>(x[row * k + index_at(label[row], k)]) - s.greatest) / s.total;
    if (LEADS) loss[row] = -log_of(p <= (C)1e-8 ? (double)1e-8 : (double)p);
  }
}

extern "C" __global__ void cross_entropy_back(
    TO *dx, const T *x, const LABEL *label, const T *head, i64 rows, i64 k)
{
  EACH_ROW(row, rows)
  {
    soft_row<C> s = soft_sums<A>(x + row * k, k, 1, (C)1);
    i64 hit = index_at(label[row], k);
    EACH_OF_TEAM(j, 0, k)
    {
      C p = exp_of(get<C>(x[row * k + j]) - s.greatest) / s.total;
      set(dx[row * k + j], (p - (C)(j == hit)) * get<C>(head[0]));
    }
  }
}

// Sizes. first: the index in `label` and `loss` of row 0.
struct entropy_args {
  i64 rows, k, first, ignored;
  double scale;
  i32 ignores, gradient;
};

// Writes the cross entropy of the softmax of each row of z to loss[first + row]. With `gradient`,
// also replaces z by the gradient. loss and valid may be NULL.
extern "C" __global__ void linear_entropy(TO *z, TO *loss, const LABEL *label, const i64 *valid,
    device_fault *fault, i64 op, i64 what, const struct entropy_args __grid_constant__ x)
{
  C scale = (C)(valid ? x.scale / (double)(*valid > 1 ? *valid : 1) : x.scale);
  EACH_ROW(row, x.rows)
  {
    i64 at = row * x.k, of = x.first + row, l = get<i64>(label[of]);
    bool ignored = x.ignores && l == x.ignored, bad = !ignored && (l < 0 || l >= x.k);
    if (bad && LEADS) report_index(fault, op, l, of, 0, x.k, BAD_LABEL, what);
    if ((ignored || bad) && loss && LEADS) set(loss[of], ignored ? (C)0 : (C)NAN);
    soft_row<C> s = soft_sums<A>(z + at, x.k, 1, (C)1);
    EACH_OF_TEAM(j, 0, x.k)
    {
      C v = get<C>(z[at + j]) - s.greatest;
      if (j == l && !ignored && loss) set(loss[of], log_of(s.total) - v);
      C g = ignored ? 0 : (exp_of(v) / s.total - (j == l)) * scale;
      if (x.gradient) set(z[at + j], g);
    }
  }
}

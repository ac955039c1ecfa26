// ctc.cu - CTCLoss (Graves et al., ICML 2006): log probabilities of all paths through the labels
// with blanks between them, forwards, then backwards with the gradient. Numbers are double, on a
// logarithmic scale. Method: one team per row of activations computes their log softmax; then one
// block per sample and one thread per state go through the steps. Bound: the steps, each with a
// barrier; bytes of the activations.
#ifndef T
#include "prelude.cuh"
#define T float
#define LABEL float
#define STEPS float  // type of the lengths of data; COUNT: of the lengths of labels
#define COUNT float
#define TEAM 256
#include "team.cuh"
#include "fault.cuh"
#endif

struct ctc_args { i64 steps, samples, classes, labels, first; };

extern "C" __global__ void log_rows(double *y, const T *x, i64 rows, i64 k)
{
  EACH_ROW(r, rows)
  {
    const T *from = x + r * k;
    soft_row<double> s = soft_sums<double>(from, k, 1, 1.0);
    double total = log(s.total) + s.greatest;
    EACH_OF_TEAM(j, 0, k) y[r * k + j] = get<double>(from[j]) - total;
  }
}

FN double log_add(double a, double b)
{
  double high = a > b ? a : b, low = a > b ? b : a;
  return low == -INFINITY ? high : high + log1p(exp(low - high));
}

// A sample. Its states alternate between the blank and a label.
struct ctc_sample {
  i64 steps, states, n;
  const double *log_y;
  const i64 *symbol;
  const ctc_args *s;
};
FN double log_at(const ctc_sample &c, i64 t, i64 k)
{
  return c.log_y[(t * c.s->samples + c.n) * c.s->classes + k];
}
FN double log_of_state(const ctc_sample &c, i64 t, i64 i) { return log_at(c, t, c.symbol[i]); }
FN i64 blank_of(const ctc_args &s) { return s.first ? 0 : s.classes - 1; }
// Returns whether a path may go from state i - 2 to i, skipping a blank between two different
// labels.
FN bool jumps(const ctc_sample &c, i64 i)
{
  return i >= 2 && c.symbol[i] != blank_of(*c.s) && c.symbol[i] != c.symbol[i - 2];
}

FN i64 label_count(const ctc_args &s, const LABEL *label, const COUNT *count, i64 n)
{
  if (count) return index_at(count[n], s.labels + 1);
  for (i64 i = 0; i < s.labels; i++) {
    i64 k = get<i64>(label[n * s.labels + i]);
    if (k == (s.first ? 0 : -1)) return i;
  }
  return s.labels;
}

// Returns whether a path exists: it needs a step for each label, and one for the blank between two
// equal labels.
FN bool fits(const ctc_sample &c)
{
  i64 need = c.states > 1 ? c.states / 2 : 1;
  for (i64 i = 3; i < c.states; i += 2) need += c.symbol[i] == c.symbol[i - 2];
  return need <= c.steps;
}

// Writes to a (steps, states) the log probability of all paths from the start to each state.
// Returns that of all complete paths.
FN double paths_forward(const ctc_sample &c, double *a)
{
  const i64 S = c.states;
  EACH_OF_TEAM(i, 0, S) a[i] = i < 2 ? log_of_state(c, 0, i) : -INFINITY;
  for (i64 t = 1; t < c.steps; t++) {
    const double *before = a + (t - 1) * S;
    __syncthreads();
    EACH_OF_TEAM(i, 0, S)
    {
      double v = before[i];
      if (i >= 1) v = log_add(v, before[i - 1]);
      if (jumps(c, i)) v = log_add(v, before[i - 2]);
      a[t * S + i] = v + log_of_state(c, t, i);
    }
  }
  __syncthreads();
  const double *end = a + (c.steps - 1) * S;
  return S > 1 ? log_add(end[S - 1], end[S - 2]) : end[0];
}

// Returns the log probability of all paths from state i at step t to the end. next: those of step t
// + 1.
FN double ways_to_end(const ctc_sample &c, const double *next, i64 t, i64 i)
{
  const i64 S = c.states;
  if (t == c.steps - 1) return i >= S - 2 ? 0 : -INFINITY;
  double v = next[i] + log_of_state(c, t + 1, i);
  if (i + 1 < S) v = log_add(v, next[i + 1] + log_of_state(c, t + 1, i + 1));
  if (i + 2 < S && jumps(c, i + 2)) v = log_add(v, next[i + 2] + log_of_state(c, t + 1, i + 2));
  return v;
}

// Returns the share of all paths that pass any state of the class of state i at a step, if i is the
// first state of its class; else 0.
FN double posterior(const ctc_sample &c, const double *a, const double *b, i64 i, double log_p)
{
  double sum = 0;
  for (i64 j = 0; j < i; j++)
    if (c.symbol[j] == c.symbol[i]) return 0;
  for (i64 j = i; j < c.states; j++)
    if (c.symbol[j] == c.symbol[i]) sum += exp(a[j] + b[j] - log_p);
  return sum;
}

FN void paths_backward(const ctc_sample &c, const double *a, double *b, double log_p, T *grad)
{
  const i64 S = c.states, A = c.s->classes;
  double *next = b + S;
  for (i64 t = c.s->steps - 1; t >= 0; t--) {
    T *to = grad + (t * c.s->samples + c.n) * A;
    bool live = t < c.steps;
    EACH_OF_TEAM(k, 0, A) set(to[k], live ? (T)exp(log_at(c, t, k)) : 0);
    if (!live) continue;
    EACH_OF_TEAM(i, 0, S) b[i] = ways_to_end(c, next, t, i);
    __syncthreads();
    EACH_OF_TEAM(i, 0, S)
    {
      double v = log_p > -INFINITY ? posterior(c, a + t * S, b, i, log_p) : 0;
      if (v != 0) to[c.symbol[i]] = (T)(exp(log_of_state(c, t, i)) - v);
    }
    __syncthreads();
    double *swap = b;
    b = next;
    next = swap;
  }
}

// Computes losses and gradients. work: for each sample a (steps, states), then b, next and symbols,
// each with as many numbers as the longest sample has states.
extern "C" __global__ void paths(T *loss, T *grad, const double *log_y, double *work,
    const LABEL *label, const STEPS *length, const COUNT *count, device_fault *fault, i64 op,
    i64 what, const struct ctc_args __grid_constant__ s)
{
  const i64 most = 2 * s.labels + 1;
  EACH_ROW(n, s.samples)
  {
    double *a = work + n * (s.steps + 3) * most, *b = a + s.steps * most;
    i64 *symbol = (i64 *)(b + 2 * most), steps = s.steps;
    if (length) steps = index_at(length[n], s.steps + 1);
    ctc_sample c = { steps, 2 * label_count(s, label, count, n) + 1, n, log_y, symbol, &s };
    EACH_OF_TEAM(i, 0, c.states)
    {
      i64 at = n * s.labels + i / 2, k = i % 2 ? get<i64>(label[at]) : blank_of(s);
      bool bad = k < 0 || k >= s.classes;
      if (bad) report_index(fault, op, k, at, 0, s.classes, BAD_LABEL, what);
      symbol[i] = bad ? 0 : k;
    }
    __syncthreads();
    bool path = fits(c);
    if (!path) c.steps = 0;
    double log_p = path ? paths_forward(c, a) : 0;
    if (LEADS && loss) set(loss[n], 0 - log_p);
    if (grad) paths_backward(c, a, b, log_p, grad);
    __syncthreads();
  }
}

// Multiplies rows (steps, samples) by the head gradient of their sample.
extern "C" __global__ void scale_rows(T *dx, const T *grad, const T *g, i64 n, i64 samples, i64 k)
{
  EACH(i, n) set(dx[i], grad[i] * g[i / k % samples]);
}

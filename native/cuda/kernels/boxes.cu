// boxes.cu - detection: overlaps, greedy suppression, pairs, offsets from anchors and back, anchors
// of cells, targets of anchors. Boxes and overlaps are computed by kernel/element/boxes.h, and all
// choices equal the CPU's. Method: one thread per box or pair; candidates for a choice by score are
// sorted first (sort.cu), with equal scores in their order. Then one block per sample walks through
// the sorted boxes, and its threads compare the current one with those after it. Bound: for
// suppression, the square of the number of boxes over the threads; for pairs, their number.
#ifndef T
#include "prelude.cuh"
#include "kernel/element/boxes.h"
#define T float
#define TEAM 256
#include "team.cuh"
#include "keys.cuh"
#endif

FN struct metric metric_of() { return { sizeof(T) == 4, 0 }; }
FN void read4(const T *x, double (&v)[4])
{
  for (int k = 0; k < 4; k++) v[k] = x[k];
}
FN struct box box_at(const T *x, int form)
{
  struct metric m = metric_of();
  double v[4];
  read4(x, v);
  return box_of(&m, v, form);
}
FN double overlap_of(const struct box &a, const struct box &b)
{
  struct metric m = metric_of();
  return box_overlap(&m, &a, &b);
}
FN double held_here(double v)
{
  struct metric m = metric_of();
  return box_held(&m, v);
}

// -- overlaps, offsets ----------------------------------------------------------------------------

extern "C" __global__ void overlaps(T *y, const T *a, const T *b, i64 count, i64 n, i32 form)
{
  EACH(i, count)
    set(y[i], (T)overlap_of(box_at(a + i / n * 4, form), box_at(b + i % n * 4, form)));
}

extern "C" __global__ void encode(T *to, T *mask, const T *sample, const T *match,
    const T *anchor, const T *object, const T *mean, const T *std, i64 count, i64 anchors,
    i64 objects)
{
  EACH(i, count)
  {
    double v[4], of[4], means[4], stds[4], offset[4] = { 0, 0, 0, 0 };
    i64 k = get<i64>(match[i]);
    bool valid = sample[i] > (T)0.5 && k >= 0 && k < objects;
    if (valid) {
      read4(anchor + 4 * i, v);
      read4(object + 4 * (i / anchors * objects + k), of);
      read4(mean, means);
      read4(std, stds);
      box_encode(v, of, means, stds, offset);
    }
    for (int j = 0; j < 4; j++) {
      if (to) set(to[4 * i + j], offset[j]);
      if (mask) mask[4 * i + j] = valid;
    }
  }
}

struct decode_args { i64 count, anchors; double std[4], limit; i64 form; };
extern "C" __global__ void decode(
    T *to, const T *x, const T *anchor, const struct decode_args __grid_constant__ s)
{
  EACH(i, s.count)
  {
    double v[4], by[4], corner[4], middle[2], size[2];
    read4(anchor + i % s.anchors * 4, v);
    read4(x + 4 * i, by);
    if (s.form == CORNER)
      box_middle(v, middle, size);
    else
      for (int k = 0; k < 2; k++) {
        middle[k] = v[k];
        size[k] = v[k + 2];
      }
    box_decode(middle, size, by, s.std, s.limit, corner);
    for (int k = 0; k < 4; k++) to[4 * i + k] = (T)corner[k];
  }
}

// -- suppression ----------------------------------------------------------------------------------

struct nms_args {
  i64 samples, n, width, topk, box, score, kind, background, force, form, out_form;
  double valid, limit;
};

// Writes a key by score for each box; ~0 for boxes that take no part in the suppression.
extern "C" __global__ void nms_keys(
    sort_key *keys, const T *x, const struct nms_args __grid_constant__ s)
{
  const double valid = held_here(s.valid);
  EACH(i, s.samples * s.n)
  {
    const T *row = x + i * s.width;
    double score = row[s.score];
    bool part = score > valid;
    if (part && s.kind >= 0) part = (double)row[s.kind] != (double)s.background;
    keys[i] = { part ? best_first(score) : ~0ULL, i % s.n };
  }
}

// Returns how many of a sample's n sorted keys take part, that is, are not ~0.
FN i64 taking_part(const sort_key *keys, i64 n)
{
  i64 low = 0, high = n;
  while (low < high) {
    i64 middle = (low + high) / 2;
    if (keys[middle].key != ~0ULL)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Writes row `from` of x as row `to` of the result, in the requested form. A box whose first
// coordinate is below 0 marks an empty row and is not converted.
FN void write_row(T *y, i32 *record, const T *x, i64 to, i64 from, const nms_args &s)
{
  if (LEADS && record) record[to] = (i32)from;
  if (!y) return;
  EACH_OF_TEAM(j, 0, s.width)
    if (j < s.box || j >= s.box + 4) y[to * s.width + j] = x[from * s.width + j];
  if (!LEADS) return;
  double v[4];
  read4(x + from * s.width + s.box, v);
  if (s.form != s.out_form && !(v[0] < 0)) box_reform(v, (int)s.out_form);
  for (int k = 0; k < 4; k++) y[to * s.width + s.box + k] = (T)v[k];
}

// Suppresses boxes that overlap one with a higher score. gone: scratch, one number per box,
// initially 0. y and record may be NULL.
extern "C" __global__ void nms(T *y, i32 *record, const T *x, const sort_key *keys, i32 *gone,
    const struct nms_args __grid_constant__ s)
{
  const double limit = held_here(s.limit);
  EACH_ROW(b, s.samples)
  {
    const sort_key *order = keys + b * s.n;
    const T *from = x + b * s.n * s.width;
    T *to = y ? y + b * s.n * s.width : y;
    i32 *which = record ? record + b * s.n : record;
    i32 *out = gone + b * s.n;
    i64 n = taking_part(order, s.n), rows = 0;
    if (s.topk >= 0 && n > s.topk) n = s.topk;
    for (i64 i = 0; i < n; i++) {
      __syncthreads();
      if (out[i]) continue;
      const T *best = from + order[i].index * s.width;
      struct box own = box_at(best + s.box, (int)s.form);
      write_row(to, which, from, rows++, order[i].index, s);
      EACH_OF_TEAM(j, i + 1, n)
      {
        const T *other = from + order[j].index * s.width;
        if (out[j]) continue;
        if (s.kind >= 0 && !s.force && trunc((double)best[s.kind]) != trunc((double)other[s.kind]))
          continue;
        out[j] = overlap_of(own, box_at(other + s.box, (int)s.form)) > limit;
      }
    }
    EACH_OF_TEAM(j, rows * s.width, s.n * s.width)
      if (to) to[j] = -1;
    EACH_OF_TEAM(j, rows, s.n)
      if (which) which[j] = -1;
  }
}

// Writes to `record` the index of each row in its sample, for topk 0, which keeps all rows in
// place.
extern "C" __global__ void number_rows(i32 *record, i64 count, i64 n)
{
  EACH(i, count) record[i] = (i32)(i % n);
}

extern "C" __global__ void nms_back(
    T *dx, const T *g, const i32 *record, i64 count, i64 n, i64 width)
{
  EACH(i, count)
  {
    i64 row = i / width, from = record[row];
    if (from >= 0) dx[(row / n * n + from) * width + i % width] = g[i];
  }
}

// -- pairs ----------------------------------------------------------------------------------------

struct match_args { i64 samples, rows, columns, ascend, topk; double threshold; };

extern "C" __global__ void match_keys(
    sort_key *keys, const T *x, const struct match_args __grid_constant__ s)
{
  const i64 n = s.rows * s.columns;
  EACH(i, s.samples * n) keys[i] = { best_first(s.ascend ? -(double)x[i] : (double)x[i]), i % n };
}

// Pairs rows with columns, the best number first; one thread per sample. Unpaired ones get -1.
extern "C" __global__ void match(T *row, T *column, const T *x, const sort_key *keys,
    const struct match_args __grid_constant__ s)
{
  const i64 n = s.rows * s.columns;
  const double threshold = held_here(s.threshold);
  EACH(k, s.samples)
  {
    T *a = row + k * s.rows, *b = column + k * s.columns;
    i64 found = 0;
    for (i64 i = 0; i < s.rows; i++) a[i] = -1;
    for (i64 i = 0; i < s.columns; i++) b[i] = -1;
    for (i64 i = 0; i < n; i++) {
      i64 at = keys[k * n + i].index, r = at / s.columns, c = at % s.columns;
      double v = x[k * n + at];
      if (a[r] >= 0 || b[c] >= 0) continue;
      if (!(s.ascend ? v < threshold : v > threshold)) break;
      a[r] = (T)c;
      b[c] = (T)r;
      if (++found > s.topk && s.topk > 0) break;
    }
  }
}

// -- anchors of cells -----------------------------------------------------------------------------

struct prior_args {
  i64 h, w, sizes, ratios, clip;
  double step[2], offset[2], size[128], ratio[128];
};
extern "C" __global__ void priors(T *y, const struct prior_args __grid_constant__ s)
{
  const i64 n = s.sizes + s.ratios - 1;
  EACH(i, s.h * s.w * n)
  {
    i64 k = i % n, cell = i / n;
    double middle[2] = { ((double)(cell % s.w) + s.offset[1]) * s.step[1],
      ((double)(cell / s.w) + s.offset[0]) * s.step[0] };
    double size = s.size[k < s.sizes ? k : 0];
    double root = sqrt(s.ratio[k < s.sizes ? 0 : k - s.sizes + 1]);
    double half[2] = { size * (double)s.h / (double)s.w * root / 2, size / root / 2 };
    for (int j = 0; j < 4; j++) {
      double v = j < 2 ? middle[j] - half[j] : middle[j - 2] + half[j - 2];
      if (s.clip) v = v < 0 ? 0 : v > 1 ? 1 : v;
      set(y[4 * i + j], v);
    }
  }
}

// -- targets of anchors ---------------------------------------------------------------------------

struct target_args {
  i64 samples, anchors, objects, width, classes;
  double overlap, ignore, ratio, mining, variance[4];
};
enum { UNDECIDED, NEGATIVE, POSITIVE };
// An anchor's match: its largest overlap, -1 if it has none, and the object that it overlaps.
struct anchor_match { double best; i32 object, state; };

FN i64 count_objects(const T *label, const target_args &s)
{
  i64 n = 0;
  while (n < s.objects && label[n * s.width] != -1) n++;
  return n;
}

// Matches the pair of a free anchor and a free object with the largest overlap, repeatedly until no
// such pair overlaps. Returns the number of pairs.
FN i64 match_pairs(anchor_match *match, const double *overlap, i32 *matched, i64 objects,
    const target_args &s)
{
  i64 n = 0;
  EACH_OF_TEAM(g, 0, objects) matched[g] = 0;
  for (;; n++) {
    double most = 1e-6;
    i64 at = -1;
    __syncthreads();
    EACH_OF_TEAM(a, 0, s.anchors)
      for (i64 g = 0; g < objects && match[a].state != POSITIVE; g++) {
        double v = overlap[a * s.objects + g];
        if (matched[g] || !(v > most)) continue;
        most = v;
        at = a * s.objects + g;
      }
    double greatest = team_max(most);
    at = team_least(at >= 0 && most == greatest ? at : highest(i64()));
    if (at == highest(i64())) return n;
    __syncthreads();
    if (LEADS) {
      match[at / s.objects].state = POSITIVE;
      match[at / s.objects].object = (i32)(at % s.objects);
      matched[at % s.objects] = 1;
    }
  }
}

// Returns the probability of the background, class 0 of the softmax over the scores.
FN double background(const T *score, const target_args &s)
{
  double most = -INFINITY, sum = 0;
  for (i64 k = 0; k < s.classes; k++) most = fmax(most, (double)score[k * s.anchors]);
  for (i64 k = 0; k < s.classes; k++) sum += exp((double)score[k * s.anchors] - most);
  return exp((double)score[0] - most) / sum;
}

// Matches anchors with objects. overlap: scratch (samples, anchors, objects). Writes keys of the
// anchors that may become negatives, in rising order of their background probability, and to
// `wanted` how many negatives are needed.
extern "C" __global__ void match_anchors(anchor_match *match, sort_key *keys, i64 *wanted,
    double *overlap, i32 *matched, const T *anchor, const T *label, const T *score,
    const struct target_args __grid_constant__ s)
{
  const double near = held_here(s.overlap), limit = held_here(s.mining);
  EACH_ROW(n, s.samples)
  {
    const T *truth = label + n * s.objects * s.width;
    anchor_match *own = match + n * s.anchors;
    double *by = overlap + n * s.anchors * s.objects;
    i64 objects = count_objects(truth, s);
    EACH_OF_TEAM(a, 0, s.anchors)
    {
      struct box b = box_at(anchor + 4 * a, CORNER);
      own[a] = { -1, -1, UNDECIDED };
      for (i64 g = 0; g < objects; g++) {
        double v = overlap_of(b, box_at(truth + g * s.width + 1, CORNER));
        by[a * s.objects + g] = v;
        if (v > own[a].best) own[a] = { v, (i32)g, UNDECIDED };
      }
    }
    i64 pairs = match_pairs(own, by, matched + n * s.objects, objects, s), positives = 0;
    __syncthreads();
    EACH_OF_TEAM(a, 0, s.anchors)
    {
      if (near > 0 && own[a].state != POSITIVE && own[a].best > near) {
        own[a].state = POSITIVE;
        positives++;
      }
      bool free = own[a].state != POSITIVE, may = free && own[a].best < limit && objects;
      if (!(s.ratio > 0) && free) own[a].state = NEGATIVE;
      const T *of = score + n * s.classes * s.anchors + a;
      keys[n * s.anchors + a] = { s.ratio > 0 && may ? best_first(-background(of, s)) : ~0ULL, a };
    }
    positives = team_sum(positives) + pairs;
    double most = (double)positives * s.ratio;
    if (LEADS)
      wanted[n] = most < (double)(s.anchors - positives) ? (i64)most : s.anchors - positives;
  }
}

extern "C" __global__ void mine_negatives(anchor_match *match, const sort_key *keys,
    const i64 *wanted, const struct target_args __grid_constant__ s)
{
  EACH(i, s.samples * s.anchors)
  {
    i64 n = i / s.anchors;
    if (keys[i].key != ~0ULL && i % s.anchors < wanted[n])
      match[n * s.anchors + keys[i].index].state = NEGATIVE;
  }
}

// Writes the targets of each anchor. offsets, mask, kind: NULL where unused.
extern "C" __global__ void write_targets(T *offsets, T *mask, T *kind, const anchor_match *match,
    const T *anchor, const T *label, const struct target_args __grid_constant__ s)
{
  const double none[4] = { 0, 0, 0, 0 };
  EACH(i, s.samples * s.anchors)
  {
    const T *truth = label + i / s.anchors * s.objects * s.width;
    bool any = s.objects && truth[0] != -1, positive = any && match[i].state == POSITIVE;
    double to[4] = { 0, 0, 0, 0 }, from[4], object[4], id = s.ignore;
    if (positive) {
      const T *row = truth + match[i].object * s.width;
      read4(anchor + i % s.anchors * 4, from);
      read4(row + 1, object);
      box_encode(from, object, none, s.variance, to);
      id = (double)row[0] + 1;
    }
    else if (any && match[i].state == NEGATIVE)
      id = 0;
    for (int k = 0; k < 4; k++) {
      if (offsets) set(offsets[4 * i + k], to[k]);
      if (mask) mask[4 * i + k] = positive;
    }
    if (kind) kind[i] = (T)id;
  }
}

// -- detections -----------------------------------------------------------------------------------

struct detection_args {
  i64 samples, anchors, classes, clip, force, topk;
  double threshold, limit, variance[4];
};
struct detection { double id, score, corner[4]; };

// Writes each anchor as a detection, its key by score to `best`, and its key in the order of
// anchors to `found`.
extern "C" __global__ void find_objects(detection *all, sort_key *best, sort_key *found,
    const T *score, const T *offset, const T *anchor,
    const struct detection_args __grid_constant__ s)
{
  const double threshold = held_here(s.threshold);
  EACH(i, s.samples * s.anchors)
  {
    i64 a = i % s.anchors;
    const T *of = score + i / s.anchors * s.classes * s.anchors + a;
    detection d = { -1, -1, { 0, 0, 0, 0 } };
    double from[4], by[4], middle[2], size[2];
    for (i64 k = 1; k < s.classes; k++)
      if ((double)of[k * s.anchors] > d.score) {
        d.score = of[k * s.anchors];
        d.id = (double)(k - 1);
      }
    bool part = !(d.id < 0 || d.score < threshold);
    read4(anchor + 4 * a, from);
    read4(offset + 4 * i, by);
    box_middle(from, middle, size);
    box_decode(middle, size, by, s.variance, 0, d.corner);
    for (int k = 0; k < 4; k++) {
      double v = held_here(d.corner[k]);
      d.corner[k] = !s.clip ? v : v > 1 ? 1 : v < 0 ? 0 : v;
    }
    all[i] = d;
    best[i] = { part ? best_first(d.score) : ~0ULL, a };
    found[i] = { part ? 0 : ~0ULL, a };
  }
}

FN void write_detection(T *y, const detection &d, bool kept)
{
  y[0] = kept ? (T)d.id : -1;
  set(y[1], d.score);
  for (int k = 0; k < 4; k++) y[2 + k] = (T)d.corner[k];
}

// Writes the detections of each sample: the best first, sorted; then the others in the order of
// anchors, with id -1.
extern "C" __global__ void detect(T *y, const detection *all, const sort_key *best,
    const sort_key *found, i32 *gone, const struct detection_args __grid_constant__ s)
{
  const double limit = held_here(s.limit);
  const bool sorts = s.limit > 0 && s.limit <= 1;
  struct metric m = metric_of();
  EACH_ROW(b, s.samples)
  {
    const sort_key *order = best + b * s.anchors, *list = found + b * s.anchors;
    const detection *own = all + b * s.anchors;
    i32 *out = gone + b * s.anchors;
    T *to = y + b * s.anchors * 6;
    i64 n = taking_part(list, s.anchors), keep = !sorts ? 0 : s.topk > 0 && s.topk < n ? s.topk : n;
    for (i64 i = 0; i < keep; i++) {
      __syncthreads();
      if (out[i]) continue;
      const detection &d = own[order[i].index];
      struct box first = box_of(&m, d.corner, CORNER);
      EACH_OF_TEAM(j, i + 1, keep)
      {
        const detection &other = own[order[j].index];
        if (out[j] || (!s.force && d.id != other.id)) continue;
        out[j] = overlap_of(first, box_of(&m, other.corner, CORNER)) >= limit;
      }
    }
    __syncthreads();
    EACH_OF_TEAM(i, 0, s.anchors)
    {
      if (i < keep)
        write_detection(to + 6 * i, own[order[i].index], !out[i]);
      else if (i < n)
        write_detection(to + 6 * i, own[list[i].index], !sorts);
      else
        for (int k = 0; k < 6; k++) to[6 * i + k] = -1;
    }
  }
}

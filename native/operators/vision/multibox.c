/* multibox.c - single-shot detection: anchors (MultiBoxPrior), training targets for each anchor
** (MultiBoxTarget), and boxes from a network's outputs (MultiBoxDetection).
**
** Corners x1 y1 x2 y2 are fractions of the image. Class 0 of a network's output is the background;
** object class k is class k + 1 there. A box is encoded relative to an anchor: the offset of its
** centre, in units of the anchor's size, and the logarithm of the ratio of the sizes, each divided
** by its variance.
** Source: Liu et al., "SSD: Single Shot MultiBox Detector", ECCV 2016.
*/
#include "op/op.h"
#include "operators/vision/boxes.h"

/* -- anchors ----------------------------------------------------------------------------------- */

struct prior_param { struct reals sizes, ratios, steps, offsets; int64_t clip; };
static const struct param prior_params[] = {
  { "sizes",   P_FLOATS, offsetof(struct prior_param, sizes),   "[1]", "heights of the anchors" },
  { "ratios",  P_FLOATS, offsetof(struct prior_param, ratios),  "[1]",
    "width by height: all sizes have the first, the first size has all" },
  { "clip",    P_BOOL,   offsetof(struct prior_param, clip),    "0",   "corners are kept in 0 .. 1" },
  { "steps",   P_FLOATS, offsetof(struct prior_param, steps),   "[-1,-1]", "distance of cells, y and x; -1: an even grid" },
  { "offsets", P_FLOATS, offsetof(struct prior_param, offsets), "[0.5,0.5]", "centre in a cell, y and x" },
  { 0 }
};

static int prior_check(void *param)
{
  const struct prior_param *p = param;
  NEED(p->sizes.n > 0 && p->ratios.n > 0, TY_EVALUE,
      "sizes, ratios: expected at least one number each");
  NEED(p->steps.n == 2 && p->offsets.n == 2, TY_EVALUE,
      "steps, offsets: expected two numbers, y and x");
  NEED(p->steps.d[0] * p->steps.d[1] >= 0, TY_EVALUE,
      "parameter steps: expected both or neither, got %g and %g", p->steps.d[0], p->steps.d[1]);
  for (int i = 0; i < p->ratios.n; i++)
    NEED(p->ratios.d[i] > 0, TY_EVALUE, "parameter ratios: expected numbers above 0, got %g",
        p->ratios.d[i]);
  return TY_OK;
}

static int prior_shape(struct infer *s)
{
  const struct prior_param *p = s->param;
  const ty_desc *d = &s->in[0];
  TRY(shape_rank(s, &s->in[0], 4, "(batch, channels, height, width)"));
  if (!d->ndim) return TY_OK;
  int64_t out[3] = { 1, d->dim[2] * d->dim[3] * (p->sizes.n + p->ratios.n - 1), 4 };
  return shape_is(s, &s->out[0], 3, out);
}

struct prior {
  const struct prior_param *p;
  const struct vec_ops *r;
  void   *y;
  int64_t width;
  int64_t n;                                          /* anchors per cell */
  double  step[2];                                    /* y, x */
  double  half[256][2];                               /* half width and half height */
};

/* Computes half width and half height of each prior, as parts of the image's width and height. */
static void prior_sizes(struct prior *k, int64_t h, int64_t w)
{
  const struct prior_param *p = k->p;
  k->n = p->sizes.n + p->ratios.n - 1;
  for (int64_t i = 0; i < k->n; i++) {
    double size = p->sizes.d[i < p->sizes.n ? i : 0],
           root = sqrt(p->ratios.d[i < p->sizes.n ? 0 : i - p->sizes.n + 1]);
    k->half[i][0] = size * (double)h / (double)w * root / 2;
    k->half[i][1] = size / root / 2;
  }
}

static void prior_body(int64_t begin, int64_t end, void *context)
{
  const struct prior *k = context;
  for (int64_t cell = begin; cell < end; cell++) {
    double y = ((double)(cell / k->width) + k->p->offsets.d[0]) * k->step[0];
    double x = ((double)(cell % k->width) + k->p->offsets.d[1]) * k->step[1];
    for (int64_t i = 0; i < k->n; i++) {
      const double *half = k->half[i];
      double corner[4] = { x - half[0], y - half[1], x + half[0], y + half[1] };
      for (int j = 0; j < 4 && k->p->clip; j++) corner[j] = MIN(MAX(corner[j], 0), 1);
      k->r->store(vec_at(k->r, k->y, (cell * k->n + i) * 4), corner, 4);
    }
  }
}

static int prior_forward(struct call *c)
{
  const struct prior_param *p = c->param;
  int64_t h = c->in[0].d.dim[2], w = c->in[0].d.dim[3];
  bool given = p->steps.d[0] > 0 && p->steps.d[1] > 0;
  struct prior k = { p, vec_ops_of(c->out[0].d.dtype), c->out[0].p, w, 0,
    { given ? p->steps.d[0] : 1.0 / (double)h, given ? p->steps.d[1] : 1.0 / (double)w },
    { { 0 } } };
  prior_sizes(&k, h, w);
  parallel_for(h * w, elements_ns(16 * k.n), prior_body, &k);
  return TY_OK;
}

/* -- targets ----------------------------------------------------------------------------------- */

struct target_param {
  double  overlap_threshold, ignore_label, negative_mining_ratio, negative_mining_thresh;
  int64_t minimum_negative_samples;
  struct reals variances;
};
static const struct param target_params[] = {
  { "overlap_threshold", P_FLOAT, offsetof(struct target_param, overlap_threshold), "0.5",
    "an anchor that overlaps an object by more than this is positive, besides the best anchor of each object" },
  { "ignore_label", P_FLOAT, offsetof(struct target_param, ignore_label), "-1", "class of the anchors that are neither" },
  { "negative_mining_ratio", P_FLOAT, offsetof(struct target_param, negative_mining_ratio), "-1",
    "as many negatives per positive, those least sure to be background; -1: all others" },
  { "negative_mining_thresh", P_FLOAT, offsetof(struct target_param, negative_mining_thresh), "0.5",
    "a negative that is chosen overlaps every object by less than this" },
  { "minimum_negative_samples", P_INT, offsetof(struct target_param, minimum_negative_samples), "0", "without effect" },
  { "variances", P_FLOATS, offsetof(struct target_param, variances), "[0.1,0.1,0.2,0.2]", "of x, y, width, height" },
  { 0 }
};

static int target_check(void *param)
{
  const struct target_param *p = param;
  NEED(p->variances.n == 4, TY_EVALUE, "parameter variances: expected four numbers, got %lld",
      (long long)p->variances.n);
  return TY_OK;
}

static int target_shape(struct infer *s)
{
  ty_desc *anchor = &s->in[0], *label = &s->in[1], *pred = &s->in[2];
  TRY(shape_rank(s, anchor, 3, "(1, anchors, 4)"));
  TRY(shape_rank(s, label, 3, "(batch, objects, 5 or more)"));
  TRY(shape_rank(s, pred, 3, "(batch, classes, anchors)"));
  if (label->ndim && label->dim[2] && label->dim[2] < 5)
    return infer_fail(s, TY_ESHAPE, label,
        "expected class and four corners per object, got %lld numbers", (long long)label->dim[2]);
  if (anchor->ndim) TRY(shape_dim(s, anchor, 0, 1));
  if (anchor->ndim) TRY(shape_dim(s, anchor, 2, 4));
  if (pred->ndim && pred->dim[1] == 1)
    return infer_fail(s, TY_ESHAPE, pred, "expected the background and at least one class");
  if (anchor->ndim && pred->ndim) {
    TRY(shape_dim(s, pred, 2, anchor->dim[1]));
    TRY(shape_dim(s, anchor, 1, pred->dim[2]));
  }
  if (label->ndim && pred->ndim) {
    TRY(shape_dim(s, pred, 0, label->dim[0]));
    TRY(shape_dim(s, label, 0, pred->dim[0]));
  }
  int64_t batch = label->ndim ? label->dim[0] : 0, anchors = anchor->ndim ? anchor->dim[1] : 0;
  int64_t offsets[2] = { batch, 4 * anchors }, class[2] = { batch, anchors };
  for (int i = 0; i < 2; i++) TRY(shape_is(s, &s->out[i], 2, offsets));
  return shape_is(s, &s->out[2], 2, class);
}

enum { UNDECIDED, NEGATIVE, POSITIVE };
struct matching {                                       /* one sample */
  const struct target_param *p;
  const struct vec_ops *r;
  struct metric m;
  int64_t anchors;
  int64_t objects;                                    /* rows of label before the padding */
  int64_t width, classes;
  const void *anchor, *label, *pred;
  double  *overlap;                                   /* (anchors, objects) */
  double  *best;                                      /* largest overlap of each anchor */
  int64_t *object;                                    /* object of each anchor; -1: none */
  struct box *truth;
  struct sort_key *order;                                  /* 2 anchors; half is scratch */
  uint8_t *state, *matched;
};

/* Computes the overlaps of all anchors and objects, and the best object of each anchor. */
static void overlap_all(struct matching *t)
{
  for (int64_t g = 0; g < t->objects; g++)
    t->truth[g] = box_at(t->r, &t->m, t->label, g * t->width + 1, CORNER);
  for (int64_t a = 0; a < t->anchors; a++) {
    struct box b = box_at(t->r, &t->m, t->anchor, 4 * a, CORNER);
    t->best[a] = -1;
    t->object[a] = -1;
    t->state[a] = UNDECIDED;
    for (int64_t g = 0; g < t->objects; g++) {
      double v = t->overlap[a * t->objects + g] = box_overlap(&t->m, &b, &t->truth[g]);
      if (v > t->best[a]) t->best[a] = v, t->object[a] = g;
    }
  }
}

/* Matches the free anchor and the free object that overlap most, until no such pair overlaps by
** more than 1e-6. Returns the number of pairs. */
static int64_t match_pairs(struct matching *t)
{
  int64_t n = 0;
  memset(t->matched, 0, (size_t)t->objects);
  for (;; n++) {
    int64_t anchor = -1, object = -1;
    double most = 1e-6;
    for (int64_t a = 0; a < t->anchors; a++)
      for (int64_t g = 0; g < t->objects && t->state[a] != POSITIVE; g++) {
        double v = t->overlap[a * t->objects + g];
        if (!t->matched[g] && v > most) most = v, anchor = a, object = g;
      }
    if (anchor < 0) return n;
    t->state[anchor] = POSITIVE;
    t->object[anchor] = object;
    t->matched[object] = 1;
  }
}

/* Makes positive each further anchor whose best overlap is above the threshold. Returns their
** number. */
static int64_t match_near(struct matching *t)
{
  int64_t n = 0;
  double threshold = box_held(&t->m, t->p->overlap_threshold);
  for (int64_t a = 0; a < t->anchors && threshold > 0; a++)
    if (t->state[a] != POSITIVE && t->best[a] > threshold) t->state[a] = POSITIVE, n++;
  return n;
}

/* Returns the softmax of class 0 over the scores of anchor a. */
static double background_probability(const struct matching *t, int64_t a)
{
  double most = -INFINITY, sum = 0;
  for (int64_t k = 0; k < t->classes; k++)
    most = fmax(most, t->r->get(t->pred, k * t->anchors + a));
  for (int64_t k = 0; k < t->classes; k++)
    sum += exp(t->r->get(t->pred, k * t->anchors + a) - most);
  return exp(t->r->get(t->pred, a) - most) / sum;
}

/* Chooses the negatives: anchors that overlap every object by less than negative_mining_thresh,
** least likely background first, at most negative_mining_ratio per positive. */
static void mine_negatives(struct matching *t, int64_t positives)
{
  double negatives = (double)positives * t->p->negative_mining_ratio,
         limit = box_held(&t->m, t->p->negative_mining_thresh);
  int64_t n = 0,
          most = negatives < (double)(t->anchors - positives) ? (int64_t)negatives
                                                           : t->anchors - positives;
  for (int64_t a = 0; a < t->anchors; a++)
    if (t->state[a] != POSITIVE && t->best[a] < limit)
      t->order[n++] = (struct sort_key){ best_first(-background_probability(t, a)), a };
  const struct sort_key *sorted = merge_sort(t->order, t->order + t->anchors, n);
  for (int64_t i = 0; i < MIN(n, most); i++) t->state[sorted[i].index] = NEGATIVE;
}

/* Writes offsets, mask and classes of all anchors of a sample; NULL: not wanted. */
static void write_targets(const struct matching *t, void *offsets, void *mask, void *class)
{
  const double none[4] = { 0 };
  for (int64_t a = 0; a < t->anchors; a++) {
    bool positive = t->objects && t->state[a] == POSITIVE;
    double to[4] = { 0 }, from[4], object[4], label = t->p->ignore_label;
    if (positive) {
      int64_t row = t->object[a] * t->width;
      read_four(t->r, t->anchor, 4 * a, from);
      read_four(t->r, t->label, row + 1, object);
      box_encode(from, object, none, t->p->variances.d, to);
      label = t->r->get(t->label, row) + 1;
    }
    else if (t->objects && t->state[a] == NEGATIVE)
      label = 0;
    if (offsets) t->r->store(vec_at(t->r, offsets, 4 * a), to, 4);
    if (mask) t->r->fill(vec_at(t->r, mask, 4 * a), positive, 4);
    if (class) t->r->set(class, a, label);
  }
}

/* Sets the state of every anchor of a sample, and the object of the positive ones. */
static void match_sample(struct matching *t)
{
  overlap_all(t);
  int64_t positives = match_pairs(t);
  positives += match_near(t);
  if (t->p->negative_mining_ratio > 0)
    mine_negatives(t, positives);
  else
    for (int64_t a = 0; a < t->anchors; a++)
      if (t->state[a] != POSITIVE) t->state[a] = NEGATIVE;
}

static int64_t count_objects(
    const struct vec_ops *r, const void *label, int64_t rows, int64_t width)
{
  int64_t n = 0;
  while (n < rows && r->get(label, n * width) != -1) n++;
  return n;
}

static size_t target_bytes(const struct call *c)
{
  size_t anchors = (size_t)c->in[0].d.dim[1], objects = (size_t)c->in[1].d.dim[1];
  return anchors *
      ((objects + 1) * sizeof(double) + sizeof(int64_t) + 2 * sizeof(struct sort_key) + 1) +
      objects * (sizeof(struct box) + 1) + 7 * ALIGN;
}
static size_t target_scratch(const struct call *c)
{
  return align_up(target_bytes(c), ALIGN) * (size_t)parallel_threads();
}

static void target_body(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const struct vec_ops *r = vec_ops_of(c->in[0].d.dtype);
  const int64_t A = c->in[0].d.dim[1], G = c->in[1].d.dim[1], W = c->in[1].d.dim[2],
                K = c->in[2].d.dim[1];
  char *scratch = (char *)c->tmp + (size_t)parallel_index() * align_up(target_bytes(c), ALIGN);
  struct matching t = { .p = c->param,
    .r = r,
    .m = { c->in[0].d.dtype == TY_F32, 0 },
    .anchors = A,
    .width = W,
    .classes = K,
    .anchor = c->in[0].p };
  t.overlap = CUT(scratch, A * G, double);
  t.best = CUT(scratch, A, double);
  t.object = CUT(scratch, A, int64_t);
  t.order = CUT(scratch, 2 * A, struct sort_key);
  t.truth = CUT(scratch, G, struct box);
  t.state = CUT(scratch, A, uint8_t);
  t.matched = CUT(scratch, G, uint8_t);
  for (int64_t n = begin; n < end; n++) {
    t.label = vec_at(r, c->in[1].p, n * G * W);
    t.pred = vec_at(r, c->in[2].p, n * K * A);
    t.objects = count_objects(r, t.label, G, W);
    if (t.objects) match_sample(&t);
    write_targets(&t, vec_at(r, c->out[0].p, n * 4 * A), vec_at(r, c->out[1].p, n * 4 * A),
        vec_at(r, c->out[2].p, n * A));
  }
}

static int target_forward(struct call *c)
{
  parallel_chunks(c->in[1].d.dim[0], 1, target_body, c);
  return TY_OK;
}

/* -- detections -------------------------------------------------------------------------------- */

struct detection_param {
  int64_t clip, background_id, force_suppress, nms_topk;
  double  threshold, nms_threshold;
  struct reals variances;
};
static const struct param detection_params[] = {
  { "clip", P_BOOL, offsetof(struct detection_param, clip), "1", "corners are kept in 0 .. 1" },
  { "threshold", P_FLOAT, offsetof(struct detection_param, threshold), "0.01", "least score of a detection" },
  { "background_id", P_INT, offsetof(struct detection_param, background_id), "0", "without effect: class 0 is the background" },
  { "nms_threshold", P_FLOAT, offsetof(struct detection_param, nms_threshold), "0.5",
    "of two boxes that overlap so much the better one stays; 0 and below, or above 1: all stay, unsorted" },
  { "force_suppress", P_BOOL, offsetof(struct detection_param, force_suppress), "0", "boxes of other classes count too" },
  { "variances", P_FLOATS, offsetof(struct detection_param, variances), "[0.1,0.1,0.2,0.2]", "of x, y, width, height" },
  { "nms_topk", P_INT, offsetof(struct detection_param, nms_topk), "-1", "only so many of the best can stay; -1: all" },
  { 0 }
};

static int detection_check(void *param)
{
  const struct detection_param *p = param;
  NEED(p->variances.n == 4, TY_EVALUE, "parameter variances: expected four numbers, got %lld",
      (long long)p->variances.n);
  return TY_OK;
}

static int detection_shape(struct infer *s)
{
  ty_desc *prob = &s->in[0], *loc = &s->in[1], *anchor = &s->in[2];
  TRY(shape_rank(s, prob, 3, "(batch, classes, anchors)"));
  TRY(shape_rank(s, loc, 2, "(batch, 4 anchors)"));
  TRY(shape_rank(s, anchor, 3, "(1, anchors, 4)"));
  if (!prob->ndim) return TY_OK;
  int64_t batch = prob->dim[0], anchors = prob->dim[2];
  int64_t to[2] = { batch, 4 * anchors }, from[3] = { 1, anchors, 4 },
          out[3] = { batch, anchors, 6 };
  TRY(shape_is(s, loc, 2, to));
  TRY(shape_is(s, anchor, 3, from));
  return shape_is(s, &s->out[0], 3, out);
}

struct detection { double id, score, corner[4]; };
struct detect {                                       /* one sample */
  const struct detection_param *p;
  const struct vec_ops *r;
  struct metric m;
  int64_t anchors, classes;
  const void *prob, *loc, *anchor;
  struct detection *found, *sorted;
  struct sort_key *order;
  struct box *box;
  double  *kind;
  uint8_t *gone;
};

static void decode_box(const struct detect *d, int64_t a, double corner[4])
{
  const double *v = d->p->variances.d;
  double from[4], by[4], middle[2], size[2];
  read_four(d->r, d->anchor, 4 * a, from);
  read_four(d->r, d->loc, 4 * a, by);
  box_middle(from, middle, size);
  box_decode(middle, size, by, v, 0, corner);
  for (int i = 0; i < 4; i++) {
    corner[i] = box_held(&d->m, corner[i]);
    if (d->p->clip) corner[i] = MAX(0, MIN(1, corner[i]));
  }
}

/* Fills `found` with the best object class of each anchor whose score reaches the threshold; NaN
** scores are skipped. Returns the number of detections. */
static int64_t find_objects(const struct detect *d)
{
  int64_t n = 0;
  double threshold = box_held(&d->m, d->p->threshold);
  for (int64_t a = 0; a < d->anchors; a++) {
    struct detection f = { .id = -1, .score = -1 };
    for (int64_t k = 1; k < d->classes; k++) {
      double v = d->r->get(d->prob, k * d->anchors + a);
      if (v > f.score) f.score = v, f.id = (double)(k - 1);
    }
    if (f.id < 0 || f.score < threshold) continue;
    decode_box(d, a, f.corner);
    d->found[n++] = f;
  }
  return n;
}

/* Sorts the best nms_topk detections to the front of `found` and suppresses among them. Suppressed
** detections and all after the front get id -1; those after the front are not moved. */
static void sort_and_suppress(const struct detect *d, int64_t n)
{
  int64_t keep = d->p->nms_topk > 0 ? MIN(n, d->p->nms_topk) : n;
  for (int64_t i = 0; i < n; i++)
    d->order[i] = (struct sort_key){ best_first(d->found[i].score), i };
  const struct sort_key *sorted = merge_sort(d->order, d->order + d->anchors, n);
  for (int64_t i = 0; i < keep; i++) {
    d->sorted[i] = d->found[sorted[i].index];
    d->box[i] = box_of(&d->m, d->sorted[i].corner, CORNER);
    d->kind[i] = d->sorted[i].id;
  }
  struct nms s = { d->m, d->box, d->p->force_suppress ? NULL : d->kind, d->p->nms_threshold, true };
  memset(d->gone, 0, (size_t)keep);
  nms_run(&s, d->gone, keep, keep);
  for (int64_t i = 0; i < n; i++) {
    if (i < keep) d->found[i] = d->sorted[i];
    if (i >= keep || d->gone[i]) d->found[i].id = -1;
  }
}

static void detect_sample(const struct detect *d, void *out)
{
  int64_t n = find_objects(d);
  if (n && d->p->nms_threshold > 0 && d->p->nms_threshold <= 1) sort_and_suppress(d, n);
  for (int64_t i = 0; i < n; i++) d->r->store(vec_at(d->r, out, 6 * i), &d->found[i].id, 6);
  d->r->fill(vec_at(d->r, out, 6 * n), -1, 6 * (d->anchors - n));
}

static size_t detection_bytes(const struct call *c)
{
  size_t each = 2 * sizeof(struct detection) + 2 * sizeof(struct sort_key) + sizeof(struct box) +
      sizeof(double) + 1;
  return align_up((size_t)c->in[0].d.dim[2] * each + 6 * ALIGN, ALIGN);
}
static size_t detection_scratch(const struct call *c)
{
  return detection_bytes(c) * (size_t)parallel_threads();
}

static void detection_body(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const struct vec_ops *r = vec_ops_of(c->in[0].d.dtype);
  const int64_t K = c->in[0].d.dim[1], A = c->in[0].d.dim[2];
  char *scratch = (char *)c->tmp + (size_t)parallel_index() * detection_bytes(c);
  struct detect d = { .p = c->param,
    .r = r,
    .m = { c->in[0].d.dtype == TY_F32, 0 },
    .anchors = A,
    .classes = K,
    .anchor = c->in[2].p };
  d.found = CUT(scratch, A, struct detection);
  d.sorted = CUT(scratch, A, struct detection);
  d.order = CUT(scratch, 2 * A, struct sort_key);
  d.box = CUT(scratch, A, struct box);
  d.kind = CUT(scratch, A, double);
  d.gone = CUT(scratch, A, uint8_t);
  for (int64_t n = begin; n < end; n++) {
    d.prob = vec_at(r, c->in[0].p, n * K * A);
    d.loc = vec_at(r, c->in[1].p, n * 4 * A);
    detect_sample(&d, vec_at(r, c->out[0].p, n * 6 * A));
  }
}

static int detection_forward(struct call *c)
{
  parallel_chunks(c->in[0].d.dim[0], 1, detection_body, c);
  return TY_OK;
}

/* -- the operators ----------------------------------------------------------------------------- */

static const struct kernel prior_cpu[] = { { "cells", prior_forward, T_FLOAT }, { 0 } };
static const struct kernel target_cpu[] = { { "samples", target_forward, T_FLOAT, NULL, target_scratch }, { 0 } };
static const struct kernel detection_cpu[] = { { "samples", detection_forward, T_FLOAT, NULL, detection_scratch }, { 0 } };

const struct op op_multibox[] = {
  { .name = "_contrib_MultiBoxPrior", .alias = "_npx_multibox_prior", .in = "data", .out = "output",
    .doc = "Anchors of every cell of data (batch, channels, height, width): (1, height width (sizes + ratios - 1), 4).",
    .param = prior_params, .param_size = sizeof(struct prior_param), .check = prior_check, .shape = prior_shape,
    .flags = OP_ZERO_GRAD | OP_NAMED_INPUT, .cpu = prior_cpu },
  { .name = "_contrib_MultiBoxTarget", .alias = "_npx_multibox_target", .in = "anchor label cls_pred",
    .out = "loc_target loc_mask cls_target",
    .doc = "What a network should answer for each anchor: offsets (batch, 4 anchors), 1 where they count, and classes "
           "(batch, anchors); label is (batch, objects, class x1 y1 x2 y2 ...) and ends at class -1.",
    .param = target_params, .param_size = sizeof(struct target_param), .check = target_check, .shape = target_shape,
    .flags = OP_ZERO_GRAD, .cpu = target_cpu },
  { .name = "_contrib_MultiBoxDetection", .alias = "_npx_multibox_detection", .in = "cls_prob loc_pred anchor",
    .out = "output",
    .doc = "Boxes from class probabilities and offsets: (batch, anchors, class score x1 y1 x2 y2), class -1 where there is none.",
    .param = detection_params, .param_size = sizeof(struct detection_param), .check = detection_check,
    .shape = detection_shape, .flags = OP_ZERO_GRAD, .cpu = detection_cpu },
  { 0 }
};

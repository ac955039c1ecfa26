/* boxes.c - box_iou, box_nms, bipartite_matching, box_encode, box_decode and the MultiBox operators
** (kernels/boxes.cu). */
#include "cuda/row.h"
#include "kernel/element/boxes.h"
#include "kernel/strided_copy.h"
#include "op/registry.h"

/* Bytes of a flag, which says that a box is suppressed, or an object matched. */
enum { FLAG = sizeof(int32_t) };

#define WORDS "T=$i0 TEAM=256"

static int32_t form_of(const struct call *c, const char *name)
{
  return cuda_word(c, name, "corner") ? CORNER : CENTER;
}

static void copy_four(double to[4], const struct reals *from)
{
  for (int i = 0; i < 4; i++) to[i] = from->d[i];
}

/* -- overlaps, offsets ------------------------------------------------------------------------- */

struct overlap_args { int64_t count, n, form; };
static int64_t overlap_sizes(const struct call *c, void *s)
{
  int64_t count = desc_count(&c->out[0].d);
  *(struct overlap_args *)s =
      (struct overlap_args){ count, desc_count(&c->in[1].d) / 4, form_of(c, "format") };
  return count;
}

struct encode_args { int64_t count, anchors, objects; };
static int64_t encode_sizes(const struct call *c, void *s)
{
  int64_t count = desc_count(&c->in[0].d);
  *(struct encode_args *)s =
      (struct encode_args){ count, c->in[0].d.dim[1], c->in[3].d.dim[1] };
  return count;
}

struct decode_args { int64_t count, anchors; double std[4], limit; int64_t form; };
static int64_t decode_sizes(const struct call *c, void *s)
{
  const ty_desc *d = &c->in[0].d;
  int64_t count = d->dim[0] * d->dim[1];
  *(struct decode_args *)s = (struct decode_args){ count, d->dim[1],
    { cuda_number(c, "std0", 1), cuda_number(c, "std1", 1), cuda_number(c, "std2", 1),
      cuda_number(c, "std3", 1) },
    cuda_number(c, "clip", -1), form_of(c, "format") };
  return count;
}

/* -- suppression ------------------------------------------------------------------------------- */

struct nms_args {
  int64_t samples, n, width, topk, box, score, kind, background, force, form, out_form;
  double valid, limit;
};

static int64_t whole_number(const struct call *c, const char *name)
{
  return (int64_t)cuda_number(c, name, 0);
}

/* Copies data unchanged, and writes the index of each row in its sample to the record. */
static int keep_rows(struct call *c, const struct nms_args *s)
{
  int64_t count = s->samples * s->n;
  if (c->out[0].p) TRY(move_bytes(c->device, c->out[0].p, c->in[0].p, desc_bytes(&c->in[0].d)));
  if (!c->out[1].p) return TY_OK;
  return cuda_start(c, FAMILY_boxes, "number_rows", WORDS, count,
      (void *[]){ &c->out[1].p, &count, (void *)&s->n });
}

static int suppress_boxes(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  int64_t n = d->dim[d->ndim - 2], width = d->dim[d->ndim - 1], count = desc_count(d) / width;
  struct nms_args s = { count / n, n, width, whole_number(c, "topk"),
    whole_number(c, "coord_start"), whole_number(c, "score_index"), whole_number(c, "id_index"),
    whole_number(c, "background_id"), cuda_flag(c, "force_suppress"), form_of(c, "in_format"),
    form_of(c, "out_format"), cuda_number(c, "valid_thresh", 0),
    cuda_number(c, "overlap_thresh", 0) };
  char *at = c->tmp;
  void *keys = cuda_piece(&at, cuda_keys_bytes(count));
  void *space = cuda_piece(&at, cuda_keys_bytes(count)), *gone = at;
  if (!s.topk) return keep_rows(c, &s);
  TRY(cuda_start(c, FAMILY_boxes, "nms_keys", WORDS, count, (void *[]){ &keys, &c->in[0].p, &s }));
  TRY(cuda_sort_keys(c, &keys, space, count, n));
  TRY(device_fill(c->device, gone, 0, FLAG * (size_t)count));
  return cuda_start(c, FAMILY_boxes, "nms", WORDS, s.samples * CUDA_BLOCK,
      (void *[]){ &c->out[0].p, &c->out[1].p, &c->in[0].p, &keys, &gone, &s });
}

static size_t nms_scratch(const struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  int64_t count = desc_count(d) / d->dim[d->ndim - 1];
  return 2 * cuda_keys_bytes(count) + FLAG * (size_t)count;
}

struct nms_back_args { int64_t count, n, width; };
static int64_t nms_back_sizes(const struct call *c, void *s)
{
  const ty_desc *d = &c->out[0].d;
  *(struct nms_back_args *)s =
      (struct nms_back_args){ desc_count(d), d->dim[d->ndim - 2], d->dim[d->ndim - 1] };
  return desc_count(d);
}

/* -- pairs ------------------------------------------------------------------------------------- */

struct match_args { int64_t samples, rows, columns, ascend, topk; double threshold; };

static size_t numbers_bytes(const ty_desc *d) { return align_up(desc_bytes(d), ALIGN); }

static int match_boxes(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  int64_t rows = d->dim[d->ndim - 2], columns = d->dim[d->ndim - 1], count = desc_count(d);
  struct match_args s = { count / (rows * columns), rows, columns, cuda_flag(c, "is_ascend"),
    whole_number(c, "topk"), cuda_number(c, "threshold", 0) };
  char *at = c->tmp;
  void *keys = cuda_piece(&at, cuda_keys_bytes(count));
  void *space = cuda_piece(&at, cuda_keys_bytes(count));
  void *row = c->out[0].p ? c->out[0].p : cuda_piece(&at, numbers_bytes(&c->out[0].d));
  void *column = c->out[1].p ? c->out[1].p : at;
  TRY(cuda_start(c, FAMILY_boxes, "match_keys", WORDS, count,
      (void *[]){ &keys, &c->in[0].p, &s }));
  TRY(cuda_sort_keys(c, &keys, space, count, rows * columns));
  return cuda_start(c, FAMILY_boxes, "match", WORDS, s.samples,
      (void *[]){ &row, &column, &c->in[0].p, &keys, &s });
}

static size_t match_scratch(const struct call *c)
{
  return 2 * cuda_keys_bytes(desc_count(&c->in[0].d)) + numbers_bytes(&c->out[0].d) +
      numbers_bytes(&c->out[1].d);
}

/* -- anchors of cells -------------------------------------------------------------------------- */

struct prior_args {
  int64_t h, w, sizes, ratios, clip;
  double step[2], offset[2], size[128], ratio[128];
};
static int64_t prior_sizes(const struct call *c, void *to)
{
  const ty_desc *d = &c->in[0].d;
  const struct reals *sizes = op_reals(c->op, c->param, "sizes"),
                     *ratios = op_reals(c->op, c->param, "ratios"),
                     *steps = op_reals(c->op, c->param, "steps"),
                     *offsets = op_reals(c->op, c->param, "offsets");
  bool given = steps->d[0] > 0 && steps->d[1] > 0;
  struct prior_args *s = to;
  *s = (struct prior_args){ d->dim[2], d->dim[3], sizes->n, ratios->n, cuda_flag(c, "clip"),
    { given ? steps->d[0] : 1.0 / (double)d->dim[2],
      given ? steps->d[1] : 1.0 / (double)d->dim[3] },
    { offsets->d[0], offsets->d[1] } };
  for (int i = 0; i < sizes->n; i++) s->size[i] = sizes->d[i];
  for (int i = 0; i < ratios->n; i++) s->ratio[i] = ratios->d[i];
  return s->h * s->w * (s->sizes + s->ratios - 1);
}

/* -- targets ----------------------------------------------------------------------------------- */

struct target_args {
  int64_t samples, anchors, objects, width, classes;
  double overlap, ignore, ratio, mining, variance[4];
};
enum { MATCH_BYTES = 16 };                            /* bytes of boxes.cu's anchor_match */

static int find_targets(struct call *c)
{
  const ty_desc *d = &c->in[0].d, *label = &c->in[1].d;
  struct target_args s = { label->dim[0], d->dim[1], label->dim[1], label->dim[2],
    c->in[2].d.dim[1], cuda_number(c, "overlap_threshold", 0), cuda_number(c, "ignore_label", -1),
    cuda_number(c, "negative_mining_ratio", -1), cuda_number(c, "negative_mining_thresh", 0) };
  int64_t count = s.samples * s.anchors;
  char *at = c->tmp;
  void *keys = cuda_piece(&at, cuda_keys_bytes(count));
  void *space = cuda_piece(&at, cuda_keys_bytes(count));
  void *match_p = cuda_piece(&at, MATCH_BYTES * (size_t)count);
  void *wanted = cuda_piece(&at, sizeof(int64_t) * (size_t)s.samples);
  void *overlap = cuda_piece(&at, sizeof(double) * (size_t)(count * s.objects)), *matched = at;
  copy_four(s.variance, op_reals(c->op, c->param, "variances"));
  TRY(cuda_start(c, FAMILY_boxes, "match_anchors", WORDS, s.samples * CUDA_BLOCK,
      (void *[]){ &match_p, &keys, &wanted, &overlap, &matched, &c->in[0].p, &c->in[1].p,
        &c->in[2].p, &s }));
  if (s.ratio > 0) {
    TRY(cuda_sort_keys(c, &keys, space, count, s.anchors));
    TRY(cuda_start(c, FAMILY_boxes, "mine_negatives", WORDS, count,
        (void *[]){ &match_p, &keys, &wanted, &s }));
  }
  return cuda_start(c, FAMILY_boxes, "write_targets", WORDS, count,
      (void *[]){ &c->out[0].p, &c->out[1].p, &c->out[2].p, &match_p, &c->in[0].p, &c->in[1].p,
        &s });
}

static size_t target_scratch(const struct call *c)
{
  int64_t samples = c->in[1].d.dim[0], objects = c->in[1].d.dim[1];
  int64_t count = samples * c->in[0].d.dim[1];
  return 2 * cuda_keys_bytes(count) + align_up(MATCH_BYTES * (size_t)count, ALIGN) +
      align_up(sizeof(int64_t) * (size_t)samples, ALIGN) +
      align_up(sizeof(double) * (size_t)(count * objects), ALIGN) +
      FLAG * (size_t)(samples * objects);
}

/* -- detections -------------------------------------------------------------------------------- */

struct detection_args {
  int64_t samples, anchors, classes, clip, force, topk;
  double threshold, limit, variance[4];
};
enum { DETECTION_BYTES = 6 * sizeof(double) };

static int find_detections(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  struct detection_args s = { d->dim[0], d->dim[2], d->dim[1], cuda_flag(c, "clip"),
    cuda_flag(c, "force_suppress"), whole_number(c, "nms_topk"), cuda_number(c, "threshold", 0),
    cuda_number(c, "nms_threshold", 0) };
  int64_t count = s.samples * s.anchors;
  char *at = c->tmp;
  void *best = cuda_piece(&at, cuda_keys_bytes(count));
  void *found = cuda_piece(&at, cuda_keys_bytes(count));
  void *space = cuda_piece(&at, cuda_keys_bytes(count));
  void *more = cuda_piece(&at, cuda_keys_bytes(count));
  void *all = cuda_piece(&at, DETECTION_BYTES * (size_t)count), *gone = at;
  copy_four(s.variance, op_reals(c->op, c->param, "variances"));
  TRY(cuda_start(c, FAMILY_boxes, "find_objects", WORDS, count,
      (void *[]){ &all, &best, &found, &c->in[0].p, &c->in[1].p, &c->in[2].p, &s }));
  TRY(cuda_sort_keys(c, &best, space, count, s.anchors));
  TRY(cuda_sort_keys(c, &found, more, count, s.anchors));
  TRY(device_fill(c->device, gone, 0, FLAG * (size_t)count));
  return cuda_start(c, FAMILY_boxes, "detect", WORDS, s.samples * CUDA_BLOCK,
      (void *[]){ &c->out[0].p, &all, &best, &found, &gone, &s });
}

static size_t detection_scratch(const struct call *c)
{
  int64_t count = c->in[0].d.dim[0] * c->in[0].d.dim[2];
  return 4 * cuda_keys_bytes(count) + align_up(DETECTION_BYTES * (size_t)count, ALIGN) +
      FLAG * (size_t)count;
}

/* -- the table --------------------------------------------------------------------------------- */

#define ROW(table, shown, kernel_, arguments, sizes, types_, zeros_) \
  static const struct kernel table[] = { \
    { shown, CUDA_ROW(FAMILY_boxes, kernel_, "T=$o0 TEAM=256", arguments, sizes, zeros_), \
      .types = types_ }, { 0 } };
ROW(ious, "pairs", "overlaps", "o0 i0 i1 s0 s1 s2", overlap_sizes, T_FLOAT, 0)
ROW(encodes, "boxes", "encode", "o0 o1 i0 i1 i2 i3 i4 i5 s0 s1 s2", encode_sizes, T_FLOAT, 0)
ROW(decodes, "boxes", "decode", "o0 i0 i1 s", decode_sizes, T_FLOAT, 0)
ROW(anchors, "cells", "priors", "o0 s", prior_sizes, T_FLOAT, 0)
/* in: head gradient, record */
ROW(suppress_back, "rows", "nms_back", "o0 i0 i1 s0 s1 s2", nms_back_sizes, T_FLOAT | T(TY_I32), 1)

#define KERNEL(table, shown, run, types, bytes) \
  static const struct kernel table[] = { { shown, run, types, .scratch = bytes }, { 0 } };
KERNEL(suppress, "samples", suppress_boxes, T_FLOAT | T(TY_I32), nms_scratch)
KERNEL(matches, "samples", match_boxes, T_FLOAT, match_scratch)
KERNEL(target, "samples", find_targets, T_FLOAT, target_scratch)
KERNEL(detection, "samples", find_detections, T_FLOAT, detection_scratch)

const struct op_kernels cuda_boxes[] = {
  { "_contrib_box_iou", ious, NULL },
  { "_contrib_box_encode", encodes, NULL },
  { "_contrib_box_decode", decodes, NULL },
  { "_contrib_box_nms", suppress, suppress_back },
  { "_contrib_bipartite_matching", matches, NULL },
  { "_contrib_MultiBoxPrior", anchors, NULL },
  { "_contrib_MultiBoxTarget", target, NULL },
  { "_contrib_MultiBoxDetection", detection, NULL },
  { 0 }
};

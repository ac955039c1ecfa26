/* boxes.c - box_iou, box_nms, bipartite_matching, box_encode, box_decode and the MultiBox operators
** (kernels/boxes.cu). */
#include "cuda/family.h"
#include "kernel/element/boxes.h"
#include "kernel/strided_copy.h"
#include "op/registry.h"

/* bytes of what says that a box is gone, or an object matched */
enum { FLAG = sizeof(int32_t) };

static int boxes_family(const struct call *c, const ty_desc *d, const char *name, cu_function *f)
{
  return cuda_family(c->device, FAMILY_boxes, name, f, "T=%s TEAM=256", cuda_type(d->dtype));
}

static int32_t form_of(const struct call *c, const char *name)
{
  return cuda_word(c, name, "corner") ? CORNER : CENTER;
}

static void copy_four(double to[4], const struct reals *from)
{
  for (int i = 0; i < 4; i++) to[i] = from->d[i];
}

/* -- overlaps, offsets ------------------------------------------------------------------------- */

static int compute_overlaps(struct call *c)
{
  int64_t n = desc_count(&c->in[1].d) / 4, count = desc_count(&c->out[0].d);
  int32_t form = form_of(c, "format");
  cu_function f;
  TRY(boxes_family(c, &c->in[0].d, "overlaps", &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &count, &n, &form };
  return cuda_run(c, f, count, params);
}

static int encode_boxes(struct call *c)
{
  int64_t count = desc_count(&c->in[0].d), anchors = c->in[0].d.dim[1];
  int64_t objects = c->in[3].d.dim[1];
  cu_function f;
  TRY(boxes_family(c, &c->in[0].d, "encode", &f));
  void *params[] = { &c->out[0].p, &c->out[1].p, &c->in[0].p, &c->in[1].p, &c->in[2].p,
    &c->in[3].p, &c->in[4].p, &c->in[5].p, &count, &anchors, &objects };
  return cuda_run(c, f, count, params);
}

struct decode_args { int64_t count, anchors; double std[4], limit; int64_t form; };
static int decode_boxes(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  struct decode_args s = { d->dim[0] * d->dim[1], d->dim[1],
    { cuda_number(c, "std0", 1), cuda_number(c, "std1", 1), cuda_number(c, "std2", 1),
      cuda_number(c, "std3", 1) },
    cuda_number(c, "clip", -1), form_of(c, "format") };
  cu_function f;
  TRY(boxes_family(c, d, "decode", &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &s };
  return cuda_run(c, f, s.count, params);
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

/* data, and the record of where rows come from, as they are */
static int keep_rows(struct call *c, const struct nms_args *s)
{
  int64_t count = s->samples * s->n;
  cu_function f;
  if (c->out[0].p) TRY(move_bytes(c->device, c->out[0].p, c->in[0].p, desc_bytes(&c->in[0].d)));
  if (!c->out[1].p) return TY_OK;
  TRY(boxes_family(c, &c->in[0].d, "number_rows", &f));
  void *params[] = { &c->out[1].p, &count, (void *)&s->n };
  return cuda_run(c, f, count, params);
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
  cu_function list, f;
  if (!s.topk) return keep_rows(c, &s);
  TRY(boxes_family(c, d, "nms_keys", &list));
  void *of_keys[] = { &keys, &c->in[0].p, &s };
  TRY(cuda_run(c, list, count, of_keys));
  TRY(cuda_sort_keys(c, &keys, space, count, n));
  TRY(device_fill(c->device, gone, 0, FLAG * (size_t)count));
  TRY(boxes_family(c, d, "nms", &f));
  void *params[] = { &c->out[0].p, &c->out[1].p, &c->in[0].p, &keys, &gone, &s };
  return cuda_run(c, f, s.samples * CUDA_BLOCK, params);
}

static size_t nms_scratch(const struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  int64_t count = desc_count(d) / d->dim[d->ndim - 1];
  return 2 * cuda_keys_bytes(count) + FLAG * (size_t)count;
}

/* in: head gradient, record */
static int nms_back(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  int64_t n = d->dim[d->ndim - 2], width = d->dim[d->ndim - 1], count = desc_count(d);
  cu_function f;
  TRY(cuda_zero(c, &c->out[0]));
  if (!c->out[0].p) return TY_OK;
  TRY(boxes_family(c, d, "nms_back", &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &count, &n, &width };
  return cuda_run(c, f, count, params);
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
  cu_function list, f;
  TRY(boxes_family(c, d, "match_keys", &list));
  void *of_keys[] = { &keys, &c->in[0].p, &s };
  TRY(cuda_run(c, list, count, of_keys));
  TRY(cuda_sort_keys(c, &keys, space, count, rows * columns));
  TRY(boxes_family(c, d, "match", &f));
  void *params[] = { &row, &column, &c->in[0].p, &keys, &s };
  return cuda_run(c, f, s.samples, params);
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
static int make_priors(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  const struct reals *sizes = op_reals(c->op, c->param, "sizes"),
                     *ratios = op_reals(c->op, c->param, "ratios"),
                     *steps = op_reals(c->op, c->param, "steps"),
                     *offsets = op_reals(c->op, c->param, "offsets");
  bool given = steps->d[0] > 0 && steps->d[1] > 0;
  struct prior_args s = { d->dim[2], d->dim[3], sizes->n, ratios->n, cuda_flag(c, "clip"),
    { given ? steps->d[0] : 1.0 / (double)d->dim[2],
      given ? steps->d[1] : 1.0 / (double)d->dim[3] },
    { offsets->d[0], offsets->d[1] } };
  cu_function f;
  for (int i = 0; i < sizes->n; i++) s.size[i] = sizes->d[i];
  for (int i = 0; i < ratios->n; i++) s.ratio[i] = ratios->d[i];
  TRY(boxes_family(c, &c->out[0].d, "priors", &f));
  void *params[] = { &c->out[0].p, &s };
  return cuda_run(c, f, s.h * s.w * (s.sizes + s.ratios - 1), params);
}

/* -- targets ----------------------------------------------------------------------------------- */

struct target_args {
  int64_t samples, anchors, objects, width, classes;
  double overlap, ignore, ratio, mining, variance[4];
};
enum { MATCH_BYTES = 16 };                            /* of boxes.cu's anchor_match */

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
  cu_function anchors, mine, write;
  copy_four(s.variance, op_reals(c->op, c->param, "variances"));
  TRY(boxes_family(c, d, "match_anchors", &anchors));
  void *first[] = { &match_p, &keys, &wanted, &overlap, &matched, &c->in[0].p, &c->in[1].p,
    &c->in[2].p, &s };
  TRY(cuda_run(c, anchors, s.samples * CUDA_BLOCK, first));
  if (s.ratio > 0) {
    TRY(cuda_sort_keys(c, &keys, space, count, s.anchors));
    TRY(boxes_family(c, d, "mine_negatives", &mine));
    void *params[] = { &match_p, &keys, &wanted, &s };
    TRY(cuda_run(c, mine, count, params));
  }
  TRY(boxes_family(c, d, "write_targets", &write));
  void *params[] = { &c->out[0].p, &c->out[1].p, &c->out[2].p, &match_p, &c->in[0].p, &c->in[1].p,
    &s };
  return cuda_run(c, write, count, params);
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
  cu_function find, f;
  copy_four(s.variance, op_reals(c->op, c->param, "variances"));
  TRY(boxes_family(c, d, "find_objects", &find));
  void *first[] = { &all, &best, &found, &c->in[0].p, &c->in[1].p, &c->in[2].p, &s };
  TRY(cuda_run(c, find, count, first));
  TRY(cuda_sort_keys(c, &best, space, count, s.anchors));
  TRY(cuda_sort_keys(c, &found, more, count, s.anchors));
  TRY(device_fill(c->device, gone, 0, FLAG * (size_t)count));
  TRY(boxes_family(c, d, "detect", &f));
  void *params[] = { &c->out[0].p, &all, &best, &found, &gone, &s };
  return cuda_run(c, f, s.samples * CUDA_BLOCK, params);
}

static size_t detection_scratch(const struct call *c)
{
  int64_t count = c->in[0].d.dim[0] * c->in[0].d.dim[2];
  return 4 * cuda_keys_bytes(count) + align_up(DETECTION_BYTES * (size_t)count, ALIGN) +
      FLAG * (size_t)count;
}

/* -- the table --------------------------------------------------------------------------------- */

#define KERNEL(table, what, run, types, bytes) \
  static const struct kernel table[] = { { what, run, types, .scratch = bytes }, { 0 } };
KERNEL(ious, "pairs", compute_overlaps, T_FLOAT, NULL)
KERNEL(encodes, "boxes", encode_boxes, T_FLOAT, NULL)
KERNEL(decodes, "boxes", decode_boxes, T_FLOAT, NULL)
KERNEL(suppress, "samples", suppress_boxes, T_FLOAT | T(TY_I32), nms_scratch)
KERNEL(suppress_back, "rows", nms_back, T_FLOAT | T(TY_I32), NULL)
KERNEL(matches, "samples", match_boxes, T_FLOAT, match_scratch)
KERNEL(anchors, "cells", make_priors, T_FLOAT, NULL)
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

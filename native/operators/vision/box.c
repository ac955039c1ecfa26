/* box.c - single steps of detection: overlaps (box_iou), suppression (box_nms), pairs
** (bipartite_matching), and boxes relative to anchors, both ways (box_encode, box_decode).
**
** Leading dims are batches. Only box_nms has a gradient: the gradient of a row of the result is
** copied to the row of data that it came from, whatever the forms of the boxes. The hidden output
** holds the index of that row (-1: none).
*/
#include "op/op.h"
#include "operators/vision/boxes.h"

static int rank_at_least(struct infer *s, ty_desc *slot, int least, const char *expected)
{
  if (!slot->ndim || slot->ndim >= least) return TY_OK;
  return infer_fail(s, TY_ESHAPE, slot, "expected %s, got %d dimension%s", expected, slot->ndim,
      slot->ndim > 1 ? "s" : "");
}

/* Returns the product of all dims but the last `last` ones. */
static int64_t rows_before(const ty_desc *d, int last)
{
  int64_t n = 1;
  for (int i = 0; i < d->ndim - last; i++) n *= d->dim[i];
  return n;
}

/* -- overlaps ---------------------------------------------------------------------------------- */

struct iou_param { int64_t format; };
static const struct param iou_params[] = {
  { "format", P_ENUM, offsetof(struct iou_param, format), "corner", "x1 y1 x2 y2, or x y width height", BOX_FORMS },
  { 0 }
};

static int iou_shape(struct infer *s)
{
  int64_t out[2 * TY_MAXDIM];
  int n = 0;
  for (int k = 0; k < 2; k++) {
    ty_desc *d = &s->in[k];
    TRY(rank_at_least(s, d, 2, "(..., boxes, 4)"));
    if (!d->ndim) return TY_OK;
    TRY(shape_dim(s, d, d->ndim - 1, 4));
    for (int i = 0; i < d->ndim - 1; i++) out[n++] = d->dim[i];
  }
  if (n > TY_MAXDIM)
    return infer_fail(
        s, TY_ESHAPE, NULL, "the result would have %d dimensions; at most %d", n, TY_MAXDIM);
  return shape_is(s, &s->out[0], n, out);
}

static void iou_body(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const struct vec_ops *r = vec_ops_of(c->in[0].d.dtype);
  const struct metric m = { c->in[0].d.dtype == TY_F32, 0 };
  const int form = (int)((const struct iou_param *)c->param)->format;
  const int64_t n = rows_before(&c->in[1].d, 1);
  for (int64_t i = begin; i < end; i++) {
    struct box a = box_at(r, &m, c->in[0].p, 4 * i, form);
    for (int64_t j = 0; j < n; j++) {
      struct box b = box_at(r, &m, c->in[1].p, 4 * j, form);
      r->set(c->out[0].p, i * n + j, box_overlap(&m, &a, &b));
    }
  }
}

static int iou_forward(struct call *c)
{
  parallel_for(
      rows_before(&c->in[0].d, 1), elements_ns(16 * rows_before(&c->in[1].d, 1)), iou_body, c);
  return TY_OK;
}

/* -- suppression ------------------------------------------------------------------------------- */

struct nms_param {
  double  overlap_thresh, valid_thresh;
  int64_t topk, coord_start, score_index, id_index, background_id, force_suppress, in_format,
      out_format;
};
static const struct param nms_params[] = {
  { "overlap_thresh", P_FLOAT, offsetof(struct nms_param, overlap_thresh), "0.5",
    "a box that overlaps a better one by more than this goes" },
  { "valid_thresh",   P_FLOAT, offsetof(struct nms_param, valid_thresh), "0",  "boxes with scores above this take part" },
  { "topk",           P_INT, offsetof(struct nms_param, topk),           "-1", "so many of the best take part; -1: all" },
  { "coord_start",    P_INT, offsetof(struct nms_param, coord_start),    "2",
    "place of the four coordinates in a row", NULL, SIZES_RANGE },
  { "score_index",    P_INT, offsetof(struct nms_param, score_index),    "1",  "place of the score", NULL, SIZES_RANGE },
  { "id_index",       P_INT, offsetof(struct nms_param, id_index),       "-1", "place of the class; -1: there is none", NULL, SIZES_RANGE },
  { "background_id",  P_INT, offsetof(struct nms_param, background_id),  "-1", "with id_index: boxes of this class take no part" },
  { "force_suppress", P_BOOL, offsetof(struct nms_param, force_suppress), "0", "boxes of other classes count too" },
  { "in_format",  P_ENUM, offsetof(struct nms_param, in_format),  "corner", "x1 y1 x2 y2, or x y width height", BOX_FORMS },
  { "out_format", P_ENUM, offsetof(struct nms_param, out_format), "corner", "the same for the result", BOX_FORMS },
  { 0 }
};

static bool in_box(const struct nms_param *p, int64_t i)
{
  return i >= p->coord_start && i < p->coord_start + 4;
}

static int nms_check(void *param)
{
  const struct nms_param *p = param;
  NEED(p->coord_start >= 0, TY_EVALUE, "parameter coord_start: expected 0 or more, got %lld",
      (long long)p->coord_start);
  NEED(p->score_index >= 0 && !in_box(p, p->score_index), TY_EVALUE,
      "parameter score_index: expected a place outside the coordinates, got %lld",
      (long long)p->score_index);
  NEED(p->id_index < 0 || (!in_box(p, p->id_index) && p->id_index != p->score_index), TY_EVALUE,
      "parameter id_index: expected a place of its own, got %lld", (long long)p->id_index);
  return TY_OK;
}

static int nms_shape(struct infer *s)
{
  const struct nms_param *p = s->param;
  ty_desc *d = &s->in[0], record;
  TRY(shape_both(s, d, &s->out[0]));
  if (!d->ndim) return TY_OK;
  TRY(rank_at_least(s, d, 2, "(..., boxes, numbers of a box)"));
  int64_t width = d->dim[d->ndim - 1],
          need = MAX(MAX(p->coord_start + 4, p->score_index + 1), p->id_index + 1);
  if (width && width < need)
    return infer_fail(s, TY_ESHAPE, d,
        "rows of %lld numbers; coordinates, score and class need %lld", (long long)width,
        (long long)need);
  record = *d;
  record.dim[d->ndim - 1] = 1;
  return shape_as(s, &s->out[1], &record);
}

static int nms_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->out[0]));
  return type_is(s, &s->out[1], TY_I32);
}

struct suppression {                                  /* one batch element */
  const struct nms_param *p;
  const struct vec_ops *r;
  struct metric m;
  int64_t n, width;
  const void *x;
  void   *y;                                          /* NULL: unused */
  int32_t *record;
  struct sort_key *order;
  struct box *box;
  double  *kind;
  uint8_t *gone;
};

/* Sets *sorted to the indices of the boxes that take part, best first. Returns their number. */
static int64_t choose_boxes(const struct suppression *k, const struct sort_key **sorted)
{
  const struct nms_param *p = k->p;
  double valid = box_held(&k->m, p->valid_thresh);
  int64_t n = 0;
  for (int64_t i = 0; i < k->n; i++) {
    double score = k->r->get(k->x, i * k->width + p->score_index);
    if (!(score > valid)) continue;
    if (p->id_index >= 0 && k->r->get(k->x, i * k->width + p->id_index) == (double)p->background_id)
      continue;
    k->order[n++] = (struct sort_key){ best_first(score), i };
  }
  *sorted = merge_sort(k->order, k->order + k->n, n);
  return p->topk < 0 ? n : MIN(n, p->topk);
}

/* Converts a box to out_format, except an empty row, whose first number is negative. */
static void reform_box(const struct suppression *k, double v[4])
{
  if (k->p->in_format == k->p->out_format || v[0] < 0) return;
  box_reform(v, (int)k->p->out_format);
}

/* Copies row `from` of data to row `to` of the result and records it. */
static void write_row(const struct suppression *k, int64_t to, int64_t from)
{
  const struct vec_ops *r = k->r;
  double v[4];
  if (k->record) k->record[to] = (int32_t)from;
  if (!k->y) return;
  memcpy(
      vec_at(r, k->y, to * k->width), vec_at(r, k->x, from * k->width), r->size * (size_t)k->width);
  read_four(r, k->y, to * k->width + k->p->coord_start, v);
  reform_box(k, v);
  r->store(vec_at(r, k->y, to * k->width + k->p->coord_start), v, 4);
}

/* Writes the boxes that remain, then rows of -1, and the index of each in `record`. */
static void suppress_boxes(const struct suppression *k)
{
  const struct nms_param *p = k->p;
  const struct sort_key *sorted;
  int64_t n = choose_boxes(k, &sorted), rows = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t row = sorted[i].index * k->width;
    k->box[i] = box_at(k->r, &k->m, k->x, row + p->coord_start, (int)p->in_format);
    k->kind[i] = p->id_index >= 0 ? trunc(k->r->get(k->x, row + p->id_index)) : 0;
  }
  struct nms s = { k->m, k->box, p->force_suppress ? NULL : k->kind, p->overlap_thresh, false };
  memset(k->gone, 0, (size_t)n);
  nms_run(&s, k->gone, n, n);
  for (int64_t i = 0; i < n; i++)
    if (!k->gone[i]) write_row(k, rows++, sorted[i].index);
  if (k->y) k->r->fill(vec_at(k->r, k->y, rows * k->width), -1, (k->n - rows) * k->width);
  for (int64_t i = rows; k->record && i < k->n; i++) k->record[i] = -1;
}

/* Copies all rows for topk = 0, where nothing is suppressed, sorted or converted. */
static void copy_rows(
    const struct suppression *k)
{
  if (k->y) memcpy(k->y, k->x, k->r->size * (size_t)(k->n * k->width));
  for (int64_t i = 0; k->record && i < k->n; i++) k->record[i] = (int32_t)i;
}

static size_t nms_bytes(const struct call *c)
{
  size_t n = (size_t)c->in[0].d.dim[c->in[0].d.ndim - 2];
  return align_up(
      n * (2 * sizeof(struct sort_key) + sizeof(struct box) + sizeof(double) + 1) + 4 * ALIGN,
      ALIGN);
}
static size_t nms_scratch(const struct call *c)
{
  return nms_bytes(c) * (size_t)parallel_threads();
}

static void nms_body(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const ty_desc *d = &c->in[0].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  char *scratch = (char *)c->tmp + (size_t)parallel_index() * nms_bytes(c);
  struct suppression k = { .p = c->param,
    .r = r,
    .m = { d->dtype == TY_F32, 0 },
    .n = d->dim[d->ndim - 2],
    .width = d->dim[d->ndim - 1] };
  k.order = CUT(scratch, 2 * k.n, struct sort_key);
  k.box = CUT(scratch, k.n, struct box);
  k.kind = CUT(scratch, k.n, double);
  k.gone = CUT(scratch, k.n, uint8_t);
  for (int64_t b = begin; b < end; b++) {
    k.x = vec_at(r, c->in[0].p, b * k.n * k.width);
    k.y = vec_at(r, c->out[0].p, b * k.n * k.width);
    k.record = c->out[1].p ? (int32_t *)c->out[1].p + b * k.n : NULL;
    if (k.p->topk == 0)
      copy_rows(&k);
    else
      suppress_boxes(&k);
  }
}

static int nms_forward(struct call *c)
{
  parallel_chunks(rows_before(&c->in[0].d, 2), 1, nms_body, c);
  return TY_OK;
}

/* Computes the gradient. in: head gradient, record. */
static int nms_backward(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  size_t row = dtype_size(d->dtype) * (size_t)d->dim[d->ndim - 1];
  int64_t n = d->dim[d->ndim - 2], rows = rows_before(d, 1);
  const int32_t *record = c->in[1].p;
  if (!c->out[0].p) return TY_OK;
  memset(c->out[0].p, 0, desc_bytes(d));
  for (int64_t i = 0; i < rows; i++)
    if (record[i] >= 0)
      memcpy((char *)c->out[0].p + (size_t)(i / n * n + record[i]) * row,
          (const char *)c->in[0].p + (size_t)i * row, row);
  return TY_OK;
}

/* -- pairs ------------------------------------------------------------------------------------- */

struct match_param { int64_t is_ascend, topk; double threshold; };
static const struct param match_params[] = {
  { "is_ascend", P_BOOL,  offsetof(struct match_param, is_ascend), "0",  "the lowest scores are the best" },
  { "threshold", P_FLOAT, offsetof(struct match_param, threshold), NULL, "pairs match above it; with is_ascend, below" },
  { "topk",      P_INT,   offsetof(struct match_param, topk),      "-1",
    "matching ends when more than so many pairs are found; -1: never" },
  { 0 }
};

/* Fails if the scores' dtype cannot represent all indices of rows and columns. */
static int partners_fit(struct infer *s)
{
  const ty_desc *d = &s->in[0];
  if (d->ndim < 2) return TY_OK;
  return positions_fit(s, d, d->dtype, MAX(d->dim[d->ndim - 2], d->dim[d->ndim - 1]),
      "Cast data to a type that does");
}

static int match_shape(struct infer *s)
{
  ty_desc *d = &s->in[0];
  if (!d->ndim) return TY_OK;
  TRY(rank_at_least(s, d, 2, "(..., rows, columns)"));
  int64_t dim[TY_MAXDIM];
  for (int i = 0; i < d->ndim - 1; i++) dim[i] = d->dim[i];
  TRY(shape_is(s, &s->out[0], d->ndim - 1, dim));
  dim[d->ndim - 2] = d->dim[d->ndim - 1];
  TRY(shape_is(s, &s->out[1], d->ndim - 1, dim));
  return partners_fit(s);
}

static int match_type(struct infer *s)
{
  TRY(type_all(s));
  return partners_fit(s);
}

/* Matches rows and columns of one sample greedily, best score first. Sets row to the column of each
** row and col to the row of each column, -1 without a partner. order: 2 rows cols entries. */
static void match_one(const struct match_param *p, const struct vec_ops *r, const void *x,
    int64_t rows, int64_t cols, struct sort_key *order, int32_t *row, int32_t *col)
{
  int64_t n = rows * cols, found = 0;
  double threshold = r->dtype == TY_F32 ? (float)p->threshold : p->threshold;
  for (int64_t i = 0; i < rows; i++) row[i] = -1;
  for (int64_t i = 0; i < cols; i++) col[i] = -1;
  for (int64_t i = 0; i < n; i++) {
    double v = r->get(x, i);
    order[i] = (struct sort_key){ best_first(p->is_ascend ? -v : v), i };
  }
  const struct sort_key *sorted = merge_sort(order, order + n, n);
  for (int64_t i = 0; i < n; i++) {
    int64_t a = sorted[i].index / cols, b = sorted[i].index % cols;
    double v = r->get(x, sorted[i].index);
    if (row[a] >= 0 || col[b] >= 0) continue;
    if (!(p->is_ascend ? v < threshold : v > threshold)) return;
    row[a] = (int32_t)b;
    col[b] = (int32_t)a;
    if (++found > p->topk && p->topk > 0) return;
  }
}

static size_t match_bytes(const struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  size_t rows = (size_t)d->dim[d->ndim - 2], cols = (size_t)d->dim[d->ndim - 1];
  return align_up(
      2 * rows * cols * sizeof(struct sort_key) + (rows + cols) * sizeof(int32_t) + 3 * ALIGN,
      ALIGN);
}
static size_t match_scratch(const struct call *c)
{
  return match_bytes(c) * (size_t)parallel_threads();
}

static void match_body(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const ty_desc *d = &c->in[0].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  int64_t rows = d->dim[d->ndim - 2], cols = d->dim[d->ndim - 1];
  char *scratch = (char *)c->tmp + (size_t)parallel_index() * match_bytes(c);
  struct sort_key *order = CUT(scratch, 2 * rows * cols, struct sort_key);
  int32_t *row = CUT(scratch, rows, int32_t), *col = CUT(scratch, cols, int32_t);
  for (int64_t b = begin; b < end; b++) {
    match_one(c->param, r, vec_at(r, c->in[0].p, b * rows * cols), rows, cols, order, row, col);
    for (int64_t i = 0; c->out[0].p && i < rows; i++) r->set(c->out[0].p, b * rows + i, row[i]);
    for (int64_t i = 0; c->out[1].p && i < cols; i++) r->set(c->out[1].p, b * cols + i, col[i]);
  }
}

static int match_forward(struct call *c)
{
  parallel_chunks(rows_before(&c->in[0].d, 2), 1, match_body, c);
  return TY_OK;
}

/* -- boxes relative to anchors ----------------------------------------------------------------- */

static int encode_shape(struct infer *s)
{
  ty_desc *samples = &s->in[0], *anchors = &s->in[2], *refs = &s->in[3];
  const int64_t four = 4;
  TRY(shape_rank(s, samples, 2, "(batch, anchors)"));
  TRY(shape_both(s, samples, &s->in[1]));
  TRY(shape_rank(s, anchors, 3, "(batch, anchors, 4)"));
  TRY(shape_rank(s, refs, 3, "(batch, objects, 4)"));
  for (int i = 4; i < 6; i++) TRY(shape_is(s, &s->in[i], 1, &four));
  if (!samples->ndim) return TY_OK;
  int64_t full[3] = { samples->dim[0], samples->dim[1], 4 };
  TRY(shape_is(s, anchors, 3, full));
  if (refs->ndim) TRY(shape_dim(s, refs, 0, samples->dim[0]));
  if (refs->ndim) TRY(shape_dim(s, refs, 2, 4));
  for (int i = 0; i < 2; i++) TRY(shape_is(s, &s->out[i], 3, full));
  return TY_OK;
}

static void encode_body(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const struct vec_ops *r = vec_ops_of(c->in[0].d.dtype);
  const int64_t anchors = c->in[0].d.dim[1], objects = c->in[3].d.dim[1];
  double mean[4], std[4], v[4], object[4];
  read_four(r, c->in[4].p, 0, mean);
  read_four(r, c->in[5].p, 0, std);
  for (int64_t i = begin; i < end; i++) {
    double to[4] = { 0 };
    int64_t match = whole_at(&c->in[1], i);
    bool valid = r->get(c->in[0].p, i) > 0.5 && match >= 0 && match < objects;
    if (valid) {
      read_four(r, c->in[2].p, 4 * i, v);
      read_four(r, c->in[3].p, 4 * (i / anchors * objects + match), object);
      box_encode(v, object, mean, std, to);
    }
    if (c->out[0].p) r->store(vec_at(r, c->out[0].p, 4 * i), to, 4);
    if (c->out[1].p) r->fill(vec_at(r, c->out[1].p, 4 * i), valid, 4);
  }
}

static int encode_forward(struct call *c)
{
  parallel_for(desc_count(&c->in[0].d), elements_ns(64), encode_body, c);
  return TY_OK;
}

struct decode_param { double std[4], clip; int64_t format; };
#define STD(k, what) \
  { "std" #k, P_FLOAT, offsetof(struct decode_param, std) + (k) * sizeof(double), "1", \
    "factor of " what }
static const struct param decode_params[] = {
  STD(0, "x"), STD(1, "y"), STD(2, "the width"), STD(3, "the height"),
  { "clip",   P_FLOAT, offsetof(struct decode_param, clip), "-1",
    "most that the logarithms of width and height may be; 0 and below: no limit" },
  { "format", P_ENUM,  offsetof(struct decode_param, format), "center", "anchors: x y width height, or x1 y1 x2 y2", BOX_FORMS },
  { 0 }
};

static int decode_shape(struct infer *s)
{
  ty_desc *d = &s->in[0], *anchors = &s->in[1];
  TRY(shape_rank(s, d, 3, "(batch, anchors, 4)"));
  TRY(shape_rank(s, anchors, 3, "(1, anchors, 4)"));
  TRY(shape_both(s, d, &s->out[0]));
  if (d->ndim) TRY(shape_dim(s, d, 2, 4));
  if (anchors->ndim && d->ndim) TRY(shape_dim(s, d, 1, anchors->dim[1]));
  if (!d->ndim) return TY_OK;
  int64_t full[3] = { 1, d->dim[1], 4 };
  TRY(shape_is(s, anchors, 3, full));
  return shape_both(s, d, &s->out[0]);
}

static void decode_body(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const struct decode_param *p = c->param;
  const struct vec_ops *r = vec_ops_of(c->in[0].d.dtype);
  double v[4], by[4], to[4], middle[2], size[2];
  for (int64_t i = begin; i < end; i++) {
    read_four(r, c->in[1].p, 4 * (i % c->in[0].d.dim[1]), v);
    read_four(r, c->in[0].p, 4 * i, by);
    if (p->format == CORNER)
      box_middle(v, middle, size);
    else
      for (int k = 0; k < 2; k++) middle[k] = v[k], size[k] = v[k + 2];
    box_decode(middle, size, by, p->std, p->clip, to);
    r->store(vec_at(r, c->out[0].p, 4 * i), to, 4);
  }
}

static int decode_forward(struct call *c)
{
  parallel_for(c->in[0].d.dim[0] * c->in[0].d.dim[1], elements_ns(64), decode_body, c);
  return TY_OK;
}

/* -- the operators ----------------------------------------------------------------------------- */

static const struct kernel iou_cpu[] = { { "pairs", iou_forward, T_FLOAT }, { 0 } };
static const struct kernel nms_cpu[] = { { "samples", nms_forward, T_FLOAT | T(TY_I32), NULL, nms_scratch }, { 0 } };
static const struct kernel nms_back_cpu[] = { { "rows", nms_backward, T_FLOAT | T(TY_I32) }, { 0 } };
static const struct kernel match_cpu[] = { { "samples", match_forward, T_FLOAT, NULL, match_scratch }, { 0 } };
static const struct kernel encode_cpu[] = { { "boxes", encode_forward, T_FLOAT }, { 0 } };
static const struct kernel decode_cpu[] = { { "boxes", decode_forward, T_FLOAT }, { 0 } };

const struct op op_box[] = {
  { .name = "_contrib_box_iou", .in = "lhs rhs", .out = "output",
    .doc = "Intersection over union of every box of lhs with every box of rhs: lhs's shape without its 4, then rhs's.",
    .param = iou_params, .param_size = sizeof(struct iou_param), .shape = iou_shape, .flags = OP_ZERO_GRAD, .cpu = iou_cpu },
  { .name = "_contrib_box_nms", .alias = "_contrib_box_non_maximum_suppression", .in = "data", .out = "output0 [output1]",
    .doc = "Rows that hold a box and its score, best first, without those that overlap a better one; -1 fills the rest.",
    .param = nms_params, .param_size = sizeof(struct nms_param), .check = nms_check, .shape = nms_shape, .type = nms_type,
    .grad = "g0 o1", .cpu = nms_cpu, .back_cpu = nms_back_cpu },
  { .name = "_contrib_bipartite_matching", .in = "data", .out = "output0 output1",
    .doc = "Greedy pairs of rows and columns by score: the column of each row (..., rows), the row of each column (..., columns).",
    .param = match_params, .param_size = sizeof(struct match_param), .shape = match_shape, .type = match_type,
    .flags = OP_ZERO_GRAD, .cpu = match_cpu },
  { .name = "_contrib_box_encode", .in = "samples matches anchors refs means stds", .out = "output0 output1",
    .doc = "Offsets (batch, anchors, 4) from anchors to the objects they match, for samples above 0.5, and 1 where they count.",
    .shape = encode_shape, .flags = OP_ZERO_GRAD, .cpu = encode_cpu },
  { .name = "_contrib_box_decode", .in = "data anchors", .out = "output",
    .doc = "Corners of the boxes that offsets from anchors describe: (batch, anchors, 4).",
    .param = decode_params, .param_size = sizeof(struct decode_param), .shape = decode_shape, .flags = OP_ZERO_GRAD, .cpu = decode_cpu },
  { 0 }
};

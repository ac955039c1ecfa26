/* proposal.c - candidate regions from the outputs of a region proposal network: Proposal (one
** image), MultiProposal (a batch).
**
** A box includes the pixels at both of its corners. The anchors of a cell come from a square of
** feature_stride pixels: it takes every ratio of height to width (same area, sides rounded), then
** every scale. cls_prob (batch, 2 anchors, height, width) holds scores of background, then of
** objects. bbox_pred (batch, 4 anchors, height, width) moves and stretches the anchors or, with
** iou_loss, moves their corners. im_info (batch, 3) is height, width and scale of the image without
** padding. Boxes are clipped to the image. The score is -1 for cells outside the image, for a box
** smaller than rpn_min_size (which is enlarged by half of that at each end), and where box or score
** is NaN. The pre_nms best boxes take part in suppression; the first post_nms of those that remain
** are the result, repeated from the first where fewer remain.
** Source: Ren et al., "Faster R-CNN", NIPS 2015.
*/
#include "kernel/element/proposal.h"
#include "op/op.h"
#include "operators/vision/boxes.h"

struct proposal_param {
  int64_t pre_nms, post_nms, min_size, feature_stride, output_score, iou_loss;
  double  threshold;
  struct reals scales, ratios;
};
#define FIELD(name) offsetof(struct proposal_param, name)
static const struct param proposal_params[] = {
  { "rpn_pre_nms_top_n",  P_INT, FIELD(pre_nms),  "6000", "boxes that take part in suppression, best first; 0 and below: all" },
  { "rpn_post_nms_top_n", P_INT, FIELD(post_nms), "300",  "regions per image", NULL, "[1,2147483647]" },
  { "threshold",      P_FLOAT,  FIELD(threshold), "0.7",  "a box that overlaps a better one by more than this goes" },
  { "rpn_min_size",   P_INT,    FIELD(min_size),  "16",   "least height and width of a box, in pixels of the image before scaling" },
  { "scales",         P_FLOATS, FIELD(scales),    "[4,8,16,32]", "of anchors, in sides of a cell" },
  { "ratios",         P_FLOATS, FIELD(ratios),    "[0.5,1,2]", "of anchors, height by width" },
  { "feature_stride", P_INT,    FIELD(feature_stride), "16", "pixels per cell", NULL, "[1,2147483647]" },
  { "output_score",   P_BOOL,   FIELD(output_score), "0", "scores are a second output" },
  { "iou_loss",       P_BOOL,   FIELD(iou_loss),  "0",    "bbox_pred moves corners, in pixels" },
  { 0 }
};

static int proposal_check(void *param)
{
  const struct proposal_param *p = param;
  const struct reals *list[] = { &p->scales, &p->ratios };
  for (int k = 0; k < 2; k++) {
    const char *name = k ? "ratios" : "scales";
    NEED(list[k]->n > 0, TY_EVALUE, "%s: expected at least one number", name);
    for (int i = 0; i < list[k]->n; i++)
      NEED(list[k]->d[i] > 0, TY_EVALUE, "%s: expected numbers above 0, got %g", name,
          list[k]->d[i]);
  }
  return TY_OK;
}

static const char *proposal_out(const void *param)
{
  return ((const struct proposal_param *)param)->output_score ? "output score" : "output [score]";
}

static int many_shape(struct infer *s)
{
  const struct proposal_param *p = s->param;
  int64_t anchors = p->scales.n * p->ratios.n;
  TRY(shape_rank(s, &s->in[0], 4, "(batch, 2 anchors, height, width)"));
  TRY(shape_rank(s, &s->in[1], 4, "(batch, 4 anchors, height, width)"));
  TRY(shape_rank(s, &s->in[2], 2, "(batch, 3)"));
  if (!s->in[0].ndim) return TY_OK;
  const int64_t *d = s->in[0].dim;
  TRY(shape_dim(s, &s->in[0], 1, 2 * anchors));
  int64_t moves[4] = { d[0], 4 * anchors, d[2], d[3] }, info[2] = { d[0], 3 };
  TRY(shape_is(s, &s->in[1], 4, moves));
  TRY(shape_is(s, &s->in[2], 2, info));
  int64_t out[2] = { d[0] * p->post_nms, 5 };
  TRY(shape_is(s, &s->out[0], 2, out));
  out[1] = 1;
  return shape_is(s, &s->out[1], 2, out);
}

static int one_shape(struct infer *s)
{
  if (s->in[0].ndim == 4 && s->in[0].dim[0] > 1)
    return infer_fail(s, TY_ESHAPE, &s->in[0],
        "expected one image, got %lld; MultiProposal takes more", (long long)s->in[0].dim[0]);
  return many_shape(s);
}

/* -- one image --------------------------------------------------------------------------------- */

struct image_of {
  const struct proposal_param *p;
  const struct vec_ops *r;
  struct proposal_rules rules;
  int64_t anchors, h, w;
  int64_t count;                                      /* anchors of all cells */
  int64_t pre;                                        /* boxes that take part in suppression */
  const void *scores;                                 /* of objects: (anchors, h, w) */
  const void *moves;                                  /* (4 anchors, h, w) */
  double  info[3];
  struct proposal *all;
  struct sort_key *order;
  struct box *box;
  uint8_t *gone;
};

/* Returns the proposal of anchor index % anchors in cell index / anchors. */
static struct proposal propose_at(const struct image_of *k, int64_t index)
{
  const struct reals *scales = &k->p->scales, *ratios = &k->p->ratios;
  int64_t a = index % k->anchors, cell = index / k->anchors, area = k->h * k->w,
          position[2] = { cell % k->w, cell / k->w };
  double v[4], by[4];
  anchor_of((double)k->rules.stride, ratios->d[a / scales->n], scales->d[a % scales->n], v);
  for (int i = 0; i < 4; i++) by[i] = k->r->get(k->moves, (4 * a + i) * area + cell);
  return propose(&k->rules, v, position, by, k->info, k->r->get(k->scores, a * area + cell));
}

/* Fills `order` with the proposals that remain after suppression, best first. Returns their
** number. */
static int64_t select_best(const struct image_of *k)
{
  for (int64_t i = 0; i < k->count; i++) {
    k->all[i] = propose_at(k, i);
    k->order[i] = (struct sort_key){ best_first(k->all[i].score), i };
  }
  const struct sort_key *sorted = merge_sort(k->order, k->order + k->count, k->count);
  for (int64_t i = 0; i < k->pre; i++)
    k->box[i] = box_of(&k->rules.m, k->all[sorted[i].index].v, CORNER), k->gone[i] = 0;
  struct nms s = { k->rules.m, k->box, NULL, k->p->threshold, false };
  int64_t stay = nms_run(&s, k->gone, k->pre, k->p->post_nms), n = 0;
  for (int64_t i = 0; n < stay; i++)
    if (!k->gone[i]) k->order[n++] = sorted[i];
  return n;
}

static int64_t candidate_count(const struct proposal_param *p, int64_t count)
{
  return p->pre_nms > 0 ? MIN(p->pre_nms, count) : count;
}

static size_t proposal_bytes(const struct call *c)
{
  size_t count = (size_t)desc_count(&c->in[0].d) / (size_t)c->in[0].d.dim[0] / 2;
  return align_up(
      count * (sizeof(struct proposal) + 2 * sizeof(struct sort_key) + sizeof(struct box) + 1) +
          4 * ALIGN,
      ALIGN);
}
static size_t proposal_scratch(const struct call *c)
{
  return proposal_bytes(c) * (size_t)parallel_threads();
}

/* Writes post_nms regions of an image, repeating the `found` ones in `order`. */
static void write_regions(
    const struct call *c, const struct image_of *k, int64_t image, int64_t found)
{
  int64_t post = k->p->post_nms;
  for (int64_t i = 0; i < post; i++) {
    const struct proposal *q = &k->all[k->order[i % found].index];
    double row[5] = { (double)image, q->v[0], q->v[1], q->v[2], q->v[3] };
    if (c->out[0].p) k->r->store(vec_at(k->r, c->out[0].p, (image * post + i) * 5), row, 5);
    if (c->out[1].p) k->r->set(c->out[1].p, image * post + i, q->score);
  }
}

static void proposal_body(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const ty_desc *d = &c->in[0].d;
  char *scratch = (char *)c->tmp + (size_t)parallel_index() * proposal_bytes(c);
  struct image_of k = { .p = c->param,
    .r = vec_ops_of(d->dtype),
    .rules = { { d->dtype == TY_F32, 1 } },
    .anchors = d->dim[1] / 2,
    .h = d->dim[2],
    .w = d->dim[3] };
  k.rules.stride = k.p->feature_stride;
  k.rules.least = k.p->min_size;
  k.rules.corners = k.p->iou_loss;
  k.count = k.anchors * k.h * k.w;
  k.pre = candidate_count(k.p, k.count);
  k.all = CUT(scratch, k.count, struct proposal);
  k.order = CUT(scratch, 2 * k.count, struct sort_key);
  k.box = CUT(scratch, k.count, struct box);
  k.gone = CUT(scratch, k.count, uint8_t);
  for (int64_t n = begin; n < end; n++) {
    k.scores = vec_at(k.r, c->in[0].p, (2 * n + 1) * k.count);
    k.moves = vec_at(k.r, c->in[1].p, 4 * n * k.count);
    for (int i = 0; i < 3; i++) k.info[i] = k.r->get(c->in[2].p, 3 * n + i);
    write_regions(c, &k, n, select_best(&k));
  }
}

static int proposal_forward(struct call *c)
{
  parallel_chunks(c->in[0].d.dim[0], 1, proposal_body, c);
  return TY_OK;
}

static const struct kernel proposal_cpu[] = { { "images", proposal_forward, T_FLOAT, NULL, proposal_scratch }, { 0 } };

#define PROPOSAL(op, text, shape_of) \
  { .name = op, .in = "cls_prob bbox_pred im_info", .out = "output [score]", \
    .out_of = proposal_out, .doc = text, .param = proposal_params, \
    .param_size = sizeof(struct proposal_param), .check = proposal_check, .shape = shape_of, \
    .flags = OP_ZERO_GRAD, .cpu = proposal_cpu }
const struct op op_proposal[] = {
  PROPOSAL("_contrib_Proposal", "Regions (rpn_post_nms_top_n, 5) of one image from scores and moves of anchors.", one_shape),
  PROPOSAL("_contrib_MultiProposal", "Regions (batch rpn_post_nms_top_n, image x1 y1 x2 y2) from scores and moves of anchors.", many_shape),
  { 0 }
};

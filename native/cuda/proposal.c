/* proposal.c - _contrib_Proposal, _contrib_MultiProposal (kernels/proposal.cu). */
#include "cuda/row.h"
#include "kernel/element/proposal.h"
#include "op/registry.h"

/* Same as in kernels/proposal.cu. */
struct proposal_args {
  int64_t images, anchors, h, w, pre, post, scales;
  double limit;
  struct proposal_rules rules;
  double scale[128], ratio[128];
};

static struct proposal_args make_args(const struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  const struct reals *scales = op_reals(c->op, c->param, "scales"),
                     *ratios = op_reals(c->op, c->param, "ratios");
  int64_t count = d->dim[1] / 2 * d->dim[2] * d->dim[3];
  int64_t pre = (int64_t)cuda_number(c, "rpn_pre_nms_top_n", 0);
  struct proposal_args s = { d->dim[0], d->dim[1] / 2, d->dim[2], d->dim[3],
    pre > 0 ? MIN(pre, count) : count, (int64_t)cuda_number(c, "rpn_post_nms_top_n", 1),
    scales->n, cuda_number(c, "threshold", 0),
    { { d->dtype == TY_F32, 1 }, (int64_t)cuda_number(c, "feature_stride", 1),
      (int64_t)cuda_number(c, "rpn_min_size", 0), cuda_flag(c, "iou_loss") } };
  for (int i = 0; i < scales->n; i++) s.scale[i] = scales->d[i];
  for (int i = 0; i < ratios->n; i++) s.ratio[i] = ratios->d[i];
  return s;
}

/* Returns the number of boxes of all images. */
static int64_t boxes_of(const struct proposal_args *s)
{
  return s->images * s->anchors * s->h * s->w;
}

static size_t proposal_scratch(const struct call *c)
{
  struct proposal_args s = make_args(c);
  size_t n = (size_t)boxes_of(&s), regions = (size_t)(s.images * s.post);
  return 2 * cuda_keys_bytes((int64_t)n) + align_up(n * sizeof(struct proposal), ALIGN) +
      align_up(n * sizeof(int32_t), ALIGN) + align_up(regions * sizeof(int64_t), ALIGN);
}

static int propose_regions(struct call *c)
{
  struct proposal_args s = make_args(c);
  int64_t n = boxes_of(&s);
  char *at = c->tmp;
  void *keys = cuda_piece(&at, cuda_keys_bytes(n)), *space = cuda_piece(&at, cuda_keys_bytes(n));
  void *all = cuda_piece(&at, (size_t)n * sizeof(struct proposal));
  void *gone = cuda_piece(&at, (size_t)n * sizeof(int32_t)), *kept = at;
  TRY(cuda_start(c, FAMILY_proposal, "propose_boxes", "T=$i0 TEAM=256", n,
      (void *[]){ &all, &keys, &c->in[0].p, &c->in[1].p, &c->in[2].p, &s }));
  TRY(cuda_sort_keys(c, &keys, space, n, n / s.images));
  TRY(device_fill(c->device, gone, 0, (size_t)n * sizeof(int32_t)));
  return cuda_start(c, FAMILY_proposal, "choose_regions", "T=$i0 TEAM=256", s.images * CUDA_BLOCK,
      (void *[]){ &c->out[0].p, &c->out[1].p, &all, &keys, &gone, &kept, &s });
}

static const struct kernel proposals[] = {
  { "images", propose_regions, T_FLOAT, .scratch = proposal_scratch }, { 0 }
};

const struct op_kernels cuda_proposal[] = {
  { "_contrib_Proposal", proposals, NULL },
  { "_contrib_MultiProposal", proposals, NULL },
  { 0 }
};

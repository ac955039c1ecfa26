// proposal.cu - Proposal, MultiProposal: regions from the scores of a region proposal network
// (kernel/element/proposal.h). Method: one thread per anchor and cell proposes a box; boxes are
// sorted by score (sort.cu); then one block per image goes through the best ones, and its threads
// compare a box that is kept with those after it. Bound: the square of the number of boxes that
// take part, over the threads.
#ifndef T
#include "prelude.cuh"
#include "kernel/element/boxes.h"
#include "kernel/element/proposal.h"
#define T float
#define TEAM 256
#include "team.cuh"
#include "keys.cuh"
#endif

// Sizes. pre: number of best boxes of an image that take part; post: number of regions per image.
struct proposal_args {
  i64 images, anchors, h, w, pre, post, scales;
  double limit;
  proposal_rules rules;
  double scale[128], ratio[128];
};

// Proposes a box for each anchor and cell, with a key by score. scores: (image, 2 anchors, cell),
// the second half for objects; moves: (image, 4 anchors, cell); info: (image, 3).
extern "C" __global__ void propose_boxes(proposal *all, sort_key *keys, const T *scores,
    const T *moves, const T *info, const struct proposal_args __grid_constant__ s)
{
  const i64 area = s.h * s.w, count = s.anchors * area;
  EACH(i, s.images * count)
  {
    i64 image = i / count, a = i % count % s.anchors, cell = i % count / s.anchors;
    int64_t at[2] = { cell % s.w, cell / s.w };
    double v[4], by[4], size[3];
    anchor_of((double)s.rules.stride, s.ratio[a / s.scales], s.scale[a % s.scales], v);
    for (int k = 0; k < 4; k++) by[k] = moves[4 * image * count + (4 * a + k) * area + cell];
    for (int k = 0; k < 3; k++) size[k] = info[3 * image + k];
    double score = scores[(2 * image + 1) * count + a * area + cell];
    all[i] = propose(&s.rules, v, at, by, size, score);
    keys[i] = { best_first(all[i].score), i % count };
  }
}

// Chooses the regions of each image. gone: scratch, one number per box, initially 0. kept: scratch
// for the indices of `post` boxes per image; if fewer are kept, they repeat. y and score may be
// NULL.
extern "C" __global__ void choose_regions(T *y, T *score, const proposal *all, const sort_key *keys,
    i32 *gone, i64 *kept, const struct proposal_args __grid_constant__ s)
{
  const i64 count = s.anchors * s.h * s.w;
  const double limit = box_held(&s.rules.m, s.limit);
  EACH_ROW(image, s.images)
  {
    const proposal *from = all + image * count;
    const sort_key *order = keys + image * count;
    i32 *out = gone + image * count;
    i64 *chosen = kept + image * s.post, found = 0;
    for (i64 i = 0; i < s.pre && found < s.post; i++) {
      __syncthreads();
      if (out[i]) continue;
      struct box own = box_of(&s.rules.m, from[order[i].index].v, CORNER);
      if (LEADS) chosen[found] = order[i].index;
      found++;
      EACH_OF_TEAM(j, i + 1, s.pre)
      {
        struct box other = box_of(&s.rules.m, from[order[j].index].v, CORNER);
        if (!out[j]) out[j] = box_overlap(&s.rules.m, &own, &other) > limit;
      }
    }
    __syncthreads();
    EACH_OF_TEAM(r, 0, s.post)
    {
      const proposal &q = from[chosen[r % found]];
      i64 row = image * s.post + r;
      for (int k = 0; y && k < 5; k++) y[5 * row + k] = (T)(k ? q.v[k - 1] : (double)image);
      if (score) score[row] = (T)q.score;
    }
  }
}

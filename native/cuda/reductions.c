/* reductions.c - reductions over axes (kernels/reduce.cu): sum, mean, prod, max, min, norm, moments
** and their gradients; indices of extremes; running sums; the sums of broadcasting. */
#include "cuda/reduce.h"
#include "cuda/row.h"
#include "kernel/strided_copy.h"
#include "kernel/vec/vec.h"

/* -- reductions -------------------------------------------------------------------------------- */

struct launch_plan { int team; int64_t parts; };

/* Chooses enough threads for a large device, each with enough elements; depends on the shape
** alone. */
static struct launch_plan make_plan(const struct reduce *r)
{
  enum { THREADS = 1 << 18, EACH = 16, PARTS = 1024 };
  struct launch_plan p = { r->inner ? cuda_team(r->out, r->count, 1) : 1, 1 };
  int64_t most = MIN(MIN(PARTS, r->count / (p.team * EACH)), THREADS / (r->out * p.team));
  p.parts = MAX(most, 1);
  return p;
}

size_t cuda_reduce_scratch(const struct reduce *r)
{
  int64_t parts = make_plan(r).parts;
  return parts > 1 ? sizeof(double) * (size_t)(parts * r->out) : 0;
}

/* Writes sizes and strides of the groups that are kept, or reduced; if there is none, one of size
** 1. Returns their number. */
static int list_groups(const struct reduce *r, bool kept, int64_t *out)
{
  int n = 0;
  for (int i = 0; i < r->n; i++)
    if ((r->to[i] != 0) == kept) {
      out[2 * n] = r->dim[i];
      out[2 * n++ + 1] = r->from[i];
    }
  if (!n) out[0] = 1, out[1] = 0, n = 1;
  return n;
}

static const char *const names[] = { [R_SUM] = "reduce_sum", [R_NANSUM] = "reduce_nansum",
  [R_ABS] = "reduce_abs", [R_SQUARE] = "reduce_square", [R_PROD] = "reduce_prod",
  [R_NANPROD] = "reduce_nanprod", [R_MAX] = "reduce_max", [R_MIN] = "reduce_min",
  [R_DEVIATION] = "reduce_deviation", [R_DOT] = "reduce_dot" };

/* Writes the words of both kernels. */
static void type_words(
    const struct reduce *r, const struct cuda_reduce *f, char *words, size_t size)
{
  snprintf(words, size, "T=%s TO=%s REDUCTION=%s FINISH=%d ADD=%d",
      cuda_type(r->dtype), cuda_type(f->to), names[f->kind], f->finish, f->add);
}

struct reduce_words cuda_reduce_words(const struct reduce *r, const struct cuda_reduce *f)
{
  struct reduce_words w;
  int64_t groups[2 * R_AXES];
  type_words(r, f, w.s, sizeof w.s);
  const size_t n = strlen(w.s);
  snprintf(w.s + n, sizeof w.s - n, " KEPT=%d REDUCED=%d TEAM=%d INDEX=%s",
      list_groups(r, true, groups), list_groups(r, false, groups), make_plan(r).team,
      cuda_index(r->in));
  return w;
}

static int merge_parts(int device, const struct reduce *r, const struct cuda_reduce *f,
    const int64_t *args, void *part)
{
  char words[sizeof(struct reduce_words)];
  const int team = r->out < 4096 ? 32 : 1;
  cu_function merge;
  type_words(r, f, words, sizeof words);
  TRY(cuda_family(device, FAMILY_reduce, "merge_parts", &merge, "%s KEPT=1 REDUCED=1 TEAM=%d",
      words, team));
  void *y = f->y;
  void *params[] = { &y, &part, (void *)&args[0], (void *)&args[2], (void *)&args[1] };
  return cuda_launch(device, merge, cuda_blocks(device, r->out * team), CUDA_BLOCK, 0, params);
}

static int launch_reduce(int device, cu_function run, const struct reduce *r,
    const struct cuda_reduce *f, int lanes, void *elements, void *tmp)
{
  struct launch_plan p = make_plan(r);
  int64_t args[3 + 2 * R_AXES] = { r->out, r->count, tmp ? p.parts : 1 };
  int kept = list_groups(r, true, args + 3);
  list_groups(r, false, args + 3 + 2 * kept);
  void *part = args[2] > 1 ? tmp : NULL, *y = f->y;
  const void *other = f->other, *centre = f->centre;
  void *params[] = { &y, &part, elements, &other, &centre, args };
  TRY(cuda_launch(device, run, cuda_blocks(device, args[0] / lanes * args[2] * p.team), CUDA_BLOCK,
      0, params));
  return part ? merge_parts(device, r, f, args, part) : TY_OK;
}

int cuda_reduce_launch(int device, cu_function run, const struct reduce *r,
    const struct cuda_reduce *f, void *elements, void *tmp)
{
  return launch_reduce(device, run, r, f, 1, elements, tmp);
}

/* Returns how many neighbours along the last group of axes a load takes: 16 bytes of them; 1 if
** alignment, a length or a stride does not allow that. */
static int choose_pack(const struct reduce *r, const struct cuda_reduce *f)
{
  if (!r->n || r->from[r->n - 1] != 1) return 1;
  const int pack = cuda_pack(
      r->dtype, r->dim[r->n - 1], (void *[]){ (void *)f->x, (void *)f->other }, 2);
  for (int i = 0; i < r->n - 1; i++)
    if (r->from[i] % pack) return 1;
  return pack;
}

int cuda_reduce(int device, const struct reduce *r, const struct cuda_reduce *f, void *tmp)
{
  enum { BUSY = 1 << 15 };                            /* threads that keep a device busy */
  struct reduce_words w = cuda_reduce_words(r, f);
  const void *x = f->x;
  const int64_t threads = r->out * (tmp ? make_plan(r).parts : 1);
  int pack = choose_pack(r, f), lanes = 1;
  cu_function run;
  if (!r->inner) {
    for (lanes = pack; lanes > 1 && threads / lanes < BUSY;) lanes /= 2;
    pack = 1;
  }
  TRY(cuda_family(device, FAMILY_reduce, "reduce", &run, "%s PACK=%d LANES=%d", w.s, pack, lanes));
  return launch_reduce(device, run, r, f, lanes, &x, tmp);
}

struct reduce cuda_reduce_all_but(int dtype, int64_t outer, int64_t k, int64_t inner)
{
  struct reduce r;
  reduce_plan_axes(dtype, 3, (int64_t[]){ outer, k, inner }, 1 | 4, &r);
  return r;
}

/* -- the sums of broadcasting ------------------------------------------------------------------ */

static int sum_plan(const ty_desc *dst, const ty_desc *src, struct reduce *r)
{
  char x[160], y[160];
  for (int i = 0; i < src->ndim; i++) {
    int k = i - src->ndim + dst->ndim;
    int64_t size = k >= 0 ? dst->dim[k] : 1;
    if (size != 1 && size != src->dim[i])
      return fail(TY_ESHAPE, "a sum of shape %s from %s is not possible",
          text_shape(dst, x, sizeof x), text_shape(src, y, sizeof y));
  }
  reduce_plan_to(src, dst, r);
  return TY_OK;
}

int cuda_sum_to(int device, void *dst, const ty_desc *dst_d, const void *src, const ty_desc *src_d)
{
  struct reduce r;
  TRY(sum_plan(dst_d, src_d, &r));
  struct cuda_reduce f = { R_SUM, F_NONE, dst_d->dtype, src, .y = dst };
  return cuda_reduce(device, &r, &f, NULL);
}

/* -- operators --------------------------------------------------------------------------------- */

static struct reduce make_reduce(const struct call *c, const ty_desc *data)
{
  struct reduce r;
  reduce_plan(data, c->op->reduction(c->param, data->ndim).axes, &r);
  return r;
}

static size_t forward_scratch(const struct call *c)
{
  struct reduce r = make_reduce(c, &c->in[0].d);
  return cuda_reduce_scratch(&r);
}

static const char *axes_refuse(const struct call *c) /* forward and backward */
{
  return c->in[0].d.dtype == c->out[0].d.dtype ? NULL : "the result has another dtype";
}

/* Accepts bools, whose counts have another dtype, and what axes_refuse accepts. */
static const char *forward_refuse(const struct call *c)
{
  return c->in[0].d.dtype == TY_BOOL ? NULL : axes_refuse(c);
}

static int axes_forward(struct call *c)
{
  struct reduce r = make_reduce(c, &c->in[0].d);
  struct axis_reduction k = c->op->reduction(c->param, c->in[0].d.ndim);
  struct cuda_reduce f = { k.kind, k.finish, c->out[0].d.dtype, c->in[0].p, NULL, NULL, c->out[0].p,
    c->add & 1 };
  return cuda_reduce(c->device, &r, &f, c->tmp);
}

/* The kernel's words and struct: from n on the same as in kernels/reduce_back.cu, with size and
** stride among the results of each group of axes. */
struct reduce_back_args { int64_t back, groups, n; double scale; int64_t group[R_AXES][2]; };
static int64_t fill_back(int back, const struct reduce *r, double scale, void *to)
{
  struct reduce_back_args *s = to;
  s->back = back;
  s->groups = r->n;
  s->n = r->in;
  s->scale = scale;
  for (int i = 0; i < r->n; i++) s->group[i][0] = r->dim[i], s->group[i][1] = r->to[i];
  return r->in;
}

static int64_t back_sizes(const struct call *c, void *s)
{
  static const int gradient[] = { [R_SUM] = B_SUM, [R_NANSUM] = B_NANSUM, [R_ABS] = B_SIGN,
    [R_SQUARE] = B_SQUARE, [R_PROD] = B_PROD, [R_NANPROD] = B_NANPROD, [R_MAX] = B_EQUAL,
    [R_MIN] = B_EQUAL };
  struct reduce r = make_reduce(c, &c->out[0].d);
  struct axis_reduction k = c->op->reduction(c->param, c->out[0].d.ndim);
  const int back = k.finish == F_ROOT ? B_ROOT : gradient[k.kind];
  return fill_back(back, &r, k.finish == F_MEAN ? 1 / (double)r.count : 1, s);
}

/* Returns the bytes of the mean, which is needed even if output 0 is unused; the scratch of the
** reductions follows it. */
static size_t mean_bytes(const struct call *c) { return align_up(desc_bytes(&c->out[0].d), ALIGN); }
static size_t moments_scratch(const struct call *c) { return mean_bytes(c) + forward_scratch(c); }

static int moments_forward(struct call *c)
{
  struct reduce r = make_reduce(c, &c->in[0].d);
  void *mean = c->out[0].p ? c->out[0].p : c->tmp, *tmp = (char *)c->tmp + mean_bytes(c);
  struct cuda_reduce f = { R_SUM, F_MEAN, r.dtype, c->in[0].p, NULL, NULL, mean };
  TRY(cuda_reduce(c->device, &r, &f, tmp));
  f.kind = R_DEVIATION;
  f.centre = mean;
  f.y = c->out[1].p;
  return f.y ? cuda_reduce(c->device, &r, &f, tmp) : TY_OK;
}

static int64_t moments_back_sizes(const struct call *c, void *s)
{
  struct reduce r = make_reduce(c, &c->out[0].d);
  return fill_back(B_DEVIATION, &r, 1 / (double)r.count, s);
}

/* -- whole arrays ------------------------------------------------------------------------------ */

static int finite_forward(struct call *c)
{
  const float one = 1;
  void *flag = c->out[0].p;
  if (cuda_number(c, "init_output", 1) != 0)
    TRY(move_fill(c->device, flag, &one, sizeof one, 1));
  for (int k = 0; k < c->nin; k++) {
    int64_t n = desc_count(&c->in[k].d);
    TRY(cuda_start_words(c, FAMILY_finite, "look_for_infinite", n,
        (void *[]){ &flag, &c->in[k].p, &n }, "T=$i%d", k));
  }
  return TY_OK;
}

static struct reduce whole_array(const struct operand *x)
{
  return cuda_reduce_all_but(x->d.dtype, desc_count(&x->d), 1, 1);
}

static size_t squares_scratch(const struct call *c)
{
  size_t most = 0;
  for (int k = 0; k < c->nin; k++) {
    struct reduce r = whole_array(&c->in[k]);
    most = MAX(most, cuda_reduce_scratch(&r));
  }
  return most;
}

static int squares_forward(struct call *c)
{
  for (int k = 0; k < c->nin; k++) {
    struct reduce r = whole_array(&c->in[k]);
    struct cuda_reduce f = { R_SQUARE, F_NONE, TY_F32, c->in[k].p, .y = (float *)c->out[0].p + k };
    TRY(cuda_reduce(c->device, &r, &f, c->tmp));
  }
  return TY_OK;
}

/* -- rows along one axis ----------------------------------------------------------------------- */

/* Returns the split at an axis; NONE: the flattened array. */
static struct split axis_split(const ty_desc *d, double axis)
{
  if (axis < -TY_MAXDIM) return (struct split){ 1, desc_count(d), 1 };
  return split_at(d, axis_in(axis, d->ndim));
}

enum { GREATEST, LEAST };

struct extreme_args { int64_t rows, k, inner, least, team; };
static int64_t extreme_sizes(const struct call *c, void *s)
{
  struct split at = axis_split(&c->in[0].d, cuda_number(c, "axis", 1));
  const int64_t rows = at.outer * at.inner, team = cuda_team(rows, at.k, at.inner);
  *(struct extreme_args *)s =
      (struct extreme_args){ rows, at.k, at.inner, cuda_what(c) == LEAST, team };
  return rows * team;
}

/* Same as in kernels/scan.cu. */
enum {
  HELD = 4,                                           /* packs that a thread of a tile holds */
  TILE_SUMS = 16,                                     /* bytes of a tile's sums */
  TILE_STATE = 4,                                     /* bytes of a tile's state */
  SHORT_ROW = 1024                                    /* elements of a row that a warp takes */
};

/* Returns the number of tiles; it is largest with pack 1. */
static int64_t count_tiles(int64_t rows, int64_t k, int pack)
{
  const int64_t tile = HELD * CUDA_BLOCK * (int64_t)pack;
  return rows * ((k + tile - 1) / tile);
}

static bool takes_tiles(const struct split *s)
{
  return s->k > SHORT_ROW && cuda_team(s->outer * s->inner, s->k, s->inner) > 1;
}

/* Returns the bytes of the tiles' sums, a ticket, and the tiles' states. */
static size_t running_scratch(const struct call *c)
{
  struct split s = axis_split(&c->in[0].d, cuda_number(c, "axis", 0));
  if (!takes_tiles(&s)) return 0;
  const int64_t tiles = count_tiles(s.outer * s.inner, s.k, 1);
  return (size_t)tiles * (TILE_SUMS + TILE_STATE) + sizeof(int64_t);
}

static int running_tiles(
    struct call *c, const char *words, int64_t rows, const struct split *s, int pack)
{
  int64_t tiles = count_tiles(rows, s->k, pack);
  void *sums = c->tmp, *ticket = elements_at(sums, tiles, TILE_SUMS);
  void *state = elements_at(ticket, 1, sizeof(int64_t));
  TRY(device_fill(
      c->device, sums, 0, sizeof(int64_t) + (size_t)tiles * (TILE_SUMS + TILE_STATE)));
  return cuda_start(c, FAMILY_scan, "running_tiles", words, tiles * CUDA_BLOCK,
      (void *[]){ &c->out[0].p, &c->in[0].p, &sums, &state, &ticket, &rows, (void *)&s->k,
        (void *)&s->inner });
}

/* Returns the elements of a load that both arrays allow. */
static int running_pack(const struct call *c, const struct split *s)
{
  void *arrays[] = { c->in[0].p, c->out[0].p };
  if (s->inner > 1) return 1;
  return MIN(cuda_pack(c->in[0].d.dtype, s->k, arrays, 2),
      cuda_pack(c->out[0].d.dtype, s->k, arrays, 2));
}

/* Computes running sums. Not a row, since there are three kernels for different lengths. */
static int running_sums(struct call *c, bool back)
{
  const ty_desc *d = &c->in[0].d;
  struct split s = axis_split(d, cuda_number(c, "axis", 0));
  int64_t rows = s.outer * s.inner;
  const bool tiles = takes_tiles(&s);
  const int team = tiles || cuda_team(rows, s.k, s.inner) > 1 ? 32 : 1;
  const int pack = team > 1 ? running_pack(c, &s) : 1;
  char words[CUDA_WORDS];
  if (!c->out[0].p || !desc_count(d)) return TY_OK;
  snprintf(words, sizeof words, "T=$i0 TO=$o0 PACK=%d BACK=%d TEAM=%d", pack, back, team);
  if (tiles) return running_tiles(c, words, rows, &s, pack);
  return cuda_start(c, FAMILY_scan, team > 1 ? "running_rows" : "running_sums", words, rows * team,
      (void *[]){ &c->out[0].p, &c->in[0].p, &rows, &s.k, &s.inner });
}

static int running_forward(struct call *c) { return running_sums(c, false); }
static int running_backward(struct call *c) { return running_sums(c, true); }

/* -- the table --------------------------------------------------------------------------------- */

static const struct kernel reductions[] = {
  { .name = "reduce", .run = axes_forward, .types = T_ANY, .refuse = forward_refuse,
    .scratch = forward_scratch, .add = 1 }, { 0 }
};
/* in: head gradient, then data and result as the kind needs */
#define GRADIENT(arguments, sizes) \
  CUDA_ROW(FAMILY_reduce_back, "reduce_back", "T=$o0 BACK=%0 GROUPS=%1 INDEX=^o0", arguments, sizes)
static const struct kernel reductions_back[] = {
  { "reduce", GRADIENT("o0 i1 i2 i0 - s2", back_sizes), .types = T_ANY, .refuse = axes_refuse },
  { 0 }
};
static const struct kernel moments[] = {
  { .name = "reduce", .run = moments_forward, .types = T_ANY, .refuse = axes_refuse,
    .scratch = moments_scratch }, { 0 }
};
/* in: two head gradients, data, mean */
static const struct kernel moments_back[] = {
  { "reduce", GRADIENT("o0 i2 i3 i0 i1 s2", moments_back_sizes), .types = T_ANY,
    .refuse = axes_refuse }, { 0 }
};
static const struct kernel extremes[] = {
  { "search", CUDA_ROW(FAMILY_search, "index_of_extreme", "T=$i0 TO=$o0 LEAST=%3 TEAM=%4",
    "o0 i0 s0 s1 s2", extreme_sizes), .types = T_ANY }, { 0 }
};
static const struct kernel running[] = {
  { .name = "lines", .run = running_forward, .types = T_ANY, .scratch = running_scratch }, { 0 }
};
static const struct kernel running_back[] = {
  { .name = "lines", .run = running_backward, .types = T_ANY, .scratch = running_scratch }, { 0 }
};

static const struct kernel finites[] = {
  { .name = "look", .run = finite_forward, .types = T_ANY }, { 0 }
};
static const struct kernel squares[] = {
  { .name = "reduce", .run = squares_forward, .types = T_ANY, .scratch = squares_scratch }, { 0 }
};

const struct op_kernels cuda_reductions[] = {
  { "sum", reductions, reductions_back },
  { "mean", reductions, reductions_back },
  { "nansum", reductions, reductions_back },
  { "prod", reductions, reductions_back },
  { "nanprod", reductions, reductions_back },
  { "max", reductions, reductions_back },
  { "min", reductions, reductions_back },
  { "_square_sum", reductions, reductions_back },
  { "norm", reductions, reductions_back },
  { "moments", moments, moments_back },
  { "argmax", extremes, NULL },
  { "argmin", extremes, NULL, LEAST },
  { "argmax_channel", extremes, NULL },
  { "_np_cumsum", running, running_back },
  { "all_finite", finites, NULL },
  { "multi_all_finite", finites, NULL },
  { "multi_sum_sq", squares, NULL },
  { 0 }
};

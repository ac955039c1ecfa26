/* resize.c - _contrib_BilinearResize2D: images of another height and width.
**
** With align_corners output row i is at source row i (in - 1) / (out - 1), so that the corners of
** both images coincide; without, at max(0, (i + 1/2) in / out - 1/2). A single output row is at
** source row 0. The same holds for columns. Each output is the weighted mean of four neighbours,
** where the last row and column are repeated. The gradient is distributed by the same weights.
*/
#include "kernel/element/resample.h"
#include "kernel/vec/vec.h"
#include "op/op.h"

enum { M_SIZE, M_ODD_SCALE, M_LIKE, M_EVEN_DOWN, M_EVEN_UP, M_ODD_DOWN, M_ODD_UP };
struct resize_param {
  int64_t height, width, mode, align_corners;
  double scale_height, scale_width;
};
#define FIELD(f) offsetof(struct resize_param, f)
static const struct param params[] = {
  { "height",        P_INT,   FIELD(height),        "1",    "rows, in mode size", NULL, "[1,]" },
  { "width",         P_INT,   FIELD(width),         "1",    "columns, in mode size", NULL, "[1,]" },
  { "scale_height",  P_FLOAT, FIELD(scale_height),  "None", "modes size and odd_scale: rows by those of data", NULL, NULL, 1 },
  { "scale_width",   P_FLOAT, FIELD(scale_width),   "None", "modes size and odd_scale: columns by those of data", NULL, NULL, 1 },
  { "mode",          P_ENUM,  FIELD(mode),          "size",
    "height and width, or scales; odd sizes from odd ones; as input like; the next even or odd size down or up",
    "size|odd_scale|like|to_even_down|to_even_up|to_odd_down|to_odd_up" },
  { "align_corners", P_BOOL,  FIELD(align_corners), "1",    "corners meet corners, else edges meet edges" },
  { 0 }
};

static const char *resize_ports(const void *param)
{
  return ((const struct resize_param *)param)->mode == M_LIKE ? "data like" : "data";
}

static bool takes_scales(int64_t mode) { return mode == M_SIZE || mode == M_ODD_SCALE; }

static int resize_check(void *param)
{
  const struct resize_param *p = param;
  const bool up = isnan(p->scale_height), across = isnan(p->scale_width);
  NEED(p->mode != M_ODD_SCALE || (!up && !across), TY_EVALUE,
      "mode odd_scale needs scale_height and scale_width");
  NEED(!takes_scales(p->mode) || up == across, TY_EVALUE,
      "give both scale_height and scale_width, or neither");
  NEED((up || (p->scale_height > 0 && p->scale_height < 1e6)) &&
          (across || (p->scale_width > 0 && p->scale_width < 1e6)),
      TY_EVALUE, "scale_height and scale_width: expected numbers above 0 and below 1e6");
  return TY_OK;
}

/* Returns the new size of an axis of n elements; 0: unknown, or too small to keep any. */
static int64_t side_after(const struct resize_param *p, int64_t n, int64_t size, double scale)
{
  const bool even = n % 2 == 0;
  if (p->mode == M_SIZE && isnan(scale)) return size;
  if (!n) return 0;
  switch (p->mode) {
  case M_SIZE: return (int64_t)((double)n * scale);
  case M_ODD_SCALE:
    return even ? (int64_t)((double)n * scale) : (int64_t)((double)(n - 1) * scale) + 1;
  case M_EVEN_DOWN: return even ? n : n - 1;
  case M_EVEN_UP: return even ? n : n + 1;
  case M_ODD_DOWN: return even ? n - 1 : n;
  default: return even ? n + 1 : n;
  }
}

static int resize_shape(struct infer *s)
{
  const struct resize_param *p = s->param;
  ty_desc *x = &s->in[0], *y = &s->out[0];
  for (int k = 0; k < s->nin; k++)
    if (s->in[k].ndim && s->in[k].ndim != 4)
      return infer_fail(s, TY_ESHAPE, &s->in[k],
          "expected (batch, channels, height, width), got %d dimensions", s->in[k].ndim);
  if (!x->ndim) return TY_OK;
  int64_t dim[4] = { x->dim[0], x->dim[1], 0, 0 };
  for (int i = 2; i < 4; i++) {
    dim[i] = p->mode == M_LIKE ? (s->in[1].ndim ? s->in[1].dim[i] : 0)
                               : side_after(p, x->dim[i], i == 2 ? p->height : p->width,
                                     i == 2 ? p->scale_height : p->scale_width);
    if (x->dim[i] && !dim[i] && p->mode != M_LIKE)
      return infer_fail(
          s, TY_ESHAPE, x, "nothing is left of axis %d of %lld elements", i, (long long)x->dim[i]);
    if (dim[i] > INT32_MAX)
      return infer_fail(
          s, TY_ESHAPE, x, "axis %d would grow to %lld elements", i, (long long)dim[i]);
  }
  return shape_is(s, y, 4, dim);
}

/* -- kernels ----------------------------------------------------------------------------------- */

/* h, w: size of the input; H, W: of the output. Backward reads the large gradient from `from`. */
struct resize_planes {
  const struct vec_ops *r;
  const void *from;
  void *to;
  int64_t h, w, H, W;
  bool corners;
};

static void resize_plane(const struct resize_planes *j, const void *x, void *y)
{
  for (int64_t i = 0, out = 0; i < j->H; i++) {
    struct resize_tap v = resize_tap(i, j->h, j->H, j->corners);
    for (int64_t k = 0; k < j->W; k++, out++) {
      struct resize_tap u = resize_tap(k, j->w, j->W, j->corners);
      int64_t a = v.at * j->w + u.at, b = a + v.next * j->w;
      double above = (1 - u.weight) * j->r->get(x, a) + u.weight * j->r->get(x, a + u.next);
      double below = (1 - u.weight) * j->r->get(x, b) + u.weight * j->r->get(x, b + u.next);
      j->r->set(y, out, (1 - v.weight) * above + v.weight * below);
    }
  }
}

static void add_number(const struct vec_ops *r, void *x, int64_t i, double by)
{
  r->set(x, i, r->get(x, i) + by);
}

static void plane_back(const struct resize_planes *j, const void *dy, void *dx)
{
  j->r->fill(dx, 0, j->h * j->w);
  for (int64_t i = 0, out = 0; i < j->H; i++) {
    struct resize_tap v = resize_tap(i, j->h, j->H, j->corners);
    for (int64_t k = 0; k < j->W; k++, out++) {
      struct resize_tap u = resize_tap(k, j->w, j->W, j->corners);
      int64_t a = v.at * j->w + u.at, b = a + v.next * j->w;
      double g = j->r->get(dy, out);
      add_number(j->r, dx, a, g * (1 - v.weight) * (1 - u.weight));
      add_number(j->r, dx, a + u.next, g * (1 - v.weight) * u.weight);
      add_number(j->r, dx, b, g * v.weight * (1 - u.weight));
      add_number(j->r, dx, b + u.next, g * v.weight * u.weight);
    }
  }
}

static void forward_range(int64_t begin, int64_t end, void *context)
{
  const struct resize_planes *j = context;
  for (int64_t i = begin; i < end; i++)
    resize_plane(j, vec_at(j->r, j->from, i * j->h * j->w), vec_at(j->r, j->to, i * j->H * j->W));
}

static void backward_range(int64_t begin, int64_t end, void *context)
{
  const struct resize_planes *j = context;
  for (int64_t i = begin; i < end; i++)
    plane_back(j, vec_at(j->r, j->from, i * j->H * j->W), vec_at(j->r, j->to, i * j->h * j->w));
}

static void resize_run(const struct call *c, const ty_desc *x, const ty_desc *y, parallel_fn range)
{
  struct resize_planes j = { vec_ops_of(x->dtype), c->in[0].p, c->out[0].p, x->dim[2], x->dim[3],
    y->dim[2], y->dim[3], ((const struct resize_param *)c->param)->align_corners };
  if (j.to) parallel_for(x->dim[0] * x->dim[1], elements_ns(4 * j.H * j.W + j.h * j.w), range, &j);
}

static int resize_forward(struct call *c)
{
  resize_run(c, &c->in[0].d, &c->out[0].d, forward_range);
  return TY_OK;
}

static int resize_backward(struct call *c)
{
  resize_run(c, &c->out[0].d, &c->in[0].d, backward_range);
  if (c->nout > 1 && c->out[1].p) memset(c->out[1].p, 0, desc_bytes(&c->out[1].d));
  return TY_OK;
}

static const struct kernel cpu[]  = { { "planes", resize_forward,  T_FLOAT }, { 0 } };
static const struct kernel back[] = { { "planes", resize_backward, T_FLOAT }, { 0 } };

const struct op op_resize[] = { {
  .name = "_contrib_BilinearResize2D",
  .doc = "Images (N, C, height, width) at another size, by means of the four nearest pixels. Gradient of data; like gets zeros.",
  .in = "data like", .in_of = resize_ports, .out = "output", .param = params, .param_size = sizeof(struct resize_param),
  .check = resize_check, .shape = resize_shape, .grad = "g0", .cpu = cpu, .back_cpu = back,
}, { 0 } };

/* operations.cc - convolutions and their gradients over any number of axes, element-wise operations
** with broadcasting; by plain loops, sums in double. */
#include "graph.h"
#include <functional>
using namespace cudasim;

bool number_of(int64_t type, Number *out)
{
  switch (type) {
  case CUDNN_DATA_FLOAT: *out = F32; return true;
  case CUDNN_DATA_DOUBLE: *out = F64; return true;
  case CUDNN_DATA_HALF: *out = F16; return true;
  case CUDNN_DATA_BFLOAT16: *out = BF16; return true;
  case CUDNN_DATA_INT8: *out = I8; return true;
  case CUDNN_DATA_UINT8: *out = U8; return true;
  case CUDNN_DATA_INT32: *out = I32; return true;
  case CUDNN_DATA_INT64: *out = I64; return true;
  default: return false;
  }
}

/* -- tensors ----------------------------------------------------------------------------------- */

View view_of(const Bag *t, char *p)
{
  View v = { t->all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
    t->all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES), F32, p };
  number_of(t->one<int32_t>(CUDNN_ATTR_TENSOR_DATA_TYPE), &v.type);
  return v;
}

int64_t View::count() const
{
  int64_t c = 1;
  for (int64_t x : n) c *= x;
  return c;
}

int64_t View::at(const std::vector<int64_t> &i) const
{
  int64_t o = 0;
  for (size_t d = 0; d < n.size(); d++) o += n[d] == 1 ? 0 : i[d] * s[d];
  return o;
}

static bool next(const std::vector<int64_t> &n, std::vector<int64_t> *i)
{
  for (size_t d = n.size(); d-- > 0;) {
    if (++(*i)[d] < n[d]) return true;
    (*i)[d] = 0;
  }
  return false;
}

/* -- which tensors an operation has ------------------------------------------------------------ */

/* of a convolution, by role: image, filter, result, and the descriptor; which one is written */
struct Roles { int x, w, y, convolution, alpha, beta, written; };
static const Roles *roles_of(const Bag *op)
{
#define ROLES(name, X, W, Y, TO)                                                                  \
  {                                                                                               \
    CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##X, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##W, \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##Y,                                            \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC,                                      \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_ALPHA,                                          \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_BETA,                                           \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##TO                                            \
  }
  static const Roles forward = ROLES(FORWARD, X, W, Y, Y), data = ROLES(BWD_DATA, DX, W, DY, DX),
                     filter = ROLES(BWD_FILTER, X, DW, DY, DW);
  switch (op->kind) {
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: return &forward;
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR: return &data;
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: return &filter;
  default: return nullptr;
  }
}

static int mode_of(const Bag *op)
{
  return op->bag(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
      ->one<int32_t>(CUDNN_ATTR_POINTWISE_MODE);
}

/* ADD .. SUB but for SQRT take two tensors, gradients (200 ..) a tensor and what comes back */
static bool takes_two(int mode)
{
  return mode == CUDNN_POINTWISE_ADD || mode == CUDNN_POINTWISE_MUL ||
      mode == CUDNN_POINTWISE_MIN || mode == CUDNN_POINTWISE_MAX || mode == CUDNN_POINTWISE_DIV ||
      mode == CUDNN_POINTWISE_SUB;
}
static bool is_gradient(int mode) { return mode >= CUDNN_POINTWISE_RELU_BWD; }

Ports ports_of(const Bag *op)
{
  if (const Roles *r = roles_of(op)) {
    Ports p = { { 0, 0, 0 }, r->written, op->one<double>(r->beta, 0) != 0 };
    int i = 0;
    for (int a : { r->x, r->w, r->y })
      if (a != r->written) p.reads[i++] = a;
    return p;
  }
  if (op->kind != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) return {};
  if (is_gradient(mode_of(op)))
    return { { CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, 0 },
      CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, false };
  return { { CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
               takes_two(mode_of(op)) ? CUDNN_ATTR_OPERATION_POINTWISE_BDESC : 0, 0 },
    CUDNN_ATTR_OPERATION_POINTWISE_YDESC, false };
}

/* -- convolutions ------------------------------------------------------------------------------ */

struct Window { std::vector<int64_t> before, behind, step, hole; bool turned; };

static Window window_of(const Bag *c)
{
  return { c->all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
    c->all<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
    c->all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
    c->all<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS),
    c->one<int32_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CONVOLUTION };
}

static const char *check_shapes(const Bag *op, const Roles &r)
{
  const Bag *c = op->bag(r.convolution);
  if (c->kind != CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR) return "not a convolution's descriptor";
  View x = view_of(op->bag(r.x), nullptr), w = view_of(op->bag(r.w), nullptr),
       y = view_of(op->bag(r.y), nullptr);
  Window k = window_of(c);
  size_t axes = k.step.size() + 2;
  if (x.n.size() != axes || w.n.size() != axes || y.n.size() != axes)
    return "numbers of axes differ";
  if (!w.n[1] || x.n[1] % w.n[1]) return "the image's channels are no multiple of the filter's";
  if (w.n[0] % (x.n[1] / w.n[1])) return "the filters are no multiple of the groups";
  if (x.n[0] != y.n[0] || w.n[0] != y.n[1]) return "batch or filters and the result differ";
  for (size_t d = 2; d < axes; d++) {
    int64_t reach = (w.n[d] - 1) * k.hole[d - 2] + 1;
    int64_t room = x.n[d] + k.before[d - 2] + k.behind[d - 2] - reach;
    if (room < 0 || y.n[d] != room / k.step[d - 2] + 1) return "the result's lengths are wrong";
  }
  return nullptr;
}

typedef std::vector<int64_t> Index;

/* all places of the result with all taps that lie inside of the image */
static void visit(const View &x, const View &w, const View &y, const Window &k,
    const std::function<void(const Index &, const Index &, const Index &)> &f)
{
  int64_t groups = x.n[1] / w.n[1], filters = y.n[1] / groups;
  Index yi(y.n.size()), taps = w.n;
  taps[0] = 1;
  do {
    Index t(w.n.size());
    do {
      Index xi = yi, wi = t;
      bool inside = true;
      xi[1] = yi[1] / filters * w.n[1] + t[1];
      wi[0] = yi[1];
      for (size_t d = 2; d < xi.size(); d++) {
        xi[d] = yi[d] * k.step[d - 2] - k.before[d - 2] + t[d] * k.hole[d - 2];
        if (k.turned) wi[d] = w.n[d] - 1 - t[d];
        inside &= xi[d] >= 0 && xi[d] < x.n[d];
      }
      if (inside) f(xi, wi, yi);
    } while (next(taps, &t));
  } while (next(y.n, &yi));
}

static void convolve(const Bag *op, const Roles &r, const std::map<const Bag *, View> &views)
{
  const View &x = views.at(op->bag(r.x)), &w = views.at(op->bag(r.w)), &y = views.at(op->bag(r.y));
  const View &to = views.at(op->bag(r.written));
  double alpha = op->one<double>(r.alpha, 1), beta = op->one<double>(r.beta, 0);
  std::map<int64_t, double> sums;
  Window k = window_of(op->bag(r.convolution));
  visit(x, w, y, k, [&](const Index &xi, const Index &wi, const Index &yi) {
    int64_t at[] = { x.at(xi), w.at(wi), y.at(yi) };
    auto X = [&] { return load(x.p, x.type, at[0]); };
    auto W = [&] { return load(w.p, w.type, at[1]); };
    auto Y = [&] { return load(y.p, y.type, at[2]); };
    if (r.written == r.y) sums[at[2]] += X() * W();
    else if (r.written == r.x) sums[at[0]] += Y() * W();
    else sums[at[1]] += X() * Y();
  });
  Index i(to.n.size());
  do {
    int64_t at = to.at(i);
    auto found = sums.find(at);
    double v = alpha * (found == sums.end() ? 0 : found->second);
    store(to.p, to.type, at, beta == 0 ? v : v + beta * load(to.p, to.type, at));
  } while (next(to.n, &i));
}

/* -- element by element ------------------------------------------------------------------------ */

static bool value_of(int mode, const Bag *how, double x, double b, double *out)
{
  double slope = how->one<double>(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0);
  double elu = how->one<double>(CUDNN_ATTR_POINTWISE_ELU_ALPHA, 1), s = 1 / (1 + exp(-x));
  switch (mode) {
  case CUDNN_POINTWISE_ADD: *out = x + b; return true;
  case CUDNN_POINTWISE_SUB: *out = x - b; return true;
  case CUDNN_POINTWISE_MUL: *out = x * b; return true;
  case CUDNN_POINTWISE_DIV: *out = x / b; return true;
  case CUDNN_POINTWISE_MIN: *out = x < b ? x : b; return true;
  case CUDNN_POINTWISE_MAX: *out = x > b ? x : b; return true;
  case CUDNN_POINTWISE_SQRT: *out = sqrt(x); return true;
  case CUDNN_POINTWISE_ABS: *out = fabs(x); return true;
  case CUDNN_POINTWISE_EXP: *out = exp(x); return true;
  case CUDNN_POINTWISE_LOG: *out = log(x); return true;
  case CUDNN_POINTWISE_NEG: *out = -x; return true;
  case CUDNN_POINTWISE_IDENTITY: *out = x; return true;
  case CUDNN_POINTWISE_RELU_FWD: *out = x < 0 ? slope * x : x; return true;
  case CUDNN_POINTWISE_TANH_FWD: *out = tanh(x); return true;
  case CUDNN_POINTWISE_SIGMOID_FWD: *out = s; return true;
  case CUDNN_POINTWISE_ELU_FWD: *out = x < 0 ? elu * expm1(x) : x; return true;
  case CUDNN_POINTWISE_SOFTPLUS_FWD: *out = x > 30 ? x : log1p(exp(x)); return true;
  case CUDNN_POINTWISE_SWISH_FWD: *out = x * s; return true;
  case CUDNN_POINTWISE_RELU_BWD: *out = x > 0 ? b : slope * b; return true;
  case CUDNN_POINTWISE_TANH_BWD: *out = b * (1 - tanh(x) * tanh(x)); return true;
  case CUDNN_POINTWISE_SIGMOID_BWD: *out = b * s * (1 - s); return true;
  default: return false;
  }
}

static const char *check_pointwise(const Bag *op)
{
  const Bag *how = op->bag(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  double unused;
  Ports p = ports_of(op);
  if (!value_of(mode_of(op), how, 0, 0, &unused)) return "a mode that the stand-in lacks";
  if (!op->has(p.writes)) return "a tensor of a pointwise operation is not set";
  View to = view_of(op->bag(p.writes), nullptr);
  for (int a : p.reads) {
    if (!a) continue;
    if (!op->has(a)) return "a tensor of a pointwise operation is not set";
    View from = view_of(op->bag(a), nullptr);
    if (from.n.size() != to.n.size()) return "numbers of axes differ";
    for (size_t d = 0; d < to.n.size(); d++)
      if (from.n[d] != to.n[d] && from.n[d] != 1) return "lengths that do not broadcast";
  }
  return nullptr;
}

const char *check_operation(const Bag *op)
{
  const Roles *r = roles_of(op);
  return r ? check_shapes(op, *r) : check_pointwise(op);
}

void perform(const Bag *op, const std::map<const Bag *, View> &views)
{
  if (const Roles *r = roles_of(op)) return convolve(op, *r, views);
  const Bag *how = op->bag(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  Ports p = ports_of(op);
  const View &to = views.at(op->bag(p.writes)), &x = views.at(op->bag(p.reads[0]));
  const View &b = p.reads[1] ? views.at(op->bag(p.reads[1])) : x;
  Index i(to.n.size());
  do {
    double v = 0;
    value_of(mode_of(op), how, load(x.p, x.type, x.at(i)), load(b.p, b.type, b.at(i)), &v);
    store(to.p, to.type, to.at(i), v);
  } while (next(to.n, &i));
}

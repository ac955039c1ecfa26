/* operations.cc - convolutions and their gradients over up to three axes, element-wise operations
** with broadcasting; by plain loops, sums in double. */
#include "graph.h"
using namespace cudasim;

bool find_number(int64_t type, Number *out)
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

View make_view(const Bag *t, char *p)
{
  View v = { t->all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
    t->all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES), F32, p };
  find_number(t->one<int32_t>(CUDNN_ATTR_TENSOR_DATA_TYPE), &v.type);
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

static bool next_index(const std::vector<int64_t> &n, std::vector<int64_t> *i)
{
  for (size_t d = n.size(); d-- > 0;) {
    if (++(*i)[d] < n[d]) return true;
    (*i)[d] = 0;
  }
  return false;
}

/* -- which tensors an operation has ------------------------------------------------------------ */

/* attributes of a convolution by role */
struct Roles {
  int x, w, y;                                        /* image, filter, result */
  int convolution;                                    /* the descriptor */
  int alpha, beta;
  int written;                                        /* which of x, w and y */
};
static const Roles *find_roles(const Bag *op)
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

/* Returns whether an operation takes two tensors: ADD to SUB do, but SQRT does not. */
static bool takes_two(int mode)
{
  return mode == CUDNN_POINTWISE_ADD || mode == CUDNN_POINTWISE_MUL ||
      mode == CUDNN_POINTWISE_MIN || mode == CUDNN_POINTWISE_MAX || mode == CUDNN_POINTWISE_DIV ||
      mode == CUDNN_POINTWISE_SUB;
}
static bool is_gradient(int mode) { return mode >= CUDNN_POINTWISE_RELU_BWD; }

Ports make_ports(const Bag *op)
{
  if (const Roles *r = find_roles(op)) {
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

static Window make_window(const Bag *c)
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
  View x = make_view(op->bag(r.x), nullptr), w = make_view(op->bag(r.w), nullptr),
       y = make_view(op->bag(r.y), nullptr);
  Window k = make_window(c);
  size_t axes = k.step.size() + 2;
  if (x.n.size() != axes || w.n.size() != axes || y.n.size() != axes)
    return "numbers of axes differ";
  if (axes > 5) return "more axes than the stand-in has";
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

/* at[i * taps + t]: index on an axis of the image of tap t for position i of the result; -1:
** outside */
struct Axis { int64_t in, taps, out; std::vector<int64_t> at; };

/* Returns axis d of three. Tensors of fewer axes lack the outer ones, which have length 1. */
static Axis make_axis(const View &x, const View &w, const View &y, const Window &k, size_t d)
{
  size_t skip = 5 - x.n.size();
  if (d < skip) return { 1, 1, 1, { 0 } };
  size_t i = d - skip;
  Axis a = { x.n[i + 2], w.n[i + 2], y.n[i + 2], {} };
  for (int64_t p = 0; p < a.out; p++)
    for (int64_t t = 0; t < a.taps; t++) {
      int64_t tap = k.turned ? a.taps - 1 - t : t;
      int64_t at = p * k.step[i] - k.before[i] + tap * k.hole[i];
      a.at.push_back(at >= 0 && at < a.in ? at : -1);
    }
  return a;
}

/* Calls f(i, j, k) for all elements i of the image, j of the filter and k of the result that belong
** together. */
template <class F>
static void visit_products(const View &x, const View &w, const View &y, const Window &window, F f)
{
  Axis a = make_axis(x, w, y, window, 0), b = make_axis(x, w, y, window, 1),
       c = make_axis(x, w, y, window, 2);
  int64_t filters = y.n[1] / (x.n[1] / w.n[1]), places = a.out * b.out * c.out;
  auto plane = [&](int64_t from, int64_t j, int64_t k) { /* of one channel and one filter */
    for (int64_t p = 0; p < places; p++, k++) {
      const int64_t *at[] = { &a.at[(size_t)(p / c.out / b.out * a.taps)],
        &b.at[(size_t)(p / c.out % b.out * b.taps)], &c.at[(size_t)(p % c.out * c.taps)] };
      for (int64_t t = 0; t < a.taps * b.taps; t++) {
        int64_t u = at[0][t / b.taps], v = at[1][t % b.taps];
        for (int64_t l = 0; u >= 0 && v >= 0 && l < c.taps; l++)
          if (at[2][l] >= 0) f(from + (u * b.in + v) * c.in + at[2][l], j + t * c.taps + l, k);
      }
    }
  };
  for (int64_t n = 0; n < y.n[0]; n++)
    for (int64_t o = 0; o < y.n[1]; o++)
      for (int64_t i = 0; i < w.n[1]; i++)
        plane((n * x.n[1] + o / filters * w.n[1] + i) * a.in * b.in * c.in,
            (o * w.n[1] + i) * a.taps * b.taps * c.taps, (n * y.n[1] + o) * places);
}

const Engine &find_engine(int64_t index)
{
  static const Engine engines[ENGINES] = { { 1024, true, true, 0 }, { 512, true, false, 0 },
    { 256, false, false, 0 }, { 128, false, false, 1 }, { 2048, false, false, 2 } };
  return engines[index >= 0 && index < ENGINES ? index : ENGINES - 1];
}

static double to_tf32(double v)
{
  float f = (float)v;
  uint32_t bits;
  memcpy(&bits, &f, sizeof f);
  bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static std::vector<double> read_numbers(const View &v, const Engine &engine)
{
  std::vector<double> all;
  std::vector<int64_t> i(v.n.size());
  do {
    double x = load_number(v.p, v.type, v.at(i));
    all.push_back(engine.tensor_cores && v.type == F32 ? to_tf32(x) : x);
  } while (next_index(v.n, &i));
  return all;
}

static void run_convolution(
    const Bag *op, const Roles &r, const std::map<const Bag *, View> &views, const Engine &engine)
{
  const View *v[] = { &views.at(op->bag(r.x)), &views.at(op->bag(r.w)), &views.at(op->bag(r.y)) };
  const View &to = views.at(op->bag(r.written));
  double alpha = op->one<double>(r.alpha, 1), beta = op->one<double>(r.beta, 0);
  std::vector<double> sums((size_t)to.count()), given[3];
  for (int i = 0; i < 3; i++)
    if (v[i] != &to) given[i] = read_numbers(*v[i], engine);
  const double *x = given[0].data(), *w = given[1].data(), *y = given[2].data();
  double *sum = sums.data();
  Window k = make_window(op->bag(r.convolution));
  if (r.written == r.y)
    visit_products(
        *v[0], *v[1], *v[2], k, [=](int64_t i, int64_t j, int64_t l) { sum[l] += x[i] * w[j]; });
  else if (r.written == r.x)
    visit_products(
        *v[0], *v[1], *v[2], k, [=](int64_t i, int64_t j, int64_t l) { sum[i] += y[l] * w[j]; });
  else
    visit_products(
        *v[0], *v[1], *v[2], k, [=](int64_t i, int64_t j, int64_t l) { sum[j] += x[i] * y[l]; });
  std::vector<int64_t> i(to.n.size());
  do {
    int64_t at = to.at(i);
    double s = alpha * *sum++;
    if (engine.any_order) s *= 1 + (rand() % 3 - 1) * 1e-6;
    store_number(to.p, to.type, at, beta == 0 ? s : s + beta * load_number(to.p, to.type, at));
  } while (next_index(to.n, &i));
}

/* -- element by element ------------------------------------------------------------------------ */

/* Computes one element. Returns false for a mode that is not implemented. */
static bool compute_value(int mode, const Bag *how, double x, double b, double *out)
{
  double slope = how->one<double>(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0);
  double elu = how->one<double>(CUDNN_ATTR_POINTWISE_ELU_ALPHA, 1), s = 1 / (1 + exp(-x));
  bool nan_stays = how->one<int32_t>(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, 0) != 0;
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
  case CUDNN_POINTWISE_RELU_FWD:
    *out = x > 0 || (nan_stays && x != x) ? x : slope != 0 ? slope * x : 0;
    return true;
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
  Ports p = make_ports(op);
  if (!compute_value(mode_of(op), how, 0, 0, &unused)) return "a mode that the stand-in lacks";
  if (!op->has(p.writes)) return "a tensor of a pointwise operation is not set";
  View to = make_view(op->bag(p.writes), nullptr);
  for (int a : p.reads) {
    if (!a) continue;
    if (!op->has(a)) return "a tensor of a pointwise operation is not set";
    View from = make_view(op->bag(a), nullptr);
    if (from.n.size() != to.n.size()) return "numbers of axes differ";
    for (size_t d = 0; d < to.n.size(); d++)
      if (from.n[d] != to.n[d] && from.n[d] != 1) return "lengths that do not broadcast";
  }
  return nullptr;
}

const char *check_operation(const Bag *op)
{
  const Roles *r = find_roles(op);
  return r ? check_shapes(op, *r) : check_pointwise(op);
}

void run_operation(const Bag *op, const std::map<const Bag *, View> &views, const Engine &engine)
{
  if (const Roles *r = find_roles(op)) return run_convolution(op, *r, views, engine);
  const Bag *how = op->bag(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  Ports p = make_ports(op);
  const View &to = views.at(op->bag(p.writes)), &x = views.at(op->bag(p.reads[0]));
  const View &b = p.reads[1] ? views.at(op->bag(p.reads[1])) : x;
  std::vector<int64_t> i(to.n.size());
  do {
    double v = 0;
    compute_value(
        mode_of(op), how, load_number(x.p, x.type, x.at(i)), load_number(b.p, b.type, b.at(i)), &v);
    store_number(to.p, to.type, to.at(i), v);
  } while (next_index(to.n, &i));
}

/* attention.c - replaces attention that is written as products and a softmax by one node of
** contrib.attention, which makes no array of all weights.
**
** The pattern, for each product of weights and values:
**
**     scores = product(q, k, transposed)                 or of an interleaved projection
**     scores = views, scales, then at most one sum with a bias or choice by a mask, views
**     weights = softmax(scores), dropout, views
**     output = product(weights, v)                       or of an interleaved projection
**
** Every value from the scores to the weights must have one reader and be no output; else the nodes
** stay. They also stay where they are faster: on a CPU where the scores are few; on a GPU where the
** scores are many and products use tensor cores, which the operator's kernel does not. They stay
** where the bias has a gradient, where the executor was asked for the graph as written (monitors),
** and where TYCHO_DISABLE names attention.
*/
#include "pass/rewrite.h"
#include "base/env.h"
#include "base/number.h"
#include "device/device.h"
#include "kernel/attention.h"

/* One match. Entries are of the old graph. */
struct attention_match {
  ty_entry q, k, v;
  ty_entry bias;                                      /* node -1: none */
  bool interleaved;                                   /* k and v are one projection */
  bool self;                                          /* so is q */
  bool k_turned;                                      /* k is transposed: (size, keys) */
  /* bias is a mask: a key is used where it is not 0 */
  bool masks;
  bool mask_turned;                                   /* a key is used where the mask is 0 */
  double hidden;                                      /* score of a key that is not used */
  int64_t heads;                                      /* of interleaved projections */
  double scale, dropout;
  /* the node to whose output the bias broadcasts */
  int scores;
};

struct attention_finder {
  const struct typed_graph *x;
  bool trains;                                        /* a gradient is asked for */
  int device;                                         /* of all nodes, or one of its kind */
  int precision;                                      /* PRECISION_* */
  uint8_t *varies;                                    /* per node: a gradient reaches it */
  int *readers;                                       /* per value, outputs of the graph included */
};

static struct attention_part attention_find_part(const struct attention_finder *f, int node)
{
  const struct node *n = &f->x->g->node[node];
  if (!n->op || !n->op->attention) return (struct attention_part){ ATTENTION_NONE };
  const int ndim = n->nin ? f->x->desc[value_of(f->x->g, n->in[0])].ndim : 0;
  return n->op->attention(n->kind->param, ndim);
}

static const ty_desc *attention_desc_of(const struct attention_finder *f, ty_entry e)
{
  return &f->x->desc[value_of(f->x->g, e)];
}

static bool attention_is_same_entry(ty_entry a, ty_entry b)
{
  return a.node == b.node && a.out == b.out;
}

/* Returns the node that makes e for node `reader` alone, under the same guard and in the same group
** of devices; -1: there is none. */
static int attention_find_only_maker(const struct attention_finder *f, ty_entry e, int reader)
{
  const ty_graph *g = f->x->g;
  const struct node *n = &g->node[e.node], *to = &g->node[reader];
  const char *a = node_attr(n, "__ctx_group__"), *b = node_attr(to, "__ctx_group__");
  if (!n->op || e.out || n->guard != to->guard || strcmp(a ? a : "", b ? b : "")) return -1;
  for (int k = 0; k < n->kind->nreal; k++)
    if (f->readers[n->first + k] != (k == 0)) return -1;
  return e.node;
}

/* Returns whether a node is a view that keeps the last two axes. */
static bool attention_is_row_view(const struct attention_finder *f, int node)
{
  const struct node *n = &f->x->g->node[node];
  if (!(n->op->flags & OP_VIEW) || n->nin != 1) return false;
  const ty_desc *a = attention_desc_of(f, n->in[0]), *b = &f->x->desc[n->first];
  return a->ndim >= 2 && b->ndim >= 2 && a->dim[a->ndim - 1] == b->dim[b->ndim - 1] &&
      a->dim[a->ndim - 2] == b->dim[b->ndim - 2];
}

/* Returns which input of a sum is scores, to whose shape the other input broadcasts; -1: none. */
static int attention_find_sum(const struct attention_finder *f, int node)
{
  const struct node *n = &f->x->g->node[node];
  const ty_desc *all = &f->x->desc[n->first];
  if (!(n->op->flags & OP_SUM) || n->nin != 2 || all->ndim > 4 || all->ndim < 3) return -1;
  for (int k = 0; k < 2; k++) {
    const int from = attention_find_only_maker(f, n->in[k], node);
    if (from < 0 || !desc_same_shape(attention_desc_of(f, n->in[k]), all)) continue;
    const enum attention_role role = attention_find_part(f, from).role;
    if (role == ATTENTION_PRODUCT || role == ATTENTION_SCALE || role == ATTENTION_SCORES ||
        attention_is_row_view(f, from))
      return k;
  }
  return -1;
}

/* Returns whether a key with score c has weight 0 beside a key that is used, and c stays the same
** when scores are added to it: then a bias has the effect of a choice. Gradients pass a sum, but
** not a choice, so that in training this holds only for -infinity, whose weights are 0. */
static bool attention_score_hides(const struct attention_finder *f, double c, int dtype)
{
  enum { SCORE_BITS = 15 };                           /* scores are below 2^15 */
  const int bits = dtype == TY_F64 ? 53 : dtype == TY_F32 ? 24 : 0;
  return c == -INFINITY || (!f->trains && bits && c <= -ldexp(1, SCORE_BITS + bits + 1));
}

/* Returns whether entry e is a constant, one number everywhere. */
static bool attention_find_constant(const struct attention_finder *f, ty_entry e, double *number)
{
  const struct attention_part p = attention_find_part(f, e.node);
  *number = p.number;
  return p.role == ATTENTION_CONSTANT;
}

/* Returns which input of a choice is scores, where the other input is a constant that hides keys by
** a mask that broadcasts; sets m's mask. -1: the node is no such choice. */
static int attention_find_choice(
    const struct attention_finder *f, int node, struct attention_match *m)
{
  const struct node *n = &f->x->g->node[node];
  const ty_desc *all = &f->x->desc[n->first];
  if (attention_find_part(f, node).role != ATTENTION_CHOICE || all->ndim > 4 || all->ndim < 3)
    return -1;
  /* a vector chooses whole rows of the first axis */
  if (!(n->op->flags & OP_BROADCAST) && !desc_same_shape(attention_desc_of(f, n->in[0]), all))
    return -1;
  for (int k = 1; k <= 2; k++) {
    double hidden;
    if (attention_find_only_maker(f, n->in[k], node) < 0 ||
        !desc_same_shape(attention_desc_of(f, n->in[k]), all) ||
        !attention_find_constant(f, n->in[3 - k], &hidden) ||
        !attention_score_hides(f, hidden, all->dtype))
      continue;
    m->masks = true;
    m->mask_turned = k == 2;
    m->hidden = hidden;
    m->bias = n->in[0];
    m->scores = node;
    return k;
  }
  return -1;
}

/* Follows scores from entry e, which `reader` reads, to their product. */
static bool attention_find_scores(
    const struct attention_finder *f, ty_entry e, int reader, struct attention_match *m)
{
  for (;;) {
    const int node = attention_find_only_maker(f, e, reader);
    if (node < 0) return false;
    const struct node *n = &f->x->g->node[node];
    const struct attention_part p = attention_find_part(f, node);
    const bool unbiased = m->bias.node < 0 && m->scale == 1;
    const int k = unbiased ? attention_find_sum(f, node) : -1,
              chosen = unbiased ? attention_find_choice(f, node, m) : -1;
    if (p.role == ATTENTION_PRODUCT && !m->interleaved) {
      m->q = n->in[0];
      m->k = n->in[1];
      m->k_turned = !p.tb;
      if (m->scores < 0) m->scores = node;
      return !p.ta;
    }
    if (p.role == ATTENTION_SCORES && m->interleaved) {
      m->q = n->in[0];
      m->scale /= sqrt(
          (double)(attention_desc_of(f, m->v)->dim[2] / (m->heads * (m->self ? 3 : 2))));
      if (m->scores < 0) m->scores = node;
      return p.self == m->self && p.heads == m->heads &&
          attention_is_same_entry(n->in[n->nin - 1], m->v);
    }
    if (p.role == ATTENTION_SCALE)
      m->scale *= p.number;
    else if (k >= 0)
      m->bias = n->in[!k], m->scores = node, e = n->in[k];
    else if (chosen >= 0)
      e = n->in[chosen];
    else if (!attention_is_row_view(f, node))
      return false;
    if (k < 0 && chosen < 0) e = n->in[0];
    reader = node;
  }
}

/* Returns whether node i is the product of weights and values of an attention. */
static bool attention_find_match(const struct attention_finder *f, int i, struct attention_match *m)
{
  const struct node *n = &f->x->g->node[i];
  const struct attention_part last = attention_find_part(f, i);
  *m = (struct attention_match){ .bias = { -1, 0 }, .scale = 1, .scores = -1 };
  if (last.role != ATTENTION_PRODUCT && last.role != ATTENTION_VALUES) return false;
  if (last.ta || last.tb || !dtype_float(f->x->desc[n->first].dtype)) return false;
  m->interleaved = last.role == ATTENTION_VALUES;
  m->self = last.self;
  m->heads = last.heads;
  m->v = n->in[!m->interleaved];
  ty_entry e = n->in[m->interleaved];
  int reader = i;
  for (;;) {
    const int node = attention_find_only_maker(f, e, reader);
    if (node < 0) return false;
    const struct attention_part p = attention_find_part(f, node);
    if (p.role == ATTENTION_DROPOUT && m->dropout == 0)
      m->dropout = p.number;
    else if (p.role == ATTENTION_SOFTMAX)
      m->scale = p.number;
    else if (!attention_is_row_view(f, node))
      return false;
    e = f->x->g->node[node].in[0];
    reader = node;
    if (p.role == ATTENTION_SOFTMAX) break;
  }
  if (!attention_find_scores(f, e, reader, m) || m->scale == 0 || !isfinite(m->scale)) return false;
  const int dtype = f->x->desc[n->first].dtype;
  return attention_desc_of(f, m->q)->dtype == dtype && attention_desc_of(f, m->k)->dtype == dtype &&
      attention_desc_of(f, m->v)->dtype == dtype;
}

/* -- the new nodes ----------------------------------------------------------------------------- */

struct attention_writer {
  struct mapper *m;
  const struct attention_finder *f;
  const char *name, *where;
  int guard;
};

/* Adds a node beside the one that is replaced. suffix "": it takes its name. */
static int attention_add_node(
    const struct attention_writer *w, const char *op, const char *suffix, const ty_attr *attr,
    int nattr, const ty_entry *in, int nin, ty_entry *out)
{
  char name[600];
  snprintf(name, sizeof name, "%s%s", w->name, suffix);
  TRY(ty_graph_origin(w->m->to, w->where));
  TRY(graph_node(w->m->to, op_find(op), name, attr, nattr, in, nin, out));
  w->m->to->node[out->node].guard = w->guard;
  return TY_OK;
}

static int attention_add_reshape(
    const struct attention_writer *w, const char *suffix, ty_entry in, const int64_t *dim, int n,
    ty_entry *out)
{
  char shape[200] = "(";
  size_t used = 1;
  for (int i = 0; i < n; i++)
    used += (size_t)snprintf(shape + used, sizeof shape - used, "%lld,", (long long)dim[i]);
  snprintf(shape + used, sizeof shape - used, ")");
  const ty_attr attr = { "shape", shape };
  return attention_add_node(w, "Reshape", suffix, &attr, 1, &in, 1, out);
}

/* Returns batch and heads of a match: the leading axes of its scores. */
static void attention_find_leading(
    const struct attention_finder *f, const struct attention_match *m, int64_t lead[2])
{
  const ty_desc *d = &f->x->desc[f->x->g->node[m->scores].first];
  lead[0] = lead[1] = 1;
  if (d->ndim == 4)
    lead[0] = d->dim[0], lead[1] = d->dim[1];
  else
    for (int i = 0; i < d->ndim - 2; i++) lead[0] *= d->dim[i];
  if (m->interleaved && d->ndim == 3) lead[0] /= m->heads, lead[1] = m->heads;
}

/* Adds a reshape of (..., rows, columns) to (batch, heads, rows, columns). */
static int attention_add_split(
    const struct attention_writer *w, const char *suffix, ty_entry old, const int64_t lead[2],
    ty_entry *e)
{
  const ty_desc *d = attention_desc_of(w->f, old);
  return attention_add_reshape(w, suffix, *e,
      (int64_t[]){ lead[0], lead[1], d->dim[d->ndim - 2], d->dim[d->ndim - 1] }, 4, e);
}

/* Finds the shape in which the bias broadcasts to (batch, heads, queries, keys); false: there is
** none. */
static bool attention_find_bias_shape(
    const struct attention_finder *f, const struct attention_match *m, const int64_t lead[2],
    int64_t dim[4])
{
  const ty_desc *b = attention_desc_of(f, m->bias),
                *s = &f->x->desc[f->x->g->node[m->scores].first];
  for (int i = 0; i < 4; i++) dim[i] = 1;
  if (b->ndim > s->ndim) return false;
  for (int i = 0; i < MIN(b->ndim, 2); i++) dim[3 - i] = b->dim[b->ndim - 1 - i];
  if (s->ndim == 4) {
    if (b->ndim > 2) dim[1] = b->dim[b->ndim - 3];
    if (b->ndim > 3) dim[0] = b->dim[0];
    return true;
  }
  if (b->ndim < 3 || b->dim[0] == 1) return true;
  dim[0] = lead[0];
  dim[1] = lead[1];
  return b->dim[0] == lead[0] * lead[1];
}

/* Replaces a mask by a bias of its shape: 0 where a key is used, else the score that hides it. */
static int attention_add_mask_bias(
    const struct attention_writer *w, const struct attention_match *m, ty_entry *mask)
{
  const int dtype = w->f->x->desc[w->f->x->g->node[m->scores].first].dtype;
  char number[40];
  ty_entry in[3] = { *mask };
  number_print(number, sizeof number, "%.17g", m->hidden);
  for (int k = 0; k < 2; k++) {
    const bool hides = m->mask_turned ? k == 0 : k == 1;
    const ty_attr attr[] = { { "shape", "(1,)" }, { "dtype", dtype_name(dtype) },
      { "value", hides ? number : "0" } };
    TRY(attention_add_node(w, "_full", k ? "_unmasked" : "_masked", attr, 3, NULL, 0, &in[1 + k]));
  }
  return attention_add_node(w, "_npi_where", "_mask", NULL, 0, in, 3, mask);
}

static int attention_add_nodes(
    const struct attention_writer *w, const struct attention_match *m, int i)
{
  const struct attention_finder *f = w->f;
  const ty_graph *g = f->x->g;
  const ty_desc *out = &f->x->desc[g->node[i].first];
  ty_entry in[4], y;
  int64_t lead[2], dim[4];
  int n = 0;
  attention_find_leading(f, m, lead);
  if (m->interleaved) {
    if (!m->self) in[n++] = w->m->entry[value_of(g, m->q)];
    in[n++] = w->m->entry[value_of(g, m->v)];
  }
  else {
    in[0] = w->m->entry[value_of(g, m->q)];
    in[1] = w->m->entry[value_of(g, m->k)];
    in[2] = w->m->entry[value_of(g, m->v)];
    TRY(attention_add_split(w, "_query", m->q, lead, &in[0]));
    TRY(attention_add_split(w, "_key", m->k, lead, &in[1]));
    TRY(attention_add_split(w, "_value", m->v, lead, &in[2]));
    if (m->k_turned) {
      const ty_attr axes[] = { { "dim1", "2" }, { "dim2", "3" } };
      TRY(attention_add_node(w, "SwapAxis", "_key_turned", axes, 2, &in[1], 1, &in[1]));
    }
    n = 3;
  }
  if (m->bias.node >= 0) {
    if (!attention_find_bias_shape(f, m, lead, dim))
      return fail(TY_EINTERNAL, "attention: the bias does not fit the scores");
    in[n] = w->m->entry[value_of(g, m->bias)];
    if (m->masks) TRY(attention_add_mask_bias(w, m, &in[n]));
    TRY(attention_add_reshape(w, "_bias", in[n], dim, 4, &in[n]));
    n++;
  }
  char scale[40], dropout[40], heads[24];
  number_print(scale, sizeof scale, "%.17g", m->scale);
  number_print(dropout, sizeof dropout, "%.17g", m->dropout);
  snprintf(heads, sizeof heads, "%lld", (long long)(m->interleaved ? m->heads : 1));
  const char *group = node_attr(&g->node[i], "__ctx_group__");
  const ty_attr attr[] = { { "scale", scale }, { "dropout", dropout }, { "empty", "nan" },
    { "heads", heads }, { "layout", m->interleaved ? "TNC" : "NHTC" },
    { "packed", !m->interleaved ? "none" : m->self ? "qkv" : "kv" },
    { "use_bias", m->bias.node >= 0 ? "True" : "False" }, { "__ctx_group__", group } };
  const int nattr = group ? 8 : 7;
  if (m->interleaved)
    TRY(attention_add_node(w, "_contrib_attention", "", attr, nattr, in, n, &y));
  else {
    TRY(attention_add_node(w, "_contrib_attention", "_attention", attr, nattr, in, n, &y));
    TRY(attention_add_reshape(w, "", y, out->dim, out->ndim, &y));
  }
  w->m->entry[g->node[i].first] = y;
  return TY_OK;
}

/* -- the rewrite ------------------------------------------------------------------------------- */

/* Marks the nodes of a match: gone[i] = 2 for its last node i, which is replaced, and 1 for those
** from the scores to the weights, which are dropped. */
static void attention_mark_gone(
    const struct attention_finder *f, const struct attention_match *m, int i, uint8_t *gone)
{
  const struct node *n = &f->x->g->node[i];
  gone[i] = 2;
  for (ty_entry e = n->in[m->interleaved];;) {
    const struct node *from = &f->x->g->node[e.node];
    const enum attention_role role = attention_find_part(f, e.node).role;
    gone[e.node] = 1;
    if (role == ATTENTION_PRODUCT || role == ATTENTION_SCORES) return;
    const bool end = m->bias.node >= 0 && e.node == m->scores;
    if (end && m->masks)
      e = from->in[m->mask_turned ? 2 : 1];
    else
      e = end && attention_is_same_entry(from->in[0], m->bias) ? from->in[1] : from->in[0];
  }
}

/* Returns the widths of heads of a match on the graph's device. */
static struct attention_widths attention_find_widths(
    const struct attention_finder *f, const struct attention_match *m)
{
  const ty_desc *v = attention_desc_of(f, m->v), *k = attention_desc_of(f, m->k);
  const ty_desc *scores = &f->x->desc[f->x->g->node[m->scores].first];
  struct attention_widths h = { .device = f->device, .dtype = scores->dtype,
    .precision = f->precision, .queries = scores->dim[scores->ndim - 2],
    .value = v->dim[v->ndim - 1] };
  if (m->interleaved)
    h.key = h.value /= m->heads * (m->self ? 3 : 2);
  else
    h.key = k->dim[k->ndim - (m->k_turned ? 2 : 1)];
  return h;
}

/* Returns whether a GPU has the kernel (cuda/flash_attention.c says which heads it takes) and the
** operator is preferred: it launches three kernels in place of nine and makes no array of weights,
** but may multiply on ordinary cores where products use tensor cores. MANY_SCORES is an estimate,
** not measured: with so many scores of heads of 64, ordinary cores at 10 TFLOP/s take about 20 us
** longer, which is the time of six launches. */
static bool attention_suits_gpu(const struct attention_finder *f, const struct attention_match *m)
{
  enum {
    EACH = 8,                                         /* PADDED of kernels/flash_attention.cu */
    WIDEST = 1024,                                    /* bytes of a head, as the kernel computes */
    MANY_SCORES = 1 << 20                             /* elements */
  };
  const struct attention_widths h = attention_find_widths(f, m);
  const int64_t each = h.dtype == TY_F64 ? sizeof(double) : sizeof(float);
  const int64_t width = (int64_t)(align_up((size_t)h.key, EACH) + align_up((size_t)h.value, EACH));
  if (width * each > WIDEST) return false;
  if (m->bias.node >= 0 && f->varies[m->bias.node]) return false;
  return attention_multiplies_alike(&h) ||
      desc_count(&f->x->desc[f->x->g->node[m->scores].first]) <= MANY_SCORES;
}

/* Returns whether the operator is faster than the nodes. On a CPU backward computes the weights
** again, which costs less only where the array of all weights is large. The limits were measured on
** Zen 5, those of narrow heads, which are less work, on an Intel core with AVX-512 and a
** second-level cache of 2 MiB (2026-11-29). TYCHO_ATTENTION_LEAST sets another limit. */
static bool attention_is_worth_it(const struct attention_finder *f, const struct attention_match *m)
{
  if (device_kind(f->device) == TY_GPU) return attention_suits_gpu(f, m);
  enum {
    LEAST_FORWARD = 128 * 128,                        /* scores of a head */
    LEAST_BACKWARD = 512 * 512,
    MANY_BACKWARD = 64 * 256 * 256,                   /* scores of all heads */
    NARROW = 32,                                      /* numbers of a head's key and value */
    MANY_NARROW = 32 * 256 * 256,                     /* scores of all narrow heads */
  };
  const ty_desc *d = &f->x->desc[f->x->g->node[m->scores].first];
  const int64_t all = desc_count(d), head = d->dim[d->ndim - 1] * d->dim[d->ndim - 2];
  const int64_t least = env_number("TYCHO_ATTENTION_LEAST", -1);
  if (least >= 0) return head >= least;
  if (!f->trains) return head >= LEAST_FORWARD;
  if (m->bias.node >= 0 && !m->masks && f->varies[m->bias.node]) return false;
  const struct attention_widths h = attention_find_widths(f, m);
  const int64_t many = MAX(h.key, h.value) <= NARROW ? MANY_NARROW : MANY_BACKWARD;
  return head >= LEAST_BACKWARD || (all >= many && head >= LEAST_FORWARD);
}

static bool attention_bias_fits(const struct attention_finder *f, const struct attention_match *m)
{
  int64_t lead[2], dim[4];
  attention_find_leading(f, m, lead);
  if (m->interleaved && lead[1] != m->heads) return false;
  return m->bias.node < 0 || attention_find_bias_shape(f, m, lead, dim);
}

/* Fills in the matches by the node that ends them; returns their number. */
static int attention_find_all(
    const struct attention_finder *f, struct attention_match *match, uint8_t *gone)
{
  int found = 0;
  for (int i = 0; i < f->x->g->n; i++)
    if (f->x->g->node[i].op && attention_find_match(f, i, &match[i]) &&
        attention_bias_fits(f, &match[i]) && attention_is_worth_it(f, &match[i])) {
      attention_mark_gone(f, &match[i], i, gone);
      found++;
    }
  return found;
}

static int attention_replace_all(
    struct typed_graph *x, const struct attention_finder *f, const struct attention_match *match,
    const uint8_t *gone)
{
  struct mapper m;
  int code = mapper_begin(&m, x);
  if (code) return code;
  for (int i = 0; i < x->g->n && !code; i++) {
    mapper_visit(&m, i);
    if (gone[i] == 1) continue;
    const struct node *n = &x->g->node[i];
    const struct attention_writer w = { &m, f, n->name, n->where,
      n->guard ? m.node[n->guard - 1] + 1 : 0 };
    code = gone[i] ? attention_add_nodes(&w, &match[i], i) : mapper_copy(&m, i, NULL);
  }
  code = mapper_end(&m, code);
  x->replaced |= !code;
  return code;
}

static void attention_count_readers(struct attention_finder *f)
{
  const struct typed_graph *x = f->x;
  for (int i = 0; i < x->g->n; i++)
    for (int k = 0; k < x->g->node[i].nin; k++)
      f->readers[value_of(x->g, x->g->node[i].in[k])]++;
  for (int h = 0; h < x->nhead; h++) f->readers[value_of(x->g, x->head[h])]++;
  for (int h = 0; h < x->nextra; h++) f->readers[value_of(x->g, x->extra[h])]++;
}

/* Sets f->trains, and f->varies of each node that a gradient reaches. */
static void attention_find_gradients(struct attention_finder *f, const struct rewrite_request *r)
{
  const struct typed_graph *x = f->x;
  for (int i = 0; i < x->nvariable; i++) {
    f->varies[x->variable[i]] = r->with_grad[i];
    f->trains |= r->with_grad[i];
  }
  for (int i = 0; i < x->g->n; i++) {
    const struct node *n = &x->g->node[i];
    const bool stops = n->op && (n->op->flags & OP_ZERO_GRAD || !n->kind->reads);
    for (int k = 0; n->op && !stops && k < n->nin; k++)
      f->varies[i] |= f->varies[n->in[k].node];
  }
}

/* Returns whether all nodes are on CPUs, or all on GPUs. */
static bool attention_are_alike(const struct rewrite_request *r)
{
  const int kind = device_kind(r->default_device);
  if (kind != TY_CPU && kind != TY_GPU) return false;
  for (int i = 0; i < r->ngroup; i++)
    if (device_kind(r->group[i].device) != kind) return false;
  return true;
}

int rewrite_attention(struct typed_graph *x, const struct rewrite_request *r)
{
  if (r->as_written || !attention_are_alike(r) || env_disabled("attention")) return TY_OK;
  struct attention_finder f = { .x = x, .device = r->default_device, .precision = r->precision,
    .readers = NEWS(int, x->g->nvalue + 1),
    .varies = NEWS(uint8_t, x->g->n + 1) };
  struct attention_match *match = NEWS(struct attention_match, x->g->n + 1);
  uint8_t *gone = NEWS(uint8_t, x->g->n + 1);
  const bool enough = f.readers && f.varies && match && gone;
  int code = enough ? TY_OK : fail(TY_EMEMORY, "out of memory: a graph");
  if (!code) {
    attention_count_readers(&f);
    attention_find_gradients(&f, r);
    if (attention_find_all(&f, match, gone)) code = attention_replace_all(x, &f, match, gone);
  }
  mem_free(f.readers);
  mem_free(f.varies);
  mem_free(match);
  mem_free(gone);
  return code;
}

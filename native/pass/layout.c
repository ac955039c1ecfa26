/* layout.c - decides which values have their channels in blocks.
**
** A value of shape (N, C, space) may be stored as (N, C / b, space, b): the form that convolutions
** compute in, where b depends on the device: a vector on a CPU, all channels on a GPU, so that they
** come last. It takes as many bytes, so pointwise programs, copies and sums work unchanged if their
** operands agree. A kernel says which of its operands may have this form, and whether they must
** agree (kernel/kernel.h). A convolution takes each as it is and copies inside where forms differ,
** so no step is ever added.
**
** At first every value that could be in blocks is; then steps that cannot take it so make it plain,
** until nothing changes. Heads, bound arrays and values that a view has under another shape are
** plain. Values without space are the same in both forms: they count as plain and restrict no step.
*/
#include "kernel/blocked.h"
#include "pass/passes.h"

static int layout_root_of(const struct program *p, int v) { return p->value[v].root; }

/* -- values that could be in blocks ------------------------------------------------------------ */

static bool layout_has_space(const ty_desc *d)
{
  int64_t space = 1;
  for (int i = 2; i < d->ndim; i++) space *= d->dim[i];
  return space > 1;
}

/* Returns the block size that a value's device prefers for it; 0: none. */
static int layout_find_wanted_block(const struct program *p, int v)
{
  ty_desc d = p->s.desc[v];
  if (p->value[v].kind != V_POOL || d.ndim < 3 || d.ndim > 5 || !layout_has_space(&d)) return 0;
  d.device = p->value[v].device;
  return channel_block(&d, precision_of_flags(p->s.flags));
}

static int layout_mark_first(struct program *p)
{
  const struct source *s = &p->s;
  int n = 0;
  for (int v = 0; v < s->g->nvalue; v++) {
    p->value[v].block = layout_root_of(p, v) == v ? layout_find_wanted_block(p, v) : 0;
    n += p->value[v].block != 0;
  }
  for (int v = 0; n && v < s->g->nvalue; v++) /* another shape of the same bytes */
    if (!desc_same_shape(&s->desc[v], &s->desc[layout_root_of(p, v)]))
      p->value[layout_root_of(p, v)].block = 0;
  for (int h = 0; h < s->nhead; h++)
    p->value[layout_root_of(p, value_of(s->g, s->head[h]))].block = 0;
  return n;
}

/* -- what steps demand ------------------------------------------------------------------------- */

static bool layout_make_plain(struct program *p, int v)
{
  struct value *x = &p->value[layout_root_of(p, v)];
  bool changes = x->block != 0;
  x->block = 0;
  return changes;
}

/* Returns whether a value is plain, and its blocked form would differ. */
static bool layout_is_plain(const struct program *p, int v)
{
  return p->value[v].kind != V_NONE && !p->value[layout_root_of(p, v)].block &&
      layout_has_space(&p->s.desc[v]);
}

/* Returns the value that operand k of a step is, inputs first. */
static int layout_get_operand(const struct step *st, int k)
{
  return k < st->nin ? st->in[k] : st->out[k - st->nin];
}

/* Makes the layouts of a pointwise program's operands agree: those of the group's shape are alike;
** an operand of another shape that is not a single number needs all to be plain, and so does a
** reduction. */
static bool layout_agree_program(struct program *p, const struct step *st)
{
  const ty_desc *space = space_of(&p->s, st->node);
  bool plain = ends_in_reduction(p, st), changes = false;
  for (int k = 0; k < st->nin + st->nout; k++) {
    int v = layout_get_operand(st, k);
    bool own = desc_same_shape(&p->s.desc[v], space);
    plain |= own ? layout_is_plain(p, v) : desc_count(&p->s.desc[v]) > 1;
  }
  for (int k = 0; k < st->nin + st->nout; k++) {
    int v = layout_get_operand(st, k);
    if (plain || !desc_same_shape(&p->s.desc[v], space)) changes |= layout_make_plain(p, v);
  }
  return changes;
}

static bool layout_takes_blocks(const struct step *st, int k)
{
  const struct kernel *kernel = st->v.kernel;
  bool out = k >= st->nin;
  return kernel && kernel_blocks(kernel, out ? k - st->nin : k, out);
}

static bool layout_agree_node(struct program *p, const struct step *st)
{
  const struct kernel *kernel = st->v.kernel;
  bool plain = !kernel, changes = false;
  for (int k = 0; kernel && kernel->flags & K_ALIKE && k < st->nin + st->nout; k++) {
    int v = layout_get_operand(st, k);
    plain |= v >= 0 && layout_takes_blocks(st, k) && layout_is_plain(p, v);
  }
  for (int k = 0; k < st->nin + st->nout; k++) {
    int v = layout_get_operand(st, k);
    if (v >= 0 && (plain || !layout_takes_blocks(st, k))) changes |= layout_make_plain(p, v);
  }
  return changes;
}

static bool layout_agree_step(struct program *p, const struct step *st)
{
  if (st->kind == STEP_POINTWISE) return layout_agree_program(p, st);
  return st->kind == STEP_NODE ? layout_agree_node(p, st) : layout_make_plain(p, st->in[0]);
}

/* -- kernels that take blocks ------------------------------------------------------------------ */

/* Gives the call blocks where values may have them and this kernel takes them. */
static bool layout_set_blocks(const struct program *p, struct step *st, const struct kernel *k)
{
  struct call *c = &st->v.call;
  bool any = false;
  for (int i = 0; i < st->nin; i++) {
    c->in[i].block = kernel_blocks(k, i, false) ? p->value[layout_root_of(p, st->in[i])].block : 0;
    any |= c->in[i].block != 0;
  }
  for (int i = 0; i < st->nout; i++) {
    c->out[i].block = st->out[i] >= 0 && kernel_blocks(k, i, true)
        ? p->value[layout_root_of(p, st->out[i])].block
        : 0;
    any |= c->out[i].block != 0;
  }
  return any;
}

/* Sets v.kernel to the first candidate that accepts, if it takes blocks; else to NULL. */
static int layout_find_kernel(struct program *p, struct step *st)
{
  const struct node *n = &p->s.g->node[st->node];
  struct candidates c = op_candidates(n->op, n->backward, st->device);
  st->v.kernel = NULL;
  if (step_is_front_end(p, st)) return TY_OK;
  TRY(step_call(p, st));
  bool cpu_fallback;
  for (const struct kernel *k; (k = next_candidate(&c, &cpu_fallback));) {
    bool any = layout_set_blocks(p, st, k);
    if (invoke_try_kernel(&st->v, k, &p->arena)) continue;
    st->v.kernel = any && !cpu_fallback ? k : NULL;
    return TY_OK;
  }
  return TY_OK;
}

/* Returns whether a kernel that accepted blocked operands refuses now that some are plain; another
** one is then chosen. */
static bool layout_refuses_now(struct program *p, struct step *st)
{
  if (st->kind != STEP_NODE || !st->v.kernel || !layout_set_blocks(p, st, st->v.kernel))
    return false;
  return invoke_try_kernel(&st->v, st->v.kernel, &p->arena) != NULL;
}

int pass_layout(struct program *p)
{
  if (p->s.flags & TY_KEEP || !env_number("TYCHO_BLOCKS", 1) || !layout_mark_first(p)) return TY_OK;
  for (int t = 0; t < p->n; t++)
    if (p->step[t].kind == STEP_NODE) TRY(layout_find_kernel(p, &p->step[t]));
  for (bool changes = true; changes;) {
    changes = false;
    for (int t = p->n - 1; t >= 0; t--) changes |= layout_agree_step(p, &p->step[t]);
    for (int t = 0; t < p->n; t++) changes |= layout_agree_step(p, &p->step[t]);
    for (int t = 0; t < p->n && !changes; t++)
      if ((changes = layout_refuses_now(p, &p->step[t]))) TRY(layout_find_kernel(p, &p->step[t]));
  }
  for (int v = 0; v < p->s.g->nvalue; v++) p->value[v].block = p->value[layout_root_of(p, v)].block;
  return TY_OK;
}

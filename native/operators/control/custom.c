/* custom.c - Custom: an operator that is run by the front end.
**
** The core never calls the front end. All that it needs is in attributes of the node, which symbol
** files leave out: names of inputs and outputs, what backward reads, and, once known, all shapes
** and dtypes. A run that reaches such a node stops with TY_EV_HOST; the front end reads and writes
** the arrays, and resumes the run. Texts: ports as in op/op.h; shapes "2,3 4 ?" and dtypes "0 0
** -1", inputs first, then outputs.
*/
#include "op/op.h"

struct custom { const char *op_type, *in, *out, *reads, *shapes, *types; };
#define HIDDEN(field, doc) \
  { "__custom_" #field "__", P_TEXT, offsetof(struct custom, field), "", doc, NULL, NULL, 1 }
static const struct param custom_params[] = {
  { "op_type", P_TEXT, offsetof(struct custom, op_type), NULL, "the name it was registered by; other attributes go to its constructor" },
  HIDDEN(in,     "names of inputs"),
  HIDDEN(out,    "names of outputs"),
  HIDDEN(reads,  "what backward reads"),
  HIDDEN(shapes, "shapes of inputs and outputs"),
  HIDDEN(types,  "dtypes of inputs and outputs"),
  { 0 }
};

static const char *text_or_default(const char *s, const char *other) { return s && *s ? s : other; }
static const char *custom_in(const void *p)
{
  return text_or_default(((const struct custom *)p)->in, "data*");
}
static const char *custom_out(const void *p)
{
  return text_or_default(((const struct custom *)p)->out, "output");
}
static const char *custom_reads(const void *p)
{
  return text_or_default(((const struct custom *)p)->reads, "g* i* o*");
}

static ty_desc *slot_at(struct infer *s, int k)
{
  return k < s->nin ? &s->in[k] : k - s->nin < s->nout ? &s->out[k - s->nin] : NULL;
}

/* Reads "2,3" as dims; "?" and 0 are unknown. */
static int take_shape(struct infer *s, const char *text, size_t n, ty_desc *slot)
{
  int64_t dim[TY_MAXDIM];
  int ndim = 0;
  if (*text == '?') return TY_OK;
  for (const char *end = text + n; text < end && ndim < TY_MAXDIM;
       text += strcspn(text, ", "), text += *text == ',')
    dim[ndim++] = strtoll(text, NULL, 10);
  return shape_is(s, slot, ndim, dim);
}

static int custom_shape(struct infer *s)
{
  const char *t = text_or_default(((const struct custom *)s->param)->shapes, "");
  for (int k = 0; *t; k++, t += strcspn(t, " "), t += strspn(t, " ")) {
    ty_desc *slot = slot_at(s, k);
    if (slot) TRY(take_shape(s, t, strcspn(t, " "), slot));
  }
  return TY_OK;
}

static int custom_type(struct infer *s)
{
  const char *t = text_or_default(((const struct custom *)s->param)->types, "");
  for (int k = 0; *t; k++, t += strcspn(t, " "), t += strspn(t, " ")) {
    ty_desc *slot = slot_at(s, k);
    if (slot) TRY(type_is(s, slot, atoi(t)));
  }
  return TY_OK;
}

const struct op op_custom[] = {
  { .name = "Custom", .alias = "_npi_Custom _CustomFunction", .in = "data*", .in_of = custom_in, .out_of = custom_out,
    .grad_of = custom_reads,
    .doc = "An operator written in Lua (ty.operator): its class gives names, shapes, dtypes, forward and backward.",
    .param = custom_params, .param_size = sizeof(struct custom), .shape = custom_shape, .type = custom_type,
    .flags = OP_CALLBACK | OP_OWN_GRADIENT },
  { 0 }
};

/* steps.c - recorded calls for front ends, and the recording of their own functions. */
#include "lazy/history.h"
#include "lazy/recording.h"

/* -- steps ------------------------------------------------------------------------------------- */

int ty_step_of(ty_tensor *t, ty_step **out, int *which)
{
  NEED(t && out && which, TY_ETYPE, "step_of: the array or a result's place is missing");
  *out = history_is_recorded(t) ? history_keep(t->history) : NULL;
  *which = t->history_out;
  return TY_OK;
}

void ty_step_free(ty_step *s) { history_drop(s); }

/* A walk from heads for the step with the largest serial number below a limit. */
struct step_search {
  struct history **list;                              /* nodes that were visited, borrowed */
  int n, cap;
  uint64_t walk;
  uint64_t below;
  struct history *found;                              /* NULL: none yet */
};

/* Visits a node of the walk. functions: look for functions only, and not beyond them. */
static int visit_history(struct step_search *s, struct history *h, int functions)
{
  if (!h || h->kind == HISTORY_VARIABLE || h->seen == s->walk) return TY_OK;
  h->seen = s->walk;
  if (h->serial < s->below && (!functions || h->kind == HISTORY_FUNCTION))
    if (!s->found || s->found->serial < h->serial) s->found = h;
  if (functions && h->kind == HISTORY_FUNCTION) return TY_OK;
  NEED(GROW(s->list, s->n, s->cap), TY_EMEMORY, "out of memory: recording");
  s->list[s->n++] = h;
  return TY_OK;
}

int ty_step_before(
    ty_tensor *const *head, int nhead, uint64_t below, int functions, ty_step **out)
{
  NEED(head && out, TY_ETYPE, "step_before: the heads or the result's place is missing");
  struct step_search s = { .walk = history_new_walk(), .below = below };
  int code = TY_OK;
  for (int i = 0; i < nhead && !code; i++) code = visit_history(&s, head[i]->history, functions);
  for (int i = 0; i < s.n && !code; i++)
    for (int k = 0; k < s.list[i]->nin && !code; k++)
      code = visit_history(&s, s.list[i]->in[k].from, functions);
  mem_free(s.list);
  if (!code) *out = history_keep(s.found);
  return code;
}

int ty_step_info_of(const ty_step *s, ty_step_info *out)
{
  NEED(s && out, TY_ETYPE, "step_info: the step or the result's place is missing");
  *out = (ty_step_info){ .where = s->where, .serial = s->serial, .nin = s->nin, .nout = s->nout };
  if (!s->call) return TY_OK;
  out->op = history_name(s);
  out->attr = s->call->attr;
  out->nattr = s->call->nattr;
  out->train = s->run.is_train;
  return TY_OK;
}

int ty_step_input(ty_step *s, int i, ty_tensor **out)
{
  NEED(s && out, TY_ETYPE, "step_input: the step or the result's place is missing");
  NEED(i >= 0 && i < s->nin, TY_EINDEX,
      "step_input: there is no input %d; %s has %d, counted from 0", i, history_name(s), s->nin);
  struct history_input *in = &s->in[i];
  TRY(history_input_tensor(s, i, out));
  if (!in->array) history_attach(*out, in->from, in->out);
  return TY_OK;
}

int ty_step_output(ty_step *s, int i, ty_tensor **out)
{
  NEED(s && out, TY_ETYPE, "step_output: the step or the result's place is missing");
  NEED(i >= 0 && i < s->nout, TY_EINDEX,
      "step_output: there is no output %d; %s has %d, counted from 0", i, history_name(s), s->nout);
  TRY(history_output_tensor(s, i, out));
  history_attach(*out, s, i);
  return TY_OK;
}

/* -- functions --------------------------------------------------------------------------------- */

int ty_function(
    ty_tensor *const *in, int nin, ty_tensor *const *out, int nout, uint64_t *serial)
{
  NEED(in && out && serial, TY_ETYPE, "function: the arrays or the result's place is missing");
  bool recorded = false;
  struct history *h;
  for (int i = 0; i < nin; i++) recorded |= in[i]->history != NULL;
  *serial = 0;
  if (!thread_recording()->on || !recorded) return TY_OK;
  TRY(history_function(in, nin, out, nout, &h));
  h->where = thread_recording()->where;
  *serial = h->serial;
  for (int i = 0; i < nout; i++) history_attach(out[i], h, i);
  history_drop(h);
  return TY_OK;
}

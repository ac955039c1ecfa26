/* backward.c - gradients of recorded calls.
**
** A backward runs the trace of the calls that the heads depend on (trace.h), with gradients of its
** leaves. Functions of the front end are not part of it: their outputs are leaves, and the caller
** of ty_backward continues beyond them (runtime/lua/tycho/autograd).
*/
#include "lazy/flush.h"
#include "lazy/late.h"
#include "lazy/recording.h"
#include "lazy/trace.h"

/* -- where gradients go ------------------------------------------------------------------------ */

/* Sets the array of each leaf's gradient. n = 0: all variables get gradients, in their own arrays;
** else n variables get them, in the given arrays. Fails where the heads do not depend on a given
** variable, unless flags has TY_UNREACHED. */
static int assign_gradients(struct trace *t, ty_tensor *const *variable, ty_tensor *const *grad,
    int n, int flags)
{
  for (int i = 0; i < t->nleaf && !n; i++) {
    struct leaf *l = &t->leaf[i];
    if (!l->reached || !l->from || l->from->kind != HISTORY_VARIABLE) continue;
    if (l->from->req == TY_NULL) continue;
    l->grad = l->from->grad;
    l->req = l->from->req;
    t->nvariable++;
  }
  for (int k = 0; k < n; k++) {
    struct leaf *l = trace_leaf(t, variable[k]);
    if (!l && (flags & TY_UNREACHED)) continue;
    if (!l) {
      char number[24];
      int code = fail(TY_EVALUE,
          "the heads do not depend on variable %d; it must become a variable before the recorded "
          "calls that use it", k + 1);
      snprintf(number, sizeof number, "%d", k + 1);
      fail_argument(number, NULL, NULL);
      return code;
    }
    l->grad = grad[k];
    l->req = TY_WRITE;
    t->nvariable++;
  }
  NEED(t->nvariable || n || t->nfunction, TY_ESTATE,
      "backward: no gradient is asked for: the grad_req of all variables is null");
  return TY_OK;
}

/* -- backward ---------------------------------------------------------------------------------- */

/* Returns why an array has no history, with what to do about it. */
static const char *explain_plain(const ty_tensor *t)
{
  switch (t->made) {
  case MADE_NOT_RECORDING: return "it was made while recording was off; use autograd.record(f)";
  case MADE_WHILE_PAUSED: return "it was made while recording was paused";
  case MADE_OF_PLAIN_ARRAYS: return "it depends on no variable; use attach_grad";
  case MADE_DETACHED: return "it is detached from its recorded call";
  default: return "no call has made it";
  }
}

static int check_heads(ty_tensor *const *head, ty_tensor *const *grad, int n)
{
  char want[160], got[160];
  for (int i = 0; i < n; i++) {
    NEED(head[i], TY_ETYPE, "backward: head %d is missing", i + 1);
    NEED(head[i]->history, TY_ESTATE, "backward: this array was not recorded: %s",
        explain_plain(head[i]));
    if (!grad || !grad[i]) continue;
    const ty_desc *d = &grad[i]->d;
    if (!desc_same_shape(d, &head[i]->d)) {
      text_shape(&head[i]->d, want, sizeof want);
      text_shape(d, got, sizeof got);
      int code = fail(TY_ESHAPE, "backward: the head has shape %s, its gradient %s", want, got);
      fail_argument("head_grads", want, got);
      return code;
    }
    NEED(d->dtype == head[i]->d.dtype, TY_EDTYPE, "backward: the head is %s, its gradient %s",
        dtype_name(head[i]->d.dtype), dtype_name(d->dtype));
    if (d->device != head[i]->d.device) {
      device_name(head[i]->d.device, want, sizeof want);
      device_name(d->device, got, sizeof got);
      int code = fail(TY_EDEVICE, "backward: the head is on %s, its gradient on %s", want, got);
      fail_argument("head_grads", want, got);
      return code;
    }
  }
  return TY_OK;
}

/* Submits the backlogs where their calls cannot be part of the backward's program: calls of other
** threads or of another mode, late ones, those that read broken bytes. Where calls wait for a late
** value, drops them and fails. */
static int run_others(bool train)
{
  struct backlog *backlog = backlog_own();
  NEED(backlog, TY_EMEMORY, "out of memory: backward");
  const bool apart = backlog_other_mode(backlog, train) || backlog->late ||
      backlog_elsewhere(backlog) || backlog_mark_broken(backlog);
  if (apart) TRY(backlog_run());
  if (!backlog->late) return TY_OK;
  late_abandon(backlog);
  return backlog_fail_waiting("backward");
}

/* Lists the calls that heads depend on. The program of a backward has this thread's precision:
** products of another precision whose values were not kept are computed again before it. */
static int collect_calls(struct trace *t, ty_tensor *const *head, int nhead)
{
  const struct trace begin = *t;
  for (;;) {
    TRY(trace_collect(t, head, nhead));
    struct history *other = trace_other_product(t, precision_now());
    if (!other) return TY_OK;
    TRY(trace_run_again(other->out[0].storage));
    trace_done(t);
    *t = begin;
  }
}

/* Submits the pending calls with the gradients of the heads, and frees the graph unless t->retain
** is set. */
static int run_backward(struct trace *t, ty_tensor *const *head, ty_tensor *const *head_grad,
    int nhead, ty_tensor *const *variable, ty_tensor *const *grad, int nvariable, int flags)
{
  TRY(collect_calls(t, head, nhead));
  TRY(trace_describe(t));
  TRY(assign_gradients(t, variable, grad, nvariable, flags));
  if (t->nvariable) TRY(trace_run(t, head_grad));
  for (int i = 0; i < t->nleaf && !nvariable; i++)
    if (t->leaf[i].grad) t->leaf[i].from->fresh = true;
  if (t->retain) return TY_OK;
  const char *where = thread_recording()->where;
  for (int i = 0; i < t->nfunction; i++) history_free(t->function[i], where);
  for (int i = 0; i < t->n; i++)
    if (t->reached[i]) history_free(t->call[i], where);
  return TY_OK;
}

int ty_backward(ty_tensor *const *head, ty_tensor *const *head_grad, int nhead,
    ty_tensor *const *variable, ty_tensor *const *grad, int nvariable, int flags)
{
  NEED(head && nhead > 0, TY_ETYPE, "backward: there are no heads");
  NEED(!nvariable || (variable && grad), TY_ETYPE, "backward: variables or gradients are missing");
  TRY(check_heads(head, head_grad, nhead));
  struct trace t = { .train = flags & TY_TRAIN, .retain = flags & TY_RETAIN };
  backlog_lock();
  int code = run_others(t.train);
  if (!code)
    code = run_backward(&t, head, head_grad, nhead, variable, grad, nvariable, flags);
  trace_done(&t);
  backlog_unlock();
  return code;
}

/* -- variables --------------------------------------------------------------------------------- */

int ty_variable(ty_tensor *x, ty_tensor *grad, int req)
{
  NEED(x && (grad || req == TY_NULL), TY_ETYPE, "variable: an array is missing");
  NEED(req == TY_NULL || req == TY_WRITE || req == TY_ADD, TY_EVALUE, "variable: grad_req %d", req);
  struct history *h;
  TRY(history_variable(req == TY_NULL ? NULL : grad, req, &h));
  history_attach(x, h, 0);
  history_drop(h);
  return TY_OK;
}

int ty_detach(ty_tensor *x)
{
  NEED(x, TY_ETYPE, "detach: the array is missing");
  history_attach(x, NULL, 0);
  x->made = MADE_DETACHED;
  return TY_OK;
}

int ty_history(ty_tensor *x, int clear, int *kind, int *fresh)
{
  NEED(x && kind && fresh, TY_ETYPE, "history: the array or a result's place is missing");
  struct history *h = x->history;
  *kind = !h ? TY_PLAIN : h->kind == HISTORY_VARIABLE ? TY_VARIABLE : h->freed ? TY_FREED
                                                                              : TY_RECORDED;
  *fresh = h && h->fresh;
  if (h && clear) h->fresh = false;
  return TY_OK;
}

/* walk.c - monitored runs and partial forwards: node by node over the unfused variant.
**
** A monitored run stops at an event for each value, before another step may overwrite it: the call
** returns, and ty_exec_resume continues.
*/
#include "exec/inner.h"

/* Runs one step as a task of its own and waits for it. */
static int walk_run_step(ty_exec *e, struct program *p, int t)
{
  struct ticket ticket;
  TRY(exec_list_single(e, p));
  const struct segment *g = &p->step_segment[t];
  TRY(exec_submit(e, p, g, t, t + 1, NULL, 0, &ticket));
  ticket_wait(ticket);
  return exec_check_failure_link(e, g->slot);
}

int exec_run_node(ty_exec *e, struct program *p, int node)
{
  int t = p->step_of[node];
  if (t < 0 || p->step[t].node != node) return TY_OK;
  if (!step_is_front_end(p, &p->step[t])) return walk_run_step(e, p, t);
  bool skipped;
  exec_begin_front_end_segment(e, p, find_segment(p, t));
  TRY(step_skipped(&p->step[t], &skipped));
  if (skipped) return TY_OK;
  exec_note_front_end_event(e, p, t);
  return TY_EV_HOST;
}

/* Makes a read-only array over a value; *out NULL: the value has no memory. */
static int walk_view_value(ty_exec *e, struct program *p, int v, ty_tensor **out)
{
  const struct value *x = &p->value[v], *r = &p->value[x->root];
  struct storage *s = NULL;
  ty_desc d = e->graph.desc[v];
  int code = TY_OK;
  *out = NULL;
  d.device = r->kind == V_BOUND ? e->bind.bound[r->bound]->d.device : r->device;
  if (r->kind == V_BOUND)
    code = ty_tensor_view(e->bind.bound[r->bound], &d, 0, out);
  else if (r->kind == V_POOL) {
    TRY(pool_storage(e->pool, r->device, (size_t)r->offset, desc_bytes(&d), &s));
    code = tensor_on(&d, s, 0, out);
    storage_free(s);
  }
  if (!code && *out) (*out)->readonly = 1;
  return code;
}

/* Makes a value the next event. Returns TY_EV_MONITOR, or TY_OK where it has no memory. */
static int walk_report(
    ty_exec *e, struct program *p, int node, int value, bool is_input, const char *format, ...)
{
  va_list args;
  ty_tensor_free(e->event_tensor);
  e->event_tensor = NULL;
  TRY(walk_view_value(e, p, value, &e->event_tensor));
  if (!e->event_tensor) return TY_OK;
  va_start(args, format);
  number_format(e->event_name, sizeof e->event_name, format, args);
  va_end(args);
  const struct node *n = &e->graph.g->node[node];
  e->event = (ty_event){ n->name, op_label(n), e->event_name, e->event_tensor, 0, is_input, n->nin,
    n->kind->nout };
  return TY_EV_MONITOR;
}

enum { MAX_SHOWN_INPUTS = 64 };                       /* of a node, that a monitor reports */

/* Lists the inputs that a monitor reports and returns their number: of a gradient operator those
** that the reference's reads. */
static int walk_list_inputs(const ty_exec *e, const struct node *n, ty_entry *out)
{
  int count = 0;
  const struct reads *shown;
  if (!n->backward || find_reads(n->op->shown, &shown) || !shown) {
    for (; count < n->nin && count < MAX_SHOWN_INPUTS; count++) out[count] = n->in[count];
    return count;
  }
  const struct node *f = &e->graph.g->node[n->forward];
  struct read_walk w = reads_walk(shown, f->nin, f->kind->nout);
  while (count < MAX_SHOWN_INPUTS && reads_next(&w))
    out[count++] = w.kind == READ_HEAD ? n->in[0]
        : w.kind == READ_IN            ? f->in[w.k]
                                       : (ty_entry){ n->forward, w.k };
  return count;
}

/* Runs a node and reports its values, from item e->run.item on. With TY_MON_ALL each input is two
** items before the node runs: under the name of its variable, and as <node>_<input>. The outputs
** follow after the run. */
static int walk_visit_node(ty_exec *e, struct program *p)
{
  const struct node *n = &e->graph.g->node[e->run.node];
  ty_entry in[MAX_SHOWN_INPUTS];
  int inputs = e->monitor == TY_MON_ALL && !n->inside ? 2 * walk_list_inputs(e, n, in) : 0;
  int outputs = n->inside && !n->shown ? 0 : n->kind->nreal;
  char name[600];
  while (e->run.item < inputs) {
    const int k = e->run.item / 2, v = value_of(e->graph.g, in[k]);
    const bool own_name = !(e->run.item++ & 1);
    const struct node *from = &e->graph.g->node[in[k].node];
    int code = TY_OK;
    if (own_name && !from->op)
      code = walk_report(e, p, e->run.node, v, true, "%s", from->name);
    else if (!own_name && !n->backward && monitor_input_named(n->op))
      code = walk_report(
          e, p, e->run.node, v, true, "%s_%s", n->name, n->kind->inport[k].name);
    else if (!own_name)
      code = walk_report(e, p, e->run.node, v, true, "%s_input%d", n->name, k);
    if (code) return code;
  }
  if (e->run.item == inputs) {
    e->run.item++;
    int code = exec_run_node(e, p, e->run.node);
    if (code) return code;
  }
  while (e->run.item - inputs - 1 < outputs) {
    int k = e->run.item++ - inputs - 1;
    if (n->partial_sum) continue;
    output_name(n, k, name, sizeof name);
    int code = walk_report(
        e, p, e->run.node, n->first + k, false, "%s", n->shown ? n->shown : name);
    if (code) return code;
  }
  return TY_OK;
}

int exec_abandon_walk(ty_exec *e, int code)
{
  struct program *p = e->variant[UNFUSED];
  const bool back = e->run.phase == RUN_BACKWARD;
  return exec_abandon(
      p, back ? p->nsegment_forward : 0, back ? p->nsegment : p->nsegment_forward, code);
}

int exec_walk(ty_exec *e)
{
  struct program *p = e->variant[UNFUSED];
  /* a partial forward that is resumed has run its only node, which was the front end's */
  const int end = e->run.phase == RUN_FORWARD ? e->graph.forward
      : e->run.phase == RUN_BACKWARD          ? e->graph.g->n
                                              : e->run.node;
  for (; e->run.node < end; e->run.node++, e->run.item = 0) {
    const struct node *n = &e->graph.g->node[e->run.node];
    const int t = p->step_of[e->run.node];
    bool counts = n->op && t >= 0;                      /* it has a step or, as a view, a value */
    for (int k = 0; n->op && k < n->kind->nout; k++)
      counts |= p->value[n->first + k].kind != V_NONE;
    if (!counts) continue;
    bool skipped = false;                               /* by its guard, which has run */
    int code = t >= 0 && p->step[t].node == e->run.node ? step_skipped(&p->step[t], &skipped)
                                                         : TY_OK;
    if (!code && skipped) continue;
    if (!code) code = walk_visit_node(e, p);
    if (code > 0) return exec_abandon_walk(e, code);
    if (code) return code;
  }
  ty_tensor_free(e->event_tensor);
  e->event_tensor = NULL;
  int code = TY_OK;
  if (e->run.phase == RUN_BACKWARD)
    for (int t = p->nforward; t < p->n && !code; t++)
      if (p->step[t].kind == STEP_COPY || p->step[t].kind == STEP_ADD)
        code = walk_run_step(e, p, t);
  return code > 0 ? exec_abandon_walk(e, code) : code;
}

int ty_exec_event(ty_exec *e, ty_event *out)
{
  TRY(exec_need_memory(e, "event"));
  NEED(e->run.waiting && out, TY_ESTATE, "event: none is waiting");
  *out = e->event;
  return TY_OK;
}

int ty_exec_event_tensor(ty_exec *e, int part, int i, ty_tensor **out)
{
  TRY(exec_need_memory(e, "event_tensor"));
  NEED(e->run.waiting && out && e->run.node < e->graph.g->n, TY_ESTATE,
      "event_tensor: no event is waiting");
  const struct node *n = &e->graph.g->node[e->run.node];
  int count = part == TY_OUT ? n->kind->nout : n->nin;
  NEED(i >= 0 && i < count, TY_EINDEX, "event_tensor: %d of %d", i, count);
  struct program *p = exec_current_program(e);
  TRY(walk_view_value(e, p, part == TY_OUT ? n->first + i : value_of(e->graph.g, n->in[i]), out));
  if (!*out) return fail(TY_ESTATE, "event_tensor: this value has no memory");
  bool state = false;                                   /* the operator may change it */
  for (int k = 0; part != TY_OUT && k < e->bind.naux; k++)
    state |= e->bind.aux[k].node == n->in[i].node;
  (*out)->readonly = part != TY_OUT && !state;
  return TY_OK;
}

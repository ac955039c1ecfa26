/* capture.cc - streams that record work as a graph. A node follows the last nodes of its stream. An
** event that is recorded in a capture carries these nodes to another stream, which takes part from
** then on and must be joined before the end. A graph runs as one Op, its nodes in any order that
** its edges allow. */
#include <thread>
#include "state.h"

struct Node { CUgraphNodeType type; Work work; std::vector<size_t> after; };
struct CUgraph_st { std::vector<Node> nodes; };
struct CUgraphExec_st { std::shared_ptr<std::vector<Node>> nodes; int device; };
Registry<CUgraph_st> graphs;
Registry<CUgraphExec_st> graph_execs;

struct Capture {
  CUstream_st *origin;
  CUgraph_st *graph;
  CUstreamCaptureMode mode;
  std::thread::id thread;
  std::set<CUstream_st *> streams;
  bool broken = false;
};
static std::set<std::shared_ptr<Capture>> &captures = *new std::set<std::shared_ptr<Capture>>;

/* -- recording --------------------------------------------------------------------------------- */

CUresult capture_node(CUstream_st *s, CUgraphNodeType type, Work work)
{
  Capture &c = *s->capture;
  NEED(!c.broken, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  c.graph->nodes.push_back({ type, std::move(work), s->last });
  s->last = { c.graph->nodes.size() - 1 };
  return CUDA_SUCCESS;
}

CUresult capture_wait(CUstream_st *s, CUevent_st *e)
{
  std::shared_ptr<Capture> other = e->capture.lock();
  if (e->captured && !other)
    return report_misuse(
        CUDA_ERROR_CAPTURED_EVENT, "cuStreamWaitEvent", "the event's capture has ended");
  if (!e->captured) {
    if (s->capture) s->capture->broken = true;
    return report_misuse(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "cuStreamWaitEvent",
        "a stream that captures waits for an event recorded outside of its capture");
  }
  if (s->capture && s->capture != other)
    return report_misuse(
        CUDA_ERROR_STREAM_CAPTURE_MERGE, "cuStreamWaitEvent", "two captures would merge");
  if (!s->capture) {
    s->capture = other;
    s->last.clear();
    other->streams.insert(s);
  }
  std::set<size_t> all(s->last.begin(), s->last.end());
  all.insert(e->nodes.begin(), e->nodes.end());
  s->last.assign(all.begin(), all.end());
  return CUDA_SUCCESS;
}

CUresult capture_refuse(CUstream_st *s, const char *what)
{
  s->capture->broken = true;
  return report_misuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, what, "the stream captures");
}

CUresult capture_check_unsafe(const char *function)
{
  CUresult r = CUDA_SUCCESS;
  for (auto &c : captures) {
    bool own = c->thread == std::this_thread::get_id();
    bool global = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (c->mode == CU_STREAM_CAPTURE_MODE_RELAXED || !(own || global)) continue;
    c->broken = true;
    r = report_misuse(
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, function, "not allowed during a capture");
  }
  return r;
}

bool any_capture(int device)
{
  for (auto &c : captures)
    for (CUstream_st *s : c->streams)
      if (s->device == device && s->queue->blocking) return true;
  return false;
}

/* -- beginning and end ------------------------------------------------------------------------- */

API cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
  ENTER(CONTEXT);
  CUstream_st *s = find_stream(handle);
  RULE(s, CUDA_ERROR_INVALID_HANDLE, "not a stream, or destroyed before");
  RULE((uintptr_t)handle > 2, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the default stream");
  RULE(!s->capture, CUDA_ERROR_INVALID_VALUE, "the stream captures already");
  auto c = std::make_shared<Capture>();
  c->origin = s;
  c->graph = graphs.add(new CUgraph_st);
  c->mode = mode;
  c->thread = std::this_thread::get_id();
  c->streams.insert(s);
  captures.insert(c);
  s->capture = c;
  s->last.clear();
  return CUDA_SUCCESS;
}

/* Returns whether the origin's last nodes depend on the last nodes of a stream, or are these. */
static bool is_joined(const Capture &c, const CUstream_st *s)
{
  std::vector<size_t> open = c.origin->last;
  std::set<size_t> seen(open.begin(), open.end());
  while (!open.empty()) {
    size_t n = open.back();
    open.pop_back();
    for (size_t before : c.graph->nodes[n].after)
      if (seen.insert(before).second) open.push_back(before);
  }
  for (size_t n : s->last)
    if (!seen.count(n)) return false;
  return true;
}

static CUresult check_capture(const Capture &c)
{
  if (c.broken) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  for (const CUstream_st *s : c.streams)
    if (!is_joined(c, s))
      return report_misuse(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "cuStreamEndCapture",
          "a stream that took part was not joined to the one that began");
  return CUDA_SUCCESS;
}

API cuStreamEndCapture(CUstream handle, CUgraph *out)
{
  Call call(__func__, CONTEXT); /* a planned failure (CUDASIM_FAIL) ends the capture, too */
  CUstream_st *s = find_stream(handle);
  if (call.code && !(s && s->capture)) return call.code;
  RULE(s && s->capture, CUDA_ERROR_INVALID_VALUE, "not a stream that captures");
  std::shared_ptr<Capture> c = s->capture;
  if (out) *out = nullptr;
  RULE(c->origin == s, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "another stream began the capture");
  RULE(c->mode == CU_STREAM_CAPTURE_MODE_RELAXED || c->thread == std::this_thread::get_id(),
      CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "another thread began the capture");
  CUresult r = call.code ? call.code : check_capture(*c);
  for (CUstream_st *one : c->streams) {
    one->capture = nullptr;
    one->last.clear();
  }
  captures.erase(c);
  if (!r && out) {
    *out = c->graph;
    return r;
  }
  graphs.live.erase(c->graph);
  delete c->graph;
  return r;
}

static CUstreamCaptureStatus status_of(const CUstream_st *s)
{
  return !s->capture ? CU_STREAM_CAPTURE_STATUS_NONE
      : s->capture->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                           : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

API cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
  ENTER(CONTEXT);
  CUstream_st *s = find_stream(handle);
  RULE(s, CUDA_ERROR_INVALID_HANDLE, "not a stream, or destroyed before");
  *status = status_of(s);
  return CUDA_SUCCESS;
}

/* -- graphs ------------------------------------------------------------------------------------ */

#define GRAPH(g) RULE(graphs.has(g), CUDA_ERROR_INVALID_VALUE, "not a graph, or destroyed before")

API cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *n)
{
  ENTER(CONTEXT);
  GRAPH(g);
  if (!nodes) {
    *n = g->nodes.size();
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < *n; i++)
    nodes[i] = i < g->nodes.size() ? (CUgraphNode)&g->nodes[i] : nullptr;
  return CUDA_SUCCESS;
}

API cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
  ENTER(CONTEXT);
  *type = ((Node *)node)->type;
  return CUDA_SUCCESS;
}

API cuGraphDestroy(CUgraph g)
{
  ENTER(ENDING);
  GRAPH(g);
  graphs.live.erase(g);
  delete g;
  return CUDA_SUCCESS;
}

API cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long)
{
  ENTER(CONTEXT);
  GRAPH(g);
  NEED(out, CUDA_ERROR_INVALID_VALUE);
  *out = graph_execs.add(new CUgraphExec_st);
  (*out)->nodes = std::make_shared<std::vector<Node>>(g->nodes);
  (*out)->device = current_context()->device;
  return CUDA_SUCCESS;
}

API cuGraphExecDestroy(CUgraphExec x)
{
  ENTER(ENDING);
  RULE(graph_execs.has(x), CUDA_ERROR_INVALID_VALUE, "not a graph, or destroyed before");
  graph_execs.live.erase(x);
  delete x;
  return CUDA_SUCCESS;
}

/* Runs nodes in a random order among those that the edges allow. */
static CUresult run_nodes(const std::vector<Node> &nodes)
{
  std::vector<size_t> missing(nodes.size()), able;
  std::vector<std::vector<size_t>> readers(nodes.size());
  for (size_t i = 0; i < nodes.size(); i++) {
    missing[i] = nodes[i].after.size();
    for (size_t before : nodes[i].after) readers[before].push_back(i);
    if (!missing[i]) able.push_back(i);
  }
  while (!able.empty()) {
    size_t k = choose_below(able.size()), i = able[k];
    able[k] = able.back();
    able.pop_back();
    if (CUresult r = nodes[i].work ? nodes[i].work() : CUDA_SUCCESS) return r;
    for (size_t reader : readers[i])
      if (!--missing[reader]) able.push_back(reader);
  }
  return CUDA_SUCCESS;
}

API cuGraphLaunch(CUgraphExec x, CUstream handle)
{
  ENTER(CONTEXT);
  CUstream_st *s = find_stream(handle);
  RULE(s, CUDA_ERROR_INVALID_HANDLE, "not a stream, or destroyed before");
  RULE(graph_execs.has(x), CUDA_ERROR_INVALID_VALUE, "not a graph, or destroyed before");
  RULE(x->device == s->device, CUDA_ERROR_INVALID_VALUE, "graph and stream of two devices");
  auto nodes = x->nodes;
  counts.graphs++;
  return submit_work(s, CU_GRAPH_NODE_TYPE_GRAPH, [=] { return run_nodes(*nodes); });
}

API cuGraphUpload(CUgraphExec x, CUstream)
{
  ENTER(CONTEXT);
  RULE(graph_execs.has(x), CUDA_ERROR_INVALID_VALUE, "not a graph, or destroyed before");
  return CUDA_SUCCESS;
}

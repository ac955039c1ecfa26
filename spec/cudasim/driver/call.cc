/* call.cc - what every function of the interface has in common: the one lock, the order of
** initialization, errors that stick to a context, failures that tests ask for
** (CUDASIM_FAIL=cuMemAlloc:3, or cuMemAlloc:3:700 with a code; a list is separated by commas), and
** the report of misuse. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "driver.h"
#include "state.h"

State &state = *new State;                            /* never destroyed: others may outlive main */
Counts counts;
/* of this thread: it runs a host function, which must not call the driver */
thread_local bool in_host_function;

const char *find_setting(const char *name, const char *otherwise)
{
  const char *e = getenv(name);
  return e && *e ? e : otherwise;
}

bool runs_dry()
{
  static const bool dry = atoi(find_setting("CUDASIM_DRY", "0"));
  return dry;
}

size_t choose_below(size_t n)
{
  static uint64_t x = strtoull(find_setting("CUDASIM_SEED", "1"), nullptr, 0) * 2 + 1;
  x = x * 6364136223846793005u + 1442695040888963407u;
  return n ? (size_t)((x >> 33) % n) : 0;
}

/* -- failures that tests ask for --------------------------------------------------------------- */

struct Planned { std::string name; int left; CUresult code; };
static std::vector<Planned> planned;

static void plan_failures(const char *text)
{
  planned.clear();
  for (const char *s = text; s && *s; s = strchr(s, ',') ? strchr(s, ',') + 1 : nullptr) {
    size_t n = strcspn(s, ":,");
    Planned p = { std::string(s, n), 1, CUDA_ERROR_OUT_OF_MEMORY };
    char *end = (char *)s + n;
    if (*end == ':') p.left = (int)strtol(end + 1, &end, 10);
    if (*end == ':') p.code = (CUresult)strtol(end + 1, &end, 10);
    planned.push_back(p);
  }
}

/* Returns whether a setting names a function; cuMemAlloc names cuMemAlloc_v2 too. */
static bool is_named(const std::string &name, const char *function)
{
  size_t n = name.size();
  return !strncmp(function, name.c_str(), n) && (!function[n] || !strncmp(function + n, "_v", 2));
}

/* Returns whether an error sticks to its context: faults of kernels and their consequences. Other
** codes from 700 on refuse one call. */
static bool is_sticky(CUresult code)
{
  return code == 700 || code == 702 || code == 709 || code == 710 || (code >= 714 && code < 720);
}

static CUresult planned_failure(const char *function)
{
  for (Planned &p : planned) {
    if (!is_named(p.name, function) || --p.left) continue;
    CUctx_st *c = current_context();
    if (is_sticky(p.code) && c) c->error = p.code;
    return p.code;
  }
  return CUDA_SUCCESS;
}

/* Replaces the planned failures by those of `text`, which reads like CUDASIM_FAIL. For tests in the
** same process. */
extern "C" __attribute__((visibility("default"))) void cudasim_fail(const char *text)
{
  Lock lock(state.lock);
  plan_failures(text);
}

/* number of calls by the name of the function, including those of libraries */
static std::map<std::string, long> &called = *new std::map<std::string, long>;

/* Returns how often a function was called. For tests in the same process. */
extern "C" __attribute__((visibility("default"))) long cudasim_calls(const char *name)
{
  Lock lock(state.lock);
  long n = 0;
  for (auto &c : called) n += is_named(name, c.first.c_str()) ? c.second : 0;
  return n;
}

void start_planning() { plan_failures(getenv("CUDASIM_FAIL")); }

/* -- entering ---------------------------------------------------------------------------------- */

static CUresult check_call(const char *name, int needs)
{
  if (!state.started) return CUDA_ERROR_NOT_INITIALIZED;
  if (in_host_function)
    return report_misuse(CUDA_ERROR_NOT_PERMITTED, name, "called from a host function of a stream");
  called[name]++;
  if (CUresult r = planned_failure(name)) return r;
  CUctx_st *c = current_context();
  if (needs & CONTEXT && !c)
    return report_misuse(CUDA_ERROR_INVALID_CONTEXT, name, "this thread has no current context");
  if (c && c->error && !(needs & ENDING)) return c->error;
  return needs & UNSAFE ? capture_check_unsafe(name) : CUDA_SUCCESS;
}

Call::Call(const char *name, int needs) : lock(state.lock), name(name)
{
  code = check_call(name, needs);
}

/* -- reports ----------------------------------------------------------------------------------- */

static void report_text(const std::string &text)
{
  counts.findings++;
  state.why = text;
  fprintf(stderr, "cudasim: %s\n", text.c_str());
}

CUresult report_misuse(CUresult code, const char *function, const char *format, ...)
{
  char text[512];
  va_list a;
  va_start(a, format);
  vsnprintf(text, sizeof text, format, a);
  va_end(a);
  report_text(std::string(function) + ": " + text);
  return code;
}

CUresult report_fault(CUresult code, const std::string &why)
{
  report_text(why);
  return code;
}

static const struct { CUresult code; const char *name, *text; } errors[] = {
#define E(name, text) { CUDA_##name, "CUDA_" #name, text }
  E(SUCCESS, "no error"), E(ERROR_INVALID_VALUE, "invalid argument"),
  E(ERROR_OUT_OF_MEMORY, "out of memory"), E(ERROR_NOT_INITIALIZED, "initialization error"),
  E(ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
  E(ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
  E(ERROR_INVALID_DEVICE, "invalid device ordinal"),
  E(ERROR_INVALID_IMAGE, "device kernel image is invalid"),
  E(ERROR_INVALID_CONTEXT, "invalid device context"), E(ERROR_MAP_FAILED, "mapping of buffer object failed"),
  E(ERROR_ALREADY_MAPPED, "resource already mapped"), E(ERROR_NOT_MAPPED, "resource not mapped"),
  E(ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
  E(ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
  E(ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
  E(ERROR_INVALID_HANDLE, "invalid resource handle"), E(ERROR_NOT_FOUND, "named symbol not found"),
  E(ERROR_NOT_READY, "device not ready"),
  E(ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
  E(ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
  E(ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
  E(ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
  E(ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
  E(ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"), E(ERROR_ASSERT, "device-side assert triggered"),
  E(ERROR_MISALIGNED_ADDRESS, "misaligned address"),
  E(ERROR_LAUNCH_FAILED, "unspecified launch failure"), E(ERROR_NOT_PERMITTED, "operation not permitted"),
  E(ERROR_NOT_SUPPORTED, "operation not supported"),
  E(ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
  E(ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
  E(ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"),
  E(ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
  E(ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
  E(ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
  E(ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing blocking stream"),
  E(ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
  E(ERROR_STREAM_CAPTURE_WRONG_THREAD, "attempt to terminate a thread-local capture sequence from another thread"),
#undef E
};

API cuGetErrorName(CUresult code, const char **out)
{
  *out = nullptr;
  for (auto &e : errors)
    if (e.code == code) *out = e.name;
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuGetErrorString(CUresult code, const char **out)
{
  *out = nullptr;
  for (auto &e : errors)
    if (e.code == code) *out = e.text;
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* -- what tests ask ---------------------------------------------------------------------------- */

#define ASK(type) extern "C" __attribute__((visibility("default"))) type

/* Returns the text of the last finding. */
ASK(const char *) cudasim_why() { return state.why.c_str(); }
ASK(uint64_t) cudasim_findings() { return counts.findings; }
/* Writes the numbers of launches, copies, fills, graph launches and allocations since the start. */
ASK(void) cudasim_count(uint64_t out[5])
{
  Lock lock(state.lock);
  const uint64_t all[5] = { counts.launches, counts.copies, counts.fills, counts.graphs,
    counts.allocations };
  memcpy(out, all, sizeof all);
}
static std::string &costs = *new std::string, &last_costs = *new std::string;
static std::mutex &costs_lock = *new std::mutex;

void note_cost(const std::string &name, uint64_t read, uint64_t written)
{
  static const bool wanted = atoi(find_setting("CUDASIM_COSTS", "0"));
  if (!wanted) return;
  Lock lock(costs_lock);
  costs += name + "\t" + std::to_string(read) + "\t" + std::to_string(written) + "\n";
}

/* Returns lines "name, bytes read, bytes written" of each launch, copy and fill since the last
** call, in the order in which they ran; valid until the next call. */
ASK(const char *) cudasim_costs()
{
  Lock lock(costs_lock);
  last_costs.clear();
  last_costs.swap(costs);
  return last_costs.c_str();
}
/* Returns how often streams waited for events since the start. */
ASK(uint64_t) cudasim_waits()
{
  Lock lock(state.lock);
  return counts.waits;
}
/* Returns how many copies between devices went over the host. */
ASK(uint64_t) cudasim_staged()
{
  Lock lock(state.lock);
  return counts.staged;
}
/* Returns how many copies ran before kernels of their device that were submitted earlier. */
ASK(uint64_t) cudasim_overtakes()
{
  Lock lock(state.lock);
  return counts.overtakes;
}
/* Forgets sticky errors and findings, as a new process would. */
ASK(void) cudasim_forget()
{
  Lock lock(state.lock);
  for (int i = 0; i < DEVICES; i++) context_of(i).error = CUDA_SUCCESS;
  counts.findings = 0;
  state.why.clear();
}

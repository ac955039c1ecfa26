/* nvrtc.cc - NVRTC's interface over the host's compiler. The "cubin" of a program is a shared
** library, which the driver's stand-in loads. CUDASIM_FAIL=nvrtcCompileProgram:n fails the n-th
** compilation, other functions' names their n-th call. */
#include "abi.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>
#include "compile.h"
#include "source.h"

#define API extern "C" __attribute__((visibility("default"))) nvrtcResult

struct _nvrtcProgram {
  std::string source, name, log, image;
  std::vector<std::string> expressions, lowered, headers, header_names;
  bool compiled = false;
};
static std::set<nvrtcProgram> &live = *new std::set<nvrtcProgram>;
static std::mutex lock;

#define PROGRAM(p) \
  std::unique_lock<std::mutex> own(lock); \
  if (!live.count(p)) return NVRTC_ERROR_INVALID_PROGRAM

/* Returns whether CUDASIM_FAIL makes this call fail. */
static bool planned_to_fail(const std::string &function)
{
  static std::mutex counting;
  static std::map<std::string, int> &calls = *new std::map<std::string, int>;
  const char *e = getenv("CUDASIM_FAIL"), *at = e ? strstr(e, (function + ":").c_str()) : nullptr;
  std::unique_lock<std::mutex> own(counting);
  return ++calls[function] == (at ? atoi(at + function.size() + 1) : 0);
}
#define ENTER \
  if (planned_to_fail(__func__)) return NVRTC_ERROR_OUT_OF_MEMORY

API nvrtcVersion(int *major, int *minor)
{
  ENTER;
  const char *e = getenv("CUDASIM_NVRTC");            /* such as 13000 */
  int version = e ? atoi(e) : CUDASIM_TOOLKIT * 1000;
  *major = version / 1000;
  *minor = version % 1000 / 10;
  return NVRTC_SUCCESS;
}

#if CUDASIM_TOOLKIT == 12
static const int architectures[] = { 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100,
  101, 103, 120, 121 };
#else
static const int architectures[] = { 75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121 };
#endif

API nvrtcGetNumSupportedArchs(int *n)
{
  ENTER;
  *n = sizeof architectures / sizeof *architectures;
  return NVRTC_SUCCESS;
}

API nvrtcGetSupportedArchs(int *out)
{
  ENTER;
  memcpy(out, architectures, sizeof architectures);
  return NVRTC_SUCCESS;
}

extern "C" __attribute__((visibility("default"))) const char *nvrtcGetErrorString(nvrtcResult code)
{
  static const char *const text[] = { "NVRTC_SUCCESS", "NVRTC_ERROR_OUT_OF_MEMORY",
    "NVRTC_ERROR_PROGRAM_CREATION_FAILURE", "NVRTC_ERROR_INVALID_INPUT",
    "NVRTC_ERROR_INVALID_PROGRAM", "NVRTC_ERROR_INVALID_OPTION", "NVRTC_ERROR_COMPILATION" };
  size_t n = sizeof text / sizeof *text;
  return (size_t)code < n ? text[code] : "NVRTC_ERROR_INTERNAL_ERROR";
}

API nvrtcCreateProgram(nvrtcProgram *out, const char *source, const char *name, int n,
    const char *const *headers, const char *const *header_names)
{
  ENTER;
  if (!out || !source || n < 0) return NVRTC_ERROR_INVALID_INPUT;
  nvrtcProgram p = new _nvrtcProgram;
  p->source = source;
  p->name = name ? name : "default_program";
  for (int i = 0; i < n; i++) {
    p->headers.push_back(headers[i]);
    p->header_names.push_back(header_names[i]);
  }
  std::unique_lock<std::mutex> own(lock);
  live.insert(p);
  *out = p;
  return NVRTC_SUCCESS;
}

API nvrtcDestroyProgram(nvrtcProgram *p)
{
  if (!p) return NVRTC_ERROR_INVALID_PROGRAM;
  PROGRAM(*p);
  live.erase(*p);
  delete *p;
  *p = nullptr;
  return NVRTC_SUCCESS;
}

API nvrtcAddNameExpression(nvrtcProgram p, const char *expression)
{
  PROGRAM(p);
  if (p->compiled) return NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION;
  p->expressions.push_back(expression);
  p->lowered.push_back("cudasim_expression_" + std::to_string(p->expressions.size()));
  return NVRTC_SUCCESS;
}

API nvrtcGetLoweredName(nvrtcProgram p, const char *expression, const char **out)
{
  PROGRAM(p);
  if (!p->compiled) return NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION;
  for (size_t i = 0; i < p->expressions.size(); i++)
    if (p->expressions[i] == expression) {
      *out = p->lowered[i].c_str();
      return NVRTC_SUCCESS;
    }
  return NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
}

/* -- compiling --------------------------------------------------------------------------------- */

static bool starts_with(const std::string &s, const char *with)
{
  return !s.compare(0, strlen(with), with);
}

/* Returns whether a value is an architecture, as sm_90, or compute_90 for PTX; a letter may
** follow. */
static bool is_architecture(const std::string &value)
{
  size_t digits = value.find('_');
  if (digits == std::string::npos) return false;
  for (int a : architectures)
    if (a == atoi(value.c_str() + digits + 1)) return true;
  return false;
}

/* Passes on options that a C++ compiler knows, and drops those that only NVRTC knows; false:
** neither does. */
static bool translate_option(const std::string &o, std::vector<std::string> *out)
{
  static const char *const known[] = { "--fmad", "-fmad", "--use_fast_math", "-use_fast_math", "--device-debug", "-G", "--generate-line-info", "-lineinfo",
    "--maxrregcount", "-maxrregcount", "--ftz", "-ftz", "--prec-div", "--prec-sqrt", "-prec",
    "--extra-device-vectorization", "--restrict", "-restrict", "--device-int128", "-w",
    "--disable-warnings", "--relocatable-device-code", "-rdc", "-default-device",
    "--device-as-default-execution-space", "--dopt", "-dopt", "--split-compile", "--minimal",
    "-diag-", "--diag-", "--no-source-include", "--ptxas-options", "-Xptxas", "--pch", "-pch" };
  if (starts_with(o, "-D") || starts_with(o, "-U") || starts_with(o, "-I") ||
      starts_with(o, "-std=")) {
    out->push_back(o);
    return true;
  }
  const std::pair<const char *, const char *> words[] = { { "--define-macro=", "-D" },
    { "--undefine-macro=", "-U" }, { "--include-path=", "-I" }, { "--std=", "-std=" } };
  for (auto &w : words)
    if (starts_with(o, w.first)) {
      out->push_back(w.second + o.substr(strlen(w.first)));
      return true;
    }
  if (starts_with(o, "--gpu-architecture=") || starts_with(o, "-arch="))
    return is_architecture(o.substr(o.find('=') + 1));
  for (const char *k : known)
    if (starts_with(o, k)) return true;
  return false;
}

/* Replaces the lines that include headers which were given as text. */
static std::string include_headers(const nvrtcProgram p, std::string s)
{
  for (size_t i = 0; i < p->headers.size(); i++)
    for (const char *marks : { "\"\"", "<>" }) {
      std::string line = "#include " + (marks[0] + p->header_names[i]) + marks[1];
      for (size_t at = s.find(line); at != std::string::npos; at = s.find(line))
        s.replace(at, line.size(), p->headers[i]);
    }
  return s;
}

static std::string with_kernels(const nvrtcProgram p)
{
  std::string s = rewrite_dynamic(include_headers(p, p->source)), lines;
  for (const Kernel &k : find_kernels(s))
    lines += "CUDASIM_KERNEL(" + k.name + ", (" + k.bounds + "), " + k.name + ")\n";
  for (size_t i = 0; i < p->expressions.size(); i++)
    lines += "CUDASIM_KERNEL(" + p->lowered[i] + ", 1024, " + p->expressions[i] + ")\n";
  return s + "\n" + lines + "CUDASIM_MODULE\n";
}

/* Writes the source as it came, with its options in the first line, for a real compiler
** (CUDASIM_SOURCES). */
static void keep_source(nvrtcProgram p, int n, const char *const *options)
{
  const char *folder = getenv("CUDASIM_SOURCES");
  if (!folder || !*folder) return;
  std::string text = "//";
  for (int i = 0; i < n; i++) text += std::string(" ") + options[i];
  text += "\n" + p->source;
  std::string path = std::string(folder) + "/" + std::to_string(std::hash<std::string>()(text)) + ".cu";
  if (FILE *f = fopen(path.c_str(), "w")) {
    fwrite(text.data(), 1, text.size(), f);
    fclose(f);
  }
}

API nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *options)
{
  PROGRAM(p);
  keep_source(p, n, options);
  std::vector<std::string> translated;
  for (int i = 0; i < n; i++) {
    std::string o = options[i];
    if ((o == "-I" || o == "-D" || o == "-arch" || o == "--gpu-architecture") && i + 1 < n)
      o += (o[1] == 'I' || o[1] == 'D' ? "" : "=") + std::string(options[++i]);
    if (translate_option(o, &translated)) continue;
    p->log = "cudasim: unrecognized option " + o;
    return NVRTC_ERROR_INVALID_OPTION;
  }
  if (planned_to_fail(__func__)) {
    p->log = "cudasim: this compilation was asked to fail";
    return NVRTC_ERROR_COMPILATION;
  }
  const char *dry = getenv("CUDASIM_DRY");
  std::string text = with_kernels(p), name = p->name;
  Compiled c = { true, "nothing that runs", "" };
  if (!dry || !atoi(dry)) {
    own.unlock();
    c = compile_source(text, name, translated);
    own.lock();
  }
  p->log = c.log;
  p->image = c.image;
  p->compiled = c.good;
  return c.good ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

/* -- results ----------------------------------------------------------------------------------- */

API nvrtcGetProgramLogSize(nvrtcProgram p, size_t *n)
{
  ENTER;
  PROGRAM(p);
  *n = p->log.size() + 1;
  return NVRTC_SUCCESS;
}

API nvrtcGetProgramLog(nvrtcProgram p, char *out)
{
  PROGRAM(p);
  memcpy(out, p->log.c_str(), p->log.size() + 1);
  return NVRTC_SUCCESS;
}

static nvrtcResult image_size(nvrtcProgram p, size_t *n)
{
  PROGRAM(p);
  *n = p->image.size();
  return p->compiled ? NVRTC_SUCCESS : NVRTC_ERROR_INVALID_PROGRAM;
}

static nvrtcResult copy_image(nvrtcProgram p, char *out)
{
  PROGRAM(p);
  if (!p->compiled) return NVRTC_ERROR_INVALID_PROGRAM;
  memcpy(out, p->image.data(), p->image.size());
  return NVRTC_SUCCESS;
}

#define IMAGE(kind)                                   \
  API nvrtcGet##kind##Size(nvrtcProgram p, size_t *n) \
  {                                                   \
    ENTER;                                            \
    return image_size(p, n);                          \
  }                                                   \
  API nvrtcGet##kind(nvrtcProgram p, char *out)       \
  {                                                   \
    ENTER;                                            \
    return copy_image(p, out);                        \
  }
IMAGE(CUBIN)
IMAGE(PTX)

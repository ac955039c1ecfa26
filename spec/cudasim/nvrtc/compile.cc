/* compile.cc - a source becomes a shared library by the host's C++ compiler, against headers that
** lie beside this library (include/) and the driver's stand-in. Results are kept by the hash of all
** they follow from in CUDASIM_CACHE (beside this library): CUDASIM_CXX (g++, else clang++),
** CUDASIM_CXXFLAGS (-O1), CUDASIM_CHECK=1: the checker watches every access. */
#include "compile.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "flags.h"

static std::string setting(const char *name, const std::string &otherwise)
{
  const char *e = getenv(name);
  return e && *e ? e : otherwise;
}

/* the folder of this library */
static std::string home()
{
  Dl_info i;
  dladdr((void *)compile, &i);
  std::string path = i.dli_fname;
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

static std::string read(const std::string &path)
{
  std::string text;
  char part[1 << 14];
  FILE *f = fopen(path.c_str(), "rb");
  if (!f) return text;
  for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) text.append(part, n);
  fclose(f);
  return text;
}

static bool write(const std::string &path, const std::string &text)
{
  FILE *f = fopen(path.c_str(), "wb");
  if (!f) return false;
  bool good = fwrite(text.data(), 1, text.size(), f) == text.size();
  return !fclose(f) && good;
}

static std::string quoted(const std::string &s)
{
  std::string out = "'";
  for (char c : s) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/* FNV-1a */
static std::string hash(const std::string &s)
{
  unsigned long long h = 14695981039346656037u;
  char text[32];
  for (char c : s) h = (h ^ (unsigned char)c) * 1099511628211u;
  snprintf(text, sizeof text, "%016llx", h);
  return text;
}

static std::string compiler()
{
  return setting("CUDASIM_CXX", system("command -v g++ >/dev/null 2>&1") ? "clang++" : "g++");
}

static bool watched() { return atoi(setting("CUDASIM_CHECK", "0").c_str()) != 0; }

/* The precompiled header lies where g++ looks for it and serves when flags agree. */
static std::string command(const std::string &cxx, const std::vector<std::string> &options)
{
  std::string c = cxx + " " + setting("CUDASIM_CXXFLAGS", CUDASIM_FLAGS);
  c += watched() ? " " CUDASIM_WATCH : "";
  c += " -include " + quoted(home() + "/include/cudasim.h") + " -I" + quoted(home() + "/include");
  for (const std::string &o : options) c += " " + quoted(o);
  return c;
}

static std::string cache_folder()
{
  std::string folder = setting("CUDASIM_CACHE", home() + "/cache");
  mkdir(folder.c_str(), 0777);
  return folder;
}

/* Errors name the user's file and lines, as NVRTC's do. */
static bool build(const std::string &base, const std::string &text, const std::string &run,
    std::string *log)
{
  std::string own = base + "." + std::to_string(getpid()), object = own + ".o";
  if (!write(own + ".cu", text)) {
    *log = "cudasim: cannot write " + own + ".cu";
    return false;
  }
  std::string all = run + " -x c++ -c " + quoted(own + ".cu") + " -o " + quoted(object) + " 2>" +
      quoted(own + ".log") + " && " + compiler() + " -nostdlib -shared -o " + quoted(own + ".so") + " " +
      quoted(object) + " -Wl,-z,norelro -L" + quoted(home()) + " -l:libcuda.so.1 -lm -lc -lgcc 2>>" +
      quoted(own + ".log");
  bool good = !system(all.c_str()) && !rename((own + ".so").c_str(), (base + ".so").c_str());
  *log = read(own + ".log");
  for (const char *rest : { ".cu", ".o", ".log", ".so" }) unlink((own + rest).c_str());
  return good;
}

Compiled compile(const std::string &source, const std::string &name,
    const std::vector<std::string> &options)
{
  static const std::string cxx = compiler(), stamp = read(home() + "/include/stamp");
  std::string run = command(cxx, options);
  std::string text = "#line 1 " + ("\"" + name + "\"\n") + source;
  std::string base = cache_folder() + "/" + hash(run + "\n" + stamp + "\n" + text);
  Compiled c = { true, read(base + ".so"), "" };
  if (!c.image.empty()) return c;
  c.good = build(base, text, run, &c.log);
  if (c.good) c.image = read(base + ".so");
  return c;
}

/* compile.cc - compiles a source to a shared library with the host's C++ compiler, with the headers
** in include/ beside this library. Results are kept in CUDASIM_CACHE (a folder beside this library)
** by the hash of the source and of CUDASIM_CXX (g++, else clang++), CUDASIM_CXXFLAGS (-O1) and
** CUDASIM_CHECK (1: the checker watches every access). */
#include "compile.h"
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "flags.h"

static std::string find_setting(const char *name, const std::string &otherwise)
{
  const char *e = getenv(name);
  return e && *e ? e : otherwise;
}

/* Returns the folder of this library. */
static std::string find_home()
{
  Dl_info i;
  dladdr((void *)compile_source, &i);
  std::string path = i.dli_fname;
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

static std::string read_file(const std::string &path)
{
  std::string text;
  char part[1 << 14];
  FILE *f = fopen(path.c_str(), "rb");
  if (!f) return text;
  for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) text.append(part, n);
  fclose(f);
  return text;
}

static bool write_file(const std::string &path, const std::string &text)
{
  FILE *f = fopen(path.c_str(), "wb");
  if (!f) return false;
  bool good = fwrite(text.data(), 1, text.size(), f) == text.size();
  return !fclose(f) && good;
}

static std::string quote_text(const std::string &s)
{
  std::string out = "'";
  for (char c : s) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/* Returns the FNV-1a hash of a text. */
static std::string hash_text(const std::string &s)
{
  unsigned long long h = 14695981039346656037u;
  char text[32];
  for (char c : s) h = (h ^ (unsigned char)c) * 1099511628211u;
  snprintf(text, sizeof text, "%016llx", h);
  return text;
}

static std::string find_compiler()
{
  return find_setting("CUDASIM_CXX", system("command -v g++ >/dev/null 2>&1") ? "clang++" : "g++");
}

static bool is_watched() { return atoi(find_setting("CUDASIM_CHECK", "0").c_str()) != 0; }

/* Returns the command of the compiler. The precompiled header is used where the flags agree. */
static std::string make_command(const std::string &cxx, const std::vector<std::string> &options)
{
  std::string c = cxx + " " + find_setting("CUDASIM_CXXFLAGS", CUDASIM_FLAGS);
  c += is_watched() ? " " CUDASIM_WATCH : "";
  c += " -include " + quote_text(find_home() + "/include/cudasim.h") + " -I" +
      quote_text(find_home() + "/include");
  for (const std::string &o : options) c += " " + quote_text(o);
  return c;
}

static std::string cache_folder()
{
  std::string folder = find_setting("CUDASIM_CACHE", find_home() + "/cache");
  mkdir(folder.c_str(), 0777);
  return folder;
}

static void remove_all(std::string *text, const std::string &what)
{
  for (size_t at = text->find(what); at != std::string::npos; at = text->find(what))
    text->erase(at, what.size());
}

/* Compiles in a new folder, from a file with the user's name, since errors contain it. */
static bool run_compiler(const std::string &base, const std::string &name, const std::string &text,
    const std::string &run, std::string *log)
{
  std::string folder = base + "." + std::to_string(getpid()) + "/", file = folder + name;
  std::string errors = quote_text(folder + "log"), object = quote_text(folder + "o"),
              so = folder + "so";
  mkdir(folder.c_str(), 0777);
  if (!write_file(file, text)) {
    *log = "cudasim: cannot write " + file;
    return false;
  }
  std::string link = find_compiler() + " -nostdlib -shared -o " + quote_text(so) + " " + object +
      " -L" + quote_text(find_home()) + " -l:libcuda.so.1 -lm -lc -lgcc 2>>" + errors;
  std::string all = run + " -x c++ -c " + quote_text(file) + " -o " + object + " 2>" + errors;
  bool good = !system((all + " && " + link).c_str()) && !rename(so.c_str(), (base + ".so").c_str());
  *log = read_file(folder + "log");
  remove_all(log, folder);
  for (const std::string &rest : { name, std::string("o"), std::string("log"), std::string("so") })
    unlink((folder + rest).c_str());
  rmdir(folder.c_str());
  return good;
}

/* Returns a valid file name, whatever the program is called. */
static std::string file_name(const std::string &name)
{
  std::string out = name.substr(name.rfind('/') + 1);
  for (char &c : out)
    if (!isalnum((unsigned char)c) && !strchr("._-", c)) c = '_';
  return out.empty() ? "kernel.cu" : out;
}

Compiled compile_source(
    const std::string &source, const std::string &name, const std::vector<std::string> &options)
{
  static const std::string cxx = find_compiler(), stamp = read_file(find_home() + "/include/stamp");
  std::string run = make_command(cxx, options);
  std::string key = run + "\n" + stamp + "\n" + name + "\n" + source;
  std::string base = cache_folder() + "/" + hash_text(key);
  Compiled c = { true, read_file(base + ".so"), "" };
  if (!c.image.empty()) return c;
  c.good = run_compiler(base, file_name(name), source, run, &c.log);
  if (c.good) c.image = read_file(base + ".so");
  return c;
}

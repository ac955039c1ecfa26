/* source.cc - finds kernels and dynamic shared memory in the text of a source, comments and strings
** left out. A kernel whose head is made by a macro is found if __global__ is in the line that uses
** the macro, or if the kernel is given as a name expression. */

#include "source.h"
#include <ctype.h>
#include <string.h>

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Returns a source with blanks for comments, strings and the lines of #define; all else keeps its
** place. */
static std::string blank_comments(const std::string &s)
{
  std::string out = s;
  auto blank = [&](size_t from, size_t to) {
    for (size_t i = from; i < to && i < s.size(); i++)
      if (s[i] != '\n') out[i] = ' ';
  };
  for (size_t i = 0; i < s.size();) {
    size_t end = i + 1;
    if (!s.compare(i, 2, "/*")) {
      end = s.find("*/", i + 2);
      end = end == std::string::npos ? s.size() : end + 2;
      blank(i, end);
    } else if (!s.compare(i, 2, "//")) {
      end = s.find('\n', i);
      if (end == std::string::npos) end = s.size();
      blank(i, end);
    } else if (s[i] == '"' || (s[i] == '\'' && (!i || !is_name(s[i - 1])))) {
      while (end < s.size() && s[end] != s[i] && s[end] != '\n') end += s[end] == '\\' ? 2 : 1;
      end++;
      blank(i + 1, end - 1);
    } else if (!s.compare(i, 7, "#define")) {
      while (end < s.size() && (s[end] != '\n' || s[end - 1] == '\\')) end++;
      blank(i, end);
    }
    i = end;
  }
  return out;
}

static size_t skip_blanks(const std::string &s, size_t i)
{
  while (i < s.size() && isspace((unsigned char)s[i])) i++;
  return i;
}

/* Returns the place after the parenthesis that closes the one at i. */
static size_t skip_parentheses(const std::string &s, size_t i)
{
  int depth = 0;
  for (; i < s.size(); i++) {
    depth += s[i] == '(' ? 1 : s[i] == ')' ? -1 : 0;
    if (!depth) return i + 1;
  }
  return i;
}

static size_t find_word(const std::string &s, const char *word, size_t from)
{
  size_t n = strlen(word);
  for (size_t i = s.find(word, from); i != std::string::npos; i = s.find(word, i + 1))
    if ((!i || !is_name(s[i - 1])) && !is_name(s[i + n])) return i;
  return std::string::npos;
}

static bool is_template(const std::string &s, size_t at)
{
  size_t from = s.find_last_of(";}", at);
  size_t word = find_word(s, "template", from == std::string::npos ? 0 : from);
  return word != std::string::npos && word < at;
}

/* Reads from __global__ to the name in front of the parameters; false: a declaration without a
** body, which is no kernel. */
static bool read_head(const std::string &s, size_t at, Kernel *k)
{
  k->bounds = "1024";
  for (size_t i = skip_blanks(s, at); i < s.size(); i = skip_blanks(s, i)) {
    if (!is_name(s[i])) return false;
    size_t end = i;
    while (end < s.size() && is_name(s[end])) end++;
    k->name = s.substr(i, end - i);
    i = skip_blanks(s, end);
    if (s[i] != '(') continue;
    size_t close = skip_parentheses(s, i);
    if (k->name == "__launch_bounds__") {
      std::string inner = s.substr(i + 1, close - i - 2);
      int depth = 0;
      size_t comma = 0;
      for (; comma < inner.size() && (depth || inner[comma] != ','); comma++)
        depth += inner[comma] == '(' ? 1 : inner[comma] == ')' ? -1 : 0;
      k->bounds = inner.substr(0, comma);
    } else if (k->name != "__attribute__" && k->name != "__cluster_dims__") {
      return s[skip_blanks(s, close)] == '{';
    }
    i = close;
  }
  return false;
}

std::vector<Kernel> find_kernels(const std::string &source)
{
  std::vector<Kernel> all;
  std::string s = blank_comments(source);
  for (size_t at = find_word(s, "__global__", 0); at != std::string::npos;
       at = find_word(s, "__global__", at + 1)) {
    Kernel k;
    if (!is_template(s, at) && read_head(s, at + strlen("__global__"), &k)) all.push_back(k);
  }
  return all;
}

std::string rewrite_dynamic(const std::string &source)
{
  std::string s = blank_comments(source), out = source;
  for (size_t at = find_word(s, "extern", 0); at != std::string::npos;
       at = find_word(s, "extern", at + 1)) {
    size_t shared = skip_blanks(s, at + strlen("extern"));
    if (s.compare(shared, strlen("__shared__"), "__shared__")) continue;
    size_t type = shared + strlen("__shared__"), bracket = s.find('[', type);
    size_t end = s.find(';', type);
    if (bracket == std::string::npos || end < bracket) continue;
    size_t stop = bracket;
    while (stop > type && isspace((unsigned char)s[stop - 1])) stop--;
    size_t name = stop;
    while (name > type && is_name(s[name - 1])) name--;
    std::string words = s.substr(type, name - type);
    for (size_t a = words.find("__align__"); a != std::string::npos; a = words.find("__align__"))
      words.erase(a, skip_parentheses(words, words.find('(', a)) - a);
    std::string text = "CUDASIM_DYNAMIC(" + words + ", " + s.substr(name, stop - name) + ")";
    out.replace(at, end - at, text);
    return rewrite_dynamic(out);
  }
  return out;
}

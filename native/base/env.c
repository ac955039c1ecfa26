/* env.c - settings from the environment. */
#include <ctype.h>
#include <errno.h>
#include "base/base.h"

const char *env_text(const char *name, const char *otherwise)
{
  const char *s = getenv(name);
  return s && *s ? s : otherwise;
}

int64_t env_number(const char *name, int64_t otherwise)
{
  const char *s = env_text(name, NULL);
  if (!s) return otherwise;
  char *end;
  errno = 0;
  long long n = strtoll(s, &end, 10);
  static const char units[] = "kmgt";
  const char *unit = end != s && *end ? strchr(units, tolower((unsigned char)*end)) : NULL;
  int shift = unit ? (int)(unit - units + 1) * 10 : 0;
  int64_t most = INT64_MAX >> shift;
  if (end == s || errno || (*end && (!unit || end[1])) || n > most || n < -most) return otherwise;
  return n * (1ll << shift);
}

bool env_disabled(const char *what)
{
  const char *s = env_text("TYCHO_DISABLE", "");
  for (size_t n = strlen(what); *s; s += strcspn(s, ","), s += *s == ',') {
    s += strspn(s, " ");
    size_t word = strcspn(s, ", ");
    if (word == n && !strncmp(s, what, n)) return true;
  }
  return false;
}

/* number.c - see number.h: the C library's functions under its own locale "C". */
#include <locale.h>
#include "base/base.h"

/* Returns the locale "C"; 0 if it cannot be made: the program's own locale is used then. */
static locale_t c_locale(void)
{
  static locale_t made;
  locale_t l = __atomic_load_n(&made, __ATOMIC_ACQUIRE), none = (locale_t)0;
  if (l) return l;
  l = newlocale(LC_ALL_MASK, "C", none);
  if (l && !__atomic_compare_exchange_n(
               &made, &none, l, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    freelocale(l);
    l = none;
  }
  return l;
}

double number_read(const char *s, char **end)
{
  locale_t l = c_locale();
  return l ? strtod_l(s, end, l) : strtod(s, end);
}

int number_format(char *buffer, size_t size, const char *format, va_list args)
{
  locale_t l = c_locale(), before = l ? uselocale(l) : l;
  int n = vsnprintf(buffer, size, format, args);
  if (before) uselocale(before);
  return n;
}

int number_print(char *buffer, size_t size, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  int n = number_format(buffer, size, format, args);
  va_end(args);
  return n;
}

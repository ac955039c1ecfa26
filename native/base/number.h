/* number.h - numbers as text, with a decimal point in every locale, so that files, attributes and
** messages are the same everywhere.
*/
#pragma once
#include <stdarg.h>
#include <stddef.h>

/* Reads a number as strtod does. */
double number_read(const char *s, char **end);
/* Formats as vsnprintf and snprintf do, with a decimal point under any locale. */
int number_format(char *buffer, size_t size, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));
int number_print(char *buffer, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* number.h - numbers as text, with a point whatever locale the program has set: files, attributes
** and messages are the same everywhere.
*/
#pragma once
#include <stdarg.h>
#include <stddef.h>

double number_read(const char *s, char **end);        /* as strtod */
/* Formats as vsnprintf and snprintf do, with a decimal point under any locale. */
int number_format(char *buffer, size_t size, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));
int number_print(char *buffer, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

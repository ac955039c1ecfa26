/* error_parts.h - the parts of a failure, for error.c and failure.c. */
#pragma once

struct error_parts {
  int  code;
  char op[128], node[256], argument[128], where[256], expected[512], got[512], message[2048];
};

/* Returns this thread's failure; borrowed, and overwritten by the next `fail`. */
const struct error_parts *error_current(void);
/* Makes a copy of `parts` this thread's failure. */
void error_set(const struct error_parts *parts);

/* fibre.h - cooperative threads, each with its stack. A fibre runs until it calls fibre_switch. */
#pragma once
#include <stddef.h>

struct Fibre {
  void *sp;
  char *stack;
  Fibre *next;                                        /* in a list of its user */
};
enum { FIBRE_STACK = 128 << 10 };                     /* bytes */

/* Makes a fibre that calls `body` (which never returns) when it is first switched to. */
Fibre *fibre_new(void (*body)(void));
/* Switches to the stack `to`, where it was left, and stores where this one is in *save. */
void fibre_switch(void **save, void *to);

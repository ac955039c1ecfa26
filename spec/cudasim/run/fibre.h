/* fibre.h - stacks that hand over to each other. A fibre runs until it calls fibre_switch. */
#pragma once
#include <stddef.h>

struct Fibre {
  void *sp;
  char *stack;
  Fibre *next;                                        /* in a list of its user */
};
enum { FIBRE_STACK = 128 << 10 };

/* A fibre that calls `body` (which never returns) when it is first switched to. */
Fibre *fibre_new(void (*body)(void));
/* Goes on where the stack `to` was left; `*save` is where this one is. */
void fibre_switch(void **save, void *to);

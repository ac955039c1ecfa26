/* fibre.cc - see fibre.h. A switch pushes the registers that a call preserves, and exchanges the
** stack pointer. */
#include "fibre.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__x86_64__)
extern "C" void cudasim_switch(void **save, void *to);
__asm__(
  ".text\n.globl cudasim_switch\n.hidden cudasim_switch\n.type cudasim_switch,@function\n"
  "cudasim_switch:\n"
  "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
  "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
  "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
  ".size cudasim_switch,.-cudasim_switch\n");

/* Prepares a stack: at its entry a function finds it 8 bytes off a multiple of 16. */
static void *first_frame(char *top, void (*body)(void))
{
  void **sp = (void **)top;
  *--sp = nullptr;
  *--sp = (void *)body;
  for (int i = 0; i < 6; i++) *--sp = nullptr;
  return sp;
}
#elif defined(__aarch64__)
extern "C" void cudasim_switch(void **save, void *to);
__asm__(
  ".text\n.globl cudasim_switch\n.hidden cudasim_switch\n.type cudasim_switch,%function\n"
  "cudasim_switch:\n"
  "  sub sp, sp, #160\n"
  "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
  "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
  "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n"
  "  stp d14, d15, [sp, #144]\n"
  "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
  "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
  "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
  "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n"
  "  ldp d14, d15, [sp, #144]\n"
  "  add sp, sp, #160\n  ret\n");

static void *first_frame(char *top, void (*body)(void))
{
  void **sp = (void **)(top - 160);
  for (int i = 0; i < 20; i++) sp[i] = nullptr;
  sp[11] = (void *)body;                              /* x30, where ret goes */
  return sp;
}
#else
#error "fibres: no code for this processor; add cudasim_switch and first_frame"
#endif

void fibre_switch(void **save, void *to) { cudasim_switch(save, to); }

Fibre *fibre_new(void (*body)(void))
{
  Fibre *f = new Fibre();
  void *p = mmap(nullptr, FIBRE_STACK, PROT_READ | PROT_WRITE,
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    perror("cudasim: a stack");
    abort();
  }
  f->stack = (char *)p;
  mprotect(f->stack, 4096, PROT_NONE);
  /* different offsets of the tops keep the stacks out of the same sets of the cache */
  static unsigned n;
  f->sp = first_frame(f->stack + FIBRE_STACK - 64 - n++ % 64 * 192, body);
  return f;
}

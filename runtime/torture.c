/* torture.c - makes allocations of Lua and opening of its files fail in a build with MODE=torture
** (native/base/gate.h).
*/
#include <stdio.h>
#include <string.h>
#include "runtime.h"

#ifdef TY_TORTURE
bool ty_torture_lua(void);
FILE *ty_torture_open(const char *path, const char *mode);

/* The linker calls these for fopen and fopen64 (--wrap). */
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode) { return ty_torture_open(path, mode); }
FILE *__wrap_fopen64(const char *path, const char *mode) { return ty_torture_open(path, mode); }

static struct {
  lua_Alloc allocate;                             /* Lua's own allocator */
  void *context;
  void **top;                                     /* field of the state: end of its stack */
} lua_memory;

enum { STATE_FIELDS = 16 }; /* of the state, among which the end of its stack is looked for */

/* Returns the field of L that points to the end of its stack: the one that a push moves by a slot
** (8 bytes), after the field that points to the frame's base. NULL where there is none. */
static void **torture_find_top(lua_State *L)
{
  void *before[STATE_FIELDS], **field = (void **)L;
  memcpy(before, field, sizeof before);
  lua_pushnil(L);
  void **found = NULL;
  for (int i = 1; i < STATE_FIELDS; i++)
    if ((char *)field[i] - (char *)before[i] == 8 &&
        (char *)field[i] - (char *)field[i - 1] == 8 * lua_gettop(L))
      found = field + i;
  lua_pop(L, 1);
  return found;
}

/* Moves the end of the stack up to the base of the running function. The functions of LuaJIT that
** are in assembler and make texts (sub, lower, upper, reverse, tostring) leave it where the last C
** function of an outer frame did. LuaJIT writes the message of a failed allocation there, over a
** value of that frame, and pcall returns another value than the message. */
static void torture_mend_stack(void)
{
  void **top = lua_memory.top;
  if (top && (char *)top[0] < (char *)top[-1]) top[0] = top[-1];
}

/* Allocates for Lua, and fails on request; shrinking never fails, since Lua relies on that. */
static void *torture_allocate(void *context, void *p, size_t old, size_t bytes)
{
  if (bytes > old && ty_torture_lua()) {
    torture_mend_stack();
    return NULL;
  }
  return lua_memory.allocate(lua_memory.context, p, old, bytes);
}

void torture_memory(lua_State *L)
{
  lua_memory.top = torture_find_top(L);
  lua_memory.allocate = lua_getallocf(L, &lua_memory.context);
  lua_setallocf(L, torture_allocate, NULL);
}
#else
void torture_memory(lua_State *L) { (void)L; }
#endif

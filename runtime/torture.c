/* torture.c - makes allocations of Lua and opening of its files fail in a build with MODE=torture
** (native/base/gate.h).
*/
#include <stdio.h>
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
} lua_memory;

/* Allocates for Lua, and fails on request; shrinking never fails, since Lua relies on that. */
static void *torture_allocate(void *context, void *p, size_t old, size_t bytes)
{
  if (bytes > old && ty_torture_lua()) return NULL;
  return lua_memory.allocate(lua_memory.context, p, old, bytes);
}

void torture_memory(lua_State *L)
{
  lua_memory.allocate = lua_getallocf(L, &lua_memory.context);
  lua_setallocf(L, torture_allocate, NULL);
}
#else
void torture_memory(lua_State *L) { (void)L; }
#endif

/* torture.c - Lua's own memory and files in a build with MODE=torture: the doors of
** native/base/gate.h.
*/
#include <stdio.h>
#include "runtime.h"

#ifdef TY_TORTURE
bool ty_torture_lua(void);
FILE *ty_torture_open(const char *path, const char *mode);

/* What the linker calls for fopen (--wrap), of either name. */
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode) { return ty_torture_open(path, mode); }
FILE *__wrap_fopen64(const char *path, const char *mode) { return ty_torture_open(path, mode); }

static struct {
  lua_Alloc take;
  void *context;
} lua_memory;

/* What does not grow is never refused: Lua relies on it. */
static void *take(void *context, void *p, size_t old, size_t bytes)
{
  if (bytes > old && ty_torture_lua()) return NULL;
  return lua_memory.take(lua_memory.context, p, old, bytes);
}

void torture_memory(lua_State *L)
{
  lua_memory.take = lua_getallocf(L, &lua_memory.context);
  lua_setallocf(L, take, NULL);
}
#else
void torture_memory(lua_State *L) { (void)L; }
#endif

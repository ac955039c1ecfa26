/* torture.c - Lua's own memory in a build with MODE=torture: the door of native/base/gate.h. */
#include "runtime.h"

#ifdef TY_TORTURE
bool ty_torture_lua(void);

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

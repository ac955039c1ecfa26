/* runtime.h - what the files of the program `tycho` share.
**
** main.c reads the command line and runs scripts; repl.c edits lines for the prompt; interrupt.c
** turns Ctrl-C into an error. The prompt itself (evaluating, showing, completing) is Lua:
** runtime/lua/tycho/prompt/init.lua. Only these files know both Lua and the terminal;
** libtycho.so knows neither.
*/
#pragma once
#include <stdbool.h>
#include <lua.h>
#include <lauxlib.h>

/* A Lua module of line editing: open(history, complete), read(prompt) -> line | nil at the end |
** false on Ctrl-C, add(line), waiting() -> whether there is more input already, close(), now(). */
int repl_module(lua_State *L);

/* While on, Ctrl-C (without `stay`, SIGTERM too) stops C calls of the library and interpreted Lua
** with E(interrupted). What Lua does not reach in time (a compiled loop) ends the process with 130
** or 143, unless `stay` is set: then only a third Ctrl-C within two seconds does. */
void interrupt_watch(lua_State *L, bool stay);
void interrupt_unwatch(lua_State *L);                /* Ctrl-C ends the process again */
/* whether Ctrl-C was pressed and not yet answered; answers it */
bool interrupt_take(lua_State *L);
/* of the last one: the exit status (130, 143), and "interrupted" or "terminated" */
int  interrupt_status(void);
const char *interrupt_word(void);

/* Where MODE=torture, Lua's allocations fail on request (native/base/gate.h), as do calls for its
** files; nothing elsewhere. */
void torture_memory(lua_State *L);

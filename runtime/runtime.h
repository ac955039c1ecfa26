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

/* Pushes the Lua module of line editing:
**   open(history, complete)   begins; path of the history or nil, function of completion
**   read(prompt)              a line; nil at the end of input, false on Ctrl-C
**   key(question)             one key, nil at the end of input and on Ctrl-C
**   add(line)                 appends to the history
**   waiting()                 whether there is input that was not read
**   rows()                    rows of the terminal
**   close()                   ends
**   now()                     seconds of a clock that never goes back */
int repl_module(lua_State *L);

/* Sets up handlers: from now on Ctrl-C (without `stay`, SIGTERM too) stops C calls of the library
** and interpreted Lua with E(interrupted). A compiled loop that does not end in time ends the
** process with status 130 or 143; with `stay`, only a third Ctrl-C within two seconds does. */
void interrupt_watch(lua_State *L, bool stay);

/* Removes the handlers: Ctrl-C ends the process again. */
void interrupt_unwatch(lua_State *L);

/* Returns whether Ctrl-C was pressed since the last call, and withdraws the request to stop. */
bool interrupt_take(lua_State *L);

/* Returns the exit status for the last signal: 130 or 143. */
int interrupt_status(void);

/* Returns "interrupted" or "terminated", for the last signal. */
const char *interrupt_word(void);

/* In a build with MODE=torture, makes Lua's allocations and calls for files fail on request
** (native/base/gate.h). Does nothing in others. */
void torture_memory(lua_State *L);

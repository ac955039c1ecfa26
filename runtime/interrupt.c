/* interrupt.c - Ctrl-C in the program.
**
** The handler asks the library to stop (its calls return TY_EINTERRUPTED between two instructions) and sets a hook,
** which the interpreter reaches at its next instruction: also at the one that follows a stopped call, so one error is
** raised and the request is withdrawn with it. Compiled Lua meets no hook: a script that is still inside a compiled loop
** after GRACE seconds is ended by the alarm, without closing anything. At the prompt chunks are not compiled, and the
** alarm is not set. All that the handler calls is safe in a signal: a flag, lua_sethook, alarm, _exit.
*/
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "runtime.h"
#include "tycho.h"

enum { GRACE = 3, PATIENCE = 2, STATUS = 130 };   /* seconds; seconds for three presses; exit status */

static lua_State *state;
static bool staying;
static volatile sig_atomic_t pressed;             /* asked, and not yet answered by the hook */
static time_t presses[2];                         /* the last two */

static void raise_interrupted(lua_State *L)
{
  lua_getglobal(L, "require");
  lua_pushliteral(L, "tycho.error");
  if (lua_pcall(L, 1, 1, 0) == 0) {
    lua_getfield(L, -1, "raise");
    lua_createtable(L, 0, 2);
    lua_pushliteral(L, "interrupted");
    lua_setfield(L, -2, "code");
    lua_pushliteral(L, "interrupted");
    lua_setfield(L, -2, "message");
    lua_call(L, 1, 0);
  }
  luaL_error(L, "interrupted");
}

bool interrupt_take(lua_State *L)
{
  bool asked = pressed != 0;
  lua_sethook(L, NULL, 0, 0);
  alarm(0);
  pressed = 0;
  presses[0] = presses[1] = 0;                    /* only presses without an answer count */
  if (asked) ty_interrupt(0);
  return asked;
}

static void stop(lua_State *L, lua_Debug *unused)
{
  (void)unused;
  if (interrupt_take(L)) raise_interrupted(L);
}

static void too_late(int signal)
{
  static const char text[] = "tycho: interrupted\n";
  (void)signal;
  ssize_t unused = write(STDERR_FILENO, text, sizeof text - 1);
  (void)unused;
  _exit(STATUS);
}

static void on_interrupt(int signal)
{
  (void)signal;
  time_t now = time(NULL);
  if (staying && now - presses[0] <= PATIENCE) too_late(SIGALRM);
  presses[0] = presses[1];
  presses[1] = now;
  pressed = 1;
  ty_interrupt(1);
  lua_sethook(state, stop, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
  if (!staying) alarm(GRACE);
}

static void handle(int number, void (*handler)(int))
{
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;                    /* without SA_RESTART: a read returns and the hook runs */
  sigaction(number, &action, NULL);
}

void interrupt_unwatch(lua_State *L)
{
  handle(SIGINT, SIG_DFL);
  handle(SIGALRM, SIG_DFL);
  interrupt_take(L);
}

void interrupt_watch(lua_State *L, bool stay)
{
  state = L;
  staying = stay;
  presses[0] = presses[1] = 0;
  handle(SIGALRM, too_late);
  handle(SIGINT, on_interrupt);
}

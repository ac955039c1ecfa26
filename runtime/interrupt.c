/* interrupt.c - Ctrl-C in the program, and SIGTERM in a script, which stops it in the same way.
**
** The handler asks the library to stop (its calls return TY_EINTERRUPTED between two instructions,
** or two pieces of a long one) and sets a hook, which the interpreter reaches at its next
** instruction: also at the one that follows a stopped call, so one error is raised and the request
** is withdrawn with it. Compiled Lua meets no hook: a script that is still inside a compiled loop
** after GRACE seconds is ended by the alarm, without closing anything. At the prompt chunks are
** not compiled, and the alarm is not set. All that the handler calls is safe in a signal: a clock,
** a flag, lua_sethook, alarm, _exit.
**
** One press may come twice: a terminal tells the whole group, and a parent such as `timeout` or
** `make` passes on what it was told. What follows a press within TWICE belongs to it, answered
** or not. At the prompt every key counts.
*/
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "runtime.h"
#include "tycho.h"

/* s; ms for three presses; ms in which two signals are one press */
enum { GRACE = 3, PATIENCE = 2000, TWICE = 100 };

static lua_State *state;
static pthread_t owner;                           /* the thread that runs Lua */
static bool staying;
static volatile sig_atomic_t last_signal = SIGINT;
static volatile sig_atomic_t pressed;             /* asked, and not yet answered by the hook */
static int64_t presses[2];                        /* the last two without an answer, 0: none; ms */
static int64_t last_press;                        /* ms */

int interrupt_status(void) { return 128 + last_signal; }

const char *interrupt_word(void)
{
  return last_signal == SIGTERM ? "terminated" : "interrupted";
}

static void raise_interrupted(lua_State *L)
{
  lua_getglobal(L, "require");
  lua_pushliteral(L, "tycho.core.error");
  if (lua_pcall(L, 1, 1, 0) == 0) {
    lua_getfield(L, -1, "raise");
    lua_createtable(L, 0, 2);
    lua_pushliteral(L, "interrupted");
    lua_setfield(L, -2, "code");
    lua_pushstring(L, interrupt_word());
    lua_setfield(L, -2, "message");
    lua_call(L, 1, 0);
  }
  lua_pushstring(L, interrupt_word()); /* the modules are not there yet */
  lua_error(L);
}

bool interrupt_take(lua_State *L)
{
  bool asked = pressed != 0;
  lua_sethook(L, NULL, 0, 0);
  alarm(0);
  pressed = 0;
  presses[0] = presses[1] = 0;
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
  static const char interrupted[] = "tycho: interrupted\n", terminated[] = "tycho: terminated\n";
  (void)signal;
  ssize_t unused = last_signal == SIGTERM
      ? write(STDERR_FILENO, terminated, sizeof terminated - 1)
      : write(STDERR_FILENO, interrupted, sizeof interrupted - 1);
  (void)unused;
  _exit(interrupt_status());
}

static int64_t milliseconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A signal comes to any thread, a library's too: the one that runs Lua answers. */
static void on_interrupt(int signal)
{
  if (!pthread_equal(pthread_self(), owner)) {
    pthread_kill(owner, signal);
    return;
  }
  last_signal = signal;
  int64_t now = milliseconds();
  if (!staying && now - last_press < TWICE) return;
  last_press = now;
  if (staying && presses[0] && now - presses[0] <= PATIENCE) too_late(SIGALRM);
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
  action.sa_handler = handler; /* without SA_RESTART: a read returns and the hook runs */
  sigaction(number, &action, NULL);
}

void interrupt_unwatch(lua_State *L)
{
  handle(SIGINT, SIG_DFL);
  handle(SIGTERM, SIG_DFL);
  handle(SIGALRM, SIG_DFL);
  interrupt_take(L);
}

void interrupt_watch(lua_State *L, bool stay)
{
  state = L;
  owner = pthread_self();
  staying = stay;
  presses[0] = presses[1] = 0;
  handle(SIGALRM, too_late);
  handle(SIGINT, on_interrupt);
  handle(SIGTERM, stay ? SIG_DFL : on_interrupt);
}

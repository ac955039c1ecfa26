/* interrupt.c - Ctrl-C in the program, and SIGTERM in a script, which stops it in the same way.
**
** The handler asks the library to stop (its calls return TY_EINTERRUPTED between two instructions,
** or two parts of a long one) and sets a hook, which the interpreter calls at its next instruction.
** After a stopped call that is the instruction that follows, so one error is raised, and the hook
** withdraws the request. Compiled Lua calls no hook: a script that is still inside a compiled loop
** after GRACE_S seconds is ended by the alarm, without closing anything. At the prompt chunks are
** not compiled, and the alarm is not set. All that the handler calls is safe in a signal: a clock,
** a flag, lua_sethook, alarm, _exit.
**
** One press may arrive as two signals: a terminal sends one to the whole process group, and a
** parent such as `timeout` or `make` forwards its own. Signals within SAME_PRESS_MS are one press,
** whether it was handled or not. At the prompt every signal counts.
*/
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "runtime.h"
#include "tycho.h"

enum {
  GRACE_S = 3,                                    /* until a compiled loop is ended */
  THREE_PRESSES_MS = 2000,                        /* within which a third press ends the prompt */
  SAME_PRESS_MS = 100,                            /* within which two signals are one press */
};

static lua_State *state;
static pthread_t owner;                           /* the thread that runs Lua */
static bool staying;                              /* interrupt_watch was called with `stay` */
static volatile sig_atomic_t last_signal = SIGINT;
static volatile sig_atomic_t pressed;             /* set by the handler, cleared by the hook */
static int64_t presses[2];                        /* ms; the last two not handled, 0: none */
static int64_t last_press;                        /* ms */

int interrupt_status(void) { return 128 + last_signal; }

const char *interrupt_word(void)
{
  return last_signal == SIGTERM ? "terminated" : "interrupted";
}

/* Raises E(interrupted), or its text where the modules cannot be loaded. */
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
  lua_pushstring(L, interrupt_word());
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

/* The hook: raises an error if a press is not handled yet. */
static void stop_hook(lua_State *L, lua_Debug *unused)
{
  (void)unused;
  if (interrupt_take(L)) raise_interrupted(L);
}

/* Ends the process. Handles SIGALRM. */
static void end_process(int signal)
{
  static const char interrupted[] = "tycho: interrupted\n", terminated[] = "tycho: terminated\n";
  (void)signal;
  ssize_t unused = last_signal == SIGTERM
      ? write(STDERR_FILENO, terminated, sizeof terminated - 1)
      : write(STDERR_FILENO, interrupted, sizeof interrupted - 1);
  (void)unused;
  _exit(interrupt_status());
}

/* Returns ms of a clock that never goes back. */
static int64_t clock_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Handles SIGINT and SIGTERM. A signal may arrive in any thread, also one of a library; it is
** passed on to the one that runs Lua. */
static void on_interrupt(int signal)
{
  if (!pthread_equal(pthread_self(), owner)) {
    pthread_kill(owner, signal);
    return;
  }
  last_signal = signal;
  int64_t now = clock_ms();
  if (!staying && now - last_press < SAME_PRESS_MS) return;
  last_press = now;
  if (staying && presses[0] && now - presses[0] <= THREE_PRESSES_MS) end_process(SIGALRM);
  presses[0] = presses[1];
  presses[1] = now;
  pressed = 1;
  ty_interrupt(1);
  lua_sethook(state, stop_hook, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
  if (!staying) alarm(GRACE_S);
}

static void set_handler(int number, void (*handler)(int))
{
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler; /* without SA_RESTART: a read returns and the hook runs */
  sigaction(number, &action, NULL);
}

void interrupt_unwatch(lua_State *L)
{
  set_handler(SIGINT, SIG_DFL);
  set_handler(SIGTERM, SIG_DFL);
  set_handler(SIGALRM, SIG_DFL);
  interrupt_take(L);
}

void interrupt_watch(lua_State *L, bool stay)
{
  state = L;
  owner = pthread_self();
  staying = stay;
  presses[0] = presses[1] = 0;
  set_handler(SIGALRM, end_process);
  set_handler(SIGINT, on_interrupt);
  set_handler(SIGTERM, stay ? SIG_DFL : on_interrupt);
}

/* repl.c - line editing for the prompt, with libedit.
**
** A Lua module (repl_module in runtime.h). Keys are read here, so that Ctrl-C leaves the line at
** once and a UTF-8 character arrives whole. Tab calls the Lua function given to `open`: it gets the
** text before the cursor and returns the length of the word to complete and the list of its
** completions. At the start of a line, and in pasted text, Tab indents. Up and Down find earlier
** lines that begin like this one.
*/
#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>
#include "runtime.h"

enum {
  HISTORY_LINES = 2000,
  MOST_CANDIDATES = 120,                          /* listed by one Tab */
  MARK = 1,                                       /* around characters without width in a prompt */
  END_KEY = 4,                                    /* Ctrl-D */
};

static struct {
  EditLine *edit;
  History *history;
  lua_State *L;
  int complete;                                   /* reference of the Lua function */
  char *path;                                     /* of the history; NULL: not saved */
  char prompt[64];
  bool cut;                                       /* the line was left by Ctrl-C */
  bool ahead;                                     /* there are keys typed before the prompt */
} repl;

/* Returns the prompt, for libedit. */
static char *show_prompt(EditLine *unused)
{
  (void)unused;
  return repl.prompt;
}

/* Copies a prompt, with marks around sequences of colour. */
static void set_prompt(const char *text)
{
  size_t n = 0;
  bool hidden = false;
  for (; *text && n + 3 < sizeof repl.prompt; text++) {
    if (*text == '\33') repl.prompt[n++] = MARK, hidden = true;
    repl.prompt[n++] = *text;
    if (hidden && *text == 'm') repl.prompt[n++] = MARK, hidden = false;
  }
  repl.prompt[n] = 0;
}

static int terminal_width(void)
{
  struct winsize size;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* Returns whether there is input that was not read. */
static bool has_input(void)
{
  struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
  return poll(&input, 1, 0) > 0;
}

/* -- keys -------------------------------------------------------------------------------------- */

static volatile sig_atomic_t continued;             /* SIGCONT came, after Ctrl-Z */

static void on_continue(int unused)
{
  (void)unused;
  continued = 1;
}

/* Shows the line again after Ctrl-Z. */
static void show_again(void)
{
  continued = 0;
  el_set(repl.edit, EL_PREP_TERM, 1);
  el_set(repl.edit, EL_REFRESH);
}

static volatile sig_atomic_t resized;

static void on_resize(int unused)
{
  (void)unused;
  resized = 1;
}

/* Turns the handler of a change of the terminal's size on or off. It is on only while a line is
** read: elsewhere it would end a read or a wait. */
static void watch_size(bool on)
{
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on ? on_resize : SIG_DFL; /* without SA_RESTART: read_key notices */
  sigaction(SIGWINCH, &action, NULL);
}

/* Room that a text takes on a terminal. */
struct extent {
  int rows;                                       /* of the lines before the last one */
  int columns;                                    /* of the last line, which may wrap */
};

/* Adds n bytes of text to an extent; characters between marks have no width. */
static void extent_add(struct extent *e, const char *text, size_t n, int width)
{
  enum { TAB = 8, CARET = 2 }; /* columns of ^A and its like */
  mbstate_t shift;
  memset(&shift, 0, sizeof shift);
  for (bool hidden = false; n > 0;) {
    wchar_t c;
    size_t used = mbrtowc(&c, text, n, &shift);
    if (used == 0 || used > n) break;
    if (c == MARK)
      hidden = !hidden;
    else if (c == '\n' && !hidden)
      *e = (struct extent){ e->rows + e->columns / width + 1, 0 };
    else if (!hidden)
      e->columns += c == '\t' ? TAB - e->columns % TAB : wcwidth(c) < 0 ? CARET : wcwidth(c);
    text += used;
    n -= used;
  }
}

/* Shows the line again after a change of the terminal's width, from its first row. Terminals wrap
** what they show again, so the rows above the cursor are those of the new width. */
static void show_resized(void)
{
  const LineInfo *line = el_line(repl.edit);
  const char *up = NULL, *clear = NULL;
  struct extent e = { 0, 0 };
  const int width = terminal_width();
  extent_add(&e, repl.prompt, strlen(repl.prompt), width);
  extent_add(&e, line->buffer, (size_t)(line->cursor - line->buffer), width);
  resized = 0;
  el_get(repl.edit, EL_GETTC, "up", &up);
  el_get(repl.edit, EL_GETTC, "cd", &clear);
  for (int row = e.rows + e.columns / width; up && row > 0; row--) fputs(up, stdout);
  putchar('\r');
  if (clear) fputs(clear, stdout);
  el_resize(repl.edit);
  el_set(repl.edit, EL_REFRESH);
  fflush(stdout);
}

/* Reads a key, for libedit. Returns 1, 0 at the end of input, -1 on Ctrl-C and errors. A zero among
** the keys that were typed before the prompt is a Ctrl-D: terminals keep it so. */
static int read_key(EditLine *unused, wchar_t *out)
{
  (void)unused;
  mbstate_t shift;
  bool partial = false; /* the bytes so far begin a character */
  memset(&shift, 0, sizeof shift);
  for (;;) {
    char byte;
    ssize_t n = -1;
    repl.ahead = repl.ahead && has_input();
    repl.cut = interrupt_take(repl.L);
    if (!repl.cut) n = read(STDIN_FILENO, &byte, 1);
    if (n == 0) return 0;
    if (n < 0 && (repl.cut || errno != EINTR)) return -1;
    if (n < 0) {
      if (continued) show_again();
      if (resized) show_resized();
      continue;
    }
    if (!byte && repl.ahead) byte = END_KEY;
    size_t used = mbrtowc(out, &byte, 1, &shift);
    if (used == (size_t)-1 && partial) { /* the character is incomplete; this byte may begin one */
      memset(&shift, 0, sizeof shift);
      used = mbrtowc(out, &byte, 1, &shift);
    }
    partial = used == (size_t)-2;
    if (used == (size_t)-1)
      memset(&shift, 0, sizeof shift); /* not UTF-8: dropped */
    else if (!partial)
      return 1;
  }
}

/* -- completion: these leave the stack as it was ----------------------------------------------- */

/* Returns entry i of a list of candidates, which keeps it alive. */
static const char *get_candidate(lua_State *L, int list, int i)
{
  lua_rawgeti(L, list, i);
  const char *text = lua_tostring(L, -1);
  lua_pop(L, 1);
  return text;
}

/* Returns the length of the prefix that all candidates share. */
static size_t common_length(lua_State *L, int list, int n)
{
  const char *first = get_candidate(L, list, 1);
  size_t length = strlen(first);
  for (int i = 2; i <= n; i++) {
    const char *other = get_candidate(L, list, i);
    size_t k = 0;
    while (k < length && first[k] == other[k]) k++;
    length = k;
  }
  return length;
}

/* Lists candidates in columns as wide as the longest one, column by column. */
static void list_candidates(lua_State *L, int list, int n)
{
  int widest = 0, shown = n < MOST_CANDIDATES ? n : MOST_CANDIDATES;
  for (int i = 1; i <= shown; i++) {
    int length = (int)strlen(get_candidate(L, list, i));
    if (length > widest) widest = length;
  }
  int columns = terminal_width() / (widest + 2);
  if (columns < 1) columns = 1;
  int rows = (shown + columns - 1) / columns;
  for (int row = 0; row < rows; row++) {
    putchar('\n');
    for (int i = row; i < shown; i += rows)
      printf("%-*s", i + rows < shown ? widest + 2 : 0, get_candidate(L, list, i + 1));
  }
  if (n > shown) printf("\n... %d in all", n);
  putchar('\n');
  fflush(stdout);
}

/* Returns whether Tab indents: after nothing but spaces, and in pasted text. */
static bool tab_indents(const LineInfo *line)
{
  if (has_input()) return true;
  for (const char *p = line->buffer; p < line->cursor; p++)
    if (*p != ' ') return false;
  return true;
}

/* Completes the word before the cursor, or lists its completions; bound to Tab. */
static unsigned char complete_word(EditLine *edit, int unused)
{
  (void)unused;
  lua_State *L = repl.L;
  const LineInfo *line = el_line(edit);
  if (tab_indents(line)) return el_insertstr(edit, "  ") == 0 ? CC_REFRESH : CC_ERROR;
  int top = lua_gettop(L);
  unsigned char result = CC_ERROR;
  lua_rawgeti(L, LUA_REGISTRYINDEX, repl.complete);
  lua_pushlstring(L, line->buffer, (size_t)(line->cursor - line->buffer));
  if (lua_pcall(L, 1, 2, 0) == 0 && lua_istable(L, -1)) {
    int list = lua_gettop(L), n = (int)lua_objlen(L, list);
    size_t have = (size_t)lua_tointeger(L, list - 1),
           length = n > 0 ? common_length(L, list, n) : 0;
    if (length > have) {
      lua_pushlstring(L, get_candidate(L, list, 1) + have, length - have);
      result = el_insertstr(edit, lua_tostring(L, -1)) == 0 ? CC_REFRESH : CC_ERROR;
    }
    else if (n > 1) {
      list_candidates(L, list, n);
      result = CC_REDISPLAY;
    }
  }
  lua_settop(L, top);
  return result;
}

/* -- the module -------------------------------------------------------------------------------- */

static int open_editor(lua_State *L)
{
  const char *path = luaL_optstring(L, 1, NULL);
  luaL_checktype(L, 2, LUA_TFUNCTION);
  HistEvent event;
  repl.edit = el_init("tycho", stdin, stdout, stderr);
  repl.history = history_init();
  if (!repl.edit || !repl.history) return luaL_error(L, "no line editing on this terminal");
  repl.L = L;
  repl.path = path ? strdup(path) : NULL;
  lua_pushvalue(L, 2);
  repl.complete = luaL_ref(L, LUA_REGISTRYINDEX);
  history(repl.history, &event, H_SETSIZE, HISTORY_LINES);
  history(repl.history, &event, H_SETUNIQUE, 1);
  if (path) history(repl.history, &event, H_LOAD, path);
  el_set(repl.edit, EL_EDITOR, "emacs");
  el_set(repl.edit, EL_PROMPT_ESC, show_prompt, MARK);
  el_set(repl.edit, EL_GETCFN, read_key);
  el_set(repl.edit, EL_HIST, history, repl.history);
  el_set(repl.edit, EL_ADDFN, "ty-complete", "complete a name", complete_word);
  el_set(repl.edit, EL_BIND, "^I", "ty-complete", NULL);
  static const char *const keys[][2] = {
    { "^R", "em-inc-search-prev" },
    { "\\e[A", "ed-search-prev-history" },
    { "\\e[B", "ed-search-next-history" },
    { "\\eOA", "ed-search-prev-history" },
    { "\\eOB", "ed-search-next-history" },
    { "\\e[1;5C", "em-next-word" },
    { "\\e[1;5D", "ed-prev-word" },
    { "\\e[3~", "ed-delete-next-char" },
    { "\\e[H", "ed-move-to-beg" },
    { "\\e[F", "ed-move-to-end" },
  };
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    el_set(repl.edit, EL_BIND, keys[i][0], keys[i][1], NULL);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_continue; /* without SA_RESTART: read_key notices */
  sigaction(SIGCONT, &action, NULL);
  el_source(repl.edit, NULL);
  return 0;
}

static int read_line(lua_State *L)
{
  int n = 0;
  set_prompt(luaL_checkstring(L, 1));
  repl.cut = false;
  repl.ahead = true;
  watch_size(true);
  el_resize(repl.edit);
  const char *line = el_gets(repl.edit, &n);
  watch_size(false);
  if (repl.cut) {
    el_reset(repl.edit);
    puts("^C");
    lua_pushboolean(L, 0);
  }
  else if (!line || n <= 0) {
    lua_pushnil(L);
  }
  else {
    lua_pushlstring(L, line, (size_t)n - (line[n - 1] == '\n'));
  }
  return 1;
}

/* Shows a question, reads one key and clears the question again. */
static int read_one_key(lua_State *L)
{
  struct termios usual, raw;
  char key = 0;
  ssize_t n = -1;
  bool cut = false, known = tcgetattr(STDIN_FILENO, &usual) == 0;
  fputs(luaL_checkstring(L, 1), stdout);
  fflush(stdout);
  if (known) {
    raw = usual;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  while (!cut && n < 0) {
    n = read(STDIN_FILENO, &key, 1);
    if (n < 0 && errno != EINTR) break;
    cut = interrupt_take(L);
  }
  if (known) tcsetattr(STDIN_FILENO, TCSADRAIN, &usual);
  fputs("\r\33[K", stdout);
  if (cut || n <= 0 || key == END_KEY)
    lua_pushnil(L);
  else
    lua_pushlstring(L, &key, 1);
  return 1;
}

/* Appends a line to the history and saves it at once, so that a crash of the next evaluation loses
** nothing. */
static int add_line(lua_State *L)
{
  HistEvent event;
  history(repl.history, &event, H_ENTER, luaL_checkstring(L, 1));
  if (repl.path) history(repl.history, &event, H_SAVE, repl.path);
  return 0;
}

static int get_waiting(lua_State *L)
{
  lua_pushboolean(L, has_input());
  return 1;
}

static int get_rows(lua_State *L)
{
  struct winsize size;
  bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1;
  lua_pushinteger(L, known ? size.ws_row : 24);
  return 1;
}

static int close_editor(lua_State *L)
{
  (void)L;
  if (repl.edit) el_end(repl.edit);
  if (repl.history) history_end(repl.history);
  free(repl.path);
  memset(&repl, 0, sizeof repl);
  return 0;
}

static int get_time(lua_State *L)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  lua_pushnumber(L, (double)t.tv_sec + 1e-9 * (double)t.tv_nsec);
  return 1;
}

int repl_module(lua_State *L)
{
  static const luaL_Reg functions[] = {
    { "open", open_editor },
    { "read", read_line },
    { "key", read_one_key },
    { "add", add_line },
    { "waiting", get_waiting },
    { "rows", get_rows },
    { "close", close_editor },
    { "now", get_time },
    { NULL, NULL },
  };
  lua_newtable(L);
  luaL_register(L, NULL, functions);
  return 1;
}

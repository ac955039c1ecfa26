/* main.c - the program `tycho`: LuaJIT linked with the engine.
**
** Reads the command line, adds the Lua modules of its own tree to Lua's path, then runs texts, a
** script or the prompt in one protected call. The tree is found from the program's path, links
** resolved: a build folder has a link `lua`, an installed tree has share/lua/5.1 and lib/lua/5.1
** beside bin. An uncaught error is written to standard error with the frames of the caller's code
** only. Exit status: 0 done, 1 uncaught error, 2 wrong usage, 130 interrupted, 143 terminated
** (SIGTERM).
*/
#include <dlfcn.h>
#include <limits.h>
#include <locale.h>
#include <luajit.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "runtime.h"
#include "tycho.h"

enum { DONE = 0, FAILED = 1, USAGE = 2, INTERRUPTED = 130 };
enum { MOST_FRAMES = 24 };                        /* of a traceback */

static const char help[] =
  "usage: tycho [options] [script [arguments]]\n"
  "  -e code     run the text; an expression is printed (may be repeated)\n"
  "  -i          prompt after the script\n"
  "  -l module   require the module first; at the prompt its name holds it\n"
  "  -           script from standard input\n"
  "  --script NAME       runs a script that comes with Tycho; alone: lists them\n"
  "  --strict    reading or writing an undeclared global is an error; at the\n"
  "              prompt, writing declares it\n"
  "  --plain     prompt without line editing and colours\n"
  "  --version   version of program and interface\n"
  "  --platform  what was found: processor, libraries, devices\n"
  "  --inspect FILE      what a file of a model or of arrays holds\n"
  "  --convert IN OUT    writes it in the format of OUT's ending\n"
  "  --run MODEL         runs a network: --input x.npy --output y.npy\n"
  "  --top [PID]         what a training does that runs with TYCHO_TOP=1\n"
  "  --help      this list\n"
  "Without script: a prompt on a terminal, else a script from standard input.\n";

struct options {
  int script;                                     /* index in argv; 0: none */
  int command;                                    /* index in argv of --run and its like; 0: none */
  bool named;                                     /* --script: argv[script] is a script's name */
  bool texts;                                     /* there is a -e */
  bool prompt, strict, plain;
};

static struct {
  int argc;
  char **argv;
  struct options options;
  char lua[PATH_MAX];                             /* folder of the Lua modules */
  int status;
} program;

/* -- errors ------------------------------------------------------------------------------------ */

/* Returns whether an error is the one that the handler of Ctrl-C raises. */
static bool is_interrupt(lua_State *L, int error)
{
  if (lua_type(L, error) == LUA_TSTRING && !strcmp(lua_tostring(L, error), interrupt_word()))
    return true;
  if (!lua_istable(L, error)) return false;
  lua_pushliteral(L, "code");
  lua_rawget(L, error);
  const char *code = lua_tostring(L, -1);
  bool is = code && strcmp(code, "interrupted") == 0;
  lua_pop(L, 1);
  return is;
}

/* Pushes the text of an error: its report, its own conversion, or the string that it is. */
static void push_text(lua_State *L, int error)
{
  if (luaL_callmeta(L, error, "report") && lua_isstring(L, -1)) return;
  if (luaL_callmeta(L, error, "__tostring") && lua_isstring(L, -1)) return;
  if (lua_isstring(L, error))
    lua_pushvalue(L, error);
  else
    lua_pushfstring(L, "error object is a %s", luaL_typename(L, error));
}

/* Returns whether a frame belongs to a C function or to the library: a traceback leaves these
** out. */
static bool is_ours(const lua_Debug *frame)
{
  size_t n = strlen(program.lua);
  return *frame->what == 'C' ||
      (n && frame->source[0] == '@' && strncmp(frame->source + 1, program.lua, n) == 0);
}

/* Finds the first frame of the caller's code from a level on. Returns the level after it, 0 if
** there is none. */
static int next_frame(lua_State *L, int level, lua_Debug *frame)
{
  for (; lua_getstack(L, level, frame); level++) {
    lua_getinfo(L, "Snl", frame);
    if (!is_ours(frame)) return level + 1;
  }
  return 0;
}

/* Adds a line of a traceback. */
static void add_frame(luaL_Buffer *text, lua_State *L, lua_Debug *frame)
{
  lua_pushfstring(L, "\n\t%s:%d: in ", frame->short_src, frame->currentline);
  if (*frame->what == 'm')
    lua_pushliteral(L, "main chunk");
  else if (*frame->namewhat)
    lua_pushfstring(L, "function '%s'", frame->name);
  else
    lua_pushfstring(L, "function <%s:%d>", frame->short_src, frame->linedefined);
  lua_concat(L, 2);
  luaL_addvalue(text);
}

/* Adds the frames of the caller's code, if there are several: a single one is the line with which
** the message begins. */
static void add_traceback(luaL_Buffer *text, lua_State *L)
{
  lua_Debug frame;
  int level = next_frame(L, 1, &frame);
  if (!level || !next_frame(L, level, &frame)) return;
  luaL_addstring(text, "\nstack traceback:");
  level = 1;
  for (int shown = 0; (level = next_frame(L, level, &frame)) != 0; shown++) {
    if (shown == MOST_FRAMES) {
      luaL_addstring(text, "\n\t...");
      return;
    }
    add_frame(text, L, &frame);
  }
}

/* Returns the message, without its position, of an error that Lua itself raised inside the library,
** as it does where a method is called without its object. Returns NULL for other errors. */
static const char *find_inside(lua_State *L, int error)
{
  lua_Debug frame;
  int level = 1;
  if (lua_type(L, error) != LUA_TSTRING) return NULL;
  do {
    if (!lua_getstack(L, level++, &frame)) return NULL;
    lua_getinfo(L, "Sl", &frame);
  } while (*frame.what == 'C');
  if (!is_ours(&frame)) return NULL;
  const char *text = lua_tostring(L, error);
  const char *where = lua_pushfstring(L, "%s:%d: ", frame.short_src, frame.currentline);
  size_t n = strlen(where);
  bool here = strncmp(text, where, n) == 0;
  lua_pop(L, 1);
  return here ? text + n : NULL;
}

/* Adds such a message with the position in the caller's code, and a hint. */
static void add_inside(luaL_Buffer *text, lua_State *L, const char *message)
{
  lua_Debug frame;
  if (next_frame(L, 1, &frame)) {
    lua_pushfstring(L, "%s:%d: ", frame.short_src, frame.currentline);
    luaL_addvalue(text);
  }
  luaL_addstring(text, message);
  luaL_addstring(text, "\n  (inside the library; methods take a colon: x:copy(), not x.copy())");
}

/* Returns the hint for an error of Lua's own that names of other languages cause
** (tycho.prompt.translation), NULL if there is none. The text stays on the stack. */
static const char *find_hint(lua_State *L, int error)
{
  const char *message = lua_type(L, error) == LUA_TSTRING ? lua_tostring(L, error) : "";
  if (!strstr(message, ": attempt to ") && !strstr(message, ": bad argument #")
      && !strstr(message, " near '"))
    return NULL;
  lua_getglobal(L, "require");
  lua_pushliteral(L, "tycho.prompt.translation");
  if (lua_pcall(L, 1, 1, 0) != 0) return NULL;
  lua_getfield(L, -1, "hint");
  lua_pushvalue(L, error);
  return lua_pcall(L, 1, 1, 0) == 0 ? lua_tostring(L, -1) : NULL;
}

/* The message handler: returns the error's text with the frames of the caller's code. */
static int explain_error(lua_State *L)
{
  luaL_Buffer text;
  const char *inside = find_inside(L, 1);
  const char *hint = inside ? NULL : find_hint(L, 1);
  if (is_interrupt(L, 1)) program.status = INTERRUPTED;
  push_text(L, 1);
  const char *message = lua_tostring(L, -1);
  luaL_buffinit(L, &text);
  if (inside)
    add_inside(&text, L, inside);
  else
    luaL_addstring(&text, message);
  if (hint) {
    luaL_addstring(&text, "\n  (");
    luaL_addstring(&text, hint);
    luaL_addstring(&text, ")");
  }
  if (program.status != INTERRUPTED) add_traceback(&text, L);
  luaL_pushresult(&text);
  return 1;
}

/* Writes the error on top of the stack to standard error. Returns the exit status. */
static int report_error(lua_State *L)
{
  fflush(stdout);
  if (program.status == INTERRUPTED)
    fprintf(stderr, "tycho: %s\n", interrupt_word());
  else
    fprintf(stderr, "tycho: %s\n", lua_tostring(L, -1));
  return program.status == INTERRUPTED ? interrupt_status() : FAILED;
}

/* -- the tree ---------------------------------------------------------------------------------- */

/* Returns whether a folder has the Lua modules. */
static bool holds_modules(const char *folder)
{
  char path[PATH_MAX];
  int n = snprintf(path, sizeof path, "%s/tycho/init.lua", folder);
  return n > 0 && (size_t)n < sizeof path && access(path, R_OK) == 0;
}

/* Sets program.lua to the folder of the modules, or to "" if the program is in no tree: Lua's own
** path decides then. */
static void find_tree(void)
{
  static const char *const folders[] = { "lua", "../share/lua/5.1", "../runtime/lua" };
  char self[PATH_MAX], path[PATH_MAX + 32];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) return;
  self[n] = 0;
  *strrchr(self, '/') = 0;
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    snprintf(path, sizeof path, "%s/%s", self, folders[i]);
    if (holds_modules(path) && realpath(path, program.lua)) return;
  }
  *program.lua = 0;
}

/* Puts templates before a field of `package`; `format` takes the folder of the modules twice. */
static void prepend_path(lua_State *L, const char *field, const char *format)
{
  lua_getglobal(L, "package");
  lua_getfield(L, -1, field);
  lua_pushfstring(L, format, program.lua, program.lua);
  lua_pushvalue(L, -2);
  lua_concat(L, 2);
  lua_setfield(L, -3, field);
  lua_pop(L, 2);
}

/* Sets TYCHO_LIB to the library that this program is linked with, so that Lua loads no other
** copy. */
static void name_library(void)
{
  Dl_info info;
  char path[PATH_MAX];
  if (!dladdr((void *)(size_t)&ty_abi, &info) || !info.dli_fname || !realpath(info.dli_fname, path))
    return;
  setenv("TYCHO_LIB", path, 0);
}

static void set_paths(lua_State *L)
{
  find_tree();
  name_library();
  if (*program.lua) prepend_path(L, "path", "%s/?.lua;%s/?/init.lua;");
}

/* -- what can be run: errors are raised -------------------------------------------------------- */

/* Pushes a module. */
static void require_module(lua_State *L, const char *module)
{
  lua_getglobal(L, "require");
  lua_pushstring(L, module);
  lua_call(L, 1, 1);
}

/* Pushes the session object of the prompt, which is made at the first call. */
static void push_session(lua_State *L)
{
  lua_getfield(L, LUA_REGISTRYINDEX, "tycho.session");
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  require_module(L, "tycho.prompt");
  lua_getfield(L, -1, "new");
  lua_createtable(L, 0, 4);
  lua_pushboolean(L, program.options.plain);
  lua_setfield(L, -2, "plain");
  lua_pushboolean(L, program.options.strict);
  lua_setfield(L, -2, "strict");
  lua_pushboolean(L, isatty(STDIN_FILENO) && isatty(STDOUT_FILENO));
  lua_setfield(L, -2, "terminal");
  repl_module(L);
  lua_setfield(L, -2, "editor");
  lua_call(L, 1, 1);
  lua_remove(L, -2);
  lua_pushvalue(L, -1);
  lua_setfield(L, LUA_REGISTRYINDEX, "tycho.session");
}

/* Calls a method of the session; argument NULL: nil. */
static void call_session(lua_State *L, const char *method, const char *argument)
{
  push_session(L);
  lua_getfield(L, -1, method);
  lua_insert(L, -2);
  lua_pushstring(L, argument);
  lua_call(L, 2, 0);
}

/* Sets the global `arg`, as `luajit` does: the script at 0. */
static void set_arg(lua_State *L)
{
  int first = program.options.script;
  lua_newtable(L);
  for (int i = 0; i < program.argc; i++) {
    lua_pushstring(L, program.argv[i]);
    lua_rawseti(L, -2, i - first);
  }
  lua_setglobal(L, "arg");
}

/* Runs a file with the arguments after it; NULL or "-": standard input, NULL without arguments. */
static void run_script(lua_State *L, const char *path)
{
  int n = program.argc - program.options.script - 1;
  bool input = !path || strcmp(path, "-") == 0;
  if (luaL_loadfile(L, input ? NULL : path) != 0) lua_error(L);
  if (!path) n = 0;
  luaL_checkstack(L, n, "too many arguments");
  for (int i = 0; i < n; i++) lua_pushstring(L, program.argv[program.options.script + 1 + i]);
  lua_call(L, n, 0);
}

/* Runs the script of the command line; a lua_CFunction. */
static int protected_script(lua_State *L)
{
  run_script(L, program.argv[program.options.script]);
  return 0;
}

/* Runs the command argv[at] with the words after it. Its result is the exit status. */
static void run_command(lua_State *L, int at)
{
  bool watches = strcmp(program.argv[at], "--top") == 0;
  require_module(L, watches ? "tycho.module.top" : "tycho.models.command");
  lua_getfield(L, -1, "main");
  luaL_checkstack(L, program.argc - at, "too many arguments");
  for (int i = at; i < program.argc; i++) lua_pushstring(L, program.argv[i]);
  lua_call(L, program.argc - at, 1);
  program.status = (int)lua_tointeger(L, -1);
}

/* Runs the script before a prompt. Its error is reported, and the prompt follows all the same. */
static void try_script(lua_State *L)
{
  lua_pushcfunction(L, explain_error);
  lua_pushcfunction(L, protected_script);
  if (lua_pcall(L, 0, 0, -2) != 0) report_error(L);
  program.status = DONE;
  lua_settop(L, 0);
}

/* Runs the options -e and -l in their order. */
static void run_options(lua_State *L)
{
  const struct options *o = &program.options;
  int end = o->script ? o->script : o->command ? o->command : program.argc;
  for (int i = 1; i < end; i++) {
    const char *option = program.argv[i];
    if (!strchr("el", option[1])) continue;
    const char *value = option[2] ? option + 2 : program.argv[++i];
    call_session(L, option[1] == 'e' ? "text" : "use", value);
  }
}

/* Replaces the name after --script in argv by the script's path. Returns false, and has written the
** list of scripts, if there is no name or no script of that name. */
static bool find_script(lua_State *L)
{
  static char path[PATH_MAX];
  char **name = &program.argv[program.options.script];
  require_module(L, "tycho.prompt.scripts");
  lua_getfield(L, -1, "find");
  lua_pushstring(L, *name);
  lua_call(L, 1, 2);
  bool found = lua_toboolean(L, -2);
  if (found) {
    snprintf(path, sizeof path, "%s", lua_tostring(L, -2));
    *name = path;
  }
  else {
    fputs(lua_tostring(L, -1), *name ? stderr : stdout);
    program.status = *name ? USAGE : DONE;
  }
  lua_settop(L, 0);
  return found;
}

/* Sets up how values are shown for the Jupyter kernel ILua, which has started the program. */
static void prepare_notebook(lua_State *L)
{
  require_module(L, "tycho.prompt.notebook");
  lua_getfield(L, -1, "start");
  lua_call(L, 0, 0);
  lua_settop(L, 0);
}

/* Does what the command line asks for; a lua_CFunction. */
static int run_program(lua_State *L)
{
  const struct options *o = &program.options;
  if (getenv("ILUA_CMD_PATH")) prepare_notebook(L);
  if (o->named && !find_script(L)) return 0;
  set_arg(L);
  if (o->strict) {
    require_module(L, "tycho.core.strict");
    lua_call(L, 0, 0);
  }
  run_options(L);
  if (o->command) {
    run_command(L, o->command);
    return 0;
  }
  if (o->script && o->prompt)
    try_script(L);
  else if (o->script)
    run_script(L, program.argv[o->script]);
  bool nothing = !o->script && !o->texts, terminal = isatty(STDIN_FILENO);
  if (o->prompt || (nothing && terminal)) {
    interrupt_watch(L, true);
    call_session(L, "loop", NULL);
  }
  else if (nothing) {
    run_script(L, NULL);
  }
  return 0;
}

/* -- the command line -------------------------------------------------------------------------- */

/* Writes what is wrong with an option, and the usage. Returns the exit status. */
static int refuse_option(const char *what, const char *option)
{
  fprintf(stderr, "tycho: %s '%s'\n%s", what, option, help);
  return USAGE;
}

/* Reads an option of one letter; the value of -e and -l may be the next word. Returns -1, or the
** exit status if the program ends here. */
static int read_short(int *at, const char *option)
{
  struct options *o = &program.options;
  if (strcmp(option, "-i") == 0) {
    o->prompt = true;
  }
  else if (option[1] == 'e' || option[1] == 'l') {
    o->texts |= option[1] == 'e';
    if (!option[2] && ++*at >= program.argc)
      return refuse_option("a value is missing after", option);
  }
  else {
    return refuse_option("unknown option", option);
  }
  return -1;
}

/* Reads an option of several letters. Returns -1, or the exit status if the program ends here. */
static int read_long(const char *option)
{
  struct options *o = &program.options;
  if (strcmp(option, "--strict") == 0) {
    o->strict = true;
  }
  else if (strcmp(option, "--plain") == 0) {
    o->plain = true;
  }
  else if (strcmp(option, "--help") == 0) {
    return fputs(help, stdout) < 0 ? FAILED : DONE;
  }
  else if (strcmp(option, "--version") == 0) {
    return printf("tycho %s (abi %d)\n", ty_version(), ty_abi()) < 0 ? FAILED : DONE;
  }
  else if (strcmp(option, "--platform") == 0) {
    const char *modules = *program.lua ? program.lua : "on Lua's own path";
    return printf("%s%s\nmodules: %s\n", ty_platform(), LUAJIT_VERSION, modules) < 0 ? FAILED
                                                                                     : DONE;
  }
  else {
    return refuse_option("unknown option", option);
  }
  return -1;
}

static bool is_command(const char *option)
{
  return strcmp(option, "--inspect") == 0 || strcmp(option, "--convert") == 0 ||
      strcmp(option, "--run") == 0 || strcmp(option, "--top") == 0;
}

/* Fills program.options. Returns -1, or the exit status if the program ends here. */
static int read_command_line(void)
{
  for (int i = 1; i < program.argc; i++) {
    const char *option = program.argv[i];
    if (option[0] != '-' || !option[1]) {
      program.options.script = i;
      return -1;
    }
    if (is_command(option)) {
      program.options.command = i;
      return -1;
    }
    if (strcmp(option, "--script") == 0) {
      program.options.named = true;
      program.options.script = i + 1; /* argc, where argv holds NULL: no name was given */
      return -1;
    }
    int status = option[1] == '-' ? read_long(option) : read_short(&i, option);
    if (status >= 0) return status;
  }
  return -1;
}

/* Sets the encoding for the line editor; numbers stay as Lua writes them. UTF-8 replaces the C
** locale, also where the user's is not installed, since terminals send UTF-8. */
static void set_locale(void)
{
  const char *name = setlocale(LC_CTYPE, "");
  if (!name || strcmp(name, "C") == 0) setlocale(LC_CTYPE, "C.UTF-8");
}

/* Sets GOMP_SPINCOUNT and starts the program again, since the OpenMP runtime reads it when it is
** loaded, before main (see runtime/lua/tycho/core/ffi.lua). Returns if it is set, or if the program
** cannot be started again. */
static void limit_spinning(char **argv)
{
  if (getenv("GOMP_SPINCOUNT")) return;
  setenv("GOMP_SPINCOUNT", "1000", 1);
  execv("/proc/self/exe", argv);
}

/* os.exit of scripts. One that closes the Lua state runs finalizers in any order, so ty_leave comes
** before it. */
static int exit_program(lua_State *L)
{
  if (lua_toboolean(L, 2)) ty_leave();
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, 0);
  return 0;
}

/* Replaces os.exit. */
static void replace_exit(lua_State *L)
{
  lua_getglobal(L, "os");
  lua_getfield(L, -1, "exit");
  lua_pushcclosure(L, exit_program, 1);
  lua_setfield(L, -2, "exit");
  lua_pop(L, 1);
}

int main(int argc, char **argv)
{
  limit_spinning(argv);
  program.argc = argc;
  program.argv = argv;
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* by lines also into a pipe */
  set_locale();
  find_tree();
  int status = read_command_line();
  if (status >= 0) return status;
  lua_State *L = luaL_newstate();
  if (!L) return fputs("tycho: out of memory\n", stderr), FAILED;
  torture_memory(L);
  luaL_openlibs(L);
  replace_exit(L);
  set_paths(L);
  interrupt_watch(L, false);
  lua_pushcfunction(L, explain_error);
  lua_pushcfunction(L, run_program);
  status = lua_pcall(L, 0, 0, 1) == 0 ? program.status : report_error(L);
  interrupt_unwatch(L);
  ty_leave();
  lua_close(L);
  return status;
}

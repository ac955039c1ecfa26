rockspec_format = "3.0"
package = "tycho"
version = "scm-1"
source = {
  url = "git+https://github.com/tycho-lua/tycho.git",
}
description = {
  summary = "A deep-learning engine scripted in Lua",
  detailed = [[
Symbols, executors, modules and buckets of the MXNet kind on a small C core: static memory plans shared between
executors, fused element-wise code, exact resume, a prompt. Needs LuaJIT 2.1.]],
  license = "Apache-2.0",
}
supported_platforms = { "linux" }
dependencies = { "lua == 5.1" }                -- LuaJIT itself is checked when the library is loaded
test = { type = "command", command = "make test" }
build = {
  type = "make",
  build_target = "rock",
  build_variables = { PACKAGE_CFLAGS = "$(CFLAGS)" },
  -- make copies all: what `install` of a rockspec lists costs LuaRocks a process a file
  install_target = "install-rock",
  install_variables = {
    PREFIX = "$(PREFIX)",
    BIN_DIR = "$(BINDIR)",
    LUA_DIR = "$(LUADIR)",
    LIBRARY_DIR = "$(LIBDIR)/tycho",
    PACKAGE_CFLAGS = "$(CFLAGS)",
  },
  copy_directories = {},                       -- the pages are beside the modules
}

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
  build_target = "all",
  install_pass = false,                        -- LuaRocks copies, so its manifest knows every file
  install = {
    lua = {
      ["tycho.args"] = "runtime/lua/tycho/args.lua",
      ["tycho.attribute"] = "runtime/lua/tycho/attribute.lua",
      ["tycho.attrs"] = "runtime/lua/tycho/attrs.lua",
      ["tycho.class"] = "runtime/lua/tycho/class.lua",
      ["tycho.context"] = "runtime/lua/tycho/context.lua",
      ["tycho.error"] = "runtime/lua/tycho/error.lua",
      ["tycho.ffi"] = "runtime/lua/tycho/ffi.lua",
      ["tycho.gc"] = "runtime/lua/tycho/gc.lua",
      ["tycho.init"] = "runtime/lua/tycho/init.lua",
      ["tycho.log"] = "runtime/lua/tycho/log.lua",
      ["tycho.name"] = "runtime/lua/tycho/name.lua",
      ["tycho.ndarray_call"] = "runtime/lua/tycho/ndarray_call.lua",
      ["tycho.ndarray_class"] = "runtime/lua/tycho/ndarray_class.lua",
      ["tycho.ndarray_gather"] = "runtime/lua/tycho/ndarray_gather.lua",
      ["tycho.ndarray_host"] = "runtime/lua/tycho/ndarray_host.lua",
      ["tycho.ndarray_index"] = "runtime/lua/tycho/ndarray_index.lua",
      ["tycho.ndarray_io"] = "runtime/lua/tycho/ndarray_io.lua",
      ["tycho.ndarray_key"] = "runtime/lua/tycho/ndarray_key.lua",
      ["tycho.ndarray_make"] = "runtime/lua/tycho/ndarray_make.lua",
      ["tycho.ndarray_math"] = "runtime/lua/tycho/ndarray_math.lua",
      ["tycho.ndarray_op"] = "runtime/lua/tycho/ndarray_op.lua",
      ["tycho.ndarray_print"] = "runtime/lua/tycho/ndarray_print.lua",
      ["tycho.ndarray_shape"] = "runtime/lua/tycho/ndarray_shape.lua",
      ["tycho.op"] = "runtime/lua/tycho/op.lua",
      ["tycho.prompt"] = "runtime/lua/tycho/prompt.lua",
      ["tycho.prompt.commands"] = "runtime/lua/tycho/prompt/commands.lua",
      ["tycho.prompt.complete"] = "runtime/lua/tycho/prompt/complete.lua",
      ["tycho.prompt.show"] = "runtime/lua/tycho/prompt/show.lua",
      ["tycho.registry"] = "runtime/lua/tycho/registry.lua",
      ["tycho.runtime"] = "runtime/lua/tycho/runtime.lua",
      ["tycho.scope"] = "runtime/lua/tycho/scope.lua",
      ["tycho.strict"] = "runtime/lua/tycho/strict.lua",
      ["tycho.symbol"] = "runtime/lua/tycho/symbol.lua",
      ["tycho.symbol_control"] = "runtime/lua/tycho/symbol_control.lua",
      ["tycho.symbol_graph"] = "runtime/lua/tycho/symbol_graph.lua",
      ["tycho.symbol_json"] = "runtime/lua/tycho/symbol_json.lua",
      ["tycho.symbol_make"] = "runtime/lua/tycho/symbol_make.lua",
      ["tycho.symbol_node"] = "runtime/lua/tycho/symbol_node.lua",
      ["tycho.symbol_op"] = "runtime/lua/tycho/symbol_op.lua",
      ["tycho.symbol_text"] = "runtime/lua/tycho/symbol_text.lua",
      ["tycho.values"] = "runtime/lua/tycho/values.lua",
      ["tycho.tycho"] = "native/tycho.h",      -- keeps its name: the text that the FFI reads
    },
    lib = { ["tycho.libtycho"] = "build/libtycho.so" },
    bin = { tycho = "build/tycho" },
  },
}

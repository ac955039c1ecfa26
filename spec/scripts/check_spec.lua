-- scripts/dev/check.lua: the rooms are as they should be, and what should not be is found and named
-- with its place, its rooms and a way out. Faults are put into a copy of the checkout.

local folders = require "spec.support.folder"
local shell = require "spec.support.shell"

local BUILD = shell.program:match("^(.*)/[^/]*$")

local function run(format, ...)
  local output, status = shell.run(format:format(...))
  assert.equal(0, status, output)
  return output
end

describe("The check", function()
  local copy

  local function check()
    return shell.run(("cd %s && luajit scripts/dev/check.lua --rooms build"):format(copy))
  end

  -- Adds lines to a file of the copy, after its first line that matches or at its end. Returns the
  -- number of the first line added and a function that restores the file.
  local function add(path, text, pattern)
    local file = copy .. "/" .. path
    local old, lines, at = folders.read(file), {}, nil
    for line in old:gmatch("([^\n]*)\n") do
      lines[#lines + 1] = line
      if pattern and not at and line:find(pattern) then
        lines[#lines + 1], at = text, #lines + 1
      end
    end
    if not at then
      lines[#lines + 1], at = text, #lines + 1
    end
    folders.write(file, table.concat(lines, "\n") .. "\n")
    return at, function() folders.write(file, old) end
  end

  local function finds(expected)
    local output, status = check()
    assert.equal(1, status, output)
    for _, text in ipairs(expected) do
      assert.is_truthy(output:find(text, 1, true), text .. " is missing in\n" .. output)
    end
  end

  setup(function()
    copy = os.tmpname()
    os.remove(copy)
    run("mkdir -p %s/build && cp -rp native runtime scripts doc %s && cp -rp %s/native %s/build",
      copy, copy, BUILD, copy)
  end)
  teardown(function() run("rm -r %s", copy) end)

  it("finds nothing in the rooms as they are", function()
    local output, status = check()
    assert.equal("0 findings\n", output)
    assert.equal(0, status)
  end)

  it("finds an include that runs up", function()
    local line, undo = add("native/base/json.c", '#include "op/op.h"', "^#include")
    finds{ ("native/base/json.c:%d: includes op/op.h, but room base is below op: "
      .. "include something lower, or move what is needed down"):format(line) }
    undo()
  end)

  it("finds an include of what is beside", function()
    local line, undo = add("native/io/idx.c", '#include "graph/graph.h"', "^#include")
    finds{ ("native/io/idx.c:%d: includes graph/graph.h, but room io is beside graph: ")
      :format(line) }
    undo()
  end)

  it("finds an include of a private header", function()
    local line, undo = add("native/exec/object.c", '#include "kernel/gemm/inner.h"', "^#include")
    finds{ ("native/exec/object.c:%d: room exec includes kernel/gemm/inner.h, which is private to "
      .. "room kernel: include one of its public headers (attention.h, "):format(line) }
    undo()
  end)

  it("finds a call that runs up, in the object file, and the circle that it makes", function()
    local line, undo = add("native/tensor/params.c",
      "int params_up(struct ty_exec *);\nint ty_exec_keep(struct ty_exec *);\n"
      .. "int params_up(struct ty_exec *e)\n{\n  return ty_exec_keep(e);\n}")
    local object = copy .. "/build/native/tensor/params.o"
    run("cp -p %s %s.old && cd %s && ${CC:-cc} -std=c11 -D_GNU_SOURCE -Inative -fPIC -O2 "
      .. "-c native/tensor/params.c -o build/native/tensor/params.o", object, object, copy)
    finds{
      ("native/tensor/params.c:%d: params_up uses ty_exec_keep of native/exec/object.c, but room "
        .. "tensor is below exec: move what is used down, or let the upper room hand it in "
        .. "(a registration, a callback)"):format(line + 4),
      "a circle of rooms: exec -> tensor (",
      ("tensor -> exec (native/tensor/params.c:%d uses ty_exec_keep); one of these must go")
        :format(line + 4),
      "doc/rooms.svg:1: is not how the rooms are",
    }
    run("mv %s.old %s", object, object)
    undo()
  end)

  it("finds what passes the door to the system by, in the object file", function()
    local line, undo = add("native/tensor/params.c", "#include <stdlib.h>\n"
      .. "void *params_bytes(void);\n"
      .. "void *params_bytes(void)\n{\n  return malloc(8);\n}\n"
      .. "FILE *params_file(void);\nFILE *params_file(void)\n{\n  return fopen(\"a\", \"r\");\n}")
    local object = copy .. "/build/native/tensor/params.o"
    run("cp -p %s %s.old && cd %s && ${CC:-cc} -std=c11 -D_GNU_SOURCE -Inative -fPIC -O2 "
      .. "-c native/tensor/params.c -o build/native/tensor/params.o", object, object, copy)
    finds{
      ("native/tensor/params.c:%d: params_bytes calls malloc past the door: use what "
        .. "native/base/memory.h has for it"):format(line + 4),
      ("native/tensor/params.c:%d: params_file calls fopen past the door: use what "
        .. "native/base/system.h has for it"):format(line + 9),
    }
    run("mv %s.old %s", object, object)
    undo()
  end)

  it("finds headers that include each other", function()
    local a, undo_a = add("native/kernel/lapack.h", '#include "kernel/variates.h"', "^#include")
    local b, undo_b = add("native/kernel/variates.h", '#include "kernel/lapack.h"', "^#include")
    finds{
      ("a circle of files: native/kernel/lapack.h -> native/kernel/variates.h "
        .. "(native/kernel/lapack.h:%d includes kernel/variates.h), "):format(a),
      ("native/kernel/variates.h -> native/kernel/lapack.h "
        .. "(native/kernel/variates.h:%d includes kernel/lapack.h); one of these must go")
        :format(b),
    }
    undo_a()
    undo_b()
  end)

  it("finds a require that runs up from within a function", function()
    local line, undo = add("runtime/lua/tycho/core/json.lua", "local function late()\n"
      .. '  return require "tycho.ndarray"\nend\nlate()', "^local json")
    finds{
      ("runtime/lua/tycho/core/json.lua:%d: requires tycho.ndarray, but room core is below "
        .. "ndarray: move what is needed down, or let the upper room register itself below")
        :format(line + 1),
      "a circle of rooms: core -> ndarray",
    }
    undo()
  end)

  it("finds modules of one room that require each other", function()
    local line, undo = add("runtime/lua/tycho/ndarray/print.lua",
      'package.loaded["tycho.ndarray"] = nil')
    finds{
      "a circle of files: runtime/lua/tycho/ndarray/init.lua -> "
        .. "runtime/lua/tycho/ndarray/print.lua",
      ("runtime/lua/tycho/ndarray/print.lua:%d requires tycho.ndarray)"):format(line),
    }
    undo()
  end)

  it("finds a file that is in no room", function()
    folders.write(copy .. "/native/stray.c", "int stray_global;\n")
    finds{ "native/stray.c:1: is in no room: move it into one, or add its room to "
      .. "scripts/dev/check/rooms.lua" }
    run("rm %s/native/stray.c", copy)
  end)
end)

describe("The check of words", function()
  local path = package.path
  package.path = "scripts/dev/?.lua;" .. path
  local words = require "check.words"
  package.path = path

  local function findings(name, text)
    local list = {}
    folders.with(function(folder)
      local file = folder .. "/" .. name
      folders.write(file, text)
      words.check(function(_, line, ...)
        list[#list + 1] = line .. ": " .. string.format(...)
      end, file)
    end)
    return list
  end

  it("finds a replaced word in a name, whole or as a part, in C and in Lua", function()
    assert.same({ "2: the name best_twin has the word 'twin', say clone" },
      findings("a.c", "int a;\nint best_twin = 1;\n"))
    assert.same({ "1: the name TWIN has the word 'twin', say clone",
      "1: the name bestTwin has the word 'twin', say clone" },
      findings("a.lua", "local TWIN, bestTwin = 1, 2\n"))
  end)

  it("lets comments, texts, other words and the field's own terms alone", function()
    assert.same({}, findings("a.c", "/* a twin */\nint twinned = in_place(\"twin\"); // twin\n"))
    assert.same({}, findings("a.lua", "-- twin\nlocal IN_PLACE = 'a twin'\n"))
  end)
end)

describe("The check of static functions", function()
  local path = package.path
  package.path = "scripts/dev/?.lua;" .. path
  local names = require "check.names"
  local source = require "check.source"
  package.path = path

  -- Returns what is found in a file of this name and text, which is not on disk.
  local function findings(name, text)
    local list, read = {}, source.read
    source.read = function() return { code = source.lines(text) } end
    names.check_statics(function(_, line, ...)
      list[#list + 1] = line .. ": " .. string.format(...)
    end, name)
    source.read = read
    return list
  end

  it("finds one of pass or kernel without a word of its path at the beginning", function()
    local text = "static int add_node(int a)\n{\n  return a;\n}\n"
    local found = { "1: the static function add_node does not begin with the name of its file" }
    assert.same(found, findings("native/pass/fuse.c", text))
    assert.same(found, findings("native/kernel/conv/tiles.c", text))
    assert.same(found, findings("native/pass/views.c", text:gsub("int add", "const char *add")))
  end)

  it("accepts the file's name, the folder's, the singular, calls, data, other rooms", function()
    local text = "static void *views_add(int a);\nstatic int view_add(int a)\n{\n"
      .. "  return add_node(a);\n}\nstatic const int at[] = { ONE(2) };\n"
    assert.same({}, findings("native/pass/views.c", text))
    assert.same({}, findings("native/kernel/views/run.c", text))
    assert.same({}, findings("native/operators/nn/views.c", "static int add_node(int a)\n"))
    assert.same({}, findings("native/kernel/vec/isa/vec.c", "static int add_node(int a)\n"))
  end)
end)

describe("The check of lines", function()
  local path = package.path
  package.path = "scripts/dev/?.lua;" .. path
  local style = require "check.style"
  package.path = path

  local function findings(name, text)
    local list = {}
    folders.with(function(folder)
      local file = folder .. "/" .. name
      folders.write(file, text)
      style.check(function(_, line, ...)
        list[#list + 1] = line .. ": " .. string.format(...)
      end, file)
    end)
    return list
  end

  it("counts columns, where rows of tables may be longer", function()
    local long, longer = ("x"):rep(101), ("x"):rep(141)
    assert.same({ "1: 104 columns, at most 100" }, findings("a.lua", "-- " .. long .. "\n"))
    assert.same({}, findings("a.lua", "local T = {\n  " .. long .. ",\n}\n"))
    assert.same({}, findings("a.lua", "local text = [[\n" .. long .. "\n]]\n"))
    assert.same({ "2: 144 columns, at most 140" },
      findings("a.lua", "local T = {\n  " .. longer .. ",\n}\n"))
    assert.same({ "2: 103 columns, at most 100" },
      findings("a.lua", "local function f()\n  " .. long .. "\nend\n"))
    assert.same({}, findings("a.c", "static const int t[] = {\n  " .. long .. ",\n};\n"))
    assert.same({ "1: a tab", "2: white space at the end" }, findings("a.c", "\tint x;\nint y; \n"))
  end)

  it("counts statements", function()
    assert.same({}, findings("a.c", "  if (x) return y;\n  for (int i = 0; i < n; i++) f(i);\n"
      .. "  s = \"a; b;\";\n  case 3: f(); return;\n#define TWO a; b;\n"))
    assert.same({ "1: 2 statements on one line" }, findings("a.c", "  a = 1; b = 2;\n"))
    assert.same({ "2: 2 statements on one line" },
      findings("a.c", "  f(a,\n    b); if (x) { y; }\n"))
    assert.same({}, findings("a.lua", "local f = g(function(x) return x end)\n"
      .. "if x then return y end\n"))
    assert.same({ "1: 2 statements on one line" }, findings("a.lua", "local x = 1; local y = 2\n"))
    assert.same({ "1: 2 statements on one line" },
      findings("a.lua", "local f = function(x) local y = x return y end\n"))
    assert.same({},
      findings("a.lua", "local function f(x) return g(function() return x end) end\n"))
  end)

  it("counts lines of files and functions", function()
    local body = ("  x = x + 1\n"):rep(99)
    assert.same({ "1: a function of 101 lines, at most 100" },
      findings("a.lua", "local function f()\n" .. body .. "end\n"))
    assert.same({ "1001: 1001 lines, at most 1000" }, findings("a.lua", ("\n"):rep(1001)))
    assert.same({ "1001: 1001 lines, at most 1000" }, findings("a.c", ("\n"):rep(1001)))
  end)
end)

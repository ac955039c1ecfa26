-- The program `tycho`: command line, exit status, texts of errors, Ctrl-C.

local folder = require "spec.support.folder"
local shell = require "spec.support.shell"

local tycho, with_file = shell.tycho, shell.with_file

local function prints(want, arguments)
  local output, status = tycho(arguments)
  assert.equal(want, output)
  assert.equal(0, status)
end

describe("tycho", function()
  it("runs texts, prints expressions", function()
    prints("1\n42\n", "-e 'print(1)' -e '6 * 7'")
    prints("{1, 2, a = {}}\n", "-e '{1, 2, a = {}}'")
    prints("text\n", [[-e '"text"']])
    prints("3\n", "-e 'x = 3' -e x")
  end)

  it("runs scripts with their arguments", function()
    with_file("print(arg[0] == ..., #arg, arg[1], select(2, ...))", function(path)
      prints("false\t2\ta\tb\n", path .. " a b")
    end)
  end)

  it("runs the scripts that come with it by name", function()
    local list, status = tycho("--script")
    assert.equal(0, status)
    assert.is_truthy(list:find("\ntrain_mnist +Trains a network on images of digits"), list)
    local help, done = tycho("--script train_mnist --help")
    assert.equal(0, done)
    assert.is_truthy(help:find("Usage: train_mnist.lua", 1, true), help)
    assert.is_truthy(help:find("--network", 1, true), help)
    assert.is_truthy(list:find("\nmodels/own_net +Trains a small network"), list)
    help, done = tycho("--script models/own_net --help")
    assert.equal(0, done)
    assert.is_truthy(help:find("Usage: own_net.lua", 1, true), help)
    for _, name in ipairs{ "train_mnst", "../scripts/train_mnist", "lib/common",
        "models/../train_mnist", "''" } do
      local printed, wrong = tycho("--script " .. name)
      assert.equal(2, wrong)
      local want = "there is no script '" .. name:gsub("'", "") .. "'"
      assert.is_truthy(printed:find(want, 1, true), printed)
    end
  end)

  it("writes lines at once into a pipe, also between those of the log", function()
    with_file("print('one') io.stderr:write('two\\n') io.write('three\\nfour') \z
      require('tycho').log:info('five') print()", function(path)
      assert.equal("one\ntwo\nthree\nfourINFO: five\n\n",
        (shell.run(shell.program .. " " .. path .. " 2>&1 | cat")))
    end)
  end)

  it("reads standard input", function()
    assert.equal("42\n", (shell.run("echo 'print(6 * 7)' | " .. shell.program)))
    assert.equal("42\tx\n", (shell.run("echo 'print(6 * 7, ...)' | " .. shell.program .. " - x")))
  end)

  it("needs nothing from the environment or the folder", function()
    local output =
      shell.run(("p=$(readlink -f %s); cd / && env -i \"$p\" -e 'require(\"tycho\").version'")
        :format(shell.program))
    assert.equal("0.1.0\n", output)
  end)

  it("works through a link", function()
    local link = os.tmpname()
    os.remove(link)
    local output =
      shell.run(("ln -s \"$(readlink -f %s)\" %s && %s -e 'require(\"tycho\").version'; rm -f %s")
        :format(shell.program, link, link, link))
    assert.equal("0.1.0\n", output)
  end)

  it("prints version, platform and help", function()
    assert.is_truthy((tycho("--version")):match("^tycho %d+%.%d+%.%d+ %(abi %d+%)\n$"))
    assert.is_truthy((tycho("--platform")):match("LuaJIT 2%.1"))
    assert.is_truthy((tycho("--help")):match("%-%-strict"))
  end)

  it("exits with 1 after an error and shows only the caller's frames", function()
    with_file("local function f()\n  require('tycho').nd.no_such_function()\nend\nf()\n",
      function(path)
        local output, status = tycho(path)
        assert.equal(1, status)
        assert.is_truthy(output:match("no_such_function"))
        assert.is_truthy(output:match("in main chunk"))
        assert.is_falsy(output:match("runtime/lua/tycho/[%w_]+%.lua:%d+: in"))
      end)
    assert.equal(1, select(2, tycho("/no/such/script.lua")))
  end)

  -- Returns a script's output, with the script's name replaced.
  local function says(code, options)
    local text
    with_file(code, function(path)
      text = tycho((options or "") .. " " .. path):gsub(path:gsub("%p", "%%%0"), "script.lua")
    end)
    return text
  end

  it("begins with the script's line, which no traceback repeats", function()
    assert.equal("tycho: script.lua:2: nd.dot: input 'rhs' is missing [operator dot]\n  \z
      expected an NDArray, got nothing\n",
      says("local ty = require 'tycho'\nty.nd.dot(ty.nd.ones(2))\n"))
    assert.equal("tycho: script.lua:1: nd.ones: bad 'shape'\n  \z
      expected a shape (a list of sizes), got text \"x\"\n", says("require('tycho').nd.ones('x')"))
    assert.equal("tycho: script.lua:1: boom\n", says("error('boom')"))
    assert.equal("tycho: script.lua:2: attempt to index local 'x' (a nil value)\n",
      says("local x\nprint(x.y)"))
  end)

  it("begins with the script's line where Lua stops inside the library", function()
    assert.is_truthy(says("local ty = require 'tycho'\nty.nd.ones(2).copy()\n")
      :match("^tycho: script%.lua:2: attempt to index[^\n]+\n[^\n]+colon[^\n]+\n$"))
  end)

  it("takes an error of the script's own callback for nothing else", function()
    assert.equal("tycho: script.lua:4: oh no\n", says([[
      local ty = require "tycho"
      local net = ty.sym.MakeLoss(ty.sym.sum(ty.sym.Variable "data"))
      ty.mod.Module{symbol = net, label_names = {}}:fit{num_epoch = 1,
        batch_end_callback = function() error("oh no") end,
        train_data = ty.io.NDArrayIter{data = ty.nd.ones{2, 3}, batch_size = 2},
        eval_metric = "loss"}]]))
  end)

  it("says what an error is that is no text", function()
    for raised, want in pairs{ ["{}"] = "error object is a table",
      ["nil"] = "error object is a nil",
      ["print"] = "error object is a function", ["12"] = "12",
      ["setmetatable({}, {__tostring = function() return 'mine' end})"] = "mine",
      ["setmetatable({}, {__tostring = function() return {} end})"] =
        "error object is a table",
      ["{code = 'interrupted'}"] = "interrupted" } do
      assert.equal("tycho: " .. want .. "\n", says(("error(%s, 0)"):format(raised)))
    end
  end)

  it("names functions of a traceback, and not more than 24", function()
    assert.equal("tycho: script.lua:1: deep\nstack traceback:\n\z
      \tscript.lua:1: in function 'fail'\n\z
      \tscript.lua:3: in function <script.lua:2>\n\z
      \tscript.lua:2: in main chunk\n",
      says("function fail() local x = error('deep') end\n\z
        local x = ('x'):gsub('x', function()\nlocal x = fail() end)"))
    local text = says("local function f(n) if n == 0 then error('deep') end local x = f(n - 1) end \z
      f(30)")
    assert.equal(24, select(2, text:gsub("\n\tscript%.lua:1: in function 'f'", "")))
    assert.equal("\n\t...\n", text:sub(-6))
  end)

  it("exits with 2 after wrong usage, which it names", function()
    for arguments, want in pairs{ ["--no-such-option"] = "unknown option '--no-such-option'",
      ["-e"] = "a value is missing after '-e'", ["-e 1 -l"] = "a value is missing after '-l'",
      ["-x"] = "unknown option '-x'", ["-ii"] = "unknown option '-ii'" } do
      local output, status = tycho(arguments)
      assert.equal(2, status)
      assert.equal("tycho: " .. want, output:match("^[^\n]*"))
      assert.is_truthy(output:find((tycho("--help")), 1, true))
    end
  end)

  it("takes the value of an option in the same word too", function()
    prints("12\ntable\n", "--plain -e'3 * 4' -ltycho.core.json -e 'type(json)'")
  end)

  it("takes modules on Lua's own path where it is in no tree", function()
    folder.with(function(path)
      local output, status = shell.run(("cp %s %s/tycho && cd %s && env -u TYCHO_LIB \z
        LD_LIBRARY_PATH=%s ./tycho --platform"):format(shell.program, path, path,
        (shell.run("readlink -f " .. shell.program):gsub("/[^/]*$", ""))))
      assert.equal(0, status)
      assert.is_truthy(output:find("\nmodules: on Lua's own path\n", 1, true), output)
    end)
  end)

  it("refuses undeclared globals when strict, and runs what declares them", function()
    local strict = "tycho: script.lua:1: %s an undeclared global 'oops'\n"
    for code, want in pairs{ ["local x = oops"] = strict:format("reading"), ["oops = 1"] =
      strict:format("writing"), ["rawset(_G, 'oops', 3) oops = oops + 1 print(oops)"] = "4\n" } do
      assert.equal(want, says(code, "--strict"))
      assert.is_falsy(says(code):find("undeclared", 1, true))
    end
    prints("7\n", "-e 'x = 7' -e x")
    prints("7\n", "--strict -e 'rawset(_G, \"x\", 6) x = x + 1' -e x")
    prints("8\n", "--strict -l tycho.lr_scheduler -e 'lr_scheduler = 8' -e lr_scheduler")
    local function strictly(lines, arguments)
      return shell.run(("printf '%s' | %s --strict %s"):format(lines, shell.program, arguments))
    end
    for _, case in ipairs{ { "", "-e 'x = 7'", "(command line)" },
        { "", "-e 'function x() end'", "(command line)" }, { "x = 7\\n", "", "stdin" },
        { "x = 7\\n", "-", "stdin" } } do
      local output, status = strictly(case[1], case[2])
      assert.equal(("tycho: %s:1: writing an undeclared global 'x'\n"):format(case[3]), output)
      assert.equal(1, status)
    end
    assert.equal("7\n", (strictly("x = 7\\nx\\n", "-i --plain")))
  end)

  -- Returns a statement that sends a signal to its own process a second later: by then the loop
  -- after it runs, however long the program took to start.
  local function signal_later(name)
    return ("os.execute '(sleep 1; kill -%s $PPID) &'"):format(name)
  end

  local function run_signalled(path)
    return shell.run(("timeout -k 5 300 %s %s"):format(shell.program, path))
  end

  local function interrupted(code)
    with_file(code:gsub("LATER", signal_later "INT"), function(path)
      local output, status = run_signalled(path)
      assert.equal(130, status)
      assert.is_truthy(output:match("interrupted"))
    end)
  end

  it("stops interpreted Lua on Ctrl-C", function()
    interrupted("jit.off() LATER while true do end")
  end)
  it("stops compiled Lua on Ctrl-C", function()
    interrupted("local x = 0 LATER while true do x = x + 1 end")
  end)
  it("stops a C call on Ctrl-C", function()
    interrupted("local ty = require 'tycho' local z = ty.nd.ones{300, \z
      300} LATER while true do ty.nd.dot{z, z}:wait_to_read() end")
  end)
  it("stops in order on SIGTERM, with what follows an error", function()
    with_file(([[
      jit.off()
      local ok, e = pcall(function() LATER while true do end end)
      print("saved")
      error(e, 0)]]):gsub("LATER", signal_later "TERM"), function(path)
      local output, status = run_signalled(path)
      assert.equal(143, status)
      assert.equal("saved\ntycho: terminated\n", output)
    end)
  end)
  it("takes a request to stop for nothing else, where something is only tried", function()
    with_file([[
      jit.off()
      local Error = require "tycho.core.error"
      package.preload.cjson = function() Error.raise{ code = "interrupted", message = "stop" } end
      print(select(2, pcall(require("tycho.core.json").parse, "[]", "spec")).code)
      local json = require "tycho.core.json"
      package.preload.cjson = function() error("not enough memory", 0) end
      package.loaded.cjson = nil
      print(select(2, pcall(json.parse, "[]", "spec")))]], function(path)
      assert.equal("interrupted\nnot enough memory\n", (tycho(path)))
    end)
  end)
  it("lets a script answer Ctrl-C", function()
    with_file(([[
      jit.off()
      local ty = require "tycho"
      local ok, e = pcall(function() LATER while true do end end)
      print(ok, ty.is_error(e) and e.code)]]):gsub("LATER", signal_later "INT"), function(path)
      local output, status = run_signalled(path)
      assert.equal("false\tinterrupted\n", output)
      assert.equal(0, status)
    end)
  end)

  it("takes one Ctrl-C that comes twice, to the group and from a parent, as one", function()
    with_file([[
      jit.off()
      local ffi = require "ffi"
      ffi.cdef "int raise(int);"
      local function press() ffi.C.raise(2) end
      local first, again
      for _ = 1, 20 do                                   -- a busy machine may hold it up in between
        first, again = pcall(press), pcall(press)
        os.execute("sleep 0.3")
        if again then break end
      end
      print(first, again, (pcall(press)))]], function(path)
      local output, status = tycho(path)
      assert.equal("false\ttrue\tfalse\n", output)
      assert.equal(0, status)
    end)
  end)
end)

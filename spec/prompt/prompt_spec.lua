-- The prompt without a terminal: lines in, text out.

local Session = require "tycho.prompt"
local complete = require "tycho.prompt.complete"
local shell = require "spec.support.shell"
local terminal = require "spec.support.terminal"
local ty = require "tycho"

local HERE = tostring(ty.current_context())

local written

local function session()
  written = {}
  return Session.new{ write = function(...)
    for i = 1, select("#", ...) do
      written[#written + 1] = tostring((select(i, ...)))
    end
  end }
end

-- Feeds lines to a new session; returns all it wrote.
local function feed(...)
  local s = session()
  for i = 1, select("#", ...) do
    s:feed((select(i, ...)))
  end
  return table.concat(written), s
end

describe("prompt", function()
  it("prints what an expression gives, once", function()
    local output, s = feed("n = 0", "function f() n = n + 1 return n, nil, 'a' end", "f()")
    assert.equal('1\nnil\n"a"\n', output)
    assert.equal(1, s.env.n)
    assert.is_nil(rawget(_G, "n"))
  end)

  it("takes a leading = and a muting ;", function()
    assert.equal("2\n", (feed("= 1 + 1", "3;")))
  end)

  it("keeps the variables of lines that begin with local", function()
    assert.equal("3\n4\n9\n", (feed("local a, b = 1, 2", "a + b",
      "local function f(x) return x + 1 end", "f(3)", "local t = {", "n = 9}", "t.n", "local u")))
  end)

  it("runs a text once even when it fails", function()
    local output, s = feed("n = 0", "n = n + 1; error('stop')")
    assert.equal(1, s.env.n)
    assert.is_truthy(output:match("stop"))
  end)

  it("continues unfinished statements and gives up at a blank line", function()
    assert.equal("1\n2\n", (feed("for i = 1, 2 do", "  _G.tostring(i)", "  end", "1", "{", "2}",
      ";"):gsub("{2}\n", "2\n")))
    local output = feed("x = 1 y", "")
    assert.is_truthy(output:match("expected near"))
  end)

  it("keeps the last results", function()
    assert.equal("5\n7\n7\n5\n", (feed("5", "7", "_", "_3")))
    local output = feed("5", ":forget", "_")
    assert.equal("5\nnil\n", output)
  end)

  it("ends the frames of an error after 24, those of a stack overflow too", function()
    local function count(output) return select(2, output:gsub("prompt:1: in f", "")) end
    local endless = feed("function f(x) return 1 + f(x) end", "f(1)")
    assert.is_true(count(endless) >= 10 and count(endless) <= 24, endless)
    assert.is_truthy(endless:find("^stack overflow\n") and endless:find("\n  %.%.%.\n"))
    local twice = feed("function f(x) return 1 + f(x) end", "f(1)", ":where")
    assert.equal(2 * count(endless), count(twice))
    for depth, shown in pairs{ [23] = 23, [24] = 24, [25] = 24 } do    -- and the chunk
      local output = shell.run(("echo 'function f(n) if n == 1 then error(1) end \z
        return 1 + f(n - 1) end; f(%d)' | %s -i --plain"):format(depth, shell.program))
      assert.equal(shown, count(output))
      assert.equal(depth > 23, output:find("\n  %.%.%.\n$") ~= nil)
    end
    local inside = shell.run(("echo 'function g() ty.scope(function() g() end) end g()' | \z
      %s -i --plain"):format(shell.program))
    assert.is_truthy(inside:find("stack overflow", 1, true), inside)
    assert.is_falsy(inside:find("methods take a colon", 1, true))
  end)

  it("reports errors where they are and goes on", function()
    local output = feed("local function f() error('deep') end f()", "1")
    assert.is_truthy(output:match("^prompt:1: deep\n"))
    assert.is_truthy(output:match("1\n$"))
  end)

  it("shows tables in order and to a depth", function()
    assert.equal('{1, 2, ["a b"] = {{{...}}}, b = true}\n',
      (feed("{1, 2, b = true, ['a b'] = {{{{1}}}}}")))
  end)

  it("shows the engine's objects", function()
    local output = feed("x = ty.nd.ones({2, 2}, {dtype = 'int32'})", "x", "{x}",
      "ty.sym.relu{ty.sym.Variable('v'), name = 'r'}")
    assert.equal(("[[1 1]\n [1 1]]\n<NDArray 2x2 int32 @%s>\n{<NDArray int32 2x2 @%s>}\n\z
      <Symbol r>\n  r  relu  <- v\n"):format(HERE, HERE), output)
  end)

  it("shows automatic names of parameters whole", function()
    local shown = shell.tycho([[-i <<'END'
ty.sym.FullyConnected{ty.sym.Variable("data"), num_hidden = 3}
:help
END]])
    assert.is_truthy(shown:find("<- data, fullyconnected0_{weight, bias}", 1, true), shown)
    assert.is_truthy(shown:find("x:len()", 1, true), shown)
  end)

  it("writes the summary of a block once", function()
    local shown = shell.tycho([[-i <<'END'
net = ty.gluon.nn.Dense{1, in_units = 2}
net:initialize()
net:summary(ty.nd.ones{1, 2})
_ ~= nil
END]])
    assert.equal(1, select(2, shown:gsub("Layer %(type%)", "")), shown)
    assert.is_falsy(shown:find("\\n", 1, true))
    assert.is_truthy(shown:find("true", 1, true))
  end)

  it("writes a summary once", function()
    local shown = shell.tycho([[-i <<'END'
ty.viz.print_summary(ty.sym.relu{ty.sym.Variable("data"), name = "only"}, {shape = {data = {1, 2}}})
_ ~= nil
END]])
    assert.equal(1, select(2, shown:gsub("only%(relu%)", "")), shown)
    assert.is_falsy(shown:find("\\n", 1, true))
    assert.is_truthy(shown:find("true", 1, true))
  end)

  it("shortens large arrays", function()
    local output = feed("ty.nd.zeros{20, 30, 40, 50}")
    local _, lines = output:gsub("\n", "\n")
    assert.is_true(lines < 40)
    assert.is_truthy(output:find("<NDArray 20x30x40x50 @" .. HERE .. ">", 1, true))
  end)

  it("shows modules and iterators as cards", function()
    local output = feed("it = ty.io.NDArrayIter{ty.nd.ones{6, 3}, ty.nd.ones{6}, batch_size = 2}",
      "it", "m = ty.mod.Module{ty.sym.SoftmaxOutput{ty.sym.Variable('data'), name = 'softmax'}}",
      "m", "m:bind{data_shapes = it.provide_data, label_shapes = it.provide_label}", "m")
    assert.is_truthy(output:find(
      "<NDArrayIter>\n  data         data 2x3\n  labels       softmax_label 2\n", 1, true))
    assert.is_truthy(output:find("<Module, not bound>", 1, true))
    assert.is_truthy(output:find("<Module, bound>", 1, true))
    assert.is_truthy(output:find("outputs      softmax_output 2x3", 1, true))
  end)

  it("draws branches of a symbol once", function()
    local output = feed("a = ty.sym.relu{ty.sym.Variable('v'), name = 'a'}",
      "ty.sym.dot{ty.sym.exp{a, name = 'b'}, ty.sym.abs{a, name = 'c'}, name = 'd'}")
    assert.equal(
      "<Symbol d>\n  d    dot\n  | b  exp\n  | a  relu  <- v\n    c  abs\n    a  (above)\n", output)
    output = feed("ty.sym.relu{ty.sym.Variable('v'), name = 'a'}:get_internals()")
    assert.equal("<Symbol group of 2 outputs>\n  a  relu  <- v\n", output)
  end)

  it("helps with operators, functions, classes, modules and values", function()
    local function help(name)
      return (feed("x = ty.nd.ones{2}", "n = 3", "?" .. name))
    end
    local text = help("ty.sym.FullyConnected")
    assert.is_truthy(text:find("^FullyConnected%(data, weight, bias%) %-> output\n"))
    assert.is_truthy(text:find("num_hidden%s+integer in %[1,%], required; columns of the output"))
    assert.is_truthy(text:find('ty.sym.FullyConnected{data = ty.sym.Variable("data"), ', 1, true))
    assert.is_truthy(text:gsub("%s+", " "):find("ty.nd.FullyConnected{data = ty.nd.ones{2, 3}, \z
      weight = ty.nd.ones{4, 3}, bias = ty.nd.ones{4}, num_hidden = 4}", 1, true))
    assert.is_truthy(help("exp"):find("gradient:%s+a: g %* y"))
    assert.is_truthy(help("ty.mod.Module.fit"):find("eval_metric = \"acc\"", 1, true))
    assert.is_truthy(help("ty.optimizer.SGD"):find("momentum%s+a number = 0"))
    assert.is_truthy(help("x:reshape"):find("^NDArray:reshape"))
    text = help("ty.sym.Symbol.simple_bind")             -- its form is that of another function
    assert.is_truthy(text:find("^Symbol:simple_bind{"))
    assert.is_truthy(text:find('grad_req%s+text, a table or ty.null = "write", by name; "write"'))
    assert.is_truthy(text:find("shared_exec%s+an Executor, by name; an executor whose memory"))
    assert.is_truthy(help("ty.io"):find("^ty.io\n"))
    assert.equal("3\n", help("n"))
    assert.is_truthy(help("ty.nd.zeros"):find("create.lua:%d+"))
    assert.is_truthy(help("Convolutoin"):find("near: Convolution", 1, true))
    assert.is_truthy((feed("??ty.nd.zeros")):find("function create.zeros", 1, true))
    assert.equal((feed("?ty.nd.zeros")), (feed(":help ty.nd.zeros")))
  end)

  it("helps with gluon and autograd, by paths that leave out ty. and ty.gluon.", function()
    local function help(name)
      return (feed("?" .. name))
    end
    for _, name in ipairs{ "gluon.nn.Dense", "ty.gluon.nn.Dense", "nn.Dense", "Dense" } do
      local text = help(name)
      assert.is_truthy(text:find("^nn%.Dense{units, "), text)
      assert.is_truthy(text:find("act(x weight^T + bias)", 1, true), text)
      assert.is_truthy(text:find("units%s+an integer of at least 1, required; how many outputs"),
        text)
    end
    assert.is_truthy(help("Dense"):find("also:%s+ty.sym.FullyConnected\n"))
    assert.is_falsy(help("nn.Dense"):find("also:", 1, true))
    assert.is_truthy(help("Trainer"):find("^gluon%.Trainer{params, optimizer, "))
    assert.is_truthy(help("nn.Conv2D"):find("\nConvolves images: ", 1, true), help("nn.Conv2D"))
    assert.is_truthy(help("SoftmaxCrossEntropyLoss"):find("sparse_label", 1, true))
    assert.is_truthy(help("gluon"):find("^ty%.gluon\n.*names:%s+Block Constant HybridBlock"))
    assert.is_truthy(help("autograd"):find("^ty%.autograd\n.*names:%s+Function backward"))
    local text = help("autograd.record")
    assert.is_truthy(
      text:find("^record%(%[train_mode%], %[f%]%)\nRuns f and records its calls"), text)
    text = help("Dropout")                               -- the operator first, as ever
    assert.is_truthy(text:find("^Dropout%(data%) %-> output.*also:%s+ty.gluon.nn.Dropout\n"), text)
  end)

  it("describes every class of gluon and all of their options", function()
    local manual = require "tycho.prompt.manual"
    local translation = require "tycho.prompt.translation"
    local members = require "tycho.prompt.members"
    local glossary = require "tycho.prompt.glossary"
    local comments = require "tycho.prompt.comments"
    local count, silent = 0, {}
    for _, path in ipairs{ "gluon", "gluon.nn", "gluon.rnn", "gluon.loss", "gluon.data",
        "gluon.data.vision", "gluon.data.vision.transforms", "gluon.contrib.estimator" } do
      local module = translation.value(path)
      for _, name in ipairs(members.list(module)) do
        local ok, class = pcall(function() return module[name] end)
        if ok and manual.is_class(class) then
          count = count + 1
          local entry = manual.class_entry(class.class_name)
          local form = type(class.init) == "function" and manual.form(class.init, class.class_name)
          local own = type(class.init) == "function" and manual.comment(class.init) or nil
          local said = {}
          for _, text in ipairs{ entry or {}, own or {} } do
            for _, p in ipairs(text.text and comments.parts(text).params or {}) do
              said[p.name] = true
            end
          end
          silent[#silent + 1] = not entry and path .. "." .. name or nil
          for _, p in ipairs(form and form.params or {}) do
            silent[#silent + 1] = not said[p.name] and glossary.text(form.func, p.name) == ""
              and ("%s.%s: %s"):format(path, name, p.name) or nil
          end
        end
      end
    end
    assert.equal("", table.concat(silent, "\n"))
    assert.is_true(count > 100, count)
  end)

  it("describes every operator", function()
    local manual = require "tycho.prompt.manual"
    for _, name in ipairs(ty.op.list()) do
      local info = ty.op.info(name)
      assert.is_true(info.added or #info.doc > 0 and #info.gradient > 0, name)
      local text = manual.operator(info)
      for _, p in ipairs(info.params) do
        assert.is_truthy(text:find("\n  " .. p.name .. " ", 1, true), name .. " " .. p.name)
      end
    end
  end)

  it("measures and counts", function()
    assert.is_truthy((feed("x = ty.nd.array{1, 0/0, -3, 8}", ":stat x"))
      :find("min %-3  mean 2  max 8  NaN 1 of 4"))
    assert.is_truthy((feed("x = ty.nd.ones{2, 3}", ":who"))
      :find("NDArray  2x3  float32  " .. HERE .. "  24 B", 1, true))
    assert.is_truthy((feed(":mem")):find("tensors%s+%d+, "))
  end)

  it("runs scripts with words", function()
    shell.with_file("from_script = arg[1] .. select('#', ...)", function(path)
      assert.equal('"one2"\n', (feed(":run " .. path .. " one two", "from_script")))
    end)
  end)

  it("shows the manual's pages", function()
    local list = feed(":doc")
    assert.is_truthy(list:find("\n  saving +Saving and loading"), list)
    assert.is_truthy(feed(":doc saving"):find("^# Saving and loading\n"))
    assert.has_error(function() feed(":doc savin") end,
      "there is no page 'savin'; near: saving, data, gluon. :doc lists them")
    assert.has_error(function() feed(":doc ../README") end)
    local _, s = feed()
    assert.same({ "saving", "scale_out", "source_tour" }, select(2, complete(s.env, ":doc s")))
  end)

  it("saves what ran as a script that does the same", function()
    local path = os.tmpname()
    os.remove(path)
    local _, s = feed("local x = ty.nd.arange(0, 3)", "x + 1",
      "= _:sum():asscalar()  -- of the last", "nothing.at.all", "x = = 1", "hidden = 7;", "_2;",
      "function twice(y)", "  return 2 * y", "end", "(twice)(hidden)",
      '("a"):rep(2); shown = 1', "print(shown, _)", ":save " .. path)
    assert.is_truthy(written[#written]:find("9 texts in " .. path, 1, true), written[#written])
    assert.equal("\n[1. 2. 3.]\n<NDArray 3 @cpu(0)>\n6\n14\n1\t14\n",
      (shell.tycho(path)))
    s:feed(":save " .. path)                             -- its own file may be replaced
    shell.with_file("keep me", function(other)
      assert.has_error(function() s:feed(":save " .. other) end,
        other .. " is there already, and :save did not write it")
      assert.equal("keep me", io.open(other):read("*a"))
    end)
    assert.has_error(function() s:feed(":save") end, "which file?  :save file")
    assert.has_error(function() s:feed(":save /nowhere/at/all.lua") end)
    os.remove(path)
  end)

  it("shows locals of the last error", function()
    local output = feed("function g() local secret = 41; error('x') end", "g()", ":locals 1")
    assert.is_truthy(output:match("secret = 41"))
  end)

  it("lists its variables", function()
    assert.is_truthy((feed("apple = 3", ":who")):match("apple%s+3"))
  end)

  it("knows no other commands", function()
    assert.is_truthy((feed(":nonsense")):match("unknown command"))
  end)

  it("completes names along a path", function()
    local _, s = feed("fruit = {apple = 1, apricot = 2, pear = 3}")
    local n, list = complete(s.env, "x = fruit.ap")
    assert.equal(2, n)
    assert.same({ "apple", "apricot" }, list)
    assert.same({ "fruit" }, select(2, complete(s.env, "fru")))
    assert.same({}, select(2, complete(s.env, "nothing.at.all")))
  end)

  it("completes operators and their options", function()
    local s = session()
    local _ = ty.sym
    assert.is_truthy(table.concat(select(2, complete(s.env, "ty.sym.FullyC")), " ")
      :find("FullyConnected", 1, true))
    assert.is_truthy(table.concat(select(2,
      complete(s.env, "ty.sym.FullyConnected{data = x, num_h")), " "):find("num_hidden", 1, true))
  end)

  it("completes layers, their options, and methods of blocks", function()
    local _, s = feed("nn = ty.gluon.nn", "net = nn.Dense(3)")
    local function words(text)
      return select(2, complete(s.env, text))
    end
    assert.same({ "Dense" }, words("ty.gluon.nn.Den"))
    assert.is_true(#words("ty.gluon.nn.") > 40)
    assert.same({ "use_bias = " }, words("nn.Dense{us"))
    assert.same({ "hybridize" }, words("net:hyb"))
    assert.same({ "SoftmaxCELoss", "SoftmaxCrossEntropyLoss" }, words("ty.gluon.loss.Soft"))
    assert.same({ "record" }, words("ty.autograd.rec"))
  end)
end)

describe("prompt on a terminal", function()
  local history = os.tmpname()
  local t

  local function open(arguments, environment)
    t = terminal.open(shell.program .. " " .. (arguments or ""),
      ("TERM=xterm TYCHO_HISTORY=%s %s"):format(history, environment or "NO_COLOR=1"))
    t:expect("leaves.")
    t:expect("> ")
  end

  after_each(function()
    if t then
      assert.equal(0, t:close())
    end
    t = nil
  end)

  teardown(function() os.remove(history) end)

  local function line(text, want) t:line(text, want) end

  -- Types without Enter and waits until the line ends in a text.
  local function keys(text, want)
    t:send(text)
    t:expect(want or text)
  end

  it("evaluates lines", function()
    open()
    line("6 * 7", "42")
  end)

  it("says while it records", function()
    open()
    t:send("ty.autograd.begin()\n")
    t:expect("rec> ")
    t:send("no_such_name.x\n")                            -- an error changes nothing
    t:expect("rec> ")
    t:send("ty.autograd.pause(function()\n")
    t:expect(">> ")
    t:send("return 1 end)\n")
    t:expect("rec> ")
    t:send("ty.autograd.finish()\n")
    assert.is_nil(t:expect("> "):find("rec", 1, true))
  end)

  it("leaves at a Ctrl-D pressed while a line was evaluated", function()
    open()
    t:send("io.write('bu', 'sy'); io.flush(); os.execute('sleep 0.3')\n")
    t:expect("busy")
  end)

  it("completes names with Tab and lists what fits", function()
    open()
    line("apple_pie = 31")
    keys("apple_")
    keys("\t", "pie")
    line("", "31")
    line("apple_tart = 3")
    keys("app")
    keys("\t", "le_")
    keys("\t", "apple_pie   apple_tart")
    t:expect("> ")
    line("tart + 10", "13")
  end)

  it("completes options and the words they choose from", function()
    open()
    line("x = ty.sym.Variable('x')")
    keys("ty.sym.Activation{data = x, act")
    keys("\t", "_type = ")
    keys("\"rel")
    keys("\t", "u\"")
    t:send("}\n")
    t:expect("<- x\r\n")
  end)

  it("keeps its history between sessions", function()
    open()
    line("thrush = 11 * 3")
    t:close()
    open()
    keys("thr")
    keys("\27[A", "11 * 3")
    line(" + 1")
    line("thrush", "34")
  end)

  it("survives Ctrl-C: in a line, in a loop, at an empty line", function()
    open()
    line("kept = 5")
    t:send("for i = 1, 2 do\n")
    t:expect(">> ")
    keys("abc")
    for _ = 1, 5 do
      keys("\3", "^C\r\n")
      t:expect("> ")
    end
    t:send("while true do kept = kept + 1 if kept == 1e5 then print('run' .. 'ning') end end\n")
    t:expect("running\r\n")
    keys("\3", "interrupted\r\n")
    t:expect("> ")
    line("kept > 5", "true")
  end)

  it("stops a fit with Ctrl-C, keeps the parameters and can go on", function()
    open()
    line("ty.log.level = 'error'")
    line("net = ty.sym.FullyConnected{ty.sym.Variable('data'), num_hidden = 4, name = 'fc'}")
    line("mod = ty.mod.Module{ty.sym.SoftmaxOutput{net, name = 'softmax'}}")
    line("it = ty.io.NDArrayIter{ty.nd.random.uniform{shape = {64, 8}}, ty.nd.zeros{64}, \z
      batch_size = 8}")
    t:send("mod:fit{train_data = it, num_epoch = 1e9, epoch_end_callback = function() \z
      print('epoch ' .. 'done') end}\n")
    t:expect("epoch done\r\n")
    keys("\3", "interrupted in epoch")
    t:expect("> ")
    line("ty.nd.sum(mod:get_params().fc_weight):asscalar() % 1 >= 0", "true")
    line("it:reset()")                   -- the key may have come after an epoch's last batch
    t:send("mod:fit{train_data = it, num_epoch = 1, epoch_end_callback = function() print('once ' \z
      .. 'more') end}\n")
    t:expect("once more\r\n")
    t:expect("> ")
  end)

  it("calls a block of several lines back as a whole", function()
    open()
    t:send("for i = 1, 2 do\n")
    t:expect(">> ")
    t:send("  print('finch', i)\n")
    t:expect(">> ")
    t:send("end\n")
    t:expect("finch\t2\r\n> ")
    line("1 + 1", "2")
    keys("for", "for")
    keys("\27[A", "end")
    t:send("\n")
    t:expect("finch\t1\r\nfinch\t2\r\n> ")
    t:close()
    open()                                -- and from the file
    keys("for", "for")
    keys("\27[A", "end")
    t:send("\n")
    t:expect("finch\t1\r\nfinch\t2\r\n> ")
  end)

  it("shows long help screen by screen", function()
    local more = "-- any key: more, q: enough -- "
    open()
    line("!stty rows 8")
    t:send(":help\n")
    assert.equal(1 + 7, select(2, t:expect(more):gsub("\n", "")))
    t:send(" ")
    assert.equal(7, select(2, t:expect(more):gsub("\n", "")))
    t:send("q")
    t:expect("> ")
    line("6 * 7", "42")
    line("!stty rows 40")
    t:send("?ty.nd.zeros\n")
    assert.is_falsy(t:expect("\r\n> "):find("any key: more", 1, true))
  end)

  it("writes a summary no wider than the terminal", function()
    open()
    line("!stty cols 70")
    t:send("ty.viz.print_summary(ty.sym.relu(ty.sym.Variable 'data'), {shape = {data = {1, 2}}})\n")
    local rule = t:expect("Total params"):match("__+")
    assert.equal(70, #rule)
  end)

  it("takes pasted functions with blank lines and tabs", function()
    open()
    t:send("function pasted(n)\n\tlocal a = n\n\n\n\treturn a * 2\nend\npasted(21)\n")
    t:expect("42\r\n> ")
  end)

  it("colours what a terminal shows, and nothing with --plain or NO_COLOR", function()
    open("", "NO_COLOR=")
    t:send("error('oh')\n")
    t:expect("\27[31mprompt:1: oh\27[0m")
    t:close()
    for _, way in ipairs{ { "--plain", "NO_COLOR=" }, { "", "NO_COLOR=1" } } do
      open(way[1], way[2])
      t:send("error('oh')\n")
      t:expect("prompt:1: oh\r\n")
      assert.is_falsy(t:screen():find("\27[31m", 1, true))
      t:close()
    end
    t = nil
  end)

  it("comes after a script, also after one that fails", function()
    shell.with_file("script_variable = 12; error('failed')", function(path)
      open("-i " .. path)
      assert.is_truthy(t:screen():find("failed", 1, true))
      t:send("script_variable\n")
      t:expect("12\r\n")
    end)
  end)

  it("holds modules of -l", function()
    open("-l tycho.core.json")
    t:send("type(json)\n")
    t:expect("\"table\"\r\n")
  end)
end)

-- What PyTorch's or NumPy's names and Python's syntax give, at the prompt or in a script.

local foreign = require "tycho.core.foreign"
local manual = require "tycho.prompt.manual"
local Session = require "tycho.prompt"
local shell = require "spec.support.shell"

-- Feeds lines to a new session; returns all it wrote.
local function feed(...)
  local written = {}
  local session = Session.new{ write = function(...)
    for i = 1, select("#", ...) do
      written[#written + 1] = tostring((select(i, ...)))
    end
  end }
  for i = 1, select("#", ...) do
    session:feed((select(i, ...)))
  end
  return table.concat(written)
end

describe("help on a foreign name", function()
  local CASES = {
    ["lstm"] = { "ty.rnn.LSTMCell", "ty.rnn.FusedRNNCell", "ty.sym.RNN" },
    ["torch.cat"] = { "torch.cat is here", "ty.nd.concat" },
    ["nn.Linear"] = { "ty.sym.FullyConnected", "data weight^T + bias" },
    ["view"] = { "NDArray:reshape", "ty.nd.reshape" },
    ["DataLoader"] = { "gluon.data.DataLoader{dataset, ", "ty.io.NDArrayIter" },
    ["state_dict"] = { "Module:get_params", "Block:save_parameters" },
    ["ModuleList"] = { "ty.gluon.nn.Sequential" },
    ["CrossEntropyLoss"] = { "ty.sym.SoftmaxOutput", "ty.gluon.loss.SoftmaxCrossEntropyLoss" },
    ["weight_decay"] = { "ty.optimizer.SGD{wd = ...}", "the weight decay" },
    ["einsum"] = { "batch_dot" },
    ["freeze"] = { "ty.mod.Module{fixed_param_names = ...}" },
    ["out_channels"] = { "ty.sym.Convolution{num_filter = ...}", "channels of the output" },
    ["forward"] = { "Symbol:simple_bind", "Module:forward", "Executor:forward" },
    ["tensorboard"] = { "ty.callback.TensorBoard" },
    ["weight decay"] = { "ty.optimizer.SGD{wd = ...}" },
    ["  early   stopping "] = { "Module:fit{early_stopping = ...}" },
  }
  for name, parts in pairs(CASES) do
    it("says what " .. name .. " is here", function()
      local text = feed("?" .. name)
      for _, part in ipairs(parts) do
        assert.truthy(text:find(part, 1, true), text)
      end
      assert.falsy(text:find("nothing is known", 1, true), text)
    end)
  end

  it("leaves names that are ours alone", function()
    assert.truthy(feed("?dot"):find("^dot%("))
    assert.falsy(feed("?ty.nd.zeros"):find("is here", 1, true))
  end)

  it("has a row for every name of the table, with a meaning of options and functions", function()
    local count, bare, options = 0, {}, {}
    for _, topic in ipairs(foreign.TOPICS) do
      for word in pairs(topic[2]) do
        for row in manual.text(word):gmatch("\n  (%S[^\n]*)") do
          local name, text = row:match("^(%S+ = %.%.%.})%s+(%S.*)$")
          if not name then
            name, text = row:match("^(%S+)%s+(%S.*)$")
          end
          name = name or row
          if not text then
            local list = name:find("{", 1, true) and options or bare
            list[#list + 1] = name
          end
          count = count + 1
        end
      end
    end
    assert.is_true(count > 400, count)
    assert.equal("", table.concat(options, "\n"))
    assert.is_true(#bare < count / 4, #bare)              -- fields, words, modules, x:gt()
  end)
end)

describe("an error of Lua's own at the prompt", function()
  local CASES = {
    ["np.concatenate(1)"] = "np.concatenate is ty.nd.concat here",
    ["torch.tensor{1}"] = "torch.tensor is ty.nd.array here",
    ["x = nn.Linear(3, 4)"] = "nn.Linear is ty.sym.FullyConnected here",
    ["np.zeros(3)"] = "np.zeros is ty.nd.zeros here",
    ["torch.nn.functional.relu(x)"] = "torch.nn.functional.relu is ty.nd.relu here",
    ["torch.einsum('ij,jk->ik', a, b)"] = "write it with dot",
    ["torch.frobnicate(1)"] = "arrays are ty.nd",
    ["tensor{1, 2}"] = "tensor is ty.nd.array here",
    ["len(x)"] = "x:len()", ["help(x)"] = "?name", ["quit()"] = ":quit", ["exit()"] = ":quit",
    ["range(10)"] = "for i = 0, n - 1 do",
    ["x.size()"] = "'size' is a field: write x.size",
    ["x:size()"] = "'size' is a field: write x.size",
    ["x > 2"] = "x:gt(y)",
    ["x:mean(dim=1)"] = "options go in a table",
    ["x[0:2]"] = 'x["0:2, :"]',
    ["x += 1"] = "x:add_(y)",
    ["x != 1"] = "x ~= y",
    ["x @ x"] = "ty.nd.dot(x, y)",
    ["x ** 2"] = "x ^ y",
    ["x[0, 1]"] = 'x["0, 1"] or x[{0, 1}]',
    ["x[:, 1]"] = "a slice is a text",
    ["del x"] = "x = nil",
    ["with torch.no_grad():"] = "autograd.pause(function()",
    ["plt.plot(losses)"] = "plt.plot is ty.viz.plot here",
    ["import numpy as np"] = "require",
    ["from torch import nn"] = "require",
    ["def f(x): return x"] = "function f(x)",
    ["x is None"] = "x == nil",
    ["None"] = "nil, or ty.null",
    ["ty.gluon.nn.Dense(2):parameters()"] = "Module:get_params or Block:collect_params here",
    ["ty.gluon.nn.Dense(2):train()"] = "autograd.record(f)",
    ["x:sum{axis = 0, keepdims = True}"] = "True is Lua's true",
  }
  for line, part in pairs(CASES) do
    it("is answered: " .. line, function()
      local text = feed("x = ty.nd.ones{2, 2}", line)
      assert.truthy(text:find(part, 1, true), text)
    end)
  end

  it("gets no advice where there is none to give", function()
    for _, line in ipairs{ "t[a:len()] = = 1", "y = x[f(1, 2)] = 3", "error('oh')",
        "local t = nil; t.x = 1", "undefined_function()",
        "x = 1 y", "(nil)()" } do
      local text = feed(line)
      assert.falsy(text:find("\n  (", 1, true), text)
    end
  end)

  it("leaves a variable of the session that is called so alone", function()
    assert.equal("3\n5\n", feed("len = function() return 3 end", "len(1)", "None = 5", "None"))
  end)

  it("is looked up in the lines before, where Lua notices it late", function()
    local text = feed("for epoch in range(10):", "print(epoch)", "ty.nd.ones(1)")
    assert.truthy(text:find("for i = 0, n - 1 do", 1, true), text)
  end)

  it("is looked up in the line that the message names", function()
    local text = feed("for i = 1, 2 do", "local y = i", "np.stack(y)", "end")
    assert.truthy(text:find("np.stack is ty.nd.stack here", 1, true), text)
  end)
end)

describe("an error of Lua's own in a script", function()
  local function run(text)
    local output, status
    shell.with_file(text, function(path) output, status = shell.tycho(path) end)
    return output, status
  end

  it("is answered from the script's line", function()
    local output, status = run("local ty = require 'tycho'\nlocal x = np.concatenate(1)\n")
    assert.equal(1, status)
    assert.truthy(output:find(":2: attempt to index global 'np' (a nil value)\n  \z
      (np.concatenate is ty.nd.concat here)", 1, true), output)
    output = run("local x = 1\nx += 1\n")
    assert.truthy(output:find("x:add_(y)", 1, true), output)
  end)

  it("says how arrays and parameters give numbers and texts", function()
    local CASES = {
      { "print('loss ' .. x)", "x:asscalar()" }, { "print(('%.2f'):format(x))", "x:asscalar()" },
      { "print(math.exp(x))", "ty.nd has functions" },
      { "for _, p in pairs(ty.gluon.nn.Dense(2):collect_params()) do p:grad() end", ":items() do" },
      { "print(x < 0)", "x:lt(y)" }, { "for row in x do print(row) end", "local row = x[i]" },
      { "print(ty.gluon.nn.Sequential{ ty.gluon.nn.Dense(2) }[0].weight)", "net[1] is the first" },
      { "print({ 1, 2 } * 2)", "ty.nd.array(list)" },
      { "print(ty.gluon.nn.Dense(2).weight * 2)", "p:data()" },
      { "print(ty.gluon.nn.Dense(2).weight.data[0])", "'data' is a method: write x:data(...)" },
    }
    for _, case in ipairs(CASES) do
      local output = run("local ty = require 'tycho'\nlocal x = ty.nd.ones(1)\n" .. case[1] .. "\n")
      local hint = output:match("\n  (%(.*%))\n$")
      assert.truthy(hint and hint:find(case[2], 1, true), output)
    end
  end)

  it("comes without advice as before", function()
    local output = run("local t = nil\nt.x = 1\n")
    assert.falsy(output:find("\n  (", 1, true), output)
    output = run("undefined_function()\n")
    assert.falsy(output:find("\n  (", 1, true), output)
  end)
end)

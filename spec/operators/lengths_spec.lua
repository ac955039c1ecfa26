-- What is after the end of a sequence counts nowhere: numbers there, and head gradients, change
-- no result, not even NaN.
local ty = require "tycho"
local arrays = require "spec.support.arrays"
require "spec.helper"

local nd, sym, V = ty.nd, ty.sym, ty.sym.Variable
local NAN = 0 / 0

-- Returns x with v in each element i, from 0, for which beyond(i) is true.
local function spoilt(x, beyond, v)
  local y = x:copy()
  local p = y:data()
  for i = 0, y.size - 1 do
    if beyond(i) then p[i] = v end
  end
  return y
end

-- Returns outputs and gradients of a network. given: arguments; heads: of all outputs.
local function results(net, given, heads)
  local grads, reqs, list = {}, {}, {}
  for name, x in pairs(given) do
    grads[name] = nd.full(x.shape, 5, {dtype = x.dtype})
    reqs[name] = (name == "length" or name == "label") and "null" or "write"
  end
  local exe = net:bind{ctx = ty.current_context(), args = given, args_grad = grads, grad_req = reqs}
  exe:forward{is_train = true}
  exe:backward(heads)
  for i, y in ipairs(exe.outputs) do list["output " .. i] = arrays.list(y) end
  for name, g in pairs(grads) do list["gradient of " .. name] = arrays.list(g) end
  return list
end

-- Checks a case: net, given, heads, and of which elements of given and heads nothing may depend
-- (functions by name and by number); own: an output or gradient that keeps its values.
local function check(case)
  local function with(v)
    local given, heads = {}, {}
    for name, x in pairs(case.given) do
      given[name] = case.beyond[name] and spoilt(x, case.beyond[name], v) or x
    end
    for i, h in ipairs(case.heads) do
      heads[i] = case.beyond[i] and spoilt(h, case.beyond[i], v) or h
    end
    return results(case.net, given, heads)
  end
  local clean = with(0.25)
  for _, v in ipairs{NAN, math.huge, 3} do
    for key, list in pairs(with(v)) do
      for i, got in ipairs(list) do
        if not (case.own and case.own[key] and case.own[key](i - 1)) then
          assert(got == clean[key][i], ("%s of %g, element %d: %g, expected %g"):format(
            key, v, i - 1, got, clean[key][i]))
        end
      end
    end
  end
end

local function noise(shape, dtype, seed) return (arrays.noise(shape, seed or 3, dtype)) end

local FLOATS = {"float32", "float64", "float16"}

describe("after the end of a sequence nothing counts:", function()
  it("softmax", function()
    for _, dtype in ipairs(FLOATS) do
      for _, counts in ipairs{"int32", "float32"} do
        for axis, lengths in pairs{[-1] = {{0, 2}, {3, 4}}, [1] = {{2, 0, 1, 2}, {1, 2, 0, 1}}} do
          local x = noise({2, 2, 4}, "float64"):astype(dtype)
          local function beyond(i)
            local row, column, of = math.floor(i / 4) % 2, i % 4, lengths[math.floor(i / 8) + 1]
            if axis == -1 then return column >= of[row + 1] end
            return row >= of[column + 1]
          end
          check{
            net = sym.softmax{V"x", V"length", use_length = true, axis = axis, temperature = 0.5},
            given = {x = x, length = nd.array(lengths, {dtype = counts})},
            heads = {noise({2, 2, 4}, "float64", 9):astype(dtype)}, beyond = {x = beyond, beyond}}
        end
      end
    end
  end)

  it("SequenceMask, SequenceLast and SequenceReverse", function()
    local lengths = {1, 3, 2}
    for _, dtype in ipairs(FLOATS) do
      local given = {x = noise({4, 3, 2}, "float64"):astype(dtype), length = nd.array(lengths)}
      local function beyond(i) return math.floor(i / 6) >= lengths[math.floor(i / 2) % 3 + 1] end
      local heads = {noise({4, 3, 2}, "float64", 9):astype(dtype)}
      local options = {V"x", V"length", use_sequence_length = true, value = nil}
      check{net = sym.SequenceMask(options), given = given, heads = heads,
        beyond = {x = beyond, beyond}}
      check{net = sym.SequenceLast(options), given = given,
        heads = {noise({3, 2}, "float64", 9):astype(dtype)}, beyond = {x = beyond}}
      check{net = sym.SequenceReverse(options), given = given, heads = heads,
        beyond = {x = beyond, beyond}, own = {["output 1"] = beyond, ["gradient of x"] = beyond}}
    end
  end)

  it("CTCLoss", function()
    local steps, labels = {3, 5}, {1, 2}
    local function late(i) return math.floor(i / 8) >= steps[math.floor(i / 4) % 2 + 1] end
    local function is_padding(i) return i % 3 >= labels[math.floor(i / 3) + 1] end
    for _, dtype in ipairs(FLOATS) do
      check{
        net = sym.CTCLoss{data = V"x", label = V"label", data_lengths = V"steps",
          label_lengths = V"length", use_data_lengths = true, use_label_lengths = true},
        given = {x = noise({6, 2, 4}, "float64"):astype(dtype), steps = nd.array(steps),
          label = nd.array{{1, 1, 1}, {2, 3, 3}}, length = nd.array(labels)},
        heads = {noise({2}, "float64", 9):astype(dtype)}, beyond = {x = late, label = is_padding}}
    end
    check{net = sym.CTCLoss{V"x", V"label"},               -- after the first padding
      given = {x = noise({6, 2, 4}), label = nd.array{{1, 0, 1}, {0, 3, 3}}}, heads = {noise({2})},
      beyond = {label = function(i) return i == 2 or i > 3 end}}
  end)

  it("SoftmaxOutput, whose labels say which rows are ignored", function()
    local labels = {{0, 7}, {7, 2}}
    for _, dtype in ipairs(FLOATS) do
      for _, multi in ipairs{true, false} do
        local shape = multi and {2, 3, 2} or {2, 2, 3}
        local function ignored(i)
          local row = math.floor(i / 6) + 1
          return labels[row][(multi and i % 2 or math.floor(i / 3) % 2) + 1] == 7
        end
        check{
          net = sym.SoftmaxOutput{V"x", V"label", use_ignore = true, ignore_label = 7,
            out_grad = true, multi_output = multi, preserve_shape = not multi,
            normalization = "valid"},
          given = {x = noise(shape, "float64"):astype(dtype), label = nd.array(labels)},
          heads = {noise(shape, "float64", 9):astype(dtype)}, beyond = {x = ignored, ignored},
          own = {["output 1"] = ignored}}
      end
    end
  end)

  it("hawkesll", function()
    local lengths = {1, 3}
    local function beyond(i) return i % 4 >= lengths[math.floor(i / 4) + 1] end
    local function positive(shape) return nd.abs(noise(shape)) + 0.1 end
    local function numbers(t) return nd.array(t, {dtype = "float64"}) end
    check{
      net = sym.contrib.hawkesll{lda = V"lda", alpha = V"alpha", beta = V"beta", state = V"state",
        lags = V"lags", marks = sym.Cast{V"label", dtype = "int32"}, valid_length = V"length",
        max_time = V"time"}[1],
      given = {lda = positive{2, 2}, alpha = positive{2}, beta = positive{2},
        state = positive{2, 2}, lags = positive{2, 4}, label = numbers{{0, 1, 1, 0}, {1, 0, 1, 0}},
        length = numbers(lengths), time = numbers{9, 9}},
      heads = {noise({2})}, beyond = {lags = beyond, label = beyond}}
  end)

  it("rows of a loop that were not reached", function()
    local outs = sym.contrib.while_loop(
      function(i) return sym._lesser_scalar{i, scalar = 2} end,
      function(i) return i * V"w", i + 1 end,
      {V"i"}, {max_iterations = 4})
    check{net = outs, given = {i = nd.zeros({1}, {dtype = "float64"}), w = noise({1})},
      heads = {noise({4, 1})}, beyond = {function(i) return i >= 2 end}}
  end)
end)

-- CTCLoss against a sum over all paths: labels that need more steps than there are, lengths, and
-- labels that are no class.
local ty = require "tycho"
local arrays = require "spec.support.arrays"
require "spec.helper"

local nd, sym, V = ty.nd, ty.sym, ty.sym.Variable
local CLASSES, STEPS = 3, 4

-- Returns the label of a path as text: equal neighbours count once, blanks are left out.
local function make_label(path, blank)
  local t = {}
  for i, k in ipairs(path) do
    if k ~= blank and k ~= path[i - 1] then t[#t + 1] = k end
  end
  return table.concat(t, " ")
end

-- Calls f(path) for all paths of n steps.
local function each_path(n, f, path)
  path = path or {}
  if #path == n then return f(path) end
  for k = 0, CLASSES - 1 do
    path[#path + 1] = k
    each_path(n, f, path)
    path[#path] = nil
  end
end

-- Returns the loss of a label under activations x(t, k), and its gradient as a list, by the
-- definition; 0 if there is no path.
local function defined(x, label, steps, blank)
  local p, total, visits = {}, 0, {}
  for t = 1, STEPS do
    local sum = 0
    for k = 0, CLASSES - 1 do sum = sum + math.exp(x(t, k)) end
    for k = 0, CLASSES - 1 do
      p[t * CLASSES + k], visits[t * CLASSES + k] = math.exp(x(t, k)) / sum, 0
    end
  end
  local want = table.concat(label, " ")
  each_path(steps, function(path)
    if make_label(path, blank) ~= want then return end
    local product = 1
    for t, k in ipairs(path) do product = product * p[t * CLASSES + k] end
    total = total + product
    for t, k in ipairs(path) do visits[t * CLASSES + k] = visits[t * CLASSES + k] + product end
  end)
  local grad = {}
  for t = 1, STEPS do
    for k = 0, CLASSES - 1 do
      local at = t * CLASSES + k
      grad[#grad + 1] = (total > 0 and t <= steps) and p[at] - visits[at] / total or 0
    end
  end
  return total > 0 and -math.log(total) or 0, grad
end

local function run(x, label, options, given)
  options.data, options.label = V"x", V"label"
  given.x, given.label = x, label
  for name in pairs(given) do
    if name:find "lengths" then options[name], options["use_" .. name] = V(name), true end
  end
  local grad = nd.full(x.shape, 7, {dtype = x.dtype})
  local exe = sym.CTCLoss(options):bind{ctx = ty.current_context(), args = given,
    args_grad = {x = grad}, grad_req = {x = "write"}}
  exe:forward{is_train = true}
  exe:backward(nd.ones({x.shape[2]}, {dtype = x.dtype}))
  return exe.outputs[1], grad
end

-- Returns every label of up to three classes, padded to four.
local function all_labels(first)
  local list = {{}}
  local least = first and 1 or 0
  for a = least, least + 1 do
    list[#list + 1] = {a}
    for b = least, least + 1 do
      list[#list + 1] = {a, b}
      for c = least, least + 1 do list[#list + 1] = {a, b, c} end
    end
  end
  return list
end

local function check_all(first, dtype, bound, with_lengths)
  local labels, rows, counts, steps = all_labels(first), {}, {}, {}
  local n = #labels
  for i, label in ipairs(labels) do
    rows[i], counts[i], steps[i] = {}, #label, with_lengths and (i - 1) % 5 or STEPS
    for k = 1, STEPS do rows[i][k] = label[k] or (first and 0 or -1) end
  end
  local x = arrays.noise({STEPS, n, CLASSES}, 5):astype(dtype)
  local loss, grad = run(x, nd.array(rows), {blank_label = first and "first" or "last"},
    with_lengths and {data_lengths = nd.array(steps), label_lengths = nd.array(counts)} or {})
  local p, got, g = arrays.list(x), arrays.list(loss), arrays.list(grad)
  for i, label in ipairs(labels) do
    local function element(t, k) return ((t - 1) * n + i - 1) * CLASSES + k + 1 end
    local want, slope = defined(function(t, k) return p[element(t, k)] end, label, steps[i],
      first and 0 or CLASSES - 1)
    local text = ("{%s} in %d steps"):format(table.concat(label, " "), steps[i])
    assert(math.abs(got[i] - want) <= bound, ("%s: %g, expected %g"):format(text, got[i], want))
    for t = 1, STEPS do
      for k = 0, CLASSES - 1 do
        local v = slope[(t - 1) * CLASSES + k + 1]
        assert(math.abs(g[element(t, k)] - v) <= bound, ("%s, gradient of class %d at step %d: \z
          %g, expected %g"):format(text, k, t, g[element(t, k)], v))
      end
    end
  end
end

describe("CTCLoss", function()
  it("is the sum over all paths, and 0 where there is none", function()
    for dtype, bound in pairs{float64 = 1e-9, float32 = 1e-5, float16 = 2e-3} do
      for _, first in ipairs{true, false} do
        check_all(first, dtype, bound, true)
        check_all(first, dtype, bound, false)
      end
    end
  end)

  it("is 0, and not -0, where a label does not fit", function()
    local loss = run(arrays.noise({3, 1, 4}), nd.array{{1, 1, 1}}, {}, {})
    assert.equal(math.huge, 1 / arrays.list(loss)[1])
  end)

  it("refuses labels that are no class", function()
    local function refused(text, label, options, given)
      local e = assert.raises("run", function()
        local loss = run(nd.zeros({3, 1, 4}), nd.array(label), options, given)
        loss:wait_to_read()
      end)
      assert.is_truthy(e.message:find(text, 1, true), e.message)
    end
    local text = "label %d at position %d is not a class; expected 0 to 3"
    local function counted(n) return {label_lengths = nd.array{n}} end
    refused(text:format(4, 1) .. ", of which 0 ends a label", {{1, 4, 0}}, {}, {})
    refused(text:format(-1, 2), {{1, 2, -1}}, {}, {})
    refused(text:format(9, 0) .. ", or -1, which ends a label", {{9, -1, -1}},
      {blank_label = "last"}, {})
    refused(text:format(-2, 1), {{1, -2, -1}}, {blank_label = "last"}, {})
    refused(text:format(4, 1), {{1, 4, 0}}, {}, counted(2))
    refused(text:format(-1, 1), {{1, -1, 0}}, {blank_label = "last"}, counted(2))
    run(nd.zeros({3, 1, 4}), nd.array{{1, 4, -3}}, {}, counted(1)):wait_to_read()
    run(nd.zeros({3, 1, 4}), nd.array{{1, 0, 99}}, {}, {}):wait_to_read()
  end)
end)

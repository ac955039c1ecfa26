--- Rules of operators that are linear in their inputs, or in each of several inputs that are
-- multiplied.
--
-- The core's gradient suffices for derivatives of any order. For y = f(x) and head gradient g let
-- T(g, x) = sum(g f(x)). The gradient of input i is dT/dx_i, which is linear in g and in the other
-- factors of its term. It is recorded as a function (autograd/function.lua). Let h be the gradient
-- that comes back for dT/dx_i: then the gradient with respect to g is f with h in place of x_i, and
-- the gradient with respect to another factor is the core's gradient of f with h in place of x_i.
--
-- @module tycho.autograd.rules.linear

local native = require "tycho.core.ffi"
local pairs = require("tycho.core.iterate").pairs
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local functions = require "tycho.autograd.function"
local gradients = require "tycho.ndarray.gradients"
local modes = require "tycho.autograd.modes"

local C = native.C
local NULL = gradients.request("null")

-- Operator -> its terms, separated by commas: "data weight, bias" is a product of two inputs plus a
-- single input; "*" is the sum of all inputs. The result is constant in other inputs.
local TERMS = {}

local function add_terms(terms, names)
  for name in names:gmatch("%S+") do
    TERMS[name] = terms
  end
end

add_terms("data", [[
  reverse depth_to_space space_to_depth slice slice_axis slice_like tile repeat diag Pad
  _image_crop _image_flip_left_right _image_flip_top_bottom _image_to_tensor _image_normalize
  gather_nd scatter_nd pick _contrib_boolean_mask _sparse_retain
  SequenceLast SequenceMask SequenceReverse SliceChannel _split_v2 _copyto _CrossDeviceCopy
  _contrib_count_sketch _contrib_fft _contrib_ifft _contrib_div_sqrt_dim im2col col2im
  _contrib_AdaptiveAvgPooling2D _contrib_BilinearResize2D _contrib_ROIAlign
  _contrib_PSROIPooling _contrib_DeformablePSROIPooling _contrib_take_along_axis
]])
add_terms("A", "_linalg_extractdiag _linalg_makediag _linalg_extracttrian _linalg_maketrian")
add_terms("a", "take _np_cumsum")
add_terms("weight", "Embedding _contrib_SparseEmbedding")
add_terms("arg0", "Crop")
add_terms("x, y", "where")
add_terms("old_tensor, new_tensor", "_contrib_index_copy")
add_terms("*", "_rnn_param_concat stack amp_multicast")
add_terms("A B", "_linalg_trmm")
add_terms("A B, C", "_linalg_gemm")
add_terms("data weight, bias", [[
  Convolution Convolution_v1 Deconvolution
  _contrib_DeformableConvolution _contrib_ModulatedDeformableConvolution
]])
add_terms("queries_keys_values attention", "_contrib_interleaved_matmul_selfatt_valatt")
add_terms("queries keys_values", "_contrib_interleaved_matmul_encdec_qk")
add_terms("keys_values attention", "_contrib_interleaved_matmul_encdec_valatt")

-- Operator -> values of parameters with which it adds no constant to the terms.
local WITHOUT_CONSTANT = {
  Pad = { constant_value = "0" },
  SequenceMask = { value = "0" },
  _image_normalize = { mean = "(0,)" },
}

-- Names of inputs in which an operator is not linear, although it computes their gradients.
local OTHERS = { offset = true, mask = true, trans = true }


-- Calls -------------------------------------------------------------------------------------------

-- Returns the terms as lists of positions of inputs, from 1.
local function list_positions(terms, names)
  local index_of, list = {}, {}
  for i, name in ipairs(names) do
    index_of[name] = i
    list[i] = { i }
  end
  if terms == "*" then
    return list
  end
  list = {}
  for term in terms:gmatch("[^,]+") do
    local factors = {}
    for name in term:gmatch("%S+") do
      factors[#factors + 1] = index_of[name]
    end
    list[#list + 1] = #factors > 0 and factors or nil
  end
  return list
end


-- Returns a table that all calls for one step share: op, flat (the attributes), homogeneous (the
-- attributes with which the operator adds no constant), nout, terms, train.
local function describe_calls(s, terms)
  local flat, homogeneous, changed = {}, {}, WITHOUT_CONSTANT[s.op] or {}
  for key, value in pairs(s.attrs) do
    flat[#flat + 1], flat[#flat + 2] = key, value
    if not changed[key] then
      homogeneous[#homogeneous + 1], homogeneous[#homogeneous + 2] = key, value
    end
  end
  for key, value in pairs(changed) do
    homogeneous[#homogeneous + 1], homogeneous[#homogeneous + 2] = key, value
  end
  return { op = s.op, flat = flat, homogeneous = homogeneous, nout = s.nvisible,
    terms = list_positions(terms, s.names), train = s.train }
end


-- Returns the outputs of the operator for inputs x. flat: attributes; default: those without
-- constants.
local function apply_operator(c, x, flat)
  return call.many(c.op, "autograd.grad", x, #x, flat or c.homogeneous, {}, c.nout)
end


local function zeros_like(x)
  return call.zeros(x._shape, x._dtype, x._device, "autograd.grad")
end


-- Calls the operator with recording on, and lets the core write the gradients of `variables` into
-- `results`.
local function run_core_backward(c, inputs, g, variables, results)
  local heads, grads = apply_operator(c, inputs, c.flat), {}
  for k = 1, c.nout do
    grads[k] = g[k]
  end
  gradients.run_core("autograd.grad", heads, grads, variables, results,
    bit.bor(C.TY_UNREACHED, c.train and C.TY_TRAIN or 0))
end


-- Returns the core's gradients of the inputs at the positions in `wanted`, as plain arrays.
local function core_gradients(c, x, g, wanted)
  local inputs, variables, results = {}, {}, {}
  for i, v in ipairs(x) do
    inputs[i] = class.detached(v)
  end
  for k, i in ipairs(wanted) do
    gradients.mark(inputs[i], nil, NULL)
    variables[k], results[k] = inputs[i], zeros_like(x[i])
  end
  modes.run(true, c.train, run_core_backward, c, inputs, g, variables, results)
  return results
end


local record_gradients

-- The object of a recorded gradient (functions.record). The inputs of that step are the head
-- gradients, then the operator's inputs; its outputs are the gradients of the inputs at the
-- positions in `wanted`.
local Pull = { class_name = "autograd.grad" }
Pull.__index = Pull


function Pull:_enter_backward(step)
  self.step = step
end


-- Returns the number of factors of the longest term.
local function count_rounds(c)
  local n = 0
  for _, term in ipairs(c.terms) do
    n = math.max(n, #term)
  end
  return n
end


-- Returns the inputs with h in place of the r-th factor of each term (zeros for terms without one),
-- or nil if no h is among them; and the positions of the other factors of terms with an h.
local function replace_factors(c, x, h, r)
  local inputs, rest, any = { unpack(x) }, {}, false
  for _, term in ipairs(c.terms) do
    local at = term[r]
    if at then
      inputs[at] = h[at] or zeros_like(x[at])
      any = any or h[at] ~= nil
    else
      inputs[term[1]] = zeros_like(x[term[1]])
    end
    for k, i in ipairs(term) do
      rest[#rest + 1] = at and k ~= r and h[at] and i or nil
    end
  end
  return any and inputs or nil, rest
end


local function sum_into(list, i, v)
  list[i] = list[i] and list[i] + v or v
end


function Pull:backward(...)
  local c, step, n = self.c, self.step, self.step.nin
  local g, x, h, grads = {}, {}, {}, {}
  self.step = nil
  for i = 1, n do
    local v = step:input(i)
    if i <= c.nout then
      g[i] = v
    else
      x[i - c.nout] = v
    end
  end
  for k, i in ipairs(self.wanted) do
    h[i] = (select(k, ...))
  end
  for r = 1, count_rounds(c) do
    local inputs, rest = replace_factors(c, x, h, r)
    if inputs then
      for k, y in ipairs(apply_operator(c, inputs)) do
        sum_into(grads, k, y)
      end
      for k, v in ipairs(#rest > 0 and record_gradients(c, inputs, g, rest) or {}) do
        sum_into(grads, c.nout + rest[k], v)
      end
    end
  end
  return unpack(grads, 1, n)
end


-- Returns the gradients of the inputs at the positions in `wanted`, recorded if recording is on.
function record_gradients(c, x, g, wanted)
  local inputs = { unpack(g, 1, c.nout) }
  for i, v in ipairs(x) do
    inputs[c.nout + i] = v
  end
  local results = modes.run(false, c.train, core_gradients, c, x, g, wanted)
  return functions.record(inputs, results, setmetatable({ c = c, wanted = wanted }, Pull))
end


-- As rules ----------------------------------------------------------------------------------------

local linear = {}


--- Returns the gradients of a step's inputs.
-- @tparam Visit s the step, see `autograd.higher`
-- @string terms in the form of TERMS
-- @treturn table gradients by input
function linear.gradients(s, terms)
  local c, wanted, grads = describe_calls(s, terms), {}, {}
  for _, term in ipairs(c.terms) do
    for _, i in ipairs(term) do
      wanted[#wanted + 1] = s.wanted[i] and i or nil
    end
  end
  for i, name in ipairs(s.names) do
    if s.wanted[i] and OTHERS[name] then
      s:unsupported()
    end
  end
  if #wanted > 0 then
    local g = {}
    for k = 1, c.nout do
      g[k] = s.g[k]
    end
    for k, v in ipairs(record_gradients(c, s.x, g, wanted)) do
      grads[wanted[k]] = v
    end
  end
  return grads
end


--- Rules by name of operator.
linear.rules = {}
for name, terms in pairs(TERMS) do
  linear.rules[name] = function(s)
    return linear.gradients(s, terms)
  end
end


return linear

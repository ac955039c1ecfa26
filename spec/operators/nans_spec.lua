-- The bits of NaN in results: quiet and without payload, so that LuaJIT, which keeps its values in
-- the bits of NaNs, may read them where they are (x:data()[i]). Either sign on the CPU, whose own
-- NaN is negative. What kernels of a GPU compute is positive: there the hardware's NaN has a
-- payload, and functions of its library change the sign. NaN of both signs in each input and head
-- gradient, for every line of spec/operators/cases.lua; in each input of every element-wise
-- operator.
local attrs = require "tycho.core.attrs"
local ffi = require "ffi"
local ty = require "tycho"
local cases = require "spec.operators.cases"
local device = require "spec.support.device"
local pointwise = require "spec.operators.cases_pointwise"
local trials = require "spec.support.trials"
require "spec.helper"

local NANS = { -(0 / 0), 0 / 0 }

-- what fails where its matrix has a NaN
local FAILS = { _linalg_syevd = true }

local function set(names)
  local t = {}
  for name in names:gmatch("%S+") do t[name] = true end
  return t
end

-- Operators that a GPU leaves to the host have the CPU's NaN.
local hosted = require "spec.cuda.hosted"

-- Operators that pass bytes on, in one direction at least, or leave all to a library's product or
-- decomposition: NaN has the sign that it gets there.
local ANY_SIGN = set[[
  Cast Concat Convolution Convolution_v1 Crop Deconvolution Dropout Flatten FullyConnected MakeLoss
  Pad RNN
  Reshape SequenceLast SequenceMask SequenceReverse SliceChannel SwapAxis UpSampling
  _CrossDeviceCopy _contrib_DeformableConvolution _contrib_attention _contrib_ModulatedDeformableConvolution
  _contrib_box_nms _contrib_index_copy _contrib_interleaved_matmul_encdec_qk
  _contrib_interleaved_matmul_encdec_valatt _contrib_interleaved_matmul_selfatt_qk
  _contrib_interleaved_matmul_selfatt_valatt _copy _copyto _grad_add
  _identity_with_attr_like_rhs _image_crop _image_flip_left_right _image_flip_top_bottom
  _linalg_extractdiag _linalg_extracttrian _linalg_gelqf _linalg_gemm _linalg_gemm2
  _linalg_inverse _linalg_makediag _linalg_maketrian _linalg_potrf _linalg_syrk _minus_scalar
  _plus_scalar _rnn_param_concat _scatter_minus_scalar _scatter_plus_scalar _split_v2 add_n
  amp_cast amp_multicast batch_dot broadcast_axis broadcast_like broadcast_sub broadcast_to
  cast_storage depth_to_space diag dot elemwise_add elemwise_sub expand_dims identity make_loss
  pick repeat reshape_like reverse scatter_nd slice slice_axis slice_like sort space_to_depth
  squeeze stack tile topk transpose where
]]

local positive                                            -- on a GPU: are negative ones refused?

local function is_plain(high, low, is_double)
  local sign_free = bit.band(high, 0x7fffffff)
  local plain = sign_free == (is_double and 0x7ff80000 or 0x7fc00000) and low == 0
  return plain and (high == sign_free or not (device.is_gpu and positive))
end

-- Fails at the first NaN whose bits are others.
local function check(what, x)
  if x.dtype ~= "float64" and x.dtype ~= "float32" then return end
  local raw, is_double = x:tostring_raw(), x.dtype == "float64"
  local p = ffi.cast("const int32_t *", raw)
  local limit = is_double and 0x7ff00000 or 0x7f800000
  for i = 0, x.size - 1 do
    local high, low = p[i], 0
    if is_double then high, low = p[2 * i + 1], p[2 * i] end
    local top = bit.band(high, 0x7fffffff)
    if (top > limit or top == limit and low ~= 0) and not is_plain(high, low, is_double) then
      error(("%s, element %d: NaN of the bits %s%s"):format(what, i, bit.tohex(high),
        is_double and bit.tohex(low) or ""), 0)
    end
  end
end

local function check_all(what, list)
  for k, x in ipairs(list) do check(("%s, result %d"):format(what, k), x) end
end

-- Calls f with NaN of either sign in element i of x.
local function with_nans(x, i, f)
  local was = x:data()[i]
  for _, nan in ipairs(NANS) do
    x:data()[i] = nan
    f()
  end
  x:data()[i] = was
end

describe("NaN has plain bits:", function()
  for line, key in trials.lines(cases) do
    local test = FAILS[line[1]] and function() end or it
    test(key, function()
      positive = not (ANY_SIGN[line[1]] or hosted[line[1]])
      for _, dtype in ipairs{ "float64", "float32" } do
        local random = trials.random(trials.seed("nans", key))
        local case = trials.make(line, random)
        local exe, grads = trials.bind(case, "write", 0, { dtype = dtype })
        local list = {}
        for _, variable in ipairs(attrs.keys(grads)) do list[#list + 1] = grads[variable] end
        for _, variable in ipairs(attrs.keys(case.arrays)) do
          local x = exe.arg_dict[variable]
          if not case.fixed[variable] then
            with_nans(x, random(0, x.size - 1), function()
              check_all(variable, exe:forward{ is_train = true })
              exe:backward(trials.heads(exe, random))
              check_all("gradients under " .. variable, list)
            end)
          end
        end
        exe:forward{ is_train = true }
        local heads = trials.heads(exe, random)
        for k, h in ipairs(heads) do
          with_nans(h, random(0, h.size - 1), function()
            exe:backward(heads)
            check_all("gradients under head gradient " .. k, list)
          end)
        end
      end
    end)
  end

  -- numbers, and NaN of both signs
  local POINTS = { NANS[1], NANS[2], -3, -0.5, 0, 0.5, 1, 3, math.huge }

  local function call(name, options, inputs, dtype)
    for k, x in ipairs(inputs) do options[k] = x end
    local ok, y = pcall(ty.nd[name], options)
    if ok then check(("%s in %s"):format(name, dtype), y) end
    return ok
  end

  local function column(list, dtype) return ty.nd.array(list, { dtype = dtype }) end

  it("element-wise operators of one input", function()
    for name in pairs(pointwise.unary) do
      positive = not (ANY_SIGN[name] or hosted[name])
      for _, dtype in ipairs{ "float64", "float32" } do
        local options = {}
        for key, v in pairs(pointwise.params[name] or {}) do options[key] = v end
        assert.is_true(call(name, options, { column(POINTS, dtype) }, dtype), name)
      end
    end
  end)

  it("element-wise operators of two inputs, or one and a number", function()
    local a, b = {}, {}
    for _, x in ipairs(POINTS) do
      for _, y in ipairs(POINTS) do a[#a + 1], b[#b + 1] = x, y end
    end
    positive = true
    for _, dtype in ipairs{ "float64", "float32" } do
      for name in pairs(pointwise.binary) do
        assert.is_true(call(name, {}, { column(a, dtype), column(b, dtype) }, dtype), name)
      end
      for name in pairs(pointwise.scalar) do
        for _, number in ipairs{ -1, 0, 2, math.huge } do
          local ok = call(name, { scalar = number }, { column(POINTS, dtype) }, dtype)
          assert.is_true(ok, name)
        end
      end
    end
  end)
end)

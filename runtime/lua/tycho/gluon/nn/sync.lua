--- BatchNorm with the statistics of all slices of a batch that is divided among devices.
--
-- Each device computes mean and variance of its slice. These are shared by all devices
-- (`tycho.autograd.late`), which combine them in the same order, so that their moving averages are
-- bit-equal. The gradient is that of these calls, across the devices.
--
-- @module tycho.gluon.nn.sync

local Error = require "tycho.core.error"
local late = require "tycho.autograd.late"
local nd = require "tycho.ndarray"
local recording = require "tycho.ndarray.recording"

local sync = {}


-- Returns the axes of an array other than 1, from 0, and the number of elements along them.
local function other_axes(x)
  local axes, count = { 0 }, x.shape[1]
  for i = 3, x.ndim do
    axes[#axes + 1], count = i - 1, count * x.shape[i]
  end
  return axes, count
end


-- Returns the mean and the variance of each channel, and the number of elements, as one vector.
local function own_statistics(x)
  local axes, count = other_axes(x)
  local m = nd.moments{ x, axes = axes }
  local number = nd.full({ 1 }, count, { ctx = x.context, dtype = x.dtype })
  return nd.concat{ m[1], m[2], number, dim = 0 }
end


-- Returns the mean and the variance of each channel over all slices.
local function combine(parts, channels)
  local mean, var, total, n = {}, {}, nil, {}
  for i, part in ipairs(parts) do
    mean[i] = nd.slice_axis{ part, axis = 0, begin = 0, ["end"] = channels }
    var[i] = nd.slice_axis{ part, axis = 0, begin = channels, ["end"] = 2 * channels }
    n[i] = nd.slice_axis{ part, axis = 0, begin = 2 * channels, ["end"] = 2 * channels + 1 }
    total = total and total + n[i] or n[i]
  end
  local all_mean, all_var
  for i = 1, #parts do
    n[i] = n[i] / total
    local term = nd.broadcast_mul(mean[i], n[i])
    all_mean = all_mean and all_mean + term or term
  end
  for i = 1, #parts do
    local term = nd.broadcast_mul(var[i] + nd.square(mean[i] - all_mean), n[i])
    all_var = all_var and all_var + term or term
  end
  return all_mean, all_var
end


local function per_channel(v, x)
  local shape = { 1, -1 }
  for i = 3, x.ndim do
    shape[i] = 1
  end
  return v:reshape(shape)
end


-- Layers ------------------------------------------------------------------------------------------

local layers = setmetatable({}, { __mode = "kv" })       -- gamma -> layer


--- Registers a layer, so that `layer_of` finds it by its gamma.
-- @tparam SyncBatchNorm layer
function sync.add_layer(layer)
  layers[layer.gamma] = layer
end


--- Returns the layer of a gamma.
-- @tparam Parameter gamma
-- @treturn ?SyncBatchNorm nil if there is none
function sync.layer_of(gamma)
  return layers[gamma]
end


-- Returns the codes of the devices that share statistics with that of x, and its position among
-- them.
local function find_sharing(layer, all, x)
  local share = math.min(layer._num_devices or #all, #all)
  local list, at = {}, nil
  for i, value in ipairs(all) do
    at = value._device == x._device and i or at
  end
  local before = at - 1 - (at - 1) % share
  for i = before + 1, math.min(before + share, #all) do
    list[#list + 1] = all[i]._device
  end
  return list, at - before
end


local function fail_not_recorded(layer, n)
  Error.raise{ code = "state", func = "SyncBatchNorm", argument = layer.name,
    message = ("'%s' shares the statistics of %d devices while calls are recorded: use \z
      autograd.record, or autograd.predict_mode for the moving averages"):format(layer.name, n) }
end


--- Normalizes a slice by the statistics of all slices, and updates the running averages. Without
-- recording it raises E(state), since the other slices are missing.
-- @tparam SyncBatchNorm layer
-- @tparam NDArray x
-- @tparam NDArray gamma
-- @tparam NDArray beta
-- @tparam NDArray running_mean
-- @tparam NDArray running_var
-- @treturn ?NDArray nil if BatchNorm itself must run: for a single device, or outside training
function sync.forward(layer, x, gamma, beta, running_mean, running_var)
  local all = rawget(layer.gamma, "_data")
  if #all < 2 or layer._use_global_stats or not recording.training then
    return nil
  end
  local devices, at = find_sharing(layer, all, x)
  if #devices < 2 then
    return nil
  elseif not recording.on then
    fail_not_recorded(layer, #devices)
  end
  local wide = x._dtype == gamma._dtype and x or x:astype(gamma.dtype)
  local parts = late.share(layer, layer.name, devices, at, own_statistics(wide))
  local mean, var = combine(parts, gamma.shape[1])
  nd._moving_average{ mean, running_mean, momentum = layer._momentum }
  nd._moving_average{ var, running_var, momentum = layer._momentum }
  local scale = nd.rsqrt(var + layer._eps)
  if not layer._fix_gamma then
    scale = scale * gamma
  end
  local y = nd.broadcast_add(nd.broadcast_mul(nd.broadcast_sub(wide, per_channel(mean, x)),
    per_channel(scale, x)), per_channel(beta, x))
  return wide == x and y or y:astype(x.dtype)
end


return sync

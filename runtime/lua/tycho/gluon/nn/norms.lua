--- Normalizing layers: BatchNorm, BatchNormReLU, SyncBatchNorm, LayerNorm, InstanceNorm, GroupNorm.
--
-- Each computes (x - mean) / sqrt(variance + epsilon) gamma + beta. With scale = false gamma, and
-- with center = false beta, exists but is not trained. Output and input have the same shape.
--
-- @module tycho.gluon.nn.norms

local Error = require "tycho.core.error"
local F = require "tycho.symbol.either"
local layer = require "tycho.gluon.layer"
local HybridBlock = require "tycho.gluon.hybrid_block"
local nd = require "tycho.ndarray"
local Parameter = require "tycho.gluon.parameter"
local sync = require "tycho.gluon.nn.sync"

local node_name = layer.node_name
local norms = {}


-- Makes a vector as the parameter `name` of a layer. Without `trained` it can never have a
-- gradient.
local function make_vector(self, name, size, initializer, trained)
  self[name] = self.params:get(name, { shape = { size }, init = initializer,
    grad_req = trained and "write" or "null", allow_deferred_init = true,
    differentiable = trained })
end


-- Makes a vector like `make_vector`. Without `trained` it has no gradient, but the user may give it
-- one.
local function make_trainable_vector(self, name, size, initializer, trained)
  self[name] = self.params:get(name, { shape = { size }, init = initializer,
    grad_req = trained and "write" or "null", allow_deferred_init = true })
end


-- Batches -----------------------------------------------------------------------------------------

-- The gamma of a layer without scale: its values are always 1, even after `set_data`.
local FixedGamma = Parameter:extend("Parameter")

function FixedGamma:set_data(x)
  FixedGamma.super.set_data(self, nd.ones_like(nd._as_array(x, self.dtype, "Parameter:set_data")))
end


local STATISTICS = {
  { "beta_initializer", "any", "zeros" }, { "gamma_initializer", "any", "ones" },
  { "running_mean_initializer", "any", "zeros" },
  { "running_variance_initializer", "any", "ones" },
}

local function set_up_statistics(self, a)
  self._axis, self._eps, self._momentum = a.axis or 1, a.epsilon, a.momentum
  self._fix_gamma, self._use_global_stats = not a.scale, a.use_global_stats
  make_vector(self, "gamma", a.in_channels, a.scale and a.gamma_initializer or "ones", a.scale)
  if not a.scale then
    setmetatable(self.gamma, FixedGamma)
  end
  make_vector(self, "beta", a.in_channels, a.beta_initializer, a.center)
  make_vector(self, "running_mean", a.in_channels, a.running_mean_initializer, false)
  make_vector(self, "running_var", a.in_channels, a.running_variance_initializer, false)
end


local BATCH = layer.joined(layer.joined({
  { "axis", "integer", 1 }, { "momentum", "number", 0.9 }, { "epsilon", "number", 1e-5 },
  { "center", "boolean", true }, { "scale", "boolean", true },
  { "use_global_stats", "boolean", false },
}, STATISTICS), { { "in_channels", "integer", 0 } })

--- Normalizes each channel over the batch and all other axes. In training mode it uses the
-- statistics of the batch and updates the running averages; outside training mode, or with
-- use_global_stats = true, it uses the running averages. A cast to float16 or bfloat16 leaves the
-- parameters float32. Options: axis = 1, momentum = 0.9, epsilon = 1e-5, center = true, scale =
-- true, use_global_stats = false, in_channels = 0 (determined by the first input), initializers.
-- @type BatchNorm
local BatchNorm = layer.extend(HybridBlock, "nn.BatchNorm", BATCH)

BatchNorm.set_up = set_up_statistics


function BatchNorm._cast_type(_, _, dtype)
  return layer.statistics_type(dtype)
end


function BatchNorm:forward(x)
  return F.BatchNorm{ x, self.gamma:data(x), self.beta:data(x), self.running_mean:data(x),
    self.running_var:data(x), axis = self._axis, eps = self._eps, momentum = self._momentum,
    fix_gamma = self._fix_gamma, use_global_stats = self._use_global_stats, name = node_name(x) }
end


layer.describe(BatchNorm, function(self)
  local show = layer.show
  local channels = self.gamma.shape[1]
  return ("%s(axis=%s, eps=%s, momentum=%s, fix_gamma=%s, use_global_stats=%s, in_channels=%s)")
    :format(self.class_name, show(self._axis), show(self._eps), show(self._momentum),
      show(self._fix_gamma), show(self._use_global_stats), show(channels ~= 0 and channels or nil))
end)


--- Computes BatchNorm and then relu as one operator.
-- @type BatchNormReLU
local BatchNormReLU = layer.extend(BatchNorm, "nn.BatchNormReLU", BATCH)

function BatchNormReLU:forward(x)
  return F.contrib.BatchNormWithReLU{ x, self.gamma:data(x), self.beta:data(x),
    self.running_mean:data(x), self.running_var:data(x), axis = self._axis, eps = self._eps,
    momentum = self._momentum, fix_gamma = self._fix_gamma,
    use_global_stats = self._use_global_stats, name = node_name(x) }
end


--- Normalizes the channels of axis 1 of a batch that is divided among devices: statistics, results
-- and gradients are those of BatchNorm on all slices together. The devices are those of the
-- parameters, or groups of `num_devices` of them.
--
-- While recording, call the network on each device, then backward, for all losses at once or one
-- after the other. The calls on a device run only after the layer was called on all devices;
-- reading a result earlier is E(`state`).
-- @type SyncBatchNorm
local SyncBatchNorm = layer.extend(BatchNorm, "nn.SyncBatchNorm", layer.joined({
  { "in_channels", "integer", 0 }, { "num_devices", "integer?" }, { "momentum", "number", 0.9 },
  { "epsilon", "number", 1e-5 }, { "center", "boolean", true }, { "scale", "boolean", true },
  { "use_global_stats", "boolean", false },
}, STATISTICS))

function SyncBatchNorm:set_up(a)
  if a.num_devices and a.num_devices < 1 then
    Error.raise{ code = "value", func = "nn.SyncBatchNorm", argument = "num_devices",
      expected = "at least 1", got = a.num_devices, message = "bad 'num_devices'" }
  end
  set_up_statistics(self, a)
  self._num_devices = a.num_devices
  sync.add_layer(self)
end


function SyncBatchNorm:forward(x)
  local gamma, beta, mean, var = self.gamma:data(x), self.beta:data(x), self.running_mean:data(x),
    self.running_var:data(x)
  if getmetatable(x) == nd.NDArray then
    local y = sync.forward(self, x, gamma, beta, mean, var)
    if y then
      return y
    end
  elseif self._num_devices ~= 1 then
    return F.contrib.SyncBatchNorm{ x, gamma, beta, mean, var, eps = self._eps,
      momentum = self._momentum, fix_gamma = self._fix_gamma,
      use_global_stats = self._use_global_stats, key = self.prefix, name = node_name(x) }
  end
  return SyncBatchNorm.super.forward(self, x)
end


-- Samples -----------------------------------------------------------------------------------------

local function describe_sample_norm(self)
  local show = layer.show
  return ("%s(eps=%s, axis=%s, center=%s, scale=%s, in_channels=%s)"):format(self.class_name,
    show(self._eps), show(self._axis), show(self._center), show(self._scale),
    show(self.gamma.shape[1]))
end


local function set_up_sample_norm(self, a)
  self._axis, self._eps, self._center, self._scale = a.axis, a.epsilon, a.center, a.scale
  make_trainable_vector(self, "gamma", a.in_channels, a.gamma_initializer, a.scale)
  make_trainable_vector(self, "beta", a.in_channels, a.beta_initializer, a.center)
end


-- Returns the parameters of a form for norms over one sample.
local function make_spec(axis, scale)
  return { { "axis", "integer", axis }, { "epsilon", "number", 1e-5 },
    { "center", "boolean", true }, { "scale", "boolean", scale },
    { "beta_initializer", "any", "zeros" }, { "gamma_initializer", "any", "ones" },
    { "in_channels", "integer", 0 } }
end


--- Normalizes along an axis of each sample: axis = -1. Options: epsilon = 1e-5, center = true,
-- scale = true, in_channels = 0 (determined by the first input), initializers.
-- @type LayerNorm
local LayerNorm = layer.extend(HybridBlock, "nn.LayerNorm", make_spec(-1, true))

LayerNorm.set_up = set_up_sample_norm


function LayerNorm:forward(x)
  return F.LayerNorm{ x, self.gamma:data(x), self.beta:data(x), axis = self._axis,
    eps = self._eps }
end


layer.describe(LayerNorm, describe_sample_norm)


--- Normalizes each channel of each sample over the other axes; axis = 1 is the axis of channels.
-- Options: epsilon = 1e-5, center = true, scale = false, in_channels = 0, initializers.
-- @type InstanceNorm
local InstanceNorm = layer.extend(HybridBlock, "nn.InstanceNorm", make_spec(1, false))

InstanceNorm.set_up = set_up_sample_norm


function InstanceNorm:forward(x)
  local gamma, beta, axis = self.gamma:data(x), self.beta:data(x), self._axis
  if axis == 1 then
    return F.InstanceNorm{ x, gamma, beta, eps = self._eps, name = node_name(x) }
  end
  local swapped = F.swapaxes{ x, dim1 = 1, dim2 = axis }
  local y = F.InstanceNorm{ swapped, gamma, beta, eps = self._eps, name = node_name(x) }
  return F.swapaxes{ y, dim1 = 1, dim2 = axis }
end


layer.describe(InstanceNorm, describe_sample_norm)


--- Normalizes each group of channels (axis 1) of each sample; gamma and beta have an entry per
-- group.
-- @type GroupNorm
local GroupNorm = layer.extend(HybridBlock, "nn.GroupNorm", {
  { "num_groups", "positive", 1 }, { "epsilon", "number", 1e-5 }, { "center", "boolean", true },
  { "scale", "boolean", true }, { "beta_initializer", "any", "zeros" },
  { "gamma_initializer", "any", "ones" },
})

function GroupNorm:set_up(a)
  self._num_groups, self._eps, self._center, self._scale =
    a.num_groups, a.epsilon, a.center, a.scale
  make_trainable_vector(self, "gamma", a.num_groups, a.gamma_initializer, a.scale)
  make_trainable_vector(self, "beta", a.num_groups, a.beta_initializer, a.center)
end


function GroupNorm:forward(x)
  return F.GroupNorm{ x, self.gamma:data(x), self.beta:data(x), num_groups = self._num_groups,
    eps = self._eps }
end


layer.describe(GroupNorm, function(self)
  local show = layer.show
  return ("%s(eps=%s, num_groups=%s, center=%s, scale=%s)"):format(self.class_name,
    show(self._eps), show(self._num_groups), show(self._center), show(self._scale))
end)


norms.BatchNorm, norms.BatchNormReLU, norms.SyncBatchNorm = BatchNorm, BatchNormReLU, SyncBatchNorm
norms.LayerNorm, norms.InstanceNorm, norms.GroupNorm = LayerNorm, InstanceNorm, GroupNorm

return norms

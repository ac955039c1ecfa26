--- Normalizing layers: BatchNorm, BatchNormReLU, SyncBatchNorm, LayerNorm, InstanceNorm, GroupNorm.
--
-- Each has `gamma` and `beta`; without `scale` or `center` they exist and are not trained.
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


-- Makes the parameter `name` of a layer, a vector; without `trained` it has no gradient and is not
-- differentiable.
local function vector(self, name, size, initializer, trained)
  self[name] = self.params:get(name, { shape = { size }, init = initializer,
    grad_req = trained and "write" or "null", allow_deferred_init = true,
    differentiable = trained })
end


-- Makes a vector as `vector` does, which stays differentiable, so that the user may train it later.
local function trainable_vector(self, name, size, initializer, trained)
  self[name] = self.params:get(name, { shape = { size }, init = initializer,
    grad_req = trained and "write" or "null", allow_deferred_init = true })
end


-- Batches -----------------------------------------------------------------------------------------

-- The gamma of a layer without scale: its values are 1 whatever is set.
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
  vector(self, "gamma", a.in_channels, a.scale and a.gamma_initializer or "ones", a.scale)
  if not a.scale then
    setmetatable(self.gamma, FixedGamma)
  end
  vector(self, "beta", a.in_channels, a.beta_initializer, a.center)
  vector(self, "running_mean", a.in_channels, a.running_mean_initializer, false)
  vector(self, "running_var", a.in_channels, a.running_variance_initializer, false)
end


local BATCH = layer.joined(layer.joined({
  { "axis", "integer", 1 }, { "momentum", "number", 0.9 }, { "epsilon", "number", 1e-5 },
  { "center", "boolean", true }, { "scale", "boolean", true },
  { "use_global_stats", "boolean", false },
}, STATISTICS), { { "in_channels", "integer", 0 } })

--- Each channel with mean 0 and variance 1 over the batch, times gamma, plus beta. In training mode
-- the running averages move; outside it, or with `use_global_stats`, they are used. A cast to
-- float16 or bfloat16 leaves the parameters float32.
-- @type BatchNorm
local BatchNorm = layer.extend(HybridBlock, "nn.BatchNorm", BATCH)

BatchNorm.set_up = set_up_statistics


function BatchNorm:cast(dtype)
  local half = dtype == "float16" or dtype == "bfloat16"
  BatchNorm.super.cast(self, half and "float32" or dtype)
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


--- BatchNorm and relu as one operator.
-- @type BatchNormReLU
local BatchNormReLU = layer.extend(BatchNorm, "nn.BatchNormReLU", BATCH)

function BatchNormReLU:forward(x)
  return F.contrib.BatchNormWithReLU{ x, self.gamma:data(x), self.beta:data(x),
    self.running_mean:data(x), self.running_var:data(x), axis = self._axis, eps = self._eps,
    momentum = self._momentum, fix_gamma = self._fix_gamma,
    use_global_stats = self._use_global_stats, name = node_name(x) }
end


--- BatchNorm over the channels of axis 1, of a batch that is spread over devices: statistics,
-- results and gradients are those of BatchNorm on all slices together. The devices are those of the
-- parameters, or the groups of `num_devices` among them.
--
-- While recording, the layer is called on each device, then backward: of all losses at once, or
-- loss by loss. What a device computes runs when all have been called; reading it before is
-- E(state).
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
  trainable_vector(self, "gamma", a.in_channels, a.gamma_initializer, a.scale)
  trainable_vector(self, "beta", a.in_channels, a.beta_initializer, a.center)
end


-- Returns the parameters of a form for norms over one sample.
local function sample_norm(axis, scale)
  return { { "axis", "integer", axis }, { "epsilon", "number", 1e-5 },
    { "center", "boolean", true }, { "scale", "boolean", scale },
    { "beta_initializer", "any", "zeros" }, { "gamma_initializer", "any", "ones" },
    { "in_channels", "integer", 0 } }
end


--- Mean 0 and variance 1 along an axis, times gamma, plus beta.
-- @type LayerNorm
local LayerNorm = layer.extend(HybridBlock, "nn.LayerNorm", sample_norm(-1, true))

LayerNorm.set_up = set_up_sample_norm


function LayerNorm:forward(x)
  return F.LayerNorm{ x, self.gamma:data(x), self.beta:data(x), axis = self._axis,
    eps = self._eps }
end


layer.describe(LayerNorm, describe_sample_norm)


--- Mean 0 and variance 1 of each channel of each sample, times gamma, plus beta.
-- @type InstanceNorm
local InstanceNorm = layer.extend(HybridBlock, "nn.InstanceNorm", sample_norm(1, false))

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


--- Mean 0 and variance 1 of each group of channels of each sample; gamma and beta have an entry per
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
  trainable_vector(self, "gamma", a.num_groups, a.gamma_initializer, a.scale)
  trainable_vector(self, "beta", a.num_groups, a.beta_initializer, a.center)
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

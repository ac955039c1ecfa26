--- The computation of an estimator for a batch, which a subclass may change.
--
--     local Mixup = ty.gluon.contrib.estimator.BatchProcessor:extend("Mixup")
--     function Mixup:fit_batch(estimator, batch, batch_axis) ... return data, label, pred, loss end
--
-- @module tycho.gluon.contrib.estimator.batch_processor

local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local gradients = require "tycho.autograd.backward"
local modes = require "tycho.autograd.modes"
local utils = require "tycho.gluon.utils"

--- The base class of batch processors.
-- @type BatchProcessor
local BatchProcessor = Class:extend("BatchProcessor")


-- Returns the data and the labels of a batch, each as a list of slices, one per device. A batch
-- without labels is E(value).
local function split_batch(estimator, batch, batch_axis)
  if batch[2] == nil then
    Error.raise{ code = "value", func = "Estimator", argument = "batch",
      expected = "batches of data and labels", got = "batches of data alone",
      message = "a batch of the loader has no labels; another BatchProcessor may do without" }
  end
  local options = { batch_axis = batch_axis }
  return utils.split_and_load(batch[1], estimator.context, options),
    utils.split_and_load(batch[2], estimator.context, options)
end


-- Computes a batch. Returns the outputs of the network and the losses, each a list with one per
-- slice.
local function compute_losses(net, loss, data, label)
  local preds, losses = {}, {}
  for i, x in ipairs(data) do
    preds[i] = net(x)
    losses[i] = loss(preds[i], label[i])
  end
  return preds, losses
end


--- Runs network, loss and backward for a batch; GradientUpdateHandler calls the trainer.
-- @param estimator
-- @tparam table batch list of its fields: data, labels
-- @int batch_axis
-- @treturn {NDArray,...} data, a slice per device
-- @treturn {NDArray,...} labels
-- @treturn {NDArray,...} predictions
-- @treturn {NDArray,...} losses
function BatchProcessor:fit_batch(estimator, batch, batch_axis)
  local data, label = split_batch(estimator, batch, batch_axis)
  local preds, losses = modes.run(true, true, compute_losses, estimator.net, estimator.loss, data,
    label)
  gradients.backward(losses)
  return data, label, preds, losses
end


--- Runs network and loss for a batch.
-- @param estimator
-- @tparam table batch
-- @int batch_axis
-- @treturn {NDArray,...} data, a slice per device
-- @treturn {NDArray,...} labels
-- @treturn {NDArray,...} predictions
-- @treturn {NDArray,...} losses
function BatchProcessor:evaluate_batch(estimator, batch, batch_axis)
  local data, label = split_batch(estimator, batch, batch_axis)
  local preds, losses = compute_losses(estimator.val_net, estimator.val_loss, data, label)
  return data, label, preds, losses
end


return BatchProcessor

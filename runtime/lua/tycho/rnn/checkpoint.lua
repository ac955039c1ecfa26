--- Checkpoints of networks with recurrent cells. Parameters are stored by gate, so that fused and
-- single cells can read each other's files.
--
-- @module tycho.rnn.checkpoint

local args = require "tycho.core.args"
local base = require "tycho.rnn.base"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local model = require "tycho.model.checkpoint"
local values = require "tycho.core.values"

local checkpoint = {}


-- Returns a list of cells, from a cell or a list.
local function list_cells(cells, func)
  local list = values.is_plain(cells) and cells or { cells }
  for _, cell in ipairs(list) do
    if not Class.is_a(cell, base.BaseRNNCell) then
      Error.raise{ code = "type", func = func, argument = "cells",
        expected = "a cell or a list of cells", got = Error.kind(cell), message = "bad 'cells'" }
    end
  end
  return list
end


local SAVE = args.form("rnn.save_rnn_checkpoint", {
  { "cells", "any" }, { "prefix", "text" }, { "epoch", "integer" }, { "symbol", "symbol|null?" },
  { "arg_params", "dict?" }, { "aux_params", "dict?" },
})

--- Writes a checkpoint with the cells' weights by gate.
-- @param cells a cell or a list of cells
-- @string prefix
-- @int epoch
-- @param symbol `ty.null`: only the parameters are written
-- @tparam table arg_params
-- @tparam table aux_params
function checkpoint.save_rnn_checkpoint(...)
  local a = SAVE(...)
  local params = a.arg_params or {}
  for _, cell in ipairs(list_cells(a.cells, "rnn.save_rnn_checkpoint")) do
    params = cell:unpack_weights(params)
  end
  model.save_checkpoint(a.prefix, a.epoch, a.symbol, params, a.aux_params)
end


local LOAD = args.form("rnn.load_rnn_checkpoint", {
  { "cells", "any" }, { "prefix", "text" }, { "epoch", "integer" },
})

--- Reads a checkpoint and packs the cells' weights.
-- @param cells a cell or a list of cells
-- @string prefix
-- @int epoch
-- @treturn Symbol
-- @treturn table arg_params
-- @treturn table aux_params
function checkpoint.load_rnn_checkpoint(...)
  local a = LOAD(...)
  local cells = list_cells(a.cells, "rnn.load_rnn_checkpoint")
  local net, params, aux = model.load_checkpoint(a.prefix, a.epoch)
  for _, cell in ipairs(cells) do
    params = cell:pack_weights(params)
  end
  return net, params, aux
end


local DO = args.form("rnn.do_rnn_checkpoint", {
  { "cells", "any" }, { "prefix", "text" }, { "period", "integer", 1 },
})

--- Returns an epoch callback that saves a checkpoint after every `period` epochs.
-- @param cells a cell or a list of cells
-- @string prefix
-- @int[opt=1] period
function checkpoint.do_rnn_checkpoint(...)
  local a = DO(...)
  local cells, period = list_cells(a.cells, "rnn.do_rnn_checkpoint"), math.max(a.period, 1)
  return function(epoch, net, arg_params, aux_params)
    if (epoch + 1) % period == 0 then
      checkpoint.save_rnn_checkpoint(cells, a.prefix, epoch + 1, net, arg_params, aux_params)
    end
  end
end


return checkpoint

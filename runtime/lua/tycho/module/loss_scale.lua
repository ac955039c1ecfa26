--- Loss scaling: gradients of float16 and bfloat16 networks are computed multiplied by a factor, so
-- that small ones do not become zero, and divided by it where they are used (not for users).
--
-- A group binds the symbol that `make_symbol` returns: an operator `_scale_gradient` follows the
-- inputs of losses, and every head that is not a loss; it reads its factor from one array per
-- device. A change of the scale therefore compiles nothing. The optimizer divides, in its own
-- precision. A step whose gradients overflow is skipped.
--
-- @module tycho.module.loss_scale

jit.off(true, true)                                      -- makes graphs: core/iterate.lua

local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local nd = require "tycho.ndarray"
local node = require "tycho.symbol.node"
local registry = require "tycho.op.registry"
local symbol = require "tycho.symbol.symbol"

local FUNC = "Module:fit"
local NAME = "_loss_scale"
local FIRST, MOST, LEAST = 2 ^ 15, 2 ^ 24, 1             -- FIRST fits into float16
local PATIENCE = 2000                                    -- steps without overflow before it doubles

--- The scale of a training.
local LossScale = Class:extend("LossScale")


--- @tparam number|string given a constant scale, or "dynamic": doubled after 2000 steps without
--   overflow, halved after a gradient overflows
-- @string[opt] func for errors
function LossScale:init(given, func)
  local number = type(given) == "number"
  if given ~= "dynamic" and not (number and given > 0 and given < math.huge) then
    Error.raise{ code = "value", func = func or FUNC, argument = "loss_scale",
      expected = "a number above 0 or \"dynamic\"", got = Error.show(given),
      message = "bad 'loss_scale'" }
  end
  self.dynamic, self.scale, self.good, self.arrays = not number, number and given or FIRST, 0, {}
  --- Number of skipped steps.
  self.skipped = 0
end


-- Symbols -----------------------------------------------------------------------------------------

local function is_loss(n)
  if n.custom then
    return not n.custom.__custom_reads__:find("g", 1, true)
  end
  return n.op ~= nil and registry.find(n.op).is_loss
end


-- Returns a new entry: a node that multiplies the gradient of the given entry by the scale.
local function scaled(entry, name, variable)
  local n = node.operator(registry.find("_scale_gradient"), name, {}, -1, FUNC, entry[1].where)
  n.inputs = { entry, { variable, 0 } }
  return { n, 0 }
end


-- Raises E(unsupported) for a loss inside the body of a control-flow node.
local function refuse_bodies(n)
  for _, body in ipairs(n.bodies or {}) do
    for _, inner in ipairs(node.walk(body._entries)) do
      if is_loss(inner) then
        Error.raise{ code = "unsupported", func = FUNC, argument = "loss_scale", node = inner.name,
          message = ("the loss '%s' in a body of '%s' cannot be scaled; put it after")
            :format(inner.name, n.name) }
      end
    end
  end
end


-- Multiplies the gradients of the losses' inputs by the scale, in place in the graph. Auxiliary
-- states, which have no gradients, are left out.
local function scale_inputs(entries, variable)
  for _, n in ipairs(node.walk(entries)) do
    refuse_bodies(n)
    for i, input in ipairs(is_loss(n) and n.inputs or {}) do
      if not n.ports.mutated[i] then
        n.inputs[i] = scaled(input, ("%s_scale%d"):format(n.name, i - 1), variable)
      end
    end
  end
end


--- Returns a symbol with the same values, whose gradients are multiplied by the scale.
-- @tparam Symbol given
-- @treturn Symbol
function LossScale.make_symbol(given)
  local variable, entries = node.variable(NAME, {}, nil), node.copy(given._entries)
  scale_inputs(entries, variable)
  for i, entry in ipairs(entries) do
    if not is_loss(entry[1]) then
      entries[i] = scaled(entry, ("%s_scale"):format(node.output_name(entry[1], entry[2])),
        variable)
    end
  end
  return symbol.Symbol.of(entries)
end


--- Returns the array of the scale on a device, for an executor of `make_symbol`; nil for other
-- names.
function LossScale:find_array(name, device)
  if name ~= NAME then
    return nil
  end
  if not self.arrays[device] then
    local x = class.keep((call.zeros({ 1 }, args.DTYPES.float32, device, FUNC)))
    self.arrays[device] = call.fill(x, self.scale, FUNC)
  end
  return self.arrays[device]
end


-- Steps -------------------------------------------------------------------------------------------

-- Sets the scale on all devices and begins to count good steps anew.
local function set(self, scale)
  self.scale, self.good = scale, 0
  for _, x in pairs(self.arrays) do
    call.fill(x, scale, FUNC)
  end
end


-- Returns whether all gradients are finite, by one operator for each device and element type. Later
-- sums over devices and ranks are formed in the gradients' type, so each gradient may be at most
-- the type's largest number divided by the number of terms.
local function all_finite(parts, ranks)
  local groups, flags = {}, {}
  for _, part in ipairs(parts) do
    for _, copies in ipairs(part[1]) do
      local terms = #copies * ranks
      for _, g in ipairs(copies) do
        local key = g._device .. " " .. g._dtype
        groups[key] = groups[key] or {}
        table.insert(groups[key], terms > 1 and g * terms or g)
      end
    end
  end
  for _, list in pairs(groups) do
    flags[#flags + 1] = nd.multi_all_finite(list, { num_arrays = #list })
  end
  for _, flag in ipairs(flags) do
    if flag:asscalar() == 0 then
      return false
    end
  end
  return true
end


--- Returns whether the step can be taken; if not, a dynamic scale is halved. Waits for the
-- gradients.
-- @tparam table parts see module/gradients.lua
-- @tparam[opt] table ranks see module/ranks.lua; all ranks take a step, or none does
function LossScale:can_step(parts, ranks)
  local good = all_finite(parts, ranks and ranks:count() or 1)
  if ranks then
    good = ranks:all(good)
  end
  if not good then
    self.skipped = self.skipped + 1
    set(self, self.dynamic and math.max(self.scale / 2, LEAST) or self.scale)
    return false
  end
  return true
end


--- Counts a successful step; after PATIENCE of them a dynamic scale is doubled, up to MOST.
function LossScale:stepped()
  self.good = self.good + 1
  if self.dynamic and self.good >= PATIENCE then
    set(self, math.min(self.scale * 2, MOST))
  end
end


--- Runs f while the optimizers divide gradients by the scale.
-- @tparam table updaters the result of a module's `_updaters`
-- @tparam function f
function LossScale:divided(updaters, f)
  local before = {}
  for i, pair in ipairs(updaters) do
    local o = pair[1].optimizer
    before[i], o.rescale_grad = o.rescale_grad, o.rescale_grad / self.scale
  end
  local ok, e = pcall(f)
  for i, pair in ipairs(updaters) do
    pair[1].optimizer.rescale_grad = before[i]
  end
  if not ok then
    error(e, 0)
  end
end


--- Returns the state, for the file of a training.
function LossScale:state()
  return { scale = self.scale, good = self.good, skipped = self.skipped }
end


--- Continues from a result of `state`; a constant scale is not changed.
function LossScale:go_on(state)
  if state and self.dynamic then
    set(self, state.scale)
    self.good = state.good
  end
  self.skipped = state and state.skipped or 0
end


return LossScale

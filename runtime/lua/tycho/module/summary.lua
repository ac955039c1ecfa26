--- Summary of a network: shapes, parameters, operations, memory and, after a profile, each layer's
-- share of the time. Adds a method to Module.
--
-- @module tycho.module.summary

local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local DTYPES = args.DTYPES
local node = require "tycho.symbol.node"
local pairs = require("tycho.core.iterate").pairs
local tables = require "tycho.core.tables"
local units = require "tycho.core.units"

local Module = {}                                        -- methods, for module/module.lua

local BACKWARD = "_backward$"

--- A list of layers: name, op, shape, parameters, flops, bytes, time. Fields: parameters, flops,
-- bytes, time (sums), memory (of the module, if it is bound).
-- @type Summary
local Summary = Class:extend("Summary")


-- Time --------------------------------------------------------------------------------------------

-- Returns the nanoseconds of each node, forward and backward together, from the profiler's sums,
-- and the sum over all nodes. Time of operators that ran as one counts for the first of them.
local function sum_times(order)
  local known, times, total = {}, {}, 0
  for _, n in ipairs(order) do
    known[n.name] = n.op ~= nil
  end
  for _, row in ipairs(require("tycho.core.profiler").sums()) do
    local name = row.kind == "span" and row.category == "operator" and row.node:match("^%S+")
    name = name and (known[name] and name or name:gsub(BACKWARD, ""))
    if name and known[name] then
      times[name], total = (times[name] or 0) + row.total, total + row.total
    end
  end
  return times, total
end


-- Rows --------------------------------------------------------------------------------------------

local function shapes_of_outputs(n, shapes)
  local list = {}
  for k = 0, n.op and n.ports.nvisible - 1 or 0 do
    list[k + 1] = shapes[node.output_name(n, k)]
  end
  return list
end


-- Returns the bytes of a node's outputs.
local function count_bytes(n, shapes, dtypes)
  local sum = 0
  for k, shape in ipairs(shapes) do
    local dtype = DTYPES[dtypes[node.output_name(n, k - 1)]] or DTYPES.float32
    sum = sum + tables.product(shape) * class.BYTES[dtype]
  end
  return sum
end


-- Returns the number of operations of a node.
local function operations(n, shapes)
  local ins = {}
  for i, input in ipairs(n.inputs) do
    ins[i] = shapes[node.output_name(input[1], input[2])]
  end
  return require("tycho.symbol.flops").of(n.op, n.attrs, ins, shapes_of_outputs(n, shapes))
end


function Summary:init(symbol, given, memory, func)
  local viz_summary = require "tycho.viz.summary"        -- few programs ask for a summary
  local order = node.walk(symbol._entries)
  local shapes = viz_summary.shapes(symbol, given, func)
  local dtypes = viz_summary.dtypes(symbol, {}, func)
  local times, total = sum_times(order)
  local parameters = {}
  for _, row in ipairs(viz_summary.rows(symbol, given, func)) do
    parameters[row[1]] = row[4]
  end
  self.parameters, self.flops, self.bytes, self.time = 0, 0, 0, total
  self.memory = memory
  for _, n in ipairs(order) do
    if n.op or n == order[1] then
      local outputs = shapes_of_outputs(n, shapes)
      local layer = { name = n.name, op = n.op or "input", shape = tables.copied(outputs[1]),
        parameters = parameters[n.name] or 0, flops = n.op and operations(n, shapes) or 0,
        bytes = count_bytes(n, outputs, dtypes), time = times[n.name] or 0 }
      self[#self + 1] = layer
      for _, key in ipairs{ "parameters", "flops", "bytes" } do
        self[key] = self[key] + layer[key]
      end
    end
  end
end


-- Text --------------------------------------------------------------------------------------------

-- Returns lines with the cells of rows in columns, numbers aligned to the right, and the widths of
-- the columns.
local function aligned(rows, is_number)
  local widths, lines = {}, {}
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do
      widths[i] = math.max(widths[i] or 0, #cell)
    end
  end
  for k, row in ipairs(rows) do
    local cells = {}
    for i, cell in ipairs(row) do
      local space = (" "):rep(widths[i] - #cell)
      cells[i] = is_number[i] and space .. cell or cell .. space
    end
    lines[k] = table.concat(cells, "  "):gsub("%s+$", "")
  end
  return lines, widths
end


local function memory_lines(memory)
  local lines, parts = {}, {}
  for _, key in ipairs{ "pool", "params", "grads", "aux" } do
    if type(memory[key]) == "number" then
      parts[#parts + 1] = ("%s %s"):format(key, units.bytes(memory[key]))
    end
  end
  lines[1] = parts[1] and "memory      " .. table.concat(parts, ", ") or nil
  return lines
end


function Summary:__tostring()
  local head = { "layer", "operator", "output", "parameters", "FLOP", "bytes",
    self.time > 0 and "time" or nil }
  local rows = { head }
  for _, layer in ipairs(self) do
    rows[#rows + 1] = { layer.name, layer.op, table.concat(layer.shape, "x"),
      ("%.0f"):format(layer.parameters), units.count(layer.flops), units.bytes(layer.bytes),
      self.time > 0 and ("%.1f %%"):format(100 * layer.time / self.time) or nil }
  end
  local lines = aligned(rows, { false, false, false, true, true, true, true })
  local width = 0
  for _, line in ipairs(lines) do
    width = math.max(width, #line)
  end
  table.insert(lines, 2, ("-"):rep(width))
  lines[#lines + 1] = ("-"):rep(width)
  lines[#lines + 1] = ("parameters  %.0f"):format(self.parameters)
  lines[#lines + 1] = ("FLOP        %s of a forward pass"):format(units.count(self.flops))
  lines[#lines + 1] = ("outputs     %s, before they share memory"):format(units.bytes(self.bytes))
  for _, line in ipairs(self.memory and memory_lines(self.memory) or {}) do
    lines[#lines + 1] = line
  end
  return table.concat(lines, "\n")
end


local FORM = args.form("Module:summary", { { "shape", "dict?" } })

--- Returns a summary of the network: `print(mod:summary())` is a table with the shapes, parameters,
-- operations and bytes of each layer. Operations are those of a forward pass: for products two for
-- each pair of factors (a multiplication and an addition), for other operators one for each
-- element. After a profile of this network (`ty.profiler` with `aggregate_stats`, for example over
-- an epoch) the last column is each layer's share of the time, forward and backward.
-- @tparam[opt] table shape argument name -> shape; default: the bound shapes
-- @treturn Summary list of `{name, op, shape, parameters, flops, bytes, time}` with the sums
-- @raise E(shape) if shapes are missing
function Module:summary(...)
  local a, given = FORM(...), {}
  for _, list in ipairs(self.binded and { self.data_shapes, self.label_shapes or {} } or {}) do
    for _, desc in ipairs(list) do
      given[desc[1]] = desc[2]
    end
  end
  for name, shape in pairs(a.shape or {}) do
    given[name] = shape
  end
  return Summary(self.symbol, given, self.binded and not a.shape and self:memory() or nil,
    "Module:summary")
end


return Module

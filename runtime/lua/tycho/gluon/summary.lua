--- A table of a block's layers for given inputs: shapes of outputs, numbers of parameters.
--
-- @module tycho.gluon.summary

local pairs = require("tycho.core.iterate").pairs
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local NDArray = require("tycho.ndarray").NDArray
local values = require "tycho.core.values"

local WIDTH = 80                                         -- columns, as in the reference
local LINE = "%20s  %42s %15s"


-- Returns shapes as text: "(2, 3)" for an array, "(2, 3), (4,)" for a list of two, with brackets
-- around nested lists. Other values are converted by tostring.
local function show_shapes(v, inside)
  if Class.is_a(v, NDArray) then
    local shape = v._shape
    return "(" .. table.concat(shape, ", ") .. (#shape == 1 and ",)" or ")")
  elseif not values.is_plain(v) then
    return v == nil and "None" or tostring(v)
  end
  local parts = {}
  for i = 1, table.maxn(v) do
    parts[i] = show_shapes(v[i], true)
  end
  local text = table.concat(parts, ", ")
  return inside and "[" .. text .. "]" or text
end


local CONTAINERS = { Sequential = true, HybridSequential = true }

-- Returns whether a block only calls its children in turn.
local function is_container(block)
  local class = getmetatable(block)
  while class do
    if CONTAINERS[class.class_name] then
      return true
    end
    class = rawget(class, "super")
  end
  return false
end


-- Adds to each block that is not a container a hook that appends a row. Returns the function that
-- removes the hooks. seen: set of the parameters in the rows so far. Raises E(state) for a
-- hybridized block.
local function add_hooks(b, rows, seen)
  local handles = {}

  local function note(block, _, outputs)
    local row = { name = ("%s-%d"):format(block.class_name, #rows), shape = show_shapes(outputs),
      params = 0, trainable = 0, shared = 0 }
    for _, p in ipairs(block.params:values()) do
      local size = p:list_data()[1].size
      row.params = row.params + size
      row.trainable = row.trainable + (p.grad_req == "null" and 0 or size)
      row.shared = row.shared + (seen[p] and size or 0)
      seen[p] = true
    end
    rows[#rows + 1] = row
  end

  b:apply(function(block)
    if rawget(block, "_active") then
      Error.raise{ code = "state", func = "Block:summary", argument = block.name,
        message = ("block '%s' is hybridized, so its layers are not called one by one; call \z
          hybridize(false) first"):format(block.name) }
    end
  end)
  b:apply(function(block)
    if not is_container(block) then
      handles[#handles + 1] = block:register_forward_hook(note)
    end
  end)
  return function()
    for _, handle in ipairs(handles) do
      handle:detach()
    end
  end
end


local function sum_column(rows, key)
  local total = 0
  for _, row in ipairs(rows) do
    total = total + row[key]
  end
  return total
end


local function format_rows(rows)
  local lines = { ("-"):rep(WIDTH), LINE:format("Layer (type)", "Output Shape", "Param #"),
    ("="):rep(WIDTH) }
  for _, row in ipairs(rows) do
    lines[#lines + 1] = LINE:format(row.name, row.shape, ("%d"):format(row.params))
  end
  local total, trainable = sum_column(rows, "params"), sum_column(rows, "trainable")
  local shared = sum_column(rows, "shared")
  for _, line in ipairs{ ("="):rep(WIDTH),
      "Parameters in forward computation graph, duplicate included",
      "   Total params: " .. total, "   Trainable params: " .. trainable,
      "   Non-trainable params: " .. total - trainable,
      "Shared params in forward computation graph: " .. shared,
      "Unique parameters in model: " .. total - shared, ("-"):rep(WIDTH) } do
    lines[#lines + 1] = line
  end
  return table.concat(lines, "\n")
end


-- Removes the hooks of operators, since blocks with such hooks run their traces and do not call
-- their layers. Returns the function that restores the hooks.
local function suspend_watches(b)
  local watches = {}
  b:apply(function(block)
    watches[block] = rawget(block, "_watch")
    rawset(block, "_watch", nil)
  end)
  return function()
    for block, watch in pairs(watches) do
      rawset(block, "_watch", watch)
    end
  end
end


--- Runs a block once and returns a table of its layers. Hooks of operators are not called.
-- @tparam Block b E(state) if it is hybridized
-- @param ... inputs of a call
-- @treturn string
return function(b, ...)
  local rows = { { name = "Input", shape = show_shapes({ ... }), params = 0, trainable = 0,
    shared = 0 } }
  local remove = add_hooks(b, rows, {})
  local put_back = suspend_watches(b)
  local ok, e = pcall(b, ...)
  put_back()
  remove()
  if not ok then
    error(e, 0)
  end
  return format_rows(rows)
end

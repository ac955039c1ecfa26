--- The table of a network: one block per node with its output shape, parameters and inputs.
--
-- What is counted, and how, is the reference's: parameters follow from the sizes of the
-- inputs' first axis behind the batch, so a product over an unflattened image is
-- counted too small there and here.
--
-- @module tycho.viz.summary

local pairs = require("tycho.core.iterate").pairs
local Error = require "tycho.core.error"
local inference = require "tycho.symbol.inference"
local node = require "tycho.symbol.node"
local tables = require "tycho.core.tables"

local viz_summary = {}

--- The text that `print_summary` wrote last; the prompt does not write it again.
viz_summary.written = nil


-- What is inferred about every output of every node, variables included: name -> result.
local function inferred(symbol, kind, given, func)
  local inside = symbol:get_internals()
  local _, found = inference.results(inside, kind,
    inference.given(nil, given, node.walk(inside._entries), func), true, func)
  local by_name = {}
  for i, name in ipairs(inside:list_outputs()) do
    by_name[name] = found[i]
  end
  return by_name
end


--- Shapes of all outputs by name.
-- @tparam Symbol symbol
-- @tparam[opt] table given shapes by argument name; nil: none are asked for
-- @string func for errors
-- @treturn table name -> shape, or nil; E(shape) when they do not follow from what was given
function viz_summary.shapes(symbol, given, func)
  local shapes = given and inferred(symbol, inference.SHAPES, given, func)
  for name, shape in pairs(shapes or {}) do
    if not tables.is_known(shape) then
      Error.raise{ code = "shape", func = func, argument = "shape",
        expected = "shapes of all data and label arguments", got = shape,
        message = ("input shapes are incomplete: that of '%s' does not follow from them")
          :format(name) }
    end
  end
  return shapes
end


--- Element types of all outputs by name; unknown ones are left out.
function viz_summary.dtypes(symbol, given, func)
  return given and inferred(symbol, inference.DTYPES, given, func)
end


--- "3x8x8" for {2, 3, 8, 8}.
function viz_summary.without_batch(shape)
  return shape and #shape > 1 and table.concat(shape, "x", 2) or ""
end


-- Rows --------------------------------------------------------------------------------------------

local function sizes(text)
  local list = {}
  for size in (text or ""):gmatch("%d+") do
    list[#list + 1] = tonumber(size)
  end
  return list
end


-- Operators with parameters: count(attributes, channels that come in, shape of the output)
local COUNT = {
  Convolution = function(a, channels)
    local filters = tonumber(a.num_filter)
    local weights =
      math.floor(channels * filters / tonumber(a.num_group or 1)) * tables.product(sizes(a.kernel))
    return a.no_bias == "True" and weights or weights + filters
  end,
  FullyConnected = function(a, channels)
    return (a.no_bias == "True" and channels or channels + 1) * tonumber(a.num_hidden)
  end,
  BatchNorm = function(_, _, shape)
    return shape and 2 * (shape[2] or 0) or 0
  end,
  Embedding = function(a)
    return tonumber(a.input_dim) * tonumber(a.output_dim)
  end,
}


local function channels_of(inputs, shapes)
  local channels = 0
  for _, input in ipairs(inputs) do
    local shape = shapes and shapes[input.op and input.name .. "_output" or input.name]
    channels = channels + (shape and shape[2] or 0)
  end
  return channels
end


-- The first argument and all operators count as layers; weights, labels and the like do not.
local function layers_before(n, first)
  local list = {}
  for _, input in ipairs(n.inputs) do
    if input[1].op or input[1] == first then
      list[#list + 1] = input[1]
    end
  end
  return list
end


--- The rows of the table: `{name, op, shape, parameters, inputs}`, op "null" for an argument.
-- @tparam Symbol symbol
-- @tparam[opt] table shapes by output name
function viz_summary.rows(symbol, shapes)
  local order = node.walk(symbol._entries)
  local rows = {}
  for _, n in ipairs(order) do
    if n.op or n == order[1] then
      local inputs, names = layers_before(n, order[1]), {}
      for i, input in ipairs(inputs) do
        names[i] = input.name
      end
      local shape = shapes and shapes[n.op and n.name .. "_output" or n.name]
      local count = COUNT[n.op]
      rows[#rows + 1] = { n.name, n.op or "null", viz_summary.without_batch(shape),
        count and count(n.attrs, channels_of(inputs, shapes), shape) or 0, names }
    end
  end
  return rows
end


-- Text --------------------------------------------------------------------------------------------

local function columns(fields, ends)
  local line = ""
  for i, field in ipairs(fields) do
    line = (line .. field):sub(1, ends[i])
    line = line .. (" "):rep(ends[i] - #line)
  end
  return line
end


local function column_ends(positions, length)
  local ends, fractions = {}, positions[#positions] <= 1
  for i, p in ipairs(positions) do
    ends[i] = math.floor(fractions and p * length or p)
  end
  return ends
end


local function count_text(n)
  return ("%.0f"):format(n)
end


--- The table as text.
-- @tparam table rows of `rows`
-- @int length of a line, characters
-- @tparam {number,...} positions where the four columns end: characters, or fractions of the length
function viz_summary.text(rows, length, positions)
  local ends, total = column_ends(positions, length), 0
  local lines = { ("_"):rep(length), columns({ "Layer (type)", "Output Shape", "Param #",
    "Previous Layer" }, ends), ("="):rep(length) }
  for i, row in ipairs(rows) do
    total = total + row[4]
    lines[#lines + 1] = columns({ ("%s(%s)"):format(row[1], row[2]), row[3], count_text(row[4]),
      row[5][1] or "" }, ends)
    for k = 2, #row[5] do
      lines[#lines + 1] = columns({ "", "", "", row[5][k] }, ends)
    end
    lines[#lines + 1] = (i == #rows and "=" or "_"):rep(length)
  end
  lines[#lines + 1] = "Total params: " .. count_text(total)
  lines[#lines + 1] = ("_"):rep(length)
  return table.concat(lines, "\n") .. "\n"
end


return viz_summary

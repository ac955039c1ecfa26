--- The table of a network: one block for each node, with its output shape, parameters and inputs.
--
-- Parameters are the variables that are neither inputs nor auxiliary states. Their sizes are
-- inferred; each counts once, at the first node that reads it. The reference instead counts
-- parameters of four operators from the size of an input's second axis.
--
-- @module tycho.viz.summary

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local Error = require "tycho.core.error"
local inference = require "tycho.symbol.inference"
local node = require "tycho.symbol.node"
local tables = require "tycho.core.tables"

local viz_summary = {}

-- Returns the inferred shape or type of every output of every node, variables included, by name.
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


--- Returns the shapes of all outputs by name.
-- @tparam Symbol symbol
-- @tparam[opt] table given shapes by argument name; nil: returns nil
-- @string func for errors
-- @treturn ?table name -> shape; E(shape) if the given shapes do not determine all others
function viz_summary.shapes(symbol, given, func)
  local shapes = given and inferred(symbol, inference.SHAPES, given, func)
  for name, shape in pairs(shapes or {}) do
    if not tables.is_known(shape) then
      Error.raise{ code = "shape", func = func, argument = "shape",
        expected = "shapes of all data and label arguments", got = shape,
        message = ("input shapes are incomplete: that of '%s' does not follow from them%s")
          :format(name, next(given) == nil and "; give shape = {data = {32, 784}}" or "") }
    end
  end
  return shapes
end


--- Returns the element types of all outputs by name, except for unknown ones.
function viz_summary.dtypes(symbol, given, func)
  return given and inferred(symbol, inference.DTYPES, given, func)
end


--- Returns a shape without its first axis as text: "3x8x8" for {2, 3, 8, 8}.
function viz_summary.without_batch(shape)
  return shape and #shape > 1 and table.concat(shape, "x", 2) or ""
end


-- Rows --------------------------------------------------------------------------------------------

-- Names of inputs that take parameters, and endings of the names of parameters.
local PARAMETER_PORTS = tables.positions{ "weight", "bias", "gamma", "beta", "parameters" }
local PARAMETER_ENDS = { "_weight$", "_bias$", "_gamma$", "_beta$", "_parameters$" }


local function has_end(name)
  for _, ending in ipairs(PARAMETER_ENDS) do
    if name:find(ending) then
      return true
    end
  end
  return false
end


-- Returns how a graph uses each variable, by node: auxiliary; input (read as a label or a state);
-- weight (read as a parameter by some operator); reader (the first operator that reads it).
local function readings(order)
  local read = {}
  for _, n in ipairs(order) do
    for i, input in ipairs(n.op and n.inputs or {}) do
      local variable = not input[1].op and input[1]
      if variable then
        local port = n.ports.inputs[i] or ""
        local r = read[variable] or { reader = n }
        r.auxiliary = r.auxiliary or n.ports.mutated[i] == true
        r.input = r.input or port:find("^label") ~= nil or port:find("^state") ~= nil
        r.weight = r.weight or PARAMETER_PORTS[port] ~= nil
        read[variable] = r
      end
    end
  end
  return read
end


-- Returns the shapes for a batch of twice the size; nil if the network works with one size only.
local function shapes_of_twice(symbol, given, func)
  local twice = {}
  for name, shape in pairs(given) do
    local sizes = type(shape) == "table" and tables.copied(shape) or { shape }
    if sizes[1] and not has_end(name) then
      sizes[1] = 2 * sizes[1]
    end
    twice[name] = sizes
  end
  local ok, shapes = pcall(inferred, symbol, inference.SHAPES, twice, func)
  return ok and shapes or nil
end


-- Returns whether a variable is a parameter: not given as an input, not a label or a state, no name
-- that ends in "data", and no size that depends on the batch.
local function is_parameter(variable, r, given, shapes, twice)
  if not r or r.auxiliary or r.input or variable.name:find("data$") then
    return false
  elseif r.weight or has_end(variable.name) then
    return true
  end
  local name = variable.name
  local follows = twice and twice[name] and not tables.same(twice[name], shapes[name])
  return given[name] == nil and not follows
end


-- Returns, by node, the number of elements of the parameters that the node is the first one to
-- read.
local function counts(symbol, order, shapes, given, func)
  local read, twice, found = readings(order), shapes_of_twice(symbol, given, func), {}
  for _, n in ipairs(order) do
    local r = not n.op and read[n]
    if r and is_parameter(n, r, given, shapes, twice) then
      found[r.reader] = (found[r.reader] or 0) + tables.product(shapes[n.name])
    end
  end
  return found
end


-- Returns the inputs of a node that the table lists: operators and the first argument, but no
-- weights and labels.
local function layers_before(n, first)
  local list = {}
  for _, input in ipairs(n.inputs) do
    if input[1].op or input[1] == first then
      list[#list + 1] = input[1]
    end
  end
  return list
end


--- Returns the rows of the table: `{name, op, shape, parameters, inputs}`; op is "null" for an
-- argument.
-- @tparam Symbol symbol
-- @tparam ?table given shapes by argument name
-- @string func for errors; E(shape) if the given shapes do not determine all others
function viz_summary.rows(symbol, given, func)
  local order = node.walk(symbol._entries)
  local shapes = viz_summary.shapes(symbol, given or {}, func)
  local count = counts(symbol, order, shapes, given or {}, func)
  local rows = {}
  for _, n in ipairs(order) do
    if n.op or n == order[1] then
      local inputs, names = layers_before(n, order[1]), {}
      for i, input in ipairs(inputs) do
        names[i] = input.name
      end
      local shape = shapes[n.op and n.name .. "_output" or n.name]
      rows[#rows + 1] = { n.name, n.op or "null", viz_summary.without_batch(shape), count[n] or 0,
        names }
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


--- Returns the table as text.
-- @tparam table rows the result of `rows`
-- @int length of a line in characters
-- @tparam {number,...} positions ends of the four columns: characters, or fractions of the length
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

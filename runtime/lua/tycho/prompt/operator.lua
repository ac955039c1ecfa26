--- Descriptions of operators in the registry: call, parameters, examples. The prompt's help and the
-- reference pages use them.
--
-- @module tycho.prompt.operator

local operator = {}

local KEYWORD = { ["and"] = true, ["end"] = true, ["not"] = true, ["or"] = true, ["repeat"] = true }

-- Inputs that are made automatically or are optional: examples leave them out.
local MADE = {}
for name in ("weight bias gamma beta moving_mean moving_var moving_avg label parameters state \z
    state_cell sequence_length data_lengths label_lengths mask length like bins valid_length \z
    offset"):gmatch("%S+") do
  MADE[name] = true
end


-- Returns the names of ports without marks; hidden and private ports are left out.
local function port_names(ports)
  local names = {}
  for _, port in ipairs(ports) do
    if not port:find("^[%[{]") then
      local name, counter = port:gsub("!", ""):match("^([^*]*)(%*?)")
      names[#names + 1] = counter == "*" and name .. "..." or name
    end
  end
  return names
end


--- Returns the call as a line: "FullyConnected(data, weight, bias) -> output".
-- @tparam table info the result of `ty.op.info`
function operator.signature(info)
  return ("%s(%s) -> %s"):format(info.name, table.concat(port_names(info.inputs), ", "),
    table.concat(port_names(info.outputs), ", "))
end


--- Returns a default as a Lua expression; nil for a required parameter.
-- @tparam table p an entry of `info.params`
function operator.default(p)
  local text = p.default
  if text == nil then
    return nil
  elseif text == "None" then
    return "ty.null"
  elseif p.type:find("^boolean") and (text == "0" or text == "False") then
    return "false"
  elseif p.type:find("^boolean") and (text == "1" or text == "True") then
    return "true"
  elseif tonumber(text) then
    return text
  elseif text:find("^[%(%[]") then
    return (text:gsub("[%(%[]", "{"):gsub(",?[%)%]]", "}"):gsub("None", "ty.null"))
  end
  return ("%q"):format(text)
end


--- Returns the words that a parameter accepts; nil for other parameters.
function operator.choices(p)
  local list = p.type:match("^one of ([^ ]+)")
  local words = {}
  for word in (list or ""):gmatch("[^|]+") do
    words[#words + 1] = word
  end
  return list and words
end


-- Returns a range without limits that are those of a C int: "[1,]" for "[1,2147483647]".
local function plain_range(low, high)
  low, high = low:gsub("^%-2147483648$", ""), high:gsub("^2147483647$", "")
  return low .. high == "" and "" or (" in [%s,%s]"):format(low, high)
end


--- Returns the type of a parameter in words: "integer in [1,]", "relu, sigmoid or tanh".
function operator.type_text(p)
  local words = operator.choices(p)
  if words then
    words[#words + 1] = p.type:match("^one of [^ ]+ or None") and "ty.null" or nil
    local last = table.remove(words)
    return #words > 0 and table.concat(words, ", ") .. " or " .. last or last
  end
  return (p.type:gsub("^int%f[ %z]", "integer"):gsub("^Shape%(tuple%)", "shape")
    :gsub("^tuple of ints", "list of integers"):gsub("^tuple of floats", "list of numbers")
    :gsub("^float%f[ %z]", "number"):gsub("^string", "text"):gsub(" or None", " or ty.null")
    :gsub(" in %[([^,]*),([^%]]*)%]", plain_range))
end


-- Returns the spelling of a name that is a Lua keyword: "end_" for "end".
local function spelled(name)
  return KEYWORD[name] and name .. "_" or name
end


-- Examples ----------------------------------------------------------------------------------------

-- Values of required parameters, by name.
local SAMPLES = { num_hidden = "4", num_filter = "8", kernel = "{3, 3}", lr = "0.1", wd = "0.01",
  eta = "1", eps = "1e-6", t = "1", lrs = "{0.1}", wds = "{0.01}", etas = "{1}",
  learning_rates = "{0.1}", step_count = "{1}", input_dim = "10", output_dim = "4", depth = "5",
  num_outputs = "3", axis = "0", begin = "{0, 1}", ["end"] = "{2, 3}", shape = "{2, 3}",
  repeats = "2", reps = "{2, 1}", block_size = "2", heads = "2", a_min = "0", a_max = "1",
  min_factor = "0.5", max_factor = "1.5", start = "0", stop = "1", num = "5", value = "1", N = "3",
  low = "0", high = "10", nsize = "5", w = "4", h = "4" }

local DEFAULT = "2 3"                                    -- default shape of an input


-- Returns the row of an operator in prompt/examples.lua.
local function row_of(info)
  return require("tycho.prompt.examples")[info.name] or {}
end


-- Returns an example value of a required parameter as a Lua expression.
local function sample(p)
  local words = operator.choices(p)
  if SAMPLES[p.name] then
    return SAMPLES[p.name]
  elseif words then
    return ("%q"):format(words[1])
  elseif p.type:find("^dtype") then
    return '"float16"'
  end
  return p.type:match("%[(%d+),") or "1"
end


-- Returns the parameters of an example: a list of {name, value}.
local function given_parameters(info)
  local row, list, ports = row_of(info), {}, table.concat(info.inputs, " ")
  for _, p in ipairs(info.params) do
    local value = row[p.name] or p.default == nil and not ports:find("*" .. p.name, 1, true)
      and sample(p)
    list[#list + 1] = value and { p.name, value } or nil
  end
  return list
end


-- Returns the code of an array: "ty.nd.ones{1, 3}" for "1 3", "ty.nd.ones({1, 3}, {dtype =
-- "int8"})" for "1 3 int8"; other texts are code already.
local function array_text(text)
  if not text:find("^[%d ]+") then
    return text
  end
  local sizes, dtype = text:match("^([%d ]*%d) ?(.*)$")
  sizes = "{" .. sizes:gsub(" ", ", ") .. "}"
  return dtype == "" and "ty.nd.ones" .. sizes
    or ("ty.nd.ones(%s, {dtype = %q})"):format(sizes, dtype)
end


-- Returns the inputs of an example: a list of {name, array}; without names for operators with any
-- number of inputs.
local function given_inputs(info)
  local row, list, update = row_of(info), {}, info.name:find("update", 1, true)
  for _, text in ipairs(row.inputs or {}) do
    list[#list + 1] = { nil, array_text(text) }
  end
  for _, port in ipairs(row.inputs and {} or info.inputs) do
    local name = port:match("[%w_]+")
    if port:find("*", 1, true) then
      list[1], list[2] = { nil, array_text(DEFAULT) }, { nil, array_text(DEFAULT) }
    elseif row[name] or update or not MADE[name] then
      list[#list + 1] = { name, array_text(row[name] or DEFAULT) }
    end
  end
  return list
end


local COLUMNS = 78                                       -- columns of an example

-- Returns an operator's path: "contrib.box_nms" for "_contrib_box_nms".
local function path_of(name)
  return (name:gsub("^_contrib_", "contrib."):gsub("^_linalg_", "linalg.")
    :gsub("^_image_", "image."))
end


-- Returns a call with lists of {name, text} as arguments, wrapped to lines.
local function call(space, info, ...)
  local text, line = "", ("ty.%s.%s{"):format(space, spelled(path_of(info.name)))
  local separator = ""
  for _, list in ipairs{ ... } do
    for _, pair in ipairs(list) do
      local part = pair[1] and spelled(pair[1]) .. " = " .. pair[2] or pair[2]
      line = line .. separator
      if #line + #part > COLUMNS then
        text, line = text .. line:gsub(" $", "") .. "\n", "  "
      end
      line, separator = line .. part, ", "
    end
  end
  return text .. line .. "}"
end


-- Returns a call on symbols, with variables as inputs; nil for operators that only exist for
-- arrays.
local function symbol_example(info)
  local row = row_of(info)
  if row.sym ~= nil or not info.inputs[1] or info.name:find("update", 1, true) then
    return row.sym or nil
  end
  local inputs = given_inputs(info)
  for i, pair in ipairs(inputs) do
    pair[2] = ("ty.sym.Variable(%q)"):format(pair[1] or ("xyz"):sub(i, i))
  end
  return call("sym", info, inputs, given_parameters(info))
end


local function evaluated(text)
  return setfenv(assert(loadstring("return " .. text)), { ty = require "tycho" })()
end


-- Returns all inputs of a call on arrays, including those whose shapes follow from the given ones,
-- and the shapes of the outputs.
local function all_inputs(info)
  local ty, inputs, list = require "tycho", given_inputs(info), {}
  local options, texts = { name = "e" }, {}
  for i, pair in ipairs(inputs) do
    local array, name = evaluated(pair[2]), pair[1] or "x" .. i
    options[pair[1] or i] = ty.sym.Variable(name, { shape = array.shape, dtype = array.dtype })
    texts[name] = pair[2]
  end
  for _, pair in ipairs(given_parameters(info)) do
    options[pair[1]] = evaluated(pair[2])
  end
  local symbol = ty.sym[info.name](options)
  local shapes, outputs, aux_shapes = symbol:infer_shape_partial{}
  if not inputs[1][1] then
    return inputs, outputs
  end
  local dtypes, _, aux_dtypes = symbol:infer_type_partial{}
  local function add(names, sizes, types)
    for i, name in ipairs(names) do
      local port = name:gsub("^e_", "")
      local dtype = types[i] == "float32" and "" or " " .. types[i]
      list[#list + 1] = { port, texts[port] or array_text(table.concat(sizes[i], " ") .. dtype) }
    end
  end
  add(symbol:list_arguments(), shapes, dtypes)
  add(symbol:list_auxiliary_states(), aux_shapes, aux_dtypes)
  return list, outputs
end


-- Returns a call on arrays and, if known, the shapes of its results; nil for operators that only
-- exist for symbols.
local function array_example(info)
  local row = row_of(info)
  if row.nd ~= nil then
    return row.nd or nil
  elseif not info.inputs[1] then
    return call("nd", info, given_parameters(info))
  end
  local inputs, outputs = all_inputs(info)
  return call("nd", info, inputs, given_parameters(info)), outputs
end


--- Returns example calls on symbols and on arrays, which run as they are.
-- @tparam table info the result of `ty.op.info`
-- @treturn {table,...} text (a call, possibly of several lines) and shapes (of the results, if
--   known)
function operator.examples(info)
  local list = {}
  local text = symbol_example(info)
  list[1] = text and { text = text }
  local ok, array, shapes = pcall(array_example, info)   -- a user's operator may raise an error
  list[#list + 1] = ok and array and { text = array, shapes = shapes } or nil
  return list
end


return operator

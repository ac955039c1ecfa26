--- An operator of the registry in words: its call, its parameters, an example. The prompt's help
-- and the reference pages are made of these.
--
-- @module tycho.prompt.operator

local operator = {}

local KEYWORD = { ["and"] = true, ["end"] = true, ["not"] = true, ["or"] = true, ["repeat"] = true }

local NAMES = { "x", "y", "z" }                          -- of the inputs in examples

-- Inputs that are made when they are not given, or may be absent: examples leave them out.
local MADE = {}
for name in ("weight bias gamma beta moving_mean moving_var moving_avg label parameters state \z
    state_cell sequence_length data_lengths label_lengths mask"):gmatch("%S+") do
  MADE[name] = true
end


-- Ports without the marks that only the core needs; hidden and private ones are left out.
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


--- The call as a line: "FullyConnected(data, weight, bias) -> output".
-- @tparam table info what `ty.op.info` returns
function operator.signature(info)
  return ("%s(%s) -> %s"):format(info.name, table.concat(port_names(info.inputs), ", "),
    table.concat(port_names(info.outputs), ", "))
end


--- A default as Lua writes it; nil for a required parameter.
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


--- The words that a parameter chooses from; nil for other parameters.
function operator.choices(p)
  local list = p.type:match("^one of ([^ ]+)")
  local words = {}
  for word in (list or ""):gmatch("[^|]+") do
    words[#words + 1] = word
  end
  return list and words
end


-- A range without the limits of a C int, which say nothing: "[1,]" for "[1,2147483647]".
local function plain_range(low, high)
  low, high = low:gsub("^%-2147483648$", ""), high:gsub("^2147483647$", "")
  return low .. high == "" and "" or (" in [%s,%s]"):format(low, high)
end


--- The type of a parameter in words: "integer in [1,]", "relu, sigmoid or tanh".
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


-- The spelling of a name that Lua keeps for itself.
local function spelled(name)
  return KEYWORD[name] and name .. "_" or name
end


-- A value that a required parameter could have.
local function sample(p)
  local words = operator.choices(p)
  if words then
    return ("%q"):format(words[1])
  elseif p.type:find("^Shape") or p.type:find("^tuple") then
    return "{2, 2}"
  elseif p.type:find("^dtype") then
    return '"float32"'
  elseif p.type:find("^string") then
    return '"text"'
  end
  return p.type:match("%[(%d+),") or "1"
end


-- The inputs that an example gives.
local function example_inputs(info)
  local parts = {}
  for i, port in ipairs(info.inputs) do
    local name = port:match("[%w_]+")
    if port:find("*", 1, true) then
      parts[#parts + 1] = "x, y"
    elseif not MADE[name] or info.name:find("update", 1, true) then
      parts[#parts + 1] = ("%s = %s"):format(name, NAMES[i] or "x" .. i)
    end
  end
  return parts
end


--- A call as one could write it: `ty.sym.FullyConnected{data = x, num_hidden = 1}`.
function operator.example(info)
  local parts = example_inputs(info)
  for _, p in ipairs(info.params) do
    if p.default == nil and not table.concat(info.inputs, " "):find("*" .. p.name, 1, true) then
      parts[#parts + 1] = ("%s = %s"):format(spelled(p.name), sample(p))
    end
  end
  local space = (info.inputs[1] and not info.name:find("update", 1, true)) and "sym" or "nd"
  return ("ty.%s.%s{%s}"):format(space, spelled(info.name), table.concat(parts, ", "))
end


return operator

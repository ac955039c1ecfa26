-- Recorded cases of the reference engine: finds and reads them, and compares results with them. The
-- folder is TYCHO_VECTORS, else ../shared/vectors; TYCHO_VECTORS_ONLY="Convolution,Pooling" selects
-- names, TYCHO_VECTORS_PART="3/24" every 24th topic and operator, from the third. A topic is one
-- file of spec/vectors; see spec/vectors/vectors_spec.lua.

local arrays = require "spec.support.arrays"
local device = require "spec.support.device"
local json = require "spec.support.json"
local native = require "tycho.core.ffi"
local ty = require "tycho"

local vectors = { root = os.getenv("TYCHO_VECTORS") or "../shared/vectors", null = json.null }

local only
for name in (os.getenv("TYCHO_VECTORS_ONLY") or ""):gmatch("[^,%s]+") do
  only = only or {}
  only[name] = true
end

--- Returns the text of a file of the folder, nil if it is missing.
function vectors.read(path)
  local file = io.open(vectors.root .. "/" .. path, "rb")
  local text = file and file:read("*a")
  if file then
    file:close()
  end
  return text
end

function vectors.exists()
  return vectors.read("schema.json") ~= nil
end

--- Returns a decoded JSON file of the folder.
function vectors.json(path)
  return json.decode(vectors.read(path) or error("no file " .. path))
end

--- Returns name -> array of a parameter file of the folder, on the device that specs run on; an
-- empty table if it is missing.
function vectors.arrays(path)
  local list = vectors.read(path) and ty.nd.load(vectors.root .. "/" .. path) or {}
  for name, x in pairs(device.is_gpu and list or {}) do
    list[name] = x:as_in_context(ty.current_context())
  end
  return list
end

--- Returns whether the filter selects a name; one of several names is enough.
function vectors.wanted(...)
  if not only then
    return true
  end
  for i = 1, select("#", ...) do
    if only[(select(i, ...))] then
      return true
    end
  end
  return false
end

local part, parts = (os.getenv("TYCHO_VECTORS_PART") or "1/1"):match("^(%d+)/(%d+)$")

--- Returns whether number i, of topics or operators, is in the selected part.
function vectors.in_part(i)
  return i % tonumber(parts) == tonumber(part) % tonumber(parts)
end

--- Returns the names of the files of a folder with an ending, without the ending, sorted.
function vectors.names(folder, ending)
  local list = {}
  for file in require("lfs").dir(vectors.root .. "/" .. folder) do
    if file:sub(-#ending) == ending then
      list[#list + 1] = file:sub(1, -#ending - 1)
    end
  end
  table.sort(list)
  return list
end

--- Returns nil for JSON's null and for nil; other values unchanged.
function vectors.value(v)
  if v == json.null then
    return nil
  end
  return v
end

--- Returns the symbol of decoded graph JSON.
function vectors.symbol(graph)
  return ty.sym.load_json(json.encode(graph))
end

local index = require("ffi").new("int[1]")

function vectors.registered(operator)
  return native.C.ty_op_find(operator, index) == 0
end

--- Returns the first operator of a decoded graph that the engine does not know; nil if it knows
-- all.
function vectors.unknown_operator(graph)
  for _, node in ipairs(graph.nodes) do
    if node.op ~= "null" and not vectors.registered(node.op) then
      return node.op
    end
    for _, body in ipairs(node.subgraphs or {}) do
      local name = vectors.unknown_operator(body)
      if name then
        return name
      end
    end
  end
end

--- Fails with the name and the worst element unless an array agrees with a recorded one.
function vectors.compare(name, got, want, rtol, atol)
  if want == nil then
    error(name .. ": the recording has no such array", 2)
  end
  local text = arrays.mismatch(got, want, rtol, atol)
  if text then
    error(name .. ": " .. text, 2)
  end
end

--- Returns a list of recorded shapes or a shape as text, for equality.
function vectors.text(value)
  return json.encode(value)
end

return vectors

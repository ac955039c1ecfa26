--- Arrays in several files, with a JSON index in the same folder: `model.safetensors.index.json`,
-- `pytorch_model.bin.index.json`. For `ndarray/files.lua`.
--
--     {"metadata": {...}, "weight_map": {"layer.weight": "model-00001-of-00002.safetensors", ...}}
--
-- @module tycho.ndarray.sharded

local pairs = require("tycho.core.iterate").pairs
local Error = require "tycho.core.error"
local json = require "tycho.core.json"
local values = require "tycho.core.values"

local sharded = {}

local MOST = 100 * 2 ^ 20                                -- bytes that an index may have


local function fail(file, text, ...)
  Error.raise{ code = "format", func = file.func, argument = file.path,
    message = ("'%s': " .. text):format(file.path, ...) }
end


-- Returns the names of the files, sorted; all are in the folder of the index.
local function list_shards(file, map)
  local list, seen = {}, {}
  for name, shard in pairs(map) do
    if type(name) ~= "string" or type(shard) ~= "string" or shard:find("/", 1, true)
        or shard:find("%z") or shard == "" or shard == "." or shard == ".." then
      fail(file, "the file of '%s' is %s, not one beside the index", tostring(name),
        tostring(shard))
    end
    if not seen[shard] then
      seen[shard] = true
      list[#list + 1] = shard
    end
  end
  table.sort(list)
  return list
end


--- Reads arrays.
-- @tparam table file as `file_arrays.open` gives: the index
-- @tparam function load `load(path)` gives the arrays of one file as the formats do
-- @treturn {{string,NDArray},...} file by file
-- @treturn bool true: the files have names
-- @treturn table the index's entry `metadata`
function sharded.load(file, load)
  if file.size > MOST then
    fail(file, "an index of %.0f bytes", file.size)
  end
  local index = json.parse(file:read(0, file.size), file.func)
  local map = values.is_plain(index) and index.weight_map
  if not values.is_plain(map) then
    fail(file, "the index has no 'weight_map'")
  end
  local folder = file.path:match("^(.*/)") or ""
  local list, found = {}, {}
  for _, shard in ipairs(list_shards(file, map)) do
    for _, pair in ipairs(load(folder .. shard)) do
      if map[pair[1]] == shard then
        list[#list + 1] = pair
        found[pair[1]] = true
      end
    end
  end
  for name, shard in pairs(map) do
    if not found[name] then
      fail(file, "the array '%s' is not in '%s'", name, shard)
    end
  end
  return list, true, values.is_plain(index.metadata) and index.metadata or {}
end


--- Returns whether a file with this path is an index.
function sharded.is_mine(head, path)
  return path:find("%.index%.json$") ~= nil and head:find("^%s*{") ~= nil
end


return sharded

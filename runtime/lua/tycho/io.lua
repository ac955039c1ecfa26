-- The name that users require: io/iterators.lua, and iterators of higher layers.
require "tycho.core.luajit"
local iterators = require "tycho.io.iterators"
local namespace = require "tycho.core.namespace"

local HIGHER = { Loader = "tycho.gluon.data.loader_iter",
  ImageFolderIter = "tycho.image.folder_iter" }

local missing = namespace.missing("io", "iterator or function", iterators,
  function() return { "Loader", "ImageFolderIter" } end)

return setmetatable(iterators, { __index = function(_, key)
  if not HIGHER[key] then
    return missing(key)
  end
  local found = require(HIGHER[key])
  rawset(iterators, key, found)
  return found
end })

--- Tycho: the one entry. `local ty = require "tycho"` loads the native library and nothing else;
-- sub-modules are loaded when they are first named. No global is set.
--
-- @module tycho

local pairs = require("tycho.core.iterate").pairs
local native = require "tycho.core.ffi"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local values = require "tycho.core.values"

local ty = {
  null = values.null, newaxis = values.newaxis, ellipsis = values.ellipsis, slice = values.slice,
  Error = Error, is_error = Error.is_error, is_a = Class.is_a,
  live = native.live, version = native.text(native.C.ty_version()),
}

-- name -> file; the second spellings share the file
local MODULES = {
  sym = "symbol",          symbol = "symbol",
  nd = "ndarray",          ndarray = "ndarray",
  mod = "module",          module = "module",
  image = "image",         img = "image",
  init = "initializer",    initializer = "initializer",
  optimizer = "optimizer", opt = "optimizer",
  kv = "kvstore",          kvstore = "kvstore",
  monitor = "monitor",     mon = "monitor",
  viz = "viz",             visualization = "viz",
  random = "random",       rnd = "random",
  executor = "executor",   executor_manager = "executor_manager",
  io = "io",               recordio = "recordio",
  rnn = "rnn",             lr_scheduler = "lr_scheduler",
  metric = "metric",       callback = "callback",
  model = "model",         profiler = "profiler",
  test_utils = "test_utils", name = "name",
  attribute = "attribute", context = "context",
  engine = "engine",       operator = "operator",
  op = "op",               runtime = "runtime",
  log = "log",
}

-- what lives in a module but is used everywhere: name -> module, field
local FIELDS = {
  cpu = { "context", "cpu" },                         gpu = { "context", "gpu" },
  cpu_pinned = { "context", "cpu_pinned" },           Context = { "context", "Context" },
  current_context = { "context", "current_context" }, num_gpus = { "context", "num_gpus" },
  AttrScope = { "attribute", "AttrScope" },           scope = { "ndarray", "scope" },
}


--- Waits for all devices; raises the first failure that nobody was told yet.
function ty.waitall()
  native.check(native.C.ty_wait(-1), "waitall")
end


local function names()
  local list = {}
  for _, t in ipairs{ ty, MODULES, FIELDS } do
    for name in pairs(t) do
      list[#list + 1] = name
    end
  end
  return list
end


local function find(_, name)
  local value
  if MODULES[name] then
    value = require("tycho." .. MODULES[name])
  elseif FIELDS[name] then
    value = require("tycho." .. FIELDS[name][1])[FIELDS[name][2]]
  elseif type(name) == "string" and name:sub(1, 2) ~= "__" then
    Error.unknown{ func = "ty", argument = name, what = "module or function", names = names() }
  end
  rawset(ty, name, value)
  return value
end


return setmetatable(ty, { __index = find, __tostring = function()
  return "<tycho " .. ty.version .. ">"
end })

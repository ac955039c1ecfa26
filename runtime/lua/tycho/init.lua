--- Tycho's main module. `local ty = require "tycho"` loads the native library; sub-modules are
-- loaded on first use. No global is set.
--
-- @module tycho

require "tycho.core.luajit"
local pairs = require("tycho.core.iterate").pairs
local native = require "tycho.core.ffi"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local gc = require "tycho.core.gc"
local values = require "tycho.core.values"

local ty = {
  null = values.null, newaxis = values.newaxis, ellipsis = values.ellipsis, slice = values.slice,
  Error = Error, is_error = Error.is_error, is_a = Class.is_a,
  live = native.live, version = native.text(native.C.ty_version()),
}

-- name -> module; two spellings share one
local MODULES = {
  sym              = "tycho.symbol",
  symbol           = "tycho.symbol",
  autograd         = "tycho.autograd",
  F                = "tycho.F",
  gluon            = "tycho.gluon",
  nd               = "tycho.ndarray",
  ndarray          = "tycho.ndarray",
  mod              = "tycho.module",
  module           = "tycho.module",
  image            = "tycho.image",
  img              = "tycho.image",
  init             = "tycho.initializer",
  initializer      = "tycho.initializer",
  optimizer        = "tycho.optimizer",
  opt              = "tycho.optimizer",
  kv               = "tycho.kvstore",
  kvstore          = "tycho.kvstore",
  monitor          = "tycho.monitor",
  mon              = "tycho.monitor",
  viz              = "tycho.viz",
  visualization    = "tycho.viz",
  random           = "tycho.random",
  rnd              = "tycho.random",
  executor         = "tycho.executor",
  executor_manager = "tycho.executor_manager",
  io               = "tycho.io",
  recordio         = "tycho.recordio",
  rnn              = "tycho.rnn",
  lr_scheduler     = "tycho.lr_scheduler",
  metric           = "tycho.metric",
  callback         = "tycho.callback",
  model            = "tycho.model",
  profiler         = "tycho.profiler",
  test_utils       = "tycho.test_utils",
  name             = "tycho.name",
  attribute        = "tycho.attribute",
  context          = "tycho.context",
  engine           = "tycho.engine",
  operator         = "tycho.operator",
  precision        = "tycho.precision",
  amp              = "tycho.amp",
  contrib          = "tycho.contrib",
  op               = "tycho.op",
  runtime          = "tycho.runtime",
  log              = "tycho.log",
  onnx             = "tycho.onnx",
  tensorboard      = "tycho.tensorboard",
  torch7           = "tycho.torch7",
  pytorch          = "tycho.pytorch",
}

-- names of `ty` that are fields of modules: name -> module, field
local FIELDS = {
  cpu             = { "tycho.context", "cpu" },
  gpu             = { "tycho.context", "gpu" },
  cpu_pinned      = { "tycho.context", "cpu_pinned" },
  Context         = { "tycho.context", "Context" },
  current_context = { "tycho.context", "current_context" },
  num_gpus        = { "tycho.context", "num_gpus" },
  AttrScope       = { "tycho.attribute", "AttrScope" },
  scope           = { "tycho.ndarray", "scope" },
}


--- Waits for all devices; raises the first failure that has not been reported.
function ty.waitall()
  gc.finish()
  native.check(native.C.ty_wait(-1), "waitall")
end


-- Modules whose names people look for in the library itself, as in "nd.zeros".
local HOMES = { "nd", "sym", "mod", "io", "init", "metric", "optimizer", "random", "model", "rnn",
  "image", "callback", "lr_scheduler", "viz", "test_utils", "autograd", "gluon" }

local function accepted(name)
  local attempt = require "tycho.core.attempt"
  local list = {}
  for _, path in ipairs(require("tycho.core.foreign").names(name)) do
    list[#list + 1] = path:match("^%l[%w_]*%.[%w_.]+$")
  end
  for _, t in ipairs{ MODULES, FIELDS } do
    for key in pairs(t) do
      list[#list + 1] = key
    end
  end
  for _, home in ipairs(HOMES) do
    local ok, value = attempt(function() return ty[home][name] end)
    if ok and value ~= nil then
      list[#list + 1] = home .. "." .. name
    end
  end
  return list
end


-- Names of the reference that are left out -> what to use instead.
local ARRAYS = "NumPy's interface is left out; arrays and their functions are those of ty.nd, in "
  .. "networks those of ty.F"
local LEFT_OUT = { np = ARRAYS, npx = ARRAYS, numpy = ARRAYS, numpy_extension = ARRAYS,
  util = ARRAYS, np_shape = ARRAYS, sparse = "there is no sparse storage; ty.nd has dense arrays" }


local function missing(name)
  if LEFT_OUT[name] then
    Error.raise{ code = "unsupported", func = "ty", argument = name, candidates = { "nd", "F" },
      message = ("'%s': %s"):format(name, LEFT_OUT[name]) }
  end
  local namespace = require "tycho.core.namespace"
  return namespace.missing("ty", "module or function", ty, accepted)(name)
end


local function find(_, name)
  local value
  if MODULES[name] then
    value = require(MODULES[name])
  elseif FIELDS[name] then
    value = require(FIELDS[name][1])[FIELDS[name][2]]
  else
    return missing(name)
  end
  rawset(ty, name, value)
  return value
end


return setmetatable(ty, { __index = find, __tostring = function()
  return "<tycho " .. ty.version .. ">"
end })

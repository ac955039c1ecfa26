--- Layers and networks as objects: `ty.gluon`.
--
--     local Net = gluon.HybridBlock:extend("Net")
--     function Net:init(classes)
--       self.conv = nn.Conv2D{16, 3, padding = 1, activation = "relu"}
--       self.fc = nn.Dense(classes)
--     end
--     function Net:forward(x)
--       return self.fc(F.flatten(self.conv(x)))
--     end
--
-- The parts: `gluon.block` (children, parameters, hooks), `name_scope`, `hybrid_block` (symbols and
-- arrays), `trace` and `replay` (the implementation of hybridize), `parameter`, `constant`,
-- `parameter_dict`, `trainer`, `utils`; `nn`, `rnn`, `loss`, `data`, `contrib`, `model_zoo` are
-- separate files or folders.
--
-- @module tycho.gluon

require "tycho.core.luajit"
local pairs = require("tycho.core.iterate").pairs
local Class = require "tycho.core.class"
local methods = require "tycho.core.methods"
local namespace = require "tycho.core.namespace"

-- Methods that are called for each layer or sample, recognised by their functions, or called on
-- classes.
local UNGUARDED = { data = true, extend = true, forward = true, get = true }

local gluon = methods.guard_all({
  Block = require "tycho.gluon.block",
  Constant = require "tycho.gluon.constant",
  HybridBlock = require "tycho.gluon.hybrid_block",
  Parameter = require "tycho.gluon.parameter",
  ParameterDict = require "tycho.gluon.parameter_dict",
}, UNGUARDED)

-- name -> module, which is loaded on first use
local PARTS = {
  SymbolBlock = "tycho.gluon.symbol_block",
  Trainer = "tycho.gluon.trainer",
  utils = "tycho.gluon.utils",
  nn = "tycho.gluon.nn",
  rnn = "tycho.gluon.rnn",
  loss = "tycho.gluon.loss",
  data = "tycho.gluon.data",
  contrib = "tycho.gluon.contrib",
  model_zoo = "tycho.gluon.model_zoo",
}

local missing = namespace.missing("gluon", "class or namespace", gluon, function()
  local names = {}
  for name in pairs(PARTS) do
    names[#names + 1] = name
  end
  return names
end)


return setmetatable(gluon, { __index = function(_, key)
  local module = PARTS[key]
  if not module then
    return missing(key)
  end
  local value = require(module)
  methods[Class.is_class(value) and "guard" or "guard_all"](value, UNGUARDED)
  rawset(gluon, key, value)
  return value
end })

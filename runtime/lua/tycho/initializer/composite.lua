--- Initializers made of others: loaded values, choice by name, the packed vector of a
-- fused RNN; see `initializer/init.lua`.
--
-- @module tycho.initializer.composite

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local base = require "tycho.initializer.base"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local layout = require "tycho.initializer.rnn_layout"
local log = require "tycho.core.log"
local values = require "tycho.core.values"

local groups = {}


-- Load --------------------------------------------------------------------------------------------

--- Values from a file or a table of arrays; `arg:` and `aux:` before names are dropped.
-- @type Load
local Load = Class:extend("Load")
groups.Load = Load

local LOAD = args.form("init.Load", {
  dict = true, { "param", "text|dict" }, "*", { "default_init", "any?" },
  { "verbose", "boolean", false },
})

--- @param param file name or arrays by name
-- @tparam[opt] table options default_init: an initializer for other names, which are E(name)
--   without it; verbose: logs the source of each parameter
function Load:init(...)
  local a = LOAD(...)
  local arrays = a.param
  if type(arrays) == "string" then
    arrays = require("tycho.ndarray").load(arrays)
  end
  self.param, self.default_init, self.verbose = {}, values.value(a.default_init), a.verbose
  for name, x in pairs(arrays) do
    self.param[type(name) == "string" and name:gsub("^a[ru][gx]:", "") or name] = class.keep(x)
  end
end


function Load:__call(desc, x)
  local name = tostring(desc)
  local source = self.param[name]
  if source then
    call.copy(x, source, "init.Load", name)
  elseif self.default_init then
    self.default_init(desc, x)
  else
    Error.raise{ code = "name", func = "init.Load", argument = name,
      message = ("there is no array '%s', and no default_init"):format(name) }
  end
  if self.verbose then
    log:info(("Initialized %s %s"):format(name,
      source and "from the loaded arrays" or "by default"))
  end
end


-- Mixed -------------------------------------------------------------------------------------------

--- The initializer of the first pattern that fits the name from its start.
-- @type Mixed
local Mixed = Class:extend("Mixed")
groups.Mixed = Mixed

local MIXED = args.form("init.Mixed", { { "patterns", "list" }, { "initializers", "list" } })

--- @tparam table patterns regular expressions (`"fc\\d_(weight|bias)"`), matched from the name's
-- start, or functions of the name
-- @tparam table initializers one for each pattern
function Mixed:init(...)
  local a = MIXED(...)
  if #a.patterns ~= #a.initializers then
    Error.raise{ code = "value", func = "init.Mixed", argument = "initializers",
      expected = #a.patterns,
      got = #a.initializers, message = "as many initializers as patterns are needed" }
  end
  local regex = require "tycho.core.regex"               -- few programs have patterns
  self.initializers, self.matches = a.initializers, {}
  for i, pattern in ipairs(a.patterns) do
    self.matches[i] = regex.matcher(pattern, "init.Mixed", "patterns")
  end
end


function Mixed:__call(desc, x)
  local name = tostring(desc)
  for i, matches in ipairs(self.matches) do
    if matches(name) then
      self.initializers[i](desc, x)
      return
    end
  end
  Error.raise{ code = "name", func = "init.Mixed", argument = name,
    message = ("no pattern fits '%s'; add '.*' with a default initializer at the end")
      :format(name) }
end


-- The packed vector of a fused RNN ----------------------------------------------------------------

local FUSED = args.form("init.FusedRNN", {
  { "init", "any?" }, { "num_hidden", "integer" }, { "num_layers", "integer" }, { "mode", "text" },
  { "bidirectional", "boolean", false }, { "forget_bias", "number", 1 },
})

--- Fills the pieces of the vector by their names; the forget gates' biases
-- of an LSTM get `forget_bias`.
-- @type FusedRNN
local FusedRNN = base.Initializer:extend("FusedRNN")
groups.FusedRNN = base.register(FusedRNN)
FusedRNN.reals = { forget_bias = true }

--- Reads the options init (an initializer, its text, or nil: the global one), num_hidden,
-- num_layers, mode, bidirectional, forget_bias.
function FusedRNN:init(...)
  local a = FUSED(...)
  local inner = values.value(a.init)
  layout.check_mode(a.mode, "init.FusedRNN")
  self._init = type(inner) == "string" and base.create(inner) or inner
  a.init = inner and (type(inner) == "string" and inner or inner:dumps()) or values.null
  for _, key in ipairs{ "num_hidden", "num_layers", "mode", "bidirectional", "forget_bias" } do
    self[key] = a[key]
  end
  self:_remember(a, FUSED:names())
end


function FusedRNN:_init_weight(desc, x)
  local inner = self._init or type(desc) == "table" and desc.global_init
  local at = 0
  for _, row in ipairs(layout.pieces(self, layout.input_size(self, x.size, "init.FusedRNN"))) do
    local name = row[1]
    local piece = class.view(x, row[2], at * class.BYTES[x._dtype], "init.FusedRNN")
    at = at + piece.size
    if self.mode == "lstm" and name:find("_f_bias$") then
      call.fill(piece, self.forget_bias, "init.FusedRNN")
    elseif inner then
      inner(base.InitDesc(name, {}, inner), piece)
    else
      Error.raise{ code = "value", func = "init.FusedRNN", argument = "init",
        message = "there is no initializer for the pieces" }
    end
  end
end


return groups

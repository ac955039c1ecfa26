--- The precision of float32 products and convolutions.
--
--     ty.precision("medium"):with(function() mod:bind{...} end)
--
-- "highest": in float32. "high": in float32; sums of two bfloat16 are allowed, but so far no
-- processor is faster with them. "medium": operands are rounded to bfloat16, sums are float32, if
-- the processor multiplies bfloat16 (AVX512-BF16; BFDOT on aarch64); else in float32. On GPUs
-- "high" and "medium" allow TF32, whose operands have 11 bits. An executor keeps the precision at
-- its binding: its option `precision`, else the innermost scope, else its context's
-- `set_precision`, else TYCHO_PRECISION. Calls on arrays follow scope and environment, gradients of
-- recorded calls those at the call of `backward`.
--
-- @module tycho.precision

local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local namespace = require "tycho.core.namespace"
local native = require "tycho.core.ffi"

local C = native.C

local precision = {}

local WORDS = { "highest", "high", "medium" }
local CODES = { highest = 0, high = 1, medium = 2 }
local FLAGS = { highest = C.TY_HIGHEST, high = C.TY_HIGH, medium = C.TY_MEDIUM }
local depth = 0

local chosen = os.getenv("TYCHO_PRECISION")
if chosen and chosen ~= "" and not CODES[chosen] then
  log:warning(("TYCHO_PRECISION is '%s', expected highest, high or medium: products stay in \z
    float32"):format(chosen))
end


--- Checks a word of precision (not for users).
-- @string word
-- @string func for errors
-- @treturn string the word
function precision.check(word, func)
  if not CODES[word] then
    Error.raise{ code = "value", func = func, argument = "precision",
      expected = "highest, high or medium", got = tostring(word),
      candidates = type(word) == "string" and Error.nearest(word, WORDS) or nil,
      message = "bad 'precision'" }
  end
  return word
end


--- Returns the precision flag of an executor, 0: the precision that is set when it is bound (not
-- for users).
-- @tparam ?string word its option
-- @param ctx its context
-- @string func for errors
function precision.flag(word, ctx, func)
  if word then
    return FLAGS[precision.check(word, func)]
  elseif depth == 0 and ctx._precision then
    return FLAGS[ctx._precision]
  end
  return 0
end


--- Returns the precision of calls now, as a word.
-- @treturn string
function precision.current()
  return WORDS[C.ty_precision(-1) + 1]
end


-- A scope: `with`, or `enter` and `exit` in pairs.
local Scope = Class:extend("Precision")

function Scope:init(word)
  self.word, self._before = word, {}
end

function Scope:enter()
  self._before[#self._before + 1] = { code = C.ty_precision(CODES[self.word]), depth = depth }
  depth = depth + 1
  return self
end

-- Also ends the scopes inside that were not ended.
function Scope:exit()
  local before = table.remove(self._before)
  if not before then
    Error.raise{ code = "state", func = "Precision:exit",
      message = "leaves a scope that was not entered" }
  end
  C.ty_precision(before.code)
  depth = before.depth
end

local function leave(self, ok, ...)
  self:exit()
  if not ok then
    error((...), 0)
  end
  return ...
end

function Scope:with(f, ...)
  if type(f) ~= "function" then
    Error.raise{ code = "type", func = "Precision:with", argument = "f", expected = "a function",
      got = Error.kind(f), message = "bad 'f'" }
  end
  self:enter()
  return leave(self, pcall(f, ...))
end


local FORM = args.form("precision", { { "precision", "text" } })

namespace.close(precision, "precision", "function")
getmetatable(precision).__call = function(_, ...)
  return Scope(precision.check(FORM(...).precision, "precision"))
end

return precision

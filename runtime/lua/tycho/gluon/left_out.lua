--- Functions of the reference's gluon that Tycho does not have: a call raises E(`unsupported`) and
-- says what to use instead.
--
-- @module tycho.gluon.left_out

local pairs = require("tycho.core.iterate").pairs
local Error = require "tycho.core.error"

local left_out = {}


--- Adds such functions to a class or a namespace.
-- @tparam table owner
-- @string func public name of the owner, for errors
-- @string sign ":" for methods, "." for functions
-- @tparam table advice name -> what to do instead
function left_out.add(owner, func, sign, advice)
  for name, text in pairs(advice) do
    owner[name] = function()
      Error.raise{ code = "unsupported", func = func .. sign .. name,
        message = ("'%s' is not part of Tycho: %s"):format(name, text) }
    end
  end
end


return left_out

--- Forms of the constructors of built-in blocks, which all take `prefix` and `params`.
--
-- The block itself reads these two (gluon/block.lua); the form accepts them and lists them in
-- errors and help.
--
-- @module tycho.gluon.options

local args = require "tycho.core.args"

local options = {}


--- As `args.form`, with the options that all blocks take.
-- @string func the public name: "nn.Dense"
-- @tparam table spec parameters in order
-- @return the form
function options.form(func, spec)
  local by_name = false
  for _, entry in ipairs(spec) do
    by_name = by_name or entry == "*"
  end
  if not by_name then
    spec[#spec + 1] = "*"
  end
  spec[#spec + 1] = { "prefix", "text?" }
  spec[#spec + 1] = { "params", "any?" }
  return args.form(func, spec)
end


return options

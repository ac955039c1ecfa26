--- A parameter with a fixed value: it has no gradient, and each initialization sets the same value.
--
-- @classmod ty.gluon.Constant

local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local init = require "tycho.initializer"
local log = require "tycho.core.log"
local nd = require "tycho.ndarray"
local Parameter = require "tycho.gluon.parameter"

local rawset = rawset

--- A parameter that is not trained. Field `value`: its NDArray.
local Constant = Parameter:extend("Constant")

local Fill = init.Initializer:extend("ConstantValue")    -- uses the values of an array

function Fill:init(value)
  Fill.super.init(self)
  self.value = value
end

function Fill:_init_weight(_, x)
  self.value:copyto(x)
end


local FORM = args.form("gluon.Constant", { { "name", "text" }, { "value", "table|array|number" } })

--- @string name
-- @param value an NDArray or a nested table of numbers (float32)
function Constant:init(...)
  local a = FORM(...)
  local value = class.keep(nd._as_array(a.value, "float32", "gluon.Constant"):copy())
  Constant.super.init(self, { name = a.name, grad_req = "null", shape = value.shape,
    dtype = value.dtype, init = Fill(value), differentiable = false })
  rawset(self, "_dtype_text", ("<class 'numpy.%s'>"):format(value.dtype))   -- as the reference's
  rawset(self, "value", value)
end


function Constant.__newindex(self, key, v)
  if key == "grad_req" and v ~= "null" then
    log:warning(("constant parameter '%s' has no gradient: grad_req stays \"null\"")
      :format(self.name))
    return
  end
  Parameter.__newindex(self, key, v)
end


return Constant

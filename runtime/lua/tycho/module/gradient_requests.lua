--- The gradient requests of a group's arguments: reads and checks `grad_req` (not for users).
--
-- @module tycho.module.gradient_requests

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local Error = require "tycho.core.error"
local tables = require "tycho.core.tables"

local gradient_requests = {}

local FUNC = "Module:bind"                               -- who usually makes groups, for errors

local WORDS = { write = true, add = true, null = true }

local function check_word(word, name)
  if not WORDS[word] then
    Error.raise{ code = "value", func = FUNC, argument = "grad_req",
      expected = "write, add or null", got = Error.kind(word),
      message = ("bad 'grad_req'%s"):format(name and " of '" .. name .. "'" or "") }
  end
  return word
end


-- Returns the request of every argument if one word was given. It is for parameters that are not
-- fixed, and for data if their gradients are wanted; the others are "null".
local function requests_by_kind(self, word)
  local params, fixed, data = tables.positions(self.param_names),
    tables.positions(self.fixed_param_names), tables.positions(self.data_names)
  local reqs = {}
  for _, name in ipairs(self.arg_names) do
    local wanted = params[name] and not fixed[name] or data[name] and self.inputs_need_grad
    reqs[name] = wanted and word or "null"
  end
  return reqs
end


-- Returns the request of every argument, by name, from a list in argument order.
local function listed_requests(self, given)
  local reqs = {}
  if #given ~= #self.arg_names then
    Error.raise{ code = "value", func = FUNC, argument = "grad_req", expected = #self.arg_names,
      got = #given, message = "'grad_req' has not one entry for each argument" }
  end
  for i, name in ipairs(self.arg_names) do
    reqs[name] = check_word(given[i], name)
  end
  return reqs
end


--- Returns the request of every argument, by name: "write", "add" or "null".
-- @param self group with arg_names, param_names, fixed_param_names, data_names,
--   for_training, inputs_need_grad
-- @param given a word, a list in argument order, or words by name
function gradient_requests.read(self, given)
  if not self.for_training then
    return requests_by_kind(self, "null")
  elseif type(given) == "string" then
    return requests_by_kind(self, check_word(given))
  elseif #given > 0 then
    return listed_requests(self, given)
  end
  local reqs, known = requests_by_kind(self, "write"), tables.positions(self.arg_names)
  for name, word in pairs(given) do
    if not known[name] then
      Error.unknown{ func = FUNC, argument = name, what = "argument in grad_req",
        names = self.arg_names }
    end
    reqs[name] = check_word(word, name)
  end
  return reqs
end


return gradient_requests

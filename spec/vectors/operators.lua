-- operators/NAME.json: one operator at a time, through a graph (c), called
-- directly (i), or to be refused (e).

local ty = require "tycho"
local vectors = require "spec.support.vectors"

local value = vectors.value

local function inputs(arrays, case, kind)
  local by_name = {}
  for _, name in ipairs(case[kind == "arg" and "args" or "aux"] or {}) do
    by_name[name] = arrays[("%s/%s/%s"):format(case.name, kind, name)]
  end
  return by_name
end

local function bind(arrays, case)
  local symbol = vectors.symbol(case.symbol)
  local args, grads, req = inputs(arrays, case, "arg"), {}, {}
  for _, name in ipairs(case.grads or {}) do
    grads[name] = ty.nd.zeros(args[name].shape, { dtype = args[name].dtype })
    req[name] = "write"
  end
  for _, name in ipairs(case.args) do
    req[name] = req[name] or "null"
  end
  return symbol:bind{
    ctx = ty.cpu(), args = args, args_grad = grads, grad_req = req,
    aux_states = inputs(arrays, case, "aux"),
  }, grads
end

local function heads(arrays, case, n)
  local list = {}
  for i = 1, n do
    list[i] = arrays[("%s/head/%d"):format(case.name, i - 1)] or ty.null
  end
  return list
end

local function check_graph(arrays, case)
  local exe, grads = bind(arrays, case)
  local function same(kind, name, got)
    local key = ("%s/%s/%s"):format(case.name, kind, name)
    vectors.compare(key, got, arrays[key], case.rtol, case.atol)
  end
  local outputs = exe:forward{ is_train = case.is_train }
  assert.equal(case.outputs, #outputs, "number of outputs")
  for i, out in ipairs(outputs) do
    same("out", i - 1, out)
  end
  if value(case.heads) then
    if #case.heads == 0 then
      exe:backward()
    else
      exe:backward(heads(arrays, case, case.outputs))
    end
  end
  for _, name in ipairs(case.grads) do
    same("grad", name, grads[name])
  end
  for _, name in ipairs(case.aux) do
    same("aux_after", name, exe.aux_dict[name])
  end
end

local function is_array(x)
  return type(x) == "table" and not not getmetatable(x)
end

local function call(operator, case, given)
  local options = { unpack(given) }
  for key, text in pairs(case.attrs) do
    options[key] = text
  end
  if value(case.out_to) and #case.out_to > 0 then
    local out = {}
    for i, name in ipairs(case.out_to) do
      for k, argument in ipairs(case.args) do
        out[i] = argument == name and given[k] or out[i]
      end
    end
    options.out = #out == 1 and out[1] or out
  end
  local results = { ty.nd[operator](options) }
  return is_array(results[1]) and results or results[1] or {}
end

local function check_call(operator, arrays, case)
  local given, after = {}, {}
  for i, name in ipairs(case.args) do
    local start = arrays[("%s/arg/%s"):format(case.name, name)]
    given[i], after[name] = start:copy(), start
  end
  local results = call(operator, case, given)
  local function same(key, got, want)
    vectors.compare(case.name .. "/" .. key, got, want, case.rtol, case.atol)
  end
  for i = 1, case.outputs do
    local recorded = arrays[("%s/out/%d"):format(case.name, i - 1)]
    same("out/" .. i - 1, results[i], recorded)
    if value(case.out_to) and case.out_to[i] then
      after[case.out_to[i]] = recorded
    end
  end
  for _, name in ipairs(case.mutates) do
    after[name] = arrays[("%s/aux_after/%s"):format(case.name, name)]
  end
  for i, name in ipairs(case.args) do
    same("after/" .. name, given[i], after[name])
  end
end

local function check_refused(arrays, case)
  local ok, e = pcall(bind, arrays, case)
  assert.is_false(ok, "bind must refuse: " .. tostring(case.note))
  assert.is_true(ty.is_error(e), "not an error object: " .. tostring(e))
end

local function check(operator, arrays, case)
  local unknown = case.symbol and vectors.unknown_operator(case.symbol)
  unknown = unknown or case.imperative and not vectors.registered(operator) and operator
  if unknown then
    pending(("operator %s is not registered"):format(unknown))
  elseif case.imperative then
    check_call(operator, arrays, case)
  elseif case.error then
    check_refused(arrays, case)
  else
    check_graph(arrays, case)
  end
end

local function define_operator(file)
  local recorded, arrays = vectors.json("operators/" .. file .. ".json"), nil
  describe(recorded.operator, function()
    teardown(function() arrays = nil end)
    for _, case in ipairs(recorded.cases) do
      it(("%s %s"):format(case.name, case.note or ""), function()
        arrays = arrays or vectors.arrays("operators/" .. file .. ".params")
        check(recorded.operator, arrays, case)
      end)
    end
  end)
end

return {
  needs = { "tycho.symbol", "tycho.executor", "tycho.ndarray" },
  define = function()
    for i, file in ipairs(vectors.names("operators", ".json")) do
      if vectors.in_part(i) and vectors.wanted(file, "operators") then
        define_operator(file)
      end
    end
  end,
}

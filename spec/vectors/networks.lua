-- networks/: whole networks; weights by formula, results as sums and
-- samples with absolute tolerances.
--
-- A rounding difference can turn one ReLU or max-pooling decision; gradients then differ while
-- both engines are right. Where the recording allows it such a network counts as kinked, and
-- at most KINKED of them may be.

local arrays = require "spec.support.arrays"
local filler = require "spec.support.filler"
local json = require "spec.support.json"
local ty = require "tycho"
local faults = require "spec.support.faults"
local vectors = require "spec.support.vectors"

local KINKED, SLOW = 4, 2e7              -- networks; parameters from which a network is slow
local value = vectors.value
local kinked = {}

local function device(text)
  local kind, id = text:match("^(%a+)%((%d+)%)$")
  return ty[kind](tonumber(id))
end

-- Loads a graph of the folder; waits for operators that are not there yet.
local function load_graph(graph)
  local unknown = vectors.unknown_operator(graph)
  if unknown then
    pending(("operator %s is not registered"):format(unknown))
  end
  return vectors.symbol(graph)
end

local function load_symbol(name, record, training)
  local graph = vectors.json("networks/" .. name .. "-symbol.json")
  for _, node in ipairs(graph.nodes) do
    if training and record.dropout_off_in_training
        and (node.op == "Dropout" or node.op == "RNN") then
      node.attrs = node.attrs or {}
      node.attrs.p = "0"
    end
  end
  return load_graph(graph)
end

local function bind(symbol, record, training)
  local req, places = {}, nil
  for _, argument in ipairs(record.arguments) do
    req[argument.name] = training and argument.grad_req or "null"
  end
  for group, text in pairs(record.group2ctx or {}) do
    places = places or {}
    places[group] = device(text)
  end
  local exe = symbol:simple_bind{ ctx = ty.cpu(), shapes = record.inputs,
    grad_req = req, group2ctx = places }
  for _, argument in ipairs(record.arguments) do
    filler.fill(exe.arg_dict[argument.name], argument.name, argument.fill)
  end
  for _, state in ipairs(record.auxiliary_states) do
    filler.fill(exe.aux_dict[state.name], state.name, state.fill)
  end
  return exe
end

local function measure(x)
  local v, n = arrays.numbers(x)
  local sum, squares, most = 0, 0, 0
  for i = 0, n - 1 do
    local a = v[i]
    sum, squares, most = sum + a, squares + a * a, math.max(most, math.abs(a))
  end
  return { sum = sum, sumsq = squares, absmax = most, first = v, n = n }
end

local function beyond(got, want, tolerance)
  local d = math.abs(got - want)
  return d > tolerance or d ~= d
end

-- Returns the first value outside the tolerances {element, sum, sumsq}, as text.
local function outside(m, want, tol, noise)
  if noise then                                  -- mathematically zero: only smallness counts
    return m.absmax > want.absmax + tol[1]
      and ("absmax %.6g, want about %.6g"):format(m.absmax, want.absmax)
  end
  for i, w in ipairs(want.values or want.first) do
    if beyond(m.first[i - 1], w, tol[1]) then
      return ("element %d: got %.9g, want %.9g (allowed %.3g)")
        :format(i - 1, m.first[i - 1], w, tol[1])
    end
  end
  for i, key in ipairs{ "absmax", "sum", "sumsq" } do
    if beyond(m[key], want[key], tol[i]) then
      return ("%s: got %.9g, want %.9g (allowed %.3g)"):format(key, m[key], want[key], tol[i])
    end
  end
end

local function kink_tolerance(want, n)
  if want.noise then
    return { 50 * want.tol[1], 50 * want.tol[2], 2500 * want.tol[3] }
  end
  return { 0.05 * want.absmax, 0.05 * math.sqrt(n * want.sumsq), 0.1 * want.sumsq }
end

-- Compares one array; returns true when it is within tolerance, else whether a
-- kink explains it and a text.
local function compare(x, want)
  if arrays.shape_text(x.shape) ~= arrays.shape_text(want.shape) then
    return false, false, "shape " .. arrays.shape_text(x.shape)
  end
  local m = measure(x)
  local text = outside(m, want, want.tol, want.noise)
  if not text then
    return true
  end
  return false, not outside(m, want, kink_tolerance(want, m.n), want.noise), text
end

local function check_exact(kind, list, got)
  for key, want in pairs(list) do
    local ok, _, text = compare(got[key], want)
    assert.is_true(ok, ("%s %s: %s"):format(kind, key, tostring(text)))
  end
end

local function check_gradients(name, record, exe)
  local worst
  for key, want in pairs(record.training.grads) do
    local ok, excused, text = compare(exe.grad_dict[key], want)
    if not ok then
      worst = ("gradient %s: %s"):format(key, text)
      assert.is_true(excused and record.training.kinks, worst)
    end
  end
  if worst then
    kinked[#kinked + 1] = name .. " (" .. worst .. ")"
  end
end

local function head_gradients(record)
  local heads = {}
  for i, head in ipairs(value(record.training.heads) or {}) do
    heads[i] = ty.nd.zeros(head.shape)
    filler.fill(heads[i], head.name, head.fill)
  end
  return heads
end

local function check_inference(name, record)
  local exe = bind(load_symbol(name, record, false), record, false)
  check_exact("output", record.inference.outputs, exe:forward(false))
  exe:free()
end

local function check_training(name, record)
  local exe, heads = bind(load_symbol(name, record, true), record, true), head_gradients(record)
  local outputs = exe:forward(true)
  if heads[1] then
    exe:backward(heads)
  else
    exe:backward()
  end
  check_exact("output", record.training.outputs, outputs)
  check_exact("state", record.training.aux_after or {}, exe.aux_dict)
  check_gradients(name, record, exe)
  exe:free()
end

-- Returns the most bytes that values take at once. The reference's plan has no operator workspace,
-- which includes the reserve of its RNN operator; ours has, so it is left out.
local function planned(symbol, shapes, req)
  local exe = symbol:simple_bind{ ctx = ty.cpu(), shapes = shapes, grad_req = req, dry_run = true }
  local change, last = {}, 0
  for _, v in ipairs(exe:memory().values) do
    if not v.alias_of and not v.name:find("_reserve$") and not v.name:find("_scratch$") then
      change[v.first] = (change[v.first] or 0) + v.bytes
      change[v.last + 1] = (change[v.last + 1] or 0) - v.bytes
      last = math.max(last, v.last)
    end
  end
  local now, most = 0, 0
  for at = 0, last do
    now = now + (change[at] or 0)
    most = math.max(most, now)
  end
  return most / 2 ^ 20
end

-- Checks that our plan is not larger than the reference's, whose megabytes are rounded down.
local function check_memory(symbol, shapes, req, megabytes, what)
  local ours = planned(symbol, shapes, req)
  assert.is_true(ours < megabytes + 1,
    ("%s: planned %.2f MB, the reference %d"):format(what, ours, megabytes))
end

local function parameters_only(record)
  local req = {}
  for _, argument in ipairs(record.arguments) do
    req[argument.name] = argument.role == "param" and "write" or "null"
  end
  return req
end

local function check_plans(name, record)
  local symbol = load_symbol(name, record, false)
  for _, plan in ipairs(record.planned_memory or {}) do
    check_memory(symbol, plan.inputs, "null", plan.inference_mb, "inference")
    check_memory(symbol, plan.inputs, parameters_only(record), plan.training_mb, "training")
  end
end

local function check_workload(work)
  local symbol, req = load_graph(vectors.json("networks/" .. work.symbol)), {}
  for _, name in ipairs(symbol:list_arguments()) do
    req[name] = work.inputs[name] and "null" or "write"
  end
  check_memory(symbol, work.inputs, "null", work.inference_mb, "inference")
  check_memory(symbol, work.inputs, req, work.training_mb, "training")
end

local function define_network(name)
  local record = json.decode(vectors.read("networks/" .. name .. ".json"))
  local tag = record.parameter_count > SLOW and " #slow" or ""
  it(name .. " inference" .. tag, function() check_inference(name, record) end)
  it(name .. " training" .. tag, function()
    if not faults.of("networks", name, "training") then check_training(name, record) end
  end)
  it(name .. " planned memory", function() check_plans(name, record) end)
end

local function define_filler()
  it("filler: the check values of its description", function()
    local h = filler.hash("data")
    assert.equal(26174487, h)
    assert.same({ 66214496, 59328026, 58849762, 66152765 },
      { filler.word(h, 0), filler.word(h, 1), filler.word(h, 2), filler.word(h, 1000000) })
    local u = filler.floats("fc1_weight", 3, { kind = "uniform", offset = 0.5, scale = 0.25 })
    assert.same({ 0.2921726703643799, 0.2982177734375, 0.723440945148468 }, { u[0], u[1], u[2] })
    local k = filler.floats("softmax_label#1", 5, { kind = "integer", low = 1, count = 10 })
    assert.same({ 7, 2, 4, 7, 3 }, { k[0], k[1], k[2], k[3], k[4] })
  end)
end

return {
  needs = { "tycho.executor", "tycho.ndarray" },
  define = function()
    define_filler()
    for _, file in ipairs(vectors.names("networks", ".json")) do
      if not file:match("%-symbol$") and file ~= "memory" and vectors.wanted("networks", file) then
        define_network(file)
      end
    end
    for _, work in ipairs(vectors.wanted("networks", "memory")
        and vectors.json("networks/memory.json").workloads or {}) do
      it("planned memory of " .. work.name, function() check_workload(work) end)
    end
    teardown(function()
      assert.is_true(#kinked <= KINKED, "too many kinked networks: " .. table.concat(kinked, "; "))
    end)
  end,
}

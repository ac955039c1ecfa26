--- Random imperative programs, recorded: run call by call, run lazily as new programs, and from the
-- programs that were kept. The first two agree within the tolerance, the last two in every bit.
--
--     build/tycho spec/fuzz/recorded.lua [programs = 2000] [first seed = 1]
--
-- Prints what differs, with the seed, and how many programs did.
local ty = require "tycho"
local native = require "tycho.core.ffi"
local nd, autograd = ty.nd, ty.autograd

local ROWS, COLUMNS = 3, 4

-- Returns a random generator of its own, so that the arrays' numbers are not those of the choices.
local function choices(seed)
  local state = seed * 2654435761 % 2 ^ 32
  local function next_number()
    state = (state * 1664525 + 1013904223) % 2 ^ 32
    return state / 2 ^ 32
  end
  for _ = 1, 3 do
    next_number()
  end
  local r = {}
  function r.int(n)
    return math.floor(next_number() * n) + 1
  end
  function r.chance(p)
    return next_number() < p
  end
  function r.of(list)
    return list[r.int(#list)]
  end
  return r
end

-- Returns the state of a program: arrays by kind.
local function new_state(r, seed)
  ty.random.seed(seed)
  local s = { r = r, log = {}, variables = {}, plain = {}, results = {} }
  for i = 1, 3 do
    local x = nd.random.uniform{ 0.2, 1.5, shape = { ROWS, COLUMNS } }
    x:attach_grad{ grad_req = r.chance(0.2) and "add" or "write" }
    s.variables[i] = x
    s.plain[i] = nd.random.uniform{ 0.2, 1.5, shape = { ROWS, COLUMNS } }
  end
  s.gamma, s.beta = nd.ones{ COLUMNS }, nd.zeros{ COLUMNS }
  s.gamma:attach_grad()
  s.beta:attach_grad()
  s.mean, s.var = nd.zeros{ COLUMNS }, nd.ones{ COLUMNS }
  s.weight = nd.random.uniform{ -0.5, 0.5, shape = { COLUMNS, COLUMNS } }
  s.weight:attach_grad()
  return s
end

local function note(s, x)
  for _, v in ipairs(x:reshape{ -1 }:totable()) do
    s.log[#s.log + 1] = v
  end
end

local function any(s)
  local r = s.r
  local list = #s.results > 0 and r.chance(0.7) and s.results or r.chance(0.6) and s.variables
    or s.plain
  return list[math.max(1, #list - r.int(math.min(#list, 4)) + 1)]
end

local UNARY = { "exp", "tanh", "sigmoid", "relu", "square", "abs", "softsign", "sqrt" }
local BINARY = { "broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_maximum" }

-- Each gives an array of ROWS x COLUMNS.
local MAKERS = {
  function(s) return nd[s.r.of(UNARY)](nd.clip{ any(s), a_min = 0.01, a_max = 3 }) end,
  function(s) return nd[s.r.of(BINARY)](any(s), any(s)) end,
  function(s) return any(s) * (s.r.int(20) / 10) + s.r.int(3) end,
  function(s) return any(s) - any(s):mean{ axis = 1, keepdims = true } end,
  function(s) return nd.softmax{ any(s), axis = s.r.int(2) - 1 } end,
  function(s)
    return nd.FullyConnected{ any(s), s.weight, num_hidden = COLUMNS, no_bias = true }
  end,
  function(s) return nd.Dropout{ any(s), p = 0.3 } end,
  function(s)
    return nd.BatchNorm{ any(s), s.gamma, s.beta, s.mean, s.var, axis = 1, fix_gamma = false }
  end,
  function(s) return any(s):reshape{ COLUMNS, ROWS }:reshape{ ROWS, COLUMNS } end,
  function(s) return nd.transpose(nd.transpose(any(s))) end,
  function(s)
    local parts = nd.split{ any(s), num_outputs = 2, axis = 1 }
    return nd.concat(parts[2], parts[1], { dim = 1 })
  end,
  function(s) return nd.stack(any(s)[0], any(s)[1], any(s)["2"], { axis = 0 }) end,
  function(s) return nd.where(any(s):gt(0.7), any(s), any(s)) end,
  function(s) return any(s):copy() end,
  function(s) return any(s):astype("float64"):astype("float32") end,
  function(s) return any(s):detach() * 0.5 end,
  function(s) return autograd.pause(function() return any(s) + 1 end) end,
  function(s)
    local out = nd.zeros{ ROWS, COLUMNS }
    out[":"] = any(s)
    return out
  end,
  function(s)
    local x, steps = any(s), 0
    while x:sum():asscalar() > 6 and steps < 3 do
      x, steps = x * 0.6, steps + 1
    end
    return x
  end,
  function(s) return nd.random.uniform{ 0, 1, shape = { ROWS, COLUMNS } } + any(s) end,
}

local function read_something(s)
  note(s, any(s):sum())
end

local function write_plain(s)
  local x = s.r.of(s.plain)
  if s.r.chance(0.5) then
    x[s.r.int(ROWS) - 1] = s.r.int(9) / 10
  else
    x:mul_(0.9)
  end
end

local function try(s, f, ...)
  local ok, e = pcall(f, ...)
  s.log[#s.log + 1] = ok and "ok" or tostring(type(e) == "table" and e.code or e)
end

local function mistake(s)
  try(s, function() return any(s) + nd.ones{ 5, 7 } end)
  try(s, function() s.r.of(s.variables):add_(1) end)
end

local function record(s)
  local r = s.r
  autograd.record(r.chance(0.8), function()
    for _ = 1, r.int(12) do
      -- The call comes first: of `list[#list + 1] = f()`, with the place computed before the call,
      -- traces of LuaJIT 2.1.0-beta3 lose an element in some processes.
      local y = r.of(MAKERS)(s)
      s.results[#s.results + 1] = y
      if r.chance(0.08) then read_something(s) end
      if r.chance(0.05) then write_plain(s) end
      if r.chance(0.03) then mistake(s) end
      if r.chance(0.05) and #s.results > 3 then table.remove(s.results, r.int(#s.results)) end
    end
  end)
end

local function go_back(s)
  local r = s.r
  local head = any(s)
  if r.chance(0.2) then
    try(s, function()
      local x = r.of(s.variables)
      note(s, autograd.grad(head, x, { retain_graph = r.chance(0.5) }))
    end)
  else
    local options = { retain_graph = r.chance(0.3), train_mode = true }
    if r.chance(0.3) then
      try(s, head.backward, head, nd.ones{ ROWS, COLUMNS } * 0.5, options)
    else
      try(s, head.backward, head, options)
    end
  end
  if r.chance(0.7) then
    for _, x in ipairs(s.variables) do
      note(s, x.grad)
      if r.chance(0.6) then x:sub_(x.grad * 0.05) end
    end
  end
end

local function run(seed)
  local r = choices(seed)
  local s = new_state(r, seed)
  for _ = 1, r.int(4) do
    record(s)
    if r.chance(0.1) then collectgarbage() end
    for _ = 1, r.int(2) do
      go_back(s)
    end
    if r.chance(0.3) then write_plain(s) end
  end
  for _, x in ipairs(s.results) do
    try(s, note, s, x)
  end
  for _, x in ipairs{ s.gamma.grad, s.beta.grad, s.weight.grad, s.mean, s.var } do
    note(s, x)
  end
  return s.log
end

local function same(a, b, tolerance)
  if #a ~= #b then return "of different length: " .. #a .. ", " .. #b end
  for i = 1, #a do
    local x, y = a[i], b[i]
    if type(x) ~= type(y) or type(x) == "string" and x ~= y then
      return ("%d: %s, %s"):format(i, tostring(x), tostring(y))
    elseif type(x) == "number" and x ~= y and (x == x or y == y)
      and (x ~= x or y ~= y or math.abs(x - y) > tolerance * math.max(1, math.abs(x), math.abs(y)))
    then
      return ("%d: %.9g, %.9g"):format(i, x, y)
    end
  end
end

local function lazily(on, seed)
  native.C.ty_lazy_enable(on and 1 or 0)
  local ok, log = pcall(run, seed)
  return ok and log or { tostring(log) }
end

local count, first = tonumber(arg and arg[1]) or 2000, tonumber(arg and arg[2]) or 1
local bad = 0
for seed = first, first + count - 1 do
  local eager, lazy, again = lazily(false, seed), lazily(true, seed), lazily(true, seed)
  local wrong = same(eager, lazy, 1e-4)
  if wrong then wrong = "eager, lazy: " .. wrong end
  wrong = wrong or same(lazy, again, 0) and "kept programs: " .. same(lazy, again, 0)
  if wrong then
    bad = bad + 1
    print(("seed %d: %s"):format(seed, wrong))
    if bad == 20 then break end
  end
end
local stats = autograd.stats()
print(("%d programs, %d differ; %d kept, %d hits, %d misses"):format(count, bad, stats.programs,
  stats.hits, stats.misses))
os.exit(bad == 0 and 0 or 1)

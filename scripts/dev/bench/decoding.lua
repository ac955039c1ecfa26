--- One token after 128: a step of a decoder whose keys and values stay in its executor, measured in
-- turn with a loop of 64-byte loads (loads.c) over the bytes that the step reads: its weights and
-- the contents of the caches. Then many tokens one after the other, each timed separately.
local ffi = require "ffi"
local measure = require "measure"
local native = require "tycho.core.ffi"
local ty = require "tycho"

ffi.cdef "long long loads_read(const char *const *, const size_t *, int, int, int);"

local S, V = ty.sym, ty.sym.Variable
local contrib = S.contrib
local FILLED, NUMBER, SCALE = 128, 4, 0.02                -- positions; bytes of one; of weights
local TOKENS = os.getenv "QUICK" == "1" and 200 or 2000
local SMALL_LIMIT = 0.25                                  -- most ms for a token of "small"

local MODELS = {
  gpt2 = {layers = 12, width = 768, heads = 12, inner = 3072, words = 50257, capacity = 1024},
  small = {layers = 4, width = 256, heads = 8, inner = 1024, words = 2000, capacity = 1024},
}

local function linear(x, n, name)
  return S.FullyConnected{data = x, num_hidden = n, flatten = false, name = name}
end

local function norm(x, name) return S.LayerNorm{data = x, name = name} end

local function cache(i, kind) return ("layer%d_%s_cache"):format(i, kind) end

local function attention(x, o, i, length)
  local name = "layer" .. i
  local parts = S.split{linear(x, 3 * o.width, name .. "_qkv"), num_outputs = 3, axis = 2}
  local keys, values = V(cache(i, "key")), V(cache(i, "value"))
  local filled = contrib.cache_append{key = parts[2], value = parts[3], length = length,
    key_cache = keys, value_cache = values}
  local y = contrib.attention{query = parts[1], key = keys, value = values, valid_length = filled,
    heads = o.heads}
  return linear(y, o.width, name .. "_out")
end

-- Returns a decoder like GPT-2, whose embedding is also the last layer's weight.
local function network(o)
  local length, words = V "length", V "words_weight"
  local x = S.Embedding{data = V "data", weight = words, input_dim = o.words, output_dim = o.width}
    + S.Embedding{data = S.reshape{length, shape = {1, 1}}, input_dim = o.capacity,
      output_dim = o.width, name = "positions"}
  for i = 1, o.layers do
    local name = "layer" .. i
    x = x + attention(norm(x, name .. "_norm1"), o, i, length)
    local units = linear(norm(x, name .. "_norm2"), o.inner, name .. "_up")
    x = x + linear(S.LeakyReLU{units, act_type = "gelu"}, o.width, name .. "_down")
  end
  return S.softmax{S.FullyConnected{data = norm(x, "norm"), weight = words, num_hidden = o.words,
    no_bias = true, flatten = false}}
end

local function bound(o)
  local shapes = {data = {1, 1}, length = {1}}
  for i = 1, o.layers do
    for _, kind in ipairs{"key", "value"} do shapes[cache(i, kind)] = {1, o.capacity, o.width} end
  end
  local exe = network(o):simple_bind{ctx = ty.cpu(), shapes = shapes, grad_req = "null"}
  for name, x in pairs(exe.arg_dict) do
    if not shapes[name] then x[":"] = ty.random.normal{shape = x.shape, scale = SCALE} end
  end
  for _, x in pairs(exe.aux_dict) do x[":"] = 0 end
  exe.arg_dict.data[":"], exe.arg_dict.length[":"] = 1, FILLED
  return exe
end

-- Returns the arrays that a step reads, as arguments of loads_read, and their bytes.
local function list_bytes(o, exe)
  local list = {}
  for name, x in pairs(exe.arg_dict) do
    if name ~= "data" and name ~= "length" and name ~= "positions_weight" then
      list[#list + 1] = {x:data(), x.size * NUMBER}
    end
  end
  for _, x in pairs(exe.aux_dict) do list[#list + 1] = {x:data(), FILLED * o.width * NUMBER} end
  local array, bytes, total = ffi.new("const char *[?]", #list), ffi.new("size_t[?]", #list), 0
  for i, part in ipairs(list) do
    array[i - 1], bytes[i - 1] = ffi.cast("const char *", part[1]), part[2]
    total = total + part[2]
  end
  return array, bytes, #list, total
end

-- Records the mean and the least time of `TOKENS` consecutive steps.
local function in_a_row(name, step)
  local list, sum, within = {}, 0, 0
  for i = 1, TOKENS do
    local from = measure.now()
    step()
    list[i] = (measure.now() - from) * 1e3
    sum = sum + list[i]
    within = within + (list[i] <= SMALL_LIMIT and 1 or 0)
  end
  table.sort(list)
  measure.record("decode " .. name .. " in a row", "", "ms", list, nil, {tokens = TOKENS,
    mean = sum / TOKENS, least = list[1], ninth_tenth = list[math.ceil(0.9 * TOKENS)],
    within_limit = name == "small" and within / TOKENS or nil})
end

local function decode(name, loads)
  local o = MODELS[name]
  local exe = bound(o)
  -- written directly between runs: an assignment is a separate task of about 10 us
  local data = ffi.cast("float *", exe.arg_dict.data:data())
  local length = ffi.cast("float *", exe.arg_dict.length:data())
  local function step()
    data[0], length[0] = 1, FILLED
    exe:forward()[1]:wait_to_read()
  end
  step()
  local array, bytes, n, total = list_bytes(o, exe)
  local threads = native.C.ty_threads(0)
  -- rounds per call, so that the start of threads takes a small part of the time
  local rounds = math.max(1, math.floor(5e8 / total))
  local function read() assert(loads.loads_read(array, bytes, n, threads, rounds) ~= -1) end
  local allocations = exe:stats().allocations
  local times = measure.in_turn({step, read}, function() end)
  assert(exe:stats().allocations == allocations, "a step allocates")
  in_a_row(name, step)
  assert(exe:stats().allocations == allocations, "a step allocates")
  local ratio = {}
  for i, s in ipairs(times[2]) do
    times[2][i] = s / rounds
    ratio[i] = times[1][i] / times[2][i]
  end
  local function milliseconds(list)
    local out = {}
    for i, s in ipairs(list) do out[i] = s * 1e3 end
    return out
  end
  measure.record("decode " .. name, "", "ms", milliseconds(times[1]), nil, {bytes_read = total})
  measure.record("loads " .. name, "", "ms", milliseconds(times[2]))
  measure.record("decode/loads " .. name, "", "x", ratio)
end

-- only: "gpt2" or "small"; nil: both
return function(only)
  local program = os.getenv "TYCHO_PROGRAM" or arg[-1]
  local ok, loads = pcall(ffi.load, (program:match "^(.*)/" or ".") .. "/bench/libloads.so")
  if not ok then
    io.stderr:write(("bench: decode: %s; make build/bench/libloads.so makes it\n")
      :format(tostring(loads)))
    os.exit(1)
  end
  for _, name in ipairs{"gpt2", "small"} do
    if not only or only == name then decode(name, loads) end
  end
end

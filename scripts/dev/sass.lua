--- Static figures of compiled kernels: registers, bytes of shared memory, spills, and the widths of
-- loads and stores of device memory. Nothing is timed or executed.
--   tycho scripts/dev/sass.lua FOLDER [--all]
--       kernels of a cache that scripts/dev/cubins.lua compiled: of the hot ones, or of all, the
--       variant of each type that loads most at a time
--   tycho scripts/dev/sass.lua --ask
--       asks for the hot kernels on the stand-in without running any (CUDASIM_DRY=1): their keys
--       are then in TYCHO_CACHE
-- `make check-sass` does both. Ends with 1 where a hot kernel spills, or loads less at a time than
-- HOT says, and with 0 and a line that says so where cuobjdump is not on the PATH.
local cuda_library = require "scripts.dev.cuda_library"
local ffi = require "ffi"

-- Name of a kernel, and the least width in bytes of its widest loads if alignment permits: 0 if
-- neighbouring threads of a warp load neighbouring elements, or if the loads have an irregular
-- order.
local HOT = {
  { "move", 16 }, { "transpose", 4 }, { "running_rows", 16 }, { "running_tiles", 16 },
  { "sort_lines", 0 }, { "sort_pass", 0 }, { "select_keys", 0 }, { "add_rows", 16 },
  { "reduce", 16 }, { "dropout", 16 }, { "pool", 16 }, { "pool_planes", 16 }, { "pool_back", 16 },
  { "softmax_held", 16 }, { "softmax_back_held", 16 }, { "norm_rows_held", 16 },
  { "norm_rows_back_held", 16 }, { "batch_parts", 16 }, { "batch_apply", 16 },
  { "batch_back_parts", 16 }, { "batch_back_apply", 16 }, { "recurrence_forward", 16 },
  { "recurrence_backward", 16 }, { "attend_tensor", 16 },
  { "attend_back_queries_tensor", 16 }, { "attend_back_keys_tensor", 16 },
}

-- Asking ------------------------------------------------------------------------------------------

local function ask()
  local ty = require "tycho"
  local gpu = ty.gpu(0)
  local function run(name, shape, dtype, options)
    local call, types = { data = ty.sym.Variable("x") }, { x = dtype }
    for k, v in pairs(options or {}) do
      call[k] = v
    end
    local net = ty.sym[name](call)
    if name == "RNN" then
      for _, argument in ipairs(net:list_arguments()) do
        types[argument] = dtype
      end
    end
    local exe = net:simple_bind{ ctx = gpu, x = shape, type_dict = types }
    exe:forward(true)
    exe:backward{ ty.nd.ones(exe.outputs[1].shape, { ctx = gpu, dtype = exe.outputs[1].dtype }) }
  end
  for _, dtype in ipairs{ "float32", "float16" } do
    local x = ty.nd.zeros({ 64, 4096 }, { ctx = gpu, dtype = dtype })
    ty.nd.transpose(x)
    ty.nd.transpose{ x:reshape{ 64, 64, 64 }, axes = { 1, 0, 2 } }
    ty.nd.cumsum{ x:reshape{ 1024, 256 }, axis = 1 }
    ty.nd.cumsum{ x, axis = 1 }
    ty.nd.sort(x:reshape{ 128, 2048 })
    ty.nd.sort(x)
    ty.nd.topk{ x, k = 10 }
    for _, axis in ipairs{ 0, 1 } do
      ty.nd.sum{ x, axis = axis }
    end
    run("softmax", { 256, 1024 }, dtype)
    run("LayerNorm", { 256, 1024 }, dtype)
    run("Dropout", { 256, 1024 }, dtype)
    -- heads of 64 and of 128 columns
    for _, heads in ipairs{ 4, 2 } do
      local q = ty.nd.zeros({ 2, 128, 256 }, { ctx = gpu, dtype = dtype })
      q:attach_grad()
      local options = { query = q, key = q, value = q, heads = heads, causal = true }
      ty.autograd.record(function() return ty.nd.contrib.attention(options) end):backward()
    end
    run("BatchNorm", { 16, 64, 32, 32 }, dtype)
    run("BatchNorm", { 16, 32, 32, 64 }, dtype, { axis = 3 })
    -- one sample per block, and four
    for _, batch in ipairs{ 2, 16 } do
      for _, mode in ipairs{ "lstm", "gru", "rnn_tanh" } do
        run("RNN", { 4, batch, 64 }, dtype, { mode = mode, state_size = 200, num_layers = 1,
          parameters = ty.sym.Variable("p"), state = ty.sym.Variable("h"),
          state_cell = mode == "lstm" and ty.sym.Variable("c") or nil })
      end
    end
    run("Pooling", { 8, 64, 16, 16 }, dtype, { global_pool = true, pool_type = "avg" })
    run("Pooling", { 8, 16, 16, 64 }, dtype,
      { kernel = { 2, 2 }, stride = { 2, 2 }, layout = "NHWC" })
    local exe = ty.sym.Embedding{ data = ty.sym.Variable("i"), weight = ty.sym.Variable("w"),
      input_dim = 1000, output_dim = 256 }:simple_bind{ ctx = gpu, i = { 4096 },
      type_dict = { w = dtype, i = "float32" } }
    exe:forward(true)
    exe:backward{ ty.nd.ones(exe.outputs[1].shape, { ctx = gpu, dtype = dtype }) }
  end
  ty.waitall()
end

-- Reading -----------------------------------------------------------------------------------------

ffi.cdef "typedef struct { char magic[8]; uint64_t nkey, nbytes, hash; } sass_header;"

local function read(path)
  local file = assert(io.open(path, "rb"))
  local bytes = file:read("*a")
  file:close()
  return bytes
end

-- Returns the architecture and options of a kernel, the defines at the start of its source, and its
-- image.
local function parse(path)
  local bytes = read(path)
  local h = ffi.new("sass_header")
  ffi.copy(h, bytes, ffi.sizeof(h))
  local size = ffi.sizeof(h)
  local key = bytes:sub(size + 1, size + tonumber(h.nkey))
  return key, bytes:sub(size + 1 + tonumber(h.nkey))
end

local function read_output(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read("*a")
  pipe:close()
  return text
end

-- Returns the widths in bytes of instructions of a name, such as LDG.E.128: the widest, and the
-- number of each.
local function widths(text, name)
  local counts, widest = {}, 0
  for words in text:gmatch("%s" .. name .. "([%.%w]*)") do
    local bits = tonumber(words:match("%.(%d+)")) or tonumber(words:match("%.[US](%d+)")) or 32
    counts[bits / 8] = (counts[bits / 8] or 0) + 1
    widest = math.max(widest, bits / 8)
  end
  local list = {}
  for bytes, n in pairs(counts) do
    list[#list + 1] = { bytes, n }
  end
  table.sort(list, function(a, b) return a[1] > b[1] end)
  for i, one in ipairs(list) do
    list[i] = ("%d × %d"):format(one[2], one[1])
  end
  return widest, table.concat(list, ", ")
end

-- Returns the name of the kernel in a key's source.
local function find_name(key)
  local bounded = '\nextern "C" __global__ void __launch_bounds__%([%w_]+%) ([%w_]+)%('
  return key:match(bounded) or key:match('\nextern "C" __global__ void ([%w_]+)%(')
end

local function make_figures(key, image)
  local temporary = os.tmpname()
  local file = assert(io.open(temporary, "wb"))
  file:write(image)
  file:close()
  local text = read_output(("cuobjdump -res-usage -sass '%s' 2>&1"):format(temporary))
  os.remove(temporary)
  local f = { name = find_name(key), registers = tonumber(text:match("REG:(%d+)")) }
  if not f.registers then
    return nil, text
  end
  f.shared = tonumber(text:match("SHARED:(%d+)"))
  f.dtype = key:match("\n#define T (%w+)") or key:match("\n#define UNIT (%w+)") or ""
  local _, loads = text:gsub("%sLDL", "")
  local _, stores = text:gsub("%sSTL", "")
  f.spills = loads + stores
  f.load, f.loads = widths(text, "LDG%.E")
  f.store, f.stores = widths(text, "STG%.E")
  return f
end

-- Returns, for each kernel and dtype, the variant that loads most at a time.
local function find_widest(folder, wanted)
  local best, list, why = {}, {}, nil
  for _, path in ipairs(cuda_library.lines(("ls '%s'/*.cubin 2>/dev/null"):format(folder))) do
    local key, image = parse(path)
    local name = find_name(key)
    local f
    if name and (not wanted or wanted[name]) then
      f, why = make_figures(key, image)
    end
    local id = f and f.name .. " " .. f.dtype
    if f and (not best[id] or f.load > best[id].load) then
      best[id] = f
    end
  end
  for _, f in pairs(best) do
    list[#list + 1] = f
  end
  table.sort(list, function(a, b)
    return a.name .. " " .. a.dtype < b.name .. " " .. b.dtype
  end)
  return list, why
end

local function report(folder, all)
  local wanted, bad, seen = {}, 0, {}
  for _, one in ipairs(HOT) do
    wanted[one[1]] = one[2]
  end
  local list, why = find_widest(folder, not all and wanted)
  print("| Kernel | Type | Registers | Shared, bytes | Spills | Loads | Stores |")
  print("|---|---|---|---|---|---|---|")
  for _, f in ipairs(list) do
    local least = wanted[f.name]
    seen[f.name] = true
    print(("| `%s` | %s | %d | %d | %d | %s | %s |"):format(f.name, f.dtype, f.registers, f.shared,
      f.spills, f.loads, f.stores))
    if least and (f.spills > 0 or f.load < least) then
      bad = bad + 1
      io.stderr:write(("%s of %s: %d spills, loads of %d bytes; expected 0 and %d\n"):format(f.name,
        f.dtype, f.spills, f.load, least))
    end
  end
  for _, one in ipairs(HOT) do
    if not seen[one[1]] then
      bad = bad + 1
      io.stderr:write(("%s: not in %s%s\n"):format(one[1], folder, why and ": " .. why or ""))
    end
  end
  return bad > 0 and 1 or 0
end

if arg[1] == "--ask" then
  ask()
elseif not arg[1] then
  io.stderr:write("sass.lua: a folder of compiled kernels is needed; the file's head says how\n")
  os.exit(2)
elseif #cuda_library.lines("command -v cuobjdump") == 0 then
  print("kernels' SASS: not looked at, no cuobjdump on the PATH")
else
  os.exit(report(arg[1], arg[2] == "--all"))
end

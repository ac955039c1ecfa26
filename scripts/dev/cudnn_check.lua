--- Lets the real cuDNN check graphs, which needs no GPU: it makes each graph, ranks its engines for
-- an A100, an H100 and a B200 by their properties, and makes at least one plan.
--   luajit scripts/dev/cudnn_check.lua FOLDER
-- FOLDER contains the graphs that CUDASIM_GRAPHS=FOLDER stored during a run on the stand-in
-- (spec/cudasim), which accepts all of them. Prints the graphs that the library refuses; the exit
-- status is then 1, and 2 without cuDNN. Nothing is executed; ranks and workspaces of an absent
-- device mean little.
local cuda_library = require "scripts.dev.cuda_library"
local ffi = require "ffi"

ffi.cdef [[
typedef void *thing;
int cudnnBackendCreateDescriptor(int kind, thing *);
int cudnnBackendDestroyDescriptor(thing);
int cudnnBackendSetAttribute(thing, int name, int type, int64_t n, const void *);
int cudnnBackendGetAttribute(thing, int name, int type, int64_t n, int64_t *got, void *);
int cudnnBackendFinalize(thing);
void cudnnGetLastErrorString(char *, size_t);
size_t cudnnGetVersion(void);
]]

-- constants of cudnn_graph.h
local KIND = { config = 3, heuristic = 4, plan = 5, properties = 38 }
local TYPE = { descriptor = 15, mode = 8, text = 24 }
local NAME = { mode = 200, graph = 201, ranked = 202, heuristic_device = 204, config = 401,
  plan_device = 407, json = 2702 }
local MODES = { 3, 2 }                                   -- the best first, then fallbacks
local MOST = 64                                          -- most engines per request

-- properties that differ between the devices
local DEVICES = {
  { name = "A100", deviceVer = 800, multiProcessorCount = 108,
    maxSharedMemoryPerBlockOptin = 166912,
    smClockRateKHz = 1410000, memClockRateKHz = 1593000, l2CacheSize = 41943040,
    totalGlobalMem = "84974239744" },
  { name = "H100", deviceVer = 900, multiProcessorCount = 132,
    maxSharedMemoryPerBlockOptin = 232448,
    smClockRateKHz = 1980000, memClockRateKHz = 2619000, l2CacheSize = 52428800,
    totalGlobalMem = "85029158912" },
  { name = "B200", deviceVer = 1000, multiProcessorCount = 148,
    maxSharedMemoryPerBlockOptin = 232448,
    smClockRateKHz = 1965000, memClockRateKHz = 3996000, l2CacheSize = 132644864,
    totalGlobalMem = "191503138816" },
}
local ALIKE = [["driverVer":13000,"cudaDeviceId":0,"maxGridSize":[2147483647,65535,65535],
"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"warpSize":32,"maxSharedMemoryPerBlock":49152,
"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,
"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,
"supportCoopLaunch":1]]


local folder = assert(arg[1], "a folder of graphs is needed")
local cudnn = cuda_library.load({ "libcudnn.so.9" }, "libcudnn.so.9")
if not cudnn then
  print("cuDNN is not installed")
  os.exit(2)
end


-- Descriptors ------------------------------------------------------------------------------------

local function why(code)
  local text = ffi.new("char[1024]")
  cudnn.cudnnGetLastErrorString(text, 1024)
  return ("status %d, %s"):format(code, ffi.string(text))
end


local function need(code)
  if code ~= 0 then
    error(why(code), 0)
  end
end


local function make(kind, made)
  local t = ffi.new("thing[1]")
  need(cudnn.cudnnBackendCreateDescriptor(kind, t))
  made[#made + 1] = t[0]
  return t[0]
end


local function set_parts(t, name, parts)
  need(cudnn.cudnnBackendSetAttribute(t, name, TYPE.descriptor, #parts,
    ffi.new("thing[?]", #parts, parts)))
end


local function finalized(t)
  need(cudnn.cudnnBackendFinalize(t))
  return t
end


local function make_properties(device)
  local parts, made = {}, {}
  for key, value in pairs(device) do
    parts[#parts + 1] = key ~= "name" and ('"%s":%s,'):format(key, value) or nil
  end
  local json = ('{%s%s,"deviceName":"NVIDIA %s"}'):format(table.concat(parts),
    (ALIKE:gsub("\n", "")), device.name)
  local t = make(KIND.properties, made)
  need(cudnn.cudnnBackendSetAttribute(t, NAME.json, TYPE.text, #json, json))
  return finalized(t)
end


local function number_or_bytes(t, name, rest, things)
  local type, count, hex = rest:match("^(%d+):(%d+):(%x*)$")
  if type then
    local bytes = hex:gsub("%x%x", function(x) return string.char(tonumber(x, 16)) end)
    return need(cudnn.cudnnBackendSetAttribute(t, name, tonumber(type), tonumber(count), bytes))
  end
  local parts = {}
  for k in rest:gmatch("%d+") do
    parts[#parts + 1] = assert(things[tonumber(k)])
  end
  set_parts(t, name, parts)
end


-- Returns the graph of a file, its last descriptor.
local function read_graph(path, made)
  local things, last = {}, nil
  for line in io.lines(path) do
    local number, kind, rest = line:match("^(%d+) (%d+)(.*)$")
    local t = make(tonumber(kind), made)
    for name, value in rest:gmatch(" (%d+):(%S+)") do
      number_or_bytes(t, tonumber(name), value, things)
    end
    things[tonumber(number)], last = finalized(t), t
  end
  return last
end


-- Plans ------------------------------------------------------------------------------------------

local function ranked(graph, properties, mode, made)
  local heuristic = make(KIND.heuristic, made)
  set_parts(heuristic, NAME.graph, { graph })
  need(cudnn.cudnnBackendSetAttribute(heuristic, NAME.mode, TYPE.mode, 1,
    ffi.new("int32_t[1]", mode)))
  set_parts(heuristic, NAME.heuristic_device, { properties })
  finalized(heuristic)
  local list, got = ffi.new("thing[?]", MOST), ffi.new("int64_t[1]")
  for i = 0, MOST - 1 do
    list[i] = make(KIND.config, made)
  end
  need(cudnn.cudnnBackendGetAttribute(heuristic, NAME.ranked, TYPE.descriptor, MOST, got, list))
  return list, math.min(tonumber(got[0]), MOST)
end


local function plans(config, properties, made)
  local plan = make(KIND.plan, made)
  set_parts(plan, NAME.config, { config })
  set_parts(plan, NAME.plan_device, { properties })
  finalized(plan)
end


-- Raises an error with the reason if no engine can be planned.
local function judge(path, properties, made)
  local graph, last = read_graph(path, made), "no engine is offered"
  for _, mode in ipairs(MODES) do
    local ok, list, n = pcall(ranked, graph, properties, mode, made)
    last = not ok and list or last
    for i = 0, ok and n - 1 or -1 do
      local good, e = pcall(plans, list[i], properties, made)
      if good then
        return
      end
      last = e
    end
  end
  error(last, 0)
end


local bad, paths = 0, cuda_library.lines(("ls '%s'/*.graph 2>/dev/null"):format(folder))
for _, device in ipairs(DEVICES) do
  local properties = make_properties(device)
  for _, path in ipairs(paths) do
    local made = {}
    local ok, e = pcall(judge, path, properties, made)
    for i = #made, 1, -1 do
      cudnn.cudnnBackendDestroyDescriptor(made[i])
    end
    if not ok then
      bad = bad + 1
      print(("%s, %s: %s"):format(path, device.name, e))
    end
  end
end
print(("%d graphs for %d devices, cuDNN %d: %d refused"):format(#paths, #DEVICES,
  tonumber(cudnn.cudnnGetVersion()), bad))
os.exit((bad > 0 or #paths == 0) and 1 or 0)

-- The fastest of a library's ways to make a product or a convolution: timed where TYCHO_TUNE
-- allows, kept for the process and on disk (native/cuda/trial.c). On the stand-in CUDASIM_FASTEST
-- says which way takes half of the others' time.

local folder = require "spec.support.folder"
local lfs = require "lfs"
local stand_in = require "spec.support.stand_in"

local SCRIPT = [[
local ty = require "tycho"
local ffi = require "ffi"
ffi.cdef "const char *cudasim_costs(void);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local gpu = ty.gpu(0)
local V = ty.sym.Variable

-- Calls of libraries since the last time, by name.
local function print_calls(what)
  ty.waitall()
  local count, names = {}, {}
  for name in ffi.string(driver.cudasim_costs()):gmatch("([^\t\n]+)\t%d+\t%d+\n") do
    if name:find "^cu[bd]" then
      names[#names + 1] = not count[name] and name or nil
      count[name] = (count[name] or 0) + 1
    end
  end
  table.sort(names)
  for _, name in ipairs(names) do print(what, name, count[name]) end
end

-- Binds a network twice, and runs it.
local function run(what, net, shapes)
  for _ = 1, 2 do
    driver.cudasim_costs()
    local exe = net:simple_bind{ctx = gpu, shapes = shapes, grad_req = "null"}
    for _, x in pairs(exe.arg_dict) do x[":"] = 2 end
    print_calls(what .. " bound")
    exe:forward()
    print(what, exe.outputs[1]:sum():asscalar())
    print_calls(what .. " run")
  end
end

run("product", ty.sym.FullyConnected{V "x", num_hidden = 8}, {x = {16, 128}})
run("convolution", ty.sym.Convolution{V "x", kernel = {3, 3}, num_filter = 4}, {x = {2, 3, 8, 8}})
]]

-- A product and a convolution whose sizes have not been timed, while a call fails.
local FAILURES = [[
local ty = require "tycho"
local ffi = require "ffi"
ffi.cdef [=[
  void cudasim_fail(const char *);
  long cudasim_live(const char *);
]=]
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local KINDS = {"allocations", "events", "descriptors of cublasLt", "descriptors of cuDNN"}
local V, sym, bad, size, tries = ty.sym.Variable, ty.sym, 0, 8, 0

local function left()
  collectgarbage()
  collectgarbage()
  local all = {}
  for i, kind in ipairs(KINDS) do all[i] = tonumber(driver.cudasim_live(kind)) end
  return all
end
local function result(net, shape, precision)
  local exe = net:simple_bind{ctx = ty.gpu(0), x = shape, grad_req = "null",
    precision = precision or "highest"}
  for _, x in pairs(exe.arg_dict) do x[":"] = 1 end
  exe:forward()
  local sum = exe.outputs[1]:sum():asscalar()
  exe:free()
  return sum
end
-- Runs a network while call number n fails. `like` is another product or convolution of arrays of
-- the same sizes: run twice, so that their memory exists. A plan of cuDNN is kept, with 13
-- descriptors, or 14 if it comes from the second list of engines.
local function try(call, n, net, like, shape, want)
  result(like, shape, "high")
  result(like, shape, "high")
  local before = left()
  driver.cudasim_fail(call:find ":" and call or ("%s:%d:999"):format(call, n))
  local good, sum = pcall(result, net, shape)
  driver.cudasim_fail ""
  local again, same = pcall(result, net, shape)
  local after = left()
  if (good and sum ~= want) or not again or same ~= want or after[1] > before[1]
      or after[2] ~= before[2] or after[3] ~= before[3] or after[4] > before[4] + 14 then
    print(call, n, sum, same, table.concat(before, " "), table.concat(after, " "))
    bad = bad + 1
  end
end

local product = sym.FullyConnected{V "x", num_hidden = 2}
local convolution = sym.Convolution{V "x", kernel = {1, 1}, num_filter = 2}
local spread = sym.Convolution{V "x", kernel = {1, 1}, num_filter = 2, dilate = {2, 2}}
result(product, {2, 64})
result(convolution, {1, 1, 4, 4})
for call in CALLS:gmatch "%S+" do
  for n = 1, MOST do
    size, tries = size + 1, tries + 1
    try(call, n, product, product, {2, size}, 2 * 2 * (size + 1))
    try(call, n, convolution, spread, {1, 1, 2, size}, 2 * 2 * size * 2)
  end
end
print(bad, tries)
]]

local function choices(path)
  local n = 0
  for name in lfs.dir(path) do n = n + (name:find("%.choice$") and 1 or 0) end
  return n
end

local function run(path, settings)
  settings.TYCHO_CACHE, settings.CUDASIM_TICK, settings.CUDASIM_COSTS = path, "1000", "1"
  settings.CUDASIM_STRICT = "1"
  local text, status = stand_in.run(SCRIPT, settings)
  assert.equal(0, status, text)
  return text
end

local PRODUCT, CONVOLUTION = "cublasLtMatmul", "cudnnBackendExecute"
local SUMS = {product = 16 * 8 * (128 * 4 + 2), convolution = 2 * 4 * 36 * (27 * 4 + 2)}

-- Returns the output of a run; ways by operator, and whether each of three was timed: three rounds
-- of five runs.
local function expected(way, timed)
  local lines = {}
  local function add(...) lines[#lines + 1] = table.concat({...}, "\t") end
  for _, what in ipairs{"product", "convolution"} do
    local name = what == "product" and PRODUCT or CONVOLUTION
    for time = 1, 2 do
      for k = 0, timed and time == 1 and 2 or -1 do
        add(what .. " bound", k == 0 and name or name .. " way " .. k, 15)
      end
      add(what, SUMS[what])
      add(what .. " run", way[what] == 0 and name or name .. " way " .. way[what], 1)
    end
  end
  return table.concat(lines, "\n") .. "\n"
end

describe("the ways of a library", function()
  if not stand_in.exists() then
    it("any of it", function() pending("there is no build/cudasim: make cudasim") end)
    return
  end

  it("are not timed unless TYCHO_TUNE allows it", function()
    folder.with(function(path)
      local first = expected({product = 0, convolution = 0})
      for _, tune in ipairs{"", "0"} do
        assert.equal(first, run(path, {TYCHO_TUNE = tune, CUDASIM_FASTEST = "2"}))
      end
      assert.equal(0, choices(path))
    end)
  end)

  it("are timed once per machine, and the fastest is taken", function()
    for fastest = 0, 2 do
      folder.with(function(path)
        local way = {product = fastest, convolution = fastest}
        local settings = {TYCHO_TUNE = "1", CUDASIM_FASTEST = tostring(fastest)}
        assert.equal(expected(way, true), run(path, settings))
        assert.equal(2, choices(path))
        -- another process takes what was chosen, whatever would be faster now
        settings.CUDASIM_FASTEST = tostring((fastest + 1) % 3)
        assert.equal(expected(way, false), run(path, settings))
        -- another version of the driver has not been timed
        settings.CUDASIM_DRIVER = "13010"
        local other = {product = (fastest + 1) % 3, convolution = (fastest + 1) % 3}
        assert.equal(expected(other, true), run(path, settings))
        assert.equal(4, choices(path))
      end)
    end
  end)

  it("are timed in each process where nothing is kept", function()
    folder.with(function(path)
      folder.write(path .. "/file", "")
      local settings = {TYCHO_TUNE = "1", CUDASIM_FASTEST = "1"}
      for _ = 1, 2 do
        local text = run(path .. "/file", settings)
        assert.equal(expected({product = 1, convolution = 1}, true), text)
      end
    end)
  end)

  it("are timed again where a kept choice is damaged", function()
    folder.with(function(path)
      local settings = {TYCHO_TUNE = "1", CUDASIM_FASTEST = "2"}
      run(path, settings)
      local good = expected({product = 2, convolution = 2}, true)
      for _, change in ipairs{"\0", "7", ""} do
        for name in lfs.dir(path) do
          if name:find "%.choice$" then
            local whole = folder.read(path .. "/" .. name)
            folder.write(path .. "/" .. name, whole:sub(1, -2) .. change)
          end
        end
        assert.equal(good, run(path, settings))
      end
    end)
  end)

  for most, calls in pairs{[2] = "cuMemGetInfo cuEventCreate cuEventElapsedTime_v2",
      [6] = "cuMemAlloc cuMemsetD8Async cuEventRecord cuEventSynchronize cuStreamSynchronize",
      [16] = "cublasLtMatmul cudnnBackendExecute cublasLtMatmulAlgoGetHeuristic",
      [24] = "cudnnBackendCreateDescriptor cudnnBackendSetAttribute cudnnBackendFinalize"} do
    it("may fail: " .. calls, function()
      folder.with(function(path)
        local settings = {TYCHO_TUNE = "1", CUDASIM_TICK = "1000", TYCHO_CACHE = path}
        local script = ("local CALLS, MOST = %q, %d\n"):format(calls, most) .. FAILURES
        local _, n = calls:gsub("%S+", "")
        assert.equal(("0\t%d\n"):format(n * most), (stand_in.run(script, settings)))
      end)
    end)
  end

  it("are the library's first where there is no memory to time them", function()
    folder.with(function(path)
      local settings = {TYCHO_TUNE = "1", CUDASIM_FASTEST = "2", CUDASIM_FAIL = "cuMemGetInfo:1"}
      local text = run(path, settings)
      assert.matches("product run\tcublasLtMatmul\t1\n", text, 1, true)
      assert.matches("convolution run\tcudnnBackendExecute way 2\t1\n", text, 1, true)
      assert.equal(1, choices(path))
    end)
  end)
end)

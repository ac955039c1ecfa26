-- Runs in a build with MODE=torture: binds, trains two steps and infers, once for each allocation
-- of that, which fails; once alone, once with all that come behind it. Each time the error, if
-- there is one, is one of memory, and the next try gives the same bits. Argument: the library.

local ty = require "tycho"
local ffi = require "ffi"

ffi.cdef "int64_t ty_torture(int64_t at, int lasting);"
local C = ffi.load(arg[1])

local function network()
  local x = ty.sym.Convolution{ ty.sym.Variable "data", num_filter = 2, kernel = { 3, 3 } }
  x = ty.sym.relu{ ty.sym.BatchNorm{ x, name = "bn" } }
  x = ty.sym.FullyConnected{ x, num_hidden = 3, name = "fc" }
  return ty.sym.SoftmaxOutput{ x, name = "softmax" }
end

local function run()
  local exe = network():simple_bind{ ctx = ty.cpu(), data = { 2, 1, 5, 5 } }
  for _, name in ipairs{ "data", "fc_weight", "bn_gamma" } do
    exe.arg_dict[name][":"] = ty.nd.arange(1, exe.arg_dict[name].size + 1)
      :reshape(exe.arg_dict[name].shape) * 0.01
  end
  for _ = 1, 2 do
    exe:forward(true)
    exe:backward()
    local w = exe.arg_dict.fc_weight
    w[":"] = w - exe.grad_dict.fc_weight * 0.1
  end
  exe:forward(false)
  return table.concat(exe.outputs[1]:reshape{ -1 }:totable(), " ")
end

local want = run()
assert(run() == want)
C.ty_torture(0, 0)
assert(run() == want)
local total = tonumber(C.ty_torture(0, 0))
local failed, wrong = 0, 0

local function complain(at, lasting, what)
  wrong = wrong + 1
  print(("allocation %d, lasting %d: %s"):format(at, lasting, tostring(what)))
end

for lasting = 0, 1 do
  for at = 1, total do
    C.ty_torture(at, lasting)
    local ok, e = pcall(run)
    C.ty_torture(0, 0)
    if not ok then
      failed = failed + 1
      local code = type(e) == "table" and e.code or tostring(e)
      if code ~= "memory" then complain(at, lasting, code) end
    end
    local again, got = pcall(run)
    if not again or got ~= want then complain(at, lasting, got) end
  end
end
print(("%d allocations, %d failures, %d wrong"):format(total, failed, wrong))
os.exit(wrong == 0 and failed >= total / 2 and 0 or 1)

-- What groups of GPUs refuse, on the stand-ins for CUDA and NCCL.

local stand_in = require "spec.support.stand_in"

local SCRIPT = [[
local ffi = require "ffi"
local native = require "tycho.core.ffi"
local C = native.C
local group, gpu = ffi.new("ty_comm *[1]"), 256

local function say(code)
  print(code, code == 0 and "" or ffi.string(C.ty_error()))
end
local function open(devices, n)
  say(C.ty_comm_open_devices(ffi.new("int[?]", #devices, devices), n or #devices, nil, group))
end
open({gpu}, 0)
open({gpu}, 17)
say(C.ty_comm_open_devices(nil, 1, nil, group))
say(C.ty_comm_open_devices(ffi.new("int[1]", gpu), 1, nil, nil))
open{gpu, 0}
open{gpu + 1, gpu + 1}
open{gpu, gpu + 2}
say(C.ty_comm_devices(nil, 9))
say(C.ty_comm_devices(ffi.new("char[9]"), 0))
open{gpu, gpu + 1}
local g = group[0]

local function array(device, n, dtype)
  local out = ffi.new("ty_tensor *[1]")
  local d = ffi.new("ty_desc", {dtype = dtype or C.TY_F32, device = device, ndim = 1, dim = {n}})
  native.check(C.ty_tensor_new(d, out), "new")
  return out[0]
end
local a, b, long, whole, host = array(gpu, 3), array(gpu + 1, 3), array(gpu + 1, 4),
  array(gpu + 1, 3, C.TY_I32), array(0, 3)
local function sum(list, wire)
  local x = ffi.new("ty_tensor *[?]", #list, list)
  say(C.ty_comm_sum(g, x, x, #list, wire or C.TY_WIRE_FULL, 0, 0))
end
sum{a}
sum{b, a}
sum{a, host}
sum{a, long}
sum{a, whole}
sum({a, b}, C.TY_WIRE_F16)
sum{a, b}
local x = ffi.new("ty_tensor *[2]", {a, b})
say(C.ty_comm_broadcast(g, x, 2, 2))
say(C.ty_comm_broadcast(g, x, 2, 1))
say(C.ty_comm_gather(g, "x", 1, ffi.new("char[2]")))
local ranks = ffi.new("ty_comm *[1]")
native.check(C.ty_comm_open("threads", 1, ranks), "open")
x[0] = a
say(C.ty_comm_sum(ranks[0], x, x, 1, C.TY_WIRE_FULL, 0, 0))
C.ty_wait(-1)                                            -- the end would abort what is queued
]]

describe("a group of GPUs", function()
  it("names devices and arrays that it cannot have", function()
    if not stand_in.exists() then
      pending("make cudasim")
      return
    end
    local output = stand_in.run(SCRIPT, { CUDASIM_DEVICES = 2 })
    assert.equal(table.concat({
      "1\ta group of 0 devices in one process: 1 to 16",
      "1\ta group of 17 devices in one process: 1 to 16",
      "1\ta group of 1 devices in one process: 1 to 16",
      "2\tty_comm_open_devices: out is missing",
      "8\tsums over devices are for GPUs, not cpu(0)",
      "1\tgpu(1) is twice in a group: each array needs a GPU of its own",
      "8\tgpu(2) does not exist: there are 2 here; use gpu(i) with a smaller i, or cpu(i)",
      "2\tty_comm_devices: the text is missing",
      "2\tty_comm_devices: the text is missing",
      "0\t",
      "1\tty_comm_sum: 1 arrays for 2 devices",
      "8\tty_comm_sum: array 0 is on gpu(1); expected gpu(0)",
      "8\tty_comm_sum: array 1 is on cpu(0); expected gpu(1)",
      "4\tty_comm_sum: array 1 has 4 elements, that of the first device 3",
      "5\tty_comm_sum: array 1 is int32, the first one float32",
      "1\tty_comm_sum: between devices numbers travel as they are",
      "0\t",
      "1\tty_comm_broadcast: there is no rank 2 of 2",
      "0\t",
      "7\tty_comm_gather: devices exchange no bytes of the host",
      "8\tty_comm_sum: array 0 is on gpu(0); messages start on a CPU",
    }, "\n") .. "\n", output)
  end)
end)

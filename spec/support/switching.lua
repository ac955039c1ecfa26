-- Switches between 50 buckets and prints the growth of resident memory and of open descriptors; run
-- by spec/module/bucketing_spec.lua.
--   tycho spec/support/switching.lua MODE WARM N  MODE: switch, predict, train; WARM switches
--                                                 before, N counted
-- Prints: growth in KB, growth of descriptors, bytes of the pool divided by those of the largest
-- bucket.

local ty = require "tycho"

local mode, warm, n = arg[1], tonumber(arg[2]), tonumber(arg[3])
local KEYS = 50

local function generate()
  local x = ty.sym.FullyConnected{ data = ty.sym.Variable("data"), num_hidden = 16,
    flatten = false, name = "fc1" }
  x = ty.sym.mean{ ty.sym.Activation{ data = x, act_type = "tanh" }, axis = 1 }
  x = ty.sym.SoftmaxOutput{ data = ty.sym.FullyConnected{ data = x, num_hidden = 4, name = "fc2" },
    name = "softmax" }
  return x, { "data" }, { "softmax_label" }
end

local function make_batch(key)
  return ty.io.DataBatch{ data = { ty.nd.ones{ 4, key, 8 } }, label = { ty.nd.zeros(4) },
    bucket_key = key, provide_data = { { "data", { 4, key, 8 } } },
    provide_label = { { "softmax_label", { 4 } } } }
end

local module = ty.mod.BucketingModule{ sym_gen = generate, default_bucket_key = KEYS }
module:bind{ data_shapes = { { "data", { 4, KEYS, 8 } } },
  label_shapes = { { "softmax_label", { 4 } } } }
module:init_params()
module:init_optimizer{ optimizer_params = { learning_rate = 0.1, momentum = 0.9 } }
local batches = {}
for key = 1, KEYS do
  batches[key] = make_batch(key)
end

local ACTIONS = {
  switch = function(batch)
    module:switch_bucket(batch.bucket_key, batch.provide_data, batch.provide_label)
  end,
  predict = function(batch) module:forward(batch, false) end,
  train = function(batch)
    module:forward_backward(batch)
    module:update()
  end,
}

local function run(times)
  for i = 1, times do
    ACTIONS[mode](batches[i * 7 % KEYS + 1])
  end
  ty.waitall()
end

local function resident()
  local file = io.open("/proc/self/status")
  local kb = file:read("*a"):match("VmRSS:%s+(%d+)")
  file:close()
  return tonumber(kb)
end

-- Returns the number of open descriptors of this process, the shell's $PPID.
local function descriptors()
  local pipe = io.popen("ls /proc/$PPID/fd | wc -l")
  local count = pipe:read("*n")
  pipe:close()
  return count
end

run(warm)
local kb, files = resident(), descriptors()
run(n)
local memory = module:memory()
print(resident() - kb, descriptors() - files, memory.pool / memory.largest)

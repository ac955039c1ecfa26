-- A training whose disk is full, becomes read-only or goes away after its second checkpoint: it
-- stops, or goes on where the user said so, and the old checkpoint stays. The disk is a small one
-- in memory, which only the training sees.

local folder = require "spec.support.folder"
local lfs = require "lfs"
local shell = require "spec.support.shell"
local ty = require "tycho"

local SCRIPT = [[
  local ty = require "tycho"
  local disk, what, on_error = %q, %q, %q
  local warnings, epochs = 0, 0
  local function nothing() end
  local HAPPENS = {
    full = function() os.execute("cat /dev/zero > " .. disk .. "/rest 2> /dev/null") end,
    ["read-only"] = function() assert(os.execute("mount -o remount,ro " .. disk) == 0) end,
    gone = function() assert(os.execute("umount " .. disk .. " && rmdir " .. disk) == 0) end,
  }
  local net = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 2, name = "fc" }
  local mod = ty.mod.Module{ symbol = ty.sym.SoftmaxOutput{ net, name = "softmax" },
    logger = { debug = nothing, info = nothing, error = nothing,
      warning = function() warnings = warnings + 1 end } }
  local data = ty.io.NDArrayIter{ data = ty.nd.ones{ 4, 3 }, label = ty.nd.zeros(4),
    batch_size = 4 }
  local ok, e = pcall(mod.fit, mod, { train_data = data, num_epoch = 5,
    checkpoint = { prefix = disk .. "/net", on_error = on_error },
    epoch_end_callback = function(epoch)
      epochs = epochs + 1
      if epochs == 3 then HAPPENS[what]() end
    end })
  print(ok and "goes on" or e.code, epochs .. " epochs", warnings .. " warnings")
  print(what == "gone" and "nothing" or mod:load_state(disk .. "/net.state").epoch)
  os.execute("ls -A " .. disk .. " 2> /dev/null")
]]

local MOUNTED = "unshare --user --map-root-user --mount \z
  sh -c 'mount -t tmpfs -o size=64k none %s && %s'"

describe("a training", function()
  for _, what in ipairs{ "full", "read-only", "gone" } do
    for on_error, result in pairs{ stop = "io\t3 epochs\t0 warnings",
        warn = "goes on\t5 epochs\t3 warnings" } do
      it(("on a disk that is %s, to %s"):format(what, on_error), function()
        folder.with(function(path)
          local disk = path .. "/disk"
          os.execute("mkdir " .. disk)
          if select(2, shell.run(MOUNTED:format(disk, "true"))) ~= 0 then
            pending("no disk can be mounted here")
            return
          end
          folder.write(path .. "/training.lua", SCRIPT:format(disk, what, on_error))
          local output, status = shell.run(MOUNTED:format(disk,
            shell.program .. " " .. path .. "/training.lua"))
          assert.equal(result .. "\n" .. (what == "gone" and "nothing\n" or "2\nnet.state\n")
            .. (what == "full" and "rest\n" or ""), output)
          assert.equal(0, status)
        end)
      end)
    end
  end
end)

describe("a training that is to be resumed", function()
  it("does not begin afresh over a state that cannot be opened", function()
    folder.with(function(path)
      lfs.link("net.state", path .. "/net.state", true)    -- leads to itself
      local x = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 2, name = "fc" }
      local mod = ty.mod.Module{ symbol = ty.sym.SoftmaxOutput{ x, name = "softmax" } }
      assert.raises("io", mod.fit, mod, { num_epoch = 1,
        train_data = ty.io.NDArrayIter{ data = ty.nd.ones{ 4, 3 }, label = ty.nd.zeros(4),
          batch_size = 4 },
        checkpoint = { prefix = path .. "/net", resume = true } })
    end)
  end)
end)

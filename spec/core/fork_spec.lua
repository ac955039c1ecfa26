-- A process that forks: its child has none of the engine's threads.

local folder = require "spec.support.folder"
local shell = require "spec.support.shell"

-- `before` in the parent, `inside` in the child, which ends by itself; the parent then goes on.
local SCRIPT = [[
  local ffi = require "ffi"
  ffi.cdef "int fork(void); int waitpid(int, int *, int); unsigned alarm(unsigned);"
  local ty = require "tycho"
  %s
  io.stdout:flush()
  local child = ffi.C.fork()
  if child == 0 then
    ffi.C.alarm(60)
    %s
    io.stdout:flush()
    os.exit(0, true)
  end
  local status = ffi.new("int[1]")
  ffi.C.waitpid(child, status, 0)
  print("ended", status[0], ty.nd.ones{ 2, 2 }:sum():asscalar())
]]

local function run(before, inside)
  local output
  folder.with(function(path)
    folder.write(path .. "/fork.lua", SCRIPT:format(before, inside))
    output = shell.run(("%s %s/fork.lua"):format(shell.program, path))
  end)
  return output
end

describe("a fork", function()
  it("before the first use is a process like others", function()
    assert.equal("9\nended\t0\t4\n", run("", "print(ty.nd.ones{ 3, 3 }:sum():asscalar())"))
  end)

  it("of a process at work reads what was there, and is refused all else", function()
    local output = run([[
      local x = ty.nd.ones{ 300, 300 }
      local y = ty.nd.dot{ x, x }
      ty.nd.waitall()
    ]], [[
      print(y:totable()[300][300])
      for _, f in ipairs{ function() return ty.nd.dot{ x, x } end,
          function() x[":"] = 4 end } do
        local ok, e = pcall(f)
        print(ok, e.code, tostring(e):find("fork", 1, true) ~= nil)
      end
      ty.nd.waitall()
    ]])
    assert.equal("300\n" .. ("false\tstate\ttrue\n"):rep(2) .. "ended\t0\t4\n", output)
  end)

  it("of a process with an iterator gets an error that it has none", function()
    folder.with(function(path)
      folder.write(path .. "/a.csv", ("1,2\n"):rep(50))
      local output = run(([[
        local it = ty.io.CSVIter{ data_csv = "%s/a.csv", data_shape = { 2 }, batch_size = 2 }
        it:next()
      ]]):format(path), [[
        for _, name in ipairs{ "next", "reset" } do
          local ok, e = pcall(it[name], it)
          print(ok, e.code, tostring(e):find("fork", 1, true) ~= nil)
        end
      ]])
      assert.equal(("false\tstate\ttrue\n"):rep(2) .. "ended\t0\t4\n", output)
    end)
  end)
end)

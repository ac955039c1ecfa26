-- A trace on a disk that is full: what was written before stays whole, what was not taken comes
-- later. The disk is a small one in memory, which only the script sees.

local folder = require "spec.support.folder"
local shell = require "spec.support.shell"

local SCRIPT = [[
  local ty = require "tycho"
  local cjson = require "cjson"
  local disk, begun = %q, %q == "begun"
  local trace, rest = disk .. "/trace.json", disk .. "/rest"

  local function run(n)
    ty.profiler.set_state("run")
    for i = 1, n do (ty.nd.ones{ 4 } + i):wait_to_read() end
    ty.profiler.set_state("stop")
  end
  -- Prints how many calls of _plus_scalar the trace has; "no file", "no JSON".
  local function count()
    local f = io.open(trace)
    if not f then return print "no file" end
    local good, whole = pcall(cjson.decode, f:read "*a")
    f:close()
    local n = 0
    for _, e in ipairs(good and whole.traceEvents or {}) do
      if e.ph == "B" and e.name:find "plus" then n = n + 1 end
    end
    print(good and n or "no JSON")
  end

  ty.profiler.set_config{ filename = trace, profile_all = true }
  if begun then
    run(3)
    ty.profiler.dump(false)
    count()
  end
  os.execute("cat /dev/zero > " .. rest .. " 2> /dev/null")
  run(100)
  local good, e = pcall(ty.profiler.dump, false)
  print(good and "written" or e.code)
  count()
  os.remove(rest)
  ty.profiler.dump(false)
  count()
]]

local MOUNTED = "unshare --user --map-root-user --mount \z
  sh -c 'mount -t tmpfs -o size=1m none %s && %s'"

describe("a trace on a full disk", function()
  for state, result in pairs{ new = "io\nno file\n100\n", begun = "3\nio\n3\n103\n" } do
    it("keeps its events for the next dump, " .. state, function()
      folder.with(function(path)
        local disk = path .. "/disk"
        os.execute("mkdir " .. disk)
        if select(2, shell.run(MOUNTED:format(disk, "true"))) ~= 0 then
          pending("no disk can be mounted here")
          return
        end
        folder.write(path .. "/trace.lua", SCRIPT:format(disk, state))
        local output, status = shell.run(MOUNTED:format(disk,
          shell.program .. " " .. path .. "/trace.lua"))
        assert.equal(result, output)
        assert.equal(0, status)
      end)
    end)
  end
end)

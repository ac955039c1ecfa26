-- scripts/dev/gpu_check.sh: its parts by name, how long they may take, that results are written as
-- they come and go on from there, what fails; scripts/dev/gpu_table.lua, which writes them into
-- doc/gpu.md; scripts/dev/cubins.lua and gpu_pack.sh, which take a build to a machine without any.

local cjson = require "cjson"
local folder = require "spec.support.folder"
local shell = require "spec.support.shell"
local stand_in = require "spec.support.stand_in"

local SCRIPT = "scripts/dev/gpu_check.sh"
local TABLE = shell.program .. " scripts/dev/gpu_table.lua "
local TEXT = folder.read(SCRIPT)

local function check(settings, path, words)
  return shell.run(("unset TYCHO_TEST_DEVICE; export %s; sh %s %s %s"):format(settings, SCRIPT,
    path, words or ""))
end

-- Returns the lines of results by item; the first one is `head`.
local function results(path)
  local found = { order = {} }
  for line in io.lines(path .. "/results.jsonl") do
    local r = cjson.decode(line)
    if r.device then found.head = r end
    if r.item then
      found[r.item] = r
      table.insert(found.order, r.item)
    end
  end
  return found
end

-- In place of busted: the name of the spec decides what it does.
local STUB = [[
#!/bin/sh
echo "$1" >> "$COUNT"
case $1 in
  spec/executor/interface_spec.lua)
    [ -e "$COUNT.good" ] || { echo "FAIL something"; echo "1 passed, 2 failed, 0 skipped"; exit 1; } ;;
  spec/executor/runs_spec.lua) echo "0 passed, 0 failed, 3 skipped"; exit 0 ;;
  spec/executor/growth_spec.lua) sleep 20 ;;
esac
echo "5 passed, 0 failed, 1 skipped"
]]

-- Calls f with a folder, the settings of a run with this text in place of busted, and a function
-- that returns the number of its runs.
local function with_stub(text, f)
  folder.with(function(path)
    local stub = path .. "/busted"
    folder.write(stub, text)
    shell.run("chmod +x " .. stub)
    -- a part has an hour, since the machine may be busy
    f(path .. "/out", ("TYCHO_CUDA_PATH=build/cudasim GPU_CHECK_SECONDS=3600 GPU_CHECK_ITEM=2 "
      .. "COUNT=%s/count BUSTED=%s"):format(path, stub), function()
        local _, n = folder.read(path .. "/count"):gsub("\n", "")
        return n
      end)
  end)
end

local function number_of_specs()
  local _, n = shell.run("sh " .. SCRIPT .. " --list specs"):gsub("\n", "")
  return n
end

describe("The check on a GPU", function()
  it("says why nothing runs without one", function()
    folder.with(function(path)
      local text, status = check("TYCHO_DISABLE=cuda", path)
      assert.equal(1, status)
      assert.matches("no part can run: .*gpu%(0%) does not exist: TYCHO_DISABLE", text)
      assert.matches("no part can run", folder.read(path .. "/summary"))
    end)
  end)

  it("takes nine minutes at most, each part within a budget", function()
    local sum, parts = 0, {}
    for names, seconds in TEXT:gmatch("\n    ([%l|]+)%) +seconds=(%d+) ;;") do
      for name in names:gmatch("%l+") do
        sum, parts[name] = sum + seconds, true
      end
    end
    assert.equal(540, sum)
    for name in TEXT:match('\nPARTS="([^"]+)"'):gmatch("%l+") do
      assert.is_true(parts[name], name)
    end
  end)

  it("knows its parts by name, and says their items", function()
    folder.with(function(path)
      local text, status = check("TYCHO_DISABLE=cuda", path, "no_such_part")
      assert.equal(2, status)
      assert.matches("no part is called no_such_part", text)
    end)
    assert.is_true(number_of_specs() > 30)
    assert.matches("^host\nW1\n", (shell.run("sh " .. SCRIPT .. " --list bench")))
  end)

  it("has a spec where busted runs something of it, and no other", function()
    local listed, all, slow = {}, "", 0
    for path in shell.run("sh " .. SCRIPT .. " --list specs"):gmatch "%S+" do
      listed[path], all = true, all .. path .. "\n"
    end
    for _, name in ipairs{ "autograd", "executor", "io", "kvstore", "module" } do
      for path in shell.run(("find spec/%s -name '*_spec.lua'"):format(name)):gmatch "%S+" do
        local marked = folder.read(path):find "#slow"
        if marked then
          slow = slow + 1
          local runs = shell.run("busted --list " .. path) ~= ""
          assert.equal(runs, listed[path] == true, path)
        else
          assert.is_true(listed[path], path)
        end
      end
    end
    assert.is_true(slow > 5)
    assert.is_nil(all:find("narrow_accuracy", 1, true))
  end)

  it("never builds", function()
    for line in TEXT:gmatch("[^\n]+") do
      assert.is_nil(not line:find("^%s*#") and line:find("%f[%w]make%f[%W]") or nil, line)
    end
    assert.matches("timeout %-k", TEXT)
  end)
end)

local describe_there = stand_in.exists() and describe or function(name)
  describe(name, function()
    it("works", function() pending("no build/cudasim: make cudasim") end)
  end)
end

describe_there("Results of the check on a GPU", function()
  it("are lines, the first of which says on what", function()
    folder.with(function(path)
      local text, status = check("TYCHO_CUDA_PATH=build/cudasim", path, "platform")
      assert.equal(0, status, text)
      assert.matches("^platform: 1 of 1 items passed, tests: 1 passed, 0 failed, 0 skipped, %d+ s\n"
        .. "$", folder.read(path .. "/summary"))
      assert.matches("CUDA        1 device", folder.read(path .. "/platform/platform.log"))
      local found = results(path)
      assert.equal("cudasim", found.head.device)
      assert.matches("^CUDA 13.0, NVRTC 13.0$", found.head.cuda)
      assert.equal("passed", found.platform.how)
    end)
  end)

  it("fail where a part has run nothing", function()
    with_stub("#!/bin/sh\necho '0 passed, 0 failed, 1 skipped'\n", function(path, settings)
      local text, status = check(settings, path, "specs")
      assert.equal(1, status, text)
      assert.matches("^specs: failed, it ran nothing, %d+ s\n$", text)
      assert.equal("ran nothing", results(path)["spec/io/io_spec.lua"].how)
    end)
  end)

  it("tell items that failed, ran nothing or took too long, and passed", function()
    with_stub(STUB, function(path, settings, runs)
      local text, status = check(settings, path, "specs")
      local n = number_of_specs()
      assert.equal(1, status, text)
      assert.matches(("^specs: %d of %d items passed, tests: %d passed, 2 failed, %d skipped; ")
        :format(n - 3, n, 5 * (n - 3) + 1, n - 3 + 3), text)
      assert.matches("spec/executor/growth_spec.lua timed out", text)
      assert.matches("spec/executor/interface_spec.lua failed", text)
      assert.matches("; 1 ran nothing, ", text)
      local found = results(path)
      assert.equal(n, #found.order)
      local bad = found["spec/executor/interface_spec.lua"]
      assert.same({ "failed", 1, 2, "FAIL something" },
        { bad.how, bad.passed, bad.failed, bad.note })
      -- again: nothing is there to do; then what has not passed
      local before = runs()
      assert.equal(n, before)
      check(settings, path, "specs")
      assert.equal(before, runs())
      folder.write(path:gsub("out$", "count.good"), "")
      check(settings, "--again " .. path, "specs")
      assert.equal(before + 3, runs())
      found = results(path)
      assert.equal("passed", found["spec/executor/interface_spec.lua"].how)
      assert.equal(n, #found.order)
    end)
  end)

  it("say what was not reached, which the next run does", function()
    with_stub("#!/bin/sh\necho \"$1\" >> \"$COUNT\"; sleep 0.2\n"
      .. "echo '1 passed, 0 failed, 0 skipped'\n", function(path, settings, runs)
      local text, status = check(settings .. " GPU_CHECK_SECONDS=1", path, "specs")
      local n = number_of_specs()
      assert.equal(3, status, text)
      local passed, missing = text:match("^specs: (%d+) of %d+ items passed.*; (%d+) not reached")
      if text:find("^specs: nothing was reached") then    -- on a busy machine
        passed, missing = 0, n
      end
      assert.equal(n, passed + missing, text)
      assert.is_true(tonumber(missing) > 0)
      text, status = check(settings, path, "specs")
      assert.equal(0, status, text)
      -- an item that was cut off with its part comes again
      assert.is_true(runs() >= n and runs() <= n + 8)
      assert.equal(n, #results(path).order)
    end)
  end)
end)

describe_there("A row of the bench on a GPU", function()
  it("has what a step comes to", function()
    folder.with(function(path)
      local text, status = shell.run(("unset CUDASIM_STREAMS; DEVICE=gpu QUICK=1 CUDASIM_DRY=1 "
        .. "CUDASIM_SPOIL=4096 TYCHO_CUDA_PATH=build/cudasim TYCHO_CACHE= %s "
        .. "scripts/dev/bench/bench.lua --json %s/rows W1"):format(shell.program, path))
      assert.equal(0, status, text)
      assert.matches("float32, TF32 off", text)
      assert.matches("\n  [%d.]+ ms a step, %d+ GB/s %(%d+ %%%), [%d.]+ TFLOP/s %(%d+ %%%), %d+ "
        .. "launches, 0 copies\n", text)
      local rows = {}
      for line in io.lines(path .. "/rows") do
        local r = cjson.decode(line)
        rows[r.figure] = r
      end
      local W1 = rows.W1
      -- 784-128-64-10, a batch of 100; the first layer has no gradient of its data
      assert.equal(2 * 100 * (2 * 784 * 128 + 3 * (128 * 64 + 64 * 10)), W1.flop)
      -- weights are read, written and have momentum and gradients, at the least
      assert.is_true(W1.bytes > 5 * 4 * (784 * 128 + 128 * 64 + 64 * 10) and W1.bytes < 1e7)
      assert.is_true(W1.launches >= 10 and W1.launches < 40)
      assert.near(W1.bytes / (W1.ms * 1e-3) / rows["peak copy"].ours, W1.of_copy, 1e-6 * W1.of_copy)
      assert.equal("off", W1.tf32)
    end)
  end)
end)

-- -- what becomes of them -------------------------------------------------------------------------

local RUN = [[
{"device":"NVIDIA H100","driver":"580.1","cuda":"CUDA 13.0, NVRTC 13.0",%s
"libraries":"cublasLt 13.1.0,cuDNN 9.19.0","date":"2030-01-02","commit":"abc"}
{"part":"platform","items":1}
{"part":"platform","item":"platform","how":"passed","passed":1,"failed":0,"skipped":0}
{"part":"specs","items":4}
{"part":"specs","item":"a","how":"failed","passed":3,"failed":2,"skipped":1,"note":"x"}
{"part":"specs","item":"b","how":"ran nothing","passed":0,"failed":0,"skipped":7}
{"part":"specs","item":"c","how":"passed","passed":5,"failed":0,"skipped":0}
{"figure":"peak copy","unit":"B/s","ours":2e12,"tf32":"off"}
{"figure":"W1","unit":"samples/s","ours":500000,"torch":250000,"ratio":2,"ms":0.2,%s
"bytes":4e6,"flop":5e7,"of_copy":0.01,"of_product":0.02,"launches":19,"copies":0,"tf32":"off"}
]]
RUN = RUN:gsub("%%s\n", "")                              -- a result is one line

describe("The table of what ran on which GPU", function()
  local function with_doc(f)
    folder.with(function(path)
      folder.write(path .. "/gpu.md",
        "# GPUs\n\n## What ran on which GPU\n\nold\n\n## After\n\nend\n")
      folder.write(path .. "/gpu_results.jsonl", "")
      f(path, function(words)
        return shell.run(("GPU_TABLE_DOC=%s %s%s"):format(path, TABLE, words or ""))
      end)
    end)
  end

  it("is what doc/gpu_results.jsonl says", function()
    local text, status = shell.run(TABLE .. "--check")
    assert.equal(0, status, "doc/gpu.md is not what scripts/dev/gpu_table.lua makes; " .. text)
  end)

  it("has parts and rows of each run", function()
    with_doc(function(path, write)
      local function add(lines)
        shell.run("mkdir -p " .. path .. "/out")
        folder.write(path .. "/out/results.jsonl", lines)
        local text, status = write(path .. "/out")
        assert.equal(0, status, text)
        return folder.read(path .. "/gpu.md")
      end
      local _, status = write "--check"
      assert.equal(1, status)
      local page = add(RUN)
      assert.matches("^# GPUs\n\n## What ran on which GPU\n.*\n## After\n\nend\n$", page)
      assert.is_nil(page:find("\nold\n", 1, true))
      for _, line in ipairs{
        "**NVIDIA H100**, driver 580.1, CUDA 13.0, NVRTC 13.0, cublasLt 13.1.0, "
          .. "cuDNN 9.19.0; 2030-01-02, commit abc:",
        "| platform | 1 of 1 | 1 | 0 | 0 |  |",
        "| specs | 1 of 4 | 8 | 2 | 8 | a failed, b ran nothing, 1 not reached |",
        "| peak copy, GB/s | off | 2000 |  |  |  |  |  |  |  |  |",
        "| W1, samples/s | off | 500000 | 250000 | 2.00 | 0.20 | 20.0 | 1 % | 0.25 | 2 % | 19 |",
      } do
        assert.is_truthy(page:find("\n" .. line .. "\n", 1, true), line)
      end
      assert.is_nil(page:find("Nothing so far", 1, true))
      -- the same again changes nothing, another day comes first
      assert.equal(page, add(RUN))
      page = add((RUN:gsub("2030%-01%-02", "2030-01-03")))
      assert.matches("2030%-01%-03.*2030%-01%-02", page)
      _, status = write "--check"
      assert.equal(0, status)
    end)
  end)

  it("has nothing of a rehearsal", function()
    with_doc(function(path, write)
      folder.write(path .. "/results.jsonl", (RUN:gsub("NVIDIA H100", "cudasim")))
      local text, status = write(path)
      assert.equal(1, status)
      assert.matches("a rehearsal on the stand%-in; nothing is written", text)
      assert.equal("", folder.read(path .. "/gpu_results.jsonl"))
    end)
  end)
end)

-- -- kernels that are compiled elsewhere ----------------------------------------------------------

local USE = [[
local ty = require "tycho"
local x = ty.nd.array({3, 1, 2}, {ctx = ty.gpu(0)})
print((ty.nd.sort(x) * 2 + 1):sum():asscalar())
]]

describe_there("Kernels that were compiled elsewhere", function()
  local function cubins(words)
    local text, status = shell.run(shell.program .. " scripts/dev/cubins.lua " .. words)
    assert.equal(0, status, text)
    return text
  end

  it("are the cache's own files, and nothing is compiled", function()
    folder.with(function(path)
      local keys, made, packed = path .. "/keys", path .. "/made", path .. "/packed"
      shell.run(("mkdir %s %s"):format(made, packed))
      assert.equal("15\n", (stand_in.run(USE, { TYCHO_CACHE = keys })))
      local stub = "build/cudasim/libnvrtc.so.13"
      assert.matches("sm_90: [1-9]%d* compiled, 0 there before, 0 do not compile\n",
        cubins(("compile %s %s 90 1/1 '' %s"):format(keys, made, stub)))
      local fails = { CUDASIM_FAIL = "nvrtcCompileProgram:1", TYCHO_CACHE = made }
      assert.equal("15\n", (stand_in.run(USE, fails)))
      assert.matches("sm_90: 0 compiled, [1-9]%d* there before",
        cubins(("compile %s %s 90 1/1 %s %s"):format(keys, packed, made, stub)))

      -- for other versions of driver and NVRTC
      local file = path .. "/cubins.pack"
      cubins(("pack %s %s"):format(packed, file))
      shell.run("mkdir " .. path .. "/other")
      cubins(("unpack %s %s/other 12040 12040"):format(file, path))
      fails = { CUDASIM_FAIL = "nvrtcCompileProgram:1", TYCHO_CACHE = path .. "/other",
        CUDASIM_DRIVER = 12040, CUDASIM_NVRTC = 12040 }
      assert.equal("15\n", (stand_in.run(USE, fails)))
      fails.CUDASIM_NVRTC = 12050
      assert.matches("does not compile", (stand_in.run(USE, fails)))
    end)
  end)

  -- what a recorded loop's program writes is what the collector has left of its arrays
  it("are those of a long graph in each process", function()
    folder.with(function(path)
      local function keys(environment)
        local to = ("%s/%d"):format(path, #environment)
        shell.run("mkdir " .. to)
        local text, status = shell.run(("TYCHO_TEST_DEVICE='gpu(0)' CUDASIM_STREAMS=eager "
          .. "CUDASIM_SPOIL=4096 TYCHO_CUDA_PATH=build/cudasim TYCHO_CACHE=%s PAD=%s busted "
          .. "--filter=may.be.long spec/autograd/memory_spec.lua"):format(to, environment))
        assert.equal(0, status, text)
        assert.matches("1 passed, 0 failed, 0 skipped", text)
        return (shell.run("cd " .. to .. " && ls"))
      end
      local some = keys ""
      assert.matches("^%x+%.cubin\n", some)
      for _, bytes in ipairs{ 500, 5000 } do
        assert.equal(some, keys(("x"):rep(bytes)))
      end
    end)
  end)

  it("come from a run that does nothing, too", function()
    folder.with(function(path)
      shell.run(("mkdir %s/made"):format(path))
      stand_in.run(USE, { TYCHO_CACHE = path .. "/keys", CUDASIM_DRY = 1 })
      cubins(("compile %s/keys %s/made 90 1/1 '' build/cudasim/libnvrtc.so.13"):format(path, path))
      assert.equal("15\n", (stand_in.run(USE, { CUDASIM_FAIL = "nvrtcCompileProgram:1",
        TYCHO_CACHE = path .. "/made" })))
    end)
  end)
end)

-- -- the pack -------------------------------------------------------------------------------------

describe_there("A build that is packed", function()
  -- Returns whether this is the ordinary build, which alone is packed; marks the spec pending
  -- otherwise.
  local function packs()
    local ordinary = shell.program:find("build/tycho$") ~= nil
    if not ordinary then pending("only the ordinary build is packed") end
    return ordinary
  end

  it("runs scripts and specs without the build and the system's modules", function()
    if not packs() then return end
    folder.with(function(path)
      local text, status = shell.run(("GPU_FOLDER=%s TYCHO_VECTORS=/nowhere sh "
        .. "scripts/dev/gpu_pack.sh --stand-in --no-kernels"):format(path))
      assert.equal(0, status, text)
      local command = "env -i PATH=/usr/bin:/bin HOME=%s GPU_FOLDER=%s sh scripts/dev/gpu_run.sh %s"
      local function run(words) return (shell.run(command:format(path, path, words))) end
      assert.equal(path .. "/use/tycho\n", run"sh -c 'echo $TYCHO_PROGRAM'")
      assert.equal("2\n", run"sh -c '$TYCHO_PROGRAM -e \"require([[tycho]]).nd.ones(2):sum()\z
        :asscalar()\"'")
      assert.matches("gpu%(0%)      cudasim", run"sh -c '$TYCHO_PROGRAM --platform'")
      assert.matches("\n%d+ passed, 0 failed, 0 skipped\n$",
        "\n" .. run"sh -c '$BUSTED spec/core/list_spec.lua'")
      assert.matches("12\n.*ERROR SUMMARY: 0 errors",
        run"sh -c 'compute-sanitizer --tool memcheck --error-exitcode 9 $TYCHO_PROGRAM -e 12'")
    end)
  end)

  it("finds CUDA's libraries where wheels of Python have them", function()
    local _, status = shell.run("python3 -c 1")
    if status ~= 0 then
      pending("no python3")
      return
    end
    if not packs() then return end
    folder.with(function(path)
      shell.run(("GPU_FOLDER=%s TYCHO_VECTORS=/nowhere sh scripts/dev/gpu_pack.sh --no-kernels")
        :format(path))
      local wheel = path .. "/site/nvidia/cu13/lib"
      shell.run(("mkdir -p %s; ln -s $PWD/build/cudasim/lib* %s"):format(wheel, wheel))
      local text = shell.run(("env -i PATH=/usr/bin:/bin:$(dirname $(command -v python3)) HOME=%s "
        .. "PYTHONPATH=%s/site GPU_FOLDER=%s sh scripts/dev/gpu_run.sh sh -c '$TYCHO_PROGRAM "
        .. "--platform; echo torch: $TYCHO_BENCH_TORCH'"):format(path, path, path))
      assert.matches("CUDA        1 device\n", text)
      assert.matches("cuDNN       9.19.0, " .. wheel:gsub("%p", "%%%0") .. "/libcudnn.so.9\n", text)
    end)
  end)

  it("is said to be missing", function()
    folder.with(function(path)
      local text, status = shell.run(("GPU_FOLDER=%s sh scripts/dev/gpu_run.sh true"):format(path))
      assert.equal(1, status)
      assert.matches("gpu_pack.sh makes it", text)
    end)
  end)
end)

-- What `tycho --platform` says of settings, and settings that are no numbers.

local shell = require "spec.support.shell"

local function platform(settings)
  local output, status = shell.run(("%s %s --platform"):format(settings, shell.program))
  assert.equal(0, status)
  return output
end

-- Returns the rest of the line that begins with a word.
local function line(text, word)
  return ("\n" .. text):match("\n" .. word .. " +([^\n]*)")
end

describe("tycho --platform", function()
  it("names what is switched off, and nothing else as such", function()
    local off = "off (TYCHO_DISABLE)"
    local none = platform("TYCHO_DISABLE=")
    local names = { BLAS = "blas", MPI = "mpi" }
    names.oneDNN = line(none, "oneDNN"):find("^%d") and "dnnl" or nil
    for word, name in pairs(names) do
      local text = platform("TYCHO_DISABLE=nothing," .. name .. ",mp")
      for other in pairs(names) do
        assert.equal(other == word and off or line(none, other), line(text, other), name)
      end
    end
    local all = platform("TYCHO_DISABLE=' blas,  dnnl,mpi '")
    for word in pairs(names) do
      assert.equal(off, line(all, word))
    end
  end)

  it("tells threads, the code path and limits as they are set", function()
    local usual = platform("TYCHO_THREADS=3")
    assert.matches("^3 of %d+ processors$", line(usual, "threads"))
    assert.is_nil(line(usual, "limit"))
    assert.matches("^3 of %d+ processors, everything runs inline %(TYCHO_SYNC=1%)$",
      line(platform("TYCHO_THREADS=3 TYCHO_SYNC=1"), "threads"))
    assert.equal("baseline (TYCHO_CPU=baseline)", line(platform("TYCHO_CPU=baseline"), "code path"))
    assert.matches("^1024 of", line(platform("TYCHO_THREADS=100000"), "threads"))
  end)

  it("lets a program have fewer threads, or all again, and no others", function()
    local all = tonumber(platform("TYCHO_THREADS=4"):match("threads +(%d+)"))
    local output = shell.run(("TYCHO_THREADS=4 %s -e 'local C = require(\"tycho.core.ffi\").C \z
      for _, n in ipairs{ 0, 2, -7, 1000000, 1, 4 } do io.write(C.ty_threads(n), \" \") end'")
      :format(shell.program))
    local most = tonumber((shell.run("nproc")))
    assert.equal(4, all)
    assert.equal(("4 2 2 %d 1 4 "):format(math.max(4, most)), output)
  end)

  it("reads numbers with units, and leaves out what is none", function()
    for text, bytes in pairs{ ["4096"] = "4096", ["64k"] = "65536", ["3M"] = "3145728",
      ["2g"] = "2147483648", ["1T"] = "1099511627776", [" 5k"] = "5120", ["4kb"] = false,
      ["4x"] = false, ["k"] = false, ["0x4"] = false, ["99999999999999999999"] = false,
      ["9000000000g"] = false, ["-9000000000g"] = false } do
      local limit = line(platform(("TYCHO_MEM_LIMIT='%s'"):format(text)), "limit")
      assert.equal(bytes and bytes .. " bytes per device (TYCHO_MEM_LIMIT)" or nil, limit, text)
    end
  end)
end)

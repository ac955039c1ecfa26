-- Spans, marks and counters with times that are given: how they nest in the trace, what is lost.

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local support = require "spec.support.trace"

local C = native.C

local function add(name, from, to, category)
  native.check(C.ty_profile_add(C.TY_PROFILE_SPAN, category or "own", name, from, to), "add")
end

-- Returns the spans that f adds, in the order of the trace: "B name" and "E name".
local function order(f)
  local list = {}
  local trace = support.traced({}, f)
  for _, e in ipairs(trace.traceEvents) do
    if e.cat == "own" or e.cat == "other" then
      list[#list + 1] = e.ph .. " " .. e.name
    end
  end
  support.spans(trace)                                   -- checks that they nest
  return list, trace
end

describe("spans of one thread", function()
  after_each(function() os.remove(support.path) end)

  it("nest as their times say, whatever their order", function()
    assert.same({ "B all", "B half", "B quarter", "E quarter", "E half", "B rest", "E rest",
      "E all" }, (order(function()
      add("rest", 5000, 10000)
      add("quarter", 0, 2500)
      add("all", 0, 10000)
      add("half", 0, 5000)
    end)))
    assert.same({ "B a", "E a", "B b", "E b" }, (order(function()
      add("b", 2000, 1000)                               -- ends where it begins
      add("a", 1000, 2000)
    end)))
  end)

  it("are one label where kind, name and category are the same", function()
    local at, sums, sum = 0, {}, ffi.new("ty_profile_sum")
    order(function()
      add("x", 0, 1000)
      add("x", 1000, 4000)
      add("x", 4000, 9000, "other")
      native.check(C.ty_profile_add(C.TY_PROFILE_TASK, "own", "x", 0, 7000), "add")
    end)
    while C.ty_profile_sums(at, sum) == 0 do
      if ffi.string(sum.name) == "x" and sum.count > 0 then
        sums[#sums + 1] = ("%s %d: %d, %d to %d"):format(ffi.string(sum.category), sum.kind,
          tonumber(sum.count), tonumber(sum.min), tonumber(sum.max))
      end
      at = at + 1
    end
    table.sort(sums)
    assert.same({ "other 0: 1, 5000 to 5000", "own 0: 2, 1000 to 3000", "own 1: 1, 7000 to 7000" },
      sums)
  end)

  it("deeper than 64 are lost, and counted", function()
    local list, trace = order(function()
      for i = 1, 70 do
        add("level " .. i, i, 1000 - i)
      end
    end)
    assert.equal(2 * 64, #list)
    assert.equal("B level 64", list[64])
    assert.equal("E level 64", list[65])
    assert.equal("6", trace.otherData.lost)
  end)

  it("of many names are found again", function()
    local list = order(function()
      for _ = 1, 2 do
        for i = 1, 300 do
          add("name " .. i, 10 * i, 10 * i + 5)
        end
      end
    end)
    assert.equal(4 * 300, #list)
    local found, sum, at = 0, ffi.new("ty_profile_sum"), 0
    while C.ty_profile_sums(at, sum) == 0 do
      if ffi.string(sum.name):find("^name %d") then
        assert.equal(2, tonumber(sum.count))
        found = found + 1
      end
      at = at + 1
    end
    assert.equal(300, found)
  end)

  it("are refused where the file cannot be written, and kept for the next", function()
    order(function() add("first", 0, 10) end)
    native.check(C.ty_profile_file("/nowhere/x.json", 0), "file")
    C.ty_profile(C.TY_PROFILE_ALL, nil)
    add("kept", 20, 30)
    C.ty_profile(0, nil)
    assert.equal(C.TY_EIO, C.ty_profile_dump(0))
    assert.equal("cannot write the profile to /nowhere/x.json: No such file or directory",
      ffi.string(C.ty_error()))
    native.check(C.ty_profile_file(support.path, 0), "file")
    native.check(C.ty_profile_dump(1), "dump")
    local names = {}
    for _, s in ipairs(support.spans(support.read(support.path))) do
      names[#names + 1] = s.name
    end
    assert.same({ "kept" }, names)
  end)
end)

-- Numbers where the program has set a locale with a decimal comma (native/base/number.c): files,
-- attributes, formulas and messages keep their points.

local shell = require "spec.support.shell"

-- Makes a locale of our own, with rules for numbers only; returns nil and why if the system cannot
-- make one.
local function make_locale(folder)
  local source = [[
LC_NUMERIC
decimal_point ","
thousands_sep "."
grouping 3;3
END LC_NUMERIC
]]
  local _, status = shell.run(("mkdir -p %s && printf '%%s' '%s' > %s/comma.src && "
    .. "localedef -c -i %s/comma.src %s/comma"):format(folder, source, folder, folder, folder))
  local there = io.open(folder .. "/comma/LC_NUMERIC", "rb")
  if there then
    there:close()
    return "comma"
  end
  return nil, "localedef cannot make a locale here (exit status " .. tostring(status) .. ")"
end

-- Runs under the locale; its last line must be "fine".
local PROGRAM = [[
local ffi = require "ffi"
ffi.cdef "double strtod(const char *, char **);"
assert(os.setlocale(select(2, ...), "numeric"))
assert(ffi.C.strtod("0,5", nil) == 0.5 and ffi.C.strtod("0.5", nil) == 0)  -- it has its comma

local ty = require "tycho"
local folder = ...
local function write(name, text)
  local path = folder .. "/" .. name
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  return path
end
local function same(want, got)
  assert(want == got, ("expected %s, got %s"):format(want, got))
end
local function row(x)
  return table.concat(x:totable(), " ")
end

local x = ty.nd.array{ 1.5, 2 }
same("2.25 3", row(x * 1.5))
same("1.75 2", row(x * 0.5 + 1))
same("0.5 1", row(ty.nd.clip{ x - 1, a_min = 0.25, a_max = 1.25 }))
same("0.75 1", row(ty.nd.contrib.quadratic{ x, b = 0.5 }))
ty.op.pointwise{ name = "half_more", args = { "a" }, formula = "a + 0.5", grad = { "g" } }
same("2 2.5", row(ty.nd.half_more(x)))
same("1 0.5 2", row(ty.nd.image.normalize{ ty.nd.ones{ 3, 1, 1 }, mean = { 0.5, 0.75, 0 },
  std = { 0.5, 0.5, 0.5 } }:reshape{ -1 }))

local net = ty.sym.Dropout{ ty.sym.Variable "x" * 0.5, p = 0.25, name = "drop" }
local text = net:tojson()
assert(text:find('"0.25"', 1, true) and text:find('"0.5"', 1, true), text)
same(text, ty.sym.load_json(text):tojson())
same("0.75 1", row(ty.sym.load_json(text):eval{ ctx = ty.cpu(), x = x }[1]))

local rows = ty.io.CSVIter{ data_csv = write("rows.csv", "0.5,1.25\n-2.5e-1,3\n"),
  data_shape = { 2 }, batch_size = 2 }
same("0.5 1.25 -0.25 3", row(rows:next().data[1]:reshape{ -1 }))
local pairs_of = ty.io.LibSVMIter{ data_libsvm = write("rows.svm", "1.5 0:0.5 2:0.25\n"),
  data_shape = { 3 }, batch_size = 1 }
local batch = pairs_of:next()
same("0.5 0 0.25", row(batch.data[1]:reshape{ -1 }))
same("1.5", row(batch.label[1]))

local ok, e = pcall(ty.nd.random.normal, { loc = 0.5, scale = -1.5, shape = { 1 } })
if ok then
  ok, e = pcall(e.wait_to_read, e)
end
assert(not ok and tostring(e):find("-1.5", 1, true), tostring(e))
same("0.5", tostring(0.5))
same("0.500", ("%.3f"):format(0.5))
assert(tostring(x):find("1.5 2.", 1, true), tostring(x))
print "fine"
]]

describe("a locale with a decimal comma", function()
  it("changes no number, set by the program or by the environment", function()
    local folder = os.tmpname()
    os.remove(folder)
    local name, why = make_locale(folder)
    if not name then
      pending(why)
      return
    end
    shell.with_file(PROGRAM, function(path)
      for _, words in ipairs{ "%s %s %s comma", "LC_ALL=comma %s %s %s ''" } do
        local output = shell.run(("LOCPATH=%s " .. words)
          :format(folder, shell.program, path, folder))
        assert.equal("fine", (output:match("([^\n]*)\n*$")), output)
      end
    end)
    shell.run("rm -rf " .. folder)
  end)
end)

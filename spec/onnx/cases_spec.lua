-- Recorded ONNX models: the onnx package's own tests of operators, exported networks, real ones.
-- The folder is TYCHO_ONNX_CASES, else ../shared/onnx; models that its models.sh fetches are run
-- where they are there.
local files = require "spec.support.onnx_files"
local json = require "spec.support.json"
local ty = require "tycho"
require "spec.helper"

local root = os.getenv("TYCHO_ONNX_CASES") or "../shared/onnx"

-- How large a part of the cases must pass, by family.
local LEAST = { node = 0.99, structure = 1, real = 1 }

local function read(path)
  local file = io.open(path, "rb")
  local text = file and file:read("*a")
  if file then
    file:close()
  end
  return text
end

local function numbers(x)
  local kind = x.dtype
  return (kind == "float16" or kind == "bfloat16") and x:astype("float32") or x
end

-- Checks whether all elements are as near as the case allows.
local function near(case, want, got, expected)
  assert(got.dtype == want.dtype, "dtype " .. got.dtype .. ", expected " .. want.dtype)
  assert(table.concat(got.shape, ",") == table.concat(want.shape, ","), "shape "
    .. table.concat(got.shape, ","))
  if case.metric == "scaled" then
    local bound = want.dtype:find("int") and 1e-12 or case.tol
    assert(files.difference({ numbers(expected) }, { numbers(got) }) <= bound, "values")
    return
  end
  local a, b = numbers(got):reshape{ -1 }:totable(), numbers(expected):reshape{ -1 }:totable()
  for i = 1, #b do
    local same = a[i] == b[i] or a[i] ~= a[i] and b[i] ~= b[i]
    assert(same or math.abs(a[i] - b[i]) <= case.atol + case.rtol * math.abs(b[i]), "element " .. i)
  end
end

local function run(case)
  local data, shapes, feeds = ty.nd.load(root .. "/" .. case.data), {}, {}
  for _, input in ipairs(case.inputs) do
    feeds[input.name], shapes[input.name] = data[input.key]:astype(input.dtype), input.shape
  end
  local sym, args, auxs = ty.onnx.import_model{ root .. "/" .. case.model, shapes = shapes }
  for name, x in pairs(feeds) do
    args[name] = x
  end
  local outputs = files.run(sym, args, auxs)
  for k, want in ipairs(case.outputs) do
    if want.key then
      near(case, want, outputs[k], data[want.key])
    end
  end
end

describe("recorded ONNX models", function()
  local plan = read(root .. "/plan.json")
  if not plan then
    it("all", function() pending("the folder of recorded models is missing: " .. root) end)
    return
  end
  local families = { node = {}, structure = {}, real = {} }
  for _, case in ipairs(json.decode(plan)) do
    table.insert(families[case.family], case)
  end
  for family, cases in pairs(families) do
    it(family, function()
      local passed, tried, failed = 0, 0, {}
      for _, case in ipairs(cases) do
        if read(root .. "/" .. case.model) then
          tried = tried + 1
          local ok, e = pcall(run, case)
          passed = passed + (ok and 1 or 0)
          failed[#failed + 1] = not ok and case.name .. ": " .. tostring(e) or nil
          if tried % 20 == 0 then
            collectgarbage()
          end
        end
      end
      if tried == 0 then
        return pending("models.sh has not fetched them")
      end
      assert.is_true(passed / tried >= LEAST[family], table.concat(failed, "\n"))
    end)
  end
end)

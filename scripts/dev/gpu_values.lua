--- Compares operators on gpu(0) with the CPU, by family: values and gradients of each case in
-- spec/cuda/operators.lua.
--   tycho scripts/dev/gpu_values.lua --list        the families, one a line
--   tycho scripts/dev/gpu_values.lua FAMILY...     "FAIL name: how far apart", then counts
-- A family is a folder of native/operators.
local device = require "spec.support.device"

if not device.name then
  device.name, device.is_gpu = "gpu(0)", true
end
if arg[1] ~= "--list" then
  device.enter()
end
local operators = require "spec.cuda.operators"

-- half types depend on the order of additions
local BOUND, HALF_BOUND = 1e-5, 1e-2
-- the CPU has no convolution with channels last
local ON_GPUS_ONLY = { ["Convolution, channels last"] = true }


-- Families ----------------------------------------------------------------------------------------

-- Returns name -> folder, for the names that begin a row of a table of operators.
local function families()
  local found, files = {}, io.popen("ls native/operators/*/*.c")
  for path in files:lines() do
    for line in io.lines(path) do
      local name = line:match('%.name = "([%w_]+)"')
        or line:match('^%s*%u[%u%d_]*%([%w_ ,|]-"([%w_]+)"')
      if name then
        found[name] = found[name] or path:match("([^/]+)/[^/]+$")
      end
    end
  end
  files:close()
  return found
end

local folder_of = families()

local function find_family(operator)
  local word = operator.name:match("^[%w_]+")
  for _, prefix in ipairs{ "", "_contrib_", "_image_", "_" } do
    if folder_of[prefix .. word] then
      return folder_of[prefix .. word]
    end
  end
  return "others"
end


-- Comparing ---------------------------------------------------------------------------------------

local function numbers(text)
  local list = {}
  for word in text:gmatch("%S+") do
    list[#list + 1] = tonumber(word)
  end
  return list
end


local function distance(got, want)
  local a, b, worst = numbers(got), numbers(want), 0
  for i, v in ipairs(b) do
    local x = a[i] or 1 / 0
    local same = v == x or v ~= v and x ~= x
    local off = same and 0 or math.abs(v - x) / math.max(1, math.abs(v))
    worst = (off > worst or off ~= off) and off or worst
  end
  return #a == #b and worst or 1 / 0
end


-- Returns the text of each operator; nil and the reason if there is none.
local function texts(list)
  local found = {}
  for i, operator in ipairs(list) do
    local good, text = pcall(operator.run)
    found[i] = { good and text, text }
  end
  return found
end


local function compare(list)
  local here = texts(list)
  device.leave()
  local there, passed, failed, skipped = texts(list), 0, 0, 0
  for i, operator in ipairs(list) do
    local bound = operator.name:find("float16", 1, true) and HALF_BOUND or BOUND
    local off = here[i][1] and there[i][1] and distance(here[i][1], there[i][1])
    if ON_GPUS_ONLY[operator.name] and not there[i][1] then
      skipped = skipped + 1
    elseif off and off <= bound then
      passed = passed + 1
    else
      failed = failed + 1
      print(("FAIL %s: %s"):format(operator.name, off and ("%g apart"):format(off)
        or tostring(not here[i][1] and here[i][2] or there[i][2])))
    end
  end
  print(("%d passed, %d failed, %d skipped"):format(passed, failed, skipped))
  return failed == 0
end


local wanted, list, order = {}, {}, {}
for _, name in ipairs(arg) do
  wanted[name] = true
end
for _, operator in ipairs(operators) do
  local family = find_family(operator)
  if not order[family] then
    order[family], order[#order + 1] = true, family
  end
  if wanted[family] then
    list[#list + 1] = operator
  end
end
if wanted["--list"] then
  table.sort(order)
  print(table.concat(order, "\n"))
else
  os.exit(compare(list) and 0 or 1)
end

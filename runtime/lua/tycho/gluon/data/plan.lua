--- What of a data set native threads do: where the fields of its samples come from, and which
-- transforms they know.
--
-- A plan is `{ fill, stored, fields, image, dataset, numbers, changes, dtypes, whole }`:
-- fill(source, stored) puts the fields into a native source, from what is stored (nil: `dataset` is
-- asked in Lua); image: the first one is an image; numbers: which samples of the origin these are
-- (nil: all); changes: what is done to them, `{ f, "first" }` (to the first value) or
-- `{ f, "all" }`; dtypes: of numbers by field; whole: fields whose dtype holds only while their
-- numbers are whole.
--
-- @module tycho.gluon.data.plan

local pairs = require("tycho.core.iterate").pairs
local ffi = require "ffi"
local array_class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local native = require "tycho.core.ffi"

local C, check = native.C, native.check
local is_array = array_class.is_array

local plan = {}


-- Describing --------------------------------------------------------------------------------------

local describers = setmetatable({}, { __mode = "k" })

--- Registers f, which describes the data sets whose `get` is this function.
-- @tparam function get
-- @tparam function f of the data set, gives a plan
function plan.describe(get, f)
  describers[get] = f
end


--- Returns the plan of a data set; an unknown one is read in Lua.
function plan.of(dataset)
  local describe = describers[dataset.get]
  if describe then
    return describe(dataset)
  end
  return { dataset = dataset, changes = {}, dtypes = {}, whole = {} }
end


local PIXELS = { uint8 = true, float32 = true }

local function is_native(list)
  for _, x in ipairs(list) do
    if not is_array(x) or x.context.device_type ~= "cpu" then
      return false
    end
  end
  return true
end


local function fill_rows(source, list)
  for _, x in ipairs(list) do
    check(C.ty_source_rows(source, x.handle), "gluon.data.DataLoader")
  end
end


--- Returns the plan of arrays (perhaps lists and data sets) side by side.
function plan.of_arrays(list, dataset)
  local p = { dataset = dataset, changes = {}, dtypes = {}, whole = {} }
  for k, x in ipairs(list) do
    if is_array(x) then
      p.dtypes[k] = x.ndim == 1 and x.dtype or nil
    elseif describers[x.get] then
      p.dtypes[k] = plan.of(x).dtypes[1]
    end
  end
  if is_native(list) then
    p.fields = #list
    p.image = list[1].ndim == 4 and PIXELS[list[1].dtype] or false
    p.fill, p.stored = fill_rows, list
  end
  return p
end


local function copied(p)
  local q = {}
  for key, value in pairs(p) do
    q[key] = value
  end
  return q
end


-- Returns the plan of some samples of another one.
-- @tparam {int,...} numbers from 0
function plan.chosen(p, numbers)
  local q = copied(p)
  if p.numbers then
    q.numbers = {}
    for k, i in ipairs(numbers) do
      q.numbers[k] = p.numbers[i + 1]
    end
  else
    q.numbers = numbers
  end
  return q
end


-- Returns the plan of samples that a function changes.
-- @string what "first" or "all"
function plan.changed(p, f, what)
  local q = copied(p)
  q.changes, q.dtypes, q.whole = copied(p.changes), copied(p.dtypes), copied(p.whole)
  q.changes[#q.changes + 1] = { f, what }
  if what == "first" or plan.make_steps(f, what) then
    q.dtypes[1], q.whole[1] = nil, nil
  else
    q.dtypes, q.whole = {}, {}
  end
  return q
end


-- Transforms --------------------------------------------------------------------------------------

local steppers = {}

--- Registers the native steps of blocks whose `forward` is this function.
-- @tparam function forward
-- @tparam function f of the block and the list that steps `{ kind, count, value, ... }` are added
--   to; false where there are none
function plan.register_steps(forward, f)
  steppers[forward] = f
end


--- Adds the native steps of a block; returns false if it has none.
function plan.add_steps(f, list)
  local block = type(f) == "table" and Class.is_class(getmetatable(f)) and f
  local stepper = block and steppers[block.forward]
  if not stepper or rawget(block, "_hooked") then
    return false
  end
  return stepper(block, list) ~= false
end


-- Returns the native steps of a transform.
-- @string what "first", or "all": the block gets all values, and hands on all but the first; Cast
--   changes all
-- @return list, or nil
function plan.make_steps(f, what)
  local list = {}
  if not plan.add_steps(f, list) then
    return nil
  end
  for _, step in ipairs(list) do
    if what == "all" and step[1] == C.TY_STEP_CAST then
      return nil
    end
  end
  return list
end


local RANDOM = {
  [C.TY_STEP_RANDOM_CROP] = true, [C.TY_STEP_SIZE_CROP] = true, [C.TY_STEP_FLIP_COLUMNS] = true,
  [C.TY_STEP_FLIP_ROWS] = true, [C.TY_STEP_BRIGHTNESS] = true, [C.TY_STEP_CONTRAST] = true,
  [C.TY_STEP_SATURATION] = true, [C.TY_STEP_HUE] = true, [C.TY_STEP_JITTER] = true,
  [C.TY_STEP_LIGHTING] = true, [C.TY_STEP_GREY] = true, [C.TY_STEP_MAYBE] = true,
  [C.TY_STEP_RANDOM_ROTATE] = true,
}

--- Returns whether one of the steps draws random numbers.
function plan.is_random(steps)
  for _, step in ipairs(steps) do
    if RANDOM[step[1]] then
      return true
    end
  end
  return false
end


--- Returns the steps as the core takes them.
-- @treturn ty_image_step array
-- @treturn int
function plan.native_steps(steps)
  local list = ffi.new("ty_image_step[?]", math.max(#steps, 1))
  for i, step in ipairs(steps) do
    list[i - 1].kind, list[i - 1].count = step[1], step[2]
    for k = 3, #step do
      list[i - 1].value[k - 3] = step[k]
    end
  end
  return list, #steps
end


-- Compiling ---------------------------------------------------------------------------------------

local function append(list, more)
  for _, v in ipairs(more) do
    list[#list + 1] = v
  end
end


-- Returns the native steps of changes, one by one; false if one has none.
local function steps_of_all(changes)
  local list = {}
  for i, change in ipairs(changes) do
    list[i] = plan.make_steps(change[1], change[2]) or false
  end
  return list
end


local made = ffi.new("ty_source *[1]")

--- Returns a new source; it is freed with the last reference.
function plan.source()
  check(C.ty_source_new(made), "gluon.data.DataLoader")
  return native.own(made[0], C.ty_source_free)
end


--- Returns the compiled plan of a loader: `{ source, fields, numbers, dataset, length, middle,
-- suffix, steps, dtypes, whole, draws }`. source: the origin with the first transforms, nil if
-- samples are read in Lua; middle: changes that are made in Lua; suffix: the last ones, whose
-- native steps are `steps`; draws: some step may draw random numbers.
function plan.compile(p)
  local steps = steps_of_all(p.changes)
  local first, last = 1, #p.changes
  local prefix, suffix = {}, {}
  while p.fill and p.image and first <= last and steps[first] do
    append(prefix, steps[first])
    first = first + 1
  end
  while last >= first and steps[last] do
    last = last - 1
  end
  local c = { fields = p.fields, numbers = p.numbers, dataset = p.dataset,
    length = p.dataset:len(), dtypes = p.dtypes, whole = p.whole, middle = {}, suffix = {},
    steps = suffix }
  for i = first, #p.changes do
    table.insert(i <= last and c.middle or c.suffix, p.changes[i])
    append(suffix, i > last and steps[i] or {})
  end
  if p.fill then
    c.source = plan.source()
    p.fill(c.source, p.stored)
    local list, n = plan.native_steps(prefix)
    check(C.ty_source_steps(c.source, 0, list, n), "gluon.data.DataLoader")
  end
  c.draws = not p.fill or #c.middle > 0 or plan.is_random(prefix) or plan.is_random(suffix)
  return c
end


return plan

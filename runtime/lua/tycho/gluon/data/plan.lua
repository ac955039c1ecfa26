--- Plans of data sets: the origin of the fields of samples, and the transforms that native threads
-- can run.
--
-- A plan has these fields:
--
-- - fill: called as fill(source, stored), adds the fields to a native source; nil: `get` of
--   `dataset` is called in Lua
-- - stored: data for fill, such as arrays
-- - fields: number of values in a sample, if there is `fill`
-- - image: whether the first value is an image
-- - dataset: the original data set
-- - numbers: numbers, from 0, of samples in the original data set; nil: all of them
-- - changes: transforms in order, `{ f, "first" }` (of the first value) or `{ f, "all" }`
-- - dtypes: by field, the dtype of a batch of numbers; nil: float32
-- - whole: by field, whether that dtype is used only while all numbers are whole
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

--- Registers the plan of a class of data sets, which is recognised by its `get`.
-- @tparam function get
-- @tparam function f called as f(dataset): returns a plan
function plan.describe(get, f)
  describers[get] = f
end


--- Returns the plan of a data set. Unknown classes are read in Lua.
-- @tparam Dataset dataset
-- @treturn table plan
function plan.of(dataset)
  local describe = describers[dataset.get]
  if describe then
    return describe(dataset)
  end
  return { dataset = dataset, changes = {}, dtypes = {}, whole = {} }
end


local PIXELS = { uint8 = true, float32 = true }

-- Returns whether all entries of a list are arrays on the CPU.
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


--- Returns the plan of sources side by side. The threads read it if all of them are arrays.
-- @tparam table list arrays, lists and data sets of equal length
-- @tparam Dataset dataset the data set of these sources
-- @treturn table plan
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


local function copy_table(p)
  local q = {}
  for key, value in pairs(p) do
    q[key] = value
  end
  return q
end


--- Returns the plan of some samples of another plan.
-- @tparam table p the other plan
-- @tparam {int,...} numbers of the samples there, from 0
-- @treturn table plan
function plan.chosen(p, numbers)
  local q = copy_table(p)
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


--- Returns a copy of a plan with one more transform.
-- @tparam table p plan
-- @param f function or block
-- @string what "first": of the first value; "all": of all values
-- @treturn table plan
function plan.changed(p, f, what)
  local q = copy_table(p)
  q.changes, q.dtypes, q.whole = copy_table(p.changes), copy_table(p.dtypes), copy_table(p.whole)
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

--- Registers the native steps of a class of blocks, which is recognised by its `forward`.
-- @tparam function forward
-- @tparam function f called as f(block, list): appends steps `{ kind, count, value, ... }` to the
--   list; returns false if the block has no native steps
function plan.register_steps(forward, f)
  steppers[forward] = f
end


--- Appends the native steps of a block to a list.
-- @param f function or block
-- @tparam table list
-- @treturn bool false for a function, and for a block with hooks or without native steps
function plan.add_steps(f, list)
  local block = type(f) == "table" and Class.is_class(getmetatable(f)) and f
  local stepper = block and steppers[block.forward]
  if not stepper or rawget(block, "_hooked") then
    return false
  end
  return stepper(block, list) ~= false
end


--- Returns the native steps of a transform.
-- @param f function or block
-- @string what "first", or "all": blocks with native steps change the first value and return the
--   others, except for Cast, which then has no native step
-- @treturn ?table list of steps; nil if it has none
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
-- @tparam table steps
-- @treturn bool
function plan.is_random(steps)
  for _, step in ipairs(steps) do
    if RANDOM[step[1]] then
      return true
    end
  end
  return false
end


--- Returns steps in the form of the core.
-- @tparam table steps
-- @treturn cdata array of ty_image_step
-- @treturn int their number
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

local function append_all(list, more)
  for _, v in ipairs(more) do
    list[#list + 1] = v
  end
end


-- Returns a list with the native steps of each change; false for a change without.
local function list_steps(changes)
  local list = {}
  for i, change in ipairs(changes) do
    list[i] = plan.make_steps(change[1], change[2]) or false
  end
  return list
end


local new_source = ffi.new("ty_source *[1]")

--- Returns a new native source, which is freed with the last reference to it.
-- @treturn cdata
function plan.source()
  check(C.ty_source_new(new_source), "gluon.data.DataLoader")
  return native.own(new_source[0], C.ty_source_free)
end


--- Converts a plan to the form in which a loader runs it. Threads run the native steps at its
-- beginning and at its end; the changes between them run in Lua.
-- @tparam table p plan
-- @treturn table fields, numbers, dataset, dtypes, whole: as in the plan; source: native, with the
--   first steps, nil if samples are read in Lua; length: number of samples in the original data
--   set; middle: changes in Lua; suffix: the changes after them, whose native steps are `steps`;
--   draws: whether random numbers may be drawn
function plan.compile(p)
  local steps = list_steps(p.changes)
  local first, last = 1, #p.changes
  local prefix, suffix = {}, {}
  while p.fill and p.image and first <= last and steps[first] do
    append_all(prefix, steps[first])
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
    append_all(suffix, i > last and steps[i] or {})
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

--- Batches of a data set (part of `ty.gluon.data`).
--
--     local loader = gluon.data.DataLoader{ set, batch_size = 32, shuffle = true, num_workers = 2 }
--     for x, y in loader do ... end                        -- a new epoch in each loop
--
-- With workers batches are made ahead: native threads read, decode and change images, functions in
-- Lua run on this thread between two batches. What comes out is the same with any number of them.
-- Arrays of a data set must not be written to while a loop runs.
--
-- A batch goes through these stages: "origin" (the threads make its samples), "middle" (Lua changes
-- them), "suffix" (the threads make the batch of them), "done". Where Lua has nothing to do, the
-- first is the last.
--
-- @module tycho.gluon.data.loader

local args = require "tycho.core.args"
local batchify = require "tycho.gluon.data.batchify"
local array_class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local ffi = require "ffi"
local gc = require "tycho.core.gc"
local iterate = require "tycho.core.iterate"
local native = require "tycho.core.ffi"
local plan = require "tycho.gluon.data.plan"
local sampler = require "tycho.gluon.data.sampler"
local stream = require "tycho.gluon.data.stream"
local values = require "tycho.core.values"

local C, check = native.C, native.check
local is_array, is_plain = array_class.is_array, values.is_plain
local select, unpack = select, unpack

local FUNC = "gluon.data.DataLoader"
local WAIT_MS = 100                                      -- between looks for Ctrl-C

-- What a batch's own function draws follows from a position that no sample has.
local BATCH_POSITION = 2 ^ 48


-- Epochs ------------------------------------------------------------------------------------------

local Epoch = Class:extend("Epoch")

local made = ffi.new("ty_loader *[1]")

function Epoch:init(loader)
  self.loader = loader
  self.plan = plan.compile(plan.of(loader._dataset))
  self.numbers = loader._batch_sampler:iter()
  self.seed, self.epoch = stream.key(self.plan.draws or loader._batchify ~= nil)
  -- the transforms after those of Lua draw from streams of their own
  self.suffix_seed = C.ty_sample_seed(self.seed, self.epoch, -1ULL)
  self.queue, self.position = {}, 0
  check(C.ty_loader_new(loader._workers, made), FUNC)
  self.native = native.own(made[0], C.ty_loader_free)
end


--- Stops the threads and gives the memory back.
function Epoch:close()
  if self.native then
    C.ty_loader_free(ffi.gc(self.native, nil))
    self.native, self.queue = nil, {}
  end
end


local spec, id = ffi.new("ty_batch_spec"), ffi.new("int64_t[1]")

-- Gives a batch to the threads. given: lists of arrays by sample; nil if the source has an origin.
local function submit(self, batch, source, given, seed, stack)
  local n = #batch.origin
  local numbers = ffi.new("int64_t[?]", n, batch.origin)
  local arrays
  if given then
    local width = #given[1]
    arrays = ffi.new("ty_tensor *[?]", n * width)
    for k, row in ipairs(given) do
      for f, x in ipairs(row) do
        arrays[(k - 1) * width + f - 1] = x.handle
      end
    end
  end
  spec.source, spec.sample, spec.given, spec.n = source, numbers, arrays, n
  spec.position, spec.seed, spec.epoch, spec.stack = batch.position, seed, self.epoch,
    stack and 1 or 0
  local code = C.ty_loader_submit(self.native, spec, id)
  if code == C.TY_EMEMORY then
    gc.release()
    code = C.ty_loader_submit(self.native, spec, id)
  end
  check(code, FUNC)
  batch.id, batch.source = id[0], source
end


local function check_number(self, i)
  local n = self.plan.numbers and #self.plan.numbers or self.plan.length
  if type(i) ~= "number" or i ~= math.floor(i) or i < 0 or i >= n then
    Error.raise{ code = type(i) == "number" and "index" or "type", func = FUNC,
      argument = tostring(i), expected = ("a sample from 0 to %d"):format(n - 1), got = i,
      message = ("the sampler gave %s, which is no sample of the data set"):format(tostring(i)) }
  end
end


-- Reads the sample numbers of a batch from the sampler's list: `batch.numbers`, and `batch.origin`,
-- the numbers in the original data set. Raises E(type) if it is not a list of numbers.
local function read_numbers(self, batch, list)
  if not is_plain(list) or #list == 0 then
    Error.raise{ code = "type", func = FUNC, argument = "batch_sampler",
      expected = "lists of numbers", got = Error.kind(list), message = "bad batch of a sampler" }
  end
  batch.numbers, batch.origin = list, list
  for _, i in ipairs(list) do
    check_number(self, i)
  end
  if self.plan.numbers then
    batch.origin = {}
    for k, i in ipairs(list) do
      batch.origin[k] = self.plan.numbers[i + 1]
    end
  end
end


-- Returns whether the first stage is the last one, too.
local function is_whole(self)
  return self.plan.source and #self.plan.middle == 0 and #self.plan.suffix == 0
    and not self.loader._batchify
end


-- Calls f(self, batch, ...) and returns its result. An error is stored in the batch, and raised
-- when the batch is next; only E(interrupted) is raised at once.
local function guarded(self, batch, f, ...)
  local ok, result = pcall(f, self, batch, ...)
  if ok then
    return result
  elseif Error.is_error(result) and result.code == "interrupted" then
    error(result, 0)
  end
  batch.stage, batch.error = "done", { result }
  return true
end


local function begin_batch(self, batch, list)
  read_numbers(self, batch, list)
  if self.plan.source then
    submit(self, batch, self.plan.source, nil, self.seed, is_whole(self))
    batch.stage = "origin"
  else
    batch.stage = "middle"
  end
end


local function take_numbers(self)
  local list = self.numbers()
  self.ended = list == nil
  return list
end


-- Takes the next batch of the sampler; false at the end.
local function begin_next(self)
  local batch = { position = self.position }
  local ok, list = pcall(take_numbers, self)
  if not ok then
    self.ended, batch.stage, batch.error = true, "done", { list }
  elseif list == nil then
    return false
  else
    guarded(self, batch, begin_batch, list)
    self.position = self.position + (is_plain(list) and #list or 0)
  end
  self.queue[#self.queue + 1] = batch
  return true
end


-- In Lua ------------------------------------------------------------------------------------------

local tensor, number, ready = ffi.new("ty_tensor *[1]"), ffi.new("double[1]"), ffi.new("int[1]")

-- Returns a field of a batch that is complete, or of sample `row`.
local function read_field(self, batch, field, row)
  check(C.ty_loader_field(self.native, batch.id, field, row, tensor, number), FUNC)
  if tensor[0] == nil then
    return number[0]
  end
  return array_class.own(tensor[0])
end


-- Returns the values of a sample that the threads made, with their number as n.
local function read_sample(self, batch, k, fields)
  local list = { n = fields }
  for f = 1, fields do
    list[f] = read_field(self, batch, f - 1, k - 1)
  end
  return list
end


local function collect(...)
  return { n = select("#", ...), ... }
end


local function change_first(f, x, ...)
  return collect((f(x)), ...)
end


-- Returns the values that changes make of values.
local function apply(changes, list)
  for _, change in ipairs(changes) do
    if change[2] == "first" then
      list = change_first(change[1], unpack(list, 1, list.n))
    else
      list = collect(change[1](unpack(list, 1, list.n)))
    end
  end
  return list
end


local function make_sample(self, batch, k)
  local list
  if self.plan.source then
    list = read_sample(self, batch, k, self.plan.fields)
  else
    list = collect(self.plan.dataset:get(batch.origin[k]))
  end
  return apply(self.plan.middle, list)
end


-- Returns an error that names the sample. Tables of the user's own and Lua's out-of-memory text are
-- returned unchanged.
local function name_sample(err, which)
  if type(err) == "string" and err ~= "not enough memory" then
    err = Error.new{ code = "run", func = FUNC, message = err }
  end
  if Error.is_error(err) and err.code ~= "interrupted" then
    err.argument = tostring(which)
    err.message = ("sample %s: %s"):format(which, err.message)
  end
  return err
end


-- Calls f(...) for sample k, with its random numbers. An error names the sample.
local function for_sample(self, batch, k, seed, f, ...)
  local ok, result = pcall(stream.with, seed, self.epoch, batch.position + k - 1, f, ...)
  if not ok then
    error(name_sample(result, batch.numbers[k]), 0)
  end
  return result
end


local function on_host(x)
  return is_array(x) and x.context.device_type ~= "gpu"
end


-- Returns whether value f of all samples is an array of the host.
local function all_on_host(samples, f)
  for _, list in ipairs(samples) do
    if not on_host(list[f]) then
      return false
    end
  end
  return true
end


local PIXELS = { uint8 = true, float32 = true }

local function all_images(samples)
  for _, list in ipairs(samples) do
    local x = list[1]
    if not (on_host(x) and x.ndim == 3 and PIXELS[x.dtype]) then
      return false
    end
  end
  return true
end


-- Returns the fields that the threads get from Lua: those of arrays in host memory.
local function given_fields(samples)
  local fields = {}
  for f = 1, samples[1].n do
    if all_on_host(samples, f) then
      fields[#fields + 1] = f
    end
  end
  return fields
end


-- Makes the threads stack a batch of arrays that Lua made.
local function submit_samples(self, batch, steps)
  local source = plan.source()
  for _ = 1, #batch.given do
    check(C.ty_source_given(source), FUNC)
  end
  if #steps > 0 then
    local list, n = plan.native_steps(steps)
    check(C.ty_source_steps(source, 0, list, n), FUNC)
  end
  local given = {}
  for k, list in ipairs(batch.samples) do
    given[k] = {}
    for g, f in ipairs(batch.given) do
      given[k][g] = list[f]
    end
  end
  batch.stacked = not self.loader._batchify
  submit(self, batch, source, given, self.suffix_seed, batch.stacked)
  batch.stage = "suffix"
end


-- Returns a sample's values as functions get them: several in a list.
local function packed(list)
  if list.n == 1 then
    return list[1]
  end
  return { unpack(list, 1, list.n) }
end


local function collect_of(f, ...)
  return collect(f(...))
end


local function call_batchify(self, batch)
  local samples = {}
  for k, list in ipairs(batch.samples) do
    samples[k] = packed(list)
  end
  batch.fields = stream.with(self.suffix_seed, self.epoch, BATCH_POSITION + batch.position,
    collect_of, self.loader._batchify, samples)
  if batch.fields[1] == nil then                         -- a loop would end there
    Error.raise{ code = "value", func = FUNC, argument = "batchify_fn", expected = "a batch",
      got = "nil", message = "batchify_fn returned nothing" }
  end
end


-- Returns the fields of a batch: those that the threads stacked, the others from their values.
local function read_fields(self, batch)
  local first = batch.samples[1]
  local fields, from = { n = first.n }, {}
  for g, f in ipairs(batch.stacked and batch.given or {}) do
    from[f] = g
  end
  for f = 1, first.n do
    if from[f] then
      fields[f] = read_field(self, batch, from[f] - 1, -1)
    else
      local column = {}
      for k, list in ipairs(batch.samples) do
        column[k] = list[f]
      end
      fields[f] = batchify.field(column, self.plan.dtypes[f], self.plan.whole[f], FUNC)
    end
  end
  return fields
end


-- Returns whether a sample has all its values. With a function `batchify_fn`, values may be nil.
local function is_complete(self, list)
  for f = 1, self.loader._batchify and 0 or list.n do
    if list[f] == nil then
      return false
    end
  end
  return list.n > 0
end


local function check_samples(self, samples, numbers)
  for k, list in ipairs(samples) do
    if not is_complete(self, list) then
      Error.raise{ code = "value", func = FUNC, argument = tostring(numbers[k]),
        expected = "values", got = "nil",
        message = ("sample %s: a value is nil; the data set's get, and what is given to transform, \z
          return the values"):format(tostring(numbers[k])) }
    end
    if list.n ~= samples[1].n then
      Error.raise{ code = "value", func = FUNC, argument = tostring(numbers[k]),
        expected = samples[1].n .. " values", got = list.n,
        message = "the samples of a batch have the same number of values" }
    end
  end
end


-- Runs the functions of Lua on a batch whose samples are read, and begins its next stage.
local function run_middle(self, batch)
  local samples, steps = {}, self.plan.steps
  for k = 1, #batch.origin do
    samples[k] = for_sample(self, batch, k, self.seed, make_sample, self, batch, k)
  end
  if batch.id then
    check(C.ty_loader_drop(self.native, batch.id), FUNC)
  end
  check_samples(self, samples, batch.numbers)
  if #steps > 0 and not all_images(samples) then
    for k, list in ipairs(samples) do
      samples[k] = for_sample(self, batch, k, self.suffix_seed, apply, self.plan.suffix, list)
    end
    steps = {}
    check_samples(self, samples, batch.numbers)
  end
  batch.samples = samples
  batch.given = (#steps > 0 or not self.loader._batchify) and given_fields(samples) or {}
  if #batch.given > 0 then
    submit_samples(self, batch, steps)
  elseif self.loader._batchify then
    call_batchify(self, batch)
    batch.stage = "done"
  else
    batch.fields, batch.stage = read_fields(self, batch), "done"
  end
end


-- Takes what the threads made of the samples that Lua gave them.
local function finish_suffix(self, batch)
  if batch.stacked then
    batch.fields = read_fields(self, batch)
  else
    for k, list in ipairs(batch.samples) do
      for g, f in ipairs(batch.given) do
        list[f] = read_field(self, batch, g - 1, k - 1)
      end
    end
    call_batchify(self, batch)
  end
  check(C.ty_loader_drop(self.native, batch.id), FUNC)
  batch.stage = "done"
end


local function finish_whole(self, batch)
  local fields = { n = self.plan.fields }
  for f = 1, fields.n do
    fields[f] = read_field(self, batch, f - 1, -1)
  end
  check(C.ty_loader_drop(self.native, batch.id), FUNC)
  batch.fields, batch.stage = fields, "done"
end


-- Going on ----------------------------------------------------------------------------------------

local function is_ready(self, batch, wait_ms)
  check(C.ty_loader_wait(self.native, batch.id, wait_ms, ready), FUNC)
  return ready[0] ~= 0
end


-- Moves a batch to its next stage; returns false if the threads are still working on it. `mine`: it
-- is the next batch.
local function advance(self, batch, wait_ms, mine)
  if batch.stage ~= "middle" and not is_ready(self, batch, wait_ms) then
    return false
  end
  if batch.stage == "suffix" then
    if mine then
      finish_suffix(self, batch)
    end
    return mine
  elseif batch.stage == "origin" and is_whole(self) then
    if mine then
      finish_whole(self, batch)
    end
    return mine
  end
  -- what is made ahead is not the caller's scope's
  array_class.outside(run_middle, self, batch)
  return true
end


-- Runs the functions of Lua on the first of the later batches whose samples are read; returns false
-- if there is none.
local function go_ahead(self)
  for i = 2, #self.queue do
    local batch = self.queue[i]
    local in_lua = batch.stage == "middle" or batch.stage == "origin" and not is_whole(self)
    if in_lua and guarded(self, batch, advance, 0, false) then
      return true
    end
  end
  return false
end


-- Begins batches until as many as wanted are made ahead of the next one.
local function fill(self)
  local ahead = self.loader._workers > 0 and math.max(self.loader._prefetch, 1) or 0
  local left = self.queue[1] and self.queue[1].stage == "done" and 1 or 0
  while not self.ended and #self.queue - left <= ahead do
    if not begin_next(self) then
      return
    end
  end
end


local function fail_timeout(self)
  Error.raise{ code = "run", func = FUNC, argument = "timeout",
    got = ("no batch after %g seconds"):format(self.loader._timeout),
    message = "the workers are too slow, or hang; a larger timeout waits longer" }
end


-- Completes the next batch; other batches advance meanwhile.
local function complete(self, batch)
  local waited = 0
  while batch.stage ~= "done" do
    local moved = guarded(self, batch, advance, 0, true) or go_ahead(self)
      or guarded(self, batch, advance, WAIT_MS, true)
    waited = moved and 0 or waited + WAIT_MS
    if waited >= self.loader._timeout * 1000 then
      fail_timeout(self)
    end
  end
  if batch.error then
    error(batch.error[1], 0)
  end
end


-- Returns the fields of the next batch, nil at the end.
local function next_fields(self)
  fill(self)
  local batch = self.queue[1]
  if not batch then
    return nil
  end
  complete(self, batch)
  fill(self)
  go_ahead(self)
  table.remove(self.queue, 1)
  return batch.fields
end


local function pinned(self, fields)
  for f = 1, self.loader._pin and fields.n or 0 do
    if is_array(fields[f]) then
      fields[f] = fields[f]:as_in_context(self.loader._pin)
    end
  end
  return fields
end


--- Returns the next batch's fields; nothing at the end, when the threads have stopped.
function Epoch:next()
  if not self.native then
    return nil
  end
  local ok, fields = pcall(next_fields, self)
  if not ok then
    self:close()
    error(fields, 0)
  elseif not fields then
    self:close()
    return nil
  end
  fields = pinned(self, fields)
  return unpack(fields, 1, fields.n)
end


-- The class ---------------------------------------------------------------------------------------

--- Batches of a data set. `for x, y in loader do`: one variable per value of a sample.
-- @type DataLoader
local DataLoader = Class:extend("DataLoader")

local LOADER = args.form(FUNC, {
  { "dataset", "any" }, { "batch_size", "positive?" }, { "shuffle", "boolean", false },
  { "sampler", "any?" }, { "last_batch", "text?" }, { "batch_sampler", "any?" },
  { "batchify_fn", "function?" }, { "num_workers", "integer", 0 },
  { "pin_memory", "boolean", false }, { "pin_device_id", "integer", 0 },
  { "prefetch", "integer?" }, { "timeout", "number", 120 },
})

local function bad_value(argument, message, got, expected)
  Error.raise{ code = "value", func = FUNC, argument = argument, message = message, got = got,
    expected = expected }
end


local function check_sampler(v, argument)
  if not Class.is_a(v, sampler.Sampler) then
    Error.raise{ code = "type", func = FUNC, argument = argument, expected = "a Sampler",
      got = Error.kind(v), message = ("bad '%s'"):format(argument) }
  end
  return v
end


local function make_batch_sampler(a, set)
  if a.batch_sampler then
    for _, name in ipairs{ "batch_size", "sampler", "last_batch" } do
      if a[name] ~= nil then
        bad_value(name, ("'%s' and 'batch_sampler' exclude each other"):format(name))
      end
    end
    if a.shuffle then
      bad_value("shuffle", "'shuffle' and 'batch_sampler' exclude each other")
    end
    return check_sampler(a.batch_sampler, "batch_sampler")
  elseif not a.batch_size then
    bad_value("batch_size", "'batch_size' is missing; without it there is a batch_sampler")
  elseif a.shuffle and a.sampler then
    bad_value("shuffle", "'shuffle' and 'sampler' exclude each other")
  end
  local inner = a.sampler and check_sampler(a.sampler, "sampler")
    or a.shuffle and sampler.RandomSampler(set:len()) or sampler.SequentialSampler(set:len())
  return sampler.BatchSampler(inner, a.batch_size, a.last_batch or "keep")
end


local function make_dataset(v)
  if is_array(v) then
    return require("tycho.gluon.data.dataset").ArrayDataset(v)
  elseif is_plain(v) then
    return require("tycho.gluon.data.dataset").SimpleDataset(v)
  elseif type(v) ~= "table" or type(v.get) ~= "function" or type(v.len) ~= "function" then
    Error.raise{ code = "type", func = FUNC, argument = "dataset",
      expected = "a data set (with get and len)", got = Error.kind(v), message = "bad 'dataset'" }
  end
  return v
end


--- @param dataset a data set, or a list or an array
-- @tparam[opt] table options batch_size; shuffle = false; sampler; last_batch = "keep", "discard"
--   or "rollover"; batch_sampler (instead of these); batchify_fn; num_workers = 0;
--   pin_memory = false, pin_device_id = 0; prefetch = 2 * num_workers: batches that are made ahead;
--   timeout = 120: seconds
function DataLoader:init(...)
  local a = LOADER(...)
  self._dataset = make_dataset(a.dataset)
  self._batch_sampler = make_batch_sampler(a, self._dataset)
  if a.num_workers < 0 then
    bad_value("num_workers", "bad 'num_workers'", a.num_workers, "0 or more")
  elseif a.prefetch and a.prefetch < 0 then
    bad_value("prefetch", "bad 'prefetch'", a.prefetch, "0 or more")
  elseif a.timeout ~= a.timeout or a.timeout <= 0 then
    bad_value("timeout", "bad 'timeout'", a.timeout, "seconds above 0")
  end
  self._workers, self._prefetch = a.num_workers, a.prefetch or 2 * a.num_workers
  self._timeout = a.timeout
  if a.batchify_fn ~= batchify.default and a.batchify_fn ~= batchify.stack then
    self._batchify = a.batchify_fn
  end
  self._pin = a.pin_memory and context.cpu_pinned(a.pin_device_id) or nil
end


local batches = iterate.alike(function(epoch)
  return function()
    return epoch:next()
  end
end)

--- Returns an iterator function of one epoch.
-- @treturn function gives the fields of a batch
function DataLoader:iter()
  return batches(Epoch(self))
end


--- Returns how many batches an epoch has.
function DataLoader:len()
  return self._batch_sampler:len()
end


--- Stops the threads of a loop that was left early; they end by themselves after a moment, too.
function DataLoader:free()
  if self._epoch then
    self._epoch:close()
    self._epoch = nil
  end
end


local function handed_out(self, ...)
  if (...) == nil then
    self._epoch = nil
  end
  return ...
end


function DataLoader:__call(_, control)
  if control == nil then
    self:free()
    self._epoch = Epoch(self)
  elseif not self._epoch then
    return nil
  end
  return handed_out(self, self._epoch:next())
end


return DataLoader

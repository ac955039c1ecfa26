--- Batches of a data set (part of `ty.gluon.data`).
--
--     local loader = gluon.data.DataLoader{ set, batch_size = 32, shuffle = true, num_workers = 2 }
--     for x, y in loader do ... end                        -- a new epoch in each loop
--
-- With workers, batches are made ahead: native threads read, decode and transform images; functions
-- in Lua run on the thread of the loop, between two batches. The batches are the same for any
-- number of workers. Arrays of a data set must not be written to while a loop runs.
--
-- A batch has a stage: "origin" (threads make its samples), "middle" (Lua functions change them),
-- "suffix" (threads stack them), "done". If Lua has nothing to do, the threads stack the batch in
-- "origin", and "done" follows.
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
local rawequal, select, unpack = rawequal, select, unpack

local FUNC = "gluon.data.DataLoader"
local WAIT_MS = 100                                      -- longest wait without a look for Ctrl-C

-- Positions of batches in the random numbers of an epoch, for `batchify_fn`, begin here, above all
-- positions of samples.
local BATCH_POSITION = 2 ^ 48


-- Epochs ------------------------------------------------------------------------------------------

-- One pass over a data set. Fields: loader, plan (plan.compile), numbers (iterator of the sampler),
-- seed and epoch (stream.key), suffix_seed, queue (unfinished batches, the next one first),
-- position (number of samples begun), native (the threads; nil after close), ended (whether the
-- sampler has ended).
local Epoch = Class:extend("Epoch")

local new_loader = ffi.new("ty_loader *[1]")

function Epoch:init(loader)
  self.loader = loader
  self.plan = plan.compile(plan.of(loader._dataset))
  self.numbers = loader._batch_sampler:iter()
  self.seed, self.epoch = stream.key(self.plan.draws or loader._batchify ~= nil)
  -- transforms after those in Lua draw from separate streams
  self.suffix_seed = C.ty_sample_seed(self.seed, self.epoch, -1ULL)
  self.queue, self.position = {}, 0
  check(C.ty_loader_new(loader._workers, new_loader), FUNC)
  self.native = native.own(new_loader[0], C.ty_loader_free)
end


--- Stops the threads and frees their memory.
function Epoch:close()
  if self.native then
    C.ty_loader_free(ffi.gc(self.native, nil))
    self.native, self.queue = nil, {}
  end
end


local spec, id = ffi.new("ty_batch_spec"), ffi.new("int64_t[1]")

-- Submits a batch to the threads. source: a native source; given: for each sample a list of arrays,
-- nil if the source reads the samples; seed: of random transforms; stack: whether to make a batch
-- of the samples.
local function submit_batch(self, batch, source, given, seed, stack)
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


-- Raises E(type) or E(index) unless i is the number of a sample.
local function check_number(self, i)
  local n = self.plan.numbers and #self.plan.numbers or self.plan.length
  if type(i) ~= "number" or i ~= math.floor(i) or i < 0 or i >= n then
    Error.raise{ code = type(i) == "number" and "index" or "type", func = FUNC,
      argument = tostring(i), expected = ("a sample from 0 to %d"):format(n - 1), got = i,
      message = ("the sampler gave %s, which is no sample of the data set"):format(tostring(i)) }
  end
end


-- Sets the numbers of a batch's samples from the sampler's list: `batch.numbers`, and
-- `batch.origin`, the numbers in the original data set. Raises E(type) for a list with other values
-- than numbers.
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


-- Returns whether the threads make whole batches, so that Lua has nothing to do.
local function is_whole(self)
  return self.plan.source and #self.plan.middle == 0 and #self.plan.suffix == 0
    and not self.loader._batchify
end


-- Calls f(self, batch, ...) and returns its result. An error is stored in the batch and raised when
-- the batch is the next one; E(interrupted) is raised immediately.
local function call_guarded(self, batch, f, ...)
  local ok, result = pcall(f, self, batch, ...)
  if ok then
    return result
  elseif Error.is_error(result) and result.code == "interrupted" then
    error(result, 0)
  end
  batch.stage, batch.error = "done", { result }
  return true
end


-- Begins the first stage of a batch. list: the sampler's numbers.
local function begin_batch(self, batch, list)
  read_numbers(self, batch, list)
  if self.plan.source then
    submit_batch(self, batch, self.plan.source, nil, self.seed, is_whole(self))
    batch.stage = "origin"
  else
    batch.stage = "middle"
  end
end


-- Returns the sampler's next list; nil, and sets `ended`, at the end.
local function take_numbers(self)
  local list = self.numbers()
  self.ended = list == nil
  return list
end


-- Adds the sampler's next batch to the queue and begins it; returns false at the end. An error in
-- the sampler becomes the error of the last batch.
local function begin_next(self)
  local batch = { position = self.position }
  local ok, list = pcall(take_numbers, self)
  if not ok then
    self.ended, batch.stage, batch.error = true, "done", { list }
  elseif list == nil then
    return false
  else
    call_guarded(self, batch, begin_batch, list)
    self.position = self.position + (is_plain(list) and #list or 0)
  end
  self.queue[#self.queue + 1] = batch
  return true
end


-- In Lua ------------------------------------------------------------------------------------------

local tensor, number, ready = ffi.new("ty_tensor *[1]"), ffi.new("double[1]"), ffi.new("int[1]")

-- Returns field number `field`, from 0, that the threads made: of the whole batch if row is -1,
-- else of sample `row`, from 0. It is an array or a number.
local function read_field(self, batch, field, row)
  check(C.ty_loader_field(self.native, batch.id, field, row, tensor, number), FUNC)
  if tensor[0] == nil then
    return number[0]
  end
  return array_class.own(tensor[0])
end


-- Returns the values of sample k, from 1, that the threads made: a list with its length as n.
local function read_sample(self, batch, k, fields)
  local list = { n = fields }
  for f = 1, fields do
    list[f] = read_field(self, batch, f - 1, k - 1)
  end
  return list
end


local function pack_values(...)
  return { n = select("#", ...), ... }
end


local function change_first(f, x, ...)
  return pack_values((f(x)), ...)
end


-- Returns the values of a sample after changes { f, "first" } or { f, "all" }.
local function apply_changes(changes, list)
  for _, change in ipairs(changes) do
    if change[2] == "first" then
      list = change_first(change[1], unpack(list, 1, list.n))
    else
      list = pack_values(change[1](unpack(list, 1, list.n)))
    end
  end
  return list
end


-- Returns the values of sample k, from 1, after the changes in Lua.
local function make_sample(self, batch, k)
  local list
  if self.plan.source then
    list = read_sample(self, batch, k, self.plan.fields)
  else
    list = pack_values(self.plan.dataset:get(batch.origin[k]))
  end
  return apply_changes(self.plan.middle, list)
end


-- Returns an error with the number of the sample in its text. Error objects of the user, and Lua's
-- text for lack of memory, are returned unchanged.
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


-- Calls f(...) with the random numbers of sample k, from 1, and returns its result. Errors name the
-- sample.
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


-- Returns whether value f, from 1, of all samples is an array in host memory.
local function all_on_host(samples, f)
  for _, list in ipairs(samples) do
    if not on_host(list[f]) then
      return false
    end
  end
  return true
end


local PIXELS = { uint8 = true, float32 = true }

-- Returns whether the first value of all samples is an image that native steps support.
local function all_images(samples)
  for _, list in ipairs(samples) do
    local x = list[1]
    if not (on_host(x) and x.ndim == 3 and PIXELS[x.dtype]) then
      return false
    end
  end
  return true
end


-- Returns the positions, from 1, of the values that are arrays in host memory in all samples, which
-- the threads stack.
local function given_fields(samples)
  local fields = {}
  for f = 1, samples[1].n do
    if all_on_host(samples, f) then
      fields[#fields + 1] = f
    end
  end
  return fields
end


-- Submits samples that Lua made to the threads, for the native steps of the first value and for
-- stacking.
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
  submit_batch(self, batch, source, given, self.suffix_seed, batch.stacked)
  batch.stage = "suffix"
end


-- Returns a sample in the form for `batchify_fn`: a single value itself, several values in a list.
local function unpack_sample(list)
  if list.n == 1 then
    return list[1]
  end
  return { unpack(list, 1, list.n) }
end


local function pack_results(f, ...)
  return pack_values(f(...))
end


-- Makes the fields of a batch with `batchify_fn`. Raises E(value) if it returns nothing.
local function call_batchify(self, batch)
  local samples = {}
  for k, list in ipairs(batch.samples) do
    samples[k] = unpack_sample(list)
  end
  batch.fields = stream.with(self.suffix_seed, self.epoch, BATCH_POSITION + batch.position,
    pack_results, self.loader._batchify, samples)
  if batch.fields[1] == nil then                         -- would end the `for` loop
    Error.raise{ code = "value", func = FUNC, argument = "batchify_fn", expected = "a batch",
      got = "nil", message = "batchify_fn returned nothing; a return may be missing" }
  end
end


-- Returns the fields of a batch: those that the threads stacked, and the others stacked here.
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


-- Returns whether a sample has all its values. With a `batchify_fn`, values may be nil.
local function is_complete(self, list)
  for f = 1, self.loader._batchify and 0 or list.n do
    if list[f] == nil then
      return false
    end
  end
  return list.n > 0
end


-- Raises E(value) unless the samples of a batch are complete and have the same number of values.
local function check_samples(self, samples, numbers)
  for k, list in ipairs(samples) do
    if not is_complete(self, list) then
      Error.raise{ code = "value", func = FUNC, argument = tostring(numbers[k]),
        expected = "values", got = "nil",
        message = ("sample %s: a value is nil; get of the data set and functions given to \z
          transform must return all values"):format(tostring(numbers[k])) }
    end
    if list.n ~= samples[1].n then
      Error.raise{ code = "value", func = FUNC, argument = tostring(numbers[k]),
        expected = samples[1].n .. " values", got = list.n,
        message = ("sample %s has another number of values than sample %s of the same batch")
          :format(tostring(numbers[k]), tostring(numbers[1])) }
    end
  end
end


-- Runs the stage "middle" of a batch whose samples are read: the functions in Lua. Then begins the
-- next stage.
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
      samples[k] = for_sample(self, batch, k, self.suffix_seed, apply_changes, self.plan.suffix,
        list)
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


-- Ends the stage "suffix": reads the results of the threads for samples that Lua made.
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


-- Reads a batch that the threads made without Lua.
local function finish_whole(self, batch)
  local fields = { n = self.plan.fields }
  for f = 1, fields.n do
    fields[f] = read_field(self, batch, f - 1, -1)
  end
  check(C.ty_loader_drop(self.native, batch.id), FUNC)
  batch.fields, batch.stage = fields, "done"
end


-- Stages ------------------------------------------------------------------------------------------

-- Waits up to wait_ms milliseconds for the threads; returns whether they have done a batch's stage.
local function is_ready(self, batch, wait_ms)
  check(C.ty_loader_wait(self.native, batch.id, wait_ms, ready), FUNC)
  return ready[0] ~= 0
end


-- Moves a batch to its next stage. Returns false if the threads have not finished after wait_ms
-- milliseconds. is_next: whether it is the next batch of the loop; other batches are not finished
-- yet, since their arrays would belong to the caller's scope.
local function advance_batch(self, batch, wait_ms, is_next)
  if batch.stage ~= "middle" and not is_ready(self, batch, wait_ms) then
    return false
  end
  if batch.stage == "suffix" then
    if is_next then
      finish_suffix(self, batch)
    end
    return is_next
  elseif batch.stage == "origin" and is_whole(self) then
    if is_next then
      finish_whole(self, batch)
    end
    return is_next
  end
  -- a batch that is made ahead must outlive the caller's scope
  array_class.outside(run_middle, self, batch)
  return true
end


-- Runs the functions in Lua for the first of the later batches whose samples are read. Returns
-- false if there is none.
local function go_ahead(self)
  for i = 2, #self.queue do
    local batch = self.queue[i]
    local in_lua = batch.stage == "middle" or batch.stage == "origin" and not is_whole(self)
    if in_lua and call_guarded(self, batch, advance_batch, 0, false) then
      return true
    end
  end
  return false
end


-- Begins batches until `prefetch` of them are unfinished, not counting the next one.
local function begin_batches(self)
  local ahead = self.loader._workers > 0 and math.max(self.loader._prefetch, 1) or 0
  local done = self.queue[1] and self.queue[1].stage == "done" and 1 or 0
  while not self.ended and #self.queue - done <= ahead do
    if not begin_next(self) then
      return
    end
  end
end


local function fail_timeout(self)
  Error.raise{ code = "run", func = FUNC, argument = "timeout",
    got = ("no batch after %g seconds"):format(self.loader._timeout),
    message = "the workers are too slow, or hang; give a larger timeout (seconds)" }
end


-- Waits until the next batch is done, and meanwhile runs functions in Lua for later ones. Raises
-- the batch's error, or E(run) after the timeout.
local function complete_batch(self, batch)
  local waited = 0
  while batch.stage ~= "done" do
    local moved = call_guarded(self, batch, advance_batch, 0, true) or go_ahead(self)
      or call_guarded(self, batch, advance_batch, WAIT_MS, true)
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
  begin_batches(self)
  local batch = self.queue[1]
  if not batch then
    return nil
  end
  complete_batch(self, batch)
  begin_batches(self)
  go_ahead(self)
  table.remove(self.queue, 1)
  return batch.fields
end


-- Copies the arrays among the fields to pinned memory, if the loader has this option.
local function pin_fields(self, fields)
  for f = 1, self.loader._pin and fields.n or 0 do
    if is_array(fields[f]) then
      fields[f] = fields[f]:as_in_context(self.loader._pin)
    end
  end
  return fields
end


--- Returns the fields of the next batch, nil at the end. At the end and after an error the epoch is
-- closed.
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
  fields = pin_fields(self, fields)
  return unpack(fields, 1, fields.n)
end


-- The class ---------------------------------------------------------------------------------------

--- Batches of a data set: `for x, y in loader do`, with a variable for each value of a sample. Each
-- loop is a new epoch. Arrays are stacked along a new axis 0, numbers become an array of shape
-- (batch), other values stay in a list.
-- @type DataLoader
local DataLoader = Class:extend("DataLoader")

-- Most loops over one loader at a time, nested or left early; each holds batches that its threads
-- have made ahead.
local MOST_LOOPS = 3
local WEAK = { __mode = "v" }

local LOADER = args.form(FUNC, {
  { "dataset", "any" }, { "batch_size", "positive?" }, { "shuffle", "boolean", false },
  { "sampler", "any?" }, { "last_batch", "text?" }, { "batch_sampler", "any?" },
  { "batchify_fn", "function?" }, { "num_workers", "integer", 0 },
  { "pin_memory", "boolean", false }, { "pin_device_id", "integer", 0 },
  { "prefetch", "integer?" }, { "timeout", "number", 120 },
})

local function fail_value(argument, message, got, expected)
  Error.raise{ code = "value", func = FUNC, argument = argument, message = message, got = got,
    expected = expected }
end


local LAST = { keep = true, discard = true, rollover = true }

local function check_sampler(v, argument)
  if not Class.is_a(v, sampler.Sampler) then
    Error.raise{ code = "type", func = FUNC, argument = argument, expected = "a Sampler",
      got = Error.kind(v), message = ("bad '%s'"):format(argument) }
  end
  return v
end


-- Returns the sampler of batches for the options; raises E(value) if they contradict each other.
local function make_batch_sampler(a, set)
  if a.batch_sampler then
    for _, name in ipairs{ "batch_size", "sampler", "last_batch" } do
      if a[name] ~= nil then
        fail_value(name, ("'%s' and 'batch_sampler' exclude each other"):format(name))
      end
    end
    if a.shuffle then
      fail_value("shuffle", "'shuffle' and 'batch_sampler' exclude each other")
    end
    return check_sampler(a.batch_sampler, "batch_sampler")
  elseif not a.batch_size then
    fail_value("batch_size", "'batch_size' is missing; give it, or a batch_sampler")
  elseif a.shuffle and a.sampler then
    fail_value("shuffle", "'shuffle' and 'sampler' exclude each other")
  elseif a.last_batch and not LAST[a.last_batch] then
    fail_value("last_batch", "bad 'last_batch'", a.last_batch, "keep, discard or rollover")
  end
  local inner = a.sampler and check_sampler(a.sampler, "sampler")
    or a.shuffle and sampler.RandomSampler(set:len()) or sampler.SequentialSampler(set:len())
  return sampler.BatchSampler(inner, a.batch_size, a.last_batch or "keep")
end


-- Returns a data set for the argument `dataset`; raises E(type) for values that cannot be one.
local function make_dataset(v)
  if is_array(v) then
    return require("tycho.gluon.data.dataset").ArrayDataset(v)
  elseif is_plain(v) then
    return require("tycho.gluon.data.dataset").SimpleDataset(v)
  elseif type(v) ~= "table" or type(v.get) ~= "function" or type(v.len) ~= "function" then
    Error.raise{ code = "type", func = FUNC, argument = "dataset",
      expected = "a data set (with get and len), an array or a list", got = Error.kind(v),
      message = "bad 'dataset'" }
  end
  return v
end


--- @param dataset a data set, another object with `get(i)` and `len()`, an array, or a list of
--   samples
-- @tparam[opt] table options batch_size: samples in a batch; shuffle = false: true for a new random
--   order in each epoch; sampler: a Sampler of sample numbers, in place of shuffle; last_batch =
--   "keep", "discard", or "rollover" (an incomplete last batch begins the next epoch);
--   batch_sampler: a Sampler of lists of numbers, in place of the options before; batchify_fn:
--   makes the fields of a batch from the list of its samples (`data.batchify`); num_workers = 0:
--   number of native threads; pin_memory = false, pin_device_id = 0: arrays in pinned memory of
--   that GPU; prefetch = 2 * num_workers: number of batches made ahead; timeout = 120: seconds to
--   wait for a batch
-- @raise E(`type`), E(`value`) for options; in a loop also E(`shape`) and E(`dtype`) for samples
--   that cannot be stacked, E(`index`) for a number from a sampler, and errors of functions in Lua,
--   each with the number of the sample
function DataLoader:init(...)
  local a = LOADER(...)
  self._dataset = make_dataset(a.dataset)
  self._batch_sampler = make_batch_sampler(a, self._dataset)
  if a.num_workers < 0 then
    fail_value("num_workers", "bad 'num_workers'", a.num_workers, "0 or more")
  elseif a.prefetch and a.prefetch < 0 then
    fail_value("prefetch", "bad 'prefetch'", a.prefetch, "0 or more")
  elseif a.timeout ~= a.timeout or a.timeout <= 0 then
    fail_value("timeout", "bad 'timeout'", a.timeout, "seconds above 0")
  end
  self._workers, self._prefetch = a.num_workers, a.prefetch or 2 * a.num_workers
  self._timeout = a.timeout
  if a.batchify_fn ~= batchify.default and a.batchify_fn ~= batchify.stack then
    self._batchify = a.batchify_fn
  end
  self._pin = a.pin_memory and context.cpu_pinned(a.pin_device_id) or nil
  self._loops, self._freed = {}, false     -- the most recently used loop is the last
end


local make_iterator = iterate.alike(function(epoch)
  return function()
    return epoch:next()
  end
end)

--- Begins an epoch and returns its iterator.
-- @treturn function returns the fields of the next batch; nil after the last one
function DataLoader:iter()
  return make_iterator(Epoch(self))
end


--- Returns the number of batches in an epoch.
-- @treturn int
function DataLoader:len()
  return self._batch_sampler:len()
end


-- Closes loop number i.
local function close_loop(self, i)
  table.remove(self._loops, i).epoch:close()
end


--- Stops the threads of loops that were left early, and frees their memory immediately. Without it,
-- the threads end by themselves when they have nothing to do. A loop that still runs ends.
function DataLoader:free()
  for i = #self._loops, 1, -1 do
    close_loop(self, i)
  end
  self._freed = true
end


-- Begins a loop. Closes loops that were left early, which is known once the garbage collector has
-- freed their last batch, and the least recently used one if there are too many.
local function begin_loop(self)
  local loops = self._loops
  for i = #loops, 1, -1 do
    if loops[i].given[1] == nil then
      close_loop(self, i)
    end
  end
  if #loops == MOST_LOOPS then
    close_loop(self, 1)
  end
  self._freed = false
  return { epoch = Epoch(self), given = setmetatable({}, WEAK) }
end


-- Removes from the list, and returns, the loop whose last batch has this first field, the most
-- recent of several; nil if there is none.
local function take_loop(self, first)
  for i = #self._loops, 1, -1 do
    if rawequal(self._loops[i].given[1], first) then
      return table.remove(self._loops, i)
    end
  end
end


-- Adds a loop at the end of the list, unless it has ended. Returns the batch's fields.
local function keep_loop(self, loop, ...)
  loop.given[1] = (...)
  if (...) ~= nil then
    self._loops[#self._loops + 1] = loop
  end
  return ...
end


-- Implements `for ... in loader do`: begins an epoch at the first call of a loop. A loop is
-- recognised by the first field of its last batch, so loops can be nested. Raises E(state) for a
-- loop that begin_loop has closed.
function DataLoader:__call(_, control)
  local loop
  if control == nil then
    loop = begin_loop(self)
  else
    loop = take_loop(self, control)
    if not loop and not self._freed then
      Error.raise{ code = "state", func = FUNC,
        message = ("this loop was ended by others over the same loader: %d may run at a time; \z
          loader:free() ends those that were left"):format(MOST_LOOPS) }
    end
  end
  if loop then
    return keep_loop(self, loop, loop.epoch:next())
  end
end


return DataLoader

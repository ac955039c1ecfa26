--- Iterators around other iterators: ResizeIter and PrefetchingIter.
--
-- @module tycho.io.wrappers

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local base = require "tycho.io.data"
local Error = require "tycho.core.error"
local values = require "tycho.core.values"

local wrappers = {}


-- Returns a value that has `next`; raises E(type) for another one.
local function check_iter(v, func)
  if type(v) ~= "table" or values.is_plain(v) or not v.next then
    Error.raise{ code = "type", func = func, expected = "an iterator", got = Error.kind(v),
      message = "bad iterator" }
  end
  return v
end


-- Raises E(value) for a state that is not of an iterator's class, or that does not fit it.
local function check_state(self, state, fits)
  if not fits or state.kind ~= self.class_name then
    Error.raise{ code = "value", func = self.class_name .. ":set_state", argument = "state",
      expected = ("a state of a %s"):format(self.class_name), got = Error.kind(state),
      message = "the state is that of another iterator" }
  end
end


-- Defines `getdata` and its like, and `next`, for a class whose `iter_next` sets `current_batch`.
local function add_readers(class)
  function class:getdata() return self:_current("getdata").data end
  function class:getlabel() return self:_current("getlabel").label end
  function class:getindex() return self:_current("getindex").index end
  function class:getpad() return self:_current("getpad").pad end

  function class:next()
    return self:_hand_out()
  end
end


-- Resizing ----------------------------------------------------------------------------------------

--- An iterator with epochs of `size` batches of another iterator, which is reset where it ends
-- before.
-- @type ResizeIter
local ResizeIter = base.DataIter:extend("ResizeIter")
wrappers.ResizeIter = ResizeIter
add_readers(ResizeIter)

local RESIZE = args.form("io.ResizeIter", {
  { "data_iter", "any" }, { "size", "integer" }, { "reset_internal", "boolean", true },
})

--- @tparam DataIter data_iter inner iterator
-- @int size batches in an epoch
-- @tparam[opt] table options reset_internal = true: `reset` resets the inner iterator too; false:
--   it continues
function ResizeIter:init(...)
  local a = RESIZE(...)
  local inner = check_iter(a.data_iter, "io.ResizeIter")
  if a.size < 0 then
    Error.raise{ code = "value", func = "io.ResizeIter", argument = "size",
      expected = "0 or more", got = a.size, message = "bad 'size'" }
  end
  ResizeIter.super.init(self, { batch_size = inner.batch_size })
  self.data_iter, self.size, self.reset_internal, self.cur = inner, a.size, a.reset_internal, 0
  self.provide_data, self.provide_label = inner.provide_data, inner.provide_label
  self.default_bucket_key = inner.default_bucket_key
end


function ResizeIter:reset()
  self.cur = 0
  if self.reset_internal then
    self.data_iter:reset()
  end
end


function ResizeIter:iter_next()
  if self.cur >= self.size then
    return false
  end
  self.current_batch = self.data_iter:next()
  if not self.current_batch then
    self.data_iter:reset()
    self.current_batch = self.data_iter:next()
  end
  self.cur = self.cur + 1
  return self:_has_current()
end


function ResizeIter:state()
  return { kind = "ResizeIter", cur = self.cur, inner = self.data_iter:state() }
end


function ResizeIter:set_state(state)
  check_state(self, state, type(state) == "table" and state.cur)
  self.cur = state.cur
  self.data_iter:set_state(state.inner)
end


-- Joining -----------------------------------------------------------------------------------------

--- Several iterators as one: a batch has the inputs and labels of all of them. Iterators that end
-- at different batches, pad them differently or give other buckets are E(`state`). Unlike in the
-- reference it starts no thread: calls are queued, so a batch is fetched while devices compute on
-- the last one, and native iterators read ahead by themselves.
-- @type PrefetchingIter
local PrefetchingIter = base.DataIter:extend("PrefetchingIter")
wrappers.PrefetchingIter = PrefetchingIter
add_readers(PrefetchingIter)

local PREFETCH = args.form("io.PrefetchingIter", {
  list = true, { "iters", "any" }, { "rename_data", "list?" }, { "rename_label", "list?" },
})


-- Raises an error unless there is for each iterator a table of names that it has.
local function check_renames(iters, field, renames)
  local argument = "rename_" .. field:match("_(%a+)$")
  if #renames ~= #iters then
    Error.raise{ code = "value", func = "io.PrefetchingIter", argument = argument,
      expected = #iters .. " tables", got = #renames,
      message = "each iterator needs a table of names" }
  end
  for i, names in ipairs(renames) do
    local known = {}
    for _, entry in ipairs(iters[i][field] or {}) do
      known[base.DataDesc.of(entry, "io.PrefetchingIter").name] = true
    end
    for old, new in pairs(values.is_plain(names) and names or { names }) do
      if type(old) ~= "string" or type(new) ~= "string" then
        Error.raise{ code = "type", func = "io.PrefetchingIter", argument = argument,
          expected = "tables old name -> new name", got = Error.show(names),
          message = ("bad table %d"):format(i) }
      elseif not known[old] then
        Error.unknown{ func = "io.PrefetchingIter", argument = old, what = "name", among = known }
      end
    end
  end
end


-- Returns what each source says in a field, in one list, renamed by its table of `renames`.
local function join_descriptions(sources, field, renames)
  local list = {}
  for i, source in ipairs(sources) do
    for _, entry in ipairs(source[field] or {}) do
      local desc = base.DataDesc.of(entry, "io.PrefetchingIter")
      local name = renames and renames[i][desc.name] or desc.name
      list[#list + 1] = base.DataDesc(name, desc.shape, desc.dtype, desc.layout or values.null)
    end
  end
  return list
end


-- Returns checked tables of names; nil for none.
local function read_renames(iters, field, renames)
  renames = renames and #renames > 0 and renames or nil
  if renames then
    check_renames(iters, field, renames)
  end
  return renames
end


--- @tparam {DataIter,...} iters an iterator or a list of them
-- @tparam[opt] table options rename_data, rename_label: for each iterator a table old name -> new
--   name
function PrefetchingIter:init(...)
  local a = PREFETCH(...)
  local iters = values.is_plain(a.iters) and a.iters or { a.iters }
  if #iters == 0 then
    Error.raise{ code = "value", func = "io.PrefetchingIter", argument = "iters",
      expected = "at least one iterator", got = "none", message = "bad 'iters'" }
  end
  for _, inner in ipairs(iters) do
    check_iter(inner, "io.PrefetchingIter")
  end
  self.iters, self.n_iter = iters, #iters
  self._renames = { provide_data = read_renames(iters, "provide_data", a.rename_data),
    provide_label = read_renames(iters, "provide_label", a.rename_label) }
  self.provide_data = join_descriptions(iters, "provide_data", self._renames.provide_data)
  self.provide_label = join_descriptions(iters, "provide_label", self._renames.provide_label)
  self.default_bucket_key = iters[1].default_bucket_key
  PrefetchingIter.super.init(self,
    { batch_size = self.provide_data[1] and self.provide_data[1].shape[1] or 0 })
end


function PrefetchingIter:reset()
  for _, inner in ipairs(self.iters) do
    inner:reset()
  end
end


local function fail_apart(what)
  Error.raise{ code = "state", func = "PrefetchingIter:next",
    message = "the iterators do not " .. what }
end


local function append_all(to, list)
  for _, x in ipairs(list or {}) do
    to[#to + 1] = x
  end
end


-- Returns what describes the arrays of joined batches: the batches, which differ from their
-- iterator's descriptions where there are buckets, else the iterators.
local function describe_batches(self, batches, field)
  for _, batch in ipairs(batches) do
    if batch[field] == nil then
      return self[field]
    end
  end
  return join_descriptions(batches, field, self._renames[field])
end


-- Returns whether two keys of buckets are equal; lists count by contents.
local function same_key(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then
    return a == b
  end
  local same = #a == #b
  for i = 1, same and #a or 0 do
    same = same and same_key(a[i], b[i])
  end
  return same
end


-- Returns batches as one; raises E(state) where their padding or their buckets differ.
local function merge_batches(self, batches)
  local data, label = {}, {}
  for _, batch in ipairs(batches) do
    if batch.pad ~= batches[1].pad then
      fail_apart("agree in the padding of a batch")
    elseif not same_key(batch.bucket_key, batches[1].bucket_key) then
      fail_apart("agree in the bucket of a batch")
    end
    append_all(data, batch.data)
    append_all(label, batch.label)
  end
  return base.DataBatch{ data = data, label = label, pad = batches[1].pad, index = batches[1].index,
    bucket_key = batches[1].bucket_key,
    provide_data = describe_batches(self, batches, "provide_data"),
    provide_label = describe_batches(self, batches, "provide_label") }
end


function PrefetchingIter:iter_next()
  local batches, n = {}, 0
  for i, inner in ipairs(self.iters) do
    batches[i] = inner:next()
    n = n + (batches[i] and 1 or 0)
  end
  if n > 0 and n < self.n_iter then
    fail_apart("end together")
  end
  self.current_batch = n > 0 and merge_batches(self, batches) or nil
  return self:_has_current()
end


function PrefetchingIter:state()
  local states = {}
  for i, inner in ipairs(self.iters) do
    states[i] = inner:state()
  end
  return { kind = "PrefetchingIter", inner = states }
end


function PrefetchingIter:set_state(state)
  check_state(self, state, type(state) == "table" and type(state.inner) == "table"
    and #state.inner == #self.iters)
  for i, inner in ipairs(self.iters) do
    inner:set_state(state.inner[i])
  end
end


return wrappers

--- Calls of operators on arrays. Arguments are passed in reused scratch arrays, so that a small
-- call costs little. Call forms are read elsewhere (`ndarray/operators.lua`).
--
--     call.unary("exp", "nd.exp", x, out)   call.scalar("_plus_scalar", "NDArray:__add", x, 2, out)
--     call.binary("broadcast_add", "nd.add", x, y, out)
--     call.params("slice", "NDArray:slice", { x }, { "begin", "(0,)", "end", "(2,)" }, out)
--     call.many("split", "nd.split", inputs, n, params, outputs, nout)
--     call.put_input(0, x); call.cached(entry, "nd.exp", out, holder)  -- ndarray/call_cache.lua
--
-- Each raises the core's error; out of memory, it collects garbage and tries once more. The work is
-- queued: `totable` and other functions that read values wait for it.
--
-- @module tycho.ndarray.call

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local class = require "tycho.ndarray.class"
local counted_from_1 = require "tycho.core.list"
local Error = require "tycho.core.error"
local gc = require "tycho.core.gc"
local recording = require "tycho.ndarray.recording"

local C = native.C
local own = class.own
local may_fail = recording.may_fail

local call = {}

local capacity = 64
local ins = ffi.new("ty_tensor *[?]", capacity)
local outs = ffi.new("ty_tensor *[?]", capacity)
local attr = ffi.new("ty_attr[?]", capacity)


local function grow(n)
  if n > capacity then
    capacity = n * 2
    ins, outs = ffi.new("ty_tensor *[?]", capacity), ffi.new("ty_tensor *[?]", capacity)
    attr = ffi.new("ty_attr[?]", capacity)
  end
end


-- Repeats a call that ran out of memory, after a collection; raises other errors. Kept out of the
-- hot path. The scratch arrays point to `a` and `b`, which are parameters so that they live until
-- the call ends: inputs to which only the call refers must survive the collection.
local function recover(code, op, func, attrs, nattr, nin, nout, a, b)
  if code == C.TY_EMEMORY then
    for i = 0, nin - 1 do
      C.ty_tensor_keep(ins[i])
    end
    gc.release()
    code = C.ty_call(op, attrs, nattr, ins, nin, outs, nout)
    for i = 0, nin - 1 do
      C.ty_tensor_free(ins[i])
    end
  end
  native.check(code, func)
  return a, b
end


local function free_all(arrays)
  for _, x in ipairs(arrays) do
    x:free()
  end
end


local convert                            -- the function of `call.set_convert`

--- Sets a function that may replace inputs before a call that makes its outputs:
-- `convert(op, ins, nin, attrs, nattr)` changes handles in `ins` and returns the arrays that it
-- made, or nil. They are freed after the call.
-- @tparam[opt] function f nil: inputs are not converted
function call.set_convert(f)
  convert = f
end


local function submit(op, func, nattr, nin, nout, a, b, as_is)
  local made = convert and not as_is and outs[0] == nil and convert(op, ins, nin, attr, nattr)
  if may_fail[op] then
    recording.note_line_always()
  elseif recording.on then
    recording.note_line()
  end
  local code = C.ty_call(op, attr, nattr, ins, nin, outs, nout)
  if code ~= 0 then
    recover(code, op, func, attr, nattr, nin, nout, a, b)
  end
  if recording.on then
    recording.note_missed()
  end
  if made then
    free_all(made)
  end
end


local function put_out(out, func)
  if out then
    class.writable(out, func)
    outs[0] = out._h
  else
    outs[0] = nil
  end
end


--- Puts an input into place for `call.cached`.
-- @int i position, from 0, below 64
-- @tparam NDArray x
function call.put_input(i, x)
  ins[i] = x._h
end


--- Calls an operator with one output on inputs that `put_input` has set. These are bare pointers,
-- so the caller must keep the arrays on its stack, or in `holder`, until this returns; it must not
-- make a tail call, which drops its frame. Returns the output.
-- @tparam table entry `op`, `attr` and `nattr`, `nin`, as_is (inputs are not converted)
-- @string func public name, for errors
-- @tparam[opt] NDArray out written instead of a new array
-- @param holder any value that keeps the inputs alive
-- @treturn NDArray
function call.cached(entry, func, out, holder)
  put_out(out, func)
  local made = convert and not (entry.as_is or out)
    and convert(entry.op, ins, entry.nin, entry.attr, entry.nattr)
  if may_fail[entry.op] then
    recording.note_line_always()
  elseif recording.on then
    recording.note_line()
  end
  local code = C.ty_call(entry.op, entry.attr, entry.nattr, ins, entry.nin, outs, 1)
  if code ~= 0 then
    recover(code, entry.op, func, entry.attr, entry.nattr, entry.nin, 1, holder, entry)
  end
  if recording.on then
    recording.note_missed()
  end
  if made then
    free_all(made)
  end
  return out or own(outs[0])
end


-- The body of `cached` is repeated here: with a function that both call, a recorded call takes 6 %
-- longer (4.07 and 3.84 us, LuaJIT 2.1, one thread, 2026-11-28).

--- Calls an operator with several outputs as `cached` does; returns a list of new arrays.
-- @tparam table entry as above, and `nout`, at most 64
-- @string func public name, for errors
-- @param holder any value that keeps the inputs alive
-- @treturn {NDArray,...}
function call.cached_list(entry, func, holder)
  local nout = entry.nout
  for i = 0, nout - 1 do
    outs[i] = nil
  end
  local made = convert and not entry.as_is
    and convert(entry.op, ins, entry.nin, entry.attr, entry.nattr)
  if may_fail[entry.op] then
    recording.note_line_always()
  elseif recording.on then
    recording.note_line()
  end
  local code = C.ty_call(entry.op, entry.attr, entry.nattr, ins, entry.nin, outs, nout)
  if code ~= 0 then
    recover(code, entry.op, func, entry.attr, entry.nattr, entry.nin, nout, holder, entry)
  end
  if recording.on then
    recording.note_missed()
  end
  if made then
    free_all(made)
  end
  local results = {}
  for i = 1, nout do
    results[i] = own(outs[i - 1])
  end
  return counted_from_1(results)
end


--- Calls an operator with one output on one array; returns the output.
-- @string op canonical name or alias
-- @string func public name, for errors
-- @tparam NDArray x
-- @tparam[opt] NDArray out written instead of a new array
-- @treturn NDArray
function call.unary(op, func, x, out)
  ins[0] = x._h
  put_out(out, func)
  submit(op, func, 0, 1, 1, x)
  return out or own(outs[0])
end


--- Calls an operator with one output on two arrays; returns the output.
function call.binary(op, func, x, y, out)
  ins[0], ins[1] = x._h, y._h
  put_out(out, func)
  submit(op, func, 0, 2, 1, x, y)
  return out or own(outs[0])
end


--- Returns a number as attribute text that reads back equal.
function call.number(v)
  if v == math.floor(v) and v > -1e15 and v < 1e15 then
    return ("%d"):format(v)
  end
  return ("%.17g"):format(v)
end

local number = call.number


--- Calls an operator with one output on an array, with parameter `scalar`; returns the output.
function call.scalar(op, func, x, v, out)
  local text = number(v)
  ins[0] = x._h
  attr[0].key, attr[0].value = "scalar", text
  put_out(out, func)
  submit(op, func, 1, 1, 1, x, text)
  return out or own(outs[0])
end


-- Fills the attributes; `params` is a flat list of names and texts.
local function put_params(params)
  local n = #params / 2
  for i = 1, n do
    attr[i - 1].key, attr[i - 1].value = params[2 * i - 1], params[2 * i]
  end
  return n
end


local function put_inputs(inputs, n)
  for i = 1, n do
    ins[i - 1] = inputs[i]._h
  end
end


--- Calls an operator with one output, with parameters; returns the output.
-- @string op name of the operator
-- @string func public name, for errors
-- @tparam {NDArray,...} inputs
-- @tparam {string,...} params names and texts by turns
-- @tparam[opt] NDArray out
-- @treturn NDArray
function call.params(op, func, inputs, params, out)
  grow(math.max(#inputs, #params))
  put_inputs(inputs, #inputs)
  put_out(out, func)
  submit(op, func, put_params(params), #inputs, 1, inputs, params)
  return out or own(outs[0])
end


--- Calls an operator with any number of outputs; returns a list of them.
-- @string op name of the operator
-- @string func public name, for errors
-- @tparam table inputs list
-- @int nin its length
-- @tparam {string,...} params names and texts by turns
-- @tparam table given arrays to write, by position; others are made
-- @int nout number of outputs
-- @bool[opt] as_is inputs are not converted
-- @treturn {NDArray,...} `given` if it has all of them
function call.many(op, func, inputs, nin, params, given, nout, as_is)
  grow(math.max(nin, #params, nout))
  put_inputs(inputs, nin)
  local complete = true
  for i = 1, nout do
    if given[i] then
      class.writable(given[i], func)
      outs[i - 1] = given[i]._h
    else
      outs[i - 1], complete = nil, false
    end
  end
  submit(op, func, put_params(params), nin, nout, inputs, params, as_is)
  if complete then
    return given
  end
  local results = {}
  for i = 1, nout do
    results[i] = given[i] or own(outs[i - 1])
  end
  return counted_from_1(results)
end


--- Sets every element.
-- @tparam NDArray x
-- @number v
-- @string func public name, for errors
function call.fill(x, v, func)
  class.writable(x, func)
  local text = number(v)
  attr[0].key, attr[0].value = "src", text
  outs[0] = x._h
  submit("_set_value", func, 1, 0, 1, x, text)
  return x
end


--- Returns a new array of zeros. The pages of a large array are not touched before it is used.
-- @tparam {int,...} shape
-- @int dtype code
-- @int device code
-- @string func public name, for errors
-- @treturn NDArray
function call.zeros(shape, dtype, device, func)
  local x, blank = class.blank(shape, dtype, device, func)
  return blank and x or call.fill(x, 0, func)
end


--- Copies values between any devices, with conversion of the element type; unequal shapes are
-- E(shape).
-- @tparam NDArray to
-- @tparam NDArray from
-- @string func for errors
-- @string[opt] argument for errors
function call.copy(to, from, func, argument)
  class.writable(to, func)
  local a, b = to._shape, from._shape
  local same = #a == #b
  for i = 1, same and #a or 0 do
    same = same and a[i] == b[i]
  end
  if not same then
    Error.raise{ code = "shape", func = func, argument = argument, expected = to.shape,
      got = from.shape, message = "the shapes differ" }
  end
  if not recording.on then
    native.check(C.ty_tensor_copy(to._h, from._h), func)
    return to
  end
  recording.note_line_always()
  if to._dtype ~= from._dtype and to._device ~= from._device then
    from = from:astype(to.dtype)                         -- two steps, each with its gradient
  end
  native.check(C.ty_copy(to._h, from._h), func)
  return to
end


return call

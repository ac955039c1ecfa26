-- The C interface in the form in which C programs use it: graphs and executors made by hand, and
-- the errors of calls.

local assert = require "luassert"
local ffi = require "ffi"
local native = require "tycho.core.ffi"
local Error = require "tycho.core.error"

local C = native.C

local interface = { C = C }

local NUMBER = {}
for number, name in ipairs(Error.CODES) do
  NUMBER[name] = number
end

--- Asserts that the call fails with this code ("shape") and exactly this text.
function interface.fails(code, text, name, ...)
  local got = C[name](...)
  assert.equal(("%s: %s"):format(code, text),
    ("%s: %s"):format(Error.CODES[got] or got, ffi.string(C.ty_error())))
  assert.equal(NUMBER[code], got)
end

--- Raises an error unless the call succeeds.
function interface.takes(name, ...)
  local code = C[name](...)
  if code ~= 0 then
    error(("%s: %s"):format(name, ffi.string(C.ty_error())), 2)
  end
end

--- Returns a handle from a function of the form f(..., out); it is freed with the last reference to
-- it.
function interface.make(kind, name, ...)
  local out = ffi.new(kind .. " *[1]")
  local n = select("#", ...)
  local list = { ... }
  list[n + 1] = out
  interface.takes(name, unpack(list, 1, n + 1))
  return native.own(out[0], C[kind .. "_free"])
end

--- Returns an iterator's handle, which the caller frees; nil and the text if it is refused.
function interface.iterator(kind, options)
  local keys, handle = {}, ffi.new("ty_iter *[1]")
  for key in pairs(options) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  if C.ty_iter_new(kind, native.attrs(keys, options), #keys, handle) ~= 0 then
    return nil, ffi.string(C.ty_error())
  end
  return handle[0]
end

function interface.graph()
  return interface.make("ty_graph", "ty_graph_new")
end

function interface.var(graph, name)
  local out = ffi.new("ty_entry[1]")
  interface.takes("ty_graph_var", graph, name, nil, 0, out)
  return ffi.new("ty_entry", out[0])                     -- out[0] alone would not outlive out
end

--- Returns attributes from {"key", "value", ...}, and their number; the caller keeps the list
-- during the call.
function interface.attrs(list)
  local attrs = ffi.new("ty_attr[?]", #list / 2 + 1)
  for i = 1, #list, 2 do
    attrs[(i - 1) / 2].key, attrs[(i - 1) / 2].value = list[i], list[i + 1]
  end
  return attrs, #list / 2
end

function interface.entries(list)
  return ffi.new("ty_entry[?]", #list + 1, list), #list
end

function interface.op(graph, op, name, inputs, attrs)
  local out = ffi.new("ty_entry[1]")
  local list, n = interface.attrs(attrs or {})
  local entries, count = interface.entries(inputs)
  interface.takes("ty_graph_op", graph, op, name, list, n, entries, count, out)
  return ffi.new("ty_entry", out[0])
end

--- Returns a float32 array on the CPU with these numbers; dtype: another type.
function interface.tensor(shape, numbers, dtype)
  local d = ffi.new("ty_desc", { dtype = dtype or C.TY_F32, ndim = #shape })
  for i, n in ipairs(shape) do
    d.dim[i - 1] = n
  end
  local x = interface.make("ty_tensor", "ty_tensor_new", d)
  if numbers then
    interface.takes("ty_tensor_write", x, ffi.new("float[?]", #numbers, numbers), 4 * #numbers)
  end
  return x
end

--- Returns the elements of a float32 array.
function interface.numbers(x)
  local d = ffi.new("ty_desc")
  interface.takes("ty_tensor_desc", x, d)
  local n = 1
  for i = 0, d.ndim - 1 do
    n = n * tonumber(d.dim[i])
  end
  local data, list = ffi.new("float[?]", n), {}
  interface.takes("ty_tensor_read", x, data, 4 * n)
  for i = 1, n do
    list[i] = data[i - 1]
  end
  return list
end

return interface

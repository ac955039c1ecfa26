--- An ONNX file as a Module (not for users; `ty.onnx.load`).
--
-- @module tycho.onnx.load_module

local ffi = require "ffi"
local class = require "tycho.ndarray.class"
local contexts = require "tycho.core.context"
local data = require "tycho.io.data"
local Error = require "tycho.core.error"
local import = require "tycho.onnx.importer"
local module = require "tycho.module"
local native = require "tycho.core.ffi"
local tables = require "tycho.core.tables"


local function read_bytes(x, func)
  local count = tonumber(x.size) * class.BYTES[x._dtype]
  local p = ffi.new("uint8_t[?]", count)
  native.check(native.C.ty_tensor_read(x._h, p, count), func)
  return p, count
end

local function same_arrays(x, y, func)
  if not x or not y or x.dtype ~= y.dtype or not tables.same(x.shape, y.shape) then
    return false
  end
  local p, count = read_bytes(x, func)
  local q = read_bytes(y, func)
  for i = 0, count - 1 do
    if p[i] ~= q[i] then
      return false
    end
  end
  return true
end


-- Returns whether two imports of a file made the same network. Initializers are the file's in both.
local function same_networks(a, b, func)
  local same, from_file = a.symbol:tojson() == b.symbol:tojson(), {}
  for _, t in ipairs(a.model.graph.initializers) do
    from_file[t.name] = true
  end
  for _, kind in ipairs{ "arguments", "auxiliary" } do
    for name, x in pairs(same and a[kind] or {}) do
      same = same and (from_file[name] or same_arrays(x, b[kind][name], func))
    end
  end
  return same
end


-- Returns a function for `Module._accept_shapes`. Sizes that the import computed from the shapes it
-- was given are part of the network: other shapes are accepted if the file gives the same network
-- for them.
local function make_acceptance(a, inputs)
  local imported, accepted = {}, {}
  for _, input in ipairs(inputs) do
    imported[input.name] = input.shape
  end
  local function import_for(shapes, func)
    return import.run({ path = a.file, shapes = shapes, constants = a.constants, ctx = a.ctx,
      other_sizes = true }, func)
  end
  return function(_, descriptions, func)
    local shapes, changed, words = tables.copy(imported), nil, {}
    for i, d in ipairs(descriptions) do
      local own = imported[d.name]
      if own and #own > 0 and not tables.same(own, d.shape) then
        shapes[d.name], changed = d.shape, changed or d
      end
      words[i] = d.name .. " " .. table.concat(d.shape, ",")
    end
    local key = table.concat(words, ";")
    if changed and accepted[key] == nil then
      accepted[key] = same_networks(import_for(imported, func), import_for(shapes, func), func)
    end
    if changed and not accepted[key] then
      Error.raise{ code = "shape", func = func, argument = changed.name,
        expected = imported[changed.name], got = changed.shape,
        message = ("'%s' computes with the shape of '%s' that it was loaded for; load it again for \z
          other shapes"):format(a.file, changed.name) }
    end
  end
end


return function(a, func)
  local r = import.run({ path = a.file, shapes = a.shapes, constants = a.constants,
    ctx = a.ctx }, func)
  local names, shapes = {}, {}
  local is_read = tables.positions(r.symbol:list_arguments())
  for _, input in ipairs(r.inputs) do
    for axis, size in ipairs(input.shape) do
      if size < 0 then
        Error.raise{ code = "shape", func = func, argument = input.name, expected = "a size",
          got = "nothing",
            message = ("axis %d of input '%s' is open; give shapes = {['%s'] = {...}}")
          :format(axis - 1, input.name, input.name) }
      end
    end
    if is_read[input.name] then
      names[#names + 1] = input.name
      shapes[#shapes + 1] = data.DataDesc(input.name, #input.shape > 0 and input.shape or { 1 },
        input.dtype)
    end
  end
  local mod = module.Module{ symbol = r.symbol, data_names = names, label_names = {},
    context = a.ctx or contexts.current_context() }
  mod:bind{ data_shapes = shapes, for_training = false }
  mod:set_params(r.arguments, r.auxiliary)
  mod._accept_shapes = make_acceptance(a, r.inputs)
  return mod
end

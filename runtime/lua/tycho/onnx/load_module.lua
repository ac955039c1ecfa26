--- An ONNX file as a Module (not for users; `ty.onnx.load`).
--
-- @module tycho.onnx.load_module

local contexts = require "tycho.core.context"
local data = require "tycho.io.data"
local Error = require "tycho.core.error"
local import = require "tycho.onnx.importer"
local module = require "tycho.module"
local tables = require "tycho.core.tables"


-- The layout of all inputs. Their batch axis is needed only if several devices share a batch, and a
-- file does not state it: sequences may have another first axis, and so may states, masks and
-- tables.
local NO_BATCH_AXIS = ""


-- Returns whether two arrays have the same type, sizes and bits; false if one is nil.
local function same_arrays(x, y)
  return x ~= nil and y ~= nil and x.dtype == y.dtype and tables.same(x.shape, y.shape)
    and x:tostring_raw() == y:tostring_raw()
end


-- Returns whether two imports of a file made the same network. Initializers are not compared, since
-- both have those of the file.
local function same_networks(a, b)
  local same, from_file = a.symbol:tojson() == b.symbol:tojson(), {}
  for _, t in ipairs(a.model.graph.initializers) do
    from_file[t.name] = true
  end
  for _, kind in ipairs{ "arguments", "auxiliary" } do
    for name, x in pairs(same and a[kind] or {}) do
      same = same and (from_file[name] or same_arrays(x, b[kind][name]))
    end
  end
  return same
end


-- Returns a function for `Module._accept_shapes`, which stores its answers. The import computes
-- sizes, masks and similar values from the given shapes, and they become part of the network, so
-- other shapes are accepted only if an import for them makes the same network.
local function make_acceptance(a, inputs)
  local imported, accepted, original = {}, {}, nil
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
      original = original or import_for(imported, func)
      accepted[key] = same_networks(original, import_for(shapes, func))
    end
    if changed and not accepted[key] then
      Error.raise{ code = "shape", func = func, argument = changed.name,
        expected = imported[changed.name], got = changed.shape,
        message =
          ("'%s' computes with the shape of '%s' that it was loaded for; load it again for \z
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
        input.dtype, NO_BATCH_AXIS)
    end
  end
  local mod = module.Module{ symbol = r.symbol, data_names = names, label_names = {},
    context = a.ctx or contexts.current_context() }
  mod:bind{ data_shapes = shapes, for_training = false }
  mod:set_params(r.arguments, r.auxiliary)
  mod._accept_shapes = make_acceptance(a, r.inputs)
  return mod
end

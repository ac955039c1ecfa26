-- ONNX files for specs: networks written and read back; ONNX's checker and ONNX Runtime, if a
-- Python with both is available (TYCHO_ONNX_PYTHON names an interpreter).

local lfs = require "lfs"
local device = require "spec.support.device"
local folder = require "spec.support.folder"
local shell = require "spec.support.shell"
local ty = require "tycho"

local files = {}

local python

--- Returns a Python with onnx and onnxruntime; nil if there is none.
function files.python()
  if python == nil then
    local name = os.getenv("TYCHO_ONNX_PYTHON") or "python3"
    local _, status = shell.run(name .. " -c 'import onnx, onnxruntime, numpy' 2>/dev/null")
    python = status == 0 and name
  end
  return python or nil
end

--- Binds a symbol, for inference, to arrays by argument and state on the device that specs run on;
-- arrays on other devices are copied.
function files.bind(symbol, arrays, states)
  local given, ctx = {}, ty.cpu()
  for _, name in ipairs(symbol:list_arguments()) do
    given[name] = arrays[name]
  end
  return symbol:bind{ ctx = ctx, args = device.placed(given, ctx),
    aux_states = device.placed(states, ctx), grad_req = "null" }
end

--- Returns the outputs of a symbol that is bound like in `files.bind`.
function files.run(symbol, arrays, states)
  local exe = files.bind(symbol, arrays, states)
  exe:forward{ is_train = false }
  return exe.outputs
end

local function flat(x)
  return x:reshape{ -1 }:totable()
end

--- Returns the largest difference of two lists of arrays, relative to the largest number; NaN and
-- infinities must agree.
function files.difference(a, b)
  assert(#a == #b, "numbers of outputs")
  local worst = 0
  for i, x in ipairs(a) do
    assert(table.concat(x.shape, ",") == table.concat(b[i].shape, ","), "shapes of output " .. i
      .. ": " .. table.concat(x.shape, ",") .. " and " .. table.concat(b[i].shape, ","))
    local u, v, top, off = flat(x), flat(b[i]), 1e-3, 0
    for k = 1, #u do
      if u[k] - u[k] == 0 then
        top = math.max(top, math.abs(u[k]))
      end
      local same = u[k] == v[k] or u[k] ~= u[k] and v[k] ~= v[k]
      local d = same and 0 or math.abs(u[k] - v[k])
      off = math.max(off, d == d and d or math.huge)
    end
    worst = math.max(worst, off / top)
  end
  return worst
end

--- Writes a network, reads it and returns the relative difference of the outputs. inputs: names of
-- the arrays that are inputs, the others are parameters. options: opset; keep(path, outputs,
-- arrays, inputs), called before the file is read.
function files.round_trip(symbol, arrays, states, inputs, options)
  local shapes, types, params, worst = {}, {}, {}, nil
  for name, x in pairs(arrays) do
    if inputs[name] then
      shapes[name], types[name] = x.shape, x.dtype
    else
      params[name] = x
    end
  end
  for name, x in pairs(states or {}) do
    params[name] = x
  end
  local wanted = files.run(symbol, arrays, states)
  folder.with(function(dir)
    local path = dir .. "/net.onnx"
    ty.onnx.export_model{ symbol, params, shapes, path, input_types = types,
      opset = options.opset }
    if options.keep then
      options.keep(path, wanted, arrays, inputs)
    end
    local net, own, own_states = ty.onnx.import_model{ path }
    for name in pairs(shapes) do
      own[name] = arrays[name]
    end
    worst = files.difference(wanted, files.run(net, own, own_states))
  end)
  return worst
end

--- Returns a new folder for files that ONNX Runtime will run, and keep(name), which returns the
-- option `keep` of `files.round_trip`: it copies a file with its arrays there, for onnx_check.py.
-- Without a Python the folder is nil, and keep returns nil.
function files.kept_folder()
  if not files.python() then
    return nil, function() end
  end
  local kept = os.tmpname()
  os.remove(kept)
  assert(lfs.mkdir(kept))
  return kept, function(name)
    return function(path, outputs, arrays, inputs)
      folder.write(("%s/%s.onnx"):format(kept, name), folder.read(path))
      local list = {}
      for k, y in ipairs(outputs) do
        list["o" .. k - 1] = y
      end
      for input in pairs(inputs) do
        list["i_" .. input] = arrays[input]
      end
      ty.nd.save(("%s/%s.npz"):format(kept, name), list)
    end
  end
end

return files

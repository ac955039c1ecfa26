-- Makes the objects that recorded steps of modules describe: contexts, arrays, batches, iterators,
-- metrics, initializers, optimizers, loggers, folders.

local ffi = require "ffi"
local lfs = require "lfs"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

pcall(ffi.cdef, "int setenv(const char *, const char *, int);")

local value = vectors.value
local modules = {}

--- Returns contexts from [[type, id], …].
function modules.contexts(list)
  local result = {}
  for i, pair in ipairs(list or {}) do
    result[i] = ty[pair[1]](pair[2])
  end
  return list and result
end

-- Returns group -> context or list of contexts, from group -> [type, id] or a list of these; for a
-- list of such tables a list.
function modules.groups(spec)
  local result = {}
  for group, place in pairs(spec or {}) do
    if type(group) == "number" then
      result[group] = modules.groups(place)
    elseif type(place[1]) == "string" then
      result[group] = ty[place[1]](place[2])
    else
      result[group] = modules.contexts(place)
    end
  end
  return spec and result
end

--- Returns names; nil for JSON's null.
function modules.names(list)
  if list == vectors.null then
    return ty.null
  end
  return list
end

--- Returns descriptions from [[name, shape, dtype, layout], …].
function modules.descs(list)
  local result = {}
  for i, d in ipairs(value(list) or {}) do
    result[i] = ty.io.DataDesc(d[1], d[2], d[3], d[4])
  end
  return value(list) and result
end

--- Returns the arrays of a list or a table of keys.
function modules.arrays(world, keys)
  local result = {}
  for name, key in pairs(value(keys) or {}) do
    result[name] = world.array(key)
  end
  return value(keys) and result
end

function modules.batch(world, step)
  return ty.io.DataBatch{
    data = modules.arrays(world, step.data), label = modules.arrays(world, step.label),
    bucket_key = step.bucket_key, provide_data = modules.descs(step.provide_data),
    provide_label = modules.descs(step.provide_label),
  }
end

--- Returns an iterator over arrays, without shuffling, or over sentences.
function modules.iterator(world, spec)
  if spec.sentences then
    return modules.sentences(spec)
  end
  return ty.io.NDArrayIter{ data = modules.arrays(world, spec.data),
    label = modules.arrays(world, spec.label), batch_size = spec.batch_size,
    last_batch_handle = spec.last_batch_handle }
end

function modules.metric(spec)
  if type(spec) == "table" and spec.create then
    return ty.metric.create(spec.create, spec.args or {})
  elseif type(spec) == "table" then
    local list = {}
    for i, inner in ipairs(spec) do
      list[i] = modules.metric(inner)
    end
    return ty.metric.create(list)
  end
  return ty.metric.create(spec)
end

function modules.initializer(spec)
  if spec == nil then
    return nil
  end
  return value(spec) and ty.init[spec.class](spec.args or {}) or ty.null
end

function modules.optimizer_params(spec)
  local params = {}
  for key, v in pairs(spec or {}) do
    params[key] = key == "lr_scheduler" and ty.lr_scheduler[v.class](v.args) or v
  end
  return spec and params
end

--- Returns a logger that collects the log of a training in `rows`: {train|validation, epoch, name,
-- value}.
function modules.logger()
  local log = { rows = {} }
  function log:info(text)
    local epoch, what, name, number = text:match("^Epoch%[(%d+)%] (%a+)%-(.-)=(.*)$")
    if epoch then
      self.rows[#self.rows + 1] = { what:lower(), tonumber(epoch), name, tonumber(number) }
    end
  end
  log.debug, log.warning, log.error = function() end, function() end, function() end
  return log
end

-- Runs f with TYCHO_UPDATE_ON_KVSTORE=0 if the step has this setting.
function modules.with_setting(step, f)
  if step.update_on_kvstore ~= false then
    return f()
  end
  ffi.C.setenv("TYCHO_UPDATE_ON_KVSTORE", "0", 1)
  local ok, e = pcall(f)
  ffi.C.setenv("TYCHO_UPDATE_ON_KVSTORE", "1", 1)
  if not ok then
    error(e, 0)
  end
end

--- Returns the path of the case's folder, which is made on first use.
function modules.folder(world)
  if not world.folder then
    world.folder = os.tmpname()
    os.remove(world.folder)
    assert(lfs.mkdir(world.folder))
    world.exits[#world.exits + 1] = { exit = function()
      for file in lfs.dir(world.folder) do
        os.remove(world.folder .. "/" .. file)
      end
      lfs.rmdir(world.folder)
    end }
  end
  return world.folder
end

--- Returns the files of the case's folder, sorted; parameter files with their arrays.
function modules.files(world)
  local result = { files = {} }
  for file in lfs.dir(modules.folder(world)) do
    if file ~= "." and file ~= ".." then
      result.files[#result.files + 1] = file
      result["params:" .. file] = file:find("%.params$")
        and ty.nd.load(world.folder .. "/" .. file) or nil
      if file:find("%.buckets$") then
        result["buckets:" .. file] = ty.nd.load(world.folder .. "/" .. file)[1]:totable()
      end
    end
  end
  table.sort(result.files)
  return result
end

return modules

--- The base class of layers and networks: children, parameters, names, hooks.
--
--     local Net = gluon.Block:extend("Net")
--     function Net:init(classes)
--       self.body = nn.Dense{64, activation = "relu"}
--       self.head = nn.Dense(classes)
--     end
--     function Net:forward(x)
--       return self.head(self.body(x))
--     end
--     local net = Net(10)                  -- net.prefix == "net0_"
--
-- Assigned fields go to the table `_fields` of the object, so that every assignment calls
-- `__newindex`, which registers blocks and parameters.
--
-- @classmod ty.gluon.Block

local iterate = require "tycho.core.iterate"
local next = iterate.next
local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local left_out = require "tycho.gluon.left_out"
local location = require "tycho.gluon.location"
local log = require "tycho.core.log"
local name_scope = require "tycho.gluon.name_scope"
local Parameter = require "tycho.gluon.parameter"
local ParameterDict = require "tycho.gluon.parameter_dict"
local parameter_files = require "tycho.gluon.parameter_files"
local recording = require "tycho.ndarray.recording"
local values = require "tycho.core.values"
local written = require "tycho.core.written"

local getmetatable, print, rawget, rawset, select, type =
  getmetatable, print, rawget, rawset, select, type
local is_a, is_plain = Class.is_a, values.is_plain

--- The base class of layers and networks. Read-only fields: prefix, name (the prefix without its
-- last underscore), params (a ParameterDict of the block's parameters, without those of children).
-- A class may assign any other field; assigned blocks and parameters are registered. An unknown
-- field is nil.
local Block = Class:extend("Block")


-- Making ------------------------------------------------------------------------------------------

-- Returns the options in a constructor's call: its only or last argument, if that is a plain table.
local function find_options(...)
  local last = select("#", ...) > 0 and select(-1, ...) or nil
  return is_plain(last) and last or nil
end


-- Returns the start of the automatic prefix of a new block: `_hint` of its class (a string, or a
-- function of the constructor's arguments), or the class's name in lower case.
local function find_hint(class, ...)
  local hint = class._hint
  if type(hint) == "function" then
    hint = hint(class, ...)
  end
  return hint or class.class_name:lower()
end


-- Returns the full prefix of a new block and a dictionary for its parameters.
local function make_names(prefix, params, class, ...)
  local outer = name_scope.current()
  prefix = prefix or name_scope.next_prefix(find_hint(class, ...))
  local full = (outer and outer.prefix or "") .. prefix
  if params then
    return full, ParameterDict(params.prefix, { shared = params })
  elseif outer then
    return full, ParameterDict{ prefix = outer.params.prefix .. prefix,
      shared = rawget(outer.params, "_shared") }
  end
  return full, ParameterDict(full)
end


-- Checks the options that all blocks have; returns prefix and params.
local function check_options(class, options)
  local prefix, params = options.prefix, options.params
  if prefix ~= nil and type(prefix) ~= "string" then
    Error.raise{ code = "type", func = class.class_name, argument = "prefix", expected = "text",
      got = Error.kind(prefix), message = "bad 'prefix'" }
  elseif params ~= nil and not is_a(params, ParameterDict) then
    Error.raise{ code = "type", func = class.class_name, argument = "params",
      expected = "a ParameterDict", got = Error.kind(params), message = "bad 'params'" }
  end
  return prefix, params
end


local NONE = {}

-- Serves as `__call` of classes: makes a block.
local function construct_block(class, ...)
  local options = find_options(...) or NONE
  local prefix, params = check_options(class, options)
  local full, own = make_names(prefix, params, class, ...)
  local b = setmetatable({ _fields = {}, _own = {}, _children = {}, _parents =
    setmetatable({}, { __mode = "k" }), _prefix = full, _params = own }, class)
  rawset(b, "_scope", name_scope.Scope(prefix == "" and "" or full, own))
  class._begin(b, options)
  if class.scoped == false then
    class.init(b, ...)
  else
    b._scope:with(class.init, b, ...)
  end
  return b
end


--- Returns a subclass. A call of it makes an object: `init` gets the arguments and runs in the
-- block's name scope or, if the class has the field `scoped = false`, in the current scope. A class
-- that does not define `init` has that of its base.
-- @string[opt] name of the class, by default the base's; in lower case it begins automatic prefixes
-- @treturn table class
function Block:extend(name)
  local class = Class.extend(self, name)
  getmetatable(class).__call = construct_block
  return class
end

getmetatable(Block).__call = construct_block

-- Prepares fields before `init` runs. Base classes define it, so that a user's class need not call
-- the `init` of its base.
function Block._begin()
end


--- Makes children and parameters; a subclass may define it.
-- @param ... arguments of the constructor
function Block.init(...)
end


-- Children and parameters -------------------------------------------------------------------------

-- Drops the traces of a block and of the blocks that contain it.
local function drop_traces(b)
  rawset(b, "_traces", nil)
  rawset(b, "_last_trace", nil)
  rawset(b, "_ready", nil)
  for parent in next, rawget(b, "_parents") do
    drop_traces(parent)
  end
end

-- Returns the position of the child with a name in the list; nil if there is none.
local function find_position(self, name)
  for i, child in ipairs(self._children) do
    if child.name == name then
      return i
    end
  end
end


-- Raises an error for a block that cannot be a child; subclasses may override it.
function Block._check_child()
end


-- Registers a child, in place of an earlier one with the same name.
local function put_child(self, name, block)
  self:_check_child(block)
  block._parents[self] = true
  local child = { name, block, name = name, block = block }
  self._children[find_position(self, name) or #self._children + 1] = child
  drop_traces(self)
end


-- Removes a field with a block or a parameter, which is no longer registered then.
local function remove_field(self, key)
  local position = find_position(self, key)
  if position and self._children[position].block == self._fields[key] then
    table.remove(self._children, position)
  end
  for i, own in ipairs(self._own) do
    if own.name == key then
      table.remove(self._own, i)
      break
    end
  end
  self._fields[key] = nil
  drop_traces(self)
end


local function fail_replace(self, key, old, new)
  Error.raise{ code = "type", func = self.class_name, argument = tostring(key),
    expected = is_a(old, Block) and "a block or nil" or "nil", got = Error.kind(new),
    message = ("'%s' is a registered %s and cannot become something else; set it to nil first")
      :format(tostring(key), is_a(old, Block) and "block" or "parameter") }
end


local PROPERTIES = {
  prefix = function(self) return self._prefix end,
  params = function(self) return self._params end,
  name = function(self)
    return (self._prefix:gsub("_$", ""))
  end,
}


function Block.__index(self, key)
  local v = rawget(self, "_fields")[key]
  if v ~= nil then
    return v
  end
  v = getmetatable(self)[key]
  if v == nil and PROPERTIES[key] then
    return PROPERTIES[key](self)
  end
  return v
end


function Block.__newindex(self, key, v)
  local old = self._fields[key]
  if PROPERTIES[key] then
    Error.raise{ code = "state", func = self.class_name, argument = key,
      message = ("'%s' is read-only; give it when the block is made"):format(key) }
  elseif is_a(v, Block) then
    if is_a(old, Parameter) then
      fail_replace(self, key, old, v)
    end
    put_child(self, tostring(key), v)
  elseif is_a(v, Parameter) then
    if is_a(old, Parameter) then
      Error.raise{ code = "name", func = self.class_name, argument = tostring(key),
        message = ("parameter '%s' exists already; parameters are shared by the option params")
          :format(tostring(key)) }
    elseif is_a(old, Block) then
      fail_replace(self, key, old, v)
    end
    self._own[#self._own + 1] = { name = tostring(key), param = v }
    drop_traces(self)
  elseif is_a(old, Block) or is_a(old, Parameter) then
    if v ~= nil then
      fail_replace(self, key, old, v)
    end
    remove_field(self, key)
  end
  self._fields[key] = v
end


local CHILD = args.form("Block:register_child", { { "block", Block },
  { "name", "text|number?" } })

--- Registers a child. An earlier one with the same name is replaced.
-- @tparam Block block other values are E(`type`)
-- @string[opt] name default: the number of children so far, as a string
function Block:register_child(...)
  local a = CHILD(...)
  put_child(self, a.name and tostring(a.name) or tostring(#self._children), a.block)
end


--- Returns the children in order.
-- @treturn table list of `{ name, block, name = name, block = block }`
function Block:children()
  local list = {}
  for i, child in ipairs(self._children) do
    list[i] = { child.name, child.block, name = child.name, block = child.block }
  end
  return list
end


-- Names -------------------------------------------------------------------------------------------

--- Runs f in the block's name scope: the prefixes of blocks that it makes begin with this block's.
-- @tparam[opt] function f
-- @return the results of f; without f the scope itself: `s:with(f)`, `s:enter()`, `s:exit()`
function Block:name_scope(f)
  if f == nil then
    return self._scope
  elseif not args.types["function"].check(f) then
    Error.raise{ code = "type", func = "Block:name_scope", argument = "f",
      expected = "a function", got = Error.kind(f), message = "bad 'f'" }
  end
  return self._scope:with(f)
end


-- Parameters --------------------------------------------------------------------------------------

local warned = setmetatable({}, { __mode = "k" })

-- Returns whether a plain table, or one inside it, holds a block that is not registered.
local function has_unregistered(t, registered, seen)
  seen[t] = true
  for _, member in next, t do
    if is_a(member, Block) then
      if not registered[member] then
        return true
      end
    elseif is_plain(member) and not seen[member] then
      if has_unregistered(member, registered, seen) then
        return true
      end
    end
  end
  return false
end


-- Warns of blocks in plain tables, whose parameters are not found.
local function warn_of_lists(self)
  if warned[self] then
    return
  end
  local registered = {}
  for _, child in ipairs(self._children) do
    registered[child.block] = true
  end
  for key, v in next, self._fields do
    if is_plain(v) and has_unregistered(v, registered, {}) then
      warned[self] = true
      log:warning(("%s: the blocks in the table '%s' are not registered, and their parameters \z
        not collected; use nn.Sequential, or register_child"):format(self.class_name,
        tostring(key)))
      return
    end
  end
end


-- Returns the block's own parameters: those of its dictionary, then those in fields that are not in
-- it.
local function own_parameters(self)
  local list, seen = {}, {}
  for _, p in ipairs(self._params:values()) do
    list[#list + 1], seen[p] = p, true
  end
  for _, own in ipairs(self._own) do
    if not seen[own.param] then
      list[#list + 1], seen[own.param] = own.param, true
    end
  end
  return list
end


-- Adds the parameters of a block and of its children to a dictionary. accepts: function of a name
-- that returns whether it is wanted; done: set of the blocks that were visited.
local function collect_into(self, dict, accepts, done)
  if done[self] then
    return
  end
  done[self] = true
  warn_of_lists(self)
  for _, p in ipairs(own_parameters(self)) do
    if accepts(p.name) then
      dict:_add(p)
    end
  end
  for _, child in ipairs(self._children) do
    collect_into(child.block, dict, accepts, done)
  end
end


-- Returns a function of a name that returns whether it is selected, for an argument of
-- `collect_params`.
local function make_selector(select_by)
  if select_by == nil then
    return function() return true end
  elseif type(select_by) == "function" then
    return select_by
  end
  local list = type(select_by) == "table" and select_by or { select_by }
  local fits = {}
  for i, pattern in ipairs(list) do
    if type(pattern) ~= "string" then
      Error.raise{ code = "type", func = "Block:collect_params", argument = "select",
        expected = "a regular expression, a list of them or a function", got = Error.kind(pattern),
        message = "bad 'select'" }
    elseif pattern:find("%%%a") then
      Error.raise{ code = "value", func = "Block:collect_params", argument = "select",
        got = pattern, expected = "a regular expression such as .*weight",
        message = "names are selected by regular expressions, not by Lua's patterns" }
    end
    fits[i] = require("tycho.core.regex").matcher(pattern, "Block:collect_params", "select")
  end
  return function(name)
    for _, f in ipairs(fits) do
      if f(name) then
        return true
      end
    end
    return false
  end
end


local COLLECT = args.form("Block:collect_params", { list = true, { "select", "any?" } })

--- Returns the parameters of the block and of all blocks in it: its own ones first, shared ones
-- once.
-- @param[opt] select_by a regular expression that names must match from their beginning, a list of
--   expressions of which one must match, or a function of the name that returns whether it is
--   wanted; default: all names. A Lua pattern (`%a`) is E(`value`)
-- @treturn ParameterDict
function Block:collect_params(select_by)
  if is_plain(select_by) and values.has_names(select_by) then
    select_by = COLLECT(select_by).select
  end
  local dict = ParameterDict(self._params.prefix)
  collect_into(self, dict, make_selector(select_by), {})
  return dict
end


--- Initializes all parameters. Parameters that are initialized already are not changed, with a
-- warning; those of unknown shape are initialized at the first call of their block.
-- @tparam[opt] table options init = `ty.init.Uniform()` (an initializer or its name, for parameters
--   without their own initializer), ctx = the current one (a context, or a list of contexts for a
--   copy on each), verbose = false, force_reinit = false: true initializes again
function Block:initialize(...)
  self:collect_params():initialize(...)
end


--- Sets all gradients to 0.
function Block:zero_grad()
  self:collect_params():zero_grad()
end


-- Calls -------------------------------------------------------------------------------------------

--- Computes the outputs from the inputs; a class must define it, else E(`unsupported`).
-- @param ... the inputs: arrays, or lists of them
-- @return the outputs
function Block:forward(...)
  local name = self.class_name
  local text = self.hybrid_forward
    and "class '%s' has hybrid_forward; rename it to %s:forward(x), with ty.F where it has F"
    or "class '%s' has no forward; define function %s:forward(x)"
  Error.raise{ code = "unsupported", func = name .. ":forward", message = text:format(name, name) }
end


-- Calls the hooks of a list, which may be nil. Hooks may change the list: a removed hook is not
-- called any more, an added one is called from the next call of the block on.
local function call_each(hooks, ...)
  for _, hook in ipairs(hooks and { unpack(hooks) } or NONE) do
    if not hook.is_detached then
      hook.f(...)
    end
  end
end


-- Calls the hooks that follow forward, and returns its outputs, which are the arguments from the
-- third on.
local function call_hooks(self, inputs, ...)
  call_each(rawget(self, "_hooks"), self, inputs, { ... })
  return ...
end


-- Calls the hooks that precede forward, then run(self, inputs ...), then the hooks that follow it.
local function call_hooked(self, run, ...)
  local n, inputs = select("#", ...), { ... }
  call_each(rawget(self, "_pre_hooks"), self, inputs)
  return call_hooks(self, inputs, run(self, unpack(inputs, 1, n)))
end


local call_forward = location.runner(function(self, ...)
  if recording.on then
    return location.results(location.recorded(self.forward, self, ...))
  end
  return location.results(self:forward(...))
end)

-- Runs forward. Errors find the running block by this function on the stack (gluon/location.lua).
Block._call_forward = call_forward

-- Runs the block without its hooks; classes override it.
function Block:_run(...)
  return call_forward(self, ...)
end


function Block:__call(...)
  if rawget(self, "_hooked") then
    return call_hooked(self, self._run, ...)
  end
  return self:_run(...)
end


local Handle = Class:extend("HookHandle")

function Handle:init(list, hook)
  self._list, self._hook = list, hook
end


--- Removes the hook; does nothing if it was removed before.
function Handle:detach()
  for i, hook in ipairs(self._list) do
    if hook == self._hook then
      table.remove(self._list, i)
      hook.is_detached = true
      return
    end
  end
end


local function add_hook(self, kind, f, func)
  if not args.types["function"].check(f) then
    Error.raise{ code = "type", func = self.class_name .. ":" .. func, argument = "f",
      expected = "a function", got = Error.kind(f), message = "bad 'f'" }
  end
  local list = rawget(self, kind)
  if not list then
    list = {}
    rawset(self, kind, list)
  end
  local hook = { f = f }
  list[#list + 1] = hook
  rawset(self, "_hooked", true)
  return Handle(list, hook)
end


--- Registers a function that is called before each forward.
-- @tparam function f called as f(block, inputs) with a list; forward gets the inputs as f leaves
--   them
-- @return a handle: `handle:detach()` removes the hook
function Block:register_forward_pre_hook(f)
  return add_hook(self, "_pre_hooks", f, "register_forward_pre_hook")
end


--- Registers a function that is called after each forward.
-- @tparam function f called as f(block, inputs, outputs), both lists
-- @return a handle: `handle:detach()` removes the hook
function Block:register_forward_hook(f)
  return add_hook(self, "_hooks", f, "register_forward_hook")
end


-- Files -------------------------------------------------------------------------------------------

-- Appends { name, parameter } pairs to a list and returns it. Names are those of the structure:
-- "body.0.weight". reading: whether other names that files may have for a parameter are added.
function Block:_append_named(prefix, list, reading)
  for _, own in ipairs(self._own) do
    list[#list + 1] = { prefix .. own.name, own.param }
  end
  for _, child in ipairs(self._children) do
    child.block:_append_named(prefix .. child.name .. ".", list, reading)
  end
  return list
end


local SAVE = args.form("Block:save_parameters", { { "filename", "path" },
  { "deduplicate", "boolean", false } })

--- Writes all parameters to a file, under the names of the fields that hold them: `body.0.weight`.
-- The mean over devices is written. If writing fails, the old file remains.
-- @string filename
-- @tparam[opt] table options deduplicate = false: true writes a shared parameter once, under the
--   last of its names
function Block:save_parameters(...)
  local a, list, first = SAVE(...), {}, {}
  for _, entry in ipairs(self:_append_named("", {})) do
    local seen = a.deduplicate and first[entry[2]]
    if seen then
      seen[1] = entry[1]
    else
      list[#list + 1], first[entry[2]] = entry, entry
    end
  end
  parameter_files.write(a.filename, list)
end


-- Returns { name, parameter } pairs under the names of the parameters, as in files of
-- ParameterDict:save and export: with the block's prefix or without it, whichever matches more
-- names in the file.
local function list_by_name(self, loaded, exported)
  local plain, restored, all, full = 0, 0, {}, {}
  for i, p in ipairs(self:collect_params():values()) do
    local rest = p.name:sub(1, #self._prefix) == self._prefix and p.name:sub(#self._prefix + 1)
    all[i], full[i] = { rest or p.name, p }, { p.name, p }
    restored = restored + (rest and loaded[rest] and 1 or 0)
    plain = plain + (loaded[p.name] and 1 or 0)
  end
  return (exported and plain >= restored or plain > restored) and full or all
end


local function has_dotted_name(loaded)
  for name in next, loaded do
    if name:find(".", 1, true) then
      return true
    end
  end
  return false
end


local LOAD = args.form("Block:load_parameters", parameter_files.LOAD)

--- Reads parameters that `save_parameters`, `ParameterDict:save` or `export` wrote. Parameters that
-- were not initialized get their arrays and shapes from the file. After an error nothing is
-- changed: E(`io`) and E(`format`) of the file, E(`name`) for names that only the file or only the
-- block has, E(`shape`), E(`dtype`), E(`device`).
-- @string filename
-- @tparam[opt] table options ctx (a context or a list of contexts, for parameters that were not
--   initialized), allow_missing = false, ignore_extra = false, cast_dtype = false: true converts
--   arrays of another dtype; dtype_source = "current" (to the parameter's dtype) or "saved" (the
--   parameter gets the dtype in the file)
function Block:load_parameters(...)
  local a = LOAD(...)
  local loaded, exported = parameter_files.read(a.filename, "Block:load_parameters")
  local structured = not exported and (has_dotted_name(loaded) or next(loaded) == nil)
  parameter_files.apply(a.filename, loaded, structured and self:_append_named("", {}, true)
    or list_by_name(self, loaded, exported), a, "Block:load_parameters")
end


-- All blocks --------------------------------------------------------------------------------------

local APPLY = args.form("Block:apply", { { "f", "function" } })

--- Calls f(block) for all blocks inside this one, each after its children, and last for this one.
-- @tparam function f
-- @treturn Block itself
function Block:apply(...)
  local f = APPLY(...).f
  for _, child in ipairs(self._children) do
    child.block:apply(f)
  end
  f(self)
  return self
end


local CAST = args.form("Block:cast", { { "dtype", "dtype" } })


-- Returns the dtype of one of the block's own parameters after a cast to dtype.
function Block._cast_type(_, _, dtype)
  return dtype
end


--- Converts all parameters and their gradients to another dtype.
-- @string dtype such as "float16"
function Block:cast(...)
  local dtype = CAST(...).dtype
  drop_traces(self)
  for _, child in ipairs(self._children) do
    child.block:cast(dtype)
  end
  for _, p in ipairs(own_parameters(self)) do
    p:cast(self:_cast_type(p, dtype))
  end
end


local HYBRIDIZE = args.form("Block:hybridize", { { "active", "boolean", true }, "*",
  { "static_alloc", "boolean", false }, { "static_shape", "boolean", false },
})

Block._hybridize_options = HYBRIDIZE

--- Makes the HybridBlocks inside this block trace their forward at the next call, and run the trace
-- from then on (see `HybridBlock:hybridize`).
-- @bool[opt=true] active false: forward runs again at each call
-- @tparam[opt] table options static_alloc = false (accepted, without effect), static_shape = false
function Block:hybridize(...)
  HYBRIDIZE(...)
  drop_traces(self)
  for _, child in ipairs(self._children) do
    child.block:hybridize(...)
  end
end


local OP_HOOK = args.form("Block:register_op_hook", { { "callback", "function" },
  { "monitor_all", "boolean", false } })

Block._op_hook_options = OP_HOOK

--- Registers a function that is called for the outputs of every operator of the HybridBlocks inside
-- this block, like the callback of a Monitor.
-- @tparam function f called as f(name, array), with names such as "dense0_fwd_output"
-- @tparam[opt] table options monitor_all = false: true calls f for the inputs too, under names such
--   as "dense0_fwd_weight", or "relu0_fwd_input0" if the operator does not name its inputs
function Block:register_op_hook(...)
  OP_HOOK(...)
  for _, child in ipairs(self._children) do
    child.block:register_op_hook(...)
  end
end


--- Runs the block on inputs, and prints a table of its layers with output shapes and numbers of
-- parameters. A block that is hybridized, or contains a hybridized one, is E(`state`).
-- @param ... inputs of a call
-- @treturn string the table
function Block:summary(...)
  local text = require "tycho.gluon.summary"(self, ...)
  print(text)
  written.text = text
  return text
end


--- Frees the parameters' arrays and the traces immediately, without waiting for the garbage
-- collector. Afterwards the parameters are as before `initialize`.
function Block:free()
  drop_traces(self)
  for _, p in ipairs(self:collect_params():values()) do
    p:_free()
  end
end


-- Text --------------------------------------------------------------------------------------------

-- Returns the text in parentheses in `tostring` of a block; "" lists its children.
function Block._describe()
  return ""
end


local function indent_lines(text)
  return (text:gsub("\n", "\n  "))
end


--- Returns the block as text in the reference's form: class, arguments, a line per child.
function Block:__tostring()
  local lines = {}
  for i, child in ipairs(self._children) do
    lines[i] = "  (" .. child.name .. "): " .. indent_lines(tostring(child.block))
  end
  local text = self:_describe()
  if text ~= "" then
    return self.class_name .. "(" .. text .. ")"
  end
  return self.class_name .. "(\n" .. table.concat(lines, "\n") .. "\n)"
end


left_out.add(Block, "Block", ":", {
  save = "save_parameters writes the parameters, export the network with them",
  load = "load_parameters reads what save_parameters wrote, SymbolBlock.imports what export wrote",
  save_params = "save_parameters has its place",
  load_params = "load_parameters has its place",
})



return Block

--- Information about executors: graph, program, memory, times, text.
--
-- The functions are methods of Executor (executor/executor.lua).
--
-- @module tycho.executor.query

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local attrs = require "tycho.core.attrs"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local handles = require "tycho.executor.handle"
local symbol = require "tycho.symbol.symbol"

local C, check, handle_of = native.C, native.check, handles.of

local Executor = {}                                      -- methods

local text_out = ffi.new("const char *[1]")

local function read_text(self, get, func)
  check(get(handle_of(self, func), text_out), func)
  return native.text(text_out[0])
end


--- Returns the executor's own graph, forward and backward, as text; then the planned megabytes.
function Executor:debug_str()
  return read_text(self, C.ty_exec_print, "Executor:debug_str")
end


--- Returns the instructions of the compiled graph as text: kernels, reasons, offsets, shapes.
function Executor:program()
  return read_text(self, C.ty_exec_program, "Executor:program")
end


--- Checks the memory plan by a second algorithm; two values that overlap
-- while both live are E(internal).
-- @treturn bool true
function Executor:verify()
  check(C.ty_exec_verify(handle_of(self, "Executor:verify")), "Executor:verify")
  return true
end


--- Returns the forward graph as it is run: equal subgraphs merged. Binds like any symbol.
-- @treturn Symbol
function Executor:get_optimized_symbol()
  local func, out = "Executor:get_optimized_symbol", ffi.new("ty_graph *[1]")
  check(C.ty_exec_optimized(handle_of(self, func), out), func)
  local graph = native.own(out[0], C.ty_graph_free)
  local heads, n = ffi.new("const ty_entry *[1]"), ffi.new("int[1]")
  check(C.ty_graph_heads(graph, heads, n), func)
  check(C.ty_graph_text(graph, heads[0], n[0], text_out), func)
  return symbol.load_json(native.text(text_out[0]))
end


-- Returns the operators of the nodes by name, as debug_str lists them.
local function operators(self)
  local ops = {}
  for op, name in self:debug_str():gmatch("\nOp:(.-), Name=([^\n]*)") do
    ops[name] = op
  end
  return ops
end


-- Returns every planned value: its position and its lifetime (instruction numbers).
local function planned_values(self)
  local v, list, ops = ffi.new("ty_value"), {}, operators(self)
  while C.ty_exec_value(self.handle, #list, v) == 0 do
    local node = native.text(v.node)
    list[#list + 1] = {
      name = native.text(v.name), node = node, op = ops[node], bytes = tonumber(v.bytes),
      offset = tonumber(v.offset), first = v.first, last = v.last,
      device = tostring(context.of_device(v.device)), alias_of = v.alias >= 0 and v.alias or nil,
    }
  end
  return list
end


-- Returns planned bytes per device.
local function device_bytes(self, list)
  local bytes = { [tostring(self._ctx)] = 0 }
  for _, v in ipairs(list) do
    bytes[v.device] = math.max(bytes[v.device] or 0, v.offset + v.bytes)
  end
  return bytes
end


-- `values` and `devices` need a pass over the plan, so they are computed on access.
local Memory, planner = {}, setmetatable({}, { __mode = "k" })

function Memory.__index(m, key)
  if key == "values" then
    rawset(m, "values", planned_values(planner[m]))
  elseif key == "devices" then
    rawset(m, "devices", device_bytes(planner[m], m.values))
  end
  return rawget(m, key)
end


function Memory.__tostring(m)
  local parts = {}
  for i, key in ipairs(attrs.keys(m)) do
    parts[i] = type(m[key]) == "number" and ("%s = %.14g"):format(key, m[key])
      or key .. " = {...}"
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end


--- Returns the memory of the executor, in bytes: planned, lower_bound, ratio (planned /
-- lower_bound), unshared, args, grads, aux, outputs, pool (of all executors that share it), devices
-- (planned bytes by device), values (each value's offset and lifetime).
function Executor:memory()
  local m = ffi.new("ty_memory")
  check(C.ty_exec_memory(handle_of(self, "Executor:memory"), m), "Executor:memory")
  local planned, bound = tonumber(m.planned), tonumber(m.bound)
  local t = setmetatable({
    planned = planned, lower_bound = bound, ratio = bound > 0 and planned / bound or 1,
    unshared = tonumber(m.unshared), args = tonumber(m.args), grads = tonumber(m.grads),
    aux = tonumber(m.aux), outputs = tonumber(m.outputs), pool = tonumber(m.pool),
  }, Memory)
  planner[t] = self
  return t
end


--- Returns counters: allocations (0 after the first run), instructions, segments, runs, ns
-- (nanoseconds, with `profile`).
function Executor:stats()
  local s = ffi.new("ty_stats")
  check(C.ty_exec_stats(handle_of(self, "Executor:stats"), s), "Executor:stats")
  return { allocations = tonumber(s.allocations), instructions = tonumber(s.instructions),
    segments = tonumber(s.segments),
    runs = tonumber(s.runs), ns = tonumber(s.ns) }
end


--- Returns the times of the last run's instructions, for which it waits: a list of `{op, node,
-- bytes, ns}`. The first call switches timing on. On a GPU ns is how long it worked on the
-- instruction, 0 if the GPU does not report it.
function Executor:profile()
  local handle, func = handle_of(self, "Executor:profile"), "Executor:profile"
  local n = ffi.new("int[1]")
  check(C.ty_exec_profile(handle, nil, n), func)
  local samples, list = ffi.new("ty_sample[?]", n[0] + 1), {}
  check(C.ty_exec_profile(handle, samples, n), func)
  for i = 0, n[0] - 1 do
    local s = samples[i]
    list[i + 1] = { op = native.text(s.op), node = native.text(s.node),
      bytes = tonumber(s.bytes), ns = tonumber(s.ns) }
  end
  return list
end


local function describe(lines, title, names, list)
  lines[#lines + 1] = "  " .. title
  for i, name in ipairs(names) do
    if i > 12 then
      lines[#lines + 1] = ("    ... %d in all"):format(#names)
      break
    end
    lines[#lines + 1] = ("    %-24s %s")
      :format(name, class.is_array(list[i]) and list[i]:summary() or "-")
  end
end


--- Returns a summary of the executor as text: outputs, arguments, planned bytes, instructions.
function Executor.__tostring(self)
  if not rawget(self, "_handle") then
    return "<Executor freed>"
  end
  local lines, m, s = { "<Executor of " .. tostring(self._symbol) }, self:memory(), self:stats()
  describe(lines, "outputs", self._names.outputs, self.outputs)
  describe(lines, "arguments", self._names.arguments, self.arg_arrays)
  lines[#lines + 1] = ("  %d bytes planned, %d instructions in %d segments on %s"):format(
    m.planned, s.instructions, s.segments, tostring(self._ctx))
  return table.concat(lines, "\n") .. ">"
end


return Executor

--- Groups of ranks that run one script: processes over MPI, or ranks of one process for tests.
--
--     local group = comm.world()            -- this process's rank among those that mpirun started
--     group:sum({ x, y })                   -- in place, in the order of ranks; queued
--     local texts = group:gather("hello from " .. group.rank)
--
-- All ranks make the same calls in the same order. Ranks count from 0, as MPI's do.
--
-- @module tycho.kvstore.comm

local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local ffi = require "ffi"
local gc = require "tycho.core.gc"
local native = require "tycho.core.ffi"

local C, check = native.C, native.check

local comm = {}

local handles = ffi.typeof("ty_tensor *[?]")
local WIRES = { float16 = C.TY_WIRE_F16, bfloat16 = C.TY_WIRE_BF16, ["2bit"] = C.TY_WIRE_2BIT }
local LIMIT = 2 ^ 20                                     -- bytes that one gathering takes of a rank


--- One rank's membership. Fields: rank, size, context (whose queue is the rank's alone).
-- @type Group
local Group = Class:extend("Group")

function Group:init(pointer, ctx)
  self._h, self.context = native.own(pointer, C.ty_comm_free), ctx
  self.rank, self.size = C.ty_comm_rank(pointer), C.ty_comm_size(pointer)
end


local function make_handles(arrays)
  local list = handles(#arrays)
  for i, x in ipairs(arrays) do
    list[i - 1] = x._h
  end
  return list
end


--- Adds arrays over the ranks, as one message.
-- @tparam {NDArray,...} arrays of one dtype, on a CPU
-- @tparam[opt] table options out = arrays: where the sums go, arrays like these; wire = "float16",
--   "bfloat16" or "2bit": what float32 is sent as; threshold: what two bits stand for, with
--   either sign; priority = 0: of sums that wait for another one, the highest goes first
function Group:sum(arrays, options)
  local o = options or {}
  check(C.ty_comm_sum(self._h, make_handles(arrays), make_handles(o.out or arrays), #arrays,
    WIRES[o.wire] or C.TY_WIRE_FULL, o.threshold or 0, o.priority or 0), "Group:sum")
end


--- Gives all ranks the arrays of one.
-- @tparam {NDArray,...} arrays of one dtype, on a CPU
-- @int[opt=0] root the rank
function Group:broadcast(arrays, root)
  check(C.ty_comm_broadcast(self._h, make_handles(arrays), #arrays, root or 0), "Group:broadcast")
end


-- Returns the texts of all ranks, which have one length, and that length.
local function gather_equal(self, text)
  local n = #text
  local all = ffi.new("char[?]", math.max(n * self.size, 1))
  check(C.ty_comm_gather(self._h, text, n, all), "Group:gather")
  return all, n
end


--- Returns a text of each rank; waits.
-- @string text
-- @treturn {string,...} the first is rank 0's
function Group:gather(text)
  local lengths = gather_equal(self, ("%016d"):format(#text))
  local list, longest, sizes = {}, 0, {}
  for r = 1, self.size do
    sizes[r], list[r] = tonumber(ffi.string(lengths + 16 * (r - 1), 16)), {}
    longest = math.max(longest, sizes[r])
  end
  text = text .. ("\0"):rep(longest - #text)
  for from = 1, longest, LIMIT do
    local all, n = gather_equal(self, text:sub(from, from + LIMIT - 1))
    for r = 1, self.size do
      table.insert(list[r], ffi.string(all + n * (r - 1), n))
    end
  end
  for r = 1, self.size do
    list[r] = table.concat(list[r]):sub(1, sizes[r])
  end
  return list
end


--- Waits for all ranks.
function Group:barrier()
  check(C.ty_comm_gather(self._h, nil, 0, nil), "Group:barrier")
end


--- Ends all ranks.
-- @string[opt] text why, in words
function Group:abort(text)
  check(C.ty_comm_abort(self._h, text), "Group:abort")
end


--- Returns what was sent so far: `{messages, bytes, seconds}`.
function Group:stats()
  local n = ffi.new("int64_t[3]")
  check(C.ty_comm_stats(self._h, n, n + 1, n + 2), "Group:stats")
  return { messages = tonumber(n[0]), bytes = tonumber(n[1]), seconds = tonumber(n[2]) / 1e9 }
end


-- What launchers tell the processes that they start: OpenMPI, MPICH and Intel, PMIx, Slurm.
local TOLD = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID" }

--- Returns whether a launcher of MPI started this process.
function comm.is_launched()
  for _, name in ipairs(TOLD) do
    if os.getenv(name) then
      return true
    end
  end
  return false
end


local world

--- Returns the group of all processes that `mpirun` or its like started; alone, a group of one.
-- Raises E(device) without MPI.
function comm.world()
  if not world then
    local out = ffi.new("ty_comm *[1]")
    check(C.ty_comm_open("mpi", 1, out), "comm.world")
    world = Group(out[0], context.cpu(0))
  end
  return world
end


--- Returns ranks of this process: for tests. Each works on arrays of its own context, `cpu(1)` and
-- so on, since work that waits for another rank holds up what comes after it in its queue.
-- @int size 1 to 16
-- @treturn {Group,...}
function comm.group(size)
  local out = ffi.new("ty_comm *[?]", math.max(size, 1))
  local code = C.ty_comm_open("threads", size, out)
  if code == C.TY_EDEVICE then
    gc.release()                                         -- groups that are not referenced any more
    code = C.ty_comm_open("threads", size, out)
  end
  check(code, "comm.group")
  local list = {}
  for r = 1, size do
    list[r] = Group(out[r - 1], context.cpu(r))
  end
  return list
end


--- Checks that arrays can be added over GPUs; E(device) says what is missing.
-- @treturn string the version of NCCL
function comm.check_devices()
  local text = ffi.new("char[256]")
  check(C.ty_comm_devices(text, 256), "comm.check_devices")
  return ffi.string(text)
end


--- Returns a group whose ranks are GPUs of this process, by NCCL; with `ranks`, the GPUs of all its
-- processes, each of which must call this. Arrays of a call are lists per array over these
-- contexts: `{a0, a1, b0, b1}` for two. A failure ends the group.
-- @tparam {Context,...} contexts GPUs, each once
-- @tparam[opt] Group ranks the processes
function comm.devices(contexts, ranks)
  local list, out = ffi.new("int[?]", #contexts), ffi.new("ty_comm *[1]")
  for i, ctx in ipairs(contexts) do
    list[i - 1] = ctx._device
  end
  check(C.ty_comm_open_devices(list, #contexts, ranks and ranks._h, out), "comm.devices")
  return Group(out[0], contexts[1])
end


--- Sets the text about the last checkpoint that a rank writes when it is asked to end.
-- @string text
function comm.note(text)
  C.ty_comm_note(text)
end


return comm

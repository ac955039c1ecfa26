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
local LIMIT = 2 ^ 20                                     -- largest bytes per rank of one gather


--- A group from the view of one rank. Fields: rank (from 0), size, context (the rank's own queue).
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
-- @tparam[opt] table options out: arrays for the sums, like `arrays`; wire = "float16",
--   "bfloat16" or "2bit": the type in which float32 is sent; threshold: the absolute value of
--   elements sent as two bits; priority = 0: of waiting sums, the one with the highest is sent next
function Group:sum(arrays, options)
  local o = options or {}
  check(C.ty_comm_sum(self._h, make_handles(arrays), make_handles(o.out or arrays), #arrays,
    WIRES[o.wire] or C.TY_WIRE_FULL, o.threshold or 0, o.priority or 0), "Group:sum")
end


--- Copies the arrays of one rank to all ranks.
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


--- Returns the texts of all ranks; waits.
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


--- Ends the processes of all ranks.
-- @string[opt] text the reason
function Group:abort(text)
  check(C.ty_comm_abort(self._h, text), "Group:abort")
end


--- Returns the totals of sent messages: `{messages, bytes, seconds}`.
function Group:stats()
  local n = ffi.new("int64_t[3]")
  check(C.ty_comm_stats(self._h, n, n + 1, n + 2), "Group:stats")
  return { messages = tonumber(n[0]), bytes = tonumber(n[1]), seconds = tonumber(n[2]) / 1e9 }
end


-- Variables that launchers set for their processes: OpenMPI, MPICH and Intel, PMIx, Slurm.
local RANK_VARIABLES = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID" }

--- Returns whether a launcher of MPI started this process.
function comm.is_launched()
  for _, name in ipairs(RANK_VARIABLES) do
    if os.getenv(name) then
      return true
    end
  end
  return false
end


local world

--- Returns the group of all processes that a launcher such as `mpirun` started; without one a group
-- of one. Raises E(device) without MPI.
function comm.world()
  if not world then
    local out = ffi.new("ty_comm *[1]")
    check(C.ty_comm_open("mpi", 1, out), "comm.world")
    world = Group(out[0], context.cpu(0))
  end
  return world
end


--- Returns ranks within this process, for tests. Each rank uses a different context, `cpu(1)` and
-- so on, since work that waits for another rank blocks later work of its queue.
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
-- processes, each of which must call this. The arrays of a call are listed by array, then by
-- context: `{a0, a1, b0, b1}` for two of each. A failure ends the group.
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


--- Sets the text about the last checkpoint that a rank prints when it is ended.
-- @string text
function comm.note(text)
  C.ty_comm_note(text)
end


return comm

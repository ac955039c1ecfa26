-- The rooms of both houses, floor by floor from the ground up. A file may use its own room and the
-- floors below; rooms of one floor may not use each other, and none may use rooms above it.
--
-- Fields of a room: `name`, that of its folder; `is`, its description for the picture; `at`, its
-- place in the picture: left edge and width in twelfths of the house; `path`, a pattern of its
-- files' paths, if they are not in a folder of this name. For rooms of C also `public`, the headers
-- that others may include, all others being private; `only`, the rooms that it may use, if these
-- are fewer than all below.

local rooms = {}

-- The interface of the native library: every file may include it, and the Lua house may use nothing
-- else of C.
rooms.interface = {
  name = "tycho.h", path = "native/tycho%.h$", is = "the functions of the library",
}

rooms.native = { title = "native", {
  { name = "base", is = "memory, errors, text, threads, files",
    public = { "atomic_file.h", "base.h", "cast.h", "convert.h", "cpu.h", "dtype.h", "env.h",
      "error.h", "failure.h", "file_kind.h", "interrupt.h", "intrinsics.h", "json.h", "laws.h",
      "memory.h", "names.h", "number.h",
      "parallel.h", "philox.h", "precision.h", "stop.h", "stream_copy.h", "system.h", "text.h",
      "vmath.h",
      "whole_file.h" } },
}, {
  { name = "device", is = "processors, queues, storage",
    public = { "collective.h", "device.h", "order.h", "platform.h", "pool.h", "profile.h",
      "queue.h",
      "timing.h" } },
}, {
  { name = "tensor", is = "dense arrays and their files", public = { "tensor.h" } },
}, {
  { name = "kernel", is = "loops over operands, for each instruction set", at = { 0, 9 },
    public = { "attention.h", "blocked.h", "conv/conv.h", "conv/onednn.h",
      "conv/winograd.h", "element/boxes.h", "element/choice.h", "element/corners.h",
      "element/deform.h", "element/density.h", "element/entropy.h", "element/hawkes.h",
      "element/levels.h", "element/proposal.h", "element/regions.h", "element/resample.h",
      "epilogue.h", "gemm/attend.h", "gemm/gemm.h", "gemm/levels.h", "grain.h", "kernel.h",
      "lapack.h", "onednn.h",
      "primitives.h", "reduce/reduce.h", "strided_copy.h", "variates.h", "vec/cell.h", "vec/norm.h",
      "vec/pool.h", "vec/sampler.h", "vec/softmax.h", "vec/update.h", "vec/vec.h" } },
}, {
  { name = "pointwise", is = "formulas, fused into one loop", at = { 0, 9 },
    public = { "ir.h", "pointwise.h" } },
}, {
  { name = "op", is = "what an operator is: contract, registry, dispatch", at = { 0, 9 },
    public = { "dispatch.h", "formula.h", "infer.h", "op.h", "param.h", "registry.h",
      "signature.h" } },
  { name = "image", is = "pixels, codecs", at = { 9, 3 },
    only = { base = true, device = true, tensor = true },
    public = { "codec.h", "image.h", "pixel.h", "taps.h" } },
}, {
  { name = "imperative", is = "calls at once", at = { 0, 2.6 },
    public = { "call_cache.h", "imperative.h" } },
  { name = "graph", is = "networks, files", at = { 2.6, 2.6 }, public = { "graph.h" } },
  { name = "cuda", is = "GPUs", at = { 8.6, 1.2 },
    only = { base = true, device = true, tensor = true, kernel = true, image = true,
      pointwise = true, op = true }, public = {} },
  { name = "operators", is = "all operators, by topic", at = { 5.2, 3.4 },
    public = { "control/subgraphs.h", "loss/softmax_loss.h" } },
  { name = "io", is = "batches", at = { 9.8, 2.2 },
    only = { base = true, device = true, tensor = true, image = true }, public = {} },
}, {
  { name = "pass", is = "from a graph to a program", at = { 2.6, 7.2 },
    public = { "control_flow.h", "extract.h", "gradient.h", "program.h", "rewrite.h" } },
}, {
  { name = "exec", is = "programs, bound to arrays and run", at = { 2.6, 5.4 },
    public = { "exec.h" } },
  { name = "comm", is = "sums over hosts", at = { 8.2, 1.6 },
    only = { base = true, device = true, tensor = true }, public = {} },
}, {
  { name = "lazy", is = "recorded calls, their gradients", at = { 0, 8 }, public = {} },
}, {
  { name = "program", path = "runtime/[^/]*$", is = "host of Lua", at = { 0, 2.6 },
    only = {}, public = {} },
} }

rooms.lua = { title = "runtime/lua/tycho", {
  { name = "core", is = "the library's binding, classes, arguments, errors" },
}, {
  { name = "op", is = "the registry of operators" },
}, {
  { name = "ndarray", is = "arrays, imperative calls" },
}, {
  { name = "symbol", is = "networks as graphs", at = { 0, 6.2 } },
}, {
  { name = "executor", is = "bound networks", at = { 0, 6.2 } },
  { name = "autograd", is = "recorded calls, their gradients", at = { 6.2, 5.8 } },
}, {
  { name = "viz", is = "drawings", at = { 0, 1.8 } },
  { name = "optimizer", is = "update rules", at = { 1.8, 2.2 } },
  { name = "tensorboard", is = "event files", at = { 4, 2.4 } },
  { name = "contrib", is = "int8, mixed precision", at = { 4.2, 2.4 } },
}, {
  { name = "kvstore", is = "over devices", at = { 1.8, 2.4 } },
  { name = "model", is = "checkpoints", at = { 4.2, 2 } },
  { name = "metric", is = "scores", at = { 6.2, 1.6 } },
  { name = "initializer", is = "first weights", at = { 7.8, 2.1 } },
  { name = "io", is = "batches", at = { 9.9, 2.1 } },
}, {
  { name = "torch7", is = "Torch7's networks", at = { 0, 1.8 } },
  { name = "module", is = "training", at = { 1.8, 5 } },
  { name = "rnn", is = "recurrent cells", at = { 6.8, 2.3 } },
  { name = "test", is = "for tests", at = { 9.1, 1.4 } },
  { name = "image", is = "pictures", at = { 10.5, 1.5 } },
}, {
  { name = "onnx", is = "networks of others", at = { 1.8, 5 } },
  { name = "gluon", is = "layers, networks as objects", at = { 1.8, 8 } },
}, {
  { name = "tycho", path = "runtime/lua/tycho/[^/]*$", is = "what users require" },
}, {
  { name = "prompt", is = "the interactive prompt", at = { 0, 7.5 } },
  { name = "models", is = "files of models, converted and run", at = { 7.5, 4.5 } },
} }

rooms.houses = { rooms.lua, rooms.native }

local all = { rooms.interface }

for _, house in ipairs(rooms.houses) do
  for floor, list in ipairs(house) do
    for _, room in ipairs(list) do
      room.house, room.floor = house, floor
      room.path = room.path or house.title .. "/" .. room.name .. "/"
      all[#all + 1] = room
    end
  end
end

-- Returns the room of a file; nil if there is none.
function rooms.of(path)
  for _, room in ipairs(all) do
    if path:find("^" .. room.path) then
      return room
    end
  end
end

-- Calls f(room) for the rooms of both houses, lowest first.
function rooms.each(f)
  for i = 2, #all do
    f(all[i])
  end
end

return rooms

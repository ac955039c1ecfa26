-- The rooms of both houses, floor by floor from the ground up. What stands in a room knows its own
-- room and the floors below; rooms of one floor do not know each other, and nobody knows what is
-- above him.
--
-- A room: `path` = how the paths of its files begin, a pattern; `is` = what it is, for the picture;
-- `at` = where on its floor the picture has it: left edge and width in twelfths of the house. Of
-- rooms of C, `public` = the headers that others may include, the rest is private; `only` = the
-- rooms it knows, where these are fewer than all below.

local rooms = {}

-- The interface of the native library: everybody may include it, and the house of Lua knows nothing
-- else of C.
rooms.interface = { name = "tycho.h", path = "native/tycho%.h$",
  is = "the functions of the library" }

rooms.native = { title = "native", {
  { name = "base", path = "native/base/", is = "memory, errors, text, threads, files",
    public = { "base.h", "json.h", "parallel.h", "atomic_file.h", "philox.h", "stream_copy.h",
      "vmath.h", "convert.h", "dtype.h", "cast.h", "cpu.h", "env.h", "error.h", "interrupt.h",
      "memory.h", "text.h" } },
}, {
  { name = "device", path = "native/device/", is = "processors, queues, storage",
    public = { "device.h", "queue.h", "pool.h", "profile.h" } },
}, {
  { name = "tensor", path = "native/tensor/", is = "dense arrays and their files",
    public = { "tensor.h" } },
}, {
  { name = "kernel", path = "native/kernel/", is = "loops over operands, for each instruction set",
    at = { 0, 9 }, public = {
      "kernel.h", "blocked.h", "gemm/gemm.h", "conv/conv.h", "conv/winograd.h", "conv/onednn.h",
      "conv/onednn_weight.h", "onednn.h", "vec/vec.h", "reduce/reduce.h", "lapack.h",
      "strided_copy.h", "variates.h",
    } },
}, {
  { name = "pointwise", path = "native/pointwise/", is = "formulas, fused into one loop",
    at = { 0, 9 }, public = { "pointwise.h", "ir.h" } },
}, {
  { name = "op", path = "native/op/", is = "what an operator is: contract, registry, dispatch",
    at = { 0, 9 },
    public = { "op.h", "param.h", "infer.h", "formula.h", "registry.h", "dispatch.h" } },
  { name = "image", path = "native/image/", is = "pixels, codecs", at = { 9, 3 },
    only = { base = true, device = true, tensor = true }, public = { "image.h", "codec.h" } },
}, {
  { name = "imperative", path = "native/imperative/", is = "one call at once", at = { 0, 2.6 },
    public = {} },
  { name = "graph", path = "native/graph/", is = "nodes, symbol files", at = { 2.6, 2.6 },
    public = { "graph.h" } },
  { name = "operators", path = "native/operators/", is = "all operators, by topic",
    at = { 5.2, 4.6 }, public = { "loss/softmax_loss.h", "control/subgraphs.h" } },
  { name = "io", path = "native/io/", is = "readers, batches", at = { 9.8, 2.2 },
    only = { base = true, device = true, tensor = true, image = true }, public = {} },
}, {
  { name = "pass", path = "native/pass/", is = "from a graph to a program", at = { 2.6, 7.2 },
    public = { "program.h", "gradient.h", "control_flow.h", "device_placement.h", "extract.h" } },
}, {
  { name = "exec", path = "native/exec/", is = "programs, bound to arrays and run",
    at = { 2.6, 7.2 }, public = {} },
}, {
  { name = "program", path = "runtime/[^/]*$", is = "the program tycho", at = { 0, 2.6 }, only = {},
    public = {} },
} }

rooms.lua = { title = "runtime/lua/tycho", {
  { name = "core", is = "the library's binding, classes, arguments, errors" },
}, {
  { name = "op", is = "the registry of operators" },
}, {
  { name = "ndarray", is = "arrays, imperative calls" },
}, {
  { name = "symbol", is = "networks as graphs", at = { 0, 6 } },
}, {
  { name = "executor", is = "bound networks", at = { 0, 3.9 } },
  { name = "model", is = "checkpoints", at = { 3.9, 2.1 } },
}, {
  { name = "optimizer", is = "update rules", at = { 1.2, 2.7 } },
}, {
  { name = "kvstore", is = "sums over devices", at = { 1.2, 2.7 } },
  { name = "initializer", is = "first weights", at = { 6, 2.2 } },
  { name = "metric", is = "scores", at = { 8.2, 1.7 } },
  { name = "io", is = "batches", at = { 9.9, 2.1 } },
}, {
  { name = "module", is = "training", at = { 1.2, 9.2 } },
  { name = "image", is = "pictures", at = { 10.4, 1.6 } },
}, {
  { name = "viz", is = "drawings of networks", at = { 0, 3.6 } },
  { name = "rnn", is = "recurrent cells", at = { 3.6, 3.3 } },
  { name = "test", is = "help for tests", at = { 6.9, 3.3 } },
}, {
  { name = "tycho", path = "[^/]*$", is = "what users require" },
}, {
  { name = "prompt", is = "the interactive prompt" },
} }

for _, floor in ipairs(rooms.lua) do
  for _, room in ipairs(floor) do
    room.path = "runtime/lua/tycho/" .. (room.path or room.name .. "/")
  end
end

rooms.houses = { rooms.lua, rooms.native }

local all = { rooms.interface }

for _, house in ipairs(rooms.houses) do
  for floor, list in ipairs(house) do
    for _, room in ipairs(list) do
      room.house, room.floor = house, floor
      all[#all + 1] = room
    end
  end
end

-- The room of a file, or nil.
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

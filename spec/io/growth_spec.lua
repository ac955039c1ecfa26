-- What readers take grows with the file: four times the bytes in at most ten times the processor's
-- time (the least of three tries), and 64 MiB and four times the file's size of memory. Memory is
-- address space, which is limited to that while the file is read: what a header claims counts.

local ffi = require "ffi"
local device = require "spec.support.device"
local folder = require "spec.support.folder"
local formats = require "spec.support.formats"
local pytorch = require "spec.support.pytorch"
local ty = require "tycho"

local TRIES, MOST = 3, 10
local BASE, TIMES = 64 * 2 ^ 20, 4

ffi.cdef[[
struct growth_rlimit { unsigned long now, most; };
int getrlimit(int what, struct growth_rlimit *limit);
int setrlimit(int what, const struct growth_rlimit *limit);
int malloc_trim(size_t pad);
]]

local function seconds(format, path)
  local least = math.huge
  for _ = 1, TRIES do
    collectgarbage()
    local from = os.clock()
    format.read(path)
    least = math.min(least, os.clock() - from)
  end
  return least
end

local function used()
  local file = assert(io.open("/proc/self/statm"))
  local pages = file:read("*n")
  file:close()
  return pages * 4096
end

-- Calls f() while the process may not grow by more than so many bytes.
local function within(bytes, f)
  local ADDRESS_SPACE = 9
  local limit = ffi.new("struct growth_rlimit")
  collectgarbage()
  ty.nd.waitall()
  ffi.C.malloc_trim(0)
  assert(ffi.C.getrlimit(ADDRESS_SPACE, limit) == 0)
  local before = limit.now
  limit.now = used() + bytes
  assert(ffi.C.setrlimit(ADDRESS_SPACE, limit) == 0)
  local ok, e = pcall(f)
  limit.now = before
  assert(ffi.C.setrlimit(ADDRESS_SPACE, limit) == 0)
  return ok, e
end

-- Asserts that a file is read within a bound on memory. `least`: of bytes that the file has.
local function holds(format, least)
  folder.with(function(path)
    local small, file = path .. "/small." .. format.name, path .. "/a." .. format.name
    format.write(small, format.size)
    format.read(small)                                   -- threads and modules are there then
    format.write(file, format.size * math.ceil(least / #folder.read(small)))
    local bytes = BASE + TIMES * #folder.read(file)
    local ok, e = within(bytes, function() format.read(file) end)
    assert.is_true(ok, tostring(e))
  end)
end

-- Graphs that cost more by the byte than those that engines write, and one of these: { what, bytes
-- beside four times the text, function(n) } -> text. 64 MiB would hide what small ones take.
local function joined(n, entry)
  local before, rest = entry:match "^(.-)#(.*)$"
  if not before then
    return (entry .. ","):rep(n - 1) .. entry
  end
  local list = {}
  for i = 0, n - 1 do
    list[i + 1] = i
  end
  return before .. table.concat(list, rest .. "," .. before) .. rest
end

local function graph_text(nodes, heads)
  return ('{"nodes":[%s],"arg_nodes":[],"heads":[%s],"attrs":{"mxnet_version":["",10901]}}')
    :format(nodes, heads)
end

local VARIABLE = '{"op":"null","name":"","inputs":[]}'
local MINIMAL = '{"op":"abs","name":"","inputs":[[#,%s]]}'
local GRAPHS = {
  { "a group as it is written", 2 ^ 21, function(n)
    local variable = '\n    {\n      "op": "null", \n      "name": "w#", \n      "inputs": []\n    }'
    return graph_text(joined(n, variable), joined(n, "\n    [#, 0, 0]"))
  end },
  { "a chain of the shortest nodes", 2 ^ 21, function(n)
    return graph_text(VARIABLE .. "," .. joined(n, MINIMAL:format "0"), ("[%d,0]"):format(n))
  end },
  { "one with versions of its own", 2 ^ 21, function(n)
    return graph_text(VARIABLE .. "," .. joined(n, MINIMAL:format "0,5"), ("[%d,0]"):format(n))
  end },
  { "an old one", 2 ^ 21, function(n)
    return (graph_text(VARIABLE .. "," .. joined(n, MINIMAL:format "0"), ("[%d,0]"):format(n))
      :gsub(',"attrs".*', "}"))
  end },
  { "one operator of the shortest inputs", 2 ^ 23, function(n)
    return graph_text(joined(n, VARIABLE) .. ',{"op":"add_n","name":"","inputs":['
      .. joined(n, "[#,0]") .. "]}", ("[%d,0]"):format(n))
  end },
  { "one input over and over", 2 ^ 23, function(n)
    return graph_text(VARIABLE .. ',{"op":"add_n","name":"","inputs":[' .. joined(n, "[0,0]") .. "]}",
      "[1,0]")
  end },
  { "a group of the shortest variables", 2 ^ 24, function(n)
    return graph_text(joined(n, VARIABLE), joined(n, "[#,0]"))
  end },
  { "heads alone", BASE, function(n)
    return graph_text(VARIABLE, joined(math.min(n, 400000), "[0,0]"))
  end },
}

local function holds_graph(graph, n, base)
  folder.with(function(path)
    local small, file = path .. "/small.json", path .. "/a.json"
    folder.write(small, graph[3](20))
    ty.sym.load(small)
    folder.write(file, graph[3](n))
    local ok, e = within(base + TIMES * #folder.read(file), function() ty.sym.load(file) end)
    assert.is_true(ok, tostring(e))
  end)
end

-- Heads that promise more than follows.
local CLAIMS = {
  { "npy", "\147NUMPY\1\0\70\0{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000,), }"
    .. (" "):rep(5) .. "\n" },
  { "safetensors", "\70\0\0\0\0\0\0\0"
    .. '{"x":{"dtype":"F32","shape":[4000000000],"data_offsets":[0,16000000000]}}' },
  { "gguf", "GGUF\3\0\0\0" .. "\1\0\0\0\0\0\0\0" .. ("\0"):rep(8) .. "\1\0\0\0\0\0\0\0x"
    .. "\1\0\0\0" .. "\0\0\0\0\1\0\0\0" .. "\0\0\0\0" .. ("\0"):rep(8) .. ("\0"):rep(32) },
  { "t7", "\4\0\0\0\1\0\0\0\3\0\0\0V 1\18\0\0\0torch.FloatStorage" .. "\0\0\0\0\1\0\0\0" },
  { "pt", pytorch.older{ { "x", pytorch.tensor{ class = "FloatStorage", n = 2 ^ 31 - 1,
    size = { 2 ^ 31 - 1 }, stride = { 1 } } }, storages = { { "0", 2 ^ 31 - 1, "" } } } },
  { "boxes", "\10\35\215\206" .. "\24\0\0\0" .. "\0\0\16\0" .. ("\0"):rep(20) },
  { "idx", "\0\0\8\3" .. formats.word(2 ^ 24) .. formats.word(28) .. formats.word(28) },
  { "png", "\137PNG\r\n\26\n" .. formats.word(13) .. "IHDR" .. formats.word(30000) .. formats.word(30000) .. "\8\2\0\0\0" },
}

-- address space is limited here, of which a GPU reserves much
describe("the memory of reading", function()
  setup(device.leave)
  teardown(device.come_back)

  if (os.getenv("SANITIZER") or "") ~= "" then
    it("stays below a limit", function() pending("no limit of address space under a sanitizer") end)
    return
  end

  it("would be noticed", function()
    local ok, e = within(BASE, function() return ty.nd.ones{ 2 ^ 28 } end)
    assert.is_false(ok)
    assert.equal("memory", e.code)
  end)

  for _, claim in ipairs(CLAIMS) do
    it("is not what a head claims: " .. claim[1], function()
      folder.with(function(path)
        local file = path .. "/a." .. claim[1]
        folder.write(file, claim[2])
        folder.write(file .. ".labels", "\0\0\8\1" .. formats.word(2 ^ 24))
        local ok, e = within(BASE, function() formats.called(claim[1]).read(file) end)
        assert.is_false(ok)
        assert.equal("format", e.code, tostring(e))
      end)
    end)
  end

  for _, format in ipairs(formats) do
    it("is 64 MiB and four times the file at most: " .. format.name, function()
      holds(format, 2 ^ 17)
    end)
    it("is that of a large file too: " .. format.name .. " #slow", function()
      holds(format, format.large or 2 ^ 23)
    end)
  end
end)

describe("the memory of reading a graph", function()
  setup(device.leave)
  teardown(device.come_back)

  if (os.getenv("SANITIZER") or "") ~= "" then
    return
  end

  for _, graph in ipairs(GRAPHS) do
    it("is four times its text and little more: " .. graph[1], function()
      holds_graph(graph, 80000, graph[2])
    end)
    it("is 64 MiB and four times its text at most: " .. graph[1] .. " #slow", function()
      holds_graph(graph, 1000000, BASE)
    end)
  end

  it("is not what a number of outputs claims", function()
    local nodes, heads = { VARIABLE }, {}
    for i = 1, 100 do
      nodes[i + 1] = ('{"op":"SliceChannel","name":"","attrs":{"num_outputs":"%d"},\z
        "inputs":[[0,0]]}'):format(65537 - i)
      heads[i] = ("[%d,0]"):format(i)
    end
    local text = graph_text(table.concat(nodes, ","), table.concat(heads, ","))
    local ok, e = within(BASE + TIMES * #text, function() ty.sym.load_json(text) end)
    assert.is_true(ok, tostring(e))
  end)

  -- outputs, of which each is a table of Lua's; operators with room for many numbers, none alike
  local prior = '{"op":"_contrib_MultiBoxPrior","name":"","attrs":{"sizes":"(0.#,)"},\z
    "inputs":[[0,0]]}'
  local large = { ["lists of numbers"] = { VARIABLE .. "," .. joined(150000, prior),
    joined(150000, "[#,0]") }, heads = { VARIABLE, joined(700000, "[0,0]") } }
  for what, text in pairs(large) do
    it("is refused where it would be more: " .. what, function()
      text = graph_text(unpack(text))
      local ok, e = within(BASE + TIMES * #text, function() ty.sym.load_json(text) end)
      assert.is_false(ok)
      assert.equal("format", e.code)
      local words = "the graph would take more memory than 64 MiB and 4 times its text"
      assert.truthy(e.message:find(words, 1, true), e.message)
    end)
  end
end)

describe("the time of reading", function()
  for _, format in ipairs(formats) do
    it("grows with the file: " .. format.name .. " #slow", function()
      folder.with(function(path)
        local small, large = path .. "/small." .. format.name, path .. "/large." .. format.name
        format.write(small, format.size)
        format.write(large, 4 * format.size)
        local one, four = seconds(format, small), seconds(format, large)
        assert.is_true(four < MOST * math.max(one, 0.002),
          ("%s: %.4f s and, for four times as much, %.4f s"):format(format.name, one, four))
        if os.getenv("GROWTH") then print(format.name, one, four) end
      end)
    end)
  end
end)

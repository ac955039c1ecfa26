-- Writes files like torch.save, in both forms, and pickles piece by piece, for specs.
--
--   local p = require "spec.support.pytorch"
--   p.archive{ { "w", p.tensor{ class = "FloatStorage", key = "0", n = 4, size = {2, 2},
--     stride = {2, 1} } } , storages = { ["0"] = bytes } }

local ffi = require "ffi"
local native = require "tycho.core.ffi"

local pytorch = {}

local function le(n, count)
  local bytes = {}
  for i = 1, count do
    bytes[i], n = string.char(n % 256), math.floor(n / 256)
  end
  return table.concat(bytes)
end

pytorch.le = le

-- Pieces of pickles, which are texts of instructions ----------------------------------------------

function pytorch.text(s) return "X" .. le(#s, 4) .. s end
function pytorch.int(n) return "J" .. le(n % 2 ^ 32, 4) end
function pytorch.long(bytes) return "\138" .. string.char(#bytes) .. bytes end
function pytorch.float(v)
  return "G" .. ffi.string(ffi.new("double[1]", v), 8):reverse()
end
function pytorch.tuple(...) return "(" .. table.concat{ ... } .. "t" end
function pytorch.list(...) return "](" .. table.concat{ ... } .. "e" end
function pytorch.dict(...) return "}(" .. table.concat{ ... } .. "u" end
function pytorch.global(module, name) return "c" .. module .. "\n" .. name .. "\n" end
function pytorch.call(f, ...) return f .. pytorch.tuple(...) .. "R" end
function pytorch.pickle(body) return "\128\2" .. body .. "." end

local function ints(list)
  local parts = {}
  for i, n in ipairs(list) do
    parts[i] = pytorch.int(n)
  end
  return pytorch.tuple(unpack(parts))
end

pytorch.ints = ints

function pytorch.storage(t)
  return pytorch.tuple(pytorch.text "storage", pytorch.global("torch", t.class),
    pytorch.text(t.key or "0"), pytorch.text "cpu", pytorch.int(t.n), t.view or "") .. "Q"
end

-- Returns the pickle of a tensor: class, key, n of its storage; offset, size, stride; dtype for the
-- newest function.
function pytorch.tensor(t)
  local name = t.dtype and "_rebuild_tensor_v3" or "_rebuild_tensor_v2"
  return pytorch.call(pytorch.global("torch._utils", name), pytorch.storage(t),
    pytorch.int(t.offset or 0), ints(t.size), ints(t.stride), "\137",
    pytorch.call(pytorch.global("collections", "OrderedDict")),
    t.dtype and pytorch.global("torch", t.dtype) or "")
end

-- Archives ----------------------------------------------------------------------------------------

-- Returns a zip archive of stored members: { {name, bytes}, ... }.
function pytorch.zip(members)
  local parts, index, at = {}, {}, 0
  for i, m in ipairs(members) do
    local head = le(20, 2) .. le(0, 2) .. le(0, 2) .. le(0, 4)
      .. le(native.C.ty_crc32(0, m[2], #m[2]), 4) .. le(#m[2], 4) .. le(#m[2], 4) .. le(#m[1], 2)
      .. le(0, 2)
    parts[i] = "PK\3\4" .. head .. m[1] .. m[2]
    index[i] = "PK\1\2" .. le(20, 2) .. head .. le(0, 2) .. le(0, 2) .. le(0, 2) .. le(0, 4)
      .. le(at, 4) .. m[1]
    at = at + #parts[i]
  end
  local all = table.concat(index)
  return table.concat(parts) .. all .. "PK\5\6" .. le(0, 4) .. le(#members, 2) .. le(#members, 2)
    .. le(#all, 4) .. le(at, 4) .. le(0, 2)
end

-- Returns an archive of a dictionary { {name, piece}, ..., storages = { key = bytes } }, or of
-- `body`.
function pytorch.archive(t)
  local entries = {}
  for i, pair in ipairs(t) do
    entries[i] = pytorch.text(pair[1]) .. pair[2]
  end
  local members = { { "archive/data.pkl",
    pytorch.pickle(t.body or pytorch.dict(table.concat(entries))) } }
  for key, bytes in pairs(t.storages or {}) do
    members[#members + 1] = { "archive/data/" .. key, bytes }
  end
  for _, m in ipairs(t.more or {}) do
    members[#members + 1] = m
  end
  return pytorch.zip(members)
end

local MAGIC = "\108\252\156\70\249\32\106\168\80\25"

-- Returns the older form of the archive; storages: a list of {key, number of elements, bytes}.
function pytorch.older(t)
  local entries, keys, parts = {}, {}, {}
  for i, pair in ipairs(t) do
    entries[i] = pytorch.text(pair[1]) .. pair[2]
  end
  for i, s in ipairs(t.storages) do
    keys[i], parts[i] = pytorch.text(s[1]), le(s[2], 8) .. s[3]
  end
  local system = pytorch.dict(pytorch.text "little_endian", t.big_endian and "\137" or "\136")
  return pytorch.pickle(pytorch.long(MAGIC)) .. pytorch.pickle(pytorch.int(1001))
    .. pytorch.pickle(system) .. pytorch.pickle(t.body or pytorch.dict(table.concat(entries)))
    .. pytorch.pickle(pytorch.list(table.concat(keys))) .. table.concat(parts)
end

return pytorch

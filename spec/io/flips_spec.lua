-- A small file of every format that is damaged: one bit is another, or the end is missing. It is
-- refused by an error object, or read as arrays of the shapes that were in it. So are files of the
-- reference engine, where they are (#slow). Some places of each file; every one #slow. DAMAGE=1
-- prints counts. Checksums: spec/ndarray/damage_spec.lua.

local bit = require "bit"
local device = require "spec.support.device"
local folder = require "spec.support.folder"
local formats = require "spec.support.formats"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

local SOME, LARGEST = 150, 5000

-- Formats where a bit more is another file in order: a JPEG's size; in files of arrays without
-- checksums one of two names (of two arrays with one name the later one counts), a sparse array's
-- size, and in files of PyTorch, GGUF and Torch7 sizes of all kinds.
local MAY_DIFFER = { pth = true, pt = true, gguf = true, t7 = true, jpg = true,
  ["recorded params"] = true, ["recorded jpg"] = true }

local function flip(bytes, k)
  local at = math.floor(k / 8) + 1
  local byte = bit.bxor(bytes:byte(at), bit.lshift(1, k % 8))
  return bytes:sub(1, at - 1) .. string.char(byte) .. bytes:sub(at + 1)
end

local function cut(bytes, k) return bytes:sub(1, k) end

local function try(read, path, count, name)
  local ok, e = pcall(read, path)
  if not ok then
    assert.is_true(ty.is_error(e), tostring(e))
    count.refused = count.refused + 1
  elseif e == count.shapes then
    count.same = count.same + 1
  else
    assert.is_true(MAY_DIFFER[name] or false, name .. ": " .. tostring(e))
    count.other = count.other + 1
  end
end

-- Damages some of the places, all of them without a number; the file is restored afterwards.
local function sweep(name, path, read, some)
  local bytes = folder.read(path)
  local level = ty.log.level
  ty.log.level = "error"
  local count = { refused = 0, same = 0, other = 0, shapes = read(path) }
  for _, part in ipairs{ { flip, 8 * #bytes }, { cut, #bytes } } do
    local step = some and math.max(1, math.floor(part[2] / some)) or 1
    for k = 0, part[2] - 1, step do
      folder.write(path, part[1](bytes, k))
      try(read, path, count, name)
    end
  end
  folder.write(path, bytes)
  ty.log.level = level
  return count
end

local function print_count(name, bytes, count)
  if os.getenv("DAMAGE") then
    print(("%s: %d bytes, %d refused, %d of the same shapes, %d others"):format(name, bytes,
      count.refused, count.same, count.other))
  end
end

local function in_folder(name, f)
  setup(device.leave)
  teardown(device.come_back)
  it(name, function() folder.with(f) end)
end

local function sweep_format(format, some)
  return function(path)
    local file = path .. "/a." .. format.name
    format.write(file, format.small)
    print_count(format.name, #folder.read(file), sweep(format.name, file, format.read, some))
  end
end

describe("a damaged file", function()
  for _, format in ipairs(formats) do
    in_folder("is refused, or has its shapes: " .. format.name, sweep_format(format, SOME))
    in_folder("is so wherever it is damaged: " .. format.name .. " #slow", sweep_format(format))
  end
end)

local RECORDED = { params = "files/params", json = "files/symbols", rec = "files/recordio",
  png = "files/decode", jpg = "files/decode" }

local function sweep_recorded(ending, path)
  local total, files = { refused = 0, same = 0, other = 0 }, 0
  local bytes = 0
  local pipe = io.popen(("ls '%s/%s' | grep '[.]%s$'"):format(vectors.root, RECORDED[ending],
    ending))
  for file in pipe:lines() do
    local content = vectors.read(RECORDED[ending] .. "/" .. file)
    if #content > 0 and #content <= LARGEST then
      folder.write(path .. "/" .. file, content)
      local count = sweep("recorded " .. ending, path .. "/" .. file,
        formats.called(ending).read)
      for key in pairs(total) do total[key] = total[key] + count[key] end
      files, bytes = files + 1, bytes + #content
    end
  end
  pipe:close()
  assert.is_true(files > 0)
  print_count(("%d recorded files, %s"):format(files, ending), bytes, total)
end

describe("a damaged file of the reference engine", function()
  for ending in pairs(RECORDED) do
    in_folder("is refused, or has its shapes: " .. ending .. " #slow", function(path)
      if not vectors.exists() then
        pending("no recorded files in " .. vectors.root)
        return
      end
      sweep_recorded(ending, path)
    end)
  end
end)

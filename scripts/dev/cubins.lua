--- Compiled kernels for a machine with a GPU, made on one without. Files are those of the cache
-- (native/cuda/compile.c): "TYCHOCU1", the lengths of key and image, the hash of the image; then
-- key and image. A key is a line of architecture, NVRTC's version and the driver's, a line for each
-- option, and the source.
--   tycho scripts/dev/cubins.lua compile FROM TO ARCHITECTURE [PART/PARTS [BEFORE [NVRTC]]]
--       the sources that a run on the stand-in has left in FROM, by the real NVRTC (or by that
--       library); files of the folder BEFORE that serve are moved to TO
--   tycho scripts/dev/cubins.lua pack FROM FILE
--   tycho scripts/dev/cubins.lua unpack FILE TO NVRTC DRIVER
--       as files for these versions, such as 13000 13000, whatever they were made for: an image
--       runs where its architecture is, and would be compiled again otherwise
local cuda_library = require "scripts.dev.cuda_library"
local ffi = require "ffi"

local HEADER = 32
-- what is compiled here is for a driver of this version until `unpack` says another
local DRIVER = 13000

ffi.cdef [[
typedef struct { char magic[8]; uint64_t nkey, nbytes, hash; } cubin_header;
typedef struct nvrtc_program *nvrtcProgram;
int nvrtcVersion(int *, int *);
int nvrtcCreateProgram(nvrtcProgram *, const char *source, const char *name, int, const char *const *,
  const char *const *);
int nvrtcCompileProgram(nvrtcProgram, int, const char *const *options);
int nvrtcGetCUBINSize(nvrtcProgram, size_t *);
int nvrtcGetCUBIN(nvrtcProgram, char *);
int nvrtcGetProgramLogSize(nvrtcProgram, size_t *);
int nvrtcGetProgramLog(nvrtcProgram, char *);
int nvrtcDestroyProgram(nvrtcProgram *);
int chmod(const char *, unsigned);
]]


-- Files -------------------------------------------------------------------------------------------

local function read(path)
  local file = assert(io.open(path, "rb"))
  local bytes = file:read("*a")
  file:close()
  return bytes
end


local function write(path, ...)
  local file = assert(io.open(path, "wb"))
  assert(file:write(...))
  assert(file:close())
end


-- Returns the FNV-1a hash of a text.
local function compute_hash(text)
  local h, p = 14695981039346656037ULL, ffi.cast("const uint8_t *", text)
  for i = 0, #text - 1 do
    h = bit.bxor(h, p[i]) * 1099511628211ULL
  end
  return h
end


local function make_name(key)
  return ("%s.cubin"):format(bit.tohex(compute_hash(key), 16))
end


-- Returns key and image of a file of a cache; nil if it is none.
local function parse(bytes)
  if #bytes < HEADER or bytes:sub(1, 8) ~= "TYCHOCU1" then
    return nil
  end
  local h = ffi.new("cubin_header")
  ffi.copy(h, bytes, HEADER)
  local nkey, nbytes = tonumber(h.nkey), tonumber(h.nbytes)
  if #bytes ~= HEADER + nkey + nbytes then
    return nil
  end
  return bytes:sub(HEADER + 1, HEADER + nkey), bytes:sub(HEADER + nkey + 1)
end


-- Writes a file of the cache. Other users may not write it, since its contents run on the device.
local function put(folder, key, image)
  local path = folder .. "/" .. make_name(key)
  local h = ffi.new("cubin_header", { nkey = #key, nbytes = #image, hash = compute_hash(image) })
  ffi.copy(h.magic, "TYCHOCU1", 8)
  write(path, ffi.string(h, HEADER), key, image)
  ffi.C.chmod(path, 0x180)                               -- rw-------
end


local function list_paths(folder)
  return cuda_library.lines(("ls '%s'/*.cubin 2>/dev/null"):format(folder))
end


-- Returns the same key for another machine.
local function key_for(key, architecture, nvrtc, driver)
  local old, rest = key:match("^(%d+) %d+ %d+\n(.*)$")
  return ("%s %d %d\n%s"):format(architecture or old, nvrtc, driver, rest)
end


-- Compiling ---------------------------------------------------------------------------------------

local function read_log(nvrtc, program)
  local size = ffi.new("size_t[1]")
  nvrtc.nvrtcGetProgramLogSize(program, size)
  local text = ffi.new("char[?]", size[0] + 1)
  nvrtc.nvrtcGetProgramLog(program, text)
  return ffi.string(text)
end


-- Returns the image of a key's source, or nil and why not.
local function compile(nvrtc, key)
  local architecture, rest = key:match("^(%d+) [^\n]*\n(.*)$")
  local options = { "--gpu-architecture=sm_" .. architecture }
  while rest:find("^%-") do
    options[#options + 1], rest = rest:match("^([^\n]*)\n(.*)$")
  end
  local program, image, log = ffi.new("nvrtcProgram[1]"), nil, nil
  assert(nvrtc.nvrtcCreateProgram(program, rest, "kernel.cu", 0, nil, nil) == 0,
    "NVRTC takes no source")
  local list = ffi.new("const char *[?]", #options, options)
  if nvrtc.nvrtcCompileProgram(program[0], #options, list) ~= 0 then
    log = read_log(nvrtc, program[0])
  else
    local size = ffi.new("size_t[1]")
    assert(nvrtc.nvrtcGetCUBINSize(program[0], size) == 0)
    local bytes = ffi.new("char[?]", size[0])
    assert(nvrtc.nvrtcGetCUBIN(program[0], bytes) == 0)
    image = ffi.string(bytes, size[0])
  end
  nvrtc.nvrtcDestroyProgram(program)
  return image, log
end


local function compile_all(from, to, architecture, part, before, path)
  local nvrtc = path and ffi.load(path)
    or cuda_library.load({ "libnvrtc.so.13", "libnvrtc.so.12" }, "libnvrtc.so.1[23]")
  if not nvrtc then
    print("NVRTC is not installed")
    return 2
  end
  local major, minor = ffi.new("int[1]"), ffi.new("int[1]")
  assert(nvrtc.nvrtcVersion(major, minor) == 0)
  local k, n = (part or "1/1"):match("^(%d+)/(%d+)$")
  local made, kept, bad = 0, 0, 0
  for i, file in ipairs(list_paths(from)) do
    local key = i % n == k % n and parse(read(file))
    key = key and key_for(key, architecture, major[0] * 1000 + minor[0] * 10, DRIVER)
    local name = key and make_name(key)
    if name and before and os.rename(before .. "/" .. name, to .. "/" .. name) then
      kept = kept + 1
    elseif name then
      local image, log = compile(nvrtc, key)
      if image then
        put(to, key, image)
        made = made + 1
      else
        bad = bad + 1
        print(("%s, sm_%s: %s"):format(file, architecture, log))
      end
    end
  end
  print(("sm_%s: %d compiled, %d there before, %d do not compile"):format(architecture, made, kept,
    bad))
  return bad > 0 and 1 or 0
end


-- Packing -----------------------------------------------------------------------------------------
-- Sources have most of their text in common: it is kept once, cut where a file of theirs begins.
-- The file is "TYCHOKS1", the parts of texts, each after its length, then for each image the
-- numbers of its key's parts and its length.

local function pack(from, path)
  local numbers, parts, images = {}, {}, {}
  for _, file in ipairs(list_paths(from)) do
    local key, image = parse(read(file))
    local list = {}
    for text in (key and key:gsub("\n#line ", "\n\0#line ") or ""):gmatch("%Z+") do
      if not numbers[text] then
        parts[#parts + 1], numbers[text] = text, #parts + 1
      end
      list[#list + 1] = numbers[text]
    end
    if key then
      images[#images + 1] = ("%s:%d\n"):format(table.concat(list, " "), #image)
      images[#images + 1] = image
    end
  end
  local out = { ("TYCHOKS1\n%d %d\n"):format(#parts, #images / 2) }
  for _, text in ipairs(parts) do
    out[#out + 1] = ("%d\n"):format(#text)
    out[#out + 1] = text
  end
  write(path, table.concat(out), table.concat(images))
  print(("%d kernels packed"):format(#images / 2))
  return 0
end


local function unpack_all(path, to, nvrtc, driver)
  local file = assert(io.open(path, "rb"))
  assert(file:read("*l") == "TYCHOKS1", path .. " is not what `pack` makes")
  local nparts, nimages = file:read("*n", "*n")
  file:read("*l")
  local parts = {}
  for i = 1, nparts do
    parts[i] = file:read(tonumber((file:read("*l"))))
  end
  for _ = 1, nimages do
    local list, size = file:read("*l"):match("^([%d ]*):(%d+)$")
    local key = list:gsub("(%d+) ?", function(k) return parts[tonumber(k)] end)
    put(to, key_for(key, nil, nvrtc, driver), file:read(tonumber(size)))
  end
  file:close()
  print(("%d kernels for NVRTC %s, driver %s"):format(nimages, nvrtc, driver))
  return 0
end


local ACTIONS = { compile = compile_all, pack = pack, unpack = unpack_all }
local action = ACTIONS[arg[1]]
if not action or #arg < 3 then
  io.stderr:write("cubins.lua: compile, pack or unpack; the file's head says how\n")
  os.exit(2)
end
os.exit(action(unpack(arg, 2)))

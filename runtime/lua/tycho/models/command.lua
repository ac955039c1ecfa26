--- The `tycho` commands that inspect, convert and run files of models.
--
-- @module tycho.models.command

local context = require "tycho.core.context"

local command = {}

local USAGE = {
  ["--inspect"] = [[
usage: tycho --inspect FILE [--shape NAME=SIZES]... [--at KEYS] [--all]
  what a file of a model or of arrays holds: MXNet's, ONNX, Torch7's (.t7), PyTorch's, safetensors,
  GGUF, NumPy's
  --shape   of an input, where the file does not say it: --shape data=1,3,224,224
  --at      the network inside the file: --at best_model, --at protos.rnn
  --all     every array, every layer
]],
  ["--convert"] = [[
usage: tycho --convert IN OUT [--shape NAME=SIZES]... [--at KEYS]
  writes IN in the format of OUT's ending: NAME-symbol.json (with NAME-0000.params), .onnx,
  .params, .npz, .npy, .safetensors
  --shape   of an input: ONNX has the sizes of all, other formats where IN does not say them
]],
  ["--run"] = [[
usage: tycho --run MODEL --input [NAME=]FILE... [--output FILE] [--at KEYS] [--ctx gpu(0)]
  runs a network on arrays of files (.npy, .npz ...); without --output it prints the results
]],
}

-- Options of each command, and whether a value follows.
local OPTIONS = {
  ["--inspect"] = { shape = true, at = true, all = false },
  ["--convert"] = { shape = true, at = true },
  ["--run"] = { input = true, output = true, at = true, ctx = true },
}

local FILES = { ["--inspect"] = 1, ["--convert"] = 2, ["--run"] = 1 }


local Usage = {}

local function wrong(text, ...)
  error(setmetatable({ text = text:format(...) }, Usage), 0)
end


local function read_shape(text, shapes)
  local name, sizes = text:match("^([^=]+)=([%d,x]+)$")
  if not name then
    wrong("'%s' is no shape: NAME=SIZES, as in data=1,3,224,224", text)
  end
  local shape = {}
  for size in sizes:gmatch("%d+") do
    shape[#shape + 1] = tonumber(size)
  end
  shapes[name] = shape
end


local function read_context(text)
  local kind, id = text:match("^(%a+)%(?(%d*)%)?$")
  if kind ~= "cpu" and kind ~= "gpu" then
    wrong("'%s' is no device: cpu or gpu(0)", text)
  end
  return context[kind](tonumber(id) or 0)
end


-- Returns the files and options in a command line.
local function parse(name, words)
  local files, given = {}, { shapes = {}, inputs = {} }
  local i = 1
  while i <= #words do
    local word = words[i]
    local option = word:match("^%-%-(%a+)$")
    if not option then
      files[#files + 1] = word
    else
      local takes = OPTIONS[name][option]
      if takes == nil then
        wrong("unknown option '%s'", word)
      elseif takes and words[i + 1] == nil then
        wrong("a value is missing after '%s'", word)
      end
      local value = takes and words[i + 1] or true
      i = takes and i + 1 or i
      if option == "shape" then
        read_shape(value, given.shapes)
      elseif option == "input" then
        table.insert(given.inputs, value)
      else
        given[option] = option == "ctx" and read_context(value) or value
      end
    end
    i = i + 1
  end
  if #files ~= FILES[name] then
    wrong("%d files are named, %d are needed", #files, FILES[name])
  end
  return files, given
end


local RUN = {}

RUN["--inspect"] = function(files, options)
  require("tycho.models.inspect").show(files[1], options, function(text) io.stdout:write(text) end)
end

RUN["--convert"] = function(files, options)
  local what = require("tycho.models.convert").convert(files[1], files[2], options)
  print(("%s: %s"):format(files[2], what))
end

RUN["--run"] = function(files, options)
  if #options.inputs == 0 then
    wrong("--input is missing")
  end
  local outputs, names = require("tycho.models.run").run(files[1], options)
  if not options.output then
    for i, name in ipairs(names) do
      print(name)
      print(outputs[i])
    end
  end
end


--- Runs a command.
-- @string name "--inspect", "--convert" or "--run"
-- @string ... the arguments after it
-- @treturn int the exit status: 0, or 2 after a message about wrong usage; other failures raise
--   errors
function command.main(name, ...)
  local words = { ... }
  if words[1] == "--help" then
    io.stdout:write(USAGE[name])
    return 0
  end
  local ok, files, options = pcall(parse, name, words)
  if ok then
    ok, files = pcall(RUN[name], files, options)
  end
  if ok then
    return 0
  elseif type(files) == "table" and getmetatable(files) == Usage then
    io.stderr:write(("tycho %s: %s\n%s"):format(name, files.text, USAGE[name]))
    return 2
  end
  error(files, 0)
end


return command

--- Common parts of the families of networks: reads options, and weights from local files.
--
-- @module tycho.gluon.model_zoo.families

local args = require "tycho.core.args"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local folder = require "tycho.ndarray.folder"

local families = {}

-- Options of all functions, which follow those of the family.
local COMMON = { { "classes", "positive", 1000 }, { "pretrained", "boolean", false },
  { "ctx", "any?" }, { "root", "path?" }, { "prefix", "text?" }, { "params", "any?" } }


--- Returns the form of a function that makes a network.
-- @string name
-- @tparam table own parameters of the family, the positional ones first
-- @treturn function
function families.form(name, own)
  local spec, by_name = {}, false
  for _, entry in ipairs(own) do
    by_name = by_name or entry == "*"
    spec[#spec + 1] = entry
  end
  if not by_name then
    spec[#spec + 1] = "*"
  end
  for _, entry in ipairs(COMMON) do
    spec[#spec + 1] = entry
  end
  return args.form("model_zoo.vision." .. name, spec)
end


-- Returns the folder of weights for calls without `root`.
local function default_root()
  local home = os.getenv("TYCHO_HOME") or (os.getenv("HOME") or ".") .. "/.tycho"
  return home .. "/models"
end


-- Returns the file of a network's weights in a folder: `<name>.params`, or with eight hexadecimal
-- digits of its hash like the reference's files; nil if there is none.
local function find_file(root, name)
  local plain = root .. "/" .. name .. ".params"
  if files.exists(plain) then
    return plain
  end
  for _, file in ipairs(folder.files(root)) do
    if file:sub(1, #name + 1) == name .. "-"
        and file:sub(#name + 2):match("^%x%x%x%x%x%x%x%x%.params$") then
      return root .. "/" .. file
    end
  end
end


--- Returns a network, with weights from a local file if `pretrained` is set; a missing file is
-- E(io).
-- @param net
-- @string name of the file
-- @tparam table a the arguments that the form has read
-- @return net
function families.finish(net, name, a)
  if a.pretrained then
    local root = a.root or default_root()
    local file = find_file(root, name)
    if not file then
      Error.raise{ code = "io", func = "model_zoo.vision." .. name, argument = "root", got = root,
        expected = ("%s.params or %s-????????.params"):format(name, name),
        message = ("there are no weights of %s in '%s'; nothing is downloaded, put the file there")
          :format(name, root) }
    end
    net:load_parameters{ file, ctx = a.ctx }
  end
  return net
end


return families

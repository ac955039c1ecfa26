-- Names of C: global symbols have a prefix, static functions that of their file, and no two types
-- have the same name.

local source = require "check.source"

local names = {}

-- A global symbol names its owner: "tensor_make", never "make". The program's entry, and the verb
-- with which every room begins its errors, have no owner.
local OWNERLESS = { main = true, fail = true }

function names.check_globals(report, globals)
  for _, symbol in ipairs(globals) do
    if not symbol.name:find("^%l%w*_%w") and not OWNERLESS[symbol.name] then
      report(symbol.file, 1, "the global %s has no prefix", symbol.name)
    end
  end
end

-- Folders in which static functions begin with a word of their file's or folder's name. Those in
-- isa folders are loops of one kind, whose names end in a dtype.
local PREFIXED = { "^native/pass/", "^native/kernel/" }

-- Returns whether a word occurs in a path, in the singular or the plural.
local function is_word_of(word, path)
  for part in path:gmatch("%a+") do
    if part == word or part == word .. "s" then
      return true
    end
  end
end

--- Checks that static functions in pass and kernel begin with a word of their path. A definition
-- begins in the first column.
function names.check_statics(report, path)
  local prefixed = path:find("/isa/") == nil and path:find("%.c$") ~= nil
  for _, pattern in ipairs(prefixed and PREFIXED or {}) do
    for i, line in ipairs(path:find(pattern) and source.read(path).code or {}) do
      local name = line:match("^static [%w_%s*]-([%a_][%w_]*)%s*%([^*]")
      if name and name ~= "__attribute__" and not is_word_of(name:match("^%a*"), path) then
        report(path, i, "the static function %s does not begin with the name of its file", name)
      end
    end
  end
end

-- Calls `found(kind, name, line, value)` for the definitions of structs, unions and enumerated or
-- defined constants in a file.
local function definitions(file, found)
  for i, line in ipairs(file.code) do
    local kind, name = line:match("^%s*(%l+)%s+([%a_][%w_]*)%s*{")
    kind = kind or line:match("^typedef%s+(%l+)%s+")
    name = name or line:match("^typedef%s+%l+%s+([%a_][%w_]*)%s*{")
    if name and (kind == "struct" or kind == "union" or kind == "enum") then
      found(kind, name, i)
    end
  end
end

-- Checks that each struct, union or enum is defined once: two with one name mislead readers and
-- debuggers.
function names.check_types(report, files)
  local first = {}
  for _, path in ipairs(files) do
    definitions(source.read(path), function(kind, name, line)
      local other = first[name]
      if other and other.path ~= path then
        report(path, line, "%s %s is defined in %s:%d too: name one of them after its use", kind,
          name, other.path, other.line)
      end
      first[name] = other or { path = path, line = line }
    end)
  end
end

return names

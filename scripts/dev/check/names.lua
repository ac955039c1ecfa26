-- Names of C: global symbols have a prefix, and nothing has the name of another thing.

local source = require "check.source"

local names = {}

-- A global symbol says whose it is: "tensor_make", never "make". The program's entry and the verb
-- that every room begins its errors with have no owner.
local OWNERLESS = { main = true, fail = true }

function names.check_globals(report, globals)
  for _, symbol in ipairs(globals) do
    if not symbol.name:find("^%l%w*_%w") and not OWNERLESS[symbol.name] then
      report(symbol.file, 1, "the global %s has no prefix", symbol.name)
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

-- Checks that a struct, union or enum is defined once: two of one name mislead readers and
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

-- Findings that are known and left for later: how many of each kind a file may have. The numbers
-- may only fall: what is beyond them is reported, and what has been mended must be taken off
-- (`check.lua --debt` writes the list anew).

local debt = {}

local PATH = arg[0]:match("^.*/") .. "check/debt.txt"    -- lines "count path: kind"

-- Returns what a finding is, whatever its numbers and names.
local function kind_of(text)
  return (text:gsub("'[^']*'", "X"):gsub("%d+", "N"):gsub(" in native/%S+", ""):match("^[^,:(]*"))
end

local found = {}                                         -- key -> list of lines

function debt.add(path, line, text)
  local key = path .. ": " .. kind_of(text)
  found[key] = found[key] or {}
  table.insert(found[key], ("%s:%d: %s"):format(path, line, text))
end

local function sorted(list)
  local keys = {}
  for key in pairs(list) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  return keys
end

local function known()
  local list = {}
  local file = io.open(PATH)
  for line in file and file:lines() or function() end do
    local count, key = line:match("^(%d+) (.*)$")
    list[key] = tonumber(count)
  end
  return list
end

-- Writes the list anew. Arrows between rooms, files in no room and stale pictures are no debt.
function debt.write()
  local file = assert(io.open(PATH, "w"))
  for _, key in ipairs(sorted(found)) do
    file:write(("%d %s\n"):format(#found[key], key))
  end
  file:close()
end

-- Prints what is beyond the list, and what it still allows although it has been mended.
-- Returns the number of findings, and how many are known.
function debt.settle()
  local allowed, findings, owed = known(), 0, 0
  for _, key in ipairs(sorted(found)) do
    local list = found[key]
    if #list == allowed[key] then
      owed = owed + #list
    elseif #list < (allowed[key] or 0) then
      findings = findings + 1
      print(("%s: %d left of %d: check.lua --debt takes them off"):format(key, #list, allowed[key]))
    else
      findings = findings + #list - (allowed[key] or 0)
      print(table.concat(list, "\n"))
    end
    allowed[key] = nil
  end
  for _, key in ipairs(sorted(allowed)) do
    findings = findings + 1
    print(("%s: 0 left of %d: check.lua --debt takes them off"):format(key, allowed[key]))
  end
  return findings, owed
end

return debt

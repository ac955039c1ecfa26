-- Calls each function of tycho.h that returns a code with null pointers and zeros for all
-- arguments. Prints the functions that accept them; a crash ends the program. Run by
-- spec/core/abi_spec.lua.

local native = require "tycho.core.ffi"

local file = assert(io.open("native/tycho.h"))
local text = file:read("*a"):gsub("/%*.-%*/", "")
file:close()

-- Functions without required arguments, or whose result is not a code.
local LEFT_OUT = { ty_comm_abort = true, ty_comm_rank = true, ty_comm_size = true,
  ty_interrupt = true, ty_interrupt_watch = true }

local function arguments(list)
  local n, values = 0, {}
  for word in list:gmatch("[^,]+") do
    n = n + 1
    values[n] = not (word:find("%*") or word:find("%[")) and 0 or nil
  end
  return values, list:match("^%s*void%s*$") and 0 or n
end

local calls = 0
for name, list in text:gmatch("%f[%w_]int%s+(ty_[%w_]+)%(([^()]*)%)") do
  local values, n = arguments(list)
  if n > 0 and not LEFT_OUT[name] then
    local ok, code = pcall(native.C[name], unpack(values, 1, n))
    assert(ok, name .. ": " .. tostring(code))
    calls = calls + 1
    if code == 0 and list:find("%*") then print(name) end
  end
end
print(calls .. " calls")
os.exit(0)

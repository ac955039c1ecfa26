-- Sizes and lines: columns, lengths of files and functions, one statement per line, tabs and white
-- space.

local source = require "check.source"

local COLUMNS, TABLE_COLUMNS = 100, 140
local FILE_LINES = { c = 1000, h = 1000, inc = 1000, cu = 1000, lua = 1000, sh = 1000 }
local FUNCTION_LINES = 100

local style = {}

-- -- what a line is -------------------------------------------------------------------------------
-- A row of a table is a line inside the braces of a value that begins in the first column
-- (`static const struct op list[] = {`, `local NAMES = {`, `return {`) and holds no text of a
-- function; a call in the first column that begins with text and soon ends: `add("dot", ...)`; a
-- line of a long string; and a case of a switch. The cases of operators are tables as a whole. Rows
-- may be longer, and what they hold are not statements.

local TABLES = { "^spec/operators/cases", "^spec/operators/catalogue" }
local SOON = 6                           -- lines of such a call

local function opens_table(line)
  return line:find("^[%a_][^()]*=%s*{") or line:find("^[%a_].*=%s*{%s*$")
    or line:find("^return%s*{") or line:find("^[%w_.]+%s*{%s*$")
end

local function is_case(line)
  return line:find("^%s*case .*:") or line:find("^%s*default:")
end

local function opened(line, open, close)
  return select(2, line:gsub(open, "")) - select(2, line:gsub(close, ""))
end

-- Returns the number of lines of a call that begins with text on line i; nil if it has too many, or
-- if there is no such call.
local function call_lines(code, i)
  local depth = code[i]:find("^[%a_][%w_.]*%([\"']") and 0
  for k = i, depth and math.min(i + SOON - 1, #code) or 0 do
    depth = depth + opened(code[k], "%(", "%)")
    if depth == 0 then
      return k - i + 1
    end
  end
end

local function is_table(path)
  for _, pattern in ipairs(TABLES) do
    if path:find(pattern) then
      return true
    end
  end
end

-- Returns, for each line, whether it is a row of a table.
local function table_rows(file)
  local rows, depth, call = {}, 0, 0
  local whole = is_table(file.path)
  for i, line in ipairs(file.code) do
    call = math.max(call - 1, 0)
    if call == 0 and depth == 0 then
      call = call_lines(file.code, i) or 0
    end
    if whole or call > 0 or file.long[i] or is_case(line) then
      rows[i] = true
    elseif depth > 0 or opens_table(line) then
      rows[i] = not line:find("%f[%w_]function%f[^%w_]")
      depth = math.max(depth + opened(line, "{", "}"), 0)
    end
  end
  return rows
end

-- -- lines ----------------------------------------------------------------------------------------

local function columns(line)
  return select(2, line:gsub("[^\128-\191]", ""))        -- characters of UTF-8
end

local function check_lines(report, file)
  local rows = table_rows(file)
  for i, line in ipairs(file.lines) do
    local most = rows[i] and TABLE_COLUMNS or COLUMNS
    if line:find("\t", 1, true) then
      report(file.path, i, "a tab")
    elseif line:find("[ \r]$") then
      report(file.path, i, "white space at the end")
    elseif columns(line) > most then
      report(file.path, i, "%d columns, at most %d", columns(line), most)
    end
  end
end

-- -- statements -----------------------------------------------------------------------------------

-- Returns the number of statements that end on a line of C, which is that of semicolons outside
-- parentheses, and the depth after it. Members of a struct on one line do not count.
local function c_statements(line, depth)
  local count = 0
  local is_struct = line:find("%f[%w_]struct%s[^()]*{") or line:find("%f[%w_]union%s[^()]*{")
  for c in line:gmatch("[();]") do
    depth = depth + (c == "(" and 1 or c == ")" and -1 or 0)
    count = count + (c == ";" and depth == 0 and 1 or 0)
  end
  return is_struct and 1 or count, math.max(depth, 0)
end

-- Statements of a Lua line that keywords show; statements of functions inside it count separately.
local FUNCTION = "^(.*)%f[%w_]function%f[^%w_]%s*[%w_.:]*%b()(.-)%f[%w_]end%f[^%w_](.*)$"

local function lua_statements(line)
  local most = 0
  local before, body, rest = line:match(FUNCTION)
  while body do
    most = math.max(most, lua_statements(body))
    line = before .. " " .. rest
    before, body, rest = line:match(FUNCTION)
  end
  local count = 0
  for word in line:gmatch("%f[%w_]%l+%f[^%w_]") do
    count = count + ((word == "return" or word == "local" or word == "break") and 1 or 0)
  end
  local separators = select(2, line:gsub(";%s*%S", ""))
  return math.max(most, count, separators + 1)
end

local function check_statements(report, file)
  local is_lua, rows = file.path:match("%.lua$"), table_rows(file)
  local depth, macro = 0, false
  for i, line in ipairs(file.code) do
    local count = 0
    macro = not is_lua and (macro or line:find("^%s*#") ~= nil)
    if rows[i] then
      count = 0
    elseif is_lua then
      count = lua_statements(line)
    elseif not macro then
      count, depth = c_statements(line, depth)
    end
    macro = macro and line:find("\\%s*$") ~= nil
    if count > 1 then
      report(file.path, i, "%d statements on one line", count)
    end
  end
end

-- -- sizes ----------------------------------------------------------------------------------------

-- Returns whether a function opens in the first column and closes with } or end there.
local function opens_function(path, line)
  if path:match("%.lua$") then
    return line:match("^local%s+function") or line:match("^function")
      or line:match("^[%w_.]+%s*=%s*function")
  end
  return line:match("^[%a_].*%)%s*{?%s*$") and not line:match(";%s*$")
end

local function check_sizes(report, file)
  local most = FILE_LINES[file.path:match("%.(%w+)$")]
  if #file.lines > most then
    report(file.path, most + 1, "%d lines, at most %d", #file.lines, most)
  end
  local start
  for i, line in ipairs(file.code) do
    if not start and opens_function(file.path, line) and not line:match("end%)?%s*$") then
      start = i
    elseif start and (line:match("^}") or line:match("^end")) then
      if i - start + 1 > FUNCTION_LINES then
        local count = i - start + 1
        report(file.path, start, "a function of %d lines, at most %d", count, FUNCTION_LINES)
      end
      start = nil
    end
  end
end

-- -- all ------------------------------------------------------------------------------------------

function style.check(report, path)
  local file = source.read(path)
  check_lines(report, file)
  check_sizes(report, file)
  if path:match("%.[chl]%l*$") then
    check_statements(report, file)
  end
end

return style

-- The C program of the page on deployment compiles without a warning, with the commands of the page
-- in a checkout and after make install, and says what the page says of a network that the page's
-- Lua has trained.

local pages = require "spec.support.pages"
local shell = require "spec.support.shell"

local PAGE = "doc/deployment.md"

local function write(path, lines)
  local file = assert(io.open(path, "w"))
  file:write(table.concat(lines, "\n"), "\n")
  file:close()
end

-- Returns the first block of a kind after the n-th of another; n = 0: from the beginning.
local function find_block(kind, after, n)
  for _, block in ipairs(pages.blocks(PAGE)) do
    n = n - (block.kind == after and 1 or 0)
    if n <= 0 and block.kind == kind then
      return block.lines
    end
  end
end

-- Trains the page's network, builds its program with a command and compares what it says.
local function check(command, prepare)
  local root = io.popen("pwd"):read("*l")
  local folder = os.tmpname()
  os.remove(folder)
  assert.equal(0, (select(2, shell.run("mkdir " .. folder))))
  write(folder .. "/train.lua", find_block("lua", "lua", 0))
  write(folder .. "/circle.c", find_block("c", "c", 0))
  write(folder .. "/build.sh", { command })
  local program = shell.program:gsub("^build", root .. "/build")
  local output, status = shell.run(("%s\ncd %s && TYCHO_LOG=warning %s train.lua && sh -e build.sh; \z
    s=$?; rm -r %s; (exit $s)"):format(prepare(root, folder), folder, program, folder))
  assert(status == 0, output)
  -- the linker has a word to say on a sanitizer's library
  output = output:gsub("[^\n]*/ld: [^\n]*\n", ""):gsub("%s+$", "")
  assert.equal(table.concat(find_block("text", "sh", 1), "\n"), output)
end

describe("the C program of the page on deployment", function()
  it("compiles and predicts after make install", function()
    if (os.getenv("SANITIZER") or "") ~= "" then
      pending("a sanitized library")
      return
    end
    local command = table.concat(find_block("sh", "sh", 0), "\n")
    check(command:gsub("circle%.c", "-Wall -Wextra -Werror %0"), function(_, folder)
      return ("make --no-print-directory -s -o all BUILD=%s install PREFIX=%s/tree > %s/log; \z
        export PKG_CONFIG_PATH=%s/tree/lib/pkgconfig"):format(shell.program:match("^(.*)/"), folder,
        folder, folder)
    end)
  end)

  it("compiles and predicts in a checkout", function()
    local command = table.concat(find_block("sh", "sh", 2), "\n")
    local root = io.popen("pwd"):read("*l")
    local library = (os.getenv("TYCHO_LIB") or root .. "/build/libtycho.so"):match("^(.*)/")
    -- the command names folders of a checkout
    check(command:gsub("%-Inative", "-Wall -Wextra -Werror -I" .. root .. "/native")
      :gsub("%-Lbuild", "-L" .. library):gsub("%$PWD/build", library), function()
      return ":"
    end)
  end)
end)

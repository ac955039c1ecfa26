-- The C program of the page on deployment compiles without a warning, with the command of the page,
-- and says what the page says of a network that the page's Lua has trained.

local pages = require "spec.support.pages"
local shell = require "spec.support.shell"

local PAGE = "doc/deployment.md"

local function write(path, lines)
  local file = assert(io.open(path, "w"))
  file:write(table.concat(lines, "\n"), "\n")
  file:close()
end

it("the C program of the page on deployment compiles and predicts", function()
  local lua, c, sh, says
  for _, block in ipairs(pages.blocks(PAGE)) do
    lua = lua or block.kind == "lua" and block.lines
    c = c or block.kind == "c" and block.lines
    says = says or sh and block.kind == "text" and block.lines
    sh = sh or block.kind == "sh" and block.lines
  end
  local root = io.popen("pwd"):read("*l")
  local library = (os.getenv("TYCHO_LIB") or root .. "/build/libtycho.so"):match("^(.*)/")
  local folder = os.tmpname()
  os.remove(folder)
  assert.equal(0, (select(2, shell.run("mkdir " .. folder))))
  write(folder .. "/train.lua", lua)
  write(folder .. "/circle.c", c)
  -- the command names folders of a checkout
  local command = table.concat(sh, "\n"):gsub("%-Inative", "-Wall -Wextra -Werror -I" .. root
    .. "/native"):gsub("%-Lbuild", "-L" .. library):gsub("%$PWD/build", library)
  write(folder .. "/build.sh", { command })
  local program = shell.program:gsub("^build", root .. "/build")
  local output, status = shell.run(("cd %s && TYCHO_LOG=warning %s train.lua && sh -e build.sh; \z
    s=$?; rm -r %s; (exit $s)"):format(folder, program, folder))
  assert(status == 0, output)
  -- the linker has a word to say on a sanitizer's library
  output = output:gsub("[^\n]*/ld: [^\n]*\n", ""):gsub("%s+$", "")
  assert.equal(table.concat(says, "\n"), output)
end)

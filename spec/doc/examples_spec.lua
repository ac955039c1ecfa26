-- The examples on the pages of operators and in the prompt's help run as they are written.

package.path = "scripts/dev/?.lua;" .. package.path

local device = require "spec.support.device"
local operator = require "tycho.prompt.operator"
local operators = require "doc.operators"
local shell = require "spec.support.shell"
local ty = require "tycho"

-- Operators whose examples are of one kind only.
local NO_ARRAYS = { _NoGradient = true, _learn = true }
local NO_SYMBOLS = { Custom = true, _cvimdecode = true, _learn = true, reset_arrays = true }

-- name -> its examples on the page
local blocks = {}

setup(function()
  device.leave()
  for _, page in ipairs(operators.pages()) do
    local name, block
    for line in page.text:gmatch("[^\n]*") do
      name = line:match("^## (%S+)$") or name
      if line == "```lua" then
        block = {}
      elseif line == "```" and block then
        blocks[name], block = table.concat(block, "\n"), nil
      elseif block and line ~= "" then
        block[#block + 1] = line
      end
    end
  end
end)

teardown(device.come_back)

describe("examples of operators", function()
  it("are on the pages, of symbols and of arrays", function()
    for _, name in ipairs(ty.op.list()) do
      local info = ty.op.info(name)
      local symbols, arrays = 0, 0
      for _, example in ipairs(operator.examples(info)) do
        local is_symbol = example.text:find("ty%.sym%.")
        symbols, arrays = symbols + (is_symbol and 1 or 0), arrays + (is_symbol and 0 or 1)
      end
      local none = info.name:find("update", 1, true) or not info.inputs[1] or NO_SYMBOLS[name]
      local needs = name .. " needs a row in runtime/lua/tycho/prompt/examples.lua"
      assert.equal(NO_ARRAYS[name] and 0 or 1, arrays, needs)
      assert.equal(none and name ~= "_NoGradient" and 0 or 1, symbols, needs)
    end
  end)

  -- one program, in a folder of its own: each block by itself, the shapes of results compared
  it("run as they are written, and give what they say", function()
    local count, compared, lines = 0, 0, { [[
ty = require "tycho"
local is_array = require("tycho.ndarray.class").is_array
local function check(name, chunk, want)
  local ok, e = pcall(function()
    local got = { assert(loadstring(chunk))() }
    got = is_array(got[1]) and got or type(got[1]) == "table" and got[1] or got
    local shapes = {}
    for i, x in ipairs(got) do
      if is_array(x) then
        x:wait_to_read()
        shapes[i] = table.concat(x.shape, "x")
      end
    end
    if want and want ~= table.concat(shapes, ", ") then
      error("wrong shape: " .. table.concat(shapes, ", ") .. ", the page says " .. want, 0)
    end
  end)
  if not ok then
    print(name, tostring(e), chunk)
  end
end]] }
    for _, name in ipairs(ty.op.list()) do
      if blocks[name] then
        lines[#lines + 1] = ("check(%q, %q)"):format(name, blocks[name])
        count = count + 1
        local call, want = ("\n" .. blocks[name]):match("\n(ty%.nd.*)   %-%-> ([%dx, ]+)$")
        if call then
          lines[#lines + 1] = ("check(%q, %q, %q)"):format(name, "return " .. call, want)
          compared = compared + 1
        end
      end
    end
    local output, status
    shell.with_file(table.concat(lines, "\n"), function(script)
      output, status = shell.run(("(p=$(readlink -f %s); d=$(mktemp -d); cd $d; \z
        TYCHO_LOG=error $p %s; s=$?; rm -rf $d; exit $s)"):format(shell.program, script))
    end)
    assert.equal("", output)
    assert.equal(0, status)
    assert.is_true(count > 380, count)
    assert.is_true(compared > 300, compared)
  end)

  it("are in the prompt's help", function()
    local manual = require "tycho.prompt.manual"
    for _, name in ipairs(ty.op.list()) do
      local info = ty.op.info(name)
      local text = manual.operator(info)
      for _, example in ipairs(operator.examples(info)) do
        assert.truthy(text:find(example.text:match("^[^\n]*"), 1, true), name)
      end
    end
  end)
end)

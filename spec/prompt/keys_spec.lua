-- Keys at the prompt that are no plain typing, and terminals of unusual sizes.

local shell = require "spec.support.shell"
local terminal = require "spec.support.terminal"

describe("the prompt's terminal", function()
  local t

  setup(function()
    t = terminal.open(shell.program, "TERM=xterm NO_COLOR=1 HOME=/nonexistent TYCHO_HISTORY=")
    t:expect("leaves.")
    t:expect("> ")
  end)

  teardown(function() assert.equal(0, t:close()) end)

  after_each(function()
    t:send("\3")
    t:expect("^C")
    t:expect("> ")
  end)

  local function line(text, want) t:line(text, want) end

  local function keys(text, want)
    t:send(text)
    t:expect(want)
  end

  -- Not with the next key, which would be taken for a paste.
  local function tab()
    t:send("\t")
    os.execute("sleep 0.2")
  end

  it("indents by Tab where nothing is before it", function()
    tab()
    t:send(" ")
    tab()
    t:send("6 * 7\n")
    assert.is_falsy(t:expect("\r\n42\r\n> "):find("\n", 1, true))
  end)

  it("drops bytes that are not UTF-8, and keeps those that are", function()
    t:send("x = '\255\195\164'\n")
    t:expect("> ")
    line("#x", "2")
    line("x == '\\195\\164'", "true")
  end)

  it("drops a character that ends too early, not the one after it", function()
    for bytes, want in pairs{ ["\195z"] = "z", ["\226\130z"] = "z", ["\195\195\164"] = "\195\164",
        ["\240\159\152\195\164"] = "\195\164" } do
      t:send("x = '" .. bytes .. "'\n")
      t:expect("> ")
      line("#x", tostring(#want))
      line(("x == '%s'"):format((want:gsub("%W", function(c) return "\\" .. c:byte() end))), "true")
    end
  end)

  it("takes UTF-8 in the C locale, and where the locale is not installed", function()
    for _, locale in ipairs{ "C", "no_SUCH.UTF-8" } do
      local other = terminal.open(shell.program, "LC_ALL=" .. locale
        .. " TERM=xterm NO_COLOR=1 HOME=/nonexistent TYCHO_HISTORY=")
      other:expect("leaves.")
      other:expect("> ")
      other:line("x = '\195\164'")
      other:line("#x", "2")
      assert.equal(0, other:close())
    end
  end)

  it("completes nothing where nothing fits", function()
    keys("no_such_na", "no_such_na")
    tab()
    t:send("me == nil\n")
    assert.is_falsy(t:expect("\r\ntrue\r\n> "):find("\n", 1, true))
  end)

  it("lists 120 of many names, and says of how many", function()
    keys("ty.nd.", "ty.nd.")
    keys("\t", "... ")
    assert.is_true(tonumber((t:expect(" in all"))) > 300)
    t:expect("ty.nd.")
  end)

  it("lists names one below the other where it is narrow", function()
    line("apple_pie = 1")
    line("apple_tart = 2")
    line("!stty cols 12")
    keys("apple_", "apple_")
    keys("\t", "\r\napple_pie\r\napple_tart\r\n")
  end)

  it("is taken for 80 columns and 24 rows where it does not say", function()
    line("!stty cols 400 rows 40")
    line("!stty cols 0 rows 0")
    local name = ("n"):rep(29)
    for i = 1, 3 do
      line(("%s%d = %d"):format(name, i, i))
    end
    keys(name, name)
    keys("\t", ("\r\n%s1  %s3\r\n%s2\r\n"):format(name, name, name))
    t:expect("> ")
    line("2", "2")
    t:send("?ty.io.ImageRecordIter\n")
    assert.equal(1 + 23, select(2, t:expect("-- any key: more"):gsub("\n", "")))
    keys("q", "> ")
  end)

  it("leaves a long text at Ctrl-C, and at Ctrl-D", function()
    line("!stty rows 8")
    for _, key in ipairs{ "\3", "\4" } do
      t:send(":help\n")
      t:expect("q: enough -- ")
      keys(key, "> ")
      line("6 * 7", "42")
    end
  end)

  it("shows its line again when it comes back from a stop", function()
    t:send("!(sleep 0.3; kill -CONT $PPID) &\n")
    t:expect("> ")
    keys("6 *", "6 *")
    t:expect("6 *")                                      -- once more, after the signal
    line(" 7", "42")
  end)

  it("shows its line again where the terminal has another size", function()
    line("!stty cols 30")
    t:send("!(sleep 0.5; stty cols 20 < /dev/tty) &\n")
    t:expect("> ")
    local text = "x = 1000000 + 2000000 + 3000000 + 4"
    keys(text, "4")
    t:expect("\27[A\r\27[J")                              -- 2 + 35 columns: a row above the cursor
    t:expect("> ")
    line("0", nil)
    line("x", "6000040")
    t:send("!(sleep 0.5; stty cols 300 < /dev/tty) &\n")
    t:expect("> ")
    keys("6 *", "6 *")
    t:expect("\r\27[J")
    t:expect("> 6 *")
    line(" 7", "42")
  end)

  it("measures how long a run takes", function()
    t:send(":time os.execute('sleep 0.2')\n")
    t:expect("\r\n")
    local seconds, unit = t:expect("\r\n> "):match("^([%d.]+) (m?s)$")
    seconds = tonumber(seconds) / (unit == "ms" and 1000 or 1)
    assert.is_true(seconds >= 0.2 and seconds < 5)
  end)
end)

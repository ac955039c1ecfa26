-- Completion of the program's options and scripts in bash, zsh and fish; its man pages.

local shell = require "spec.support.shell"

local FOLDER = "packaging/completion/"

local function run(command)
  local output, status = shell.run(command)
  assert.equal(0, status, output)
  return output
end

-- Returns whether a program is installed; the spec is pending if it is not.
local function has(program)
  if select(2, shell.run("command -v " .. program)) == 0 then
    return true
  end
  pending(program .. " is not installed")
end

describe("completion", function()
  local path

  before_each(function()
    path = os.tmpname()
    os.remove(path)
    run(("mkdir %s && ln -s $(readlink -f %s) %s/tycho"):format(path, shell.program, path))
  end)

  after_each(function()
    run("rm -r " .. path)
  end)

  it("of bash knows options and scripts", function()
    if not has("bash") then return end
    local function completed(words)
      return run(([[PATH=%s:$PATH bash -c '. %stycho.bash
        COMP_WORDS=(%s) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tycho; echo "${COMPREPLY[@]}"']])
        :format(path, FOLDER, words))
    end
    assert.equal("train_cifar10 train_mnist\n", completed("tycho --script train_"))
    assert.equal("--plain --platform\n", completed("tycho --pla"))
    assert.equal("\n", completed("tycho -e --pla"))
  end)

  it("of fish knows options and scripts", function()
    if not has("fish") then return end
    local function completed(line)
      return run(([[HOME=%s PATH=%s:$PATH fish --no-config -c \
        "source %stycho.fish; complete -C '%s'"]]):format(path, path, FOLDER, line))
    end
    local scripts = completed("tycho --script train_")
    assert.is_truthy(scripts:find("^train_cifar10\t%u[^\n]*\ntrain_mnist\t%u[^\n]*\n$"), scripts)
    assert.is_truthy(completed("tycho --pla"):find("--platform\t", 1, true))
  end)

  it("of zsh is a function of its completion system", function()
    if not has("zsh") then return end
    run(("zsh -fc 'autoload -Uz compinit; fpath=(%s $fpath); cp %stycho.zsh %s/_tycho; "
      .. "compinit -u -D; [[ $_comps[tycho] == _tycho ]] && autoload +X _tycho'"):format(path,
      FOLDER, path))
  end)

  it("names every option of the program's help", function()
    for option in run(shell.program .. " --help"):gmatch("\n  (%-%-?%a+)") do
      for _, name in ipairs{ "tycho.bash", "tycho.zsh", "tycho.fish" } do
        local file = io.open(FOLDER .. name)
        local text = file:read("*a")
        file:close()
        local plain = name == "tycho.fish" and option:gsub("^%-%-", "-l "):gsub("^%-(%a)$", "-s %1")
          or option
        assert.is_truthy(text:find(plain, 1, true), name .. ": " .. option)
      end
    end
  end)
end)

describe("the man page", function()
  it("of the program names every option and has no fault", function()
    local file = io.open("packaging/man/tycho.1")
    local text = file:read("*a")
    file:close()
    for option in run(shell.program .. " --help"):gmatch("\n  %-(%-?%a+)") do
      assert.is_truthy(text:find("\n.It Fl " .. option, 1, true), option)
    end
    if not has("mandoc") then return end
    assert.equal("", run("mandoc -T lint -W warning packaging/man/tycho.1"))
  end)

  it("of the header has every function and no fault", function()
    local page = os.tmpname()
    run(("%s scripts/dev/man.lua > %s"):format(shell.program, page))
    local file, header = io.open(page), io.open("native/tycho.h")
    local text = file:read("*a")
    local count = 0
    for name in header:read("*a"):gsub("/%*.-%*/", ""):gmatch("(ty_[%w_]+)%(") do
      assert.is_truthy(text:find("\n%.It Li \"[^\n]*" .. name .. "%("), name)
      count = count + 1
    end
    file:close()
    header:close()
    assert.is_true(count > 150, count)
    if has("mandoc") then
      assert.equal("", run("mandoc -T lint -W warning " .. page))
    end
    os.remove(page)
  end)
end)

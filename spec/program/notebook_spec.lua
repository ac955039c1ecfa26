-- Cells in the Jupyter kernel ILua, as it is, with the program as its interpreter; the notebook of
-- the page. Needs a Python (TYCHO_PYTHON, python3) that has ilua, jupyter_client and a Pygments
-- below 2.19: ILua 0.2.1 reads no paths from the tokens of newer ones.

local folder = require "spec.support.folder"
local json = require "tycho.core.json"
local shell = require "spec.support.shell"
local ty = require "tycho"

local PYTHON = os.getenv("TYCHO_PYTHON") or "python3"
local HERE = io.popen("pwd"):read("*l")

-- Returns the answers to a list of questions, in a kernel of their own.
local function ask(questions)
  local answers
  folder.with(function(path)
    folder.write(path .. "/questions", json.text(questions))
    local program = shell.program:find("^/") and shell.program or HERE .. "/" .. shell.program
    local output, status = shell.run(("cd %s && %s %s/spec/program/kernel_client.py %s < questions")
      :format(path, PYTHON, HERE, program))
    assert(status == 0, output)
    answers = json.parse(output:match("([^\n]*)\n$"))
  end)
  return answers
end

local function run(code) return json.object{ { "run", code } } end
local function complete(text) return json.object{ { "complete", text } } end

describe("a notebook", function()
  local has = select(2, shell.run(PYTHON .. [[ -c 'import distutils, ilua, jupyter_client, pygments
assert tuple(map(int, pygments.__version__.split(".")[:2])) < (2, 19)']])) == 0

  it("shows values, errors and drawings as text, completes paths", function()
    if not has then
      pending("no Python with ilua, jupyter_client, distutils and Pygments < 2.19")
      return
    end
    local answers = ask{
      run("x = ty.nd.array{{1, 2}, {3, 4}}"), run("x"), run("print(x:sum():asscalar())"),
      run("y = ty.nd.dot(x, ty.nd.ones{3, 3})"), run("error('mine')"), run("nil + 1"),
      run("ty.viz.plot({loss = {3, 2, 1.5}}, {x_label = 'epoch'})"), run("help 'relu'"),
      complete("ty.nd.zeros_l"), complete("y = x:reshape_l"), complete("ty.nowhere.x") }
    assert.equal("[[1. 2.]\n [3. 4.]]\n<NDArray 2x2 @cpu(0)>", answers[2].result)
    assert.equal("10\n", answers[3].text)
    local message = answers[4].error
    assert.is_truthy(message:find("axis 0 has 3 elements", 1, true), message)
    assert.is_truthy(message:find("(shape error)", 1, true), message)
    assert.is_nil(message:find("ndarray/operators.lua", 1, true), message)
    assert.is_truthy(answers[5].error:find("^mine"), answers[5].error)
    assert.is_truthy(answers[6].error:find("attempt to perform arithmetic", 1, true))
    assert.equal("drawing_1.svg", answers[7].result)
    assert.is_truthy(answers[8].text:find("^relu%(data%)"), answers[8].text)
    assert.same({ "ty.nd.zeros_like" }, answers[9])
    assert.same({ "x:reshape_like" }, answers[10])
    assert.same({}, answers[11])
  end)

  it("of the page gives what it shows", function()
    if not has then
      pending("no Python with ilua, jupyter_client, distutils and Pygments < 2.19")
      return
    end
    local file = io.open("doc/notebook.ipynb")
    local book = json.parse(file:read("*a"))
    file:close()
    local cells, questions = {}, {}
    for _, cell in ipairs(book.cells) do
      if cell.cell_type == "code" then
        cells[#cells + 1] = cell
        questions[#questions + 1] = run(table.concat(cell.source))
      end
    end
    assert.is_true(#cells >= 5)
    for i, answer in ipairs(ask(questions)) do
      local want = { text = "" }
      for _, output in ipairs(cells[i].outputs) do
        local data = output.data
        want.text = want.text .. table.concat(output.text or {})
        want.result = data and table.concat(data["text/plain"]) or want.result
      end
      assert.equal(want.text, answer.text, "cell " .. i)
      assert.equal(want.result, answer.result ~= ty.null and answer.result or nil, "cell " .. i)
    end
  end)
end)

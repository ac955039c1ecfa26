-- Definitions for the Lua language server and the interface as JSON: each file is Lua, and classes,
-- functions and options are those of the registry and of the library itself.

local comments = require "tycho.prompt.comments"
local json = require "tycho.core.json"
local manual = require "tycho.prompt.manual"
local members = require "tycho.prompt.members"
local shell = require "spec.support.shell"
local ty = require "tycho"

local folder, files = nil, {}

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

-- Returns the classes of all files: name -> {base, fields = {name -> type}}.
local function read_classes()
  local classes = {}
  for _, text in pairs(files) do
    local class
    for line in text:gmatch("[^\n]*") do
      local name, base = line:match("^%-%-%-@class ([%w_.]+):? ?([%w_.]*)$")
      if name then
        class = classes[name] or { fields = {} }
        class.base = base ~= "" and base or class.base
        classes[name] = class
      end
      local quoted, rest = line:match('^%-%-%-@field %["([%w_.]+)"%] (.*)$')
      local field = quoted or line:match("^%-%-%-@field ([%w_.]+)")
      if field then
        class.fields[field] = rest or line:match("^%-%-%-@field [%w_.]+%??%s+(.*)$")
      end
    end
  end
  return classes
end

-- Runs the definitions: what they put into namespaces, as "nd.zeros" and "io.NDArrayIter.reset".
local function defined_functions()
  local names = {}
  local function walk(prefix, t)
    for key, value in pairs(t) do
      names[prefix .. key] = type(value)
      if type(value) == "table" then
        walk(prefix .. key .. ".", value)
      end
    end
  end
  for name, text in pairs(files) do
    if name ~= "tycho.lua" then
      -- the file's own tables, which are private, are handed out
      local spaces = {}
      for space in text:gmatch("\nlocal ([%w_]+) = {}\n") do
        spaces[#spaces + 1] = ("%s = %s"):format(space, space)
      end
      local chunk = assert(loadstring(text .. "\nreturn {" .. table.concat(spaces, ", ") .. "}"))
      for space, t in pairs(setfenv(chunk, {})()) do
        walk(space .. ".", t)
      end
    end
  end
  return names
end

describe("definitions for editors", function()
  local classes, functions

  setup(function()
    folder = os.tmpname()
    os.remove(folder)
    local output, status = shell.run(("mkdir %s && %s scripts/dev/library.lua %s"):format(folder,
      shell.program, folder))
    assert(status == 0, output)
    for path in io.popen("ls " .. folder .. "/*.lua"):lines() do
      files[path:match("[^/]*$")] = read(path)
    end
  end)

  teardown(function()
    shell.run("rm -r " .. folder)
  end)

  it("are Lua, and nothing but definitions", function()
    local count = 0
    for name, text in pairs(files) do
      assert.is_truthy(loadstring(text, "@" .. name))
      assert.equal(1, (text:find("---@meta", 1, true)), name)
      count = count + 1
    end
    assert.is_true(count > 20, count)
    classes, functions = read_classes(), defined_functions()
  end)

  it("have each public operator with its operands and options", function()
    local inner, seen = { contrib = "_contrib_", linalg = "_linalg_", image = "_image_",
      random = "_random_" }, 0
    for _, name in ipairs(ty.op.list()) do
      local info = ty.op.info(name)
      local public = not name:find("^_") and name
      for space, prefix in pairs(inner) do
        public = public or name:find("^" .. prefix) and space .. "." .. name:sub(#prefix + 1)
      end
      if public then
        seen = seen + 1
        assert.equal("function", functions["nd." .. public], name)
        assert.equal("function", functions["sym." .. public], name)
        assert.equal("function", functions["F." .. public], name)
        local have, want = {}, {}
        for field in pairs(classes["ty.op." .. name .. ".parameters"].fields) do
          have[#have + 1] = field
        end
        for i, p in ipairs(info.params) do
          want[i] = p.name
        end
        table.sort(have)
        table.sort(want)
        assert.same(want, have, name)
        local operands = classes["ty.op." .. name .. ".arrays"]
        assert.equal("ty.op." .. name .. ".parameters", operands.base)
        for _, port in ipairs(info.inputs) do
          if not port:find("^[%[{]") then
            assert.is_truthy(operands.fields[port:match("[%w_]+")], name .. ": " .. port)
          end
        end
      end
    end
    assert.is_true(seen > 290, seen)
  end)

  it("choose from the words that an operator knows", function()
    assert.is_truthy(classes["ty.op.Activation.parameters"].fields.act_type
      :find('^"relu"|"sigmoid"|'))
    assert.is_truthy(classes["ty.op.Convolution.parameters"].fields.kernel:find("^ty.Shape "))
    assert.is_truthy(classes["ty.op.sum.parameters"].fields.keepdims:find("^boolean "))
  end)

  it("have the options of each function that takes them", function()
    local count = 0
    for path, title in pairs{ ["ty.mod.Module.fit"] = "Module:fit",
        ["ty.io.NDArrayIter"] = "NDArrayIter", ["ty.nd.full"] = "nd.full",
        ["ty.optimizer.Adam"] = "Adam" } do
      local owner, name = path:match("^ty%.(.*)%.([%w_]+)$")
      local value = ty
      for step in (owner .. "." .. name):gmatch("[%w_]+") do
        value = value[step]
      end
      local f = type(value) == "table" and value.init or value
      local form = assert(manual.form(f, name), title)
      local class = assert(classes[path .. ".options"], path)
      for _, p in ipairs(form.params) do
        local base = class
        while base and not base.fields[p.name] do
          base = classes[base.base or ""]
        end
        assert.is_truthy(base, path .. ": " .. p.name)
        count = count + 1
      end
    end
    assert.is_true(count > 30, count)
  end)

  it("name no class or function that the library lacks", function()
    local count = 0
    local objects = { [ty.nd.NDArray] = ty.nd.ones(1), [ty.sym.Symbol] = ty.sym.Variable "x" }
    for name, kind in pairs(functions) do
      local value = ty
      for step in name:gmatch("[%w_]+") do
        value = type(value) == "table" and (value[step] or (objects[value] or {})[step]) or nil
      end
      assert.is_truthy(value ~= nil, "ty." .. name .. " is defined and not there")
      count = count + (kind == "function" and 1 or 0)
    end
    assert.is_true(count > 1900, count)
    assert.equal("ty.nd", classes.ty.fields.ndarray)
  end)

  it("name every class and every function that has a comment, in all namespaces", function()
    local known, seen, lacking, count = {}, {}, {}, 0
    local objects = { [ty.nd.NDArray] = ty.nd.ones(1), [ty.sym.Symbol] = ty.sym.Variable "x" }
    for name in pairs(functions) do
      local value = ty
      for step in name:gmatch("[%w_]+") do
        value = value[step] or (objects[value] or {})[step]
      end
      known[type(value) == "function" and manual.unwrapped(value) or value] = true
    end
    for name in files["tycho.lua"]:gmatch("\nfunction ty%.([%w_]+)%(") do
      known[manual.unwrapped(ty[name])] = true
    end
    local function is_lacking(value)
      if type(value) == "function" then
        local entry = manual.comment(value)
        return entry and not comments.is_hidden(entry) and not known[manual.unwrapped(value)]
      end
      return value ~= ty.Error and manual.is_class(value) and not known[value]
    end
    local function walk(path, space)
      seen[space] = true
      for _, name in ipairs(members.list(space)) do
        local ok, value = pcall(function() return space[name] end)
        local inner = ok and type(value) == "table" and not manual.is_class(value)
          and not manual.is_class(getmetatable(value))
        lacking[#lacking + 1] = ok and is_lacking(value) and path .. name or nil
        count = count + 1
        if inner and not seen[value] then
          walk(path .. name .. ".", value)
        end
      end
    end
    walk("ty.", ty)
    assert.same({}, lacking)
    assert.is_true(count > 2000, count)
    assert.equal("ty.gluon.HybridBlock", classes["ty.gluon.nn.AvgPool1D"].base)
    assert.equal("ty.Error", classes.ty.fields.Error)
    for _, name in ipairs{ "code", "message", "argument", "expected", "got", "node" } do
      assert.is_truthy(classes["ty.Error"].fields[name], name)
    end
  end)

  it("have the fields of arrays, symbols and executors, and operators as methods", function()
    for path, list in pairs{
        ["ty.nd.NDArray"] = { shape = "integer[]", T = "ty.nd.NDArray", grad = "ty.nd.NDArray" },
        ["ty.sym.Symbol"] = { name = "string", T = "ty.sym.Symbol" },
        ["ty.executor.Executor"] = { outputs = "ty.nd.NDArray[]",
          arg_dict = "table<string, ty.nd.NDArray>" } } do
      for name, kind in pairs(list) do
        assert.equal(kind, classes[path].fields[name], path .. "." .. name)
      end
      assert.equal("ty.Class", classes[path].base)
    end
    for _, name in ipairs{ "nd.NDArray.sum", "sym.Symbol.relu", "nd.NDArray.gt",
        "autograd.record" } do
      assert.equal("function", functions[name], name)
    end
  end)

  it("say of each function what it returns, in files that the server reads whole", function()
    for name, text in pairs(files) do
      assert.is_true(#text < 500000, name)
      local before = {}
      for line in text:gmatch("([^\n]*)\n") do
        if line:find("function[ (].* end$") then
          assert.is_truthy(table.concat(before, "\n"):find("---@return", 1, true), name .. line)
        end
        before = line ~= "" and before or {}
        before[#before + 1] = line
      end
    end
  end)

  -- TYCHO_LUALS: the program of the Lua language server
  it("are read by the language server without a diagnostic", function()
    local server = os.getenv("TYCHO_LUALS") or "lua-language-server"
    if select(2, shell.run("command -v " .. server)) ~= 0 then
      pending("no lua-language-server")
      return
    end
    local settings = assert(io.open(folder .. "/luarc.json", "w"))
    settings:write('{"runtime.version": "LuaJIT"}')
    settings:close()
    local output = shell.run(("cd %s && %s --check . --checklevel=Hint --configpath=luarc.json \z
      --logpath=log"):format(folder, server))
    assert.is_truthy(output:find("no problems found", 1, true), output:sub(-2000))
  end)

  it("are the same as JSON", function()
    local api = json.parse(read(folder .. "/api.json"))
    assert.equal(ty.version, api.version)
    assert.equal(#ty.op.list(), #api.operators)
    local info, row = ty.op.info("Convolution"), nil
    for _, one in ipairs(api.operators) do
      row = one.name == "Convolution" and one or row
    end
    assert.same(info.inputs, row.inputs)
    for i, p in ipairs(info.params) do
      assert.equal(p.name, row.parameters[i].name)
      assert.equal(p.doc, row.parameters[i].doc)
      assert.equal(p.default or ty.null, row.parameters[i].default)
    end
    local entry
    for _, page in ipairs(api.pages) do
      for _, one in ipairs(page.entries) do
        entry = one.name == "Module:fit" and one or entry
      end
    end
    assert.is_true(#entry.options >= #manual.form(ty.mod.Module.fit, "fit").params)
  end)
end)

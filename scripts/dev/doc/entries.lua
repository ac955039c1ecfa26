-- The contents of the reference: classes, their methods and functions, found in the loaded library:
-- members of namespaces, forms of functions, comments.
--
--     local pages = entries.pages()       in order; each: file, title, intro, entries
--     entries.address("mod:fit")          "reference_module.html#Module.fit", or nil
--     entries.silent(pages)               options without a word: list of "Module:fit: monitor"
--
-- Fields of an entry: title, id, kind ("class", "function", "method"), f (the function), call,
-- lines, options, results, inherited. Functions without form and comment, or with "not for users",
-- are left out.

local ty = require "tycho"
local comments = require "tycho.prompt.comments"
local glossary = require "tycho.prompt.glossary"
local manual = require "tycho.prompt.manual"
local members = require "tycho.prompt.members"
local registry = require "tycho.op.registry"

local entries = {}

-- file, title, contents: classes, or all further members of a namespace. `whole`: whether the first
-- class lists inherited members as its own.
local PAGES = {
  { "ndarray", "NDArray", "nd.NDArray" },
  { "arrays", "Arrays: ty.nd", "nd", "nd.contrib" },
  { "random", "Random numbers: ty.random", "random" },
  { "symbol", "Symbol", "sym.Symbol", "sym", "sym.contrib" },
  { "executor", "Executor", "executor.Executor", "executor" },
  { "module", "Module", "mod.Module", whole = true },
  { "bucketing_module", "BucketingModule", "mod.BucketingModule" },
  { "modules", "Other modules", "mod" },
  { "model", "Checkpoints: ty.model", "model" },
  { "iterators", "Data iterators: ty.io", "io" },
  { "images", "Images: ty.image", "image" },
  { "recordio", "Record files: ty.recordio", "recordio" },
  { "optimizers", "Optimizers: ty.optimizer", "optimizer" },
  { "schedules", "Learning rates: ty.lr_scheduler", "lr_scheduler" },
  { "metrics", "Metrics: ty.metric", "metric" },
  { "initializers", "Initializers: ty.init", "init" },
  { "cells", "Recurrent cells: ty.rnn", "rnn" },
  { "autograd", "Gradients: ty.autograd", "autograd" },
  { "gluon", "Blocks, parameters, Trainer: ty.gluon", "gluon", "gluon.utils" },
  { "layers", "Layers: ty.gluon.nn", "gluon.nn" },
  { "recurrent_layers", "Recurrent layers: ty.gluon.rnn", "gluon.rnn" },
  { "losses", "Losses: ty.gluon.loss", "gluon.loss" },
  { "datasets", "Data sets: ty.gluon.data", "gluon.data", "gluon.data.vision",
    "gluon.data.vision.transforms", "gluon.data.batchify" },
  { "contrib_layers", "More layers: ty.gluon.contrib", "gluon.contrib.nn", "gluon.contrib.cnn",
    "gluon.contrib.rnn", "gluon.contrib.data", "gluon.contrib.data.text" },
  { "estimator", "Estimator: ty.gluon.contrib.estimator", "gluon.contrib.estimator" },
  { "model_zoo", "Known networks: ty.gluon.model_zoo", "gluon.model_zoo.vision" },
  { "either", "Arrays or symbols: ty.F", "F" },
  { "precision", "Fewer bits: ty.amp, ty.contrib.quantization", "amp", "contrib.quantization",
    "precision" },
  { "other_engines", "Models of others: ty.onnx, ty.pytorch, ty.torch7", "onnx", "pytorch",
    "torch7" },
  { "tensorboard", "TensorBoard: ty.tensorboard", "tensorboard" },
  { "kvstore", "KVStore: ty.kv", "kv" },
  { "callbacks", "Callbacks: ty.callback", "callback" },
  { "monitors", "Monitor: ty.monitor", "monitor" },
  { "pictures", "Pictures: ty.viz", "viz" },
  { "custom", "Operators of your own", "operator", "op" },
  { "contexts", "Contexts and scopes", "context", "attribute", "name" },
  { "executor_manager", "Executor manager", "executor_manager" },
  { "profiler", "Profiler: ty.profiler", "profiler" },
  { "system", "The system", "engine", "runtime", "log" },
  { "test_utils", "Helpers of tests: ty.test_utils", "test_utils" },
}


-- Returns the namespace of a path, "gluon.nn".
local function namespace(path)
  local value = ty
  for name in path:gmatch("[%w_]+") do
    value = value[name]
  end
  return value
end


-- What there is -----------------------------------------------------------------------------------

local addresses = {}                                     -- function or class -> "file.html#id"
local by_name = {}                                       -- "Module:fit" -> address
local last_names = {}                                    -- "fit" -> address; false: several


-- Returns the key of a value: a function with the wrapper that records its caller has the same key
-- as without.
local function key(x)
  return type(x) == "function" and manual.unwrapped(x) or x
end


local function find_address(x)
  return addresses[key(x)]
end


local function note(name, where)
  by_name[name] = by_name[name] or where
end


local function note_last(name, where)
  if last_names[name] == nil or last_names[name] == where then
    last_names[name] = where
  else
    last_names[name] = false
  end
end


-- Names of the first parameter of a method that is defined with a dot.
local OBJECT = { self = true, _ = true, x = true }

-- Returns the sign between a class or a namespace and its function.
local function separator(class, name, f, form, entry)
  local sign = form and form.func:match("([:.])" .. name .. "$")
  if sign or not class then
    return sign or "."
  end
  local first = debug.getlocal(manual.unwrapped(f), 1)
  local static = entry and entry.title:find(".", 1, true) and first and not OBJECT[first]
  return static and "." or ":"
end


-- Returns options with their texts from the comments, the nearest comment first.
local function list_options(title, f, form, texts, common)
  local said, list, extra = {}, {}, {}
  local object = f and manual.object(f, title)
  for _, entry in ipairs(texts) do
    for _, p in ipairs(comments.parts(entry).params) do
      said[p.name] = said[p.name] or p
      local other = not form or p.name ~= "options" and not form.by_name[p.name]
      extra[#extra + 1] = other and p.name ~= object and p or nil
    end
  end
  for i, p in ipairs(form and form.params or {}) do
    local of_base = common and common.by_name[p.name]
    if not (of_base and of_base.default == p.default and of_base.type.text == p.type.text) then
      list[#list + 1] = { name = p.name, type = p.type.text, required = p.required,
        default = manual.default(p),
        by_name = form.order[i] ~= p,
        text = said[p.name] and said[p.name].text ~= "" and said[p.name].text
          or glossary.text(form.func, p.name) }
    end
  end
  for _, p in ipairs(extra) do
    list[#list + 1] = { name = p.name, type = p.type:gsub(", optional$", ""),
      text = p.text ~= "" and p.text or glossary.text(title, p.name),
      required = not p.type:find("optional") and not form, extra = form ~= nil }
  end
  return list
end


-- Returns the texts of comments, and their text about all options together.
local function list_lines(texts, form)
  local lines = {}
  for _, entry in ipairs(texts) do
    for _, line in ipairs(comments.parts(entry).lines) do
      lines[#lines + 1] = line
    end
    for _, p in ipairs(comments.parts(entry).params) do
      if form and p.name == "options" and p.text ~= "" then
        lines[#lines + 1] = ""
        lines[#lines + 1] = "Options: " .. p.text
      end
    end
    lines[#lines + 1] = ""
  end
  return lines
end


local function described(page, kind, title, f, form, texts, common)
  local results = {}
  for _, entry in ipairs(texts) do
    for _, r in ipairs(comments.parts(entry).results) do
      results[#results + 1] = r
    end
  end
  local item = { kind = kind, title = title, id = title:gsub("[^%w_]", "."),
    f = f and manual.unwrapped(f), call = form and manual.signature(form, title)
      or f and manual.plain_signature(f, title, texts[#texts]),
    lines = list_lines(texts, form), results = results,
    options = list_options(title, f, form, texts, common) }
  item.address = page.file .. ".html#" .. item.id
  note(title, item.address)
  page.entries[#page.entries + 1] = item
  return item
end


-- Returns the comment of a function that no line of code names: one with its name in a tag or, for
-- a function of networks, that of the function of arrays.
local function comment_elsewhere(title, name)
  local plain = title:gsub("^ty%.", "")
  for _, entry in ipairs(comments.named(name)) do
    if entry.title == title or entry.title == plain then
      return entry
    end
  end
  local twin = plain:find("^sym%.") and rawget(ty.nd, name)
  return type(twin) == "function" and manual.comment(twin) or nil
end


-- Short names of the operators that implement functions.
local SHORT = { divide = "div", true_divide = "div", modulo = "mod", multiply = "mul",
  subtract = "sub", pow = "power" }

-- Returns the description of the operator that a function without a comment calls.
local function operator_doc(name)
  for _, pattern in ipairs{ "%s", "broadcast_%s" } do
    local known = registry.find(pattern:format(SHORT[name] or name))
    if known then
      return ty.op.info(pattern:format(SHORT[name] or name)).doc
    end
  end
end


-- Adds the entry of a function of a namespace or a class.
local function add_function(page, owner, name, f, class)
  local form = manual.form(f, name)
  local entry = manual.comment(f)
  local title = owner .. separator(class, name, f, form, entry) .. name
  entry = entry or comment_elsewhere(title, name)
  if entry and comments.is_hidden(entry) or not (entry or form) then
    return nil
  end
  local item = described(page, class and "method" or "function", title, f, form, { entry })
  if not entry and not class then
    item.lines = { operator_doc(name) }
  end
  addresses[key(f)] = item.address
  if class then
    note_last(name, item.address)
  end
  return item
end


local function sorted(t)
  local names = {}
  for name, value in pairs(t) do
    if type(value) == "function" and type(name) == "string" and name:find("^%l") then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  return names
end


-- Returns all methods of a class and its bases, or only its own.
local function list_methods(class, whole)
  local all = {}
  while class and class.class_name ~= "Object" do
    for _, name in ipairs(sorted(class)) do
      all[name] = all[name] or rawget(class, name)
    end
    class = whole and rawget(class, "super")
  end
  all.init, all.extend, all.new, all.extend_fields = nil, nil, nil, nil
  return all
end


-- Returns "A: x, y" for each base class whose methods a class has.
local function inherited(class, own)
  local list, base, seen = {}, rawget(class, "super"), {}
  while base and base.class_name ~= "Object" do
    for _, name in ipairs(sorted(base)) do
      local f = rawget(base, name)
      if find_address(f) and not seen[name] and (not own[name] or not find_address(own[name])) then
        seen[name] = true
        list[#list + 1] = { name = name, address = find_address(f) }
      end
    end
    base = rawget(base, "super")
  end
  return list
end


local function add_class(page, path, class, whole)
  if find_address(class) then
    return
  end
  local name = class.class_name
  local init = rawget(class, "init") or class.init
  local form = type(init) == "function" and manual.form(init, name)
  local is_method = form and form.func:find(":init$")    -- such as KVStore
  form = not is_method and form or nil
  local base = rawget(class, "super")
  local common = base and find_address(base) and type(base.init) == "function"
    and manual.form(base.init, base.class_name)
  local texts = { manual.class_entry(name),
    rawget(class, "init") and not is_method and manual.comment(init) or nil }
  if not texts[1] then
    texts = { texts[2] }
  end
  local item = described(page, "class", path, nil, form, texts, common or nil)
  item.class, item.base = class, common and common ~= form
    and { name = base.class_name, address = find_address(base) }
  addresses[key(class)] = item.address
  note(name, item.address)
  local methods = list_methods(class, whole)
  methods.init = is_method and init or nil
  for _, method in ipairs(sorted(methods)) do
    local f = methods[method]
    if not find_address(f) then
      add_function(page, name, method, f, class)
    end
  end
  item.methods = methods
end


-- Adds all members of a namespace: classes, bases before their subclasses, and functions.
local function add_namespace(page, space)
  local module, functions, classes = namespace(space), {}, {}
  for _, name in ipairs(members.list(module)) do
    local known, value = pcall(function() return module[name] end)
    local kind = known and type(value)
    if kind == "function" and (manual.comment(value) or manual.form(value, name)) then
      functions[#functions + 1] = name
    elseif kind == "table" and manual.is_class(value) and value.class_name == name then
      classes[#classes + 1] = name
    end
  end
  for _, name in ipairs(functions) do
    if not find_address(module[name]) then
      add_function(page, "ty." .. space, name, module[name])
    end
  end
  local function add(class)
    local base = rawget(class, "super")
    if base and rawget(module, base.class_name) == base then
      add(base)
    end
    add_class(page, "ty." .. space .. "." .. class.class_name, class)
  end
  for _, name in ipairs(classes) do
    add(module[name])
  end
end


-- Adds other names of known values, such as ty.cpu, ty.opt.SGD and ty.nd.random.uniform.
local function add_aliases(space, module, depth)
  for _, name in ipairs(members.list(module)) do
    local known, value = pcall(function() return module[name] end)
    local where = known and value ~= nil and find_address(value)
    if where then
      note(space .. "." .. name, where)
    elseif known and type(value) == "table" and not manual.is_class(value) and depth < 3 then
      add_aliases(space .. "." .. name, value, depth + 1)
    end
  end
end


-- Returns the comment of a namespace without the paragraph about its files; "" for one without a
-- module.
local function find_intro(space)
  local module = members.find_module(namespace(space))
  for _, entry in ipairs(module and comments.named(module:match("[%w_]+$")) or {}) do
    if entry.kind == "module" and entry.title == module:gsub("^tycho", "ty") then
      local text = table.concat(comments.parts(entry).lines, "\n") .. "\n"
      text = text:gsub("%s*%([%w_]+/[%w_]+%.lua%)", "")
      return (text:gsub("\nThe parts:.-\n\n", "\n\n"):gsub("\nThe parts:.*", "\n")
        :gsub("\nThe classes:.*", "\n"))
    end
  end
  return ""
end


local all

--- Returns all pages; see the top of the file.
function entries.pages()
  if all then
    return all
  end
  all = {}
  for i, row in ipairs(PAGES) do
    local page = { file = "reference_" .. row[1], title = row[2], entries = {}, intro = "" }
    all[i] = page
    for k = 3, #row do
      local space, class = row[k]:match("^([%w_.]+)%.(%u[%w_]*)$")
      if class then
        add_class(page, "ty." .. row[k], namespace(space)[class], row.whole)
      else
        add_namespace(page, row[k])
      end
      if k == 3 or not class then
        local text = find_intro(space or row[k])
        page.intro = page.intro .. (page.intro:find(text, 1, true) and "" or text .. "\n")
      end
    end
  end
  for _, page in ipairs(all) do
    for _, item in ipairs(page.entries) do
      item.inherited = item.class and inherited(item.class, item.methods) or {}
    end
  end
  add_aliases("ty", ty, 1)
  return all
end


-- Addresses ---------------------------------------------------------------------------------------

-- Usual names of variables in guides.
local VARIABLES = { mod = "Module", exe = "Executor", net = "Symbol", sym = "Symbol", x = "NDArray",
  it = "DataIter", kv = "KVStore" }


--- Returns the address of a name's description: "ty.io.NDArrayIter", "Module:fit", "mod:fit{...}",
-- "fit".
-- @string code
function entries.address(code)
  entries.pages()
  local name, rest = code:match("^([%a_][%w_%.:]*)(.*)$")
  if not name or not (rest == "" or rest:find("^[%({]")) then
    return nil
  end
  local variable, method = name:match("^(%l+):([%w_]+)$")
  if variable then
    name = (VARIABLES[variable] or "?") .. ":" .. method
  end
  return by_name[name] or by_name["ty." .. name]
    or not name:find("[.:]") and #name > 3 and last_names[name] or nil
end


--- Returns the options that are explained neither in their row nor in the text above.
function entries.silent(pages)
  local list = {}
  for _, page in ipairs(pages) do
    for _, item in ipairs(page.entries) do
      local above = table.concat(item.lines, "\n")
      for _, p in ipairs(item.options) do
        local word = "%f[%w_]" .. p.name:gsub("%p", "%%%0") .. "%f[^%w_]"
        if p.text == "" and not above:find(word) then
          list[#list + 1] = item.title .. ": " .. p.name
        end
      end
    end
  end
  return list
end


return entries

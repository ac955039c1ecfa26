-- The search of the pages: what people type, and the page that must be among the first three.

local shell = require "spec.support.shell"

-- a query, and the file of a page that answers it
local QUERIES = {
  { "how to save model", "saving" },
  { "learning rate decay", "optimizers" },
  { "conv2d", "operators_layers" },
  { "load mnist", "reference_iterators" },
  { "freeze weights", "fine_tuning" },
  { "early stopping", "watching" },
  { "dataloader", "data" },
  { "multi gpu", "gpu" },
  { "tensorboard", "watching" },
  { "data augmentation", "images" },
  { "image classification", "images" },
  { "gelu", "operators_layers" },
  { "weight decay", "optimizers" },
  { "attention", "attention" },
  { "transformer", "attention" },
  { "reinforcement learning", "reinforcement" },
  { "loss is nan", "debugging" },
  { "jupyter notebook", "notebook" },
  { "batch norm", "operators_layers" },
  { "dropout", "operators_layers" },
  { "lstm", "cells" },
  { "gluon", "gluon" },
  { "hybridize", "gluon" },
  { "pytorch", "from_pytorch" },
  { "custom operator", "writing_an_operator" },
  { "gradient clipping", "reference_module" },
  { "mixed precision", "optimizers" },
  { "out of memory", "executors" },
  { "resume training", "saving" },
  { "top k accuracy", "metrics" },
  { "xavier initialization", "initializers" },
  { "train on several machines", "scale_out" },
  { "deploy without lua", "deployment" },
  { "embedding layer", "operators_layers" },
  { "cosine schedule", "optimizers" },
  { "convert to numpy", "reference_ndarray" },
  { "slicing arrays", "indices" },
  { "print model summary", "reference_pictures" },
  { "profile slow code", "reference_profiler" },
  { "random seed", "reference_random" },
  { "read csv file", "data" },
  { "cross entropy loss", "operators_layers" },
  { "one hot", "operators_math" },
  { "matmul", "operators_math" },
  { "pretrained weights", "fine_tuning" },
  { "variable length sequences", "bucketing" },
  { "object detection", "images" },
  { "plot loss curve", "watching" },
  { "torch.cat", "operators_layers" },
  { "state_dict", "reference_module" },
  { "requires_grad", "fine_tuning" },
  { "coming from pytorch", "from_python" },
  { "fit", "reference_module" },
  { "getting started", "first_hour" },
  { "visualize network", "reference_pictures" },
  { "repl", "first_hour" },
  { "transposed convolution", "operators_layers" },
  { "count parameters", "reference_pictures" },
  { "get intermediate layer output", "reference_symbol" },
}

-- Queries of other kinds: unfinished words, none that is known, signs, words that say nothing.
local ODD = { "FullyConn", "fullyc", "optimiz", "qwertzuiop", "freeze qwertzuiop weights", "how to", "",
  "  ", "x_y", "constructor __proto__ toString", "save, load & resume?", "Größe", "a" }

local found = {}                         -- query -> list of {address, title}

local function quoted(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

setup(function()
  local words = {}
  for _, row in ipairs(QUERIES) do
    words[#words + 1], found[row[1]] = quoted(row[1]), {}
  end
  for _, query in ipairs(ODD) do
    words[#words + 1], found[query] = quoted(query), {}
  end
  local output, status = shell.tycho("scripts/dev/doc.lua --find " .. table.concat(words, " "))
  assert(status == 0, output)
  for query, rank, address, title in output:gmatch("([^\t\n]*)\t(%d+)\t([^\t\n]*)\t([^\t\n]*)\n") do
    table.insert(found[query], { address, title })
    assert(#found[query] == tonumber(rank))
  end
end)

local function first_three(query)
  local list = {}
  for i = 1, math.min(3, #found[query]) do
    list[i] = found[query][i][1]
  end
  return list
end

describe("the search of the pages", function()
  for _, row in ipairs(QUERIES) do
    local query, page = unpack(row)
    it(("answers '%s' with %s"):format(query, page), function()
      local pages = {}
      for _, address in ipairs(first_three(query)) do
        pages[address:match("^[^.]*")] = true
      end
      assert.truthy(pages[page], table.concat(first_three(query), " "))
    end)
  end

  it("needs not all words, and none of those that say nothing", function()
    assert.same(first_three("freeze weights"), first_three("freeze qwertzuiop weights"))
    assert.same({}, found["qwertzuiop"])
    assert.same({}, found[""])
  end)

  it("finds words that are not finished", function()
    assert.equal("operators_layers.html#fullyconnected", found["FullyConn"][1][1])
    assert.equal(found["FullyConn"][1][1], found["fullyc"][1][1])
    assert.is_true(#found["optimiz"] > 3)
  end)

  it("puts guides before the pages for developers", function()
    local developers = { ARCHITECTURE = true, source_tour = true, decisions = true,
      performance = true, reliability = true }
    for query in pairs(found) do
      for _, address in ipairs(first_three(query)) do
        assert.falsy(developers[address:match("^[^.]*")], query .. ": " .. address)
      end
    end
  end)

  -- the last row of a long table, far after the beginning of its section
  it("knows the whole text of a section", function()
    local output = shell.tycho("scripts/dev/doc.lua --find 'numpy set_printoptions waitall'")
    assert.truthy(output:match("\t1\tfrom_python%.html") or output:match("\t2\tfrom_python%.html")
      or output:match("\t3\tfrom_python%.html"), output)
  end)

  -- find.js in a JavaScript of this machine
  it("gives the same in JavaScript", function()
    local node = shell.run("command -v node"):match("[^\n]+")
    if not node then
      pending("no Node.js on this machine")
      return
    end
    local folder = os.tmpname()
    local output, status = shell.run(("rm -f %s && %s scripts/dev/doc.lua %s")
      :format(folder, shell.program, folder))
    assert.equal(0, status, output)
    local list = {}
    for query in pairs(found) do
      list[#list + 1] = ("%q"):format(query)
    end
    local file = assert(io.open(folder .. "/ask.js", "wb"))
    file:write(assert(io.open(folder .. "/search.js", "rb")):read("*a"), "\n[",
      table.concat(list, ","), "].forEach(function (query) {\n",
      'SEARCH.find(query).forEach(function (row, i) {\n',
      'console.log([query, i + 1, row[2], row[0]].join("\\t")); }); });\n')
    file:close()
    output, status = shell.run(("env -u LD_PRELOAD %s %s/ask.js; s=$?; rm -rf %s; (exit $s)")
      :format(node, folder, folder))
    assert.equal(0, status, output)
    local count, rows = 0, {}
    for query, rank, address in output:gmatch("([^\t\n]*)\t(%d+)\t([^\t\n]*)\t[^\n]*\n") do
      rows[query] = rows[query] or {}
      rows[query][tonumber(rank)], count = address, count + 1
    end
    for query, want in pairs(found) do
      local got = rows[query] or {}
      assert.equal(#want, #got, query)
      for i, row in ipairs(want) do
        assert.equal(row[1], got[i], query)
      end
    end
    assert.is_true(count > 500, count)
  end)
end)

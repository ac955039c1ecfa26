-- Words that names in the code may not contain: each stood for a concept of our own, or for
-- several, for which there is an established word. Names are split at underscores and capitals
-- ("best_place", "bestPlace"); comments and strings are not checked.

local source = require "check.source"

local words = {}

-- word -> replacement
local REPLACED = {
  absorb = "fuse", absorbed = "fused",
  arr = "operand",
  award = "scatter_argmax",
  bank = "shared_arrays",
  blame = "add the node to the error",
  chance = "random",
  dear = "expensive, costs",
  far = "distance, limit, or what it is far from",
  keeper = "shared packed weight",
  lends = "shared packed weight",
  lesson = "fused update", teacher = "fused update",
  lives = "liveness, lifetimes",
  place = "offset, index, argmax, position, device, slot", places = "offsets, indices, positions",
  recipe = "cached call",
  question = "call key",
  room = "scratch, workspace, capacity, bytes", rooms = "bytes, capacities",
  soon = "prefetch",
  somebody = "a reader",
  spread = "repeat, scatter, deviation", spreads = "repeat, scatter",
  studio = "scratch",
  tape = "pointwise program", tapes = "pointwise programs",
  theirs = "oneDNN, OpenBLAS",
  tier = "planning of ours",
  twin = "clone",
  winner = "argmax",
  wish = "request",
}

-- Exceptions: names in users' code, established terms, the checks of rooms.
local KEPT = {
  { "^native/tycho%.h$", "place" }, { "^native/exec/", "place" },
  { "^native/lazy/build", "place" }, { "^native/lazy/build", "ty_place" },
  { "^native/pass/device_placement", "place" }, { "^native/pass/rewrite%.h$", "ty_place" },
  { "^runtime/lua/tycho/executor/bind_args", "place" }, { "^runtime/lua/tycho/core/ffi", "tapes" },
  { "", "in_place" }, { "", "IN_PLACE" }, { "", "MPI_IN_PLACE" },
}

local function may_stay(path, name, word)
  for _, kept in ipairs(KEPT) do
    if path:find(kept[1]) and (kept[2] == word or name:find(kept[2], 1, true)) then
      return true
    end
  end
end

-- Calls f for each word of a name, in lower case.
local function each_word(name, f)
  for part in name:gsub("(%l)(%u)", "%1_%2"):gmatch("%a+") do
    f(part:lower())
  end
end

function words.check(report, path)
  for i, line in ipairs(source.read(path).code) do
    for name in line:gmatch("[%a_][%w_]*") do
      each_word(name, function(word)
        if REPLACED[word] and not may_stay(path, name, word) then
          report(path, i, "the name %s has the word '%s', say %s", name, word, REPLACED[word])
        end
      end)
    end
  end
end

return words

-- How busted reports here: failures as they happen, skips grouped by their reason, one
-- line of counts at the end. `busted -Xoutput summary` adds a table of passed, failed
-- and skipped tests per group.

local LISTED = 3                                         -- names shown for one reason to skip

local function first_words(text, n)
  text = tostring(text):gsub("^[^\n]-%.lua:%d+: ", "")
  return #text > n and text:sub(1, n) .. " ..." or text
end

local function place(failure)
  local trace = failure.trace or failure.element.trace
  return trace and trace.short_src
    and ("%s:%s"):format(trace.short_src, tostring(trace.currentline)) or "?"
end

local function message(failure)
  local text = failure.message
  if text == nil then
    return "no message"
  elseif type(text) == "table" and not (getmetatable(text) or {}).__tostring then
    return require("pl.pretty").write(text)
  end
  return tostring(text)
end

local function print_failure(failure)
  io.write("FAIL ", failure.name, "  (", place(failure), ")\n  ",
    (first_words(message(failure), 4000):gsub("\n", "\n  ")), "\n")
  io.flush()
end

local function print_skips(pendings)
  local reasons, order = {}, {}
  for _, p in ipairs(pendings) do
    local reason = type(p.message) == "string" and first_words(p.message, 200) or "pending"
    if not reasons[reason] then
      reasons[reason] = {}
      order[#order + 1] = reason
    end
    table.insert(reasons[reason], p.name)
  end
  for _, reason in ipairs(order) do
    local names = reasons[reason]
    local shown = table.concat(names, "; ", 1, math.min(LISTED, #names))
    io.write(("skip %d: %s (%s%s)\n"):format(#names, reason, shown,
      #names > LISTED and "; ..." or ""))
  end
end

local function print_summary(groups)
  local names = {}
  for name in pairs(groups) do
    names[#names + 1] = name
  end
  table.sort(names)
  io.write(("%6s %6s %6s  group\n"):format("passed", "failed", "skipped"))
  for _, name in ipairs(names) do
    local g = groups[name]
    io.write(("%6d %6d %6d  %s\n"):format(g.success or 0, (g.failure or 0) + (g.error or 0),
      g.pending or 0, name))
  end
end

return function(options)
  local busted = require "busted"
  local handler = require "busted.outputHandlers.base"()
  local groups, summary = {}, false
  for _, word in ipairs(options.arguments or {}) do
    summary = summary or word == "summary"
  end

  local function test_end(element, _, status)
    local parent = busted.parent(element)
    local group = parent and handler.getFullName(parent) or "?"
    groups[group] = groups[group] or {}
    groups[group][status] = (groups[group][status] or 0) + 1
    return nil, true
  end

  local function failed(element, parent, text, debug)
    print_failure(handler.format(element, parent, text, debug))
    return nil, true
  end

  local function suite_end()
    print_skips(handler.pendings)
    if summary then
      print_summary(groups)
    end
    io.write(("%d passed, %d failed, %d skipped\n"):format(
      handler.successesCount, handler.failuresCount + handler.errorsCount, handler.pendingsCount))
    io.flush()
    return nil, true
  end

  busted.subscribe({ "test", "end" }, test_end)
  busted.subscribe({ "failure" }, failed)
  busted.subscribe({ "error" }, failed)
  busted.subscribe({ "suite", "end" }, suite_end)
  return handler
end

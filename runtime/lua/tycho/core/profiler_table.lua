--- The profiler's sums as text: a table for people, JSON for programs.
--
-- @module tycho.core.profiler_table

local pairs = require("tycho.core.iterate").pairs
local json = require "tycho.core.json"

local profiler_table = {}

local NAME, NUMBER = 44, 15                              -- widths of columns, characters

-- Sections in the order of the table; the users' own domains follow by name, counters last.
local SECTIONS = {
  { key = "operator", title = "Operators of executors" },
  { key = "imperative", title = "Functions and copies" }, { key = "api", title = "Calls" },
}
local LAST = {
  { key = "memory", title = "Memory", unit = "kB", by = 1e3, counts = true },
  { key = "counter", title = "Counters", unit = "value", by = 1, counts = true },
}


local function section_of(row)
  return row.kind == "counter" and row.category ~= "memory" and "counter" or row.category
end


-- Returns the rows merged by name: per section, name -> {name, count, total, min, max}. Marks,
-- which have no length, are left out.
local function merged(rows)
  local found = {}
  for _, row in ipairs(rows) do
    local key = row.kind ~= "mark" and section_of(row)
    local names = key and (found[key] or {}) or {}
    local sum = names[row.name]
    if key then
      found[key] = names
    end
    if sum then
      sum.count, sum.total = sum.count + row.count, sum.total + row.total
      sum.min, sum.max = math.min(sum.min, row.min), math.max(sum.max, row.max)
    else
      names[row.name] = { name = row.name, count = row.count, total = row.total,
        min = row.min, max = row.max }
    end
  end
  return found
end


local function sorted(names, key, ascending)
  local list = {}
  for _, sum in pairs(names) do
    sum.avg = sum.total / sum.count
    list[#list + 1] = sum
  end
  table.sort(list, function(a, b)
    if a[key] ~= b[key] then
      return (a[key] < b[key]) == ascending
    end
    return a.name < b.name
  end)
  return list
end


local function own_domains(found)
  local known, list = {}, {}
  for _, part in ipairs{ SECTIONS, LAST } do
    for _, section in ipairs(part) do
      known[section.key] = true
    end
  end
  for key in pairs(found) do
    if not known[key] then
      list[#list + 1] = { key = key, title = key }
    end
  end
  table.sort(list, function(a, b) return a.key < b.key end)
  return list
end


-- Returns the sections that have rows: a list of {key, title, unit, by, counts, rows}.
local function sections(rows, key, ascending)
  local found, list = merged(rows), {}
  for _, part in ipairs{ SECTIONS, own_domains(found), LAST } do
    for _, s in ipairs(part) do
      if found[s.key] then
        list[#list + 1] = { key = s.key, title = s.title, unit = s.unit or "ms", by = s.by or 1e6,
          counts = s.counts, rows = sorted(found[s.key], key, ascending) }
      end
    end
  end
  return list
end


local function line(name, ...)
  local cells = { #name > NAME and name:sub(1, NAME - 3) .. "..."
    or name .. (" "):rep(NAME - #name) }
  for _, cell in ipairs{ ... } do
    cells[#cells + 1] = (" "):rep(NUMBER - #cell) .. cell
  end
  return table.concat(cells)
end


local function number(x)
  return ("%.4f"):format(x)
end


--- Returns the statistics as a text table with one section per category.
-- @tparam table rows of `profiler.sums`
-- @string key "total", "avg", "min", "max" or "count"
-- @bool ascending
function profiler_table.table(rows, key, ascending)
  local lines = { "Profile statistics" }
  for _, section in ipairs(sections(rows, key, ascending)) do
    local unit = " (" .. section.unit .. ")"
    local head = line("Name", "Count", "Total" .. unit, "Min" .. unit,
      "Max" .. unit, "Average" .. unit)
    for _, text in ipairs{ "", section.title, ("="):rep(#section.title), head, ("-"):rep(#head) } do
      lines[#lines + 1] = text
    end
    for _, sum in ipairs(section.rows) do
      lines[#lines + 1] = line(sum.name, ("%d"):format(sum.count),
        section.counts and "-" or number(sum.total / section.by), number(sum.min / section.by),
        number(sum.max / section.by), number(sum.avg / section.by))
    end
  end
  return table.concat(lines, "\n") .. "\n"
end


local function sums_object(section)
  local names = json.object{}
  for i, sum in ipairs(section.rows) do
    names[i] = { sum.name, json.object{ { "Count", sum.count }, { "Total", sum.total / section.by },
      { "Min", sum.min / section.by }, { "Max", sum.max / section.by },
      { "Avg", sum.avg / section.by } } }
  end
  return names
end


--- Returns the statistics as JSON text:
-- `{"Time": {section: {name: {"Count", "Total", "Min", "Max", "Avg"}}}, "Memory": {name: ...},
-- "Counter": {name: ...}, "Unit": {"Time": "ms", "Memory": "kB"}}`.
function profiler_table.json(rows, key, ascending)
  local time, others = json.object{}, { memory = json.object{}, counter = json.object{} }
  for _, section in ipairs(sections(rows, key, ascending)) do
    if section.counts then
      others[section.key] = sums_object(section)
    else
      time[#time + 1] = { section.key, sums_object(section) }
    end
  end
  return json.text(json.object{ { "Time", time }, { "Memory", others.memory },
    { "Counter", others.counter },
    { "Unit", json.object{ { "Time", "ms" }, { "Memory", "kB" } } } })
end


return profiler_table

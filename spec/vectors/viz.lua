-- training/viz.json: tables of networks, and the DOT text of their drawings.

local faults = require "spec.support.faults"
local json = require "spec.support.json"
local tables = require "spec.support.tables"
local ty = require "tycho"

-- Runs f with what it prints thrown away.
local function quietly(f)
  local before, void = io.output(), assert(io.open("/dev/null", "w"))
  io.output(void)
  local ok, result = pcall(f)
  io.output(before)
  void:close()
  return ok and result or error(result, 0)
end

local function load_symbol(case)
  return case.symbol ~= json.null and ty.sym.load_json(json.encode(case.symbol)) or 3
end

local function given(v)
  return v ~= json.null and v or nil
end

-- Returns the cells of the table's lines; a line without a name continues the row above.
local function read_rows(text, length)
  local rows, total = {}, tonumber(text:match("\nTotal params: (%d+)\n"))
  local ends, started = { 0.44 * length, 0.64 * length, 0.74 * length, length }, false
  for line in text:gmatch("[^\n]+") do
    local cells = {}
    for i, last in ipairs(ends) do
      cells[i] = line:sub((ends[i - 1] or 0) + 1, last):gsub("%s+$", "")
    end
    local name, op = cells[1]:match("^(.-)%(([^()]*)%)$")
    if line:find("^Total") then
      break
    elseif started and name then
      rows[#rows + 1] = { name, op, cells[2], tonumber(cells[3]),
        { cells[4] ~= "" and cells[4] or nil } }
    elseif started and not line:find("^[_=]") then
      table.insert(rows[#rows][5], cells[4])
    end
    started = started or line:find("^=") ~= nil
  end
  return { rows = rows, total = total }
end

local function summary(case)
  local length = given(case.line_length) or 120
  local text = quietly(function()
    return ty.viz.print_summary(load_symbol(case), { shape = given(case.shape),
      line_length = length, positions = given(case.positions) })
  end)
  return case.text and { text = text } or read_rows(text, length)
end

local UNESCAPED = { ["\\n"] = "\n", ['\\"'] = '"', ["\\\\"] = "\\" }

local function attributes(text)
  local dict = {}
  for key, value in text:gmatch('(%w+)="(.-)"') do
    dict[key] = value:gsub('\\.', UNESCAPED)
  end
  local label = dict.label
  dict.label = nil
  return label, dict
end

-- Changes the expectation of a case whose counts, or whose text without shapes, are a fault of the
-- reference: all else is compared.
local function expect_ours(case)
  local name = case.name:gsub("^text_", "summary_")
  if faults.of("viz", name, "text") then
    case.expect = { error = "shape" }
  elseif faults.of("viz", name, "counts") then
    local length = given(case.line_length) or 120
    case.expect = case.text and read_rows(case.expect.text, length) or case.expect
    case.text, case.without_counts = nil, true
  end
end

local function without_counts(table_of)
  for _, row in ipairs(table_of.rows) do
    row[4] = 0
  end
  table_of.total = 0
  return table_of
end

local function plot(case)
  local count, sink = 0, ty.log.sink
  local options = { shape = given(case.shape) }
  for key, value in pairs(case.args or {}) do
    options[key] = value
  end
  ty.log.sink = function(level) count = count + (level == "warning" and 1 or 0) end
  local ok, graph = pcall(ty.viz.plot_network, load_symbol(case), options)
  ty.log.sink = sink
  if not ok then
    error(graph, 0)
  end
  local result = { nodes = {}, edges = {}, title = graph.source:match('^digraph "(.-)" {'),
    warnings = count }
  for line in graph.source:gmatch("\t([^\n]+)") do
    local tail, head = line:match('^"(.-)" %-> "(.-)" %[')
    local label, dict = attributes(line:match("%[(.*)%]$"))
    if tail then
      table.insert(result.edges, { tail, head, label, dict })
    else
      table.insert(result.nodes, { line:match('^"(.-)" %['), label, dict })
    end
  end
  return result
end

return {
  needs = { "tycho.viz" },
  define = function()
    for _, row in ipairs((tables.cases("viz", function(_, case)
      case.expect.format = nil                           -- "pdf" there; ours are drawn as SVG
      if case.kind == "summary" then
        expect_ours(case)
        if case.without_counts then
          without_counts(case.expect)
          return without_counts(summary(case))
        end
        return summary(case)
      end
      return plot(case)
    end))) do
      it(row.name, row.run)
    end
  end,
}

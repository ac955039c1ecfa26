--- Writes the results of scripts/dev/gpu_check.sh to doc/gpu.md, the section "What ran on which
-- GPU".
--   tycho scripts/dev/gpu_table.lua FOLDER     adds the run of that folder: doc/gpu_results.jsonl
--   tycho scripts/dev/gpu_table.lua            makes the section again
--   tycho scripts/dev/gpu_table.lua --check    status 1 where it is not what the results say
-- A run of the same device, day and commit replaces the earlier one. Results of a stand-in are not
-- written. GPU_TABLE_DOC names another folder than doc.
local cjson = require "cjson"

local DOC = os.getenv("GPU_TABLE_DOC") or "doc"
local RESULTS, PAGE = DOC .. "/gpu_results.jsonl", DOC .. "/gpu.md"
local HEADING = "## What ran on which GPU\n"
local STAND_IN = "cudasim"
local PARTS = { "platform", "train", "operators", "sanitizer", "bench", "specs", "vectors" }


local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end


local function write(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  assert(file:close())
end


-- Returns the runs: a list of {head, text, parts, rows}, in the order of the file. A part: {items,
-- by item}; a row: a line of the bench.
local function parse(text)
  local runs, run = {}, nil
  for line in text:gmatch("[^\n]+") do
    local r = cjson.decode(line)
    if r.device then
      run = { head = r, lines = {}, parts = {}, rows = {} }
      runs[#runs + 1] = run
    end
    assert(run, "results begin with the line of a device")
    run.lines[#run.lines + 1] = line
    local part = r.part and (run.parts[r.part] or { items = 0, order = {} })
    if r.part then
      run.parts[r.part] = part
      part.items = r.items or part.items
    end
    if r.item then
      part.order[#part.order + 1] = not part[r.item] and r.item or nil
      part[r.item] = r
    elseif r.figure then
      local key = r.figure .. " TF32 " .. r.tf32
      run.rows[#run.rows + 1] = not run.rows[key] and key or nil
      run.rows[key] = r
    end
  end
  return runs
end


-- Text --------------------------------------------------------------------------------------------

local function part_line(name, part)
  local passed, tests, failed, skipped, bad = 0, 0, 0, 0, {}
  for _, item in ipairs(part.order) do
    local r = part[item]
    passed = passed + (r.how == "passed" and 1 or 0)
    tests, failed, skipped = tests + r.passed, failed + r.failed, skipped + r.skipped
    if r.how ~= "passed" then
      bad[#bad + 1] = item .. " " .. r.how
    end
  end
  local missing = part.items - #part.order
  if missing > 0 then
    bad[#bad + 1] = missing .. " not reached"
  end
  return ("| %s | %d of %d | %d | %d | %d | %s |"):format(name, passed, part.items, tests, failed,
    skipped, table.concat(bad, ", "))
end


local function number(x)
  if not x then
    return ""
  end
  return (x >= 100 and "%.0f" or x >= 10 and "%.1f" or "%.2f"):format(x)
end


local function share(x)
  return x and ("%.0f %%"):format(100 * x) or ""
end


local function row_line(r)
  local seconds = r.ms and r.ms * 1e-3
  local unit = r.unit
  local scale = unit == "B/s" and 1e9 or unit == "FLOP/s" and 1e12 or 1
  unit = unit == "B/s" and "GB/s" or unit == "FLOP/s" and "TFLOP/s" or unit
  return ("| %s, %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |"):format(r.figure, unit,
    r.tf32, number(r.ours and r.ours / scale), number(r.torch and r.torch / scale),
    r.differs and "values differ" or number(r.ratio), number(r.ms),
    number(seconds and r.bytes / seconds * 1e-9), share(r.of_copy),
    number(seconds and r.flop / seconds * 1e-12), share(r.of_product), r.launches or "")
end


local function run_text(run)
  local h = run.head
  local out = { ("**%s**, driver %s, %s, %s; %s, commit %s:\n"):format(h.device,
    h.driver ~= "" and h.driver or "unknown", h.cuda, (h.libraries:gsub(",", ", ")), h.date,
    h.commit), "| Part | Items passed | Tests passed | Failed | Skipped | |",
    "|---|---|---|---|---|---|" }
  for _, name in ipairs(PARTS) do
    if run.parts[name] then
      out[#out + 1] = part_line(name, run.parts[name])
    end
  end
  if #run.rows > 0 then
    out[#out + 1] = "\n| Row | TF32 | Tycho | PyTorch, eager | Ratio | ms a step | GB/s "
      .. "| of a copy | TFLOP/s | of a product | Launches |\n"
      .. "|---|---|---|---|---|---|---|---|---|---|---|"
    for _, key in ipairs(run.rows) do
      out[#out + 1] = row_line(run.rows[key])
    end
    out[#out + 1] = "\nBytes are those of the operands of a step's kernels, each counted once; "
      .. "operations those of products and convolutions; the copy and the product were measured "
      .. "in the same run."
  end
  return table.concat(out, "\n") .. "\n"
end


local function section(runs)
  local out = { HEADING, "This section is generated from `doc/gpu_results.jsonl`, to "
    .. "which `scripts/dev/gpu_table.lua` adds the results of the check above.\n" }
  if #runs == 0 then
    out[#out + 1] = "**Nothing so far.** All test results on this page are of the stand-in.\n"
  end
  for _, run in ipairs(runs) do
    out[#out + 1] = run_text(run)
  end
  return table.concat(out, "\n")
end


-- Returns the page with its section replaced by `text`.
local function replaced(page, text)
  local from = assert(page:find(HEADING, 1, true), "the page has no " .. HEADING)
  local to = page:find("\n## ", from + #HEADING, true)
  return page:sub(1, from - 1) .. text .. (to and page:sub(to) or "")
end


-- Adding a run ------------------------------------------------------------------------------------

local function same(a, b)
  return a.device == b.device and a.date == b.date and a.commit == b.commit
end


local function add(folder)
  local new = parse(read(folder .. "/results.jsonl"))[1]
  assert(new, "the folder has no results")
  if new.head.device == STAND_IN or new.head.device == "" then
    io.stderr:write("gpu_table: a rehearsal on the stand-in; nothing is written\n")
    os.exit(1)
  end
  local lines = { table.concat(new.lines, "\n") }
  for _, run in ipairs(parse(read(RESULTS))) do
    if not same(run.head, new.head) then
      lines[#lines + 1] = table.concat(run.lines, "\n")
    end
  end
  write(RESULTS, table.concat(lines, "\n") .. "\n")
end


local checks = arg[1] == "--check"
if arg[1] and not checks then
  add(arg[1])
end
local page = read(PAGE)
local text = replaced(page, section(parse(read(RESULTS))))
if checks then
  os.exit(text == page and 0 or 1)
end
write(PAGE, text)

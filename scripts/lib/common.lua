--- Common parts of the training scripts: options, a log of epochs, a chart of it.
--
--     package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path
--
--     local common = require "common"
--     local parser = common.parser("What the script does.")
--     common.options(parser)                    -- adds --plot, --log, --tensorboard, --quick
--     local options = common.parse(parser, {epochs = 1})      -- what --quick means
--     local log = common.log(options)
--     log:epoch{epoch = 0, train = 0.91, valid = 0.93, seconds = 4.2}
--     log:close()                                             -- writes the chart
--
-- With `module:fit` the log fills itself:
--
--     local metric = ty.metric.create("acc")
--     local follow = log:follow(metric)
--     module:fit{..., eval_metric = metric, epoch_end_callback = follow.epoch_end,
--       eval_end_callback = follow.eval_end}

local argparse = require "argparse"
local json = require "tycho.core.json"
local ty = require "tycho"

local common = {}

local HIDDEN = {epoch = true, seconds = true}                 -- columns that are not curves

--- Returns a parser of the command line, named after the script.
-- @string description one sentence
function common.parser(description)
  return argparse(arg[0]:match("[^/]*$"), description):help_max_width(90)
end

--- Returns the function that argparse calls to convert an option's text to a number.
-- @string name
-- @number[opt] least
-- @number[opt] most
-- @bool[opt] whole
function common.to_number(name, least, most, whole)
  least, most = least or -math.huge, most or math.huge
  return function(text)
    local number = tonumber(text)
    if number and number >= least and number <= most and math.abs(number) < math.huge
        and (not whole or number % 1 == 0) then
      return number
    end
    local bounds = least > -math.huge
      and (most < math.huge and " of %g to %g" or " of at least %g"):format(least, most) or ""
    return nil, ("%s takes a %snumber%s, not '%s'"):format(name, whole and "whole " or "", bounds,
      text)
  end
end

--- Adds an option that is a number.
-- @param parser of argparse
-- @string name
-- @string description
-- @param default a number, or the text that the help shows for it
-- @number[opt] least
-- @number[opt] most
function common.number(parser, name, description, default, least, most)
  parser:option(name, description):convert(common.to_number(name, least, most))
    :default(tostring(default))
end

--- Adds an option that counts something.
-- @param parser of argparse
-- @string name
-- @string description
-- @int default
-- @int[opt=1] least
function common.count(parser, name, description, default, least)
  parser:option(name, description):convert(common.to_number(name, least or 1, nil, true))
    :default(tostring(default))
end

--- Adds an option with a list of whole numbers, separated by commas; the parsed value is a list.
-- @param parser of argparse
-- @string name
-- @string description
-- @return argparse's option
function common.counts(parser, name, description)
  return parser:option(name, description):convert(function(text)
    local list = {}
    for word in (text .. ","):gmatch("(.-),") do
      list[#list + 1] = word:find("^[1-9]%d*$") and tonumber(word) or nil
      if not word:find("^[1-9]%d*$") then
        return nil, ("%s takes numbers from 1 between commas, not '%s'"):format(name, text)
      end
    end
    return list
  end)
end

--- Adds `--gpus` to a parser.
-- @param parser of argparse
-- @string[opt] help text for the help
function common.gpus(parser, help)
  parser:option("--gpus", help or "GPUs to train on, as 0,1; default: the CPU")
end

--- Adds `--plot`, `--log`, `--tensorboard` and `--quick` to a parser.
-- @param parser of argparse
-- @return parser
function common.options(parser)
  parser:option("--plot", "file, .svg or .png, to draw the curves of this training into")
  parser:option("--log", "file that gets one line of JSON per epoch")
  parser:option("--tensorboard", "folder for event files, which TensorBoard shows")
  parser:flag("--quick", "a small training of a few seconds, to see that everything works")
  return parser
end

--- Adds the options that every training has, with their defaults, and those that `common.options`
-- adds.
-- @param parser of argparse
-- @tparam table defaults epochs, batch, rate; momentum or nil; gpus: the help of `--gpus`
function common.training(parser, defaults)
  common.count(parser, "--epochs", "passes over the training data", defaults.epochs)
  common.count(parser, "--batch", "samples per step", defaults.batch)
  common.number(parser, "--rate", "learning rate", defaults.rate, 0)
  if defaults.momentum then
    common.number(parser, "--momentum", "share of the last step that is kept", defaults.momentum,
      0, 1)
  end
  common.count(parser, "--seed", "seed of weights, drawn data and shuffling", 1, 0)
  common.gpus(parser, defaults.gpus)
  parser:option("--checkpoint", "prefix of files to keep the training in after each epoch")
  parser:flag("--resume", "continue from the checkpoint, bit by bit as without the interruption")
  return common.options(parser)
end

--- Returns the devices in `--gpus`, by default the CPU.
-- @tparam table options
-- @treturn {Context,...}
function common.devices(options)
  local list = {}
  for id in (options.gpus or ""):gmatch("%d+") do
    list[#list + 1] = ty.gpu(tonumber(id))
  end
  return #list > 0 and list or {ty.cpu()}
end

-- The help of `--gpus` in scripts that use one device.
common.ONE_GPU = "GPU to train on, as 0; default: the CPU"

--- Returns the device in `--gpus`, by default the CPU, for a script that uses one device; several
-- are an error.
-- @param parser of argparse
-- @tparam table options
-- @treturn Context
function common.device(parser, options)
  local list = common.devices(options)
  if #list > 1 then
    parser:error("--gpus: this script trains on one GPU, not on " .. options.gpus)
  end
  return list[1]
end

-- Ends with an error for --resume without a saved training.
local function check_resume(parser, options)
  if options.resume and not options.checkpoint then
    parser:error("--resume needs --checkpoint")
  elseif options.resume then
    local path = options.checkpoint .. ".state"
    local file = io.open(path, "rb") or parser:error("--resume: there is no file " .. path)
    file:close()
  end
end

local EEXIST = 17

-- Ends with an error for files that cannot be written: checks whether files can be made in their
-- folders.
local function check_paths(parser, options)
  if options.plot and not options.plot:lower():find("%.[ps][nv]g$") then
    parser:error("--plot takes a name that ends in .svg or .png, not " .. options.plot)
  end
  for _, name in ipairs{"plot", "log", "checkpoint"} do
    local path = options[name]
    if path then
      local probe = path .. ".writable"
      local file, why, code = io.open(probe, "wbx")
      if not file and code ~= EEXIST then
        parser:error(("--%s: cannot write to %s: %s"):format(name, path, why:gsub("^.*: ", "")))
      end
      if file then
        file:close()
        os.remove(probe)
      end
    end
  end
end

-- Ends with an error if the path of --data does not exist.
local function check_data(parser, options)
  local file = options.data and io.open(options.data)
  if file then
    file:close()
  elseif options.data then
    parser:error("--data: there is no " .. options.data)
  end
end

-- Ends with an error unless --gpus is a list of numbers separated by commas.
local function check_gpus(parser, options)
  if options.gpus and not options.gpus:find("^%d+[%d,]*$") then
    parser:error("--gpus takes numbers, as 0,1, not " .. options.gpus)
  end
end

--- Parses the options; with `--quick`, options that were not given get other values.
-- @param parser of argparse
-- @tparam table values values for `--quick` by name of option (`epochs = 1`)
-- @return the parsed options
function common.parse(parser, values)
  local given = {}
  for _, word in ipairs(arg) do
    given[word:match("^%-%-([%w-]+)") or ""] = true
  end
  local options = parser:parse()
  for name, value in pairs(options.quick and values or {}) do
    if not given[name:gsub("_", "-")] then
      options[name] = value
    end
  end
  check_data(parser, options)
  check_resume(parser, options)
  check_paths(parser, options)
  check_gpus(parser, options)
  return options
end


-- The log -----------------------------------------------------------------------------------------

local Log = {}
Log.__index = Log

-- Returns numbers in seven digits; numbers that are not finite become null.
local function plain(value)
  if type(value) ~= "number" then
    return value
  end
  return value == value and math.abs(value) < math.huge
    and tonumber(("%.7g"):format(value)) or ty.null
end

-- Returns a row as a line of JSON: epoch first, then by name.
local function make_line(row)
  local names, pairs_ = {}, {}
  for name in pairs(row) do
    names[#names + 1] = name
  end
  table.sort(names, function(a, b)
    return a == "epoch" and b ~= "epoch" or b ~= "epoch" and a < b
  end)
  for i, name in ipairs(names) do
    pairs_[i] = {name, plain(row[name])}
  end
  return json.text(json.object(pairs_))
end

-- Returns the rows in the log that an earlier part of this training wrote.
local function earlier_rows(path)
  local rows, file = {}, io.open(path)
  for line in file and file:lines() or function() end do
    rows[#rows + 1] = json.parse(line, path)
  end
  if file then
    file:close()
  end
  return rows
end

--- Returns a log of epochs. After `--resume` the chart begins with the rows in the file.
-- @tparam table options `log` and `plot`: file names or nil; `tensorboard`: a folder or nil;
--   `resume`: whether a training continues
-- @tparam[opt] Writer writer an existing writer for the folder
-- @treturn Log
function common.log(options, writer)
  local going_on = options.log and options.resume
  return setmetatable({
    path = options.log, plot = options.plot, rows = going_on and earlier_rows(options.log) or {},
    writer = writer or options.tensorboard and ty.tensorboard.Writer{dir = options.tensorboard},
    started = ty.callback.clock(), title = (arg[0]:match("[^/]*$"):gsub("%.lua$", "")),
  }, Log)
end

--- Stores the figures of an epoch and appends them to the file.
-- @tparam table row `epoch` (from 0) and figures by name
function Log:epoch(row)
  self.rows[#self.rows + 1] = row
  if self.path then
    local file = assert(io.open(self.path, "a"))
    file:write(make_line(row), "\n")
    file:close()
  end
  for name, value in pairs(self.writer and row or {}) do
    if type(value) == "number" and not HIDDEN[name] then
      self.writer:add_scalar("epoch/" .. name, value, row.epoch)
    end
  end
  if self.writer then
    self.writer:flush()
  end
end

--- Returns callbacks for `fit` that log the metric over the training data as `train` and over the
-- validation data as `valid`.
-- @param metric the metric that is given to `fit`
-- @treturn table {epoch_end = f, eval_end = f}
function Log:follow(metric)
  local train
  return {
    epoch_end = function()
      train = select(2, metric:get_global())
    end,
    eval_end = function(param)
      local now = ty.callback.clock()
      local _, valid = param.eval_metric:get()
      self:epoch{epoch = param.epoch, train = train, valid = valid, seconds = now - self.started}
      self.started = now
    end,
  }
end

-- Returns curves by name over the epochs; a later row of an epoch replaces an earlier one.
local function make_curves(rows)
  local last, curves = {}, {}
  for i, row in ipairs(rows) do
    last[row.epoch] = i
  end
  for i, row in ipairs(rows) do
    for name, y in pairs(last[row.epoch] == i and row or {}) do
      if type(y) == "number" and y == y and math.abs(y) < math.huge and not HIDDEN[name] then
        curves[name] = curves[name] or {x = {}, y = {}}
        table.insert(curves[name].x, row.epoch)
        table.insert(curves[name].y, y)
      end
    end
  end
  return curves
end

--- Draws the chart if `plot` is set, and closes the event file.
function Log:close()
  if self.writer then
    self.writer:close()
  end
  if not self.plot then
    return
  end
  ty.viz.plot(make_curves(self.rows), {title = self.title, x_label = "epoch", split = true,
    ends = true}):save(self.plot)
end


-- Training ----------------------------------------------------------------------------------------

--- Trains a module according to the options of `common.training`: with checkpoints
-- (PREFIX-symbol.json and PREFIX-0003.params for `score.lua` and `predict.lua`, PREFIX.state for
-- resuming), a log and a chart.
-- @tparam table options
-- @param module
-- @tparam table fit further options of `module:fit`; eval_data and eval_metric are required
-- @treturn number the final value of the metric over eval_data
function common.fit(options, module, fit)
  local metric = ty.metric.create(fit.eval_metric)
  local board = options.tensorboard and ty.callback.TensorBoard{dir = options.tensorboard,
    hparams = {batch = options.batch, rate = options.rate, momentum = options.momentum,
      seed = options.seed}} or nil
  local log = common.log(options, board and board.writer)
  local follow = log:follow(metric)
  local ends = {follow.epoch_end}
  if options.checkpoint then
    ends[2] = ty.callback.do_checkpoint(options.checkpoint)
    fit.checkpoint = {prefix = options.checkpoint, resume = options.resume or false}
  end
  ends[#ends + 1] = board
  fit.eval_metric, fit.num_epoch, fit.epoch_end_callback, fit.eval_end_callback =
    metric, options.epochs, ends, {follow.eval_end, board}
  fit.batch_end_callback = board and {board, fit.batch_end_callback} or fit.batch_end_callback
  module:fit(fit)
  log:close()
  fit.eval_data:reset()
  return module:score(fit.eval_data, metric)[1][2]
end

return common

--- Contents of event files as Protocol Buffers messages: scalars, histograms, images, texts,
-- hyperparameters. Each function returns a `Summary.Value`.
--
-- Source of the field numbers: tensorflow/core/framework/summary.proto, tensor.proto,
-- tensor_shape.proto, tensorboard/plugins/hparams/{plugin_data,api}.proto,
-- google/protobuf/struct.proto.
--
-- @module tycho.tensorboard.summary

local codec = require "tycho.ndarray.image_codec"
local message = require("tycho.core.wire_writer").message
local pairs = require("tycho.core.iterate").pairs

local summary = {}

local DT_FLOAT, DT_STRING = 1, 7         -- DataType
local STATUS_SUCCESS = 1                 -- hparams.Status


-- Returns a message whose fields `fill` writes.
local function make_message(fill)
  local m = message()
  fill(m)
  return m
end


-- Returns a SummaryMetadata: the name of the plugin that reads the data, and content for it.
local function make_metadata(plugin, content)
  return make_message(function(m)
    m:message(1, make_message(function(data)
      data:text(1, plugin)
      if content then
        data:message(2, content)
      end
    end))
  end)
end


--- Returns the summary of a number.
-- @string tag
-- @number value
function summary.scalar(tag, value)
  return make_message(function(m)
    m:text(1, tag)
    m:float(2, value)
  end)
end


--- Returns the summary of a distribution. TensorBoard draws bucket i between edges i - 1 and i.
-- @string tag
-- @tparam table h count, low, high, sum, squares, edges (upper ends of the bins), counts
function summary.histogram(tag, h)
  return make_message(function(m)
    m:text(1, tag)
    m:message(5, make_message(function(histogram)
      histogram:double(1, h.low)
      histogram:double(2, h.high)
      histogram:double(3, h.count)
      histogram:double(4, h.sum)
      histogram:double(5, h.squares)
      histogram:doubles(6, h.edges)
      histogram:doubles(7, h.counts)
    end))
  end)
end


--- Returns the summary of an image, as PNG.
-- @string tag
-- @tparam NDArray pixels (height, width, channels) uint8
-- @string func for errors
function summary.image(tag, pixels, func)
  local shape = pixels.shape
  return make_message(function(m)
    m:text(1, tag)
    m:message(4, make_message(function(image)
      image:integer(1, shape[1])
      image:integer(2, shape[2])
      image:integer(3, shape[3])
      image:text(4, codec.encode(pixels, nil, "png", func))
    end))
  end)
end


--- Returns the summary of a text, which TensorBoard reads as Markdown.
-- @string tag
-- @string text
function summary.text(tag, text)
  return make_message(function(m)
    m:text(1, tag)
    m:message(9, make_metadata("text"))
    m:message(8, make_message(function(tensor)
      tensor:integer(1, DT_STRING)
      tensor:message(2, make_message(function(shape)
        shape:message(2, make_message(function(size) size:integer(1, 1) end))
      end))
      tensor:text(8, text)
    end))
  end)
end


-- Hyper-parameters --------------------------------------------------------------------------------

-- Returns a value with HParamsPluginData of one field; its version is 0. The plugin also requires a
-- tensor, here an empty float tensor.
local function plugin_value(tag, field, content)
  return make_message(function(m)
    m:text(1, tag)
    local data = make_message(function(fields) fields:message(field, content) end)
    m:message(9, make_metadata("hparams", data))
    m:message(8, make_message(function(tensor)
      tensor:integer(1, DT_FLOAT)
      tensor:message(2, message())
      tensor:floats(5, { 0 })
    end))
  end)
end


-- Returns a number, boolean or string as google.protobuf.Value.
local function any_value(v)
  return make_message(function(m)
    if type(v) == "number" then
      m:double(2, v)
    elseif type(v) == "boolean" then
      m:integer(4, v and 1 or 0)
    else
      m:text(3, v)
    end
  end)
end


local DATA_TYPES = { string = 1, boolean = 2, number = 3 }   -- hparams.DataType

-- Returns an Experiment: names and types of the hyperparameters, and the metrics.
local function make_experiment(names, values, metrics)
  return make_message(function(m)
    for _, name in ipairs(names) do
      m:message(4, make_message(function(info)
        info:text(1, name)
        info:integer(4, DATA_TYPES[type(values[name])])
      end))
    end
    for _, name in ipairs(metrics) do
      m:message(5, make_message(function(info)
        info:message(1, make_message(function(metric) metric:text(2, name) end))
      end))
    end
  end)
end


--- Returns the three values that make a run a row of the table of hyperparameters.
-- @tparam table values by name: numbers, strings, booleans
-- @tparam {string,...} metrics tags of scalars
-- @number now seconds since 1970
-- @treturn {Message,...}
function summary.hparams(values, metrics, now)
  local names = {}
  for name in pairs(values) do
    names[#names + 1] = name
  end
  table.sort(names)
  return {
    plugin_value("_hparams_/experiment", 2, make_experiment(names, values, metrics)),
    plugin_value("_hparams_/session_start_info", 3, make_message(function(m)
      for _, name in ipairs(names) do
        m:message(1, make_message(function(entry)
          entry:text(1, name)
          entry:message(2, any_value(values[name]))
        end))
      end
      m:double(5, now)
    end)),
    plugin_value("_hparams_/session_end_info", 4, make_message(function(m)
      m:integer(1, STATUS_SUCCESS)
      m:double(2, now)
    end)),
  }
end


return summary

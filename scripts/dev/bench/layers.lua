--- The networks of W15 as gluon blocks, with the parameter names of nets.lua.
local ty = require "tycho"
local nets = require "nets"

local F, nn, rnn = ty.F, ty.gluon.nn, ty.gluon.rnn
local HybridBlock, Sequential = ty.gluon.HybridBlock, ty.gluon.nn.HybridSequential

local layers = {}
local make = {}

local function sequential(list)
  local s = Sequential{prefix = ""}
  for _, block in ipairs(list) do s:add(block) end
  return s
end

local function dense(name, n, from, activation, flatten)
  return nn.Dense{n, in_units = from, activation = activation, flatten = flatten,
    prefix = name .. "_"}
end

local function conv(name, n, from, k, more)
  more = more or {}
  return nn.Conv2D{n, k, in_channels = from, strides = more.stride or 1, padding = more.pad or 0,
    use_bias = not more.no_bias, activation = more.activation, prefix = name .. "_"}
end

function make.mlp()
  return sequential{dense("fc1", 128, 784, "relu"), dense("fc2", 64, 128, "relu"),
    dense("fc3", 10, 64)}
end

function make.lenet()
  return sequential{conv("conv1", 20, 1, 5, {activation = "tanh"}), nn.MaxPool2D(2, 2),
    conv("conv2", 50, 20, 5, {activation = "tanh"}), nn.MaxPool2D(2, 2),
    dense("fc1", 500, 800, "tanh"), dense("fc2", 10, 500)}
end

-- Residual network --------------------------------------------------------------------------------

local function conv_bn(name, n, from, k, stride, pad)
  return {conv(name, n, from, k, {stride = stride, pad = pad, no_bias = true}),
    nn.BatchNorm{in_channels = n, epsilon = 1e-5, momentum = 0.9, prefix = name .. "_bn_"}}
end

local function unit(...)
  local list = conv_bn(...)
  list[3] = nn.Activation "relu"
  return list
end

local Residual = HybridBlock:extend "Residual"

function Residual:init(name, n, from, stride)
  local body = unit(name .. "_c1", n, from, 3, stride, 1)
  for _, block in ipairs(conv_bn(name .. "_c2", n, n, 3, 1, 1)) do body[#body + 1] = block end
  self.body = sequential(body)
  if stride == 2 then self.shortcut = sequential(conv_bn(name .. "_sc", n, from, 1, 2)) end
end

function Residual:forward(x)
  return F.relu(self.body(x) + (self.shortcut and self.shortcut(x) or x))
end

function make.resnet20()
  local list, from = unit("conv0", 16, 3, 3, 1, 1), 16
  for i = 0, 2 do
    for j = 0, 2 do
      local n = 16 * 2 ^ i
      list[#list + 1] = Residual(("s%du%d"):format(i, j), n, from, (i > 0 and j == 0) and 2 or 1)
      from = n
    end
  end
  list[#list + 1] = nn.GlobalAvgPool2D()
  list[#list + 1] = dense("fc", 10, 64)
  return sequential(list)
end

-- Language model ----------------------------------------------------------------------------------

local Language = HybridBlock:extend "Language"

function Language:init(kind, count, units, steps)
  self.embed = nn.Embedding{nets.VOCABULARY, units, prefix = "embed_"}
  if kind == "fused" then
    self.rnn = rnn.LSTM{units, num_layers = count, input_size = units, prefix = ""}
  else
    self.rnn = rnn.HybridSequentialRNNCell{prefix = ""}
    for l = 0, count - 1 do
      self.rnn:add(rnn.LSTMCell{units, input_size = units, prefix = ("l%d_"):format(l)})
    end
  end
  self.pred = dense("pred", nets.VOCABULARY, units, nil, false)
  self.kind, self.units, self.steps = kind, units, steps
end

--- Runs the network on x (steps, batch); returns (steps * batch, words).
function Language:forward(x)
  x = self.embed(x)
  if self.kind == "fused" then
    x = self.rnn(x)
  else
    x = self.rnn:unroll(self.steps, x, {layout = "TNC", merge_outputs = true})
  end
  return self.pred(F.reshape{x, shape = {-1, self.units}})
end

--- Returns a language model. kind: "fused" (one operator for all layers and steps) or "cells",
-- unrolled for a number of steps.
function layers.language(...) return Language(...) end

-- Transformer -------------------------------------------------------------------------------------

layers.GPT = {steps = 256, batch = 4, depth = 4, width = 256, heads = 8, words = 1000}
local GPT = layers.GPT

local Block = HybridBlock:extend "Block"

function Block:init(name)
  local width = GPT.width
  self.norm1 = nn.LayerNorm{in_channels = width, prefix = name .. "_norm1_"}
  self.norm2 = nn.LayerNorm{in_channels = width, prefix = name .. "_norm2_"}
  self.qkv = dense(name .. "_qkv", 3 * width, width, nil, false)
  self.out = dense(name .. "_out", width, width, nil, false)
  self.fc1 = dense(name .. "_fc1", 4 * width, width, nil, false)
  self.fc2 = dense(name .. "_fc2", width, 4 * width, nil, false)
end

function Block:forward(x, mask)
  local qkv, attention = self.qkv(self.norm1(x)), {heads = GPT.heads}
  local scores = F.contrib.interleaved_matmul_selfatt_qk(qkv, attention)
  local weights = F.softmax(F.broadcast_add(scores, mask))
  x = x + self.out(F.contrib.interleaved_matmul_selfatt_valatt(qkv, weights, attention))
  return x + self.fc2(F.LeakyReLU{self.fc1(self.norm2(x)), act_type = "gelu"})
end

local Transformer = HybridBlock:extend "Transformer"

function Transformer:init()
  self.embed = nn.Embedding{GPT.words, GPT.width, prefix = "embed_"}
  self.position = self.params:get("pred_position", {shape = {GPT.steps, 1, GPT.width}})
  for i = 1, GPT.depth do self["block" .. i] = Block("b" .. i) end
  self.norm = nn.LayerNorm{in_channels = GPT.width, prefix = "norm_"}
  self.pred = dense("pred", GPT.words, GPT.width, nil, false)
end

--- Runs the network on x (steps, batch) with mask (steps, steps), which is 0 where a position may
-- attend, else a large negative number; returns (steps * batch, words).
function Transformer:forward(x, mask)
  x = F.broadcast_add(self.embed(x), self.position:data(x))
  mask = F.expand_dims{mask, axis = 0}
  for i = 1, GPT.depth do x = self["block" .. i](x, mask) end
  return self.pred(F.reshape{self.norm(x), shape = {-1, GPT.width}})
end

function make.transformer() return Transformer() end

--- Returns the transformer as a symbol of data, mask and label.
function layers.transformer_symbol()
  local S = ty.sym
  return S.SoftmaxOutput{data = Transformer()(S.Variable "data", S.Variable "mask"),
    label = S.Reshape{data = S.Variable "label", shape = {-1}}, name = "softmax"}
end

--- Returns the name of a parameter without the prefixes that classes of blocks add.
function layers.plain_name(name)
  for _, class in ipairs{"language", "transformer", "block", "residual"} do
    name = name:gsub("^" .. class .. "%d+_", "")
  end
  return name
end

--- Returns a network by its name in nets.lua, or "transformer".
function layers.network(name) return make[name]() end

return layers

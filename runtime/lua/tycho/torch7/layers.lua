--- The table of layers by class, which the files `torch7/layers_*.lua` fill.
--
-- A layer is a function `f(net, module, x)` that returns the module's output: a tensor or a list of
-- them. `layers.tensor` is for classes that take a tensor, `layers.table` for those that take a
-- table, `layers.any` for those that take either.
--
-- @module tycho.torch7.layers

local layers = { of = {}, refused = {} }


-- Adds f as the layer of all classes in a string of names separated by blanks.
local function add_classes(takes, names, f)
  for name in names:gmatch("%S+") do
    layers.of[name] = { takes = takes, f = f }
  end
end


--- Adds layers that take a tensor.
-- @string names of classes, separated by blanks
-- @tparam function f
function layers.tensor(names, f)
  add_classes("tensor", names, f)
end


--- Adds layers that take a table; arguments as for `tensor`.
function layers.table(names, f)
  add_classes("table", names, f)
end


--- Adds layers that take a tensor or a table; arguments as for `tensor`.
function layers.any(names, f)
  add_classes("any", names, f)
end


--- Declares classes that are known but cannot be imported.
-- @string names
-- @string why the reason, for errors
function layers.refuse(names, why)
  for name in names:gmatch("%S+") do
    layers.refused[name] = why
  end
end


--- Returns the layer of a class. Classes of cudnn that are not in the table get the layer of nn.
-- @treturn ?table `takes` and `f`; nil for an unknown class and for one that cannot be imported
function layers.find(class)
  if not layers.refused[class] then
    return layers.of[class] or layers.of[class:gsub("^cudnn%.", "nn.")]
  end
end


return layers

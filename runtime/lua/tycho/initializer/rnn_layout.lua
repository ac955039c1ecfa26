--- Names and layout of the parameters of recurrent cells.
--
-- A cell's matrices hold one block of H rows per gate, in the order of `GATES`. The packed vector
-- of the RNN operator holds first all weights, layer by layer, in each the directions, in each the
-- gates of i2h, then those of h2h; after them all biases in the same nesting.
--
-- @module tycho.initializer.rnn_layout

local Error = require "tycho.core.error"

local layout = {}

--- Suffixes of the gates by mode.
layout.GATES = {
  rnn_relu = { "" }, rnn_tanh = { "" }, lstm = { "_i", "_f", "_c", "_o" },
  gru = { "_r", "_z", "_o" },
}


--- Raises E(value) for an unknown mode.
-- @string mode
-- @string func for errors
function layout.check_mode(mode, func)
  if not layout.GATES[mode] then
    Error.raise{ code = "value", func = func, argument = "mode",
      expected = "rnn_relu, rnn_tanh, lstm or gru", got = mode, message = "bad 'mode'" }
  end
end


local function directions(cell)
  return cell.bidirectional and 2 or 1
end


--- Returns the number of elements of the packed vector.
-- @tparam table cell num_hidden, num_layers, mode, bidirectional
-- @int inputs size of the first layer's input vectors
function layout.size(cell, inputs)
  local h, dirs = cell.num_hidden, directions(cell)
  return h * dirs * #layout.GATES[cell.mode]
    * (inputs + h + 2 + (cell.num_layers - 1) * (dirs * h + h + 2))
end


--- Returns the size of the first layer's input vectors, from the size of the packed vector.
-- @tparam table cell num_hidden, num_layers, mode, bidirectional
-- @int size
-- @string func for errors
function layout.input_size(cell, size, func)
  local h, dirs = cell.num_hidden, directions(cell)
  local n = size / (dirs * h * #layout.GATES[cell.mode])
    - (cell.num_layers - 1) * (h + dirs * h + 2) - h - 2
  if n < 1 or n ~= math.floor(n) then
    Error.raise{ code = "shape", func = func, argument = "parameters", got = size,
      message = "the vector's size fits no input size" }
  end
  return n
end


--- Returns the pieces in the order of the vector; names as in "l0_i2h_f_weight".
-- @tparam table cell num_hidden, num_layers, mode, bidirectional
-- @int inputs size of the first layer's input vectors
-- @treturn table list of `{name, shape}`
function layout.pieces(cell, inputs)
  local h, list = cell.num_hidden, {}
  local sides = cell.bidirectional and { "l", "r" } or { "l" }
  for _, what in ipairs{ "weight", "bias" } do
    for layer = 0, cell.num_layers - 1 do
      local width = layer == 0 and inputs or #sides * h
      for _, side in ipairs(sides) do
        for _, group in ipairs{ "i2h", "h2h" } do
          local columns = group == "i2h" and width or h
          for _, gate in ipairs(layout.GATES[cell.mode]) do
            list[#list + 1] = { ("%s%d_%s%s_%s"):format(side, layer, group, gate, what),
              what == "weight" and { h, columns } or { h } }
          end
        end
      end
    end
  end
  return list
end


return layout

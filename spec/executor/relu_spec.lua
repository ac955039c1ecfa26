-- A relu after FullyConnected, which a kernel or library may do as a part of the product, and its
-- gradient: 0 where the output is 0, NaN where that is NaN. Where this runs on a GPU it asks what
-- cublasLt's relu does.

local ty = require "tycho"

local sym = ty.sym
local COLUMNS, OUTPUTS = 8, 3

-- values of a row of data, which FullyConnected hands on as they are
local ROWS = {2, 0, -0.0, -3, 0 / 0, 0.5}

local function same(want, got)
  assert.equal(#want, #got)
  for i, v in ipairs(want) do
    local w = got[i]
    assert(v == w or (v ~= v and w ~= w), ("row %d: %g, not %g"):format(i, w, v))
  end
end

-- Returns the first column.
local function first_column(x)
  local list = {}
  for i, row in ipairs(x:astype("float64"):totable()) do list[i] = row[1] end
  return list
end

describe("relu after FullyConnected", function()
  for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
    for _, bias in ipairs{true, false} do
      it(("keeps NaN, and its gradient is 0 at 0: %s%s"):format(dtype, bias and ", a bias" or ""),
        function()
          local x = sym.FullyConnected{data = sym.Variable "data", num_hidden = COLUMNS,
            no_bias = not bias, name = "e"}
          local net = sym.FullyConnected{data = sym.relu{x}, num_hidden = OUTPUTS, no_bias = true,
            name = "f"}
          local exe = net:simple_bind{shapes = {data = {#ROWS, COLUMNS}},
            type_dict = {data = dtype}, grad_req = "write"}
          exe.arg_dict.e_weight[":"] = ty.nd.one_hot{ty.nd.arange(COLUMNS), depth = COLUMNS}
            :astype(dtype)
          exe.arg_dict.f_weight[":"] = 1
          for i, v in ipairs(ROWS) do exe.arg_dict.data[i - 1] = v end
          exe:forward(true)
          exe:backward{ty.nd.ones({#ROWS, OUTPUTS}, {dtype = dtype})}
          local outputs, gradients = {}, {}
          for i, v in ipairs(ROWS) do
            outputs[i] = v ~= v and v or math.max(v, 0) * COLUMNS
            gradients[i] = v ~= v and v or v > 0 and OUTPUTS or 0
          end
          same(outputs, first_column(exe.outputs[1]))
          same(gradients, first_column(exe.grad_dict.data))
        end)
    end
  end
end)

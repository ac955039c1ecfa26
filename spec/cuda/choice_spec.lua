-- Random choices on a GPU: the CPU's classes, numbers and permutations for the same seed, in each
-- run of a recorded program, too.

local devices = require "spec.support.devices_agree"

local CHOICES = devices.SCRIPT .. [[
local V = ty.sym.Variable

local function chances(shape, ctx, dtype)
  return ty.nd.abs(pattern(shape, here, "float64")):astype(dtype):as_in_context(ctx)
end

for _, dtype in ipairs{"float32", "float64", "float16"} do
  compare("classes by " .. dtype, function(ctx)
    return all(ty.nd._sample_multinomial{chances({3, 2, 7}, ctx, dtype), shape = {5, 20},
      get_prob = true, dtype = "uint8"})
  end)
  compare("gradient of chances " .. dtype, function(ctx)
    local exe = ty.sym._sample_multinomial{V("x"), shape = 9, get_prob = true}
      :simple_bind{ctx = ctx, x = {3, 5}, type_dict = {x = dtype}}
    chances({3, 5}, ctx, dtype):copyto(exe.arg_dict.x)
    local y = exe:forward{is_train = true}
    exe:backward{ty.nd.zeros_like(y[1]), pattern(y[2].shape, ctx, dtype)}
    return exe.grad_dict.x
  end)
end
for _, n in ipairs{1, 2, 3, 77, 1500} do
  compare("permutation of " .. n, function(ctx)
    return ty.nd._shuffle{pattern({n, 3}, here, "float32"):astype("float16"):as_in_context(ctx)}
  end)
end
compare("numbers without repetition", function(ctx)
  return all(ty.nd._sample_unique_zipfian{range_max = 60, shape = {3, 50}, ctx = ctx})
end)
compare("runs of a recorded program", function(ctx)
  local drawn = ty.sym._sample_multinomial{V("p"), shape = 6, dtype = "float32"}
  local exe = ty.sym.Group{ty.sym._shuffle{V("x")} * 2, drawn,
    ty.sym._sample_unique_zipfian{range_max = 9, shape = {1, 5}}[1]}
    :simple_bind{ctx = ctx, x = {40}, p = {1, 30}, grad_req = "null"}
  pattern({40}, ctx, "float32"):copyto(exe.arg_dict.x)
  chances({1, 30}, ctx, "float32"):copyto(exe.arg_dict.p)
  local runs = {}
  for i = 1, 4 do
    runs[i] = all(exe:forward())
  end
  return all(runs)
end)
for _, bad in ipairs{{0, 0}, {0.5, -0.1}, {0 / 0, 1}} do
  print(select(2, pcall(function()
    local p = ty.nd.array{{1, 2, bad[1], bad[2]}, ctx = there}:reshape{2, 2}
    return ty.nd._sample_multinomial{p}:totable()
  end)))
end
]]

describe("random choices on a GPU", function()
  it("are the CPU's", function()
    local text = devices.agree(pending, CHOICES, 13)
    if text then
      local _, reported = text:gsub("bad parameters: row 1 of data is no distribution; expected "
        .. "numbers of 0 or more, not all 0 %[operator _sample_multinomial%]", "")
      assert.equal(3, reported, text)
    end
  end)
end)

-- Values with their channels in blocks: the same results as in plain arrays, whatever meets them.
local ffi = require "ffi"
local ty = require "tycho"
local sym = ty.sym

pcall(ffi.cdef, "int setenv(const char *, const char *, int);")

local function with_blocks(on, f)
  ffi.C.setenv("TYCHO_BLOCKS", on and "1" or "0", 1)
  local ok, result = pcall(f)
  ffi.C.setenv("TYCHO_BLOCKS", "1", 1)
  return ok and result or error(result, 0)
end

local function conv(x, filters, k, stride, name, bias)
  local half = math.floor(k / 2)
  return sym.Convolution{data = x, num_filter = filters, kernel = {k, k}, pad = {half, half},
    stride = {stride, stride}, no_bias = not bias, name = name}
end

local function norm(x, name, act)
  x = sym.BatchNorm{data = x, fix_gamma = name:find("fix") ~= nil, eps = 1e-3, name = name}
  return act and sym.Activation{data = x, act_type = act, name = name .. "_act"} or x
end

local function blocks_here()
  return conv(sym.relu(conv(sym.Variable("data"), 32, 3, 1, "a")), 32, 3, 1, "b")
    :simple_bind{ctx = ty.cpu(), data = {4, 32, 16, 16}}:program():find("\n *%d+  oneDNN") ~= nil
end

-- what follows a convolution of some filters; each takes and gives a value with channels to block
local PARTS = {
  norm          = function(x) return norm(x, "n") end,
  norm_relu     = function(x) return norm(x, "n", "relu") end,
  fixed_relu    = function(x) return norm(x, "fix", "relu") end,
  norm_tanh     = function(x) return norm(x, "n", "tanh") end,
  relu          = function(x) return sym.relu(x) end,
  residual      = function(x) return sym.relu(x + norm(conv(x, 32, 3, 1, "r"), "rn", "relu")) end,
  residual_thin = function(x) return x * 0.5 + conv(conv(x, 16, 1, 1, "r1"), 32, 3, 1, "r2") end,
  max           = function(x)
    return sym.Pooling{data = x, kernel = {3, 3}, stride = {2, 2}, pad = {1, 1}, pool_type = "max"}
  end,
  max_full      = function(x)
    return sym.Pooling{data = x, kernel = {3, 3}, stride = {2, 2}, pool_type = "max",
      pooling_convention = "full"}
  end,
  avg           = function(x)
    return sym.Pooling{data = x, kernel = {2, 2}, stride = {2, 2}, pool_type = "avg"}
  end,
  avg_padded    = function(x)
    return sym.Pooling{data = x, kernel = {3, 3}, pad = {1, 1}, pool_type = "avg"}
  end,
  global_avg    = function(x)
    return sym.Pooling{data = x, kernel = {1, 1}, global_pool = true, pool_type = "avg"}
  end,
  global_max    = function(x)
    return sym.Pooling{data = x, kernel = {1, 1}, global_pool = true, pool_type = "max"}
  end,
  concat        = function(x)
    return sym.Concat{conv(x, 16, 1, 1, "l", true), conv(x, 48, 3, 1, "m"),
      x, num_args = 3, dim = 1}
  end,
  concat_odd    = function(x)
    return conv(sym.Concat{conv(x, 16, 3, 1, "l"), conv(x, 7, 3, 1, "m"), num_args = 2},
      16, 3, 1, "o")
  end,
  concat_rows   = function(x)
    return sym.Concat{x, conv(x, 32, 3, 1, "l"), num_args = 2, dim = 2}
  end,
  split         = function(x)
    local s = sym.SliceChannel{data = x, num_outputs = 2, name = "s"}
    return conv(s[1], 16, 3, 1, "l") + s[2]
  end,
  scaled        = function(x)                         -- a gate per channel
    local g = sym.Pooling{data = x, kernel = {1, 1}, global_pool = true, pool_type = "avg"}
    return sym.broadcast_mul(x, sym.sigmoid(conv(g, 32, 1, 1, "g", true)))
  end,
  grouped       = function(x)
    return sym.Convolution{data = x, num_filter = 32, num_group = 2, kernel = {3, 3}, pad = {1, 1}}
  end,
  depthwise     = function(x)
    return sym.Convolution{data = x, num_filter = 32, num_group = 32, kernel = {3, 3}, pad = {1, 1}}
  end,
  dilated       = function(x)
    return sym.Convolution{data = x, num_filter = 16, kernel = {3, 3},
      pad = {2, 2}, dilate = {2, 2}}
  end,
  reshaped      = function(x) return sym.relu(sym.Reshape{data = x, shape = {0, 0, -1}}) end,
  dropped       = function(x) return conv(sym.Dropout{data = x, p = 0.4}, 16, 3, 1, "d") end,
  mirrored      = function(x)
    return ty.AttrScope{force_mirroring = "True"}:with(function()
      return norm(conv(x, 32, 3, 1, "c"), "n", "relu")
    end)
  end,
}

local function results(out, n, side, req, train)
  local exe = out:simple_bind{ctx = ty.cpu(), grad_req = req, shapes = {data = {n, 3, side, side}}}
  ty.random.seed(n)
  for _, name in ipairs(out:list_arguments()) do
    local a = exe.arg_dict[name]
    ty.nd.random.normal{scale = name:find("gamma") and 1 or 0.3, shape = a.shape}:copyto(a)
    exe.grad_dict[name][":"] = 0.25
  end
  ty.random.seed(7)
  exe:forward(train)
  if train then
    exe:backward(ty.nd.random.normal{shape = exe.outputs[1].shape})
  end
  local all = {out = exe.outputs[1]:copy()}
  for name, g in pairs(exe.grad_dict) do
    all[name] = g:copy()
  end
  for name, a in pairs(exe.aux_dict) do
    all[name] = a:copy()
  end
  return all
end

-- Asserts that arrays differ by a few units of float32 over the size of an array.
local function near(a, b, what)
  local scale = math.max(b:abs():max():asscalar(), 1e-3)
  local gap = (a - b):abs():max():asscalar()
  assert(gap <= 3e-5 * scale, ("%s: %g of %g"):format(what, gap, scale))
end

local function compare(part, n, side, req, train)
  local x = conv(sym.Variable("data"), 32, 3, 1, "first", true)
  local out = sym.Flatten(PARTS[part](sym.relu(x)))
  local got = with_blocks(true, function() return results(out, n, side, req, train) end)
  local want = with_blocks(false, function() return results(out, n, side, req, train) end)
  for name, a in pairs(want) do
    near(got[name], a, part .. ": " .. name)
  end
end

describe("channels in blocks", function()
  local names = {}
  for name in pairs(PARTS) do
    names[#names + 1] = name
  end
  table.sort(names)
  for i, name in ipairs(names) do
    it("agree with plain arrays: " .. name, function()
      compare(name, 2, 17, "write", true)
      compare(name, 1 + i % 3, 12, "add", true)
      compare(name, 3, 9, "write", false)
    end)
  end

  it("are pooled in pieces of long rows, and by every maximum in Pooling_v1", function()
    PARTS.v1 = function(x)
      return sym.Pooling_v1{data = x, kernel = {3, 3}, stride = {2, 2},
        pad = {1, 1}, pool_type = "max"}
    end
    for _, name in ipairs{"max", "max_full", "avg_padded", "v1"} do
      compare(name, 1, 75, "write", true)
    end
  end)

  it("are not kept where an axis goes: another one holds the channels then", function()
    local function squeezed(axis, n)
      return function(x)
        local s, list = sym.SliceChannel{data = conv(x, 32, 3, 1, "p"), num_outputs = n,
          axis = axis, squeeze_axis = true}, {}
        for k = 1, n do
          list[k] = sym.Convolution{data = s[k], num_filter = 32, kernel = {3}}
        end
        return sym.add_n(list)
      end
    end
    PARTS.channels, PARTS.images = squeezed(1, 32), squeezed(0, 2)
    compare("channels", 2, 32, "write", true)
    compare("images", 2, 32, "write", true)
  end)

  it("are used where a convolution and its neighbours take them, and are shown", function()
    if not blocks_here() then
      pending("no library that computes in blocks")
      return
    end
    local x = conv(norm(conv(sym.Variable("data"), 32, 3, 1, "a"), "n", "relu"), 32, 3, 1, "b")
    local text = x:simple_bind{ctx = ty.cpu(), data = {4, 32, 16, 16}}:program()
    local _, n = text:gsub("channels in %d+s", "")
    assert.is_true(n >= 4, text)
    assert.is_nil(with_blocks(false, function()
      return x:simple_bind{ctx = ty.cpu(), data = {4, 32, 16, 16}}:program()
    end):find("channels in"))
  end)

  it("never show: heads, bound gradients and monitored values are plain", function()
    local a = conv(sym.Variable("data"), 32, 3, 1, "a")
    local out = sym.Group{sym.relu(a), conv(sym.relu(a), 16, 3, 1, "b")}
    local seen = {}
    local function run()
      local exe = out:simple_bind{ctx = ty.cpu(), data = {2, 16, 10, 10}}
      ty.random.seed(1)
      for _, array in ipairs(exe.arg_arrays) do
        ty.nd.random.normal{shape = array.shape}:copyto(array)
      end
      exe:forward(true)
      local head = exe.outputs[1]:copy()
      exe:backward{ty.nd.ones(exe.outputs[1].shape), ty.nd.ones(exe.outputs[2].shape)}
      local gradient = exe.grad_dict.data:copy()
      exe:set_monitor_callback(function(name, array) seen[name] = array:copy() end)
      exe:forward(true)
      return {head, gradient}
    end
    local got, want = with_blocks(true, run), with_blocks(false, run)
    near(got[1], want[1], "head")
    near(got[2], want[2], "gradient")
    near(ty.nd.relu(seen.a_output), want[1], "monitored")
  end)
end)

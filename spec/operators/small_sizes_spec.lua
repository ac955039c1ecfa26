-- Spatial operators on images of one to three pixels a side, where windows are wider than what
-- they see: values against their definitions, gradients against differences of the definitions.
local ty = require "tycho"
local arrays = require "spec.support.arrays"
require "spec.helper"

local sym = ty.sym
-- of the gradients, since differences lose digits; a tenth of it of the values
local BOUNDS = {float64 = 1e-7, float32 = 1e-3}
local STEP = 1e-4
-- the maximum of nothing
local LOWEST = {float64 = -1.7976931348623157e308, float32 = -3.4028234663852886e38}

-- -- definitions ----------------------------------------------------------------------------------

local function product(t)
  local n = 1
  for _, v in ipairs(t) do n = n * v end
  return n
end

local function zeros(n)
  local t = {}
  for i = 1, n do t[i] = 0 end
  return t
end

-- Returns 1 to 3 numbers as (depth, height, width).
local function three(t, fill)
  local out = {}
  for a = 1, 3 do out[a] = t[#t - 3 + a] or fill end
  return out
end

local function spatial(shape)
  local t = {}
  for i = 3, #shape do t[#t + 1] = shape[i] end
  return t
end

-- Calls f(o, t, i) for each output position, tap and input position that belong together, counted
-- from 0 row by row.
local function each_tap(window, f)
  local of, outs, ins = window.kernel, window.out, window.into
  for o = 0, product(outs) - 1 do
    for t = 0, product(of) - 1 do
      local i, scale, inside, left, tap = 0, 1, true, o, t
      for a = 3, 1, -1 do
        local x = left % outs[a] * window.stride[a] - window.pad[a] + tap % of[a] * window.dilate[a]
        left, tap = math.floor(left / outs[a]), math.floor(tap / of[a])
        inside = inside and x >= 0 and x < ins[a]
        i, scale = i + x * scale, scale * ins[a]
      end
      if inside then f(o, t, i) end
    end
  end
end

local function make_window(p, into, out)
  return {kernel = three(p.kernel, 1), stride = three(p.stride, 1), pad = three(p.pad, 0),
    dilate = three(p.dilate or {}, 1), into = three(into, 1), out = three(out, 1)}
end

local define = {}

-- Computes a convolution: x (n, c, space), w (f, c, kernel).
function define.Convolution(x, shapes, p, out)
  local n, c = shapes.data[1], shapes.data[2]
  local w = make_window(p, spatial(shapes.data), spatial(out))
  local ins, outs, taps = product(w.into), product(w.out), product(w.kernel)
  local y, filters = zeros(product(out)), p.num_filter
  each_tap(w, function(o, t, i)
    for b = 0, n - 1 do
      for f = 0, filters - 1 do
        local at = (b * filters + f) * outs + o + 1
        for k = 0, c - 1 do
          y[at] = y[at] + x.data[(b * c + k) * ins + i + 1] * x.weight[(f * c + k) * taps + t + 1]
        end
      end
    end
  end)
  return y
end

-- Computes the same with input and output exchanged: x (n, c, space), w (c, f, kernel).
function define.Deconvolution(x, shapes, p, out)
  local n, c = shapes.data[1], shapes.data[2]
  local w = make_window(p, spatial(out), spatial(shapes.data))
  local large, small, taps = product(w.into), product(w.out), product(w.kernel)
  local y, filters = zeros(product(out)), p.num_filter
  each_tap(w, function(o, t, i)
    for b = 0, n - 1 do
      for f = 0, filters - 1 do
        local at = (b * filters + f) * large + i + 1
        for k = 0, c - 1 do
          y[at] = y[at]
            + x.data[(b * c + k) * small + o + 1] * x.weight[(k * filters + f) * taps + t + 1]
        end
      end
    end
  end)
  return y
end

-- Enlarges images: nearest: pixels repeated; bilinear: each channel alone under a kernel of its
-- own.
function define.UpSampling(x, shapes, p, out)
  local data, shape = x.data or x[1], shapes.data or shapes[1]
  local s, y = p.scale, zeros(product(out))
  if p.sample_type == "nearest" then
    for at = 0, #y - 1 do
      local plane, row = math.floor(at / (out[3] * out[4])), math.floor(at / out[4]) % out[3]
      y[at + 1] = data[(plane * shape[3] + math.floor(row / s)) * shape[4]
        + math.floor(at % out[4] / s) + 1]
    end
    return y
  end
  local k, pad = 2 * s - s % 2, math.ceil((s - 1) / 2)
  local params = {kernel = {k, k}, stride = {s, s}, pad = {pad, pad}}
  local w = make_window(params, spatial(out), spatial(shape))
  local large, small = product(w.into), product(w.out)
  each_tap(w, function(o, t, i)
    for plane = 0, shape[1] * shape[2] - 1 do
      local at = plane * large + i + 1
      y[at] = y[at] + data[plane * small + o + 1] * x.weight[plane % shape[2] * k * k + t + 1]
    end
  end)
  return y
end

-- Returns the number of elements that a window covers, with the padding.
local function covered(w, o)
  local size = 1
  for a = 3, 1, -1 do
    local from = o % w.out[a] * w.stride[a] - w.pad[a]
    o = math.floor(o / w.out[a])
    size = size * (math.min(from + w.kernel[a], w.into[a] + w.pad[a]) - from)
  end
  return size
end

function define.Pooling(x, shapes, p, out, dtype)
  local w = make_window(p, spatial(shapes.data), spatial(out))
  local ins, outs, y = product(w.into), product(w.out), zeros(product(out))
  for plane = 0, out[1] * out[2] - 1 do
    local count, most = zeros(outs), {}
    each_tap(w, function(o, _, i)
      local v, at = x.data[plane * ins + i + 1], plane * outs + o + 1
      count[o + 1] = count[o + 1] + 1
      most[o + 1] = math.max(most[o + 1] or v, v)
      y[at] = y[at] + (p.pool_type == "lp" and v * v or v)
    end)
    for o = 0, outs - 1 do
      local at = plane * outs + o + 1
      if p.pool_type == "max" then y[at] = most[o + 1] or LOWEST[dtype]
      elseif p.pool_type == "lp" then y[at] = math.sqrt(y[at])
      elseif p.pool_type == "avg" then
        local by = p.count_include_pad and covered(w, o) or count[o + 1]
        y[at] = by ~= 0 and y[at] / by or 0
      end
    end
  end
  return y
end

local function unfolded(shapes, p, image, columns, move)
  local w = make_window(p, spatial(image), columns)
  local ins, outs, taps = product(w.into), product(w.out), product(w.kernel)
  for plane = 0, image[1] * image[2] - 1 do
    each_tap(w, function(o, t, i)
      move((plane * taps + t) * outs + o + 1, plane * ins + i + 1)
    end)
  end
end

local function positions(p, image)
  local t = {}
  for a, k in ipairs(p.kernel) do
    local size = image[a + 2] + 2 * p.pad[a] - (k - 1) * p.dilate[a] - 1
    t[a] = math.floor(size / p.stride[a]) + 1
  end
  return t
end

function define.im2col(x, shapes, p, out)
  local y = zeros(product(out))
  unfolded(shapes, p, shapes.data, positions(p, shapes.data), function(column, pixel)
    y[column] = x.data[pixel]
  end)
  return y
end

function define.col2im(x, shapes, p, out)
  local y = zeros(product(out))
  unfolded(shapes, p, out, positions(p, out), function(column, pixel)
    y[pixel] = y[pixel] + x.data[column]
  end)
  return y
end

-- Returns f(get, row, column) of images (h, w) for each of the outputs (H, W); get(data, row,
-- column) reads the plane.
local function each_pixel(shape, out, f)
  local y = {}
  for plane = 0, out[1] * out[2] - 1 do
    local function get(data, i, j) return data[(plane * shape[3] + i) * shape[4] + j + 1] end
    for i = 0, out[3] - 1 do
      for j = 0, out[4] - 1 do y[#y + 1] = f(get, i, j) end
    end
  end
  return y
end

function define._contrib_AdaptiveAvgPooling2D(x, shapes, _, out)
  local s = shapes.data
  local function ends(o, size, n)
    return math.floor(o * size / n), math.ceil((o + 1) * size / n) - 1
  end
  return each_pixel(s, out, function(get, i, j)
    local top, bottom = ends(i, s[3], out[3])
    local left, right = ends(j, s[4], out[4])
    local sum = 0
    for a = top, bottom do
      for b = left, right do sum = sum + get(x.data, a, b) end
    end
    return sum / ((bottom - top + 1) * (right - left + 1))
  end)
end

function define._contrib_BilinearResize2D(x, shapes, p, out)
  local s = shapes.data
  local function tap(o, size, n)
    local place = n < 2 and 0 or p.align_corners and o * (size - 1) / (n - 1)
      or (o + 0.5) * size / n - 0.5
    if n < 2 and not p.align_corners then place = -0.5 end
    place = math.max(place, 0)
    local at = math.min(math.floor(place), size - 1)
    return at, math.min(at + 1, size - 1), place - at
  end
  return each_pixel(s, out, function(get, i, j)
    local a, b, down = tap(i, s[3], out[3])
    local c, d, across = tap(j, s[4], out[4])
    return (1 - down) * ((1 - across) * get(x.data, a, c) + across * get(x.data, a, d))
      + down * ((1 - across) * get(x.data, b, c) + across * get(x.data, b, d))
  end)
end

function define.Pad(x, shapes, p, out)
  local s, w = shapes.data, p.pad_width
  local function place(o, before, size)
    local i = o - before
    if p.mode == "constant" then return i >= 0 and i < size and i or nil end
    if p.mode == "edge" then return math.max(0, math.min(i, size - 1)) end
    return i < 0 and -i or i >= size and 2 * size - 2 - i or i
  end
  return each_pixel(s, out, function(get, i, j)
    local a, b = place(i, w[5], s[3]), place(j, w[7], s[4])
    return a and b and get(x.data, a, b) or p.constant_value or 0
  end)
end

function define.Crop(x, shapes, p, out)
  local s, offset = shapes[1], p.offset
  if p.center_crop then
    offset = {math.floor((s[3] - out[3]) / 2), math.floor((s[4] - out[4]) / 2)}
  end
  local top, left = unpack(offset)
  return each_pixel(s, out, function(get, i, j) return get(x[1], top + i, left + j) end)
end

-- Computes means of products over channels and patches, one channel per displacement.
function define.Correlation(x, shapes, p, out)
  local n, c, h, w = unpack(shapes.data1)
  local side, pad, y = 2 * math.floor(p.max_displacement / p.stride2) + 1, p.pad_size, {}
  local function pixel(data, b, k, i, j)
    i, j = i - pad, j - pad
    return i >= 0 and j >= 0 and i < h and j < w and data[((b * c + k) * h + i) * w + j + 1] or 0
  end
  for b = 0, n - 1 do
    for place = 0, side * side - 1 do
      local down = (math.floor(place / side) - (side - 1) / 2) * p.stride2
      local across = (place % side - (side - 1) / 2) * p.stride2
      for i = 0, out[3] - 1 do
        for j = 0, out[4] - 1 do
          local sum = 0
          for k = 0, c - 1 do
            for t = 0, p.kernel_size ^ 2 - 1 do
              local row = i * p.stride1 + p.max_displacement + math.floor(t / p.kernel_size)
              local column = j * p.stride1 + p.max_displacement + t % p.kernel_size
              sum = sum + pixel(x.data1, b, k, row, column)
                * pixel(x.data2, b, k, row + down, column + across)
            end
          end
          y[#y + 1] = sum / (c * p.kernel_size ^ 2)
        end
      end
    end
  end
  return y
end

-- -- comparisons ----------------------------------------------------------------------------------

local function make_text(name, shapes, params)
  local parts = {name}
  for _, t in ipairs{shapes, params} do
    for k, v in pairs(t) do
      v = type(v) == "table" and table.concat(v, "x") or tostring(v)
      parts[#parts + 1] = ("%s = %s"):format(k, v)
    end
  end
  return table.concat(parts, ", ")
end

local function agree(what, want, got, bound)
  assert(#want == #got, ("%s: %d elements, expected %d"):format(what, #got, #want))
  for i, v in ipairs(want) do
    local off = math.abs(v - got[i])
    if v ~= got[i] and (off > bound * math.max(1, math.abs(v)) or off ~= off) then
      error(("%s, element %d: %.9g, expected %.9g"):format(what, i - 1, got[i], v), 0)
    end
  end
end

-- Returns the derivative of sum(heads * definition) by element i of t.
local function slope(define_all, t, i, heads)
  local was, sum = t[i], 0
  for side = -1, 1, 2 do
    t[i] = was + side * STEP
    for k, v in ipairs(define_all()) do
      if v > LOWEST.float32 then sum = sum + side * v * heads[k] end
    end
  end
  t[i] = was
  return sum / (2 * STEP)
end

-- inputs of operators that take any number
local POSITION = {UpSampling = {data = 1, weight = 2}}

local function check(name, shapes, params)
  local what, options, spec, seed = make_text(name, shapes, params), {}, {}, 1
  for k, v in pairs(params) do options[k] = v end
  for key in pairs(shapes) do
    options[POSITION[name] and POSITION[name][key] or key] = sym.Variable("in_" .. key)
  end
  local net = sym[name](options)
  for dtype, bound in pairs(BOUNDS) do
    local args, grads, x = {}, {}, {}
    for key, shape in pairs(shapes) do
      seed = seed + 1
      local a = arrays.noise(shape, seed * 7919, dtype)
      args["in_" .. key], x[key] = a, arrays.list(a)
      grads["in_" .. key] = ty.nd.full(shape, 7, {dtype = dtype})
    end
    spec.ctx, spec.args, spec.args_grad = ty.current_context(), args, grads
    local exe = net:bind(spec)
    local y = exe:forward{is_train = true}[1]
    local function define_all() return define[name](x, shapes, params, y.shape, dtype) end
    agree(what, define_all(), arrays.list(y), bound / 10)
    local heads = arrays.noise(y.shape, 31, dtype)
    exe:backward(heads)
    local h = arrays.list(heads)
    for key in pairs(shapes) do
      local want = {}
      for i = 1, #x[key] do want[i] = slope(define_all, x[key], i, h) end
      agree(what .. ", gradient of " .. key, want, arrays.list(grads["in_" .. key]), bound)
    end
  end
end

local function each_size(most, f)
  for h = 1, most do
    for w = 1, most do f(h, w) end
  end
end

describe("on images of one to three pixels a side", function()
  it("UpSampling", function()
    for scale = 1, 4 do
      each_size(3, function(h, w)
        local k = 2 * scale - scale % 2
        check("UpSampling", {{1, 2, h, w}}, {scale = scale, sample_type = "nearest"})
        check("UpSampling", {data = {1, 2, h, w}, weight = {2, 1, k, k}},
          {scale = scale, sample_type = "bilinear", num_filter = 2})
      end)
    end
  end)

  local WINDOWS = {                                       -- kernel, stride, pad, dilate
    {1, 1, 0, 1}, {1, 2, 0, 1}, {2, 1, 1, 1}, {2, 2, 1, 1}, {3, 1, 1, 1}, {3, 2, 1, 1},
    {3, 3, 2, 1}, {2, 1, 2, 2}, {3, 2, 2, 2}, {5, 1, 2, 1}, {5, 4, 3, 1},
  }
  local function windows(f)
    for _, v in ipairs(WINDOWS) do
      local k, s, p, d = unpack(v)
      each_size(3, function(h, w)
        local reach = (k - 1) * d + 1
        if h + 2 * p >= reach and w + 2 * p >= reach then f(h, w, k, s, p, d) end
      end)
    end
  end

  it("Convolution, along one to three axes", function()
    windows(function(h, w, k, s, p, d)
      local rest = {num_filter = 2, no_bias = true}
      local function of(axes, size)
        local params, data, weight = {}, {2, 2}, {2, 2}
        for key, v in pairs(rest) do params[key] = v end
        for key, v in pairs{kernel = k, stride = s, pad = p, dilate = d} do
          params[key] = {}
          for a = 1, axes do params[key][a] = v end
        end
        for a = 1, axes do data[a + 2], weight[a + 2] = size[a], k end
        check("Convolution", {data = data, weight = weight}, params)
      end
      of(2, {h, w})
      if h == 1 then of(1, {w}) end
      if k < 3 then of(3, {h, w, 1}) end
    end)
  end)

  it("Deconvolution", function()
    windows(function(h, w, k, s, p, d)
      local reach = (k - 1) * d + 1
      if (h - 1) * s + reach - 2 * p > 0 and (w - 1) * s + reach - 2 * p > 0 then
        check("Deconvolution", {data = {1, 2, h, w}, weight = {2, 2, k, k}}, {kernel = {k, k},
          stride = {s, s}, pad = {p, p}, dilate = {d, d}, num_filter = 2})
      end
    end)
  end)

  it("Pooling", function()
    windows(function(h, w, k, s, p, d)
      if d > 1 or p >= k then return end
      for _, kind in ipairs{"max", "avg", "sum", "lp"} do
        for _, convention in ipairs{"valid", "full"} do
          for _, with_pad in ipairs(kind == "avg" and {true, false} or {true}) do
            check("Pooling", {data = {1, 2, h, w}}, {kernel = {k, k}, stride = {s, s}, pad = {p, p},
              pool_type = kind, pooling_convention = convention, count_include_pad = with_pad,
              p_value = kind == "lp" and 2 or nil})
          end
        end
      end
    end)
  end)

  it("im2col and col2im", function()
    windows(function(h, w, k, s, p, d)
      local params = {kernel = {k, k}, stride = {s, s}, pad = {p, p}, dilate = {d, d}}
      check("im2col", {data = {1, 2, h, w}}, params)
      local size = positions(params, {1, 1, h, w})
      params.output_size = {h, w}
      check("col2im", {data = {1, 2 * k * k, size[1] * size[2]}}, params)
    end)
  end)

  it("AdaptiveAvgPooling2D and BilinearResize2D", function()
    each_size(3, function(h, w)
      each_size(4, function(H, W)
        check("_contrib_AdaptiveAvgPooling2D", {data = {1, 2, h, w}}, {output_size = {H, W}})
        for _, corners in ipairs{true, false} do
          check("_contrib_BilinearResize2D", {data = {1, 2, h, w}},
            {height = H, width = W, align_corners = corners})
        end
      end)
    end)
  end)

  it("Pad and Crop", function()
    each_size(3, function(h, w)
      for _, mode in ipairs{"constant", "edge", "reflect"} do
        local most = mode == "reflect" and 0 or 3
        check("Pad", {data = {1, 2, h, w}}, {mode = mode, pad_width = {0, 0, 0, 0,
          math.max(most, h - 1), math.max(most, h - 1), math.max(most, w - 1), most > 0 and 1 or 0},
          constant_value = mode == "constant" and 0.5 or nil})
      end
      each_size(3, function(H, W)
        if H <= h and W <= w then
          check("Crop", {{1, 2, h, w}}, {h_w = {H, W}, center_crop = true})
          check("Crop", {{1, 2, h, w}}, {h_w = {H, W}, offset = {h - H, w - W}})
        end
      end)
    end)
  end)

  it("Correlation", function()
    each_size(3, function(h, w)
      for _, v in ipairs{{1, 1, 1, 1, 1}, {1, 2, 1, 2, 2}, {3, 1, 2, 1, 2}, {2, 1, 1, 1, 2}} do
        local k, most, step, shift, pad = unpack(v)
        local border = 2 * most + k - 1
        if math.min(h, w) + 2 * pad > border then
          check("Correlation", {data1 = {1, 2, h, w}, data2 = {1, 2, h, w}}, {kernel_size = k,
            max_displacement = most, stride1 = step, stride2 = shift, pad_size = pad})
        end
      end
    end)
  end)
end)

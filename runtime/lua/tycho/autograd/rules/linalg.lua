--- Rules of linear algebra. Matrices are the last two axes.
--
-- @module tycho.autograd.rules.linalg

local nd = require "tycho.ndarray"

local gemm2, trsm = nd._linalg_gemm2, nd._linalg_trsm

local linalg = { rules = {}, expansions = {} }
local rules, expansions = linalg.rules, linalg.expansions

local function transpose(a)
  return nd.SwapAxis{ a, dim1 = a.ndim - 2, dim2 = a.ndim - 1 }
end


-- Returns a matrix of f(row, column), on the device and of the type of x.
local function make_matrix(x, f)
  local n, m, rows = x.shape[x.ndim - 1], x.shape[x.ndim], {}
  for i = 1, n do
    rows[i] = {}
    for k = 1, m do
      rows[i][k] = f(i, k)
    end
  end
  local shape = {}
  for k = 1, x.ndim do
    shape[k] = k == x.ndim - 1 and n or k == x.ndim and m or 1
  end
  return nd.array(rows, { dtype = x.dtype, ctx = x.context }):reshape(shape)
end


-- Returns the lower triangle, with its diagonal multiplied by d.
local function take_lower(a, d)
  return a * make_matrix(a, function(i, k) return i > k and 1 or i == k and d or 0 end)
end


local function make_identity(a)
  return nd.zeros_like(a) + make_matrix(a, function(i, k) return i == k and 1 or 0 end)
end


-- Returns one number per matrix in a shape with two more axes of size 1.
local function widen(v, a)
  local shape = { unpack(a.shape) }
  shape[#shape - 1], shape[#shape] = 1, 1
  return v:reshape(shape)
end


-- Reading and products ----------------------------------------------------------------------------

function expansions._linalg_sumlogdiag(s)
  return { nd.log(nd._linalg_extractdiag(s.x[1])):sum{ axis = -1 } }
end

function expansions._linalg_syrk(s)
  local a, t = s.x[1], s.p.transpose
  return { gemm2{ a, a, transpose_a = t, transpose_b = not t, alpha = s.p.alpha } }
end


-- Inverses ----------------------------------------------------------------------------------------

function rules._linalg_inverse(s)
  local y = transpose(s.y[1])
  return { -gemm2(gemm2(y, s.g[1]), y) }
end

function rules._linalg_det(s)
  local a = s.x[1]
  return { widen(s.g[1] * s.y[1], a) * transpose(nd._linalg_inverse(a)) }
end

function rules._linalg_slogdet(s)
  local a = s.x[1]
  return { widen(s.g[2], a) * transpose(nd._linalg_inverse(a)) }
end

function rules._linalg_trsm(s)
  local a, y, p = s.x[1], s.y[1], s.p
  local back = trsm{ a, s.g[1], transpose = not p.transpose, rightside = p.rightside,
    lower = p.lower }
  local first, second = back, y
  if p.rightside then
    first, second = transpose(y), transpose(back)
  end
  local of_a = p.rightside and gemm2(first, transpose(second))
    or gemm2{ first, second, transpose_b = true }
  of_a = -(p.transpose and transpose(of_a) or of_a)
  return { p.lower and take_lower(of_a, 1) or transpose(take_lower(transpose(of_a), 1)),
    back * p.alpha }
end

-- Returns (L L')^-1 of a lower triangle L, or (U' U)^-1 of an upper one.
function expansions._linalg_potri(s)
  local a, lower = s.x[1], s.p.lower
  local inverse = trsm{ a, make_identity(a), lower = lower }
  return { gemm2{ inverse, inverse, transpose_a = lower, transpose_b = not lower } }
end


-- Factors -----------------------------------------------------------------------------------------

function rules._linalg_potrf(s)
  local l, g = s.y[1], s.g[1]
  if not s.p.lower then
    l, g = transpose(l), transpose(g)
  end
  local inner = take_lower(gemm2{ l, g, transpose_a = true }, 0.5)
  local m = trsm{ l, trsm{ l, inner, transpose = true }, rightside = true }
  return { (m + transpose(m)) * 0.5 }
end

-- Returns the gradient of a = L Q.
function rules._linalg_gelqf(s)
  local q, l, gq, gl = s.y[1], s.y[2], s.g[1], s.g[2]
  local m = gemm2{ l, gl, transpose_a = true } - gemm2{ gq, q, transpose_b = true }
  local symmetric = take_lower(m, 1) + transpose(take_lower(m, 0))
  return { trsm{ l, gq + gemm2(symmetric, q), transpose = true } }
end

-- Returns the gradient of a = U' diag(v) U.
function rules._linalg_syevd(s)
  local u, v, gu, gv = s.y[1], s.y[2], s.g[1], s.g[2]
  local one = make_identity(u)
  local gaps = v:expand_dims{ axis = -1 } - v:expand_dims{ axis = -2 }
  local m = gemm2{ gu, u, transpose_b = true } * (1 - one) / (gaps + one)
  local inner = (m + transpose(m)) * 0.5 + nd._linalg_makediag(gv)
  return { gemm2{ u, gemm2(inner, u), transpose_a = true } }
end

return linalg

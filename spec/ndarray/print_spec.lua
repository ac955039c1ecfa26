-- Arrays as text: NumPy's rules, by cases whose texts NumPy 1.x writes.

local ty = require "tycho"

local function text(x)
  return (tostring(x):match("^\n(.*)\n<NDArray [^\n]*>$"))
end

local function array(list, dtype)
  return ty.nd.array(list, { dtype = dtype or "float32" })
end

local NAN, INF = 0 / 0, 1 / 0

-- values, dtype, text
local CASES = {
  { { 1, 2, 3 }, nil, "[1. 2. 3.]" },
  { { 1, -2, 300 }, nil, "[  1.  -2. 300.]" },
  { { 0.1, 1 / 3, 2.5, 100 }, nil, "[  0.1          0.33333334   2.5        100.        ]" },
  { { 0.1, 1 / 3 }, "float64", "[0.1        0.33333333]" },
  { { 1 / 3, 2 / 3 }, "float16", "[0.3333 0.6665]" },
  { { 1 / 3, 3 }, "bfloat16", "[0.334 3.   ]" },
  { { 1e8, 1 }, nil, "[1.e+08 1.e+00]" },
  { { 1e-5 }, nil, "[1.e-05]" },
  { { 0.1, 1 / 3, 1e-5, -100 }, nil,
    "[ 1.0000000e-01  3.3333334e-01  1.0000000e-05 -1.0000000e+02]" },
  { { 1 / 3, 1e100 }, "float64", "[3.33333333e-001 1.00000000e+100]" },
  { { 1, NAN, -INF, 0.25 }, nil, "[1.    nan -inf 0.25]" },
  { { NAN, -INF, INF }, nil, "[ nan -inf  inf]" },
  { { 0, 0 }, nil, "[0. 0.]" },
  { { -1 / INF, 16777216 }, nil, "[      -0. 16777216.]" },
  { { 2 ^ -149 }, nil, "[1.e-45]" },
  { { 1, -20, 3 }, "int32", "[  1 -20   3]" },
  { { -2 ^ 53, 1 }, "int64", "[-9007199254740992                 1]" },
  { { 1, 0 }, "bool", "[ true false]" },
  { { 0, 255 }, "uint8", "[  0 255]" },
  { { { 1, 2 }, { 3, 40 } }, nil, "[[ 1.  2.]\n [ 3. 40.]]" },
  { { { { 1, 2 }, { 3, 4 } }, { { 5, 6 }, { 7, 8 } } }, nil,
    "[[[1. 2.]\n  [3. 4.]]\n\n [[5. 6.]\n  [7. 8.]]]" },
}

describe("arrays as text", function()
  local before = ty.nd.get_printoptions()

  after_each(function()
    ty.nd.set_printoptions(before)
  end)

  it("have the fewest digits that tell numbers apart, below each other", function()
    for i, case in ipairs(CASES) do
      assert.equal(case[3], text(array(case[1], case[2])), "case " .. i)
    end
  end)

  it("break lines of more than 75 characters", function()
    assert.equal("[ 0.  1.  2.  3.  4.  5.  6.  7.  8.  9. 10. 11. 12. 13. 14. 15. 16. 17.\n"
      .. " 18. 19. 20. 21. 22. 23. 24. 25. 26. 27. 28. 29.]", text(ty.nd.arange(0, 30)))
    local rows = text(ty.nd.arange(0, 60):reshape{ 2, 30 })
    assert.is_truthy(rows:find("16. 17.\n  18. 19.", 1, true))
    assert.is_truthy(rows:find("29.]\n [30.", 1, true))
  end)

  it("are whole up to 1,000 elements, else show three entries at either end", function()
    assert.is_falsy(text(ty.nd.zeros(1000)):find("...", 1, true))
    assert.equal("[0. 0. 0. ... 0. 0. 0.]", text(ty.nd.zeros(1001)))
    assert.equal("[[0. 1.]\n [0. 1.]\n [0. 1.]\n ...\n [0. 1.]\n [0. 1.]\n [0. 1.]]",
      text(ty.nd.tile(ty.nd.arange(0, 2), { reps = { 600, 1 } })))
    local edges = text(ty.nd.arange(0, 2000):reshape{ 4, 500 })
    assert.is_truthy(edges:find("[[0.000e+00 1.000e+00 2.000e+00 ... 4.970e+02", 1, true))
    assert.equal(4, select(2, edges:gsub("%.%.%.", "")))
  end)

  it("write a column of an image in lines, not as a tower", function()
    local column = text(ty.nd.arange(0, 28):reshape{ 28, 1 })
    assert.equal("[[ 0.] [ 1.] [ 2.] [ 3.] [ 4.] [ 5.] [ 6.] [ 7.] [ 8.] [ 9.] [10.] [11.]\n"
      .. " [12.] [13.] [14.] [15.] [16.] [17.] [18.] [19.] [20.] [21.] [22.] [23.]\n"
      .. " [24.] [25.] [26.] [27.]]", column)
    assert.equal("[[0.]\n [1.]\n [2.]]", text(ty.nd.arange(0, 3):reshape{ 3, 1 }))
    local _, lines = ty.nd.zeros{ 3, 64, 1 }:text(24):gsub("\n", "")
    assert.is_true(lines < 24)
  end)

  it("follow nd.set_printoptions", function()
    ty.nd.set_printoptions{ precision = 3, threshold = 10, edgeitems = 1, linewidth = 20 }
    assert.equal("[0.333 2.   ]", text(array{ 1 / 3, 2 }))
    assert.equal("[ 0. ... 11.]", text(ty.nd.arange(0, 12)))
    assert.equal("[0. 1. 2. 3. 4. 5.\n 6. 7.]", text(ty.nd.arange(0, 8)))
    assert.same({ precision = 3, threshold = 10, edgeitems = 1, linewidth = 20, suppress = false },
      ty.nd.get_printoptions())
    ty.nd.set_printoptions{ threshold = math.huge, linewidth = 75 }
    assert.is_falsy(text(ty.nd.zeros(2000)):find("...", 1, true))
    ty.nd.set_printoptions{ suppress = true, precision = 6 }
    assert.equal("[  0.00001 100.     ]", text(array{ 1e-5, 100 }))
    ty.nd.set_printoptions{ suppress = false }
    assert.is_truthy(text(array{ 1e-5, 100 }):find("e-05", 1, true))
  end)

  it("refuse options that are none", function()
    assert.raises("value", ty.nd.set_printoptions, { precision = -1 })
    assert.raises("type", ty.nd.set_printoptions, { threshold = "all" })
    assert.raises("name", ty.nd.set_printoptions, { width = 80 })
  end)
end)

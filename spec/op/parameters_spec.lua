-- Attributes as texts: what is read as a number, list, choice or type, what is refused and how it
-- is said (native/op/param.c).

local ty = require "tycho"
local ffi = require "ffi"
local interface = require "spec.support.interface"

local REQUIRED = { Convolution = { num_filter = "1", kernel = "(1, 1)" }, slice = { ["end"] = "(3, 3)" } }

-- Returns the arguments of ty_op_ports with one attribute; other attributes that an operator needs
-- are given.
local function asked(op, key, value)
  local list = { key, value }
  for name, text in pairs(REQUIRED[op] or {}) do
    if name ~= key then
      list[#list + 1], list[#list + 2] = name, text
    end
  end
  local attrs, n = interface.attrs(list)
  return { op, attrs, n, -1, ffi.new("const char *[1]"), ffi.new("const char *[1]"), list }
end

local function takes(op, key, values)
  for _, value in ipairs(values) do
    interface.takes("ty_op_ports", unpack(asked(op, key, value), 1, 6))
  end
end

local function refuses(op, key, expected, values)
  for _, value in ipairs(values) do
    interface.fails("value", ("%s: parameter %s: expected %s, got '%s'"):format(op, key, expected,
      value), "ty_op_ports", unpack(asked(op, key, value), 1, 6))
  end
end

describe("the text of a parameter", function()
  it("is a number in its range", function()
    takes("Dropout", "p", { "0", "1", "0.5", " .5", "1e-3", "0.5 ", "0.25\n" })
    refuses("Dropout", "p", "a number from 0 to 1", { "1.5", "-0.1", "0.5x", "x", "", " ", "nan",
      "inf", "None", "0.5 0.5", "(0.5)" })
  end)

  it("is a whole number, as Python prints them", function()
    takes("FullyConnected", "num_hidden", { "1", "2L", "2.0", "1e2", " 3", "3 ",
      "9223372036854775807" })
    refuses("FullyConnected", "num_hidden", "an int of at least 1", { "0", "-1", "2.5", "1e30",
      "-1e30", "inf", "-inf", "nan", "two", "2LL", "2L2", "", "None", "(2)" })
  end)

  it("is one word of several", function()
    takes("Activation", "act_type", { "relu", "softsign" })
    refuses("Activation", "act_type", "one of relu|sigmoid|tanh|softrelu|softsign", { "Relu", "rel",
      "relu|sigmoid", "", "|", "reluu", " relu" })
    takes("LeakyReLU", "act_type", { "gelu" })
    takes("sum", "keepdims", { "True", "true", "1", "False", "false", "0" })
    refuses("sum", "keepdims", "a boolean", { "yes", "TRUE", "2", "", "None", "1 " })
    takes("Cast", "dtype", { "float16", "int64", "bool" })
    refuses("Cast", "dtype", "a dtype", { "float33", "", "float" })
  end)

  it("says which operator has a word that another one takes", function()
    local function hint(op, word, words)
      local e = assert.raises("value", ty.sym[op], { ty.sym.Variable "x", act_type = word })
      local text = ("got '%s'; %s"):format(word, words)
      assert.truthy(e.message:find(text, 1, true), e.message)
    end
    for _, word in ipairs{ "gelu", "leaky", "elu", "selu", "prelu", "rrelu" } do
      hint("Activation", word, "use LeakyReLU, which has this act_type")
    end
    for _, word in ipairs{ "silu", "swish" } do
      hint("Activation", word, "use data * sigmoid(data)")
      hint("LeakyReLU", word, "use data * sigmoid(data)")
    end
    for _, word in ipairs{ "softmax", "log_softmax", "hard_sigmoid" } do
      hint("Activation", word, "use the operator of that name")
    end
    hint("Activation", "softplus", "use softrelu")
    hint("Activation", "leaky_relu", "use LeakyReLU")
    for _, word in ipairs{ "relu", "sigmoid", "tanh", "softrelu", "softsign" } do
      hint("LeakyReLU", word, "use Activation, which has this act_type")
    end
  end)

  it("is a list, in brackets of one kind or none", function()
    takes("sum", "axis", { "()", "[]", "1", "(1,)", "(1)", "[0, 1]", "1,2", "1, 2,", " ( 1 , 2 ) ",
      "(1L, 2L)", "None" })
    refuses("sum", "axis", "a list of ints or None", { "(1", "1)", "[1)", "(1]", "(1 2)", "(1,,2)",
      "(a)", "(1) 2", "(1.5,)", "((1))", "1 2" })
    takes("slice", "begin", { "(None, 2)", "(0, None)", "None" })
    refuses("slice", "begin", "a list of ints", { "(Nine, 2)", "(None 2)", "(Non)" })
    takes("_contrib_MultiBoxPrior", "sizes", { "(0.5, 1e-1)", "0.5,", "(.5)" })
    refuses("_contrib_MultiBoxPrior", "sizes", "a list of numbers", { "(0.5, x)", "(0.5", "0.5]" })
  end)

  it("is a list no longer than there is room", function()
    for op, key in pairs{ transpose = "axes", _contrib_MultiBoxPrior = "sizes" } do
      local most = key == "axes" and 16 or 128
      for _, form in ipairs{ "(%s)", "[%s,]", "%s", "%s, " } do
        local text = form:format(("1, "):rep(most) .. "1")
        interface.fails("value", ("%s: parameter %s: expected at most %d numbers, got '%d'")
          :format(op, key, most, most + 1), "ty_op_ports", unpack(asked(op, key, text), 1, 6))
      end
      takes(op, key, { ("1, "):rep(most - 1) .. "1", "(" .. ("1, "):rep(most) .. ")" })
    end
  end)

  it("is checked entry by entry where an operator says so", function()
    for key, value in pairs{ kernel = "(3, 0)", stride = "(0, 1)", dilate = "(1, -1)" } do
      local got = value:match("[-0]+1?") == "-1" and "-1" or "0"
      interface.fails("value", ("Convolution: parameter %s: expected entries from 1 on, got %s")
        :format(key, got), "ty_op_ports",
        unpack(asked("Convolution", key, value), 1, 6))
    end
  end)

  it("must be there if the parameter has no default", function()
    local text = ffi.new("const char *[1]")
    interface.fails("value", "Activation: parameter act_type is missing; expected one of \z
      relu|sigmoid|tanh|softrelu|softsign", "ty_op_ports", "Activation", nil, 0, -1, text, text)
    interface.fails("value", "FullyConnected: parameter num_hidden is missing; expected an int \z
      of at least 1", "ty_op_ports", "FullyConnected", nil, 0, -1, text, text)
  end)
end)

describe("the name of a parameter", function()
  it("is one that the operator has, or an annotation", function()
    takes("Flatten", "__x__", { "1", "" })
    takes("BlockGrad", "_____", { "1" })
    for _, key in ipairs{ "x", "___", "____", "_x__", "__x_", "__xx", "x_x__", "__", "" } do
      local code = interface.C.ty_op_ports(unpack(asked("Pad", key, "1"), 1, 6))
      assert.equal(interface.C.TY_ENAME, code)
      local start = ("Pad has no parameter '%s'; "):format(key)
      assert.equal(start, ffi.string(interface.C.ty_error()):sub(1, #start))
    end
    interface.fails("name", "FullyConnected has no parameter 'num_hiden'; did you mean 'num_hidden'?; \z
      it takes: num_hidden, no_bias, flatten", "ty_op_ports",
      unpack(asked("FullyConnected", "num_hiden", "2"), 1, 6))
  end)

  it("is any, of an operator without parameters: files of the reference have such", function()
    takes("relu", "x", { "1", "" })
  end)
end)

--- Mixed precision: products in float16 or bfloat16, operators that need more precision in float32.
--
--     local mixed = ty.amp.convert(net, {target = "bfloat16"})
--     ty.amp.init()                           -- for modules, blocks, calls on arrays from here on
--
-- Casts are inserted before operators by three lists. Inputs of an operator in "always" are cast to
-- the target (of attention without its mask, lengths and positions), those of one in "never" to
-- float32; inputs of different types of one in "widest" are cast to the widest of them. Inputs of
-- other operators stay as they are. Variables, and so the optimizer's weights, stay float32; their
-- gradients pass through the casts. Symbol files are written without the casts
-- (`remove_amp_cast`).
--
-- The range of float16 is so small that small gradients become 0. `init_trainer` and `scale_loss`
-- prevent that, as `loss_scale` of `Module:fit` does; bfloat16 does not need it.
--
-- @module tycho.amp

jit.off(true, true)                                      -- makes graphs: core/iterate.lua

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local namespace = require "tycho.core.namespace"
local node = require "tycho.symbol.node"
local recording = require "tycho.ndarray.recording"
local registry = require "tycho.op.registry"
local rewriting = require "tycho.symbol.rewriting"
local symbol = require "tycho.symbol.symbol"
local values = require "tycho.core.values"

local C = native.C

local amp = {}

-- Products, which take most of the time, and whose sums are float32 in any case.
local ALWAYS = [[
  Convolution Convolution_v1 Deconvolution FullyConnected RNN dot batch_dot _linalg_gemm
  _linalg_gemm2 khatri_rao _contrib_interleaved_matmul_selfatt_qk
  _contrib_interleaved_matmul_selfatt_valatt _contrib_interleaved_matmul_encdec_qk
  _contrib_interleaved_matmul_encdec_valatt _contrib_DeformableConvolution
  _contrib_ModulatedDeformableConvolution _contrib_attention
]]

-- Inputs of these products that are not multiplied and keep their type: half types cannot count
-- positions.
local STAYS = { _contrib_attention = { mask = true, valid_length = true, offset = true } }

-- Losses, functions that overflow or cancel in a half type, sums of many numbers, factorizations,
-- operators whose positions have the type of the data, and those of coordinates of boxes.
local NEVER = [[
  SoftmaxOutput SVMOutput LinearRegressionOutput LogisticRegressionOutput MAERegressionOutput
  MakeLoss make_loss CTCLoss softmax_cross_entropy _contrib_linear_cross_entropy smooth_l1 softmax
  log_softmax softmin SoftmaxActivation masked_softmax exp expm1 log log10 log2 log1p _power
  _power_scalar _rpower_scalar broadcast_power square reciprocal rsqrt rcbrt gamma gammaln erfinv
  sinh cosh tan arccos arcsin arccosh arctanh norm L2Normalization LayerNorm InstanceNorm
  GroupNorm _contrib_RMSNorm LRN sum nansum prod nanprod mean cumsum add_n _linalg_potrf _linalg_potri _linalg_trsm
  _linalg_syevd _linalg_gelqf _linalg_inverse _linalg_det _linalg_slogdet _linalg_sumlogdiag
  BilinearSampler GridGenerator SpatialTransformer Correlation _contrib_count_sketch
  argmax argmin argmax_channel _contrib_arange_like _histogram _contrib_allclose ROIPooling
  _contrib_ROIAlign _contrib_RROIAlign _contrib_PSROIPooling _contrib_DeformablePSROIPooling
  _contrib_Proposal _contrib_MultiProposal _contrib_MultiBoxPrior _contrib_MultiBoxTarget
  _contrib_MultiBoxDetection _contrib_box_encode _contrib_box_decode _contrib_box_iou
]]

-- Operators whose inputs must have one type.
local WIDEST = [[
  elemwise_add elemwise_sub elemwise_mul elemwise_div _maximum _minimum _hypot _mod broadcast_add
  broadcast_sub broadcast_mul broadcast_div broadcast_mod broadcast_maximum broadcast_minimum
  broadcast_hypot broadcast_equal broadcast_not_equal broadcast_greater broadcast_greater_equal
  broadcast_lesser broadcast_lesser_equal _equal _not_equal _greater _greater_equal _lesser
  _lesser_equal _logical_and _logical_or _logical_xor broadcast_logical_and broadcast_logical_or
  broadcast_logical_xor Concat stack where _rnn_param_concat Crop UpSampling LeakyReLU
  _contrib_BilinearResize2D _contrib_swiglu _linalg_trmm
]]


local function split_names(text)
  local list = {}
  for name in text:gmatch "%S+" do
    list[#list + 1] = name
  end
  return list
end


--- Returns the default lists of operators.
-- @treturn table `{ always = {...}, never = {...}, widest = {...} }`
function amp.lists()
  return { always = split_names(ALWAYS), never = split_names(NEVER), widest = split_names(WIDEST) }
end


-- Returns operator -> "always", "never" or "widest", for the lists in the options a; raises E(name)
-- for an unknown operator.
local function collect_kinds(a, func)
  local kinds = {}
  for kind, list in pairs(amp.lists()) do
    for _, name in ipairs(a[kind] or list) do
      local schema = registry.find(name)
      if schema then
        kinds[schema.name] = kind
      elseif a[kind] then
        Error.raise{ code = "name", func = func, argument = kind, got = tostring(name),
          expected = "names of operators", message = ("no operator is called '%s'")
          :format(tostring(name)) }
      end
    end
  end
  return kinds
end


local function make_node(g, op, name, attrs, inputs)
  local n = node.operator(registry.find(op), name, attrs, op == "amp_multicast" and #inputs or -1,
    g.func)
  node.connect(n, inputs, g.func)
  return n
end


-- Returns an entry cast to a type; all its readers share the cast.
local function cast_entry(g, entry, dtype)
  local casts = g.casts[entry[1]] or {}
  g.casts[entry[1]] = casts
  local key = entry[2] .. dtype
  if entry[1].op == "amp_cast" then
    local from = entry[1].inputs[1]
    if entry[1].attrs.dtype == dtype then
      return entry
    elseif dtype == g.target then
      return cast_entry(g, from, dtype)
    end
  end
  casts[key] = casts[key] or { make_node(g, "amp_cast",
    ("%s_amp_cast_%s"):format(node.output_name(entry[1], entry[2]), dtype), { dtype = dtype },
    { entry }), 0 }
  return casts[key]
end


local function convert_node(g, n, moved)
  local kind = n.op and (g.excluded[n.name] and "never" or g.kinds[n.op])
  if not n.op then
    return { { n, 0 } }
  end
  local inputs = {}
  for i, entry in ipairs(n.inputs) do
    inputs[i] = moved(entry)
  end
  local mutated = {}
  for _, i in ipairs(n.ports.mutated or {}) do
    mutated[i] = true
  end
  if kind == "widest" and #inputs > 1 then
    local m = make_node(g, "amp_multicast", n.name .. "_amp_multicast",
      { num_outputs = tostring(#inputs) }, inputs)
    for i in ipairs(inputs) do
      inputs[i] = { m, i - 1 }
    end
  elseif kind == "always" or kind == "never" then
    local stays = STAYS[n.op] or {}
    for i, entry in ipairs(inputs) do
      local is_variable = not entry[1].op
      if not (mutated[i] or stays[n.ports.inputs[i]]) and (kind == "always" or not is_variable) then
        inputs[i] = cast_entry(g, entry, kind == "always" and g.target or "float32")
      end
    end
  end
  g.shown[#g.shown + 1] = { name = n.name, op = n.op, list = kind or "either" }
  local outputs, copy = {}, node.with_inputs(n, inputs)
  for k = 0, n.ports.nvisible - 1 do
    outputs[k + 1] = { copy, k }
  end
  return outputs
end


local RENAMED = args.renamed{ target_dtype = "target", target_dtype_ops = "always",
  target_precision_ops = "always", fp32_ops = "never", conditional_fp32_ops = "never",
  widest_dtype_ops = "widest", sym = "symbol" }

local CONVERT = args.form("amp.convert", { advice = RENAMED,
  { "symbol", "symbol" }, { "target", "text", "bfloat16" }, { "always", "list?" },
  { "never", "list?" }, { "widest", "list?" }, { "excluded_sym_names", "list?" },
})

local function check_target(target, func)
  if target ~= "bfloat16" and target ~= "float16" then
    Error.raise{ code = "value", func = func, argument = "target",
      expected = "bfloat16 or float16", got = target, message = "bad 'target'" }
  end
  return target
end


-- Does what `amp.convert` does; a: its arguments by name.
local function convert(a)
  local g = { func = "amp.convert", target = check_target(a.target, "amp.convert"), casts = {},
    excluded = {}, shown = {} }
  g.kinds = collect_kinds(a, g.func)
  for _, name in ipairs(a.excluded_sym_names or {}) do
    g.excluded[name] = true
  end
  local entries = node.copy(a.symbol._entries, function(n, moved)
    return convert_node(g, n, moved)
  end)
  return symbol.Symbol.of(entries), g.shown
end


--- Returns a network with casts.
--
-- Options: target = "bfloat16" or "float16", another one is E(`value`); always, never, widest:
-- lists of operators in place of those of `lists`, an unknown one is E(`name`); excluded_sym_names:
-- names of nodes that compute in float32; one that no node has is warned of.
-- @tparam Symbol symbol
-- @treturn Symbol
-- @treturn table the decision for each operator, in order: `{ name, op, list }`, list being
--   "always", "never", "widest" or "either"
function amp.convert(...)
  local a = CONVERT(...)
  rewriting.warn_of_unknown(a.symbol._entries, a.excluded_sym_names, "amp.convert")
  return convert(a)
end


local chosen                                             -- options of init; nil: amp is off
local version = 0                                        -- number of calls of init and off

local INIT = args.form("amp.init", { advice = RENAMED,
  { "target", "text", "bfloat16" }, { "always", "list?" }, { "never", "list?" },
  { "widest", "list?" }, { "excluded_sym_names", "list?" },
})


-- Calls on arrays ---------------------------------------------------------------------------------

local FLOAT32, HALVES = args.DTYPES.float32,
  { [args.DTYPES.float16] = true, [args.DTYPES.bfloat16] = true }

-- Arguments of calls of the core, which each call overwrites.
local desc, attr = ffi.new("ty_desc"), ffi.new("ty_attr[1]")
local from, to = ffi.new("ty_tensor *[1]"), ffi.new("ty_tensor *[1]")


local function cast_input(ins, i, dtype, casts)
  if recording.on then
    recording.note_line()
  end
  attr[0].key, attr[0].value = "dtype", dtype
  from[0], to[0] = ins[i], nil
  native.check(C.ty_call("amp_cast", attr, 1, from, 1, to, 1), "amp_cast")
  local x = class.own(to[0])
  casts[#casts + 1] = x
  ins[i] = x._h
end


-- Returns the dtype to which the inputs of a call are cast; nil: they are not. kind: the list that
-- has the operator. Inputs of float64 and of integers stay as they are, since the script has chosen
-- their types.
local function dtype_for(kind, target, ins, nin)
  if kind == "always" then
    return target
  end
  local halves, singles = 0, 0
  for i = 0, nin - 1 do
    C.ty_tensor_desc(ins[i], desc)
    halves = halves + (HALVES[desc.dtype] and 1 or 0)
    singles = singles + (desc.dtype == FLOAT32 and 1 or 0)
  end
  return halves > 0 and (kind == "never" or singles > 0) and "float32" or nil
end


-- Returns which inputs of a call, from 1 on, stay as they are.
local function inputs_that_stay(op, attrs, nattr, nin)
  local dict, list = {}, {}
  for i = 0, nattr - 1 do
    dict[ffi.string(attrs[i].key)] = ffi.string(attrs[i].value)
  end
  for i, name in ipairs(registry.ports(op, dict, nin, op).inputs) do
    list[i] = STAYS[op][name]
  end
  return list
end


local NONE = {}

-- Returns the function that casts the inputs of calls on arrays, for ndarray/call.lua.
local function make_converter(kinds, target)
  local code = args.DTYPES[target]
  return function(op, ins, nin, attrs, nattr)
    local kind = kinds[op]
    local dtype = kind and dtype_for(kind, target, ins, nin)
    if not dtype then
      return nil
    end
    local stays = STAYS[op] and inputs_that_stay(op, attrs, nattr, nin) or NONE
    local casts, wanted = {}, dtype == target and code or FLOAT32
    for i = 0, nin - 1 do
      C.ty_tensor_desc(ins[i], desc)
      if not stays[i + 1] and desc.dtype ~= wanted
          and (desc.dtype == FLOAT32 or HALVES[desc.dtype]) then
        cast_input(ins, i, dtype, casts)
      end
    end
    return casts
  end
end


-- On and off --------------------------------------------------------------------------------------

--- Turns mixed precision on: from now on, modules that are bound, blocks that are called, and
-- operators that are called on arrays have casts.
--
-- Options are those of `convert`: target = "bfloat16", always, never, widest, excluded_sym_names
-- (for symbols only). Calls with `out =`, calls in place, and calls of float64 have no casts.
function amp.init(...)
  local a = INIT(...)
  check_target(a.target, "amp.init")
  local kinds = collect_kinds(a, "amp.init")
  chosen, version = a, version + 1
  call.set_convert(make_converter(kinds, a.target))
end


--- Turns mixed precision off, for networks and calls from now on.
function amp.off()
  if chosen then
    chosen, version = nil, version + 1
    call.set_convert(nil)
  end
end


--- Returns a symbol with casts, if amp is on, else the symbol itself (not for users).
function amp._applied(sym)
  if not chosen then
    return sym
  end
  return (convert{ symbol = sym, target = chosen.target, always = chosen.always,
    never = chosen.never, widest = chosen.widest, excluded_sym_names = chosen.excluded_sym_names })
end


--- Returns a number that changes when `_applied` may return something else (not for users).
function amp._version()
  return version
end


-- Losses ------------------------------------------------------------------------------------------

local TRAINER = args.form("amp.init_trainer", { { "trainer", "any" }, "*",
  { "loss_scale", "any", "dynamic" } })


local function check_trainer(trainer, func)
  if type(trainer) ~= "table" or type(trainer._scale_losses) ~= "function" then
    Error.raise{ code = "type", func = func, argument = "trainer", expected = "a gluon.Trainer",
      got = Error.kind(trainer), message = "bad 'trainer'" }
  end
end


local function get_scaler(trainer, func)
  check_trainer(trainer, func)
  return rawget(trainer, "_scaler") or Error.raise{ code = "state", func = func,
    argument = "trainer", message = "the trainer has no scale yet: call amp.init_trainer(trainer)" }
end


--- Makes a trainer divide gradients by the scale of `scale_loss`. A step whose gradients are not
-- all finite is skipped. A dynamic scale is then halved; after 2000 steps without a skipped one it
-- is doubled.
-- @tparam Trainer trainer
-- @tparam[opt] table options loss_scale = "dynamic", or a fixed number
function amp.init_trainer(...)
  local a = TRAINER(...)
  check_trainer(a.trainer, "amp.init_trainer")
  a.trainer:_scale_losses(a.loss_scale, "amp.init_trainer")
end


--- Returns losses times the trainer's scale, for `backward`.
--
--     amp.scale_loss(l, trainer):backward()
-- @param loss a recorded array, or a list of them
-- @tparam Trainer trainer after `init_trainer`, else E(`state`)
-- @return an array, or a list of them, recorded
function amp.scale_loss(loss, trainer)
  local scale = get_scaler(trainer, "amp.scale_loss").scale
  if class.is_array(loss) then
    local modes = require "tycho.autograd.autograd"      -- few programs scale losses
    return modes.record(recording.training or not recording.on, function()
      return loss * scale
    end)
  elseif not values.is_plain(loss) then
    Error.raise{ code = "type", func = "amp.scale_loss", argument = "loss",
      expected = "an array or a list of arrays", got = Error.kind(loss), message = "bad 'loss'" }
  end
  local list = {}
  for i, l in ipairs(loss) do
    list[i] = amp.scale_loss(l, trainer)
  end
  return list
end


--- Divides the gradients of a trainer by its scale, so that they can be clipped. The next step does
-- not divide them again.
-- @tparam Trainer trainer after `init_trainer`, else E(`state`)
function amp.unscale(trainer)
  get_scaler(trainer, "amp.unscale")
  trainer:_unscale()
end


return namespace.close(amp, "amp", "function")

--- What names of PyTorch, NumPy and Torch7 are called here (not for users): errors about unknown
-- names suggest these before names that are spelled alike.
--
-- @module tycho.core.foreign

local foreign = {}

-- Name there, in small letters -> names here, of which the first that fits the place is suggested.
local NAMES = {
  -- arrays
  asnumpy = "totable", numpy = "totable", tolist = "totable", totensor = "array",
  tensor = "array nd.array", floattensor = "array nd.array", from_numpy = "array", asarray = "array",
  view = "reshape", viewas = "reshape_like", view_as = "reshape_like", resize = "reshape",
  clone = "copy", item = "asscalar", float = "astype float32", long = "astype int64",
  int = "astype int32", double = "astype float64", half = "astype float16", byte = "uint8", char = "int8",
  typeas = "astype", type_as = "astype",
  to = "as_in_context", cuda = "as_in_context gpu", cpu = "as_in_context", device = "ctx context",
  zero = "fill", gpu = "as_in_context", mul = "mul_ broadcast_mul", add = "add_ broadcast_add",
  numel = "size", nelement = "size", ndimension = "ndim", dim = "axis ndim dim",
  t = "T transpose", permute = "transpose", unsqueeze = "expand_dims", narrow = "slice_axis",
  select = "slice_axis", index_select = "take", gather = "pick", masked_fill = "where",
  masked_select = "boolean_mask", scatter = "scatter_nd", cat = "concat Concat",
  concatenate = "concat Concat", vstack = "concat Concat", hstack = "concat Concat",
  chunk = "split", matmul = "dot batch_dot", mm = "dot", bmm = "batch_dot", cmul = "mul",
  lesser = "lt", greater = "gt", lesser_equal = "le", less_equal = "le lesser_equal",
  less = "lt lesser", greater_equal = "ge", equal = "eq", not_equal = "ne",
  amax = "max", amin = "min", clamp = "clip", keepdim = "keepdims", rand = "uniform",
  expand = "broadcast_to", expand_as = "broadcast_like", is_contiguous = "copy",
  -- layers and their options
  linear = "FullyConnected", dense = "FullyConnected", conv1d = "Convolution", conv = "Convolution", bn = "BatchNorm", input = "Variable",
  placeholder = "Variable", detach = "BlockGrad", axis = "dim", forward = "simple_bind",
  conv2d = "Convolution", conv3d = "Convolution", spatialconvolution = "Convolution",
  convtranspose2d = "Deconvolution", batchnorm1d = "BatchNorm", batchnorm2d = "BatchNorm",
  spatialbatchnormalization = "BatchNorm", maxpool2d = "Pooling", avgpool2d = "Pooling",
  spatialmaxpooling = "Pooling", crossentropyloss = "SoftmaxOutput",
  cross_entropy = "SoftmaxOutput", mseloss = "LinearRegressionOutput",
  mse_loss = "LinearRegressionOutput", bceloss = "LogisticRegressionOutput",
  logsoftmax = "log_softmax", lstm = "RNN", gru = "RNN", interpolate = "UpSampling",
  out_features = "num_hidden", units = "num_hidden", out_channels = "num_filter",
  filters = "num_filter", kernel_size = "kernel", padding = "pad", strides = "stride",
  dilation = "dilate", groups = "num_group", num_embeddings = "input_dim",
  embedding_dim = "output_dim", bias = "no_bias bias", activation = "act_type",
  -- modules
  gluon = "mod", autograd = "sym", nn = "sym", np = "nd", torch = "nd", optim = "optimizer",
  util = "test_utils", utils = "test_utils", manual_seed = "random.seed", seed = "random.seed",
  -- training
  lr = "learning_rate", weight_decay = "wd", weightdecay = "wd", betas = "beta1",
  learningrate = "learning_rate", batchsize = "batch_size", epochs = "num_epoch",
  num_epochs = "num_epoch", n_epochs = "num_epoch", metrics = "eval_metric",
  metric = "eval_metric", callbacks = "epoch_end_callback", loss = "eval_metric",
  state_dict = "get_params", parameters = "get_params", load_state_dict = "set_params",
  step = "update step", validation_data = "eval_data", evaluate = "score",
  dataloader = "NDArrayIter", steplr = "FactorScheduler", multisteplr = "MultiFactorScheduler",
  cosineannealinglr = "CosineScheduler", polynomiallr = "PolyScheduler",
  he = "msraprelu", kaiming = "msraprelu", kaiming_normal = "msraprelu", glorot = "xavier",
  modelcheckpoint = "do_checkpoint", imshow = "show", summary = "print_summary", tensordataset = "NDArrayIter",
}


--- What a foreign name is called here.
-- @string word
-- @tparam {string,...} names those that are accepted
-- @treturn string one of them; nil where the word is not known or its counterpart is not accepted
function foreign.counterpart(word, names)
  local accepted = {}
  for _, name in ipairs(names) do
    accepted[name] = true
  end
  for name in (NAMES[word:lower()] or ""):gmatch("%S+") do
    if accepted[name] then
      return name
    end
  end
end


return foreign

--- Descriptions of the options of `ty.gluon`: rows for `tycho.prompt.glossary`, by the first part
-- of a form's name, such as "nn" of "nn.Dense".
--
-- @module tycho.prompt.glossary_gluon

-- Options of every block.
local PREFIX = "what names of its parameters begin with; made from the class by default"
local PARAMS = "a ParameterDict whose parameters are shared"

local homes = {}

homes.nn = {
  prefix = PREFIX, params = PARAMS,
  units = "how many outputs", in_units = "how many inputs; 0: follows from the data",
  activation = "what is done to the result: \"relu\", \"sigmoid\", \"tanh\", \"softrelu\", \z
    \"softsign\"",
  use_bias = "whether a bias is added", flatten = "whether the axes after the first become one",
  weight_initializer = "an initializer or its name; that of `initialize` by default",
  bias_initializer = "an initializer or its name",
  channels = "of the output", in_channels = "of the input; 0: follows from the data",
  kernel_size = "a number, or one per axis",
  strides = "steps of the window; a number, or one per axis",
  padding = "zeros on each side; a number, or one per axis",
  output_padding = "what the output has more on one side",
  dilation = "from one element of the kernel to the next",
  groups = "parts that are convolved apart",
  pool_size = "of the window; a number, or one per axis",
  ceil_mode = "whether a last window may reach over the edge",
  count_include_pad = "whether zeros of the padding count in the mean",
  rate = "share of the elements that become 0", axes = "axes along which elements share their fate",
  input_dim = "how many different numbers come", output_dim = "size of the vector of each",
  sparse_grad = "only false: there is no sparse storage",
  momentum = "what stays of the averages at each step",
  center = "whether beta is added", scale = "whether gamma multiplies",
  use_global_stats = "uses the averages in training, too",
  beta_initializer = "an initializer or its name", gamma_initializer = "an initializer or its name",
  running_mean_initializer = "an initializer or its name",
  running_variance_initializer = "an initializer or its name",
  num_groups = "groups of channels that are normalised together",
  num_devices = "without effect: all devices of the call",
  alpha = "the factor below 0", alpha_initializer = "of the factor below 0",
  beta = "the factor in the sigmoid", factor = "how much larger; a number, or one per axis",
  ["function"] = "the name of an operator, or a function of the inputs",
}

-- Options that only the convolutions of `ty.gluon.contrib.cnn` have.
homes.cnn = {
  num_deformable_group = "groups of channels whose windows are bent alike",
  offset_weight_initializer = "of the convolution that gives offsets",
  offset_bias_initializer = "of its bias", offset_use_bias = "whether it adds a bias",
}
for name, text in pairs(homes.nn) do
  homes.cnn[name] = homes.cnn[name] or text
end

homes.loss = {
  prefix = PREFIX, params = PARAMS,
  weight = "a factor for all samples",
  sparse_label = "labels are classes from 0, not distributions",
  from_logits = "pred holds logarithms of probabilities",
  from_sigmoid = "pred holds probabilities", margin = "the required difference",
  rho = "where the square ends and the line begins",
  label_format = "\"signed\": -1 and 1; \"binary\": 0 and 1",
  label_layout = "\"NT\" or \"TN\"", compute_full = "adds the term that only labels make",
  smoothing_parameter = "share of the probability that other rows get",
}

homes.gluon = {
  prefix = PREFIX, params = "parameters: a ParameterDict, a list, or by name",
  optimizer = "an optimizer or its name", update_on_kvstore = "whether the store takes the steps",
  kvstore = "a store or its name: sums gradients of several devices or ranks; `ty.null`: none",
  dataset = "samples by number", sampler = "gives the numbers of samples in their order",
  last_batch = "a last one that is not full: \"keep\", \"discard\", \"rollover\" to the next epoch",
  batch_sampler = "gives a list of numbers for each batch, in place of batch_size and shuffle",
  batchify_fn = "makes the fields of a batch of a list of samples; `batchify.default` by default",
  num_workers = "threads that make batches ahead; 0: in this one",
  prefetch = "batches that are made ahead; 2 for each worker by default",
  pin_memory = "memory that a GPU copies from faster", pin_device_id = "the GPU's number",
  timeout = "seconds until a batch that does not come is an error",
  length = "how many samples", fn = "a function of a sample: whether it stays",
  root = "the folder of the files", train = "the samples to train on, else those to test on",
  transform = "a function (image, label) that returns both",
  fine_label = "the 100 classes, not the 20",
  allow_deferred_init = "whether the shape may become known at the first call",
  differentiable = "whether it may have a gradient", grad_stype = "only \"default\": dense",
  grad_req = "\"write\", \"add\" or \"null\"", shape = "sizes; 0: not known yet",
  shared = "a ParameterDict that is asked first",
}

homes.transforms = {
  prefix = PREFIX, params = PARAMS,
  size = "a number, or {width, height}", interpolation = "0 to 4, as in `ty.image`",
  keep_ratio = "the shorter side gets the size", x = "the left column", y = "the upper row",
  width = "columns", height = "rows", mean = "a number, or one per channel",
  std = "a number, or one per channel", scale = "least and largest share of the area",
  ratio = "least and largest width divided by height", p = "how likely it happens",
  brightness = "how much the factor may differ from 1",
  contrast = "how much the factor may differ from 1",
  saturation = "how much the factor may differ from 1",
  hue = "how much the angle may differ, as a share", alpha = "the deviation of the noise",
  pad = "zeros on each side first", pad_value = "what is padded with",
  rotation_degrees = "against the clock", angle_limits = "least and largest angle in degrees",
  rotate_with_proba = "how likely it happens",
  zoom_in = "so that no corner is empty", zoom_out = "so that no corner is lost",
  transforms = "a list of them",
}

homes.model_zoo = {
  prefix = PREFIX, params = PARAMS, classes = "outputs",
  pretrained = "reads the weights from `root`; nothing is fetched",
  root = "folder of NAME.params; TYCHO_HOME/models by default",
  thumbnail = "for small pictures: no pooling at the start", version = "a text, \"1.0\"",
  multiplier = "of the channels", batch_norm = "normalises after each convolution",
  dropout = "share of the elements that become 0", layers = "how many in each stage",
  channels = "of each stage", block = "the class of a stage's blocks",
  stride = "of the first layer",
  downsample = "whether the sum's other side is convolved", in_channels = "of the input",
  filters = "of each stage", growth_rate = "channels that a layer adds",
  block_config = "layers of each block",
  bn_size = "how wide the narrow layers are, in growth rates",
  num_init_features = "channels of the first layer",
  num_layers = "as the names have it: 18, 121, 16",
}

homes.contrib = {
  prefix = PREFIX, params = PARAMS,
  hidden_channels = "channels of the state",
  conv_layout = "channels first: \"NCHW\"",
  activation = "a word of Activation, or a block",
  i2h_kernel = "a number, or one per axis", h2h_kernel = "odd; a number, or one per axis",
  i2h_pad = "zeros on each side of the input", i2h_dilate = "of the input's kernel",
  h2h_dilate = "of the state's kernel", projection_size = "units of the output",
  cell = "what is unrolled", inputs = "an array, or a list of steps",
  valid_length = "steps of each sample that count",
  drop_inputs = "share of inputs that are dropped, the same ones in all steps",
  drop_states = "the same of states", drop_outputs = "the same of outputs",
}

-- Options of `ty.gluon.rnn`, in addition to those of `ty.rnn`; both use this row.
homes.rnn = {
  dropout = "share dropped between layers",
  projection_size = "units of the output, where it is projected",
  state_clip_min = "the least value of a cell's state", state_clip_max = "the largest one",
  state_clip_nan = "whether a NaN is clipped, too", recurrent_activation = "that of the gates",
  rate = "share of the elements that become 0", axes = "axes along which elements share their fate",
  zoneout_outputs = "share of outputs that stay as they were",
  zoneout_states = "share of states that stay as they were",
  output_prefix = "what names of the joined outputs begin with",
}

homes.utils = {
  even_split = "whether parts that differ in size are refused",
  ignore_extra = "whether parameters that only one of both has are left alone",
  num_slice = "how many parts", ctx_list = "a list of devices", src = "the file that moves",
  dst = "its new path",
}

local EVENTS = "handlers, in the order of their priority"

homes.estimator = {
  event_handlers = EVENTS, priority = "smaller ones come first",
  save_best = "keeps the best by `monitor`", batch_period = "batches from one time to the next",
  max_epoch = "epochs until the end", max_batch = "batches until the end",
  val_data = "the loader of the validation data",
  net = "the network", loss = "a loss of gluon", trainer = "SGD with a rate of 0.001 by default",
  train_metrics = "a metric or a list", val_metrics = "copies of train_metrics by default",
  val_net = "what is validated; the network by default",
  val_loss = "the loss of the validation; the loss by default",
  batch_processor = "what a batch goes through; a `BatchProcessor` by default",
  initializer = "of parameters that are not initialised", context = "a device or a list of them",
}

homes.Block = { block = "the child" }
homes.HybridBlock = { f = "a function (name, array), called for every operator" }
homes.ParameterDict = { allow_deferred_init = homes.gluon.allow_deferred_init,
  differentiable = homes.gluon.differentiable, grad_stype = homes.gluon.grad_stype,
  value = "what the field becomes" }
homes.SymbolBlock = { symbol_file = "what `export` or `save_checkpoint` wrote" }
homes.Trainer = { lr = "the learning rate from the next step on" }
homes.Dataset = { num_shards = "how many parts", fn = "a function of a sample's first field",
  lazy = "when a sample is asked for; false: all of them now" }
homes.autograd = { train_mode = "whether calls behave as in training" }

homes.Estimator = { event_handlers = EVENTS }
homes.BatchProcessor = { estimator = "the estimator" }

return homes

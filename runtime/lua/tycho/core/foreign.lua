--- The counterparts of names of PyTorch, NumPy, Keras and Torch7 (not for users).
--
-- Errors about unknown names suggest these before names that are spelled alike. The prompt's help
-- and the search of the pages read the same table.
--
-- @module tycho.core.foreign

local pairs = require("tycho.core.iterate").pairs

local foreign = {}

-- Topic -> word -> names here, the likeliest first. A word is in lower case; underscores are
-- ignored. A name is one of
--   nd.concat, random.seed, gpu     a function or class of a namespace of `ty`, or of `ty` itself
--   NDArray:reshape, NDArray.size   a method or a field of a class
--   Convolution{kernel}             an option of an operator
--   Module:fit{num_epoch}           an option of a function or class, by the name of its form
--   'float32'                       a word that an option takes
foreign.TOPICS = {
  { "Arrays: making them", {
    arange = "nd.arange", array = "nd.array", as_tensor = "nd.array", asarray = "nd.array",
    ascontiguousarray = "nd.array", empty_like = "nd.zeros_like", floattensor = "nd.array",
    from_numpy = "nd.array", frombuffer = "nd.from_string", full_like = "nd.full nd.ones_like",
    logspace = "nd.linspace", longtensor = "nd.array", meshgrid = "nd.broadcast_axis",
    ndarray = "nd.NDArray nd.array", rand_like = "nd.random.uniform_like",
    randn_like = "nd.random.normal_like", range = "nd.arange", tensor = "nd.array",
    totensor = "nd.image.to_tensor nd.array",
  } },
  { "Arrays: values, types, devices", {
    add = "NDArray:add_ nd.broadcast_add", array2string = "nd.set_printoptions",
    asnumpy = "NDArray:totable", bool = "NDArray:astype", byte = "'uint8' NDArray:astype",
    char = "'int8' NDArray:astype", clone = "NDArray:copy", contiguous = "NDArray:copy",
    cpu = "NDArray:as_in_context cpu", cuda = "NDArray:as_in_context gpu",
    deepcopy = "NDArray:copy", detach = "NDArray:detach sym.BlockGrad",
    device = "NDArray.context context nd.array{ctx}", device_count = "num_gpus context.num_gpus",
    dim = "sum{axis} NDArray.ndim", div = "NDArray:div_ nd.broadcast_div",
    double = "NDArray:astype 'float64'", float = "NDArray:astype 'float32'",
    get_item = "NDArray:get", gpu = "NDArray:as_in_context gpu", half = "NDArray:astype 'float16'",
    int = "NDArray:astype 'int32'", is_available = "num_gpus", is_contiguous = "NDArray:copy",
    is_tensor = "is_a", item = "NDArray:asscalar", long = "NDArray:astype 'int64'",
    mul = "NDArray:mul_ nd.broadcast_mul", nbytes = "NDArray.size", ndimension = "NDArray.ndim",
    nelement = "NDArray.size", numel = "NDArray.size", numpy = "NDArray:totable",
    printoptions = "nd.set_printoptions", rank = "NDArray.ndim", set_item = "NDArray:set",
    stop_gradient = "NDArray:detach sym.BlockGrad", sub = "NDArray:sub_ nd.broadcast_sub",
    synchronize = "waitall", to = "NDArray:as_in_context", tolist = "NDArray:totable",
    type = "NDArray:astype NDArray.dtype", type_as = "NDArray:astype", zero = "NDArray:fill",
  } },
  { "Arrays: shapes and parts", {
    append = "nd.concat", argwhere = "nd.contrib.boolean_mask", array_split = "nd.split",
    atleast_1d = "nd.reshape", atleast_2d = "nd.expand_dims", cat = "nd.concat sym.Concat",
    chunk = "nd.split", column_stack = "nd.stack", compress = "nd.contrib.boolean_mask",
    concatenate = "nd.concat sym.Concat", diagonal = "nd.diag", dstack = "nd.concat sym.Concat",
    expand = "nd.broadcast_to", expand_as = "nd.broadcast_like", fliplr = "nd.flip",
    flipud = "nd.flip", fold = "nd.col2im", gather = "nd.pick", hsplit = "nd.split",
    hstack = "nd.concat sym.Concat", index_select = "nd.take", masked_fill = "nd.where",
    masked_select = "nd.contrib.boolean_mask", movedim = "nd.moveaxis", narrow = "nd.slice_axis",
    newaxis = "nd.expand_dims", nonzero = "nd.contrib.boolean_mask", permute = "nd.transpose",
    put = "nd.scatter_nd", ravel = "nd.flatten NDArray:reshape", repeat_interleave = "nd.repeat",
    resize = "NDArray:reshape image.imresize", roll = "nd.concat", rollaxis = "nd.moveaxis",
    rot90 = "nd.flip", scatter = "nd.scatter_nd", scatter_add = "nd.scatter_nd",
    select = "nd.slice_axis", t = "NDArray.T nd.transpose", take_along_axis = "nd.pick",
    trace = "nd.diag", unbind = "nd.split", unflatten = "NDArray:reshape", unfold = "nd.im2col",
    unravel = "nd.unravel_index", unsqueeze = "nd.expand_dims", view = "NDArray:reshape nd.reshape",
    view_as = "NDArray:reshape_like", vsplit = "nd.split", vstack = "nd.concat sym.Concat",
  } },
  { "Arrays: arithmetic", {
    absolute = "nd.abs", acos = "nd.arccos", acosh = "nd.arccosh", addmm = "nd.linalg.gemm",
    all = "nd.min", allclose = "nd.contrib.allclose", amax = "nd.max", amin = "nd.min",
    any = "nd.max", argpartition = "nd.topk", around = "nd.round",
    array_equal = "test_utils.same nd.contrib.allclose", asin = "nd.arcsin", asinh = "nd.arcsinh",
    atan = "nd.arctan", atanh = "nd.arctanh", average = "nd.mean", baddbmm = "nd.linalg.gemm",
    bincount = "nd.histogram", bmm = "nd.batch_dot", cholesky = "nd.linalg.potrf",
    clamp = "nd.clip", cmul = "nd.multiply NDArray:mul_", cumprod = "nd.cumsum",
    deg2rad = "nd.radians", det = "nd.linalg.det", diff = "nd.slice_axis", eig = "nd.linalg.syevd",
    eigh = "nd.linalg.syevd", eigvalsh = "nd.linalg.syevd", einsum = "nd.dot nd.batch_dot",
    exp2 = "nd.power", fabs = "nd.abs", fft = "nd.contrib.fft", floor_divide = "nd.floor",
    fmod = "nd.modulo", frac = "nd.trunc", histc = "nd.histogram", ifft = "nd.contrib.ifft",
    inner = "nd.dot", inv = "nd.linalg.inverse", inverse = "nd.linalg.inverse",
    isclose = "test_utils.almost_equal nd.contrib.allclose", isfinite = "nd.contrib.isfinite",
    isinf = "nd.contrib.isinf", isnan = "nd.contrib.isnan", kthvalue = "nd.topk",
    lgamma = "nd.gammaln", logsumexp = "nd.log_softmax", lstsq = "nd.linalg.trsm",
    matmul = "nd.dot nd.batch_dot", median = "nd.sort", mm = "nd.dot", mv = "nd.dot",
    neg = "nd.negative", outer = "nd.linalg.gemm2 nd.dot", percentile = "nd.sort",
    qr = "nd.linalg.gelqf", quantile = "nd.sort", rad2deg = "nd.degrees", remainder = "nd.modulo",
    rfft = "nd.contrib.fft", slogdet = "nd.linalg.slogdet", solve = "nd.linalg.trsm",
    sqr = "nd.square", std = "nd.moments", svd = "nd.linalg.syevd", tensordot = "nd.dot",
    unique = "nd.sort", var = "nd.moments", var_mean = "nd.moments", vdot = "nd.dot",
  } },
  { "Arrays: comparison and logic", {
    bitwise_and = "nd.logical_and", bitwise_not = "nd.logical_not", bitwise_or = "nd.logical_or",
    bitwise_xor = "nd.logical_xor", eq = "nd.equal NDArray:eq", equal = "NDArray:eq nd.equal",
    ge = "nd.greater_equal NDArray:ge", greater = "NDArray:gt nd.greater",
    greater_equal = "NDArray:ge nd.greater_equal", gt = "nd.greater NDArray:gt",
    le = "nd.lesser_equal NDArray:le", less = "NDArray:lt nd.lesser",
    less_equal = "NDArray:le nd.lesser_equal", lesser = "NDArray:lt nd.lesser",
    lesser_equal = "NDArray:le nd.lesser_equal", lt = "nd.lesser NDArray:lt",
    ne = "nd.not_equal NDArray:ne", not_equal = "NDArray:ne nd.not_equal",
  } },
  { "Random numbers", {
    bernoulli = "random.uniform", categorical = "random.multinomial", choice = "random.multinomial",
    default_rng = "random.seed", get_rng_state = "random.get_state", manual_seed = "random.seed",
    permutation = "random.shuffle", rand = "random.uniform", randn = "random.randn",
    random = "random.uniform", random_sample = "random.uniform", randperm = "random.shuffle",
    rng_state = "random.get_state", seed = "random.seed", set_rng_state = "random.set_state",
    set_seed = "random.seed", standard_normal = "random.randn", trunc_normal = "random.normal",
  } },
  { "Layers", {
    adaptiveavgpool2d = "sym.contrib.AdaptiveAvgPooling2D", adaptivemaxpool2d = "sym.Pooling",
    affine_grid = "sym.GridGenerator", attention = "sym.contrib.interleaved_matmul_selfatt_qk",
    averagepooling2d = "sym.Pooling gluon.nn.AvgPool2D",
    avgpool1d = "sym.Pooling gluon.nn.AvgPool1D", avgpool2d = "sym.Pooling gluon.nn.AvgPool2D",
    avgpool3d = "sym.Pooling gluon.nn.AvgPool3D", batchnorm1d = "sym.BatchNorm gluon.nn.BatchNorm",
    batchnorm2d = "sym.BatchNorm gluon.nn.BatchNorm",
    batchnorm3d = "sym.BatchNorm gluon.nn.BatchNorm",
    batchnormalization = "sym.BatchNorm gluon.nn.BatchNorm",
    bidirectional = "rnn.BidirectionalCell", bn = "sym.BatchNorm gluon.nn.BatchNorm",
    box_iou = "sym.contrib.box_iou", checkpoint_sequential = "Symbol:simple_bind{memory_budget}",
    constantpad2d = "sym.Pad", conv = "sym.Convolution", conv1d = "sym.Convolution gluon.nn.Conv1D",
    conv2d = "sym.Convolution gluon.nn.Conv2D",
    conv2dtranspose = "sym.Deconvolution gluon.nn.Conv2DTranspose",
    conv3d = "sym.Convolution gluon.nn.Conv3D", convlstm2d = "rnn.ConvLSTMCell",
    convtranspose1d = "sym.Deconvolution gluon.nn.Conv1DTranspose",
    convtranspose2d = "sym.Deconvolution gluon.nn.Conv2DTranspose",
    convtranspose3d = "sym.Deconvolution gluon.nn.Conv3DTranspose",
    dense = "sym.FullyConnected gluon.nn.Dense", depthwiseconv2d = "Convolution{num_group}",
    dropout2d = "sym.Dropout gluon.nn.Dropout", embeddingbag = "sym.Embedding gluon.nn.Embedding",
    global_avg_pool2d = "Pooling{global_pool} gluon.nn.GlobalAvgPool2D",
    globalaveragepooling2d = "Pooling{global_pool} gluon.nn.GlobalAvgPool2D",
    grid_sample = "sym.BilinearSampler", gru = "rnn.GRUCell rnn.FusedRNNCell sym.RNN gluon.rnn.GRU",
    grucell = "rnn.GRUCell gluon.rnn.GRUCell",
    instancenorm2d = "sym.InstanceNorm gluon.nn.InstanceNorm", interpolate = "sym.UpSampling",
    layernormalization = "sym.LayerNorm gluon.nn.LayerNorm",
    lazylinear = "sym.FullyConnected gluon.nn.Dense", linear = "sym.FullyConnected gluon.nn.Dense",
    localresponsenorm = "sym.LRN", lstm = "rnn.LSTMCell rnn.FusedRNNCell sym.RNN gluon.rnn.LSTM",
    lstmcell = "rnn.LSTMCell gluon.rnn.LSTMCell",
    maxpool1d = "sym.Pooling gluon.nn.MaxPool1D", maxpool2d = "sym.Pooling gluon.nn.MaxPool2D",
    maxpool3d = "sym.Pooling gluon.nn.MaxPool3D", maxpooling2d = "sym.Pooling gluon.nn.MaxPool2D",
    multiheadattention = "sym.contrib.interleaved_matmul_selfatt_qk", nms = "sym.contrib.box_nms",
    normalize = "sym.L2Normalization", pack_padded_sequence = "sym.SequenceMask",
    pack_sequence = "sym.SequenceMask", pad_sequence = "sym.SequenceMask",
    pixel_shuffle = "sym.depth_to_space gluon.nn.PixelShuffle2D", rnncell = "rnn.RNNCell gluon.rnn.RNNCell",
    roi_align = "sym.contrib.ROIAlign", roi_pool = "sym.ROIPooling",
    scaled_dot_product_attention = "sym.contrib.interleaved_matmul_selfatt_qk",
    spatialbatchnormalization = "sym.BatchNorm", spatialconvolution = "sym.Convolution",
    spatialmaxpooling = "sym.Pooling", transformer = "sym.contrib.interleaved_matmul_selfatt_qk",
    upsample = "sym.UpSampling", upsamplingbilinear2d = "sym.UpSampling", zeropad2d = "sym.Pad",
  } },
  { "Activations", {
    activation = "Activation{act_type}", elu = "LeakyReLU{act_type} gluon.nn.ELU",
    gelu = "LeakyReLU{act_type} gluon.nn.GELU", hard_tanh = "sym.clip",
    hardsigmoid = "sym.hard_sigmoid", leaky = "LeakyReLU{act_type} gluon.nn.LeakyReLU",
    log_softmax = "sym.log_softmax", logsigmoid = "sym.log", mish = "op.pointwise",
    prelu = "LeakyReLU{act_type} gluon.nn.PReLU", relu = "nd.relu gluon.nn.Activation",
    relu6 = "sym.clip", rrelu = "LeakyReLU{act_type}",
    selu = "LeakyReLU{act_type} gluon.nn.SELU", silu = "sym.sigmoid gluon.nn.Swish",
    sigmoid = "nd.sigmoid gluon.nn.Activation", softmax2d = "sym.softmax",
    softplus = "'softrelu' Activation{act_type}",
    swish = "sym.sigmoid gluon.nn.Swish",
    tanh = "nd.tanh gluon.nn.Activation", tanhshrink = "op.pointwise", threshold = "sym.where",
  } },
  { "Losses", {
    bceloss = "sym.LogisticRegressionOutput gluon.loss.SigmoidBCELoss",
    bcewithlogitsloss = "sym.LogisticRegressionOutput gluon.loss.SigmoidBCELoss",
    binary_cross_entropy = "sym.LogisticRegressionOutput gluon.loss.SigmoidBCELoss",
    categorical_cross_entropy = "sym.SoftmaxOutput", cosine_similarity = "sym.L2Normalization",
    cross_entropy = "sym.SoftmaxOutput gluon.loss.SoftmaxCrossEntropyLoss",
    crossentropyloss = "sym.SoftmaxOutput gluon.loss.SoftmaxCrossEntropyLoss",
    hingeembeddingloss = "sym.SVMOutput", hingeloss = "sym.SVMOutput gluon.loss.HingeLoss",
    huberloss = "sym.smooth_l1 gluon.loss.HuberLoss", ignore_index = "SoftmaxOutput{ignore_label}",
    l1loss = "sym.MAERegressionOutput gluon.loss.L1Loss",
    label_smoothing = "SoftmaxOutput{smooth_alpha}", loss = "Module:fit{eval_metric} sym.MakeLoss",
    mse = "sym.LinearRegressionOutput gluon.loss.L2Loss",
    mseloss = "sym.LinearRegressionOutput gluon.loss.L2Loss", multimarginloss = "sym.SVMOutput",
    nll = "sym.SoftmaxOutput",
    nllloss = "sym.SoftmaxOutput sym.pick gluon.loss.SoftmaxCrossEntropyLoss",
    smoothl1loss = "sym.smooth_l1 gluon.loss.HuberLoss",
    sparse_categorical_crossentropy = "sym.SoftmaxOutput gluon.loss.SoftmaxCrossEntropyLoss",
  } },
  { "Options", {
    axis = "Concat{dim}", bias = "FullyConnected{no_bias}", correction = "nd.moments",
    dilation = "Convolution{dilate}", dropout = "Dropout{p} RNN{p}",
    embedding_dim = "Embedding{output_dim}", filters = "Convolution{num_filter}",
    groups = "Convolution{num_group}", hidden_size = "RNN{state_size} rnn.LSTMCell{num_hidden}",
    in_channels = "Convolution{num_filter}", in_features = "FullyConnected{num_hidden}",
    keepdim = "sum{keepdims}", kernel_size = "Convolution{kernel}", mode = "RNN{mode}",
    negative_slope = "LeakyReLU{slope}", num_embeddings = "Embedding{input_dim}",
    out_channels = "Convolution{num_filter}", out_features = "FullyConnected{num_hidden}",
    padding = "Convolution{pad}", scale_factor = "UpSampling{scale}",
    strides = "Convolution{stride}", units = "FullyConnected{num_hidden}",
    use_bias = "FullyConnected{no_bias}",
  } },
  { "Networks and gradients", {
    apply = "operator.CustomOp autograd.Function", backward = "NDArray:backward Executor:backward",
    buffers = "Symbol:list_auxiliary_states", check_numerics = "Executor:check_numerics",
    checkpoint = "callback.do_checkpoint Symbol:simple_bind{memory_budget}",
    children = "Symbol:get_internals Block:children", cond = "sym.contrib.cond",
    custom = "operator.CustomOp", detect_anomaly = "Executor:check_numerics",
    enable_grad = "autograd.record", eval = "Executor:forward{is_train} autograd.predict_mode",
    export = "onnx.export_model HybridBlock:export", from_onnx = "onnx.import_model",
    fine_tune = "mod.Module{fixed_param_names}", fine_tuning = "mod.Module{fixed_param_names}",
    forward = "Symbol:simple_bind", freeze = "mod.Module{fixed_param_names}", functional = "F sym",
    get_model_metadata = "onnx.get_model_metadata", get_weights = "Module:get_params",
    grad = "autograd.grad Executor.grad_dict",
    gradcheck = "test_utils.check_gradient test_utils.check_numeric_gradient",
    gradienttape = "autograd.record", graph = "viz.plot_network",
    inferencesession = "onnx.load onnx.import_model", input = "sym.Variable",
    load_state_dict = "Module:set_params Block:load_parameters", model = "mod.Module",
    module = "mod.Module gluon.Block", modulelist = "mod.SequentialModule gluon.nn.Sequential",
    named_parameters = "Module:get_params Block:collect_params", nan = "Executor:check_numerics",
    nn = "gluon sym rnn", no_grad = "autograd.pause", np = "nd",
    parameter = "gluon.Parameter sym.Variable",
    parameters = "Module:get_params Block:collect_params", placeholder = "sym.Variable",
    plot_model = "viz.plot_network", register_buffer = "Symbol:list_auxiliary_states",
    register_forward_hook = "monitor.Monitor Block:register_forward_hook",
    requires_grad = "NDArray:attach_grad", retain_graph = "NDArray:backward{retain_graph}",
    scan = "sym.contrib.foreach", sequential = "mod.SequentialModule gluon.nn.Sequential",
    set_detect_anomaly = "Executor:check_numerics", set_weights = "Module:set_params",
    onnx = "onnx.import_model onnx.export_model onnx.load",
    state_dict = "Module:get_params Block:save_parameters",
    summary = "Module:summary Block:summary viz.print_summary", to_onnx = "onnx.export_model", torch = "nd",
    train = "Executor:forward{is_train} autograd.train_mode",
    transfer_learning = "mod.Module{fixed_param_names}", weights = "Module:get_params",
    while_loop = "sym.contrib.while_loop",
    reset_ctx = "ParameterDict:reset_ctx", set_lr = "Trainer:set_learning_rate",
    zero_grad = "NDArray:attach_grad{grad_req} Symbol:simple_bind{grad_req} Block:zero_grad",
  } },
  { "Training", {
    accumulate_grad_batches = "Module:fit{accumulate}", accuracy_score = "metric.Accuracy",
    all_reduce = "kv.KVStore", alpha = "optimizer.RMSProp{gamma1}",
    amp = "amp.init Module:fit{loss_scale}",
    autocast = "amp.init amp.convert", betas = "optimizer.Adam{beta1}",
    bf16 = "'bfloat16'", callbacks = "Module:fit{epoch_end_callback} callback",
    clip_grad_norm = "Module:fit{clip_global_norm} optimizer.clip_global_norm \z
      gluon.utils.clip_global_norm",
    clip_grad_value = "optimizer.SGD{clip_gradient}", clipnorm = "Module:fit{clip_global_norm}",
    clipvalue = "optimizer.SGD{clip_gradient}", cosine_decay = "lr_scheduler.CosineScheduler",
    cosineannealinglr = "lr_scheduler.CosineScheduler", dataparallel = "mod.Module{context}",
    decay = "lr_scheduler.FactorScheduler optimizer.SGD{wd}", distributed = "kv.create",
    distributeddataparallel = "kv.create", early_stopping = "Module:fit{early_stopping}",
    epochs = "Module:fit{num_epoch}", evaluate = "Module:score",
    exponentiallr = "lr_scheduler.FactorScheduler", f1_score = "metric.F1",
    fit_generator = "Module:fit", fp16 = "'float16'",
    gradient_accumulation = "Module:fit{accumulate}",
    gradient_checkpointing = "Symbol:simple_bind{memory_budget}",
    gradient_clipping = "Module:fit{clip_global_norm} gluon.utils.clip_global_norm",
    gradscaler = "amp.init_trainer Module:fit{loss_scale}", hook = "monitor.Monitor", horovod = "kv.create",
    lambdalr = "optimizer.SGD{lr_scheduler}", learning_rate = "optimizer.SGD{learning_rate}",
    learning_rate_decay = "lr_scheduler.FactorScheduler", linearlr = "lr_scheduler.PolyScheduler",
    lr = "optimizer.SGD{learning_rate}", lr_decay = "lr_scheduler.FactorScheduler",
    max_epochs = "Module:fit{num_epoch}", metric = "Module:fit{eval_metric}",
    metrics = "Module:fit{eval_metric} metric", mixed_precision = "amp.init Module:fit{loss_scale}",
    modelcheckpoint = "callback.do_checkpoint", multi_gpu = "mod.Module{context}",
    multisteplr = "lr_scheduler.MultiFactorScheduler", n_epochs = "Module:fit{num_epoch}",
    nesterov = "optimizer.NAG", num_epochs = "Module:fit{num_epoch}",
    onecyclelr = "lr_scheduler.CosineScheduler", optim = "optimizer gluon.Trainer",
    polynomiallr = "lr_scheduler.PolyScheduler", predict_on_batch = "Module:predict",
    profile = "profiler", progress_bar = "callback.ProgressBar", scheduler = "lr_scheduler",
    step = "Module:update lr_scheduler.FactorScheduler{step}",
    steplr = "lr_scheduler.FactorScheduler", summarywriter = "tensorboard.Writer",
    tensorboard = "tensorboard.Writer callback.TensorBoard", test = "Module:score",
    topkcategoricalaccuracy = "metric.TopKAccuracy", tqdm = "callback.ProgressBar",
    train_on_batch = "Module:forward_backward", validation_data = "Module:fit{eval_data}",
    warmup = "lr_scheduler.FactorScheduler{warmup_steps}", weight_decay = "optimizer.SGD{wd}",
  } },
  { "Starting values", {
    constant = "init.Constant nd.full", glorot = "init.Xavier", glorot_uniform = "init.Xavier",
    he = "init.MSRAPrelu", he_normal = "init.MSRAPrelu", kaiming = "init.MSRAPrelu",
    kaiming_normal = "init.MSRAPrelu", kaiming_uniform = "init.MSRAPrelu",
    kernel_initializer = "sym.Variable{init}", ones = "nd.ones init.One", trunc = "nd.trunc",
    weight_init = "init.Xavier", xavier_normal = "init.Xavier", xavier_uniform = "init.Xavier",
    zeros = "nd.zeros init.Zero",
  } },
  { "Data, files and pictures", {
    augmentation = "image.CreateAugmenter", batch_size = "io.NDArrayIter{batch_size}",
    centercrop = "image.CenterCropAug gluon.data.vision.transforms.CenterCrop",
    cifar10 = "io.ImageRecordIter gluon.data.vision.CIFAR10",
    colorjitter = "image.ColorJitterAug gluon.data.vision.transforms.RandomColorJitter",
    compose = "image.SequentialAug gluon.data.vision.transforms.Compose", csv = "io.CSVIter",
    cv2 = "image.imread", data_augmentation = "image.CreateAugmenter",
    dataloader = "io.NDArrayIter gluon.data.DataLoader",
    dataset = "io.NDArrayIter gluon.data.Dataset", datasets = "io gluon.data.vision",
    drop_last = "io.NDArrayIter{last_batch_handle} gluon.data.DataLoader{last_batch}",
    dump = "nd.save Module:save_checkpoint",
    fashionmnist = "io.MNISTIter gluon.data.vision.FashionMNIST", from_pretrained = "nd.load",
    genfromtxt = "io.CSVIter", gguf = "nd.load", hist = "viz.histogram",
    imagefolder = "image.ImageFolderIter gluon.data.vision.ImageFolderDataset",
    imagenet = "io.ImageRecordIter", imread = "image.imread", imshow = "viz.show",
    iterabledataset = "io.DataIter", load = "nd.load Module.load sym.load",
    load_lua = "torch7.load", load_mnist = "io.MNISTIter", load_model = "Module.load",
    load_weights = "Module:load_params", loadtxt = "io.CSVIter", make_grid = "viz.image_grid",
    matplotlib = "viz.plot", memmap = "nd.load", mnist = "io.MNISTIter gluon.data.vision.MNIST",
    npy = "nd.load", npz = "nd.load io.NPZIter",
    num_workers = "io.ImageRecordIter{preprocess_threads} gluon.data.DataLoader{num_workers}",
    pickle = "pytorch.load nd.save", pil = "image.imread", pin_memory = "cpu_pinned",
    plot = "viz.plot", plt = "viz", prefetch = "io.PrefetchingIter", pt = "nd.load pytorch.load",
    pth = "nd.load pytorch.load", pyplot = "viz.plot", randomcrop = "image.RandomCropAug",
    randomhorizontalflip = "image.HorizontalFlipAug \z
      gluon.data.vision.transforms.RandomFlipLeftRight",
    randomresizedcrop = "image.RandomSizedCropAug gluon.data.vision.transforms.RandomResizedCrop",
    read_csv = "io.CSVIter", resume = "Module:load_state", safetensors = "nd.load",
    sampler = "io.NDArrayIter{shuffle} gluon.data.Sampler",
    save = "nd.save Module:save_checkpoint Symbol:save", save_model = "Module:save_checkpoint",
    save_weights = "Module:save_params", savefig = "viz.plot", savetxt = "nd.save",
    savez = "nd.save", settings = "runtime", show = "viz.show",
    t7 = "torch7.load torch7.import_model",
    tensordataset = "io.NDArrayIter gluon.data.ArrayDataset", tokenizer = "rnn.encode_sentences",
    torchfile = "torch7.load", transforms = "image.CreateAugmenter gluon.data.vision.transforms",
    util = "test_utils", utils = "test_utils", version = "runtime.Features",
  } },
}

-- Words that mean the same in a question, for the search of the pages.
foreign.SYNONYMS = {
  "picture image photo", "host machine node cluster server", "several multiple multi many",
  "deploy deployment production inference serve", "save store export write", "nan inf infinite",
  "resume continue restart", "speed fast slow performance", "example tutorial guide",
  "memory oom ram", "pretrained finetuning transfer freezing frozen", "notebook jupyter ipython",
  "half float16 fp16 bfloat16 mixed", "error exception failure", "rl reinforcement",
  "bucketing variable_length padding", "class classification classifier", "data dataset dataloader",
  "iterator dataloader", "plot chart curve", "c cpp", "gpu cuda", "debug debugging",
  "started quickstart beginner introduction hour", "transposed deconvolution", "repl console prompt",
  "visualize visualise draw plot_network", "intermediate hidden get_internals",
  "count print_summary", "tied shared",
}

-- Word -> advice, for words without an exact counterpart. A word may have names as well.
foreign.INSTEAD = {
  all = "the least of a comparison, which is 0 and 1: x:gt(0):min()",
  any = "the greatest of a comparison, which is 0 and 1: x:gt(0):max()",
  bernoulli = "compare uniform numbers: ty.random.uniform{shape = s}:lt(p)",
  class_weight = "multiply each row's loss by its weight, and hand it to MakeLoss",
  compile = "binding compiles a symbol",
  cumprod = "the exponential of cumsum of the logarithms",
  delete = "join what is left with concat",
  diff = "subtract two slices: x[\"1:\"] - x[\":-1\"]",
  einsum = "write it with dot, batch_dot, transpose and sum",
  empty_cache = "memory returns to the pool when an array is collected; x:free() does it at once",
  eval = "autograd.predict_mode(f), or forward without is_train; calls that are not recorded are so",
  functional = "layers are operators of ty.F, such as ty.F.FullyConnected",
  insert = "join slices with concat",
  jit = "binding compiles a symbol",
  kldivloss = "write the sum with log, and hand it to MakeLoss",
  logsumexp = "m + log(sum(exp(x - m))), where m is the maximum",
  lstsq = "factor with potrf, then trsm",
  median = "sort, and take the middle",
  meshgrid = "broadcasting needs no grid: x:expand_dims(0) + y:expand_dims(1)",
  nanmean = "nansum, divided by the count of what is no NaN",
  nn = "layers are classes of ty.gluon.nn, or operators such as ty.sym.FullyConnected",
  percentile = "sort, and take an element",
  qr = "linalg.gelqf is an LQ factorization: transpose twice",
  quantile = "sort, and take an element",
  reducelronplateau = "schedules count updates, and any function of that count is one",
  roll = "join two slices with concat",
  script = "binding compiles a symbol",
  solve = "factor with potrf, then trsm; or multiply by linalg.inverse",
  summarywriter = "ty.tensorboard.Writer{dir} writes event files",
  svd = "linalg.syevd of x times its transpose; linalg.gelqf is an LQ factorization",
  tensorboard = "ty.callback.TensorBoard{dir} writes a training, ty.tensorboard.Writer anything",
  trace = "the sum of diag",
  train = "autograd.record(f) and train_mode(f), or forward with is_train = true",
  tril = "multiply by a mask: rows:expand_dims(1):ge(columns), of two arange",
  triu = "multiply by a mask: rows:expand_dims(1):le(columns), of two arange",
  unique = "sort brings equal elements together; x:totable() gives Lua numbers",
  zero_grad = "backward writes gradients anew; those of grad_req = \"add\" net:zero_grad() clears",
}


--- Returns a word in the form in which words are compared: lower case without underscores.
function foreign.plain(word)
  return (word:lower():gsub("_", ""))
end


local names, advice                                     -- plain word -> list of names; sentence

local function read_table()
  names, advice = {}, {}
  for _, topic in ipairs(foreign.TOPICS) do
    for word, text in pairs(topic[2]) do
      local list = {}
      for name in text:gmatch("%S+") do
        list[#list + 1] = name
      end
      names[foreign.plain(word)] = list
    end
  end
  for word, text in pairs(foreign.INSTEAD) do
    advice[foreign.plain(word)] = text
  end
end


--- Returns the names here for a word of another library.
-- @string word of another library, its last part: "cat" of "torch.cat"
-- @treturn {string,...} names as in TOPICS, the likeliest first; perhaps empty
function foreign.names(word)
  if not names then
    read_table()
  end
  return names[foreign.plain(word)] or {}
end


--- Returns the last part of a name: "concat" of "nd.concat", "axis" of "sum{axis}".
function foreign.last(name)
  return name:match("([%w_]+)[}']?$")
end


--- Returns the advice for a word of another library.
-- @string word
-- @treturn ?string nil: there is none
function foreign.instead(word)
  if not advice then
    read_table()
  end
  return advice[foreign.plain(word)]
end


--- Returns the first name here for a word that is among the accepted ones.
-- @string word
-- @tparam {string,...} accepted
-- @treturn ?string one of them; nil if the word is unknown or none of its names is accepted
function foreign.counterpart(word, accepted)
  local spelled = {}
  for _, name in ipairs(accepted) do
    spelled[name] = name
    spelled[name:lower()] = spelled[name:lower()] or name
  end
  for _, name in ipairs(foreign.names(word)) do
    local last = foreign.last(name)
    local here = spelled[name] or spelled[last] or spelled[last:lower()]
    if here then
      return here
    end
  end
end


return foreign

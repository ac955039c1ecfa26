--- What names of PyTorch, NumPy, Keras and Torch7 are called here (not for users).
--
-- Errors about unknown names suggest these before names that are spelled alike. The prompt's help
-- and the search of the pages read the same table.
--
-- @module tycho.core.foreign

local pairs = require("tycho.core.iterate").pairs

local foreign = {}

-- Topic -> word -> names here, the likeliest first. A word is in small letters and has no
-- underscores. A name is one of
--   nd.concat, random.seed, gpu     a function or class of a namespace of `ty`, or of `ty` itself
--   NDArray:reshape, NDArray.size   a method or a field of a class
--   Convolution{kernel}             an option of an operator
--   Module:fit{num_epoch}           an option of a function or class, by the name of its form
--   'float32'                       a word that an option takes
foreign.TOPICS = {
  { "Arrays: making them", {
    arange = "nd.arange", array = "nd.array", asarray = "nd.array", ascontiguousarray = "nd.array",
    astensor = "nd.array", emptylike = "nd.zeros_like", floattensor = "nd.array",
    frombuffer = "nd.from_string", fromnumpy = "nd.array", fulllike = "nd.full nd.ones_like",
    logspace = "nd.linspace", longtensor = "nd.array", meshgrid = "nd.broadcast_axis",
    ndarray = "nd.NDArray nd.array", randlike = "nd.random.uniform_like",
    randnlike = "nd.random.normal_like", range = "nd.arange", tensor = "nd.array",
    totensor = "nd.image.to_tensor nd.array", tril = "nd.linalg.extracttrian",
    triu = "nd.linalg.maketrian",
  } },
  { "Arrays: values, types, devices", {
    add = "NDArray:add_ nd.broadcast_add", array2string = "nd.set_printoptions",
    asnumpy = "NDArray:totable", bool = "NDArray:astype", byte = "'uint8' NDArray:astype",
    char = "'int8' NDArray:astype", clone = "NDArray:copy", contiguous = "NDArray:copy",
    cpu = "NDArray:as_in_context cpu", cuda = "NDArray:as_in_context gpu",
    deepcopy = "NDArray:copy", detach = "sym.BlockGrad",
    device = "NDArray.context context nd.array{ctx}", devicecount = "num_gpus context.num_gpus",
    dim = "sum{axis} NDArray.ndim", div = "NDArray:div_ nd.broadcast_div",
    double = "NDArray:astype 'float64'", float = "NDArray:astype 'float32'",
    getitem = "NDArray:get", gpu = "NDArray:as_in_context gpu", half = "NDArray:astype 'float16'",
    int = "NDArray:astype 'int32'", isavailable = "num_gpus", iscontiguous = "NDArray:copy",
    istensor = "is_a", item = "NDArray:asscalar", long = "NDArray:astype 'int64'",
    mul = "NDArray:mul_ nd.broadcast_mul", nbytes = "NDArray.size", ndimension = "NDArray.ndim",
    nelement = "NDArray.size", numel = "NDArray.size", numpy = "NDArray:totable",
    printoptions = "nd.set_printoptions", rank = "NDArray.ndim", setitem = "NDArray:set",
    stopgradient = "sym.BlockGrad", sub = "NDArray:sub_ nd.broadcast_sub", synchronize = "waitall",
    to = "NDArray:as_in_context", tolist = "NDArray:totable", type = "NDArray:astype NDArray.dtype",
    typeas = "NDArray:astype", zero = "NDArray:fill",
  } },
  { "Arrays: shapes and parts", {
    append = "nd.concat", argwhere = "nd.contrib.boolean_mask", arraysplit = "nd.split",
    atleast1d = "nd.reshape", atleast2d = "nd.expand_dims", cat = "nd.concat sym.Concat",
    chunk = "nd.split", columnstack = "nd.stack", compress = "nd.contrib.boolean_mask",
    concatenate = "nd.concat sym.Concat", delete = "nd.concat", diagonal = "nd.diag",
    dstack = "nd.concat sym.Concat", expand = "nd.broadcast_to", expandas = "nd.broadcast_like",
    fliplr = "nd.flip", flipud = "nd.flip", fold = "nd.col2im", gather = "nd.pick",
    hsplit = "nd.split", hstack = "nd.concat sym.Concat", indexselect = "nd.take",
    insert = "nd.concat", maskedfill = "nd.where", maskedselect = "nd.contrib.boolean_mask",
    movedim = "nd.moveaxis", narrow = "nd.slice_axis", newaxis = "nd.expand_dims",
    nonzero = "nd.contrib.boolean_mask", permute = "nd.transpose", put = "nd.scatter_nd",
    ravel = "nd.flatten NDArray:reshape", repeatinterleave = "nd.repeat",
    resize = "NDArray:reshape image.imresize", roll = "nd.concat", rollaxis = "nd.moveaxis",
    rot90 = "nd.flip", scatter = "nd.scatter_nd", scatteradd = "nd.scatter_nd",
    select = "nd.slice_axis", t = "NDArray.T nd.transpose", takealongaxis = "nd.pick",
    trace = "nd.diag", unbind = "nd.split", unflatten = "NDArray:reshape", unfold = "nd.im2col",
    unravel = "nd.unravel_index", unsqueeze = "nd.expand_dims", view = "NDArray:reshape nd.reshape",
    viewas = "NDArray:reshape_like", vsplit = "nd.split", vstack = "nd.concat sym.Concat",
  } },
  { "Arrays: arithmetic", {
    absolute = "nd.abs", acos = "nd.arccos", acosh = "nd.arccosh", addmm = "nd.linalg.gemm",
    all = "nd.min", allclose = "nd.contrib.allclose", amax = "nd.max", amin = "nd.min",
    any = "nd.max", argpartition = "nd.topk", around = "nd.round",
    arrayequal = "test_utils.same nd.contrib.allclose", asin = "nd.arcsin", asinh = "nd.arcsinh",
    atan = "nd.arctan", atanh = "nd.arctanh", average = "nd.mean", baddbmm = "nd.linalg.gemm",
    bincount = "nd.histogram", bmm = "nd.batch_dot", cholesky = "nd.linalg.potrf",
    clamp = "nd.clip", cmul = "nd.multiply NDArray:mul_", cumprod = "nd.cumsum",
    deg2rad = "nd.radians", det = "nd.linalg.det", diff = "nd.slice_axis", eig = "nd.linalg.syevd",
    eigh = "nd.linalg.syevd", eigvalsh = "nd.linalg.syevd", einsum = "nd.dot nd.batch_dot",
    exp2 = "nd.power", fabs = "nd.abs", fft = "nd.contrib.fft", floordivide = "nd.floor",
    fmod = "nd.modulo", frac = "nd.trunc", histc = "nd.histogram", ifft = "nd.contrib.ifft",
    inner = "nd.dot", inv = "nd.linalg.inverse", inverse = "nd.linalg.inverse",
    isclose = "test_utils.almost_equal nd.contrib.allclose", isfinite = "nd.contrib.isfinite",
    isinf = "nd.contrib.isinf", isnan = "nd.contrib.isnan", kron = "nd.khatri_rao",
    kthvalue = "nd.topk", lgamma = "nd.gammaln", logsumexp = "nd.log_softmax",
    lstsq = "nd.linalg.trsm", matmul = "nd.dot nd.batch_dot", median = "nd.sort", mm = "nd.dot",
    mv = "nd.dot", nanmean = "nd.nansum", neg = "nd.negative", outer = "nd.linalg.gemm2 nd.dot",
    percentile = "nd.sort", pinv = "nd.linalg.inverse", qr = "nd.linalg.gelqf",
    quantile = "nd.sort", rad2deg = "nd.degrees", remainder = "nd.modulo", rfft = "nd.contrib.fft",
    slogdet = "nd.linalg.slogdet", solve = "nd.linalg.trsm", sqr = "nd.square", std = "nd.moments",
    svd = "nd.linalg.syevd", tensordot = "nd.dot", unique = "nd.sort", var = "nd.moments",
    varmean = "nd.moments", vdot = "nd.dot",
  } },
  { "Arrays: comparison and logic", {
    bitwiseand = "nd.logical_and", bitwisenot = "nd.logical_not", bitwiseor = "nd.logical_or",
    bitwisexor = "nd.logical_xor", eq = "nd.equal NDArray:eq", equal = "NDArray:eq nd.equal",
    ge = "nd.greater_equal NDArray:ge", greater = "NDArray:gt nd.greater",
    greaterequal = "NDArray:ge nd.greater_equal", gt = "nd.greater NDArray:gt",
    le = "nd.lesser_equal NDArray:le", less = "NDArray:lt nd.lesser",
    lessequal = "NDArray:le nd.lesser_equal", lesser = "NDArray:lt nd.lesser",
    lesserequal = "NDArray:le nd.lesser_equal", lt = "nd.lesser NDArray:lt",
    ne = "nd.not_equal NDArray:ne", notequal = "NDArray:ne nd.not_equal",
  } },
  { "Random numbers", {
    bernoulli = "random.uniform", binomial = "random.negative_binomial",
    categorical = "random.multinomial", choice = "random.multinomial", defaultrng = "random.seed",
    getrngstate = "random.get_state", manualseed = "random.seed", permutation = "random.shuffle",
    rand = "random.uniform", randn = "random.randn", random = "random.uniform",
    randomsample = "random.uniform", randperm = "random.shuffle", rngstate = "random.get_state",
    seed = "random.seed", setrngstate = "random.set_state", setseed = "random.seed",
    standardnormal = "random.randn", truncnormal = "random.normal",
  } },
  { "Layers", {
    adaptiveavgpool2d = "sym.contrib.AdaptiveAvgPooling2D", adaptivemaxpool2d = "sym.Pooling",
    affinegrid = "sym.GridGenerator", attention = "sym.contrib.interleaved_matmul_selfatt_qk",
    averagepooling2d = "sym.Pooling", avgpool1d = "sym.Pooling", avgpool2d = "sym.Pooling",
    avgpool3d = "sym.Pooling", batchnorm1d = "sym.BatchNorm", batchnorm2d = "sym.BatchNorm",
    batchnorm3d = "sym.BatchNorm", batchnormalization = "sym.BatchNorm",
    bidirectional = "rnn.BidirectionalCell", bn = "sym.BatchNorm", boxiou = "sym.contrib.box_iou",
    checkpointsequential = "Symbol:simple_bind{memory_budget}", constantpad2d = "sym.Pad",
    conv = "sym.Convolution", conv1d = "sym.Convolution", conv2d = "sym.Convolution",
    conv2dtranspose = "sym.Deconvolution", conv3d = "sym.Convolution",
    convlstm2d = "rnn.ConvLSTMCell", convtranspose1d = "sym.Deconvolution",
    convtranspose2d = "sym.Deconvolution", convtranspose3d = "sym.Deconvolution",
    dense = "sym.FullyConnected", depthwiseconv2d = "Convolution{num_group}",
    dropout2d = "sym.Dropout", embeddingbag = "sym.Embedding",
    globalaveragepooling2d = "Pooling{global_pool}", globalavgpool2d = "Pooling{global_pool}",
    gridsample = "sym.BilinearSampler", gru = "rnn.GRUCell rnn.FusedRNNCell sym.RNN",
    instancenorm2d = "sym.InstanceNorm", interpolate = "sym.UpSampling",
    layernormalization = "sym.LayerNorm", lazylinear = "sym.FullyConnected",
    linear = "sym.FullyConnected", localresponsenorm = "sym.LRN",
    lstm = "rnn.LSTMCell rnn.FusedRNNCell sym.RNN", maxpool1d = "sym.Pooling",
    maxpool2d = "sym.Pooling", maxpool3d = "sym.Pooling", maxpooling2d = "sym.Pooling",
    multiheadattention = "sym.contrib.interleaved_matmul_selfatt_qk", nms = "sym.contrib.box_nms",
    normalize = "sym.L2Normalization", packpaddedsequence = "sym.SequenceMask",
    packsequence = "sym.SequenceMask", padsequence = "sym.SequenceMask",
    pixelshuffle = "sym.depth_to_space", rnncell = "rnn.RNNCell", roialign = "sym.contrib.ROIAlign",
    roipool = "sym.ROIPooling",
    scaleddotproductattention = "sym.contrib.interleaved_matmul_selfatt_qk",
    spatialbatchnormalization = "sym.BatchNorm", spatialconvolution = "sym.Convolution",
    spatialmaxpooling = "sym.Pooling", transformer = "sym.contrib.interleaved_matmul_selfatt_qk",
    upsample = "sym.UpSampling", upsamplingbilinear2d = "sym.UpSampling", zeropad2d = "sym.Pad",
  } },
  { "Activations", {
    activation = "Activation{act_type}", elu = "LeakyReLU{act_type}", gelu = "LeakyReLU{act_type}",
    hardsigmoid = "sym.hard_sigmoid", hardtanh = "sym.clip", leaky = "LeakyReLU{act_type}",
    logsigmoid = "sym.log", logsoftmax = "sym.log_softmax", mish = "op.pointwise",
    prelu = "LeakyReLU{act_type}", relu6 = "sym.clip", rrelu = "LeakyReLU{act_type}",
    selu = "LeakyReLU{act_type}", silu = "sym.sigmoid", softmax2d = "sym.softmax",
    softplus = "'softrelu' Activation{act_type}", swish = "sym.sigmoid",
    tanhshrink = "op.pointwise", threshold = "sym.where",
  } },
  { "Losses", {
    bceloss = "sym.LogisticRegressionOutput", bcewithlogitsloss = "sym.LogisticRegressionOutput",
    binarycrossentropy = "sym.LogisticRegressionOutput",
    categoricalcrossentropy = "sym.SoftmaxOutput", classweight = "sym.MakeLoss",
    cosinesimilarity = "sym.L2Normalization", crossentropy = "sym.SoftmaxOutput",
    crossentropyloss = "sym.SoftmaxOutput", hingeembeddingloss = "sym.SVMOutput",
    hingeloss = "sym.SVMOutput", huberloss = "sym.smooth_l1",
    ignoreindex = "SoftmaxOutput{ignore_label}", kldivloss = "sym.MakeLoss",
    l1loss = "sym.MAERegressionOutput", labelsmoothing = "SoftmaxOutput{smooth_alpha}",
    loss = "Module:fit{eval_metric} sym.MakeLoss", mse = "sym.LinearRegressionOutput",
    mseloss = "sym.LinearRegressionOutput", multimarginloss = "sym.SVMOutput",
    nll = "sym.SoftmaxOutput", nllloss = "sym.SoftmaxOutput sym.pick",
    smoothl1loss = "sym.smooth_l1", sparsecategoricalcrossentropy = "sym.SoftmaxOutput",
  } },
  { "Options", {
    axis = "Concat{dim}", bias = "FullyConnected{no_bias}",
    correction = "nd.moments", dilation = "Convolution{dilate}", dropout = "Dropout{p} RNN{p}",
    embeddingdim = "Embedding{output_dim}", filters = "Convolution{num_filter}",
    groups = "Convolution{num_group}", hiddensize = "RNN{state_size} rnn.LSTMCell{num_hidden}",
    inchannels = "Convolution{num_filter}", infeatures = "FullyConnected{num_hidden}",
    keepdim = "sum{keepdims}", kernelsize = "Convolution{kernel}", mode = "RNN{mode}",
    negativeslope = "LeakyReLU{slope}", numembeddings = "Embedding{input_dim}",
    outchannels = "Convolution{num_filter}", outfeatures = "FullyConnected{num_hidden}",
    padding = "Convolution{pad}", scalefactor = "UpSampling{scale}",
    strides = "Convolution{stride}", units = "FullyConnected{num_hidden}",
    usebias = "FullyConnected{no_bias}",
  } },
  { "Networks and gradients", {
    apply = "operator.CustomOp", backward = "Executor:backward",
    buffers = "Symbol:list_auxiliary_states", checknumerics = "Executor:check_numerics",
    checkpoint = "callback.do_checkpoint Symbol:simple_bind{memory_budget}",
    children = "Symbol:get_internals", cond = "sym.contrib.cond", custom = "operator.CustomOp",
    detectanomaly = "Executor:check_numerics", eval = "Executor:forward{is_train}",
    finetune = "mod.Module{fixed_param_names}", finetuning = "mod.Module{fixed_param_names}",
    forward = "Symbol:simple_bind", freeze = "mod.Module{fixed_param_names}", functional = "sym",
    getweights = "Module:get_params", grad = "Executor.grad_dict",
    gradcheck = "test_utils.check_numeric_gradient", graph = "viz.plot_network",
    input = "sym.Variable", loadstatedict = "Module:set_params", model = "mod.Module",
    module = "mod.Module", modulelist = "mod.SequentialModule",
    namedparameters = "Module:get_params", nan = "Executor:check_numerics", nn = "sym rnn",
    nograd = "Symbol:simple_bind{grad_req}", np = "nd", parameter = "sym.Variable",
    parameters = "Module:get_params", placeholder = "sym.Variable", plotmodel = "viz.plot_network",
    registerbuffer = "Symbol:list_auxiliary_states", registerforwardhook = "monitor.Monitor",
    requiresgrad = "Symbol:simple_bind{grad_req}", retaingraph = "Symbol:simple_bind{grad_req}",
    scan = "sym.contrib.foreach", sequential = "mod.SequentialModule",
    setdetectanomaly = "Executor:check_numerics", setweights = "Module:set_params",
    statedict = "Module:get_params", summary = "viz.print_summary", torch = "nd",
    train = "Executor:forward{is_train}", transferlearning = "mod.Module{fixed_param_names}",
    weights = "Module:get_params", whileloop = "sym.contrib.while_loop",
    zerograd = "Symbol:simple_bind{grad_req}",
  } },
  { "Training", {
    accumulategradbatches = "Module:fit{accumulate}", accuracyscore = "metric.Accuracy",
    adamw = "optimizer.Adam", allreduce = "kv.KVStore", alpha = "optimizer.RMSProp{gamma1}",
    amp = "Module:fit{loss_scale}", autocast = "Module:fit{loss_scale} sym.Cast",
    betas = "optimizer.Adam{beta1}", bf16 = "'bfloat16'",
    callbacks = "Module:fit{epoch_end_callback} callback",
    clipgradnorm = "Module:fit{clip_global_norm} optimizer.clip_global_norm",
    clipgradvalue = "optimizer.SGD{clip_gradient}", clipnorm = "Module:fit{clip_global_norm}",
    clipvalue = "optimizer.SGD{clip_gradient}", confusionmatrix = "metric.MCC",
    cosineannealinglr = "lr_scheduler.CosineScheduler",
    cosinedecay = "lr_scheduler.CosineScheduler", dataparallel = "mod.Module{context}",
    decay = "lr_scheduler.FactorScheduler optimizer.SGD{wd}", distributed = "kv.create",
    distributeddataparallel = "kv.create", earlystopping = "Module:fit{early_stopping}",
    epochs = "Module:fit{num_epoch}", evaluate = "Module:score",
    exponentiallr = "lr_scheduler.FactorScheduler", f1score = "metric.F1",
    fitgenerator = "Module:fit", fp16 = "'float16'",
    gradientaccumulation = "Module:fit{accumulate}",
    gradientcheckpointing = "Symbol:simple_bind{memory_budget}",
    gradientclipping = "Module:fit{clip_global_norm}", gradscaler = "Module:fit{loss_scale}",
    hook = "monitor.Monitor", horovod = "kv.create", lambdalr = "optimizer.SGD{lr_scheduler}",
    lbfgs = "optimizer.SGD", learningrate = "optimizer.SGD{learning_rate}",
    learningratedecay = "lr_scheduler.FactorScheduler", linearlr = "lr_scheduler.PolyScheduler",
    lr = "optimizer.SGD{learning_rate}", lrdecay = "lr_scheduler.FactorScheduler",
    maxepochs = "Module:fit{num_epoch}", metric = "Module:fit{eval_metric}",
    metrics = "Module:fit{eval_metric} metric", mixedprecision = "Module:fit{loss_scale}",
    modelcheckpoint = "callback.do_checkpoint", multigpu = "mod.Module{context}",
    multisteplr = "lr_scheduler.MultiFactorScheduler", nepochs = "Module:fit{num_epoch}",
    nesterov = "optimizer.NAG", numepochs = "Module:fit{num_epoch}",
    onecyclelr = "lr_scheduler.CosineScheduler", optim = "optimizer",
    polynomiallr = "lr_scheduler.PolyScheduler", predictonbatch = "Module:predict",
    profile = "profiler", progressbar = "callback.ProgressBar",
    reducelronplateau = "lr_scheduler.FactorScheduler", scheduler = "lr_scheduler",
    step = "Module:update lr_scheduler.FactorScheduler{step}",
    steplr = "lr_scheduler.FactorScheduler", summarywriter = "callback.Speedometer viz.plot",
    tensorboard = "callback.Speedometer viz.plot", test = "Module:score",
    topkcategoricalaccuracy = "metric.TopKAccuracy", tqdm = "callback.ProgressBar",
    trainonbatch = "Module:forward_backward", validationdata = "Module:fit{eval_data}",
    warmup = "lr_scheduler.FactorScheduler{warmup_steps}", weightdecay = "optimizer.SGD{wd}",
  } },
  { "Starting values", {
    constant = "init.Constant nd.full", glorot = "init.Xavier", glorotuniform = "init.Xavier",
    he = "init.MSRAPrelu", henormal = "init.MSRAPrelu", kaiming = "init.MSRAPrelu",
    kaimingnormal = "init.MSRAPrelu", kaiminguniform = "init.MSRAPrelu",
    kernelinitializer = "sym.Variable{init}", ones = "nd.ones init.One", trunc = "nd.trunc",
    weightinit = "init.Xavier", xaviernormal = "init.Xavier", xavieruniform = "init.Xavier",
    zeros = "nd.zeros init.Zero",
  } },
  { "Data, files and pictures", {
    augmentation = "image.CreateAugmenter", batchsize = "io.NDArrayIter{batch_size}",
    centercrop = "image.CenterCropAug", cifar10 = "io.ImageRecordIter",
    colorjitter = "image.ColorJitterAug", compose = "image.SequentialAug", csv = "io.CSVIter",
    cv2 = "image.imread", dataaugmentation = "image.CreateAugmenter", dataloader = "io.NDArrayIter",
    dataset = "io.NDArrayIter", datasets = "io", droplast = "io.NDArrayIter{last_batch_handle}",
    dump = "nd.save Module:save_checkpoint", fashionmnist = "io.MNISTIter",
    genfromtxt = "io.CSVIter", hist = "viz.histogram", imagefolder = "image.ImageIter",
    imagenet = "io.ImageRecordIter", imread = "image.imread", imshow = "viz.show",
    iterabledataset = "io.DataIter", load = "nd.load Module.load sym.load",
    loadmnist = "io.MNISTIter", loadmodel = "Module.load", loadtxt = "io.CSVIter",
    loadweights = "Module:load_params", makegrid = "viz.image_grid", matplotlib = "viz.plot",
    memmap = "nd.load", mnist = "io.MNISTIter", npy = "nd.load", npz = "nd.load",
    numworkers = "io.ImageRecordIter{preprocess_threads}", onnx = "Module:save_checkpoint",
    pickle = "nd.save", pil = "image.imread", pinmemory = "cpu_pinned", plt = "viz",
    prefetch = "io.PrefetchingIter", pyplot = "viz.plot", randomcrop = "image.RandomCropAug",
    randomhorizontalflip = "image.HorizontalFlipAug",
    randomresizedcrop = "image.RandomSizedCropAug", readcsv = "io.CSVIter",
    resume = "Module:load_state", safetensors = "nd.load", sampler = "io.NDArrayIter{shuffle}",
    save = "nd.save Module:save_checkpoint Symbol:save", savefig = "viz.plot",
    savemodel = "Module:save_checkpoint", savetxt = "nd.save", saveweights = "Module:save_params",
    savez = "nd.save", settings = "runtime", tensordataset = "io.NDArrayIter",
    tokenizer = "rnn.encode_sentences", transforms = "image.CreateAugmenter", util = "test_utils",
    utils = "test_utils", version = "runtime.Features",
  } },
}

-- Words that mean the same in a question, for the search of the pages.
foreign.SYNONYMS = {
  "picture image photo",
}

-- Word -> what to do instead, where no name says it. A word may have names, too.
foreign.INSTEAD = {
  autograd = "there is no tape: bind a symbol and call executor:backward(), or train a Module",
  gluon = "networks are symbols (ty.sym) that a Module trains; recurrent cells are ty.rnn",
  all = "the least of a comparison, which is 0 and 1: x:gt(0):min()",
  any = "the greatest of a comparison, which is 0 and 1: x:gt(0):max()",
  bernoulli = "compare uniform numbers: ty.random.uniform{shape = s}:lt(p)",
  compile = "binding compiles a symbol",
  cumprod = "the exponential of cumsum of the logarithms",
  diff = "subtract two slices: x[\"1:\"] - x[\":-1\"]",
  einsum = "write it with dot, batch_dot, transpose and sum",
  emptycache = "memory returns to the pool when an array is collected; x:free() does it at once",
  eval = "forward without is_train; a Module predicts so",
  functional = "layers are operators of ty.sym, such as ty.sym.FullyConnected",
  jit = "binding compiles a symbol",
  logsumexp = "m + log(sum(exp(x - m))), where m is the maximum",
  lstsq = "factor with potrf, then trsm",
  median = "sort, and take the middle",
  meshgrid = "broadcasting needs no grid: x:expand_dims(0) + y:expand_dims(1)",
  nn = "layers are operators of ty.sym, such as ty.sym.FullyConnected; recurrent cells are ty.rnn",
  nograd = "forward without is_train keeps nothing for backward",
  percentile = "sort, and take an element",
  quantile = "sort, and take an element",
  requiresgrad = "grad_req of bind and simple_bind says which gradients there are",
  roll = "join two slices with concat",
  script = "binding compiles a symbol",
  solve = "factor with potrf, then trsm; or multiply by linalg.inverse",
  svd = "linalg.syevd of x times its transpose; linalg.gelqf is an LQ factorization",
  trace = "the sum of diag",
  summarywriter = "callbacks log, ty.viz.plot draws curves; no files of TensorBoard are written",
  tensorboard = "callbacks log, ty.viz.plot draws curves; no files of TensorBoard are written",
  train = "forward with is_train = true; a Module's fit does so",
  unique = "sort brings equal elements together; x:totable() gives Lua numbers",
  zerograd = "backward writes gradients anew; grad_req = \"add\" adds to them",
}


-- Words as keys of the table.
local function plain(word)
  return (word:lower():gsub("_", ""))
end


local names                                             -- word -> list of names

--- What a word is called here.
-- @string word of another library, its last part: "cat" of "torch.cat"
-- @treturn {string,...} names as in TOPICS, the likeliest first; perhaps empty
function foreign.names(word)
  if not names then
    names = {}
    for _, topic in ipairs(foreign.TOPICS) do
      for key, text in pairs(topic[2]) do
        names[key] = names[key] or {}
        for name in text:gmatch("%S+") do
          table.insert(names[key], name)
        end
      end
    end
  end
  return names[plain(word)] or {}
end


--- The last part of a name: "concat" of "nd.concat", "axis" of "sum{axis}".
function foreign.last(name)
  return name:match("([%w_]+)[}']?$")
end


--- What to do instead of what a word stands for.
-- @string word
-- @treturn string or nil
function foreign.instead(word)
  return foreign.INSTEAD[plain(word)]
end


--- The name here for a word, among those that a place accepts.
-- @string word
-- @tparam {string,...} accepted
-- @treturn string one of them; nil where the word is not known or its names are not accepted
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

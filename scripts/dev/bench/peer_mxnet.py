"""MXNet 1.9.1's side of the benchmark: peer_mxnet.py [--plain] W1 W3 ... prints records (peer_common.py).

--plain switches its oneDNN off. W7 and W8 start this program again, with other settings of the engine or to count memory.
"""
import logging, os, subprocess, sys, time, warnings
warnings.filterwarnings("ignore")
from peer_common import *
import peer_nets
words = sys.argv[1:]
PLAIN = "--plain" in words
if PLAIN:
    words.remove("--plain")
    os.environ["MXNET_MKLDNN_ENABLED"] = "0"
    os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
os.environ["MXNET_STORAGE_FALLBACK_LOG_VERBOSE"] = "0"
import mxnet as mx
S, ND = mx.sym, mx.nd
NAME = "plain" if PLAIN else "onednn"
TAG = os.environ.get("BENCH_TAG", "")
# without oneDNN the fused RNN operator of this build fails ("in_data.size() == num_inputs (4 vs. 3)")
KINDS = ["unrolled"] if PLAIN else ["fused", "unrolled"]


def variant(kind=""): return " ".join(w for w in (NAME, kind, TAG) if w)


class Steps(peer_nets.Steps):
    def convolve(self, v, name, ci, co, k, stride, pad, bias):
        return S.Convolution(v, name=name, num_filter=co, kernel=(k, k), stride=(stride, stride), pad=(pad, pad), no_bias=not bias)
    def norm(self, v, name, c): return S.BatchNorm(v, name=name, fix_gamma=False, eps=1e-5, momentum=0.9)
    def act(self, v, kind): return S.Activation(v, act_type=kind)
    def drop(self, v): return S.Dropout(v, p=0.5)
    def pooling(self, v, kind, k, stride, pad): return S.Pooling(v, kernel=(k, k), stride=(stride, stride), pad=(pad, pad), pool_type=kind)
    def average(self, v): return S.Pooling(v, global_pool=True, kernel=(1, 1), pool_type="avg")
    def flat(self, v): return S.Flatten(v)
    def full(self, v, name, ci, co): return S.FullyConnected(v, name=name, num_hidden=co)
    def plus(self, a, b): return a + b
    def join(self, vs): return S.Concat(*vs, dim=1)


def network(name, head=True):
    define, shape, classes = peer_nets.NETS[name]
    out = define(Steps(), (S.Variable("data"), shape))[0]
    return S.SoftmaxOutput(out, S.Variable("label"), name="softmax") if head else out, shape, classes


def language(kind, layers, units, steps, batch):
    x = S.Embedding(S.Variable("data"), input_dim=VOCABULARY, output_dim=units, name="embed")
    if kind == "fused":
        cell = mx.rnn.FusedRNNCell(units, num_layers=layers, mode="lstm", prefix="rnn_")
    else:
        cell = mx.rnn.SequentialRNNCell()
        for l in range(layers):
            cell.add(mx.rnn.LSTMCell(units, prefix="l%d_" % l))
    out = cell.unroll(steps, x, layout="TNC", merge_outputs=True)[0]
    out = S.FullyConnected(S.Reshape(out, shape=(-1, units)), num_hidden=VOCABULARY, name="pred")
    return S.SoftmaxOutput(out, S.Reshape(S.Variable("label"), shape=(-1,)), name="softmax")


def fused_vector(layers, units):
    gates = [("l%d_%s" % (l, g)) for l in range(layers) for g in ("i2h", "h2h")]
    return np.concatenate([parameter(g + "_weight", (4 * units, units)).ravel() for g in gates] +
                          [parameter(g + "_bias", (4 * units,)) for g in gates])


class Bound:
    """An executor with its values and SGD with momentum for all its parameters."""

    def __init__(self, symbol, inputs, train, lr=0.1, share=1.0, lm=None):
        self.inputs, self.lr, self.share = inputs, lr, share
        names = symbol.list_arguments()
        request = {n: "null" if n in inputs or not train else "write" for n in names}
        self.exe = symbol.simple_bind(mx.cpu(), grad_req=request, **{k: v.shape for k, v in inputs.items()})
        for n, a in list(self.exe.arg_dict.items()) + list(self.exe.aux_dict.items()):
            if n in inputs:
                a[:] = inputs[n]
            elif n == "rnn_parameters":
                a[:] = fused_vector(*lm)
            elif "begin_state" not in n:
                a[:] = parameter(n, a.shape)
        grads = self.exe.grad_dict
        mine = [n for n in names if grads.get(n) is not None and "begin_state" not in n]
        self.groups = []
        for i in range(0, len(mine), 40):
            part = [self.exe.arg_dict[n] for n in mine[i:i + 40]]
            flat = [x for n, w in zip(mine[i:i + 40], part) for x in (w, grads[n], ND.zeros(w.shape))]
            self.groups.append((flat, part))
        ND.waitall()

    def update(self):
        for flat, weights in self.groups:
            n = len(weights)
            ND.multi_sgd_mom_update(*flat, out=weights, num_weights=n, lrs=[self.lr] * n, wds=[0.0] * n, momentum=0.9, rescale_grad=self.share)

    def step(self):
        self.exe.forward(is_train=True)
        self.exe.backward()
        self.update()

    def infer(self): self.exe.forward(is_train=False)

    def losses(self, n=3):
        out = []
        y = self.inputs["label"].ravel().astype(int)
        for _ in range(n):
            self.exe.forward(is_train=True)
            p = self.exe.outputs[0].asnumpy()
            out.append(-np.log(p[np.arange(y.size), y] + 1e-30).mean())
            self.exe.backward()
            self.update()
        ND.waitall()
        return out


def training(figure, name, batch, unit):
    def run():
        symbol, shape, classes = network(name)
        inputs = dict(data=images((batch,) + shape), label=labels("label", batch, classes).astype(np.float32))
        b = Bound(symbol, inputs, True, RATES[name], 1.0 / batch)
        check = b.losses()
        rate(figure, variant(), unit, batch, measure(b.step, ND.waitall), check)
    attempt(figure, run)


def w1(): training("W1", "mlp", 100, "samples/s")
def w2(): training("W2", "lenet", 64, "images/s")
def w3(): training("W3", "resnet20", 128, "images/s")


def w4():
    training("W4", "resnet50", 16, "images/s")
    for batch in (1, 32):
        def run():
            symbol, shape, _ = network("resnet50", False)
            b = Bound(symbol, dict(data=images((batch,) + shape)), False)
            b.infer()
            check = [np.abs(b.exe.outputs[0].asnumpy().astype("float64")).mean()]
            rate("W4 infer b%d" % batch, variant(), "images/s", batch, measure(b.infer, ND.waitall), check)
        attempt("W4 infer", run)


def language_inputs(steps, batch):
    x, y = tokens(steps, batch)
    return dict(data=x.astype(np.float32), label=y.astype(np.float32))


def w5():
    for layers, units, steps, batch in LM:
        for kind in KINDS:
            def run():
                b = Bound(language(kind, layers, units, steps, batch), language_inputs(steps, batch), True, LM_RATE,
                          1.0 / (steps * batch), (layers, units))
                check = b.losses()
                rate(lm_figure(layers, units, steps, batch), variant(kind), "tokens/s", steps * batch, measure(b.step, ND.waitall), check)
            attempt("W5 " + kind, run)


class Filled(mx.initializer.Initializer):
    def __call__(self, name, a):
        a[:] = fused_vector(2, 200) if name == "rnn_parameters" else 0 if "begin_state" in name else parameter(name, a.shape)


def bucketing(kind, top):
    module = mx.mod.BucketingModule(lambda T: (language(kind, 2, 200, T, 32), ("data",), ("label",)), default_bucket_key=top)
    describe = lambda T: ([mx.io.DataDesc("data", (T, 32), layout="TN")], [mx.io.DataDesc("label", (T, 32), layout="TN")])
    return module, describe


def settle():
    x = S.FullyConnected(S.Convolution(S.Variable("data"), kernel=(3, 3), num_filter=8, name="c"), num_hidden=4, name="f")
    Bound(S.SoftmaxOutput(x, S.Variable("label")), dict(data=np.zeros((1, 3, 16, 16), np.float32), label=np.zeros(1, np.float32)), True).step()
    ND.waitall()


def w6():
    if not TAG:                                       # a process for each kind, for the memory
        for kind in KINDS:
            subprocess.run([sys.executable, __file__] + ["--plain"] * PLAIN + ["W6"], env=dict(os.environ, BENCH_TAG=kind))
        return
    data = {T: [ND.array(a) for a in tokens(T, 32)] for T in BUCKETS}
    settle()
    rest()
    forget_peak()
    base, start = resident(), clock()
    module, describe = bucketing(TAG, 60)
    module.bind(*describe(60))
    module.init_params(Filled())
    module.init_optimizer(kvstore=None, optimizer="sgd", optimizer_params=dict(learning_rate=LM_RATE, momentum=0.9, rescale_grad=1.0 / 32 / 60))
    batches = {T: mx.io.DataBatch([data[T][0]], [data[T][1]], bucket_key=T, provide_data=describe(T)[0], provide_label=describe(T)[1]) for T in BUCKETS}
    def step(T):
        module.forward(batches[T], is_train=True)
        module.backward()
        module.update()
    def round_of(order):
        start = clock()
        for T in order:
            step(T)
        ND.waitall()
        return clock() - start
    round_of(BUCKETS)
    first = clock() - start
    rate("W6", variant(), "tokens/s", sum(BUCKETS) * 32, [in_turn(round_of, o) for o in ORDER])
    record("W6 first pass", variant(), "s", [first])
    record("W6 memory", variant(), "MiB", [peak() - base])


ENGINES = [("", {}), ("bulk off", dict(MXNET_EXEC_BULK_EXEC_INFERENCE="0", MXNET_EXEC_BULK_EXEC_TRAIN="0")),
           ("naive", dict(MXNET_ENGINE_TYPE="NaiveEngine"))]


def w7():
    for tag, settings in ENGINES[:1] if QUICK else ENGINES:
        subprocess.run([sys.executable, __file__] + ["--plain"] * PLAIN + ["one7"], env=dict(os.environ, BENCH_TAG=tag, **settings))


def one7():
    symbol, x = network("deep", False)[0], dict(data=images((8, 32)))
    def forward():
        b = Bound(symbol, x, False)
        b.infer()
        check = [np.abs(b.exe.outputs[0].asnumpy().astype("float64")).sum()]
        record("W7 forward", variant(), "ns/operator", [t / 200 * 1e9 for t in measure(b.infer, ND.waitall)], check)
    def both():
        b, head = Bound(symbol, x, True), ND.ones((8, 32))
        def step():
            b.exe.forward(is_train=True)
            b.exe.backward(head)
        step()
        check = [sum(np.abs(g.asnumpy().astype("float64")).sum() for g in b.exe.grad_dict.values() if g is not None)]
        record("W7 both", variant(), "ns/operator", [t / 200 * 1e9 for t in measure(step, ND.waitall)], check)
    attempt("W7 forward", forward)
    attempt("W7 both", both)


def w8():
    if PLAIN:
        return
    names = [peer_nets.MEMORY[i] for i in (0, 4, 6)] if QUICK else peer_nets.MEMORY
    for name in names:
        for mode in ("train", "infer"):
            for kind in KINDS if name.startswith("lstm") else [""]:
                subprocess.run([sys.executable, __file__, "memory:%s:%s" % (name, mode)], env=dict(os.environ, BENCH_TAG=kind))


def memory(name, mode):
    settle()
    n, train = MEMORY_BATCH, mode == "train"
    forget_peak()
    base = resident()
    if name.startswith("lstm"):
        layers, units, steps = peer_nets.lstm_sizes(name)
        b = Bound(language(TAG, layers, units, steps, n), language_inputs(steps, n), train, 1e-4, lm=(layers, units))
    else:
        symbol, shape, _ = network(name)
        b = Bound(symbol, dict(data=images((n,) + shape), label=np.zeros(n, np.float32)), train, 1e-4)
    forget_peak()
    for _ in range(2):
        (b.step if train else b.infer)()
        ND.waitall()
    record("W8 %s %s" % (name, mode), variant(), "MiB", [peak() - base])


def w9():
    settle()
    def timed(figure, kind, make, n):
        def run():
            out = []
            for _ in range(n):
                start = clock()
                kept = make()
                ND.waitall()
                out.append((clock() - start) * 1e3)
                del kept
            record(figure, variant(kind), "ms", out)
        attempt(figure, run)
    def bind(symbol, **shapes):
        return symbol.simple_bind(mx.cpu(), grad_req={n: "null" if n in shapes else "write" for n in symbol.list_arguments()}, **shapes)
    symbol, shape, _ = network("resnet50")
    timed("W9 bind resnet50", "", lambda: bind(symbol, data=(16,) + shape, label=(16,)), 5)
    for kind in KINDS:
        net = language(kind, 2, 200, 60, 32)
        timed("W9 bind lm", kind, lambda: bind(net, data=(60, 32), label=(60, 32)), 5)
        def buckets():
            module, describe = bucketing(kind, 60)
            module.bind(*describe(60))
            module.init_params(mx.initializer.Uniform(0.1))
            for T in range(60, 0, -1):
                module.switch_bucket(T, *describe(T))
            return module
        timed("W9 60 buckets", kind, buckets, 3 if kind == "fused" else 1)


def w10():
    for n in SIZES:
        x, y = ND.array(images((n,))), ND.zeros((n,))
        def elements(what, step, check=None):
            attempt(what, lambda: record("W10 %s %.0e" % (what, n), variant(), "ns/element",
                                         [t / n * 1e9 for t in measure(step, ND.waitall)], check and [float(check())]))
        rows, out = x.reshape((-1, 1000)), ND.zeros((n // 1000, 1000))
        elements("softmax", lambda: ND.softmax(rows, axis=1, out=out), lambda: out.asnumpy()[:, 7].astype("float64").sum())
        shape = NORM_SHAPE[n]
        bn = S.BatchNorm(S.Variable("data"), name="bn", fix_gamma=False, eps=1e-5).simple_bind(mx.cpu(), grad_req="write", data=shape)
        dy = ND.array(images(shape))
        bn.arg_dict["data"][:] = dy
        bn.arg_dict["bn_gamma"][:] = 1
        def both():
            bn.forward(is_train=True)
            bn.backward(dy)
        elements("batchnorm", both, lambda: np.abs(bn.grad_dict["bn_gamma"].asnumpy().astype("float64")).mean())
        if PLAIN:
            continue                                  # the others do not know oneDNN
        elements("copy", lambda: x.copyto(y))
        v = S.Variable("data")
        chain = Bound(S.relu(S.tanh(1.5 * v + 0.25) * S.sigmoid(v) - 0.1) * v, dict(data=images((n,))), False)
        elements("chain", chain.infer, lambda: np.abs(chain.exe.outputs[0].asnumpy().astype("float64")).mean())
        m = x.reshape(SUM_SHAPE[n])
        for axis in (0, 1):
            s = ND.zeros((SUM_SHAPE[n][1 - axis],))
            elements("sum %d" % axis, lambda: ND.sum(m, axis=axis, out=s), lambda: np.abs(s.asnumpy().astype("float64")).mean())
        w, g, a, b = x.copy(), x.copy(), ND.zeros((n,)), ND.zeros((n,))
        elements("adam", lambda: ND.adam_update(w, g, a, b, out=w, lr=1e-5))


RUN = dict(W1=w1, W2=w2, W3=w3, W4=w4, W5=w5, W6=w6, W7=w7, W8=w8, W9=w9, W10=w10, one7=one7)
for word in words:
    part = word.split(":")
    if part[0] == "memory":
        attempt(word, lambda: memory(part[1], part[2]))
    else:
        RUN[word]()

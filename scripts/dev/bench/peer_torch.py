"""PyTorch's side of the benchmark: peer_torch.py W1 W3 ... prints records (peer_common.py)."""
import logging, os, subprocess, sys, tempfile, time, warnings
warnings.filterwarnings("ignore")
from peer_common import *
import peer_nets
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(tempfile.gettempdir(), "tycho-bench-inductor"))
import torch
from torch import nn, fx
from torch.nn import functional as F
logging.getLogger("torch").setLevel(logging.ERROR)
torch.set_num_threads(THREADS)

GPU = os.environ.get("DEVICE", "").startswith("gpu")
DEVICE = torch.device("cuda" if GPU else "cpu")
if GPU:                                               # the precision of ours (TYCHO_PRECISION)
    tf32 = os.environ.get("TYCHO_PRECISION", "highest") != "highest"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True


def array(x): return torch.from_numpy(x).to(DEVICE)


def wait():
    if GPU:
        torch.cuda.synchronize()


def timed(step): return measure(step, wait)


class Steps(peer_nets.Steps):
    def __init__(self):
        self.root, self.graph, self.count = nn.Module(), fx.Graph(), 0

    def module(self, name, module, v):
        if not name:
            self.count += 1
            name = "m%d" % self.count
        self.root.add_module(name, module)
        return self.graph.call_module(name, (v,))

    def convolve(self, v, name, ci, co, k, stride, pad, bias): return self.module(name, nn.Conv2d(ci, co, k, stride, pad, bias=bias), v)
    def norm(self, v, name, c): return self.module(name, nn.BatchNorm2d(c, eps=1e-5, momentum=0.1), v)
    def act(self, v, kind): return self.module("", nn.ReLU(inplace=True) if kind == "relu" else nn.Tanh(), v)
    def drop(self, v): return self.module("", nn.Dropout(0.5), v)
    def pooling(self, v, kind, k, stride, pad): return self.module("", (nn.MaxPool2d if kind == "max" else nn.AvgPool2d)(k, stride, pad), v)
    def average(self, v): return self.module("", nn.AdaptiveAvgPool2d(1), v)
    def flat(self, v): return self.graph.call_function(torch.flatten, (v, 1))
    def full(self, v, name, ci, co): return self.module(name, nn.Linear(ci, co), v)
    def plus(self, a, b): return self.graph.call_function(torch.add, (a, b))
    def join(self, vs): return self.graph.call_function(torch.cat, (vs, 1))


def put(p, name): p.copy_(torch.from_numpy(parameter(name, tuple(p.shape))))


@torch.no_grad()
def network(name):
    define, shape, classes = peer_nets.NETS[name]
    s = Steps()
    s.graph.output(define(s, (s.graph.placeholder("data"), shape))[0])
    net = fx.GraphModule(s.root, s.graph)
    for key, m in net.named_modules():
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            put(m.weight, key + "_weight")
            if m.bias is not None:
                m.bias.zero_()
    return net.to(DEVICE), shape, classes


class Language(nn.Module):
    @torch.no_grad()
    def __init__(self, layers, units):
        super().__init__()
        self.embed, self.rnn, self.pred = nn.Embedding(VOCABULARY, units), nn.LSTM(units, units, layers), nn.Linear(units, VOCABULARY)
        put(self.embed.weight, "embed_weight"); put(self.pred.weight, "pred_weight"); put(self.pred.bias, "pred_bias")
        for l in range(layers):
            for theirs, ours in (("ih", "i2h"), ("hh", "h2h")):
                put(getattr(self.rnn, "weight_%s_l%d" % (theirs, l)), "l%d_%s_weight" % (l, ours))
                put(getattr(self.rnn, "bias_%s_l%d" % (theirs, l)), "l%d_%s_bias" % (l, ours))

    chunked = None                                    # nn.LinearCrossEntropyOptions: the last product and the loss by parts

    def forward(self, x, y):
        out = self.rnn(self.embed(x))[0].flatten(0, 1)
        if self.chunked:
            return F.linear_cross_entropy(out, self.pred.weight, y.flatten(), linear_bias=self.pred.bias, options=self.chunked)
        return F.cross_entropy(self.pred(out), y.flatten())


class Unrolled(Language):
    """The same model, step by step of time."""

    def forward(self, x, y):
        weights, hidden = self.rnn.all_weights, self.rnn.hidden_size
        zeros = torch.zeros(x.shape[1], hidden, device=x.device)
        states, rows = [(zeros, zeros)] * len(weights), []
        for row in self.embed(x):
            for l, w in enumerate(weights):
                states[l] = torch._VF.lstm_cell(row, states[l], *w)
                row = states[l][0]
            rows.append(row)
        return F.cross_entropy(self.pred(torch.cat(rows)), y.flatten())


def trainer(net, loss, lr):
    sgd = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9, fused=True)
    def step():
        sgd.zero_grad(set_to_none=True)
        value = loss()
        value.backward()
        sgd.step()
        return value
    return step


def nhwc(net, x): return net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)


def training(figure, name, batch, unit, variants):
    for variant in variants:
        def run():
            net, shape, classes = network(name)
            x, y = array(images((batch,) + shape)), array(labels("label", batch, classes))
            net.train()
            if "nhwc" in variant:
                net, x = nhwc(net, x)
            f = torch.compile(net) if "compile" in variant else net
            step = trainer(net, lambda: F.cross_entropy(f(x), y), RATES[name])
            check = [step().item() for _ in range(3)]
            rate(figure, variant, unit, batch, timed(step), check)
            torch._dynamo.reset()
        attempt(figure + " " + variant, run)


def w1(): training("W1", "mlp", 100, "samples/s", ["eager"] + ["compile"] * COMPILE)
def w2(): training("W2", "lenet", 64, "images/s", ["eager", "eager nhwc"] + ["compile"] * COMPILE)
def w3(): training("W3", "resnet20", 128, "images/s", ["eager", "eager nhwc"] + ["compile nhwc"] * (COMPILE and not QUICK))


def w4():
    training("W4", "resnet50", 16, "images/s", ["eager nhwc"] + ["compile nhwc"] * (COMPILE and not QUICK))
    for variant in ["eager nhwc", "jit"] + ["compile"] * (COMPILE and not QUICK):
        for batch in (1, 32):
            attempt("W4 infer " + variant, lambda: inference(variant, batch))


@torch.no_grad()
def inference(variant, batch):
    net, shape, _ = network("resnet50")
    net.eval()
    x = array(images((batch,) + shape))
    if variant != "jit":
        net, x = nhwc(net, x)
    f = net
    if variant == "jit":
        f = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(net, x)))
        f(x)
    if variant == "compile":
        import torch._inductor.config as inductor
        inductor.freezing = True
        f = torch.compile(net)
    check = [f(x).double().abs().mean().item()]
    rate("W4 infer b%d" % batch, variant, "images/s", batch, timed(lambda: f(x)), check)
    torch._dynamo.reset()


def w5():
    for layers, units, steps, batch in LM:
        for variant in ["eager"] + ["eager unrolled"] * GPU + ["compile"] * (COMPILE and not QUICK):
            def run():
                unrolled = " unrolled" if "unrolled" in variant else ""
                net = (Unrolled if unrolled else Language)(layers, units).to(DEVICE)
                x, y = map(array, tokens(steps, batch))
                f = torch.compile(net) if variant == "compile" else net
                step = trainer(net, lambda: f(x, y), LM_RATE)
                check = [step().item() for _ in range(3)]
                rate(lm_figure(layers, units, steps, batch) + unrolled, variant, "tokens/s", steps * batch, timed(step), check)
                torch._dynamo.reset()
            attempt("W5 " + variant, run)


def settle():
    """Loads what a first call loads, so that memory counted later is the work's."""
    m, l = nn.Conv2d(3, 8, 3), nn.LSTM(8, 8)
    sgd = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, fused=True)
    (m(torch.randn(1, 3, 16, 16)).sum() + l(torch.randn(2, 1, 8))[0].sum()).backward()
    sgd.step()


def w6():
    for kind in ["eager"] + ["chunked"] * hasattr(F, "linear_cross_entropy"):            # a process each, for the memory
        subprocess.run([sys.executable, __file__, "buckets:" + kind])


def buckets(kind):
    figure = "W6" if kind == "eager" else "chunked LM"
    data = {T: tuple(map(array, tokens(T, 32))) for T in BUCKETS}
    settle()
    rest()
    forget_peak()
    base, start = resident(), clock()
    net = Language(2, 200).to(DEVICE)
    if kind == "chunked":
        net.chunked = nn.LinearCrossEntropyOptions()
    now = [None]
    one = trainer(net, lambda: net(*data[now[0]]), LM_RATE)
    def step(T):
        now[0] = T
        return one()
    for T in BUCKETS:
        last = step(T)
    wait()
    first = clock() - start
    def round_of(order):
        start = clock()
        for T in order:
            step(T)
        wait()
        return clock() - start
    rate(figure, kind, "tokens/s", sum(BUCKETS) * 32, [in_turn(round_of, o) for o in ORDER], [last.item()])
    record(figure + " first pass", kind, "s", [first])
    if not GPU:
        record(figure + " memory", kind, "MiB", [peak() - base])


def w7():
    x = array(images((8, 32)))
    head = torch.ones(8, 32, device=DEVICE)
    for variant in ["eager", "jit"] + ["compile"] * COMPILE:
        def forward():
            net = network("deep")[0].eval()
            with torch.no_grad():
                f = net
                if variant == "jit":
                    f = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(net, x)))
                    f(x), f(x)
                if variant == "compile":
                    f = torch.compile(net)
                record("W7 forward", variant, "ns/operator", [t / 200 * 1e9 for t in timed(lambda: f(x))], [f(x).double().abs().sum().item()])
        def both():
            net = network("deep")[0].train()
            f = torch.compile(net) if variant == "compile" else net
            parameters = list(net.parameters())
            def step():
                for p in parameters:
                    p.grad = None
                f(x).backward(head)
            step()
            check = sum(p.grad.double().abs().sum().item() for p in parameters)
            record("W7 both", variant, "ns/operator", [t / 200 * 1e9 for t in timed(step)], [check])
        attempt("W7 forward " + variant, forward)
        torch._dynamo.reset()
        if variant != "jit":
            attempt("W7 both " + variant, both)
        torch._dynamo.reset()


def w8():
    names = [peer_nets.MEMORY[i] for i in (0, 4, 6)] if QUICK else peer_nets.MEMORY
    for name in names:
        for mode in ("train", "infer"):
            subprocess.run([sys.executable, __file__, "memory:%s:%s" % (name, mode)])


def memory(name, mode):
    settle()
    forget_peak()
    base = resident()
    if name.startswith("lstm"):
        layers, units, steps = peer_nets.lstm_sizes(name)
        net = Language(layers, units)
        x, y = map(torch.from_numpy, tokens(steps, MEMORY_BATCH))
        forward = lambda: net(x, y)
    else:
        net, shape, _ = network(name)
        x, y = torch.from_numpy(images((MEMORY_BATCH,) + shape)), torch.zeros(MEMORY_BATCH, dtype=torch.long)
        forward = lambda: F.cross_entropy(net(x), y)
    forget_peak()
    if mode == "train":
        step = trainer(net.train(), forward, 1e-4)
        step(), step()
    else:
        net.eval()
        with torch.inference_mode():
            forward(), forward()
    record("W8 %s %s" % (name, mode), "eager", "MiB", [peak() - base])


def w9():
    """The price of compiling: the first step without a cache, less a later one."""
    if not COMPILE or QUICK:
        return
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    for what in ("resnet50", "lm"):
        subprocess.run([sys.executable, __file__, "compile:" + what])


def compiling(what):
    if what == "resnet50":
        net, shape, classes = network("resnet50")
        x, y = torch.from_numpy(images((16,) + shape)), torch.from_numpy(labels("label", 16, classes))
        net, x = nhwc(net, x)
        f = torch.compile(net)
        step = trainer(net, lambda: F.cross_entropy(f(x), y), 0.01)
    else:
        net = Language(2, 200)
        x, y = map(torch.from_numpy, tokens(60, 32))
        f = torch.compile(net)
        step = trainer(net, lambda: f(x, y), 0.1)
    times = []
    for _ in range(2):
        start = clock()
        step()
        times.append(clock() - start)
    record("W9 bind " + what, "compile", "ms", [(times[0] - times[1]) * 1e3])


def chain(x): return torch.relu(torch.tanh(1.5 * x + 0.25) * torch.sigmoid(x) - 0.1) * x


def w10():
    for n in SIZES:
        x, y, t = torch.from_numpy(images((n,))), torch.empty(n), torch.empty(n)
        def elements(what, variant, step, check=None):
            attempt(what, lambda: record("W10 %s %.0e" % (what, n), variant, "ns/element", [s / n * 1e9 for s in measure(step)],
                                         check and [float(check())]))
        def pieces():
            torch.mul(x, 1.5, out=y)
            y.add_(0.25).tanh_()
            torch.sigmoid(x, out=t)
            y.mul_(t).sub_(0.1).relu_().mul_(x)
        with torch.inference_mode():
            elements("copy", "copy_", lambda: y.copy_(x))
            elements("chain", "eager", lambda: chain(x), lambda: chain(x).double().abs().mean())
            elements("chain", "in place", pieces)
        if COMPILE:
            with torch.no_grad():
                f = torch.compile(chain, dynamic=False)
                elements("chain", "compile", lambda: f(x))
                torch._dynamo.reset()
        with torch.inference_mode():
            rows = x.view(-1, 1000)
            out = torch.empty_like(rows)
            elements("softmax", "eager", lambda: torch.softmax(rows, 1, out=out), lambda: torch.softmax(rows, 1)[:, 7].double().sum())
            m = x.view(SUM_SHAPE[n])
            for axis in (0, 1):
                s = torch.empty(SUM_SHAPE[n][1 - axis])
                elements("sum %d" % axis, "eager", lambda: torch.sum(m, axis, out=s), lambda: m.sum(axis).double().abs().mean())
        p = nn.Parameter(x.clone())
        p.grad = torch.from_numpy(images((n,)))
        elements("adam", "fused", torch.optim.Adam([p], lr=1e-5, fused=True).step)
        shape = NORM_SHAPE[n]
        for variant in ("eager", "eager nhwc"):
            a, dy = torch.from_numpy(images(shape)), torch.from_numpy(images(shape))
            if "nhwc" in variant:
                a, dy = a.to(memory_format=torch.channels_last), dy.to(memory_format=torch.channels_last)
            a.requires_grad_()
            bn = nn.BatchNorm2d(shape[1])
            wanted = [a, bn.weight, bn.bias]
            elements("batchnorm", variant, lambda: torch.autograd.grad(bn(a), wanted, dy),
                     lambda: torch.autograd.grad(bn(a), wanted, dy)[1].double().abs().mean())


def peaks():
    """What the device does at most; peaks.lua does the same."""
    x, y = torch.zeros(2 ** 26, device=DEVICE), torch.zeros(2 ** 26, device=DEVICE)
    rate("peak copy", "eager", "B/s", 2 * 4 * 2 ** 26, timed(lambda: y.copy_(x)))
    a, out = torch.ones(8192, 8192, device=DEVICE), torch.zeros(8192, 8192, device=DEVICE)
    rate("peak product", "eager", "FLOP/s", 2 * 8192 ** 3, timed(lambda: torch.mm(a, a, out=out)))


# -- W15: loops beside ours ------------------------------------------------------------------------------------------

class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        steps, batch, width = x.shape                 # rows of q, k, v are next to each other in each head, as ours
        q, k, v = self.qkv(self.norm1(x)).view(steps, batch, self.heads, 3, -1).permute(3, 1, 2, 0, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.permute(2, 0, 1, 3).reshape(steps, batch, width))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Transformer(nn.Module):
    @torch.no_grad()
    def __init__(self, steps, depth, width, heads, words):
        super().__init__()
        self.embed, self.pred, self.norm = nn.Embedding(words, width), nn.Linear(width, words), nn.LayerNorm(width)
        self.position = nn.Parameter(torch.zeros(steps, 1, width))
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(depth)])
        put(self.embed.weight, "embed_weight"); put(self.pred.weight, "pred_weight"); put(self.position, "pred_position")
        self.pred.bias.zero_()
        for i, block in enumerate(self.blocks):
            for name in ("qkv", "out", "fc1", "fc2"):
                put(getattr(block, name).weight, "b%d_%s_weight" % (i + 1, name))
                getattr(block, name).bias.zero_()

    def forward(self, x, y):
        x = self.embed(x) + self.position
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.pred(self.norm(x)).flatten(0, 1), y.flatten())


def loops(only):
    for name, batch, unit in (("mlp", 100, "samples/s"), ("lenet", 64, "images/s"), ("resnet20", 128, "images/s")):
        if only not in (None, name):
            continue
        training("W15 " + name, name, batch, unit, ["eager"])
        if COMPILE:
            training("W15 %s compiled" % name, name, batch, unit, ["compile"])
    def model(name, make, steps, batch, words, lr):
        if only not in (None, name):
            return
        for variant in ["eager"] + ["compile"] * COMPILE:
            def run():
                net, n = make().to(DEVICE), steps * batch
                x, y = (array(labels(what + str(steps), n, words).reshape(steps, batch)) for what in ("data", "label"))
                f = torch.compile(net) if variant == "compile" else net
                step = trainer(net, lambda: f(x, y), lr)
                check = [step().item() for _ in range(3)]
                rate("W15 " + name + (" compiled" if variant == "compile" else ""), variant, unit_of_text, n, timed(step), check)
                torch._dynamo.reset()
            attempt("W15 %s %s" % (name, variant), run)
    unit_of_text = "tokens/s"
    model("lstm", lambda: Language(2, 200), 35, 20, VOCABULARY, LM_RATE)
    model("cells", lambda: Unrolled(2, 200), 35, 20, VOCABULARY, LM_RATE)
    model("transformer", lambda: Transformer(256, 4, 256, 8, 1000), 256, 4, 1000, 0.01)


def operators():
    def run(figure, shape, turn):
        x = torch.from_numpy(images(shape)).requires_grad_()
        head = torch.ones(shape)
        def step():
            x.grad = None
            y = x
            for _ in range(250):
                y = turn(y, x)
            y.backward(head)
        step()
        record(figure, "eager", "us/operator", [s / 1000 * 1e6 for s in timed(step)], [x.grad.double().sum().item()])
    run("W15 operators", (16,), lambda y, x: torch.tanh(y * 0.9 + x) - x)
    run("W15 operators products", (4, 4), lambda y, x: torch.tanh(torch.mm(y * 0.3, x) + x))


def calls():
    x, z, m = torch.from_numpy(images((16,))), torch.from_numpy(images((16,))), torch.from_numpy(images((8, 8)))
    for name, f in (("add", lambda: x + x), ("relu", lambda: torch.relu(x)), ("product", lambda: torch.mm(m, m)),
                    ("in place", lambda: z.add_(x)), ("view", lambda: x.view(4, 4))):
        def many():
            for _ in range(1000):
                f()
        record("W15 call " + name, "eager", "us", [s * 1e3 for s in timed(many)])


def w15(only=None):
    loops(only)
    if only in (None, "rest"):
        operators()
        calls()


RUN = dict(peaks=peaks, W1=w1, W2=w2, W3=w3, W4=w4, W5=w5, W6=w6, W7=w7)
if not GPU:
    import peer_narrow
    RUN.update(W8=w8, W9=w9, W10=w10, W12=peer_narrow.w12, W13=lambda: peer_narrow.w13(network, nhwc, Language), W14=peer_narrow.w14,
               W15=w15, calls=calls, operators=operators)
for word in sys.argv[1:]:
    part = word.split(":")
    if part[0] == "memory":
        attempt(word, lambda: memory(part[1], part[2]))
    elif part[0] == "buckets":
        attempt(word, lambda: buckets(part[1]))
    elif part[0] == "compile":
        attempt(word, lambda: compiling(part[1]))
    elif part[0] == "W15" and len(part) > 1:
        w15(part[1])
    elif word in RUN:
        RUN[word]()

"""PyTorch's side of W12 to W14, called by peer_torch.py; narrow.lua says the same."""
from peer_common import *
import torch
from torch import nn
from torch.nn import functional as F

ENCODER = dict(layers=6, width=384, heads=12, inner=1536)
CAUSAL = dict(layers=4, width=256, heads=8, inner=1024, words=2000)
INFERRED = [(128, 1), (128, 16), (512, 1)]
TRAINED = [(256, 4), (1024, 1)]
ADAM_RATE = 1e-4


def autocast(): return torch.autocast("cpu", dtype=torch.bfloat16)


def put(p, name, shape=None):
    with torch.no_grad():
        p.copy_(torch.from_numpy(parameter(name, shape or tuple(p.shape))).reshape(p.shape))


def put_linear(m, name):
    put(m.weight, name + "_weight")
    m.bias.data.zero_()


def encoder(layers, width, heads, inner):
    size, net = width // heads, nn.ModuleList()
    # ours: query, key and value of a head are beside each other
    place = [part * width + h * size + i for h in range(heads) for part in range(3) for i in range(size)]
    for i in range(1, layers + 1):
        layer, name = nn.TransformerEncoderLayer(width, heads, inner, dropout=0, activation="gelu").eval(), "e%d" % i
        qkv = torch.empty(3 * width, width)
        put(qkv, name + "_qkv_weight")
        with torch.no_grad():
            layer.self_attn.in_proj_weight[place] = qkv
        layer.self_attn.in_proj_bias.data.zero_()
        for m, end in ((layer.self_attn.out_proj, "_out"), (layer.linear1, "_ff1"), (layer.linear2, "_ff2")):
            put_linear(m, name + end)
        net.append(layer)
    return net


def encode(net, x):
    for layer in net:
        x = layer(x)
    return x


class Block(nn.Module):
    def __init__(self, name, width, heads, inner, **_):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ff1, self.ff2 = nn.Linear(width, inner), nn.Linear(inner, width)
        for end in ("qkv", "out", "ff1", "ff2"):
            put_linear(getattr(self, end), name + "_" + end)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, self.heads, 3, d // self.heads).permute(3, 0, 2, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.ff2(F.gelu(self.ff1(self.norm2(x))))


class Causal(nn.Module):
    def __init__(self, length, layers, width, words, **more):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Parameter(torch.empty(1, length, width))
        self.blocks = nn.ModuleList([Block("g%d" % (i + 1), width, **more) for i in range(layers)])
        self.norm, self.pred = nn.LayerNorm(width), nn.Linear(width, words)
        put(self.embed.weight, "embed_weight")
        put(self.place, "place")
        put_linear(self.pred, "pred")

    def forward(self, x, y):
        x = self.embed(x) + self.place
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.pred(self.norm(x)).view(-1, self.pred.out_features), y.view(-1))


def variants(ending): return [v for v in (["autocast"] if ending else ["eager"]) for v in [v] + [v + " compile"] * COMPILE]


def entered(variant, f):
    if "autocast" not in variant:
        return f
    def run(*x):
        with autocast():
            return f(*x)
    return run


def compiled(variant, f): return torch.compile(f) if "compile" in variant else f


def infer(figure, unit, rows, f, x, variant):
    def run():
        with torch.inference_mode():
            # a session: weights are cast once while autocast lasts
            if "autocast" in variant:
                with autocast():
                    one(variant)
            else:
                one(variant)
    def one(variant):
        g = compiled(variant, f)
        check = [g(x).double().abs().mean().item()]
        rate(figure, variant, unit, rows, measure(lambda: g(x)), check)
        torch._dynamo.reset()
    attempt(figure + " " + variant, run)


def train(figure, unit, rows, make, variant):
    def run():
        net, optimizer, loss = make()
        f = entered(variant, compiled(variant, loss))
        def step():
            optimizer.zero_grad(set_to_none=True)
            value = f()
            value.backward()
            optimizer.step()
            return value
        check = [step().item()]
        rate(figure, variant, unit, rows, measure(step), check)
        torch._dynamo.reset()
    attempt(figure + " " + variant, run)


def w12():
    for ending in ("", " bf16"):
        for length, batch in INFERRED:
            net, x = encoder(**ENCODER), torch.from_numpy(images((length, batch, ENCODER["width"])))
            for variant in variants(ending):
                infer("W12 encoder T%d b%d%s" % (length, batch, ending), "tokens/s", length * batch, lambda x: encode(net, x), x,
                      variant)
        for length, batch in TRAINED:
            def make():
                net = Causal(length, **CAUSAL)
                x, y = [torch.from_numpy(labels(name, length * batch, CAUSAL["words"])).view(batch, length) for name in ("data", "label")]
                return net, torch.optim.Adam(net.parameters(), ADAM_RATE, fused=True), lambda: net(x, y)
            for variant in variants(ending):
                train("W12 train T%d b%d%s" % (length, batch, ending), "tokens/s", length * batch, make, variant)


def w13(network, nhwc, Language):
    """The networks of peer_torch.py under autocast."""
    def sgd(net, lr): return torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9, fused=True)

    def classifier(figure, name, batch, variant):
        def make():
            net, shape, classes = network(name)
            net, x = nhwc(net.train(), torch.from_numpy(images((batch,) + shape)))
            y = torch.from_numpy(labels("label", batch, classes))
            return net, sgd(net, RATES[name]), lambda: F.cross_entropy(net(x), y)
        train(figure + " bf16", "images/s", batch, make, variant)

    def language(layers, units, steps, batch, variant):
        def make():
            net = Language(layers, units)
            x, y = map(torch.from_numpy, tokens(steps, batch))
            return net, sgd(net, LM_RATE), lambda: net(x, y)
        train("W13 lm %dx%d T%d bf16" % (layers, units, steps), "tokens/s", steps * batch, make, variant)

    for variant in variants(" bf16"):
        classifier("W13 lenet", "lenet", 64, variant)
        classifier("W13 resnet20", "resnet20", 128, variant)
        classifier("W13 resnet50", "resnet50", 16, variant)
        for batch in (1, 32):
            net, shape, _ = network("resnet50")
            net, x = nhwc(net.eval(), torch.from_numpy(images((batch,) + shape)))
            infer("W13 resnet50 infer b%d bf16" % batch, "images/s", batch, net, x, variant)
        for size in LM:
            language(*size, variant)


def w14():
    for length, batch in INFERRED:
        def run():
            net, x = encoder(**ENCODER), torch.from_numpy(images((length, batch, ENCODER["width"])))
            quantized = torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)
            torch.backends.mha.set_fastpath_enabled(False)   # it reads the weights of float layers
            infer("W14 encoder T%d b%d" % (length, batch), "tokens/s", length * batch, lambda x: encode(quantized, x), x, "dynamic")
        attempt("W14 encoder", run)

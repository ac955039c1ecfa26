"""ONNX Runtime's side of the benchmark, inference only: peer_onnx.py W4 ... prints records (peer_common.py)."""
import json, os, subprocess, sys
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


def session(name):
    define, shape, _ = peer_nets.NETS[name]
    s, float32 = Steps(), onnx.TensorProto.FLOAT
    out = define(s, ("data", shape))[0]
    graph = helper.make_graph(s.nodes, name, [helper.make_tensor_value_info("data", float32, ["N"] + list(shape))],
                              [helper.make_tensor_value_info(out, float32, None)], s.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = THREADS, 1
    return onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"]), shape


def w4():
    run, shape = session("resnet50")
    for batch in (1, 32):
        x = {"data": images((batch,) + shape)}
        check = [np.abs(run.run(None, x)[0].astype(np.float64)).mean()]
        rate("W4 infer b%d" % batch, "", "images/s", batch, measure(lambda: run.run(None, x)), check)


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


if __name__ == "__main__":
    for word in sys.argv[1:]:
        parts = word.split(":")
        if word in ("W4", "W8"):
            attempt(word, w4 if word == "W4" else w8)
        elif parts[0] == "model":
            attempt(word, lambda: model(parts[1]))
        elif parts[0] == "memory" and parts[1] in peer_nets.NETS and parts[2] == "infer":
            attempt(word, lambda: memory(parts[1]))

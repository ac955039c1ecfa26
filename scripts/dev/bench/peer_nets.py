"""The networks of the benchmark for the peers, built through a small set of steps that each peer supplies.

A step takes and returns a pair: the peer's value and its shape without the batch. nets.lua says the same in Lua.
"""


class Steps:
    """A peer supplies: convolve(v, name, ci, co, k, stride, pad, bias), norm(v, name, c), act(v, kind), drop(v),
    pooling(v, kind, k, stride, pad), average(v), flat(v), full(v, name, ci, co), plus(a, b), join(list)."""

    def conv(self, x, name, co, k, stride=1, pad=0, bias=True):
        v, (c, h, w) = x
        size = lambda d: (d + 2 * pad - k) // stride + 1
        return self.convolve(v, name, c, co, k, stride, pad, bias), (co, size(h), size(w))

    def pool(self, x, k, stride, pad=0, kind="max"):
        v, (c, h, w) = x
        size = lambda d: (d + 2 * pad - k) // stride + 1
        return self.pooling(v, kind, k, stride, pad), (c, size(h), size(w))

    def bn(self, x, name): return self.norm(x[0], name, x[1][0]), x[1]
    def relu(self, x): return self.act(x[0], "relu"), x[1]
    def tanh(self, x): return self.act(x[0], "tanh"), x[1]
    def dropout(self, x): return self.drop(x[0]), x[1]
    def fc(self, x, name, n): return self.full(x[0], name, x[1][0], n), (n,)
    def add(self, a, b): return self.plus(a[0], b[0]), a[1]
    def mean(self, x): return self.flat(self.average(x[0])), (x[1][0],)
    def concat(self, xs): return self.join([x[0] for x in xs]), (sum(x[1][0] for x in xs),) + tuple(xs[0][1][1:])

    def flatten(self, x):
        n = 1
        for d in x[1]:
            n *= d
        return self.flat(x[0]), (n,)

    def conv_bn(self, x, name, co, k, stride=1, pad=0):
        return self.bn(self.conv(x, name, co, k, stride, pad, False), name + "_bn")
    def unit(self, *a): return self.relu(self.conv_bn(*a))
    def conv_relu(self, *a): return self.relu(self.conv(*a))


def mlp(s, x): return s.fc(s.relu(s.fc(s.relu(s.fc(x, "fc1", 128)), "fc2", 64)), "fc3", 10)


def lenet(s, x):
    x = s.pool(s.tanh(s.conv(x, "conv1", 20, 5)), 2, 2)
    x = s.pool(s.tanh(s.conv(x, "conv2", 50, 5)), 2, 2)
    return s.fc(s.tanh(s.fc(s.flatten(x), "fc1", 500)), "fc2", 10)


def resnet20(s, x):
    x = s.unit(x, "conv0", 16, 3, 1, 1)
    for i in range(3):
        c = 16 << i
        for j in range(3):
            stride, name = (2 if i and not j else 1), "s%du%d" % (i, j)
            y = s.conv_bn(s.unit(x, name + "_c1", c, 3, stride, 1), name + "_c2", c, 3, 1, 1)
            if stride == 2:
                x = s.conv_bn(x, name + "_sc", c, 1, 2)
            x = s.relu(s.add(y, x))
    return s.fc(s.mean(x), "fc", 10)


def bottlenecks(s, x, units):
    x = s.pool(s.unit(x, "conv0", 64, 7, 2, 3), 3, 2, 1)
    for i, n in enumerate(units):
        c = 64 << i
        for j in range(n):
            stride, name = (2 if i and not j else 1), "s%du%d" % (i, j)
            y = s.unit(s.unit(x, name + "_c1", c, 1), name + "_c2", c, 3, stride, 1)
            y = s.conv_bn(y, name + "_c3", 4 * c, 1)
            if not j:
                x = s.conv_bn(x, name + "_sc", 4 * c, 1, stride)
            x = s.relu(s.add(y, x))
    return s.fc(s.mean(x), "fc", 1000)


def resnet50(s, x): return bottlenecks(s, x, (3, 4, 6, 3))
def resnet152(s, x): return bottlenecks(s, x, (3, 8, 36, 3))


def alexnet(s, x):
    x = s.pool(s.conv_relu(x, "conv1", 64, 11, 4, 2), 3, 2)
    x = s.pool(s.conv_relu(x, "conv2", 192, 5, 1, 2), 3, 2)
    for name, c in (("conv3", 384), ("conv4", 256), ("conv5", 256)):
        x = s.conv_relu(x, name, c, 3, 1, 1)
    x = s.dropout(s.flatten(s.pool(x, 3, 2)))
    x = s.dropout(s.relu(s.fc(x, "fc6", 4096)))
    return s.fc(s.relu(s.fc(x, "fc7", 4096)), "fc8", 1000)


def vgg16(s, x):
    for i, (n, c) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))):
        for j in range(n):
            x = s.conv_relu(x, "conv%d_%d" % (i + 1, j + 1), c, 3, 1, 1)
        x = s.pool(x, 2, 2)
    x = s.dropout(s.relu(s.fc(s.flatten(x), "fc6", 4096)))
    return s.fc(s.dropout(s.relu(s.fc(x, "fc7", 4096))), "fc8", 1000)


INCEPTION = ["3a 64 96 128 16 32 32", "3b 128 128 192 32 96 64", "", "4a 192 96 208 16 48 64", "4b 160 112 224 24 64 64",
             "4c 128 128 256 24 64 64", "4d 112 144 288 32 64 64", "4e 256 160 320 32 128 128", "",
             "5a 256 160 320 32 128 128", "5b 384 192 384 48 128 128"]


def googlenet(s, x):
    x = s.pool(s.conv_relu(x, "conv1", 64, 7, 2, 3), 3, 2, 1)
    x = s.conv_relu(s.conv_relu(x, "conv2r", 64, 1), "conv2", 192, 3, 1, 1)
    x = s.pool(x, 3, 2, 1)
    for line in INCEPTION:
        if not line:
            x = s.pool(x, 3, 2, 1)
            continue
        name, c1, r3, c3, r5, c5, p = [w if i == 0 else int(w) for i, w in enumerate(line.split())]
        name = "in" + name + "_"
        x = s.concat([s.conv_relu(x, name + "1", c1, 1),
                      s.conv_relu(s.conv_relu(x, name + "3r", r3, 1), name + "3", c3, 3, 1, 1),
                      s.conv_relu(s.conv_relu(x, name + "5r", r5, 1), name + "5", c5, 5, 1, 2),
                      s.conv_relu(s.pool(x, 3, 1, 1), name + "p", p, 1)])
    return s.fc(s.dropout(s.mean(x)), "fc", 1000)


NORMALISED = ["3a 64 64 64 64 96 avg 32", "3b 64 64 96 64 96 avg 64", "3c 0 128 160 64 96", "4a 224 64 96 96 128 avg 128",
              "4b 192 96 128 96 128 avg 128", "4c 128 128 160 128 160 avg 128", "4d 96 128 192 160 192 avg 128",
              "4e 0 128 192 192 256", "5a 352 192 320 160 224 avg 128", "5b 352 192 320 192 224 max 128"]


def inception_bn(s, x):
    x = s.pool(s.unit(x, "conv1", 64, 7, 2, 3), 3, 2, 1)
    x = s.pool(s.unit(s.unit(x, "conv2r", 64, 1), "conv2", 192, 3, 1, 1), 3, 2, 1)
    for line in NORMALISED:
        w = line.split()
        name, (c1, r3, c3, rd, cd) = "i" + w[0] + "_", map(int, w[1:6])
        stride = 1 if c1 else 2
        three = s.unit(s.unit(x, name + "3r", r3, 1), name + "3", c3, 3, stride, 1)
        double = s.unit(s.unit(s.unit(x, name + "dr", rd, 1), name + "d1", cd, 3, 1, 1), name + "d2", cd, 3, stride, 1)
        if c1:
            x = s.concat([s.unit(x, name + "1", c1, 1), three, double,
                          s.unit(s.pool(x, 3, 1, 1, w[6]), name + "p", int(w[7]), 1)])
        else:
            x = s.concat([three, double, s.pool(x, 3, 2, 1)])
    return s.fc(s.mean(x), "fc", 1000)


def deep(s, x):
    for i in range(100):
        x = s.relu(s.fc(x, "c%d" % i, 32))
    return x


# name: definition, shape of one example, classes
NETS = dict(mlp=(mlp, (784,), 10), lenet=(lenet, (1, 28, 28), 10), resnet20=(resnet20, (3, 32, 32), 10), deep=(deep, (32,), 0),
            **{f.__name__: (f, (3, 224, 224), 1000) for f in (resnet50, resnet152, alexnet, vgg16, googlenet, inception_bn)})
MEMORY = ["alexnet", "googlenet", "vgg16", "inception_bn", "resnet50", "resnet152", "lstm 2x200 T60", "lstm 4x1024 T35"]


def lstm_sizes(name):
    """"lstm 2x200 T60": layers, units, steps."""
    _, size, steps = name.split()
    layers, units = size.split("x")
    return int(layers), int(units), int(steps[1:])

"""What the peers' programs share: values, timing, memory, records. The Lua side (values.lua, measure.lua) does the same.

A record is one line of JSON: figure, variant, unit, value (the median), low, high, check (numbers that must agree).
"""
import json, math, os, statistics, sys, time
import numpy as np

THREADS = int(os.environ.get("TYCHO_THREADS", "2"))
QUICK = os.environ.get("QUICK") == "1"
COMPILE = os.environ.get("PEERS_COMPILE", "1") == "1"
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = str(THREADS)

# -- values: a table of numbers in [0, 1), read in a circle from a place that the name gives ---------------------------

COUNT = 65521


def _table():
    out, x = np.empty(COUNT), 20011
    for i in range(COUNT):
        x = x * 16807 % 2147483647
        out[i] = x / 2147483647
    return out


TABLE = _table()


def uniform(name, n):
    place = 0
    for byte in name.encode():
        place = (place * 131 + byte) % COUNT
    return np.resize(np.roll(TABLE, -place), n)


def parameter(name, shape):
    """Weights: uniform, of the variance that keeps relu's; of a language model: within 0.1. Scales 1, all else 0."""
    if name.endswith(("_gamma", "_moving_var")):
        return np.ones(shape, np.float32)
    if name.endswith(("_bias", "_beta", "_moving_mean")):
        return np.zeros(shape, np.float32)
    n = int(np.prod(shape))
    lm = name.startswith(("embed", "l0", "l1", "l2", "l3", "pred"))
    scale = 0.2 if lm else math.sqrt(24.0 * shape[0] / n)
    return ((uniform(name, n) - 0.5) * scale).astype(np.float32).reshape(shape)


def images(shape):
    n = int(np.prod(shape))
    return ((uniform("data", n) - 0.5) * math.sqrt(12.0)).astype(np.float32).reshape(shape)


def labels(name, n, classes):
    return np.floor(uniform(name, n) * classes).astype(np.int64)


# -- timing -----------------------------------------------------------------------------------------------------------

SECONDS, BUDGET = (0.05, 2.0) if QUICK else (0.15, 6.0)


clock = time.process_time if os.environ.get("BENCH_CLOCK") == "cpu" else time.perf_counter


TURN, begun = float(os.environ.get("BENCH_TURN", "0")), time.perf_counter()


def _let_others_run():
    global begun
    print("turn", flush=True)
    sys.stdin.readline()
    begun = time.perf_counter()


def turn():
    """Lets the other systems run, where systems take turns and this one's is over. Did it?"""
    if TURN == 0 or time.perf_counter() - begun < TURN:
        return False
    _let_others_run()
    return True


def rest():
    """Waits before what happens once in a process: lets the others have a turn, then all rest for four seconds. A host takes freed
    memory back within two or three, so that all begin with the same, and none with what another has just freed."""
    if TURN > 0:
        _let_others_run()
    time.sleep(4)


def in_turn(run, *arguments):
    turn()
    return run(*arguments)


def measure(step, wait=lambda: None):
    """Seconds per call: samples of SECONDS each after a warm-up, three at least, as many as fit the budget; steps below 10 ms
    get half of it."""
    def timed(calls):
        start = clock()
        for _ in range(calls):
            step()
        wait()
        return clock() - start
    timed(1)
    calls, t = 1, timed(1)
    while t < SECONDS:
        calls = max(calls * 2, math.ceil(calls * SECONDS / max(t, 1e-9) * 0.7))
        t = timed(calls)
    samples = max(3, int((BUDGET / 2 if t / calls < 0.01 else BUDGET) / t))
    out = []
    for _ in range(samples):
        if turn():
            timed(1)
        out.append(timed(calls) / calls)
    return out


# -- memory -----------------------------------------------------------------------------------------------------------

def _status(key):
    for line in open("/proc/self/status"):
        if line.startswith(key):
            return int(line.split()[1]) / 1024.0


def resident(): return _status("VmRSS:")
def peak(): return _status("VmHWM:")


def forget_peak():
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")


# -- records ----------------------------------------------------------------------------------------------------------

def record(figure, variant, unit, values, check=None):
    s = sorted(values)
    out = dict(figure=figure, variant=variant, unit=unit, value=statistics.median(s), low=s[0], high=s[-1])
    if check is not None:
        out["check"] = [float(x) for x in check]
    print(json.dumps(out), flush=True)


def rate(figure, variant, unit, work, seconds, check=None):
    record(figure, variant, unit, [work / t for t in seconds], check)


def attempt(what, run):
    """One variant that fails is reported on the error channel and does not end the others."""
    try:
        run()
    except Exception as error:
        print("%s: %s: %s" % (what, type(error).__name__, str(error)[:300]), file=sys.stderr)


# -- the workloads' sizes ---------------------------------------------------------------------------------------------

RATES = dict(mlp=0.1, lenet=0.01, resnet20=0.02, resnet50=2e-5)
VOCABULARY = 10000
LM = [(2, 200, 35, 20), (2, 200, 60, 32), (2, 650, 35, 20)]           # layers, units, steps, batch
LM_RATE = 0.5
BUCKETS = [10, 20, 30, 40, 50, 60]
ORDER = [[30, 10, 60, 40, 20, 50], [50, 20, 10, 60, 30, 40], [10, 50, 40, 20, 60, 30], [60, 30, 20, 50, 40, 10]]
MEMORY_BATCH = 8
SIZES = [1000, 100000, 10000000]
SUM_SHAPE = {1000: (25, 40), 100000: (250, 400), 10000000: (2500, 4000)}
NORM_SHAPE = {1000: (2, 5, 10, 10), 100000: (10, 16, 25, 25), 10000000: (20, 50, 100, 100)}


def tokens(steps, batch):
    n = steps * batch
    return (labels("data%d" % steps, n, VOCABULARY).reshape(steps, batch),
            labels("label%d" % steps, n, VOCABULARY).reshape(steps, batch))


def lm_figure(layers, units, steps, batch): return "W5 %dx%d T%d b%d" % (layers, units, steps, batch)

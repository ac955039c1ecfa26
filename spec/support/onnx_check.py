# Checks ONNX files with ONNX's checker and runs them with ONNX Runtime:
#   python3 onnx_check.py FOLDER BOUND
# Each NAME.onnx has a NAME.npz: i_INPUT arrays, o0, o1 ... what the outputs are. A line for each
# file that is wrong; at the end "N checked".
import glob
import os
import sys

import numpy as np
import onnx
import onnxruntime

folder, bound = sys.argv[1], float(sys.argv[2])
onnxruntime.set_default_logger_severity(4)


def difference(a, b):
    if a.shape != b.shape:
        return "shape %s instead of %s" % (a.shape, b.shape)
    if a.dtype != b.dtype:
        return "dtype %s instead of %s" % (a.dtype, b.dtype)
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = b[np.isfinite(b)]
    top = max(1e-3, np.max(np.abs(finite), initial=0))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    off = np.where(same, 0, np.abs(a - b))
    worst = np.max(np.where(np.isnan(off), np.inf, off), initial=0) / top
    return None if worst < bound else "off by %g" % worst


def check(path):
    onnx.checker.check_model(path, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    arrays = np.load(path[:-5] + ".npz")
    feeds = {i.name: arrays["i_" + i.name] for i in session.get_inputs()}
    for k, y in enumerate(session.run(None, feeds)):
        wrong = difference(np.asarray(y), arrays["o%d" % k])
        if wrong:
            return "output %d: %s" % (k, wrong)


checked = 0
for path in sorted(glob.glob(os.path.join(folder, "*.onnx"))):
    checked += 1
    try:
        wrong = check(path)
    except Exception as e:  # what the checker and the runtime raise is of many classes
        wrong = " ".join(str(e).split())[:300]
    if wrong:
        print("%s: %s" % (os.path.basename(path), wrong))
print("%d checked" % checked)

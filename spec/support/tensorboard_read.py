# Prints what TensorBoard's own reader finds in a folder of event files, one line for each thing.
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2
    from tensorboard.compat.proto import graph_pb2
except ImportError as missing:
    print("missing:", missing)
    sys.exit(3)

events = EventAccumulator(sys.argv[1], size_guidance={"tensors": 0, "images": 0, "scalars": 0,
    "histograms": 0})
events.Reload()
tags = events.Tags()
for tag in sorted(tags["scalars"]):
    for e in events.Scalars(tag):
        print("scalar", tag, e.step, "%.6g" % e.value)
for tag in sorted(tags["histograms"]):
    for e in events.Histograms(tag):
        h = e.histogram_value
        print("histogram", tag, e.step, "%g %g %g" % (h.min, h.max, h.num), len(h.bucket),
            "%g" % sum(h.bucket))
for tag in sorted(tags["images"]):
    for e in events.Images(tag):
        print("image", tag, e.step, e.width, e.height, e.encoded_image_string[1:4].decode())
for tag in sorted(tags["tensors"]):
    for e in events.Tensors(tag):
        if tag.startswith("_hparams_"):
            continue
        print("text", tag, e.step, e.tensor_proto.string_val[0].decode())
if tags["graph"]:
    graph = graph_pb2.GraphDef()
    graph.ParseFromString(events.Graph().SerializeToString())
    for n in graph.node:
        print("node", n.name, n.op, ",".join(n.input))
for tag in sorted(t for t in tags["tensors"] if t.startswith("_hparams_")):
    content = events.SummaryMetadata(tag).plugin_data.content
    data = plugin_data_pb2.HParamsPluginData.FromString(content)
    if data.HasField("session_start_info"):
        for name, value in sorted(data.session_start_info.hparams.items()):
            print("hparam", name, getattr(value, value.WhichOneof("kind")))
    elif data.HasField("experiment"):
        print("metrics", ",".join(i.name.tag for i in data.experiment.metric_infos))

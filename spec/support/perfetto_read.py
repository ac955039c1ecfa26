# Prints the tracks and events of a trace, as the messages of Perfetto's own package read them.
import sys

try:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
except ImportError as missing:
    print("missing:", missing)
    sys.exit(3)

trace = pb.Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())
tracks = {}
for packet in trace.packet:
    if packet.HasField("track_descriptor"):
        t = packet.track_descriptor
        tracks[t.uuid] = t.process.process_name or t.thread.thread_name or t.name
        print("track", tracks[t.uuid], "in", tracks.get(t.parent_uuid, "none"))
    elif packet.HasField("track_event"):
        e = packet.track_event
        notes = {a.name: a.string_value or a.int_value for a in e.debug_annotations}
        print("event", pb.TrackEvent.Type.Name(e.type), packet.timestamp, tracks[e.track_uuid],
            e.name, ",".join(e.categories), e.counter_value, sorted(notes.items()))

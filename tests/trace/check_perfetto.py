#!/usr/bin/env python3
"""Checks a trace for Perfetto with Perfetto's own description of its format: `.venv/bin/python check_perfetto.py FILE`.

Packets are in the order of their times, names and tracks are defined before they are used, slices of a track nest and all
end, each arrow begins once, before it ends, and ends at the goroutine that it is about. Prints JSON: for each track its
name and how many slices it has by name, and how often which counter has a value.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

Event = pb.TrackEvent
CLEARED = pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
NEEDED = pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE


def unknown(message: Message) -> bool:
    """Whether a message, or one within it, has fields that its description lacks."""
    if len(UnknownFieldSet(message)):
        return True
    for field, value in message.ListFields():
        if field.message_type:
            if any(map(unknown, [value] if isinstance(value, Message) else value)):
                return True
    return False


def check(path: str) -> dict:
    trace = pb.Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    assert not unknown(trace), "the trace has fields that Perfetto doesn't know"
    tracks: dict[int, pb.TrackDescriptor] = {}
    names: dict[int, str] = {}
    keys: dict[int, str] = {}
    texts: dict[int, str] = {}
    open_slices: defaultdict[int, list[str]] = defaultdict(list)
    slices: defaultdict[int, Counter[str]] = defaultdict(Counter)
    instants: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    counters: defaultdict[str, list[float]] = defaultdict(list)
    begun: dict[int, tuple[int, int]] = {}
    ended: set[int] = set()
    last = 0
    clock = None
    for place, packet in enumerate(trace.packet):
        assert packet.trusted_packet_sequence_id == 1, packet
        assert packet.sequence_flags & NEEDED, packet
        if packet.sequence_flags & CLEARED:
            names, keys, texts = {}, {}, {}
            clock = packet.trace_packet_defaults.timestamp_clock_id
        else:
            assert place > 0, "the first packet must clear the state of the sequence"
        assert clock == pb.BUILTIN_CLOCK_MONOTONIC, clock
        for table, entries in ((names, packet.interned_data.event_names), (keys, packet.interned_data.debug_annotation_names)):
            for entry in entries:
                assert entry.iid not in table, entry
                table[entry.iid] = entry.name
        for entry in packet.interned_data.debug_annotation_string_values:
            assert entry.iid not in texts, entry
            texts[entry.iid] = entry.str.decode()
        if packet.HasField("clock_snapshot"):
            assert packet.clock_snapshot.primary_trace_clock == pb.BUILTIN_CLOCK_MONOTONIC
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.HasField("process") or track.HasField("thread") or track.parent_uuid in tracks, track
            tracks[track.uuid] = track
        if not packet.HasField("track_event"):
            continue
        assert packet.timestamp >= last, (packet, last)
        last = packet.timestamp
        event = packet.track_event
        assert event.track_uuid in tracks, event
        name = names[event.name_iid] if event.name_iid else ""
        notes = {keys[note.name_iid]: texts[note.string_value_iid] if note.string_value_iid else note.uint_value
                 for note in event.debug_annotations}
        if event.type == Event.TYPE_SLICE_BEGIN:
            open_slices[event.track_uuid].append(name)
            slices[event.track_uuid][name] += 1
        elif event.type == Event.TYPE_SLICE_END:
            assert open_slices[event.track_uuid], f"a slice of {tracks[event.track_uuid]} ends that has not begun"
            open_slices[event.track_uuid].pop()
            ends[notes.get("end", "")] += 1
        elif event.type == Event.TYPE_INSTANT:
            instants[name] += 1
        else:
            assert event.type == Event.TYPE_COUNTER and tracks[event.track_uuid].HasField("counter"), event
            value = event.double_counter_value if event.HasField("double_counter_value") else event.counter_value
            counters[tracks[event.track_uuid].name].append(value)
        for flow in event.flow_ids:
            assert flow not in begun, f"the arrow {flow} begins twice"
            begun[flow] = (packet.timestamp, notes["goroutine"])
        for flow in event.terminating_flow_ids:
            assert flow in begun and flow not in ended, f"the arrow {flow} ends twice, or hasn't begun"
            assert begun[flow][1] == notes["goroutine"], f"the arrow {flow} ends at another goroutine"
            ended.add(flow)
    still = {tracks[track].name: left for track, left in open_slices.items() if left}
    assert not still, f"slices that don't end: {still}"
    shown = {}
    for uuid, track in tracks.items():
        name = track.name or track.thread.thread_name or track.process.process_name
        shown.setdefault(name, Counter()).update(slices[uuid])
    return {"tracks": shown, "instants": instants, "ends": ends, "counters": counters, "arrows": len(begun), "ended": len(ended),
            "packets": len(trace.packet)}


if __name__ == "__main__":
    print(json.dumps(check(sys.argv[1])))

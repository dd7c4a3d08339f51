"""`vramtrack export --format torch-snapshot`: what PyTorch's viewer does with it is possible, and its figures are those of the report."""
import collections
import importlib.util
import json
import os
import pickle
import pickletools
import subprocess
import sys

import torch_case
import vt
from export_case import HOSTILE_FILE, HOSTILE_FUNCTION, MIB, PROGRAM, Case, clean


class Snapshot(Case):
    def snapshot(self, *options):
        data = self.export("torch-snapshot", *options)
        allowed = {"PROTO", "MARK", "STOP", "EMPTY_DICT", "EMPTY_LIST", "APPENDS", "SETITEMS", "BININT", "BININT1", "BININT2", "LONG1",
                   "NEWTRUE", "NEWFALSE", "TUPLE2", "BINUNICODE", "BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT"}
        self.assertLessEqual({op.name for op, _, _ in pickletools.genops(data)}, allowed)
        return pickle.loads(data)

    def replay(self, snapshot):
        """What MemoryViz.js does, backwards from the segments; every step must be possible. Returns the live blocks at the start."""
        for device, events in enumerate(snapshot["device_traces"]):
            segments = {s["address"]: s["total_size"] for s in snapshot["segments"] if s["device"] == device}
            blocks = {b["address"]: b["size"] for s in snapshot["segments"] if s["device"] == device for b in s["blocks"] if b["state"] != "inactive"}
            times = [e["time_us"] for e in events]
            self.assertEqual(times, sorted(times))
            for e in reversed(events):
                self.assertTrue(all(set(f) == {"filename", "line", "name"} for f in e["frames"]))
                action, size = e["action"], e["size"]
                if action == "alloc":
                    self.assertEqual(blocks.pop(e["addr"]), size)
                elif action == "free_completed":
                    self.assertNotIn(e["addr"], blocks)
                    self.assertTrue(any(a <= e["addr"] and e["addr"] + size <= a + n for a, n in segments.items()))
                    blocks[e["addr"]] = size
                elif action == "segment_alloc":
                    self.assertFalse([b for b in blocks if e["addr"] <= b < e["addr"] + size])
                    self.assertEqual(segments.pop(e["addr"]), size)
                elif action == "segment_free":
                    self.assertNotIn(e["addr"], segments)
                    segments[e["addr"]] = size
                else:
                    self.assertIn(action, ("free_requested", "oom"))
        return blocks, segments

    def check_segments(self, snapshot):
        for s in snapshot["segments"]:
            self.assertEqual(set(s), {"device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream",
                                      "segment_type", "segment_pool_id", "is_expandable", "frames", "blocks"})
            at = s["address"]
            for b in s["blocks"]:
                self.assertEqual(set(b), {"address", "size", "requested_size", "state", "frames"})
                self.assertEqual(b["address"], at)
                at += b["size"]
            self.assertEqual(at, s["address"] + s["total_size"])
            self.assertEqual(s["allocated_size"], sum(b["size"] for b in s["blocks"] if b["state"] == "active_allocated"))

    def test_torch_snapshot(self):
        self.make()
        report = self.report(self.path)
        snapshot = self.snapshot()
        self.assertEqual(set(snapshot), {"segments", "device_traces", "allocator_settings", "external_annotations"})
        self.check_segments(snapshot)
        device = self.total(report, "device")
        self.assertEqual((sum(s["total_size"] for s in snapshot["segments"]), len(snapshot["segments"])), (device["live_bytes"], device["live_count"]))
        blocks = [b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
        self.assertEqual((sum(b["size"] for b in blocks), len(blocks)),
                         (self.total(report, "device", "tensor")["live_bytes"] + 7 * MIB, self.total(report, "device", "tensor")["live_count"] + 1))
        self.assertEqual(self.replay(snapshot), ({}, {}))  # the whole history is there
        counts = collections.Counter(e["action"] for e in snapshot["device_traces"][0])
        tensors = self.total(report, "device", "tensor")
        self.assertEqual((counts["alloc"], counts["free_requested"], counts["free_completed"]),
                         (tensors["alloc_calls"] + 2, tensors["free_calls"] + 1, tensors["free_calls"] + 1))
        self.assertEqual((counts["segment_alloc"], counts["segment_free"], counts["oom"]), (device["alloc_calls"], device["free_calls"], 1))
        oom = [e for e in snapshot["device_traces"][0] if e["action"] == "oom"][0]
        self.assertEqual((oom["size"], "device_free" in oom, oom["frames"][0]["name"]), (1 << 50, True, "grab"))
        self.assertIs(snapshot["allocator_settings"]["trace_alloc_overflowed"], False)
        self.assertIn({"filename": clean(HOSTILE_FILE), "line": 2, "name": clean(HOSTILE_FUNCTION)}, [f for b in blocks for f in b["frames"]])
        self.assertTrue(all(e["category"] for e in snapshot["device_traces"][0] if e["action"] != "oom"))

    EXPANDABLE = '''\
cu = ctypes.CDLL("libcuda.so.1")
class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("where", ctypes.c_int), ("device", ctypes.c_int),
                ("win32", pointer), ("flags", ctypes.c_ubyte * 8)]
def check(result):
    if result: raise SystemExit(result)
free(malloc(1 << 20))
base = ctypes.c_uint64()
check(cu.cuMemAddressReserve(ctypes.byref(base), size_t(16 * MIB), size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0)))
handles = []
def grow():
    handle, at = ctypes.c_uint64(), base.value + len(handles) * 2 * MIB
    check(cu.cuMemCreate(ctypes.byref(handle), size_t(2 * MIB), ctypes.byref(Properties(1, 0, 1, 0)), ctypes.c_uint64(0)))
    check(cu.cuMemMap(ctypes.c_uint64(at), size_t(2 * MIB), size_t(0), handle, ctypes.c_uint64(0)))
    handles.append(handle)
def shrink():
    at = base.value + (len(handles) - 1) * 2 * MIB
    check(cu.cuMemUnmap(ctypes.c_uint64(at), size_t(2 * MIB)))
    check(cu.cuMemRelease(handles.pop()))
def tell(offset, size):
    torch.torch_tell(0, pointer(base.value + offset), ctypes.c_int64(size), ctypes.c_int64(size))
for i in range(5): grow()
tell(1 * MIB, 2 * MIB)
tell(5 * MIB, 5 * MIB)
tell(5 * MIB, -5 * MIB)
shrink()
tell(4 * MIB, 1 * MIB)
os._exit(0)
'''

    def test_torch_snapshot_of_expandable_segments(self):
        """Pieces that are mapped one behind the other are one segment; tensors lie across them."""
        self.make_plain(self.EXPANDABLE)
        snapshot = self.snapshot()
        self.check_segments(snapshot)
        segments = [s for s in snapshot["segments"] if s["is_expandable"]]
        self.assertEqual([(s["total_size"], s["allocated_size"]) for s in segments], [(8 * MIB, 3 * MIB)])
        base = segments[0]["address"]
        self.assertEqual([(b["address"] - base, b["size"], b["state"]) for b in segments[0]["blocks"]],
                         [(0, MIB, "inactive"), (MIB, 2 * MIB, "active_allocated"), (3 * MIB, MIB, "inactive"),
                          (4 * MIB, MIB, "active_allocated"), (5 * MIB, 3 * MIB, "inactive")])
        events = [(e["action"], e["addr"] - base, e["size"]) for e in snapshot["device_traces"][0] if base <= e["addr"] < base + 16 * MIB]
        self.assertEqual(events, [("segment_map", i * 2 * MIB, 2 * MIB) for i in range(5)] +
                         [("alloc", MIB, 2 * MIB), ("alloc", 5 * MIB, 5 * MIB), ("free_requested", 5 * MIB, 5 * MIB),
                          ("free_completed", 5 * MIB, 5 * MIB), ("segment_unmap", 8 * MIB, 2 * MIB), ("alloc", 4 * MIB, MIB)])
        self.assertIs(snapshot["allocator_settings"]["expandable_segments"], True)

    PHYSICAL = EXPANDABLE[:EXPANDABLE.index("handles = []")] + '''\
def make(size):
    handle = ctypes.c_uint64()
    check(cu.cuMemCreate(ctypes.byref(handle), size_t(size * MIB), ctypes.byref(Properties(1, 0, 1, 0)), ctypes.c_uint64(0)))
    return handle
def map(offset, size, handle):
    check(cu.cuMemMap(ctypes.c_uint64(base.value + offset * MIB), size_t(size * MIB), size_t(0), handle, ctypes.c_uint64(0)))
twice, once, never, gone = make(2), make(4), make(6), make(8)
map(0, 2, twice)
map(2, 2, twice)
map(4, 4, once)
check(cu.cuMemRelease(gone))
os._exit(0)
'''

    def test_physical_memory_counts_where_it_is_owned(self):
        """By its handles, wherever they are mapped, or not: a mapping may be of memory that counts already, or is another process's."""
        self.make_plain(self.PHYSICAL)
        report, snapshot = self.report(self.path), self.snapshot()
        self.assertEqual([self.total(report, kind)["live_bytes"] // MIB for kind in ("vmm_physical", "vmm_mapped")], [12, 8])
        self.check_segments(snapshot)
        own = sorted(s["total_size"] // MIB for s in snapshot["segments"] if s["address"] >= 1 << 52)
        self.assertEqual(own, [2, 4, 6])
        self.assertEqual(sum(s["total_size"] for s in snapshot["segments"]), sum(
            t["live_bytes"] for t in report["totals"] if t["level"] == "driver" and t["kind"] in ("device", "vmm_physical")))
        self.assertEqual(self.replay(snapshot), ({}, {}))
        counts = collections.Counter((e["action"], e["size"] // MIB) for e in snapshot["device_traces"][0] if e["addr"] >= 1 << 52)
        self.assertEqual((counts["segment_alloc", 8], counts["segment_free", 8], counts["segment_alloc", 2]), (1, 1, 1))
        self.assertIs(snapshot["allocator_settings"]["expandable_segments"], False)

    def test_torch_snapshot_of_the_newest_events(self):
        """A suffix of history is as consistent as the whole."""
        self.make()
        for events in (1, 2, 57, 300):
            snapshot = self.snapshot("--events", str(events))
            self.replay(snapshot)
            self.assertIs(snapshot["allocator_settings"]["trace_alloc_overflowed"], True)
            self.assertEqual(snapshot["allocator_settings"]["trace_alloc_max_entries"], events)

    def test_ring_of_events_gone_round(self):
        """A run that is longer than what is kept of its events: the newest ones are there, and it says how many are not."""
        self.make(PROGRAM.replace("os._exit(0)", "for _ in range(20): work()\nos._exit(0)"), VRAMTRACK_EVENTS="1000")
        report = self.report(self.path)
        tensors, driver = self.total(report, "device", "tensor"), self.total(report, "device")
        file = json.loads(self.export("perfetto"))
        self.assertGreater(int(file["otherData"]["events_left_out"]), 4000)
        counters = [e["args"]["bytes"] for e in file["traceEvents"] if e["ph"] == "C" and e["name"] == "GPU 0 tensors"]
        self.assertGreater(len(counters), 3900)
        self.assertEqual((counters[-1], max(counters)), (tensors["live_bytes"], tensors["peak_bytes"]))
        snapshot = self.snapshot()
        self.check_segments(snapshot)
        self.replay(snapshot)
        self.assertIs(snapshot["allocator_settings"]["trace_alloc_overflowed"], True)
        self.assertGreater(len(snapshot["device_traces"][0]), 3900)
        self.assertEqual(sum(s["total_size"] for s in snapshot["segments"]), driver["live_bytes"])

    def test_torch_snapshot_at_a_moment(self):
        self.make()
        report = self.report(self.path, moment="oom-1")
        snapshot = self.snapshot("--moment", "oom-1")
        self.check_segments(snapshot)
        self.assertEqual(sum(s["total_size"] for s in snapshot["segments"]), self.total(report, "device")["live_bytes"])
        self.assertEqual(self.replay(snapshot), ({}, {}))
        error = subprocess.run([vt.COMMAND, "export", "--format", "torch-snapshot", "--moment", "peak", self.path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual((error.returncode, error.stdout), (2, ""))
        self.assertIn("were not recorded at that moment", error.stderr)

    def test_torch_reads_its_snapshot(self):
        """PyTorch's own reader, where there is one: torch, or its file alone in VT_MEMORY_VIZ."""
        found = importlib.util.find_spec("torch")
        path = os.environ.get("VT_MEMORY_VIZ") or (os.path.join(os.path.dirname(found.origin), "cuda", "_memory_viz.py") if found and found.origin else None)
        if not path:
            self.skipTest("torch is not installed")
        spec = importlib.util.spec_from_file_location("memory_viz", path)
        viz = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(viz)
        self.make()
        snapshot = self.snapshot()
        text = viz.segsum(snapshot)
        self.assertIn("segments: %d" % len(snapshot["segments"]), text)
        trace = viz.trace(snapshot)
        self.assertRegex(trace, r"raise OutOfMemoryError(\(\))? +# 1\.0PiB requested, ")  # as worded by several versions of it
        self.assertIn("%d entries" % len(snapshot["device_traces"][0]), trace)
        lines = viz.memory(snapshot, format_flamegraph=lambda x: x)
        self.assertEqual(sum(int(line.rsplit(" ", 1)[1]) for line in lines.split("\n")[:-1]), sum(s["total_size"] for s in snapshot["segments"]))
        self.assertIn("Active Memory Timeline", viz.trace_plot(snapshot))

    def test_a_live_and_a_killed_process(self):
        """What is torn is left out; what is exported is consistent."""
        program = PROGRAM.replace("os._exit(0)", "print('ready', flush=True)\nwhile True: work()")
        with open(os.path.join(self.dir, "train.py"), "w") as f:
            f.write(torch_case.HEAD + program)
        process = self.start_program([sys.executable, os.path.join(self.dir, "train.py")], TORCH=torch_case.libraries(), VRAMTRACK_REPORT="off")
        try:
            self.assertEqual(process.stdout.readline(), "ready\n")
            self.path = self.recordings()[0]
            for _ in range(5):
                snapshot = self.snapshot("--events", "5000")
                self.check_segments(snapshot)
                self.replay(snapshot)
                json.loads(self.export("perfetto", "--events", "5000"))
        finally:
            process.kill()
            process.communicate()
        snapshot = self.snapshot("--events", "5000")
        self.check_segments(snapshot)
        self.replay(snapshot)

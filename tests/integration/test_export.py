"""`vramtrack export`: each format is read by a parser of its own kind, and its figures are those of the JSON report."""
import collections
import csv
import glob
import gzip
import importlib.util
import io
import json
import os
import pickle
import pickletools
import re
import resource
import signal
import stat
import subprocess
import sys
import unittest

import test_torch
import vt

MIB = 1 << 20
HOSTILE_FILE = 'a";b\n\x01\u00e9\u202e,c.py'
HOSTILE_FUNCTION = 'f\n"x;y\\z{'
BROKEN = b"BROKENNAME", b"BROK\xff\xfeNAME"  # in the recording: the second, which is no UTF-8

PROGRAM = '''\
import random
cudart = ctypes.CDLL("libcudart.so.13")
def grab(n):
    p = pointer()
    if cudart.cudaMalloc(ctypes.byref(p), size_t(n)): raise MemoryError
    return p
def drop(p): cudart.cudaFree(p)
source = "def BROKENNAME(n): return malloc(n)\\ndef inner(n): return BROKENNAME(n)\\n"
code = {}
exec(compile(source, %r, "exec"), {"malloc": malloc}, code)
code["BROKENNAME"].__globals__.update(code)
f = code["inner"].__code__
code["inner"].__code__ = f.replace(co_name=%r, **({"co_qualname": %r} if sys.version_info >= (3, 11) else {}))
keep = [code["inner"](3 * MIB), code["inner"](1000)]
own = grab(7 * MIB)
drop(grab(2 * MIB))
pinned = pointer()
cudart.cudaMallocHost(ctypes.byref(pinned), size_t(64 * 1024))
rng, live = random.Random(1), []
def work():
    for i in range(400):
        if live and rng.random() < 0.45:
            free(live.pop(rng.randrange(len(live))))
        else:
            live.append(malloc(rng.choice([512, 5000, 300000, 2 * MIB, 9 * MIB])))
work()
try: grab(1 << 50)
except MemoryError: pass
torch.torch_empty_cache(0)
work()
os._exit(0)
''' % (HOSTILE_FILE, HOSTILE_FUNCTION, HOSTILE_FUNCTION)


def clean(text):
    """As names leave: no control characters, nothing that reorders text."""
    return re.sub("[\0-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", lambda c: "".join("\\x%02x" % b for b in c[0].encode()), text)


def read_fields(data):
    """The fields of one protobuf message: (number, value), bytes where the wire type says so."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            length = varint()
            assert at + length <= len(data)
            yield key >> 3, data[at:at + length]
            at += length
        else:
            raise AssertionError("wire type %d" % (key & 7))


def packed(data):
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value)
            value = shift = 0
    return values


class Profile:
    """A decoded profile.proto."""

    def __init__(self, data):
        every = collections.defaultdict(list)
        for number, value in read_fields(gzip.decompress(data)):
            every[number].append(value)
        self.strings = [s.decode() for s in every[6]]
        assert self.strings[0] == ""
        text = self.strings.__getitem__
        self.types = [(text(dict(read_fields(t))[1]), text(dict(read_fields(t))[2])) for t in every[1]]
        self.default = text(every[14][0])
        self.time, self.duration = every[9][0], every[10][0]
        self.functions = {}
        for f in map(lambda m: dict(read_fields(m)), every[5]):
            self.functions[f[1]] = (text(f.get(2, 0)), text(f.get(4, 0)))
        self.mappings = {m[1]: m for m in (dict(read_fields(m)) for m in every[3])}
        self.locations = {}
        for location in every[4]:
            fields = dict(read_fields(location))
            line = dict(read_fields(fields[4]))
            assert fields.get(2, 0) in self.mappings or not fields.get(2)
            self.locations[fields[1]] = self.functions[line[1]] + (line.get(2, 0), fields.get(2, 0), fields.get(3, 0))
        self.samples = []
        for sample in every[2]:
            fields = list(read_fields(sample))
            labels = [dict(read_fields(v)) for n, v in fields if n == 3]
            self.samples.append(([self.locations[i] for n, v in fields if n == 1 for i in packed(v)],
                                 [i for n, v in fields if n == 2 for i in packed(v)],
                                 {text(x[1]): text(x[2]) for x in labels}))


class Export(test_torch.Base):
    def make(self, program=PROGRAM, **env):
        self.python(program, VRAMTRACK_REPORT="off", VRAMTRACK_STACKS="both", **env)
        self.path = self.recordings()[0]
        with open(self.path, "rb") as f:
            data = f.read()
        self.assertTrue(program is not PROGRAM or BROKEN[0] in data)
        with open(self.path, "wb") as f:
            f.write(data.replace(*BROKEN))

    def export(self, format, *options, status=0):
        done = subprocess.run([vt.COMMAND, "export", "--format", format, *options, self.path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        self.assertEqual(done.returncode, status, done.stderr)
        if not status:
            self.assertEqual(done.stderr, b"")
        return done.stdout

    def shown(self, report, level=None):
        """The places that count once: tensors instead of what holds them."""
        memory = [s for s in report["sites"] if s["kind"] not in ("vmm_mapped", "vmm_reserved_va", "imported")]
        if level:
            return [s for s in memory if s["level"] == level]
        return [s for s in memory if s["level"] == "tensor" or not s["holds_tensors"]]

    def test_folded(self):
        self.make()
        report = self.report(self.path)
        for type, key in (("live", "live_bytes"), ("at-peak", "at_peak_bytes"), ("allocated", "total_bytes")):
            for level in (None, "driver", "tensor"):
                text = self.export("folded", "--type", type, *(["--level", level] if level else [])).decode()
                sums, stacks = collections.Counter(), []
                for line in text[:-1].split("\n"):
                    stack, bytes = re.fullmatch(r"(.*) (\d+)", line).groups()
                    stacks.append(stack.split(";"))
                    sums[stacks[-1][1]] += int(bytes)
                expected = collections.Counter()
                for s in self.shown(report, level):
                    expected["tensors" if s["level"] == "tensor" else s["kind"]] += s[key]
                self.assertEqual(sums, +expected)
        driver = self.export("folded", "--level", "driver").decode().split("\n")[:-1]
        self.assertEqual(sum(int(line.rsplit(" ", 1)[1]) for line in driver),
                         sum(t["live_bytes"] for t in report["totals"] if t["level"] == "driver"))
        own = [s for s in self.export("folded").decode().split("\n") if s.endswith(" %d" % (7 * MIB))]
        self.assertEqual(len(own), 1)
        self.assertRegex(own[0], r"^GPU 0;device;<module> \(train.py:\d+\);grab \(train.py:\d+\)")
        hostile = [s for s in self.export("folded").decode().split("\n") if "BROK" in s]
        self.assertEqual(len(hostile), 2)
        self.assertIn("BROK\\xff\\xfeNAME", hostile[0])
        self.assertIn(clean(HOSTILE_FUNCTION).replace(";", ":") + " (" + clean(HOSTILE_FILE).replace(";", ":") + ":2)", hostile[0])

    def test_csv(self):
        self.make()
        report = self.report(self.path)
        text = self.export("csv").decode()
        self.assertFalse(re.search("[\0-\x09\x0b-\x1f\x7f\u202e]", text))
        rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
        self.assertEqual(len(rows), text.count("\n") - 1)
        self.assertEqual([int(r["id"]) for r in rows], [s["id"] for s in report["sites"]])
        for row, site in zip(rows, report["sites"]):
            for key in ("live_bytes", "live_count", "at_peak_bytes", "peak_bytes", "total_bytes", "alloc_calls", "free_calls", "device"):
                self.assertEqual(int(row[key]), site[key])
            self.assertEqual((row["level"], row["kind"], row["api"], row["phase"], row["verdict"] or None),
                             (site["level"], site["kind"], site["api"], site["phase"], site["verdict"]))
            frame = site["frames"][site["user_frame"]]
            self.assertEqual(row["line"], str(frame["line"] or ""))
        hostile = [r["stack"] for r in rows if "BROK\\xff\\xfeNAME" in r["stack"]]
        self.assertEqual(len(hostile), 3)  # two tensors' and the segment's
        self.assertIn(" < %s (%s:2) < " % (clean(HOSTILE_FUNCTION), clean(HOSTILE_FILE)), hostile[0])
        tensors = list(csv.DictReader(io.StringIO(self.export("csv", "--level", "tensor").decode(), newline="")))
        self.assertEqual({r["level"] for r in tensors}, {"tensor"})

    def test_speedscope(self):
        self.make()
        report = self.report(self.path)
        file = json.loads(self.export("speedscope"))
        self.assertEqual(file["$schema"], "https://www.speedscope.app/file-format-schema.json")
        self.assertEqual([p["name"] for p in file["profiles"]][:3], ["live", "at-peak", "allocated"])
        for p, key in zip(file["profiles"], ("live_bytes", "at_peak_bytes", "total_bytes")):
            self.assertEqual((p["type"], p["unit"], p["startValue"]), ("sampled", "bytes", 0))
            self.assertEqual(len(p["samples"]), len(p["weights"]))
            self.assertEqual((sum(p["weights"]), p["endValue"]), (sum(s[key] for s in self.shown(report)),) * 2)
            for sample in p["samples"]:
                self.assertTrue(all(0 <= f < len(file["shared"]["frames"]) for f in sample))
        for frame in file["shared"]["frames"]:
            self.assertLessEqual(set(frame), {"name", "file", "line"})
            self.assertIsInstance(frame["name"], str)
        frames = file["shared"]["frames"]
        first = file["profiles"][0]
        own = [s for s, w in zip(first["samples"], first["weights"]) if w == 7 * MIB]
        self.assertEqual([frames[f]["name"] for f in own[0]][:4], ["GPU 0", "device", "<module>", "grab"])
        self.assertIn({"name": clean(HOSTILE_FUNCTION), "file": clean(HOSTILE_FILE), "line": 2}, frames)
        self.assertEqual(json.loads(self.export("speedscope", "--type", "allocated"))["activeProfileIndex"], 2)

    def test_pprof(self):
        self.make()
        report = self.report(self.path)
        profile = Profile(self.export("pprof"))
        self.assertEqual(profile.types, [(t + u, n) for t in ("live", "at_peak", "allocated", "leaked")
                                         for u, n in (("_objects", "count"), ("_space", "bytes"))])
        self.assertEqual(profile.default, "live_space")
        self.assertEqual(Profile(self.export("pprof", "--type", "at-peak")).default, "at_peak_space")
        sites = self.shown(report)
        for i, key in ((0, "live_count"), (1, "live_bytes"), (3, "at_peak_bytes"), (4, "alloc_calls"), (5, "total_bytes")):
            self.assertEqual(sum(s[1][i] for s in profile.samples), sum(s[key] for s in sites), key)
        own = [s for s in profile.samples if s[1][1] == 7 * MIB]
        self.assertEqual(len(own), 1)
        stack, values, labels = own[0]
        self.assertEqual((labels["device"], labels["level"], labels["kind"]), ("GPU 0", "driver", "device"))
        python = [(f, os.path.basename(file)) for f, file, line, mapping, address in stack if file.endswith(".py")]
        self.assertEqual(python, [("grab", "train.py"), ("<module>", "train.py")])
        self.assertIn((clean(HOSTILE_FUNCTION), clean(HOSTILE_FILE)), profile.functions.values())
        self.assertIn(("BROK\\xff\\xfeNAME", clean(HOSTILE_FILE)), profile.functions.values())
        native = Profile(self.export("pprof", "--stacks=native", "--all-frames"))
        self.assertTrue(native.mappings)
        for m in native.mappings.values():
            self.assertLess(m[2], m[3])
        used = {(mapping, address) for *_, mapping, address in native.locations.values() if mapping}
        self.assertTrue(used)
        for mapping, address in used:
            self.assertTrue(native.mappings[mapping][2] <= address <= native.mappings[mapping][3])
        ids = {os.path.basename(native.strings[m[5]]): native.strings[m.get(6, 0)] for m in native.mappings.values()}
        self.assertRegex(ids["libc10_cuda.so"], "^[0-9a-f]{40}$")

    def test_perfetto(self):
        self.make()
        report = self.report(self.path)
        file = json.loads(self.export("perfetto"))
        events = file["traceEvents"]
        for e in events:
            self.assertTrue({"ph", "pid", "ts", "name"} <= set(e), e)
            self.assertIn(e["ph"], "MCibe")
        counters = {}
        for e in events:
            if e["ph"] == "C":
                values = counters.setdefault(e["name"], [])
                self.assertTrue(not values or values[-1][0] <= e["ts"])
                values.append((e["ts"], e["args"]["bytes"]))
        tensors = self.total(report, "device", "tensor")
        driver = self.total(report, "device")
        self.assertEqual((counters["GPU 0 tensors"][-1][1], counters["GPU 0 driver"][-1][1]), (tensors["live_bytes"], driver["live_bytes"]))
        self.assertEqual(max(b for _, b in counters["GPU 0 tensors"]), tensors["peak_bytes"])
        self.assertEqual(counters["host page-locked"][-1][1], 64 * 1024)
        ooms = [e for e in events if e["name"] == "CUDA OOM"]
        self.assertEqual([(e["ph"], e["s"], e["args"]["requested_bytes"]) for e in ooms], [("i", "g", 1 << 50)])
        self.assertEqual({e["args"]["what"] for e in events if e["name"] == "moment"}, {m["name"] for m in report["moments"]})
        begun = collections.Counter((e["cat"], e["id"]) for e in events if e["ph"] == "b")
        self.assertEqual(begun, collections.Counter((e["cat"], e["id"]) for e in events if e["ph"] == "e"))
        self.assertEqual(sum(e["args"]["bytes"] for e in events if e["ph"] == "b"), sum(s["live_bytes"] for s in self.shown(report)))
        few = json.loads(self.export("perfetto", "--events", "10"))
        last = [e for e in few["traceEvents"] if e["ph"] == "C" and e["name"] == "GPU 0 tensors"]
        self.assertEqual(last[-1]["args"]["bytes"], tensors["live_bytes"])
        self.assertLess(len(few["traceEvents"]), len(events))

    def test_prometheus(self):
        self.make()
        report = self.report(self.path)
        name, label = r"[a-zA-Z_:][a-zA-Z0-9_:]*", r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
        seen, kinds, values = set(), {}, {}
        current = None
        for line in self.export("prometheus").decode()[:-1].split("\n"):
            about = re.fullmatch(r"# (HELP|TYPE) (%s) (.+)" % name, line)
            if about and about[1] == "HELP":
                current = about[2]
                self.assertNotIn(current, kinds)
            elif about:
                self.assertEqual(about[2], current)
                kinds[current] = about[3]
            else:
                sample = re.fullmatch(r"(%s)\{(%s(?:,%s)*)\} (\d+)" % (name, label, label), line)
                self.assertTrue(sample, line)
                self.assertEqual(sample[1], current)
                self.assertNotIn(sample[1] + sample[2], seen)
                seen.add(sample[1] + sample[2])
                values[sample[1], tuple(re.findall(r'(level|kind|device|holder|what)="([^"]*)"', sample[2]))] = int(sample[3])
        self.assertEqual({k for k in kinds.values()}, {"gauge", "counter"})
        self.assertTrue(all((kinds[k] == "counter") == k.endswith("_total") for k in kinds))
        for t in report["totals"]:
            key = (("level", t["level"]), ("kind", t["kind"]), ("device", str(t["device"])))
            self.assertEqual(values["vramtrack_live_bytes", key], t["live_bytes"])
            self.assertEqual(values["vramtrack_peak_bytes", key], t["peak_bytes"])
            self.assertEqual(values["vramtrack_allocations_total", key], t["alloc_calls"])
        self.assertEqual(values["vramtrack_failures_total", (("kind", "oom"),)], sum(f["count"] for f in report["failures"] if f["kind"] == "oom"))
        self.assertEqual(values["vramtrack_device_bytes", (("device", "0"), ("holder", "application"))], report["devices"][0]["account"]["application"])

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
        self.make(self.EXPANDABLE)
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
        self.assertIn("raise OutOfMemoryError()", trace)
        self.assertIn("%d entries" % len(snapshot["device_traces"][0]), trace)
        lines = viz.memory(snapshot, format_flamegraph=lambda x: x)
        self.assertEqual(sum(int(line.rsplit(" ", 1)[1]) for line in lines.split("\n")[:-1]), sum(s["total_size"] for s in snapshot["segments"]))
        self.assertIn("Active Memory Timeline", viz.trace_plot(snapshot))

    def test_a_live_and_a_killed_process(self):
        """What is torn is left out; what is exported is consistent."""
        program = PROGRAM.replace("os._exit(0)", "print('ready', flush=True)\nwhile True: work()")
        with open(os.path.join(self.dir, "train.py"), "w") as f:
            f.write(test_torch.HEAD + program)
        process = self.start_program([sys.executable, os.path.join(self.dir, "train.py")], TORCH=test_torch.libraries(), VRAMTRACK_REPORT="off")
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

    def test_files(self):
        """Nothing is overwritten unasked, nothing half is seen, modes follow the umask."""
        self.make("p = malloc(MIB)\nos._exit(0)\n")
        out = os.path.join(self.dir, "out.prom")

        def run(*options):
            return subprocess.run([vt.COMMAND, "export", "--format", "prometheus", *options, self.path], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.umask(0o027))

        self.assertEqual((run("-o", out).returncode, stat.S_IMODE(os.stat(out).st_mode)), (0, 0o640))
        with open(out) as f:
            self.assertEqual(f.read(), run().stdout)
        with open(out, "w") as f:
            f.write("mine")
        done = run("-o", out)
        self.assertEqual((done.returncode, done.stderr), (2, "vramtrack export: %s is there already (--force replaces it)\n" % out))
        with open(out) as f:
            self.assertEqual(f.read(), "mine")
        before = os.stat(out).st_ino
        self.assertEqual(run("--force", "--output", out).returncode, 0)
        self.assertNotEqual(os.stat(out).st_ino, before)
        with open(out) as f:
            self.assertEqual(f.read(), run().stdout)
        link = os.path.join(self.dir, "link")
        os.symlink("out.prom", link)
        self.assertEqual((run("--force", "-o", link).returncode, os.path.islink(link)), (0, True))
        os.symlink("nothing", os.path.join(self.dir, "dangling"))
        for options in ((), ("--force",)):
            done = run(*options, "-o", os.path.join(self.dir, "dangling"))
            self.assertEqual((done.returncode, done.stderr),
                             (2, "vramtrack export: %s is a link to a file that is not there\n" % os.path.join(self.dir, "dangling")))
        done = run("--force")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", "vramtrack export: --force is for -o FILE\n"))
        with open(out) as f:
            before = f.read()
        done = subprocess.run([vt.COMMAND, "export", "--format", "prometheus", "--force", "-o", out, self.path], stderr=subprocess.PIPE,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)))
        self.assertEqual((done.returncode, done.stderr), (-signal.SIGXFSZ, b""))
        with open(out) as f:
            self.assertEqual(f.read(), before)
        self.assertEqual(run("--force", "-o", self.path).returncode, 2)
        self.assertEqual(run("--moment", "never", "-o", os.path.join(self.dir, "none")).returncode, 2)
        self.assertEqual((run("-o", "/dev/full").returncode, run("-o", "/dev/null").returncode, run("-o", self.dir).returncode), (2, 0, 2))
        self.assertEqual(glob.glob(os.path.join(self.dir, "*.??????")) + glob.glob(os.path.join(self.dir, "none*")), [])

    def test_same_bytes_again(self):
        self.make()
        for format in ("torch-snapshot", "pprof", "perfetto", "speedscope", "folded", "csv", "prometheus"):
            self.assertEqual(self.export(format), self.export(format), format)


if __name__ == "__main__":
    unittest.main()

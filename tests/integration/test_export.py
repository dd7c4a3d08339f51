"""`vramtrack export`: each format is read by a parser of its own kind, and its figures are those of the JSON report. The snapshot for
PyTorch's viewer: test_export_torch.py.
"""
import collections
import csv
import glob
import gzip
import io
import json
import os
import re
import resource
import signal
import stat
import subprocess

import vt
from export_case import HOSTILE_FILE, HOSTILE_FUNCTION, MIB, Case, clean


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


class Export(Case):
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

    def test_nothing_has_leaked(self):
        """An empty file says nothing by itself: the terminal does."""
        self.make_plain("free(malloc(1 << 20))\nos._exit(0)\n")
        done = subprocess.run([vt.COMMAND, "export", "--format", "folded", "--type", "leaked", self.path], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, "", "vramtrack: nothing has leaked, as far as is known: the export has no bytes\n"))
        self.assertRegex(self.export("folded", "--type", "at-peak"), rb" 1048576\n\Z")  # without a word

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

    def test_files(self):
        """Nothing is overwritten unasked, nothing half is seen, modes follow the umask."""
        self.make_plain("p = malloc(MIB)\nos._exit(0)\n")
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

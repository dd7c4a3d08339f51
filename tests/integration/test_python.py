"""Python programs from end to end: the user's line, the moment before the interpreter cleans up, switches, double frees.

The programs call the simulated runtime through ctypes, as the smallest Python extension there is.
"""
import os
import sys

import vt

MIB = 1 << 20

PROGRAM = '''\
import ctypes, sys, threading
rt = ctypes.CDLL("libcudart.so.13")
kept = []
def grab(mib):
    p = ctypes.c_void_p()
    assert rt.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(mib << 20)) == 0        # line 6
    return p
class Model:
    def __init__(self, layers):
        self.weights = [grab(4) for _ in range(layers)]                           # line 10
    def __del__(self):
        for p in self.weights:
            rt.cudaFree(p)
def train_step(i):
    kept.append(grab(2))                                                          # line 15
    scratch = grab(8)                                                             # line 16
    rt.cudaFree(scratch)
def worker():
    kept.append(grab(1))                                                          # line 19
model = Model(3)
for i in range(5):
    train_step(i)
threads = [threading.Thread(target=worker) for _ in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
'''

DOUBLE = '''\
import ctypes
rt = ctypes.CDLL("libcudart.so.13")
def make():
    p = ctypes.c_void_p()
    rt.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(1 << 20))                      # line 5
    return p
def first(p):
    return rt.cudaFree(p)                                                         # line 8
def second(p):
    return rt.cudaFree(p)                                                         # line 10
p = make()
assert first(p) == 0 and second(p) != 0
'''


class Python(vt.Case):
    def python(self, text, status=0, **options):
        path = os.path.join(self.dir, "train.py")
        with open(path, "w") as f:
            f.write(text)
        env = {"LD_LIBRARY_PATH": vt.SIM}
        done = self.run_program([sys.executable, path], **dict(env, **options))
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def own(self, frames):
        """The frames of the program's own file as (function, line), innermost first."""
        return [(f["function"].rsplit(".", 1)[-1], f["line"]) for f in frames if f["lang"] == "python" and f["file"].endswith("train.py")]

    def by_line(self, report):
        """{(lines of the program's frames)} -> live bytes, live count, calls."""
        out = {}
        for s in report["sites"]:
            key = tuple(line for _, line in self.own(s["frames"]) if line)
            old = out.get(key, (0, 0, 0))
            out[key] = (old[0] + s["live_bytes"], old[1] + s["live_count"], old[2] + s["alloc_calls"])
        return out

    def test_lines_and_the_moment_of_the_end(self):
        """What the program held when its code ended, by line; __del__ of module globals freed the model afterwards."""
        self.python(PROGRAM)
        report = self.report()
        self.assertIn("finalize", [m["name"] for m in report["moments"]])
        figures = self.by_line(report)
        comprehension = next(k for k in figures if 10 in k)
        self.assertEqual(figures[comprehension], (12 * MIB, 3, 3))
        self.assertEqual(figures[6, 15, 22], (10 * MIB, 5, 5))
        self.assertEqual(figures[6, 16, 22], (0, 0, 5))
        self.assertEqual(figures[6, 19], (2 * MIB, 2, 2))
        self.assertEqual(self.total(report, "device")["live_bytes"], 24 * MIB)
        self.assertEqual(self.total(self.report(moment="end"), "device")["live_bytes"], 12 * MIB)

    def test_os_exit_keeps_the_state(self):
        self.python(PROGRAM + "import os; os._exit(4)\n", status=4)
        report = self.report()
        self.assertEqual(report["process"]["exit_code"], 4)
        self.assertEqual(self.total(report, "device")["live_bytes"], 24 * MIB)

    def test_one_language_alone(self):
        for mode, languages in (("native", {"native"}), ("python", {"python"}), ("both", {"native", "python"}), ("off", set())):
            with self.subTest(mode):
                self.setUp()
                self.python(PROGRAM, VRAMTRACK_STACKS=mode)
                report = self.report()
                self.assertEqual({f["lang"] for s in report["sites"] for f in s["frames"]}, languages)
                self.assertEqual(self.total(report, "device")["alloc_calls"], 15)

    def test_double_free_has_both_python_stacks(self):
        self.python(DOUBLE)
        failure, = self.report()["failures"]
        self.assertEqual(failure["kind"], "double_free")
        self.assertEqual(self.own(failure["frames"])[0], ("second", 10))
        self.assertEqual(self.own(failure["allocated_at"])[0], ("make", 5))
        self.assertEqual(self.own(failure["freed_at"])[0], ("first", 8))

    def test_report_names_the_line(self):
        done = self.python(PROGRAM)
        self.assertIn("train.py:", done.stderr)
        self.assertNotIn("callproc.c", done.stderr)

    def test_unmodified_without_cuda(self):
        self.assert_silent([sys.executable, "-c", "import threading, json; print(json.dumps({'a': [1, 2]}))"])

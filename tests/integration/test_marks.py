"""What a program says by itself: vramtrack.h, from C and from Python, and NVTX."""
import os
import struct
import subprocess

import torch_case
import vt

KIB = 1024
MARK, EVENTS = 9, 8  # enum vt_event_type and section of vramtrack/recording.h
NVTX = os.path.exists(os.path.join(vt.CUDA_INCLUDE, "nvtx3", "nvToolsExt.h"))


class Marks(vt.Case):
    def program(self):
        flags = ["-DWITH_NVTX"] if NVTX else []
        return vt.compile("marks_program.c", "-lcudart", *flags)

    def marks(self):
        """Names of the marks, in order."""
        recording = torch_case.torch_exact.Recording(self.recordings()[0])
        events = [struct.unpack_from("<QQQIIHHBBH", recording.data, at) for at in recording.records(EVENTS)]
        return [recording.string(e[1]) if e[1] else "" for e in events if e[7] == MARK]

    def ranges(self, report):
        return {s["total_bytes"] // s["alloc_calls"] // KIB: s["range"] for s in report["sites"]}

    def test_without_the_library(self):
        done = self.run_program(self.program(), preload=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr, os.listdir(self.dir)), (0, "done\n", "", []))

    def test_from_c(self):
        done = self.run_program(self.program(), VRAMTRACK_REPORT="off")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "done\n", ""))
        r = self.report()
        self.assertEqual(self.ranges(r), {4: "before anything", 8: "epoch"})
        self.assertEqual((r["training"]["steps"], r["training"]["counted_by"]), (3, "mark"))
        self.assertEqual(self.marks(), ["begun", ""])
        names = [m["name"] for m in r["moments"]]
        self.assertEqual(sorted(names), ["a name that is much longer than", "end", "epoch", "mark-end", "moment", "peak"])
        at = {m: self.total(self.report(moment=m), "device")["live_bytes"] // KIB for m in names}
        self.assertEqual((at["epoch"], at["mark-end"], at["end"]), (12, 12, 8))
        training = self.report(moment="epoch")["training"]
        self.assertEqual((training["steps"], training["phase"]), (2, "none"))

    def test_threads(self):
        """Ranges are each thread's own, steps are everybody's."""
        program = vt.compile("marks_threads.c", "-lcudart", sanitize=True)
        self.assertEqual(self.run_program(program, VRAMTRACK_REPORT="off").returncode, 0)
        r = self.report()
        calls = {}
        for s in r["sites"]:
            calls[s["range"]] = calls.get(s["range"], 0) + s["alloc_calls"]
        self.assertEqual(calls, {None: 1, "common": 2000, "first": 500, "second": 500, "third": 500, "fourth": 500, "round N": 2000})
        self.assertEqual(r["training"]["steps"], 2000)

    def test_off(self):
        done = self.run_program(self.program(), VRAMTRACK_OFF="1")
        self.assertEqual((done.returncode, done.stdout, done.stderr, os.listdir(self.dir)), (0, "done\n", "", []))

    def test_marks_alone_make_no_recording(self):
        program = vt.compile('#include <vramtrack/vramtrack.h>\nint main(void) { vramtrack_mark("a"); vramtrack_moment("b"); vramtrack_step();\n'
                             'vramtrack_range_push("c"); vramtrack_range_pop("c"); return 7; }\n', name="marks_alone")
        self.assert_silent(program)

    def test_from_cplusplus(self):
        program = vt.compile('// c++\n#include <vramtrack/vramtrack.h>\n#include <cuda_runtime_api.h>\n#include <unistd.h>\n'
                             'int main() { void *p; vramtrack_range_push("c++"); cudaMalloc(&p, 4096); vramtrack_step(); _exit(0); }\n',
                             "-lcudart", "-Werror", "-Wextra", name="marks_cplusplus")
        self.assertEqual(self.run_program(program, VRAMTRACK_REPORT="off").returncode, 0)
        r = self.report()
        self.assertEqual((self.ranges(r), r["training"]["steps"]), ({4: "c++"}, 1))

    def test_long_names(self):
        """Names are cut between characters: marks and ranges at 63 bytes, moments at 31, the program's at 63."""
        program = vt.compile('#include <vramtrack/vramtrack.h>\n#include <cuda_runtime_api.h>\n#include <unistd.h>\n'
                             '#define TEN(x) x x x x x x x x x x\n#define NAME "xy" TEN(TEN("\\u00e4"))\n'
                             'int main(void) { void *p; vramtrack_range_push(NAME); cudaMalloc(&p, 4096); vramtrack_mark(NAME);\n'
                             'vramtrack_moment(NAME + 1); _exit(0); }\n', "-lcudart", name="marks_long")
        named = os.path.join(self.dir, "abc" + "\u00e4" * 40)
        os.symlink(program, named)
        self.assertEqual(self.run_program(named, VRAMTRACK_REPORT="off").returncode, 0)
        r = self.report()
        self.assertEqual((self.ranges(r), self.marks()), ({4: "xy" + "\u00e4" * 30}, ["xy" + "\u00e4" * 30]))
        self.assertEqual([m["name"] for m in r["moments"] if m["name"] not in ("end", "peak", "finalize")], ["y" + "\u00e4" * 15])
        done = subprocess.run([vt.COMMAND, "report", self.recordings()[0]], stdout=subprocess.PIPE, text=True)
        self.assertTrue(done.stdout.startswith("GPU memory of abc%s (pid " % ("\u00e4" * 30)), done.stdout[:200])

    def test_from_python(self):
        """The example of docs/marks.md."""
        text = open(os.path.join(vt.ROOT, "docs", "marks.md")).read()
        example = text.split("```python\n", 1)[1].split("```", 1)[0]
        path = os.path.join(self.dir, "marks.py")
        with open(path, "w") as f:
            f.write(example + '''
import os
cudart = ctypes.CDLL("libcudart.so.13")
def make(n): cudart.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(n))
make(4096)
with vram_range("loading"):
    make(8192)
vram_moment("loaded")
vram_step()
vram_mark("here")
make(16384)
os._exit(0)
''')
        done = self.run_program(["python3", path], VRAMTRACK_REPORT="off")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        r = self.report()
        self.assertEqual((self.ranges(r), r["training"]["steps"], self.marks()), ({4: None, 8: "loading", 16: None}, 1, ["here"]))
        self.assertEqual(self.total(self.report(moment="loaded"), "device")["live_bytes"], 12 * KIB)
        bare = self.run_program(["python3", path], preload=False)
        self.assertEqual((bare.returncode, bare.stderr), (0, ""))


class Nvtx(Marks):
    def setUp(self):
        super().setUp()
        if not NVTX:
            self.skipTest("no NVTX headers")

    test_threads = test_without_the_library = test_from_c = test_off = test_marks_alone_make_no_recording = test_from_cplusplus = test_from_python = None

    def test_ranges_and_marks(self):
        done = self.run_program([self.program(), "nvtx"], VRAMTRACK_REPORT="off", VRAMTRACK_NVTX="1")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "0 1 1 0\n", ""))
        self.assertEqual(self.ranges(self.report()), {4: None, 8: "outer", 12: "with attributes", 16: "registered", 20: "outer", 24: None})
        self.assertEqual(self.marks(), ["marked", "registered"])

    def test_only_if_asked_for(self):
        done = self.run_program([self.program(), "nvtx"], VRAMTRACK_REPORT="off")
        self.assertEqual(done.stdout, "-2 -2 -2 -2\n")
        self.assertEqual(set(self.ranges(self.report()).values()), {None})

    def test_somebody_else_has_it(self):
        done = self.run_program([self.program(), "nvtx"], VRAMTRACK_REPORT="off", VRAMTRACK_NVTX="1", NVTX_INJECTION64_PATH="/nowhere.so")
        self.assertEqual(done.stdout, "-2 -2 -2 -2\n")

    def test_child_without_the_library(self):
        """It inherits the variable: what it loads by that does nothing, and leaves nothing behind."""
        done = self.run_program([self.program(), "nvtx", "exec"], VRAMTRACK_REPORT="off", VRAMTRACK_NVTX="1")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "0 1 1 0\n-2 -2 -2 -2\n", ""))
        self.assertEqual(len(self.recordings()), 1)

"""Phases, steps and ranges of programs that use PyTorch, without PyTorch (torch_*.cpp stand in for it)."""
import os
import shutil
import struct
import unittest

import phase_programs
import torch_case
import vt

MIB = 1 << 20
STEPS = 21  # section of vramtrack/recording.h


class Phases(phase_programs.Base):
    LOOP = '''\
grads, saved = [], []
def forward():
    t = malloc(1 * MIB)                                     # line 3
    free(t)
    saved.append(malloc(2 * MIB))                           # line 5
    return malloc(3 * MIB)                                  # line 6
def work():
    t = malloc(4 * MIB)                                     # line 8
    free(t)
    grads.append(malloc(5 * MIB))                           # line 10
    free(saved.pop())
out = None
for step in range(3):
    with loader():
        x = malloc(6 * MIB)                                 # line 15
    new = forward()
    if out: free(out)
    out = new
    assert backward(work) == 0
    with optimizer():
        t = malloc(7 * MIB)                                 # line 21
        free(t)
        if step == 0: state = malloc(8 * MIB)               # line 23
    with zero_grad():
        free(grads.pop())
    free(x)
finish()
'''

    def test_phases_and_fates(self):
        self.python(self.LOOP)
        r = self.report()
        expected = [  # line, phase, (stretch, backward, step, later)
            (3, "none", (3, 0, 0, 0)), (5, "none", (0, 3, 0, 0)), (6, "none", (0, 0, 0, 2)), (8, "backward", (3, 0, 0, 0)),
            (10, "backward", (0, 0, 0, 3)), (15, "data", (0, 0, 0, 3)), (21, "optimizer", (3, 0, 0, 0)), (23, "optimizer", (0, 0, 0, 0))]
        self.assertEqual([(n, self.at_line(r, n)["phase"], self.fates(self.at_line(r, n))) for n, _, _ in expected], expected)
        self.assertEqual(r["training"], {"steps": 3, "counted_by": "optimizer", "phase": "none"})
        for s in r["sites"]:
            self.assertEqual(sum(s["fates"].values()), s["free_calls"])

    def test_backward_in_the_calling_thread(self):
        self.python(self.LOOP.replace("backward(work)", "backward(work, 0)"))
        r = self.report()
        self.assertEqual([self.at_line(r, n)["phase"] for n in (3, 5, 6, 8, 10)], ["none", "none", "none", "backward", "backward"])

    def test_exception_through_backward(self):
        """The phase ends with the exception; what the engine threw arrives at its caller."""
        self.python('''\
def forward(): free(malloc(MIB))                            # line 1
forward()
for threaded in 1, 0, 1:
    print(cpu.torch_backward(cpu.torch_throw, None, threaded))
    forward()
def nested():
    print(cpu.torch_backward(cpu.torch_throw, None, 0))
    free(malloc(2 * MIB))                                   # line 8
print(backward(nested, 0))
forward()
finish()
''')
        self.assertEqual(self.done.stdout.split(), ["1", "1", "1", "1", "0"])
        r = self.report()
        self.assertEqual((self.at_line(r, 1)["phase"], self.at_line(r, 1)["alloc_calls"]), ("none", 5))
        self.assertEqual(self.at_line(r, 8)["phase"], "backward")
        self.assertEqual(r["training"]["phase"], "none")

    def test_reentrant(self):
        """Checkpointing enters the engine again from inside: the inner end is not the end."""
        self.python('''\
def inner(): free(malloc(MIB))                              # line 1
def outer():
    free(malloc(2 * MIB))                                   # line 3
    assert backward(inner, INNER) == 0
    free(malloc(3 * MIB))                                   # line 5
assert backward(outer) == 0
free(malloc(4 * MIB))                                       # line 7
assert backward(outer, 0) == 0
free(malloc(4 * MIB))                                       # line 9
finish()
'''.replace("INNER", "1"))
        r = self.report()
        self.assertEqual([(self.at_line(r, n)["phase"], self.at_line(r, n)["alloc_calls"]) for n in (1, 3, 5, 7, 9)],
                         [("backward", 2), ("backward", 2), ("backward", 2), ("none", 1), ("none", 1)])

    def test_other_threads(self):
        """While backward runs, its own threads work for it; a thread that fetches data, or trains by itself, does not."""
        self.python('''\
import queue
ask, done = queue.Queue(), queue.Queue()
def other():
    with zero_grad(): pass                                  # a thread of the program
    done.put(1)
    while ask.get():
        free(malloc(MIB))                                   # line 7
        done.put(1)
def fetch():
    while ask2.get():
        with loader(): free(malloc(2 * MIB))                # line 11
        free(malloc(3 * MIB))                               # line 12
        done.put(1)
ask2 = queue.Queue()
threads = [threading.Thread(target=other), threading.Thread(target=fetch)]
threads[0].start()
done.get()
backward(lambda: None)
threads[1].start()
def work():
    free(malloc(4 * MIB))                                   # line 21
    ask.put(1); done.get()
    ask2.put(1); done.get()
    free(malloc(4 * MIB))                                   # line 24
assert backward(work) == 0
ask.put(0); ask2.put(0)
for t in threads: t.join()
finish()
''')
        r = self.report()
        self.assertEqual([self.at_line(r, n)["phase"] for n in (7, 11, 12, 21, 24)], ["none", "data", "none", "backward", "backward"])

    def test_closure(self):
        """An optimizer may run forward and backward itself (Lightning does): the innermost counts, and it is one step."""
        self.python('''\
def work(): free(malloc(MIB))                               # line 1
for step in range(2):
    with optimizer():
        saved = malloc(2 * MIB)                             # line 4
        with zero_grad(): free(malloc(3 * MIB))             # line 5
        backward(lambda: (work(), free(saved)))
        free(malloc(4 * MIB))                               # line 7
        with optimizer("SGD"): pass
finish()
''')
        r = self.report()
        self.assertEqual([self.at_line(r, n)["phase"] for n in (1, 4, 5, 7)], ["backward", "optimizer", "zero_grad", "optimizer"])
        self.assertEqual(self.fates(self.at_line(r, 4)), (0, 2, 0, 0))
        self.assertEqual(r["training"]["steps"], 2)

    def test_optimizer_inside_backward(self):
        """One step per backward, not one per parameter."""
        self.python('''\
def work():
    for i in range(5):
        with optimizer("SGD"): free(malloc(MIB))            # line 3
for step in range(3): backward(work)
finish()
''')
        r = self.report()
        self.assertEqual((self.at_line(r, 3)["phase"], r["training"]["steps"]), ("optimizer", 3))

    def test_old_pytorch_is_left_alone(self):
        """Its callback has another layout: recognised by a function that came later."""
        place = phase_programs.libraries()
        old = os.path.join(self.dir, "lib")
        shutil.copytree(place, old)
        data = open(old + "/libtorch_cpu.so", "rb").read()
        with open(old + "/libtorch_cpu.so", "wb") as f:
            f.write(data.replace(b"_ZN2at16getStepCallbacksENS_11RecordScopeE", b"_ZN2at16getStepCallbackzENS_11RecordScopeE"))
        self.python("with optimizer(): free(malloc(MIB))                     # line 1\nbackward(lambda: free(malloc(MIB))) # line 2\nfinish()\n",
                    TORCH=old, LD_LIBRARY_PATH=old + ":" + vt.SIM)
        r = self.report()
        self.assertEqual([self.at_line(r, n)["phase"] for n in (1, 2)], ["none", "backward"])
        self.assertEqual(r["training"]["steps"], 0)

    def test_off(self):
        """VRAMTRACK_OFF=1: the functions that we stand before still work."""
        self.python('''\
done = []
assert backward(lambda: done.append(1)) == 0 and cpu.torch_backward(cpu.torch_throw, None, 1) == 1
cpu.torch_profiler_step()
print(len(done), cpu.torch_profiler_steps())
finish()
''', VRAMTRACK_OFF="1")
        self.assertEqual((self.done.stdout.split(), self.recordings()), (["1", "1"], []))

    @unittest.skipIf(vt.SAN == "tsan", "TSan counts a lock of the simulated driver as held in the child")
    def test_fork(self):
        """A child forked inside a scope knows of none."""
        self.python('''\
with optimizer(), scope("outer"):
    if os.fork() == 0:
        free(malloc(MIB))                                   # line 3
        with optimizer(): pass
        finish()
    os.wait()
finish()
''')
        child = [p for p in self.recordings() if self.report(p)["process"]["pid"] != self.report(self.recordings()[0])["process"]["pid"]]
        reports = [self.report(p) for p in self.recordings()]
        self.assertEqual(len(reports), 2)
        forked = [r for r in reports if any(s["total_bytes"] == MIB for s in self.tensor_sites(r))]
        self.assertEqual(len(forked), 1, child)
        site = self.at_line(forked[0], 3)
        self.assertEqual((site["phase"], site["range"], forked[0]["training"]["steps"]), ("none", None, 1))


class Steps(phase_programs.Base):
    def steps(self, text):
        self.setUp()
        self.python(text + "finish()\n")
        t = self.report()["training"]
        return t["steps"], t["counted_by"]

    def test_sources(self):
        for text, expected in (
                ("pass\n", (0, "none")),
                ("for i in range(4):\n    with optimizer(): pass\n", (4, "optimizer")),
                # the class seen first counts; the other one does not
                ("for i in range(4):\n    with optimizer('A'): pass\n    with optimizer('B'): pass\n", (4, "optimizer")),
                # ... until it is alone
                ("with optimizer('A'): pass\nfor i in range(70):\n    with optimizer('B'): pass\n", (1 + 70 - 64, "optimizer")),
                # zero_grad from the third on; not if there are optimizers
                ("for i in range(5):\n    with zero_grad(): pass\n", (3, "zero_grad")),
                ("for i in range(5):\n    with zero_grad(): pass\n    with optimizer(): pass\n", (5, "optimizer")),
                ("for i in range(5): cpu.torch_profiler_step()\n", (4, "profiler")),
                ("for i in range(5):\n    with optimizer(): pass\n    cpu.torch_profiler_step()\n", (5, "optimizer")),
                # the program's own word is the last
                ("for i in range(5):\n    with optimizer(): pass\n    vram.vramtrack_step()\n", (1 + 5, "mark"))):
            with self.subTest(text):
                self.assertEqual(self.steps(text), expected)

    def test_thinned_out(self):
        """20,000 steps: every fourth is kept, in order, with the bytes that were live then."""
        self.python('''\
for step in range(20000):
    p = malloc((step % 4 + 1) * MIB)
    vram.vramtrack_step()
    free(p)
finish()
''')
        recording = torch_case.torch_exact.Recording(self.recordings()[0])
        steps = [struct.unpack_from("<QQQ", recording.data, at) for at in recording.records(STEPS)]
        self.assertEqual((self.report()["training"]["steps"], len(steps)), (20000, 5000))
        self.assertEqual([s[0] for s in steps], sorted(s[0] for s in steps))
        self.assertEqual({s[1] for s in steps}, {MIB})
        self.assertEqual([{s[2] for s in steps[:1]}, {s[2] for s in steps[1:]}], [{2 * MIB}, {22 * MIB}])


class Ranges(phase_programs.Base):
    def test_ranges(self):
        self.python('''\
def make(): free(malloc(MIB))                               # line 1
make()
with scope("encoder"):
    make()
    with scope("layer3"): make()
    make()
for step in range(3):
    with scope("step %d" % step): make()
    with scope("iteration_%d" % step), optimizer(): make()
vram.vramtrack_range_push(b"decoder")
with scope("inside"):
    vram.vramtrack_range_push(None)
    make()
    vram.vramtrack_range_pop(None)
make()
vram.vramtrack_range_pop(b"decoder")
vram.vramtrack_range_pop(b"one too many")
make()
finish()
''')
        r = self.report()
        calls = {}
        for s in self.tensor_sites(r):
            if s["total_bytes"] >= MIB:
                calls[s["range"] or "", s["phase"]] = calls.get((s["range"] or "", s["phase"]), 0) + s["alloc_calls"]
        self.assertEqual(calls, {("", "none"): 2, ("decoder", "none"): 1, ("encoder", "none"): 2, ("inside", "none"): 1,
                                 ("iteration_N", "optimizer"): 3, ("layer3", "none"): 1, ("step N", "none"): 3})

    def test_bounded(self):
        """Beyond 1,024 names the rest is one; numbers inside of words are folded when there are many names."""
        self.python('''\
def name(i):
    out = ""
    while i or not out:
        out, i = out + chr(97 + i % 26), i // 26
    return "range_" + out
def make(): free(malloc(512))
for i in range(2000):
    with scope(name(i)): make()
for i in range(300):
    with scope("layer%d" % i): make()
with scope("q" * 100): make()
finish()
''')
        r = self.report()
        counts = {}
        for s in self.tensor_sites(r):
            counts[s["range"]] = counts.get(s["range"], 0) + s["alloc_calls"]
        self.assertEqual((len(counts), counts["range_a"], counts["other"], counts[None]), (1026, 1, 2000 - 1024 + 300 + 1, 1))

    def test_deep(self):
        """More scopes than are kept: the outermost sixteen count, and everything ends well."""
        self.python('''\
def down(n):
    if n == 0: return free(malloc(MIB))
    with scope("level " + chr(65 + n)): down(n - 1)
down(20)
free(malloc(MIB))                                           # line 5
finish()
''')
        r = self.report()
        self.assertEqual(sorted(s["range"] or "" for s in self.tensor_sites(r) if s["total_bytes"] >= MIB), ["", "level F"])


class Workspaces(phase_programs.Base):
    def test_workspaces(self):
        """They are told from the tensors of the line that needed them; one that fails names nothing else."""
        self.python('''\
cuda = ctypes.CDLL(os.environ["TORCH"] + "/libtorch_cuda.so")
def linear(first=False):
    assert cuda.torch_workspaces(size_t(4 * MIB)) == 0      # line 3
    return malloc(5 * MIB)                                  # line 4
linear()
linear()
print(cuda.torch_short_workspace(size_t(2 * MIB)))
torch.torch_limit(0, size_t(0))
print(cuda.torch_short_workspace(size_t(200 * MIB)))
torch.torch_limit(0, size_t(1 << 40))
linear()
finish()
''', status=0)
        self.assertEqual(self.done.stdout.split(), ["0", "1"])
        r = self.report()
        by_api = {}
        for s in [s for s in self.tensor_sites(r) if s["total_bytes"] >= MIB]:
            n, b = by_api.get(s["api"], (0, 0))
            by_api[s["api"]] = (n + s["alloc_calls"], b + s["live_bytes"])
        self.assertEqual(by_api, {"torch.cublas_workspace": (4, 37 * MIB), "torch.caching_allocator": (3, 15 * MIB)})
        self.assertEqual(self.at_line(r, 3)["category"], "other")


    def test_workspaces_made_by_the_way(self):
        """Builds in which whoever asks for cuBLAS's handle makes the workspace: what comes after it is a tensor again."""
        self.python('''\
cuda = ctypes.CDLL(os.environ["TORCH"] + "/libtorch_cuda.so")
def linear():
    assert cuda.torch_product() == 0      # line 3
    return malloc(5 * MIB)                # line 4
linear()
linear()
finish()
''', status=0)
        r = self.report()
        at = {s["api"]: (s["alloc_calls"], s["live_bytes"]) for s in self.tensor_sites(r) if s["total_bytes"] >= MIB and s["api"] != "torch.caching_allocator"}
        self.assertEqual(at, {"torch.cublas_workspace": (2, 24 * MIB)})
        self.assertEqual(self.at_line(r, 4)["live_bytes"], 10 * MIB)
        self.assertEqual(self.at_line(r, 3)["category"], "other")


class WithoutTorch(vt.Case):
    def test_nothing_changes(self):
        """A plain CUDA program: no phase, no steps; what is freed is freed at once as far as anybody can tell."""
        program = vt.compile('''
#include <cuda_runtime_api.h>
#include <unistd.h>
int main(void) { void *p; for (int i = 0; i < 3; i++) { cudaMalloc(&p, 1 << 20); cudaFree(p); } cudaMalloc(&p, 4096); cudaProfilerStart();
                 cudaProfilerStop(); _exit(0); }
extern cudaError_t cudaProfilerStart(void), cudaProfilerStop(void);
'''.replace("int main", "cudaError_t cudaProfilerStart(void), cudaProfilerStop(void);\nint main"), "-lcudart", name="phase_plain")
        self.assertEqual(self.run_program(program, VRAMTRACK_REPORT="off").returncode, 0)
        r = self.report()
        self.assertEqual(r["training"], {"steps": 0, "counted_by": "none", "phase": "none"})
        self.assertEqual({(s["phase"], s["range"]) for s in r["sites"]}, {("none", None)})
        freed = [s for s in r["sites"] if s["free_calls"]]
        self.assertEqual([list(s["fates"].values()) for s in freed], [[3, 0, 0, 0]])
        recording = torch_case.torch_exact.Recording(self.recordings()[0])
        marks = []
        for at in recording.records(8):
            event = struct.unpack_from("<QQQIIHHBBH", recording.data, at)
            if event[7] == 9:
                marks.append(recording.string(event[1]))
        self.assertEqual(marks, ["cudaProfilerStart", "cudaProfilerStop"])

"""PyTorch's tensors without PyTorch: torch_c10.cpp and torch_allocator.cpp stand in for its two libraries.

Python opens them as it opens PyTorch's (RTLD_LOCAL, by ctypes), so these are Python programs with Python stacks.
"""
import importlib.util
import os
import shutil
import sys
import unittest

import vt

MIB = 1 << 20
FORMS = {"1.6 to 1.9": 0, "1.10 to 2.0": 1, "2.1 and newer": 2, "unreleased": 3}

spec = importlib.util.spec_from_file_location("torch_exact", os.path.join(vt.ROOT, "tests", "gpu", "torch_exact.py"))
torch_exact = importlib.util.module_from_spec(spec)
spec.loader.exec_module(torch_exact)


def libraries():
    """The directory with libc10.so and libc10_cuda.so, built once."""
    c10 = vt.compile("torch_c10.cpp", "-O1", "-fvisibility=hidden", "-Wl,-soname,libc10.so", shared=True, sanitize=True)
    place = c10[:-3]
    if not os.path.exists(place + "/libc10.so"):
        vt.place(c10, place, "libc10.so")
    cuda = vt.compile("torch_allocator.cpp", "-O1", "-fvisibility=hidden", "-Wl,-soname,libc10_cuda.so", "-L" + place, "-lc10",
                      "-lcudart", "-Wl,-rpath," + place, shared=True, sanitize=True)
    vt.place(cuda, place, "libc10_cuda.so")
    return place


HEAD = '''\
import ctypes, os, sys, threading
size_t, pointer = ctypes.c_size_t, ctypes.c_void_p
c10 = ctypes.CDLL(os.environ["TORCH"] + "/libc10.so")
torch = ctypes.CDLL(os.environ["TORCH"] + "/libc10_cuda.so")
torch.torch_malloc.restype = torch.torch_raw_alloc.restype = pointer
torch.torch_allocated.restype = torch.torch_reserved.restype = torch.torch_cache_info.restype = size_t
torch.torch_set(int(os.environ.get("FORM", 2)), int(os.environ.get("BACKEND", 0)), 1)
calls = (ctypes.c_uint64 * 6).in_dll(c10, "c10_calls")
last = (ctypes.c_int64 * 5).in_dll(c10, "c10_last")
MIB = 1 << 20
def malloc(n, device=0, stream=None):
    return torch.torch_malloc(device, size_t(n), pointer(stream))
def free(p, device=0, stream=None):
    torch.torch_free(device, pointer(p), pointer(stream))
'''


class Base(vt.Case):
    """Runs Python programs with the stand-ins; its subclasses have the tests."""

    def python(self, text, status=0, **env):
        path = os.path.join(self.dir, "train.py")
        with open(path, "w") as f:
            f.write(HEAD + text)
        env = dict({"LD_LIBRARY_PATH": vt.SIM, "TORCH": libraries()}, **env)
        self.done = self.run_program([sys.executable, path], **env)
        self.assertEqual(self.done.returncode, status, self.done.stderr)
        return self.done

    def lines(self, frames):
        """Lines of the program behind the head, innermost first."""
        head = HEAD.count("\n")
        return [f["line"] - head for f in frames if f["lang"] == "python" and f["file"].endswith("train.py") and f["line"] > head]

    def tensors(self, report):
        return self.total(report, "device", level="tensor")

    def allocator(self, device=0):
        return torch_exact.Recording(self.recordings()[0]).allocators()[device]

    def assert_no_mismatch(self, device=0):
        a = self.allocator(device)
        self.assertEqual((a["mismatches"], a["worst_bytes"], a["unknown_frees"]), (0, 0, 0), a)
        return a


class Tensors(Base):
    BASICS = '''\
def layer(n):
    return malloc(n)                                        # line 2
def step():
    scratch = layer(3 * MIB)                                # line 4
    free(scratch)
other = layer(1000)                                         # line 6
first = layer(5 * MIB)
for i in range(4): step()
free(first)
print(*calls, *last[1:], torch.torch_allocated(0), torch.torch_reserved(0))
os._exit(0)
'''

    def test_every_form_of_the_reports(self):
        """Bytes, counts and lines of every tensor; the real functions get every call, with the same arguments."""
        for name, form in FORMS.items():
            with self.subTest(name):
                self.setUp()
                out = [int(w) for w in self.python(self.BASICS, FORM=form).stdout.split()]
                expected = [0] * 6
                expected[min(form, 2)] = 11
                allocated, reserved = (1024, 22 * MIB) if form else (0, 0)
                self.assertEqual(out[:6], expected)
                self.assertEqual(out[6:10], [-5 * MIB, allocated, reserved, 256])
                self.assertEqual(out[10:], [1024, 22 * MIB])
                report = self.report()
                t = self.tensors(report)
                self.assertEqual((t["live_bytes"], t["live_count"], t["peak_bytes"], t["requested_bytes"]), (1024, 1, 8 * MIB + 1024, 1024))
                self.assertEqual((t["alloc_calls"], t["free_calls"], t["failed_allocs"], t["failed_frees"]), (6, 5, 0, 0))
                self.assertEqual(self.total(report, "device")["live_bytes"], 22 * MIB)
                sites = [s for s in report["sites"] if s["level"] == "tensor"]
                self.assertEqual(sorted((self.lines(s["frames"]), s["alloc_calls"], s["live_bytes"], s["at_peak_bytes"]) for s in sites),
                                 [([2, 4, 8], 4, 0, 3 * MIB), ([2, 6], 1, 1024, 1024), ([2, 7], 1, 0, 5 * MIB)])
                self.assertEqual({s["api"] for s in sites}, {"torch.caching_allocator"})
                self.assertEqual({f["lang"] for s in sites for f in s["frames"]}, {"python"})
                a = self.assert_no_mismatch()
                self.assertEqual((a["reports"], a["base_bytes"], a["sum_bytes"], a["framework"], a["flags"]), (11, 0, 1024, 1, 0))
                self.assertEqual((a["allocated_bytes"], a["reserved_bytes"], a["reserved_peak_bytes"]),
                                 (1024, 22 * MIB, 22 * MIB) if form else (0, 0, 0))
                self.assertEqual(os.path.basename(a["name"]), "libc10_cuda.so")

    def test_stacks_by_mode(self):
        """One language is enough for a tensor, unless both are asked for; a thread without Python has the native one."""
        text = '''\
def grab():
    return malloc(1000)
kept = grab()
torch.torch_pairs_elsewhere(0, size_t(2000), 3)
os._exit(0)
'''
        expected = {"auto": ({"python"}, {"native"}), "both": ({"python", "native"}, {"native"}), "native": ({"native"}, {"native"}),
                    "python": ({"python"}, set()), "off": (set(), set())}
        for mode, (main, elsewhere) in expected.items():
            with self.subTest(mode):
                self.setUp()
                self.python(text, VRAMTRACK_STACKS=mode)
                sites = [s for s in self.report()["sites"] if s["level"] == "tensor"]
                languages = lambda calls: {f["lang"] for s in sites if s["alloc_calls"] in (calls, 4) for f in s["frames"]}
                self.assertEqual((languages(1), languages(3)), (main, elsewhere))
                self.assertEqual(sum(s["alloc_calls"] for s in sites), 4)

    def test_other_devices_and_other_types(self):
        """Each device has its books; what is not CUDA's is nobody's."""
        self.python('''\
a, b = malloc(MIB), None
torch.torch_set(2, 0, 20)
b = malloc(2 * MIB)                        # another kind of device reports through the same function
torch.torch_set(2, 0, 1)
rt = ctypes.CDLL("libcudart.so.13")
rt.cudaSetDevice(1)
c = malloc(3 * MIB, 1)
print(calls[2])
os._exit(0)
''')
        self.assertEqual(self.done.stdout, "3\n")
        report = self.report()
        live = {t["device"]: t["live_bytes"] for t in report["totals"] if t["level"] == "tensor"}
        self.assertEqual(live, {0: MIB, 1: 3 * MIB})
        self.assertEqual(self.allocator(1)["sum_bytes"], 3 * MIB)
        self.assertEqual(self.allocator(0)["reports"], 1)

    def test_what_was_not_seen_is_counted(self):
        """A lost return, a lost request, a block from before, and totals that are not what the reports add up to."""
        self.python('''\
P, Q, R = 0x700000000000, 0x700000001000, 0x700000002000
tell = lambda p, n, change: torch.torch_tell(0, pointer(p), ctypes.c_int64(n), ctypes.c_int64(change))
tell(P, 512, 4096 + 512)                   # it has 4096 bytes that nobody saw
tell(Q, -4096, -4096)                      # and gives them back: no mismatch
tell(R, 1024, 1024)
torch.torch_tell(0, None, ctypes.c_int64(0), ctypes.c_int64(-1024))   # R comes back, but the report is lost
tell(R, 2048, 2048)                        # R again: right again
tell(R, -2048, -2048)
tell(R, -2048, 0)                          # a return of what is not out, of which the totals know nothing
print(torch.torch_allocated(0))
os._exit(0)
''')
        a = self.allocator()
        self.assertEqual(self.done.stdout, "512\n")
        self.assertEqual((a["base_bytes"], a["sum_bytes"], a["allocated_bytes"]), (4096, 2**64 + 512 - 4096, 512))
        self.assertEqual((a["unknown_frees"], a["unknown_bytes"]), (2, 4096 + 2048))
        self.assertEqual((a["mismatches"], a["worst_bytes"], a["reports"]), (0, 0, 6))
        t = self.tensors(self.report())
        self.assertEqual((t["live_bytes"], t["live_count"], t["alloc_calls"], t["free_calls"]), (512, 1, 3, 1))

    def test_a_mismatch_is_not_hidden(self):
        self.python('''\
a = malloc(512)
torch.torch_lie(ctypes.c_int64(1000))
b = malloc(512)
torch.torch_lie(ctypes.c_int64(3000))
free(b)
torch.torch_lie(ctypes.c_int64(0))
b = malloc(512)
os._exit(0)
''')
        a = self.allocator()
        self.assertEqual((a["mismatches"], a["worst_bytes"], a["sum_bytes"], a["reports"]), (2, 3000, 1024, 4))

    def test_replayed_pointers(self):
        """A graph's pool is put into an earlier state: blocks are taken back and handed out again where they were."""
        self.python('''\
a, b = malloc(512), malloc(1024)
tell = lambda p, n: torch.torch_tell(0, pointer(p), ctypes.c_int64(n), ctypes.c_int64(n))
for i in range(3):
    tell(a, -512); tell(b, -1024); tell(b, 1024); tell(a, 512)
os._exit(0)
''')
        t = self.tensors(self.report())
        self.assertEqual((t["live_bytes"], t["live_count"], t["alloc_calls"], t["free_calls"]), (1536, 2, 8, 6))
        self.assert_no_mismatch()

    def test_finalize_is_seen_by_tensors_alone(self):
        """What a script held when its code ended, though nothing at all reaches the driver afterwards."""
        self.python('''\
class Tensor:
    def __init__(self, n):
        self.p = malloc(n)
    def __del__(self, free=free):
        free(self.p)
model = [Tensor(MIB), Tensor(2 * MIB)]
''')
        self.assertEqual(self.tensors(self.report())["live_bytes"], 3 * MIB)
        self.assertEqual(self.tensors(self.report(moment="end"))["live_bytes"], 0)

    def test_a_forked_child_has_no_part_in_it(self):
        """It may free what its parent made (and does, when it ends): no recording, and nothing in the parent's."""
        self.python('''\
a, b = malloc(512), malloc(1024)
if not os.fork():
    free(a)
    os._exit(0)
os.wait()
free(b)
os._exit(0)
''')
        t = self.tensors(self.report())
        self.assertEqual((t["live_bytes"], t["alloc_calls"], t["free_calls"]), (512, 2, 1))
        self.assert_no_mismatch()

    def test_threads(self):
        """Eight threads on two devices; every tensor counted, no total mistaken."""
        self.python('''\
rt = ctypes.CDLL("libcudart.so.13")
def work(device):
    rt.cudaSetDevice(device)
    kept = []
    for i in range(300):
        kept.append(malloc(512 * (1 + i % 7), device))
        if i % 3:
            free(kept.pop(i % len(kept)), device)
    torch.torch_pairs(device, size_t(4096), 2000)
threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(torch.torch_allocated(0), torch.torch_allocated(1))
os._exit(0)
''')
        allocated = [int(w) for w in self.done.stdout.split()]
        report = self.report()
        live = {t["device"]: t["live_bytes"] for t in report["totals"] if t["level"] == "tensor"}
        self.assertEqual([live[0], live[1]], allocated)
        t = self.tensors(report)
        self.assertEqual((t["alloc_calls"], t["free_calls"], t["live_count"]), (8 * 2300, 8 * 2200, 800))
        self.assert_no_mismatch(0), self.assert_no_mismatch(1)


class Refused(Base):
    """Requests that PyTorch's allocator refuses."""

    def failures(self, report):
        keys = ("kind", "api", "code", "count", "requested_bytes", "driver_visible", "allocated_bytes", "reserved_bytes")
        return [tuple(f[k] for k in keys) for f in report["failures"]]

    FRACTION = '''\
def big():
    return malloc(6 * MIB + 100)                            # line 2
torch.torch_limit(0, size_t(40 * MIB))
kept = [malloc(12 * MIB), malloc(8 * MIB)]                  # 12 + 20 MiB reserved
assert big()
assert big() is None
assert big() is None                                        # line 7: elsewhere
print(*calls, *last[1:])
'''

    def test_a_limit_of_its_own(self):
        """No CUDA call fails: who asked, for how much, and what the card had. The report names the allocator."""
        for name, form in (("1.13", 1), ("2.6", 2), ("unreleased", 3)):
            with self.subTest(name):
                self.setUp()
                self.python(self.FRACTION, FORM=form)
                asked = 6 * MIB + 512
                held = (12 + 8 + 6) * MIB + 512
                out = [int(w) for w in self.done.stdout.split()]
                self.assertEqual(out[3:6], [2 if form + 2 == i else 0 for i in (3, 4, 5)])
                self.assertEqual(out[6:], [asked, held, 32 * MIB, 256])
                report = self.report()
                self.assertEqual(self.failures(report), [
                    ("framework_oom", "torch.caching_allocator", 0, 1, asked, False, held, 32 * MIB)] * 2)
                self.assertEqual([self.lines(f["frames"]) for f in report["failures"]], [[2, 6], [2, 7]])
                free, total = [(f["free_bytes"], f["total_bytes"]) for f in report["failures"]][0]
                self.assertEqual(total, next(d["total_bytes"] for d in report["devices"] if d["index"] == 0))
                self.assertTrue(0 < free < total - 32 * MIB, free)
                names = [m["name"] for m in report["moments"]]
                self.assertEqual([n for n in names if n.startswith("oom")], ["oom-1", "oom-2"])
                self.assertEqual(self.tensors(self.report(moment="oom-1"))["live_bytes"], held)
                self.assertEqual(self.tensors(report)["failed_allocs"], 2)
                self.assertEqual(self.total(report, "device")["failed_allocs"], 0)
                self.assertEqual(self.allocator()["ooms"], 2)
                self.assertEqual(self.done.stderr.count("PyTorch's allocator could not get 6.00 MiB"), 1, self.done.stderr)

    FULL = '''\
sim = ctypes.CDLL("libcuda.so.1")
warm = malloc(1000)
sim.sim_set_free(0, ctypes.c_ulonglong(64 * MIB))
def big(n):
    return malloc(n)                                        # line 5
'''

    def test_a_driver_that_refuses_is_part_of_it(self):
        """cudaMalloc fails twice (before and after the cache is given back): one failure, PyTorch's, with its request."""
        self.python(self.FULL + '''\
cached = [big(20 * MIB), big(20 * MIB)]
[free(p) for p in cached]
assert big(100 * MIB + 1) is None                           # line 8
sim.sim_calls.restype = ctypes.c_ulonglong
print(sim.sim_calls(b"cuMemAlloc_v2"), torch.torch_reserved(0))
''')
        self.assertEqual(self.done.stdout, "%d %d\n" % (1 + 2 + 2, 2 * MIB))
        report = self.report()
        self.assertEqual(self.failures(report), [
            ("framework_oom", "torch.caching_allocator", 2, 1, 100 * MIB + 512, True, 1024, 2 * MIB)])
        failure, = report["failures"]
        self.assertEqual(self.lines(failure["frames"])[0], 5)
        self.assertEqual(failure["free_bytes"], 64 * MIB)
        self.assertEqual([m["name"] for m in report["moments"] if m["name"].startswith("oom")], ["oom-1"])

    def test_a_retry_that_succeeds_is_a_retry(self):
        self.python(self.FULL + '''\
cached = [big(20 * MIB), big(20 * MIB)]
[free(p) for p in cached]
assert big(50 * MIB)
os._exit(0)
''')
        report = self.report()
        self.assertEqual([(f["kind"], f["count"], f["driver_visible"]) for f in report["failures"]], [("retry", 1, True)])
        self.assertEqual([m["name"] for m in report["moments"] if m["name"].startswith("oom")], [])
        self.assertNotIn("out of memory", self.done.stderr)

    def test_both_kinds_by_turns(self):
        """A retry, an out-of-memory, and a retry again, which must not be added to what the framework refused."""
        self.python(self.FULL + '''\
for round in range(2):
    cached = [big(20 * MIB), big(20 * MIB)]
    [free(p) for p in cached]
    kept = big(50 * MIB)
    free(kept)
    assert big(200 * MIB) is None
os._exit(0)
''')
        self.assertEqual([(f["kind"], f["count"]) for f in self.report()["failures"]], [("retry", 2), ("framework_oom", 2)])

    def test_the_report_waits_for_a_better_place(self):
        """Not under the allocator's lock: it comes with the exit, and whatever the exit's own report says."""
        self.python(self.FRACTION + '''\
sys.stderr.write("still running\\n")
''', VRAMTRACK_REPORT="oom")
        running, said = self.done.stderr.index("still running"), self.done.stderr.index("could not get")
        self.assertLess(running, said)

    def test_a_program_that_goes_on_gets_its_report(self):
        """Two seconds later at the latest that CUDA is asked for memory; at once where an engine that runs backward is entered."""
        self.python(self.FRACTION + '''\
import time
rt = ctypes.CDLL("libcudart.so.13")
p = pointer()
rt.cudaMalloc(ctypes.byref(p), size_t(MIB))
sys.stderr.write("too early\\n")
time.sleep(2.1)                                             # longer than the patience of failure.c
rt.cudaMalloc(ctypes.byref(p), size_t(MIB))
sys.stderr.write("still running\\n")
''', VRAMTRACK_REPORT="oom")
        places = [self.done.stderr.index(text) for text in ("too early", "could not get", "still running")]
        self.assertEqual(places, sorted(places))

    def test_no_cuda_call_inside(self):
        """The driver is asked nothing by what happens in the reports."""
        text = self.FULL + '''\
sim.sim_calls.restype = ctypes.c_ulonglong
names = (b"cuMemAlloc_v2", b"cuMemFree_v2", b"cuMemGetInfo_v2", b"cuCtxGetCurrent", b"cuCtxGetDevice", b"cuPointerGetAttribute")
torch.torch_limit(0, size_t(60 * MIB))
before = [sim.sim_calls(n) for n in names]
torch.torch_pairs(0, size_t(1000), 10)
torch.torch_refuse(0, size_t(100 * MIB))
print(calls[4], *[sim.sim_calls(n) - b for n, b in zip(names, before)])
os._exit(0)
'''
        self.assertEqual(self.python(text).stdout, "1 0 0 0 0 0 0\n")
        self.assertEqual([(f["kind"], f["total_bytes"]) for f in self.report()["failures"]], [("framework_oom", None)])


class Backends(Base):
    """Allocators that cache nothing."""

    ASYNC = '''\
rt = ctypes.CDLL("libcudart.so.13")
stream = pointer()
rt.cudaStreamCreate(ctypes.byref(stream))
def grab(n):
    return malloc(n, 0, stream.value)                       # line 5
kept = [grab(1001), grab(2 * MIB + 3)]                      # line 6
free(kept.pop(0), 0, stream.value)
other = grab(777)
rt.cudaFree(pointer(other))                                 # by other means
p = pointer()
rt.cudaMallocAsync(ctypes.byref(p), size_t(5 * MIB), stream)   # not PyTorch's: no tensor
print(*calls)
'''

    def test_stream_ordered(self):
        """Each tensor is the driver's allocation, of the size that was asked for."""
        self.python(self.ASYNC + "os._exit(0)\n", BACKEND=1)
        self.assertEqual(self.done.stdout, "0 0 0 0 0 0\n")
        report = self.report()
        t = self.tensors(report)
        self.assertEqual((t["live_bytes"], t["live_count"], t["alloc_calls"], t["free_calls"]), (2 * MIB + 3, 1, 3, 2))
        self.assertEqual(t["peak_bytes"], 2 * MIB + 3 + 1001)
        self.assertEqual(self.total(report, "async")["live_bytes"], 7 * MIB + 3)
        site, = [s for s in report["sites"] if s["level"] == "tensor" and s["live_bytes"]]
        self.assertEqual((site["api"], self.lines(site["frames"])), ("torch.async_allocator", [5, 6]))
        a = self.allocator()
        self.assertEqual((a["flags"], a["sum_bytes"], a["reports"], a["mismatches"]), (1, 2 * MIB + 3, 0, 0))
        self.assertEqual(os.path.basename(a["name"]), "libc10_cuda.so")

    def test_probes_are_no_tensors(self):
        """How large a workspace may be is found out by asking for everything: the driver's books have it, the tensors not."""
        self.python(self.ASYNC + '''\
sim = ctypes.CDLL("libcuda.so.1")
sim.sim_fail_next(b"cuMemAllocAsync", ctypes.c_ulonglong(0), 2)
size = torch.torch_cache_info(0, stream)
total, left = size_t(), size_t()
torch.torch_mem_get_info(ctypes.byref(left), ctypes.byref(total))
again = grab(4 * MIB)
print(size)
os._exit(0)
''', BACKEND=1)
        size = int(self.done.stdout.split()[-1])
        self.assertGreater(size, 1 << 30)
        report = self.report()
        t = self.tensors(report)
        self.assertEqual((t["live_bytes"], t["peak_bytes"], t["alloc_calls"]), (6 * MIB + 3, 6 * MIB + 3, 4))
        self.assertEqual(report["failures"], [])
        self.assertGreater(self.total(report, "async")["peak_bytes"], size)

    def test_what_is_refused_is_not_tried_again(self):
        """A backend without a cache has nothing to give back: the driver's word is PyTorch's, whatever succeeds afterwards."""
        text = '''\
def grab(n):
    return malloc(n)
first = grab(MIB)
assert grab((1 << 40) + 3) is None
second = grab(2 * MIB)
os._exit(0)
'''
        for api, env in (("torch.async_allocator", {"BACKEND": 1}), ("torch.uncached_allocator", {"PYTORCH_NO_CUDA_MEMORY_CACHING": 1})):
            with self.subTest(api):
                self.setUp()
                self.python(text, **env)
                report = self.report()
                failure, = report["failures"]
                self.assertEqual((failure["kind"], failure["api"], failure["code"], failure["count"], failure["driver_visible"]),
                                 ("framework_oom", api, 2, 1, True))
                self.assertEqual((failure["requested_bytes"], failure["allocated_bytes"]), ((1 << 40) + 3, MIB))
                self.assertEqual(self.lines(failure["frames"]), [2, 4])
                self.assertGreater(failure["free_bytes"], 1 << 30)
                self.assertEqual(self.tensors(report)["failed_allocs"], 1)
                self.assertEqual(self.allocator()["ooms"], 1)

    def test_a_refused_free_leaves_the_tensor(self):
        self.python(self.ASYNC + '''\
sim = ctypes.CDLL("libcuda.so.1")
sim.sim_fail_next(b"cuMemFreeAsync", ctypes.c_ulonglong(0), 1)
free(kept[0], 0, stream.value)
os._exit(0)
''', BACKEND=1)
        t = self.tensors(self.report())
        self.assertEqual((t["live_bytes"], t["live_count"], t["free_calls"]), (2 * MIB + 3, 1, 2))
        self.assertEqual(self.allocator()["sum_bytes"], 2 * MIB + 3)

    def test_a_captured_tensor(self):
        """Memory of a graph that is being captured: the tensor ends with its captured free, the memory with the graph."""
        self.python('''\
rt = ctypes.CDLL("libcudart.so.13")
cu = ctypes.CDLL("libcuda.so.1")
stream, graph = pointer(), pointer()
rt.cudaFree(None)
rt.cudaStreamCreate(ctypes.byref(stream))
cu.cuStreamBeginCapture_v2(stream, 2)
a, b = malloc(3 * MIB, 0, stream.value), malloc(MIB, 0, stream.value)
free(a, 0, stream.value)
cu.cuStreamEndCapture(stream, ctypes.byref(graph))
os._exit(0)
''', BACKEND=1)
        report = self.report()
        t = self.tensors(report)
        self.assertEqual((t["live_bytes"], t["live_count"], t["free_calls"]), (MIB, 1, 1))
        self.assertEqual(self.total(report, "graph")["live_bytes"], 4 * MIB)

    def test_a_reset_takes_them(self):
        self.python(self.ASYNC.replace("malloc(n, 0, stream.value)", "malloc(n)").replace(", 0, stream.value)", ")") + '''\
rt.cudaDeviceReset()
os._exit(0)
''', PYTORCH_NO_CUDA_MEMORY_CACHING=1)
        t = self.tensors(self.report())
        self.assertEqual((t["live_bytes"], t["live_count"], t["alloc_calls"], t["free_calls"]), (0, 0, 3, 2))
        self.assertEqual(self.allocator()["sum_bytes"], 0)

    def test_without_a_cache(self):
        """Each tensor is a cudaMalloc; PyTorch's own parts go through the cache all the same."""
        self.python('''\
def grab(n):
    return malloc(n)                                        # line 2
a, b = grab(1001), grab(2 * MIB)
free(a)
torch.torch_raw_alloc.argtypes = [ctypes.c_int, size_t]
raw = torch.torch_raw_alloc(0, 3000)
print(*calls)
torch.torch_raw_delete(0, pointer(raw))
torch.torch_empty_cache(0)
os._exit(0)
''', PYTORCH_NO_CUDA_MEMORY_CACHING=1)
        report = self.report()
        t = self.tensors(report)
        self.assertEqual((t["live_bytes"], t["live_count"]), (2 * MIB, 1))
        site, = [s for s in report["sites"] if s["level"] == "tensor" and s["live_bytes"]]
        self.assertEqual((site["api"], self.lines(site["frames"])[0]), ("torch.uncached_allocator", 2))
        self.assertEqual(self.allocator()["flags"], 2)
        self.assertEqual(self.total(report, "device")["live_bytes"], 2 * MIB)


class Names(vt.Case):
    """The exports are nobody's business but PyTorch's."""

    PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
static const char *const names[] = {"_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE",
    "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE", "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
    "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE", "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
    "_ZN3c1027reportOutOfMemoryToProfilerEmmmNS_6DeviceE"};
static void look(const char *when, void *handle)
{
    for (int i = 0; i < 6; i++) {
        Dl_info info;
        dlerror();
        void *p = dlsym(handle, names[i]);
        const char *error = dlerror(), *slash;
        if (p && dladdr(p, &info))
            printf("%s %d %s\n", when, i, (slash = strrchr(info.dli_fname, '/')) ? slash + 1 : info.dli_fname);
        else
            printf("%s %d none %d\n", when, i, error != NULL);
    }
}
int main(int argc, char **argv)
{
    look("before", RTLD_DEFAULT);
    look("program", dlopen(NULL, RTLD_NOW));
    void *local = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!local) return puts(dlerror()), 1;
    look("local", RTLD_DEFAULT);
    look("handle", local);
    dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    look("global", RTLD_DEFAULT);
    return 0;
}
"""

    @unittest.skipIf(vt.SAN == "tsan", "a library with TSan in it can't be opened by a program without")
    def test_a_program_without_pytorch_does_not_find_them(self):
        program, place = vt.compile(self.PROGRAM, name="names"), libraries()
        command = [program, place + "/libc10.so"]
        bare = self.run_program(command, preload=[vt.SAN_PRELOAD] if vt.SAN else False).stdout.splitlines()
        under = self.run_program(command).stdout.splitlines()
        self.assertEqual(under[:24], bare[:24])  # the pointers, and whether there is an error to ask for
        self.assertEqual(bare[0], "before 0 none 1")
        self.assertEqual(bare[18], "handle 0 libc10.so")
        # What is in the global scope is found where symbols are bound: at the first definition, which is ours.
        self.assertEqual(bare[24:], ["global %d libc10.so" % i for i in range(6)])
        self.assertEqual(under[24:], ["global %d libvramtrack.so" % i for i in range(6)])
        self.assertEqual(self.recordings(), [])

    CALLER = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *, int64_t, uint64_t, uint64_t, uint16_t) __attribute__((weak));
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        void *h = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        uint64_t *calls = dlsym(h, "c10_calls");
        _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((void *)4096, 512, 512 * i, 512, 1);
        printf("%lu ", calls[2]);
        if (dlclose(h)) return 1;
    }
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((void *)4096, 512, 512, 512, 1);
    puts("none");
    return 0;
}
"""

    def test_a_reloaded_library_is_found_again_and_none_is_no_harm(self):
        place = libraries()
        second = os.path.join(self.dir, "other")
        os.mkdir(second)
        shutil.copy(place + "/libc10.so", second)
        program = vt.compile(self.CALLER, name="reload")
        done = self.run_program([program, place + "/libc10.so", second + "/libc10.so", place + "/libc10.so"])
        self.assertEqual((done.returncode, done.stdout), (0, "1 1 1 none\n"), done.stderr)


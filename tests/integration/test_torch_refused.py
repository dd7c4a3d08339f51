"""Requests that PyTorch's allocator refuses, by a limit of its own or because the driver does, and reports of them."""
import torch_case

MIB = 1 << 20


class Refused(torch_case.Base):
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

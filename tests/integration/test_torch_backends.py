"""PyTorch's allocators that cache nothing: each tensor is an allocation of the driver's."""
import os

import torch_case

MIB = 1 << 20


class Backends(torch_case.Base):
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

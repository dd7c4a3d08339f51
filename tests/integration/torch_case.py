"""PyTorch's tensors without PyTorch: torch_c10.cpp and torch_allocator.cpp stand in for its two libraries.

Python opens them as it opens PyTorch's (RTLD_LOCAL, by ctypes), so the tests' programs are Python programs with Python stacks.
"""
import importlib.util
import os
import sys

import vt

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

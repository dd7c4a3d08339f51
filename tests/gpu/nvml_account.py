#!/usr/bin/env python3
"""The account of a real card against what CUDA and NVML say: the context's size, other processes, and that it adds up.

    tests/gpu/nvml_account.py [--build DIR] [--keep DIR]

Needs a GPU and nothing but Python: libcuda and libnvidia-ml are called through ctypes. This process makes a context of its
own and holds memory, so it is the other process for the ones that it starts; before and after their context it asks
cuMemGetInfo. Prints what it measures, then one PASS, FAIL or SKIP line per test.
"""
import argparse
import ctypes
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
OTHER_BYTES, OWN_BYTES = 768 * MIB, 512 * MIB


class MemoryV2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [(n, ctypes.c_ulonglong) for n in ("total", "reserved", "free", "used")]


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]


class Cuda:
    """The driver API, as far as it is needed here; device 0."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)

    def call(self, name, *arguments):
        code = getattr(self.lib, name)(*arguments)
        if code:
            raise RuntimeError("%s: %d" % (name, code))

    def make_context(self):
        context = ctypes.c_void_p()
        began = time.perf_counter()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        took = time.perf_counter() - began
        self.call("cuCtxSetCurrent", context)
        return took

    def hold(self, size):
        p = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(p), ctypes.c_size_t(size))

    def info(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def uuid(self):
        b = (ctypes.c_ubyte * 16)()
        self.call("cuDeviceGetUuid_v2", b, self.device)
        h = bytes(b).hex()
        return "-".join((h[:8], h[8:12], h[12:16], h[16:20], h[20:]))


class Nvml:
    def __init__(self, uuid):
        """Opens NVML; .ms says how long each step took."""
        self.ms, self.words = {}, ""
        self.lib = self.timed("dlopen", lambda: ctypes.CDLL("libnvidia-ml.so.1"))
        if self.timed("nvmlInit_v2", self.lib.nvmlInit_v2):
            raise OSError("nvmlInit_v2 failed")
        self.handle = ctypes.c_void_p()
        if self.timed("handle", lambda: self.lib.nvmlDeviceGetHandleByUUID(("GPU-" + uuid).encode(), ctypes.byref(self.handle))):
            if self.lib.nvmlDeviceGetHandleByUUID(("MIG-" + uuid).encode(), ctypes.byref(self.handle)):
                raise OSError("NVML does not know the device")

    def timed(self, what, function):
        began = time.perf_counter()
        result = function()
        self.ms[what] = 1000 * (time.perf_counter() - began)
        return result

    def memory(self):
        m = MemoryV2(version=ctypes.sizeof(MemoryV2) | 2 << 24)
        code = self.timed("memory", lambda: self.lib.nvmlDeviceGetMemoryInfo_v2(self.handle, ctypes.byref(m)))
        return None if code else m

    def processes(self):
        """{pid: bytes}, or None where NVML does not say."""
        for name in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"):
            function = getattr(self.lib, name, None)
            count, entries = ctypes.c_uint(256), (Process * 512)()
            if function and self.timed("processes", lambda: function(self.handle, ctypes.byref(count), entries)) == 0:
                return {entries[i].pid: entries[i].bytes for i in range(count.value)}
        return None


def child():
    """Run by main(): makes a context and holds memory, a line on each side between the steps."""
    def step(**facts):
        print(json.dumps(facts), flush=True)
        sys.stdin.readline()

    cuda = Cuda()
    step(pid=os.getpid())
    took = cuda.make_context()
    step(context_ms=1000 * took)
    cuda.hold(OWN_BYTES)
    step(held=OWN_BYTES)
    return 7


def init_cost():
    """Run by main(): what NVML costs a process that has CUDA already."""
    cuda = Cuda()
    nvml = Nvml(cuda.uuid())
    nvml.memory()
    nvml.processes()
    print(json.dumps(nvml.ms))


def say(word, what, detail=""):
    print("%s nvml_account/%s%s" % (word, what, " (%s)" % detail if detail else ""), flush=True)
    if word == "FAIL":
        say.failed += 1


say.failed = 0


def check(what, good, detail=""):
    say("PASS" if good else "FAIL", what, detail)


def play(directory, cuda, nvml, library=None, **env):
    """Runs the child; what was free around its steps, and what NVML said while it held its memory."""
    environment = dict(os.environ, VRAMTRACK_DIR=directory, VRAMTRACK_REPORT="off", **env)
    if library:
        environment["LD_PRELOAD"] = library
    process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--child"], env=environment, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    facts = {}

    def go_on():
        line = process.stdout.readline()
        facts.update(json.loads(line) if line else {})

    go_on()
    before = cuda.info()[0]
    process.stdin.write("\n"), process.stdin.flush()
    go_on()
    facts["context"] = before - cuda.info()[0]
    process.stdin.write("\n"), process.stdin.flush()
    go_on()
    facts["free"], facts["total"] = cuda.info()
    facts["processes"], facts["memory"] = (nvml.processes(), nvml.memory()) if nvml else (None, None)
    process.stdin.write("\n"), process.stdin.close()
    facts["rest"], facts["status"] = process.stdout.read(), process.wait()
    return facts


def sum_of(device):
    a = device["account"]
    parts = [v for v in a.values() if isinstance(v, int)] + [v for v in (a["tensors"] or {}).values() if v]
    return sum(parts) + sum(x["bytes"] for x in a["libraries"] + a["other_processes"])


def mib(n):
    return "unknown" if n is None else "%.1f MiB" % (n / MIB)


def compare(facts, report):
    device, own, other = report["devices"][0], facts["pid"], os.getpid()
    a = device["account"]
    print("report: context_and_code %s, other processes %s, reserved by the driver %s (of the card's %s), unaccounted %s, free %s" %
          (mib(a["context_and_code"]), [(p["pid"], p["name"], mib(p["bytes"])) for p in a["other_processes"]],
           mib(device["driver_reserved_bytes"]), mib(device["card_bytes"]), mib(a["unaccounted"]), mib(a["free"])))
    print("report: nvml %s, total %s; CUDA: total %s" % (report["process"]["nvml"], mib(device["total_bytes"]), mib(facts["total"])))
    check("adds_up", sum_of(device) == device["total_bytes"] == facts["total"], "%d of %d" % (sum_of(device), device["total_bytes"]))
    context, measured = a["context_and_code"], facts["context"]
    check("context", context is not None and abs(context - measured) <= max(32 * MIB, measured // 20),
          "report %s, cuMemGetInfo %s" % (mib(context), mib(measured)))
    check("free", a["free"] is not None and abs(a["free"] - facts["free"]) <= 64 * MIB, "report %s, cuMemGetInfo %s" % (mib(a["free"]), mib(facts["free"])))
    memory, listed = facts["memory"], facts["processes"]
    if memory:
        print("NVML: total %s, reserved %s, used %s, free %s; CUDA offers %s less than the card has" %
              (mib(memory.total), mib(memory.reserved), mib(memory.used), mib(memory.free), mib(memory.total - facts["total"])))
        check("card", (device["card_bytes"], device["driver_reserved_bytes"]) == (memory.total, memory.reserved))
    else:
        say("SKIP", "card", "NVML has no memory info here")
    if listed is None or other not in listed or own not in listed:
        say("SKIP", "others", "NVML lists %s; this process is %d, the child %d" % (listed, other, own))
        return
    print("NVML: own pid %s, this process %s" % (mib(listed[own]), mib(listed[other])))
    found = [p for p in a["other_processes"] if p["pid"] == other]
    check("others", len(found) == 1 and found[0]["name"] and abs(found[0]["bytes"] - listed[other]) <= 32 * MIB, str(found))
    check("unaccounted", a["unaccounted"] <= 256 * MIB, mib(a["unaccounted"]))


def main(options):
    build = os.path.abspath(options.build)
    directory = options.keep or tempfile.mkdtemp(prefix="vt-gpu-")
    os.makedirs(directory, exist_ok=True)
    cost = subprocess.run([sys.executable, os.path.abspath(__file__), "--init-cost"], stdout=subprocess.PIPE, text=True)
    print("NVML in a process with CUDA: %s" % ", ".join("%s %.2f ms" % kv for kv in (json.loads(cost.stdout) if cost.returncode == 0 else {}).items()))
    cuda = Cuda()
    cuda.make_context()
    cuda.hold(OTHER_BYTES)
    try:
        nvml = Nvml(cuda.uuid())
    except OSError as e:
        print("NVML: %s" % e)
        nvml = None
    library = os.path.join(build, "libvramtrack.so")
    bare = [play(directory, cuda, nvml) for _ in range(3)][-1]
    off = min(play(directory, cuda, nvml, library, VRAMTRACK_NVML="0")["context_ms"] for _ in range(3))
    for path in glob.glob(os.path.join(directory, "*.vtr")):
        os.unlink(path)
    runs = [play(directory, cuda, nvml, library) for _ in range(3)]
    print("context: %.0f ms without the library, %.0f ms with it and VRAMTRACK_NVML=0, %.0f ms with it" %
          (bare["context_ms"], off, min(r["context_ms"] for r in runs)))
    print("cuMemGetInfo around the context: %s; without the library %s" % (mib(runs[-1]["context"]), mib(bare["context"])))
    check("same_program", (bare["status"], bare["rest"]) == (runs[-1]["status"], runs[-1]["rest"]) == (7, ""))
    path = max(glob.glob(os.path.join(directory, "*.vtr")), key=os.path.getmtime)
    done = subprocess.run([os.path.join(build, "vramtrack"), "report", "--json", path], stdout=subprocess.PIPE, text=True, check=True)
    compare(runs[-1], json.loads(done.stdout))
    if not options.keep:
        shutil.rmtree(directory, True)
    return 1 if say.failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--keep", help="leave the recordings here")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--init-cost", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.init_cost:
        sys.exit(init_cost())
    sys.exit(child() if options.child else main(options))

"""What the tests of phases and categories share: PyTorch's stand-ins, and a Python package in whose files training programs
find functions of the names that PyTorch's have (category_code.c knows these by name and place)."""
import hashlib
import os

import torch_case
import vt

HEAD = torch_case.HEAD + '''\
cpu = ctypes.CDLL(os.environ["TORCH"] + "/libtorch_python.so")
cpu.torch_scope_begin.restype = pointer
vram = ctypes.CDLL(None)
WORK = ctypes.CFUNCTYPE(None, pointer)
class scope:
    def __init__(self, name): self.name = name.encode()
    def __enter__(self): self.of = cpu.torch_scope_begin(self.name)
    def __exit__(self, *_): cpu.torch_scope_end(pointer(self.of))
def backward(work, threaded=1):
    return cpu.torch_backward(WORK(lambda _: work()), None, threaded)
def optimizer(name="AdamW"): return scope("Optimizer.step#%s.step" % name)
def zero_grad(name="AdamW"): return scope("Optimizer.zero_grad#%s.zero_grad" % name)
def loader(): return scope("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
def moment(name): vram.vramtrack_moment(name.encode())
def finish():
    sys.stdout.flush()
    os._exit(0)
free(malloc(512)) # CUDA is initialised: PyTorch's scopes are heard from here on
'''

MODULE = '''\
class Module:
    def __call__(self, *a):
        return self._wrapped_call_impl(*a)
    def _wrapped_call_impl(self, *a):
        return self._call_impl(*a)
    def _call_impl(self, *a):
        return self.forward(*a)
    def to(self, make):
        return self._apply(make)
    def _apply(self, make):
        return make()
'''
GRAPH = '''\
def _engine_run_backward(run, work, threaded):
    return run(work, threaded)
'''
OPTIMIZER = '''\
class Optimizer:
    def step(self, work, state):
        made = state()
        self._init_group(made)
        work()
    def _init_group(self, made):
        for make in made:
            make()
'''
PACKAGE = {"torch/nn/modules/module.py": MODULE, "torch/autograd/graph.py": GRAPH, "torch/optim/adamw.py": OPTIMIZER}


def libraries():
    """The directory with all of PyTorch's stand-ins."""
    place = torch_case.libraries()
    parts = hashlib.sha1(open(os.path.join(vt.HERE, "torch_parts.h"), "rb").read()).hexdigest()  # so that it is rebuilt with it
    for source, soname, needs in (("torch_cpu.cpp", "libtorch_cpu.so", []), ("torch_python.cpp", "libtorch_python.so", ["-ltorch_cpu"]),
                                  ("torch_cuda.cpp", "libtorch_cuda.so", ["-lc10_cuda"])):
        built = vt.compile(source, "-DPARTS_" + parts, "-O1", "-fvisibility=hidden", "-Wl,-soname," + soname, "-L" + place, *needs, "-Wl,-rpath," + place,
                           shared=True, sanitize=True)
        vt.place(built, place, soname)
    return place


class Base(vt.Case):
    """Runs Python programs with the stand-ins; its subclasses have the tests."""

    def python(self, text, status=0, package=True, head=HEAD, **env):
        for file, source in PACKAGE.items() if package else ():
            path = os.path.join(self.dir, file)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(source)
        path = os.path.join(self.dir, "train.py")
        with open(path, "w") as f:
            f.write(head + text)
        self.head_lines = head.count("\n")
        env = dict({"LD_LIBRARY_PATH": vt.SIM, "TORCH": libraries(), "VRAMTRACK_REPORT": "off"}, **env)
        self.done = self.run_program(["python3", path], **env)
        self.assertEqual(self.done.returncode, status, self.done.stderr)
        return self.done

    def tensor_sites(self, report):
        return [s for s in report["sites"] if s["level"] == "tensor"]

    def at_line(self, report, line):
        """The tensor sites whose innermost frame in the program is this line (behind the head), as one: phase, range and category
        must be the same, counts and bytes are added up."""
        found = []
        for s in self.tensor_sites(report):
            lines = [f["line"] - self.head_lines for f in s["frames"] if f["lang"] == "python" and (f["file"] or "").endswith("train.py")]
            lines = [n for n in lines if n > 0]
            if lines and lines[0] == line:
                found.append(s)
        self.assertEqual(len({(s["phase"], s["range"], s["category"]) for s in found}), 1,
                         "line %d: %s" % (line, [(s["phase"], s["range"], s["category"]) for s in found]))
        one = dict(found[0])
        for s in found[1:]:
            for key in "live_bytes", "alloc_calls", "free_calls":
                one[key] += s[key]
            one["fates"] = {k: one["fates"][k] + s["fates"][k] for k in one["fates"]}
        return one

    def fates(self, site):
        f = site["fates"]
        return f["stretch"], f["backward"], f["step"], f["later"]

    def categories(self, report):
        out = {}
        for s in self.tensor_sites(report):
            for category, size in s["category_bytes"].items():
                out[category] = out.get(category, 0) + size
        return out

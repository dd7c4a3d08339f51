"""Native code that calls back into Python, at any depth: which Python frames does a report show between which native ones?

    nested.py NEST FILE           the program, under the recorder: allocates at the end of random chains of calls and writes
                                  to FILE what the stacks were; NEST is the library of nest.c
    nested.py check FILE REPORT   compares that with the merged stacks of a JSON report

The ways from one function to the next: a plain call, builtins that call back (their C code is the interpreter's own), generators,
classes, objects that die, and C functions of a library. Written for Python 3.8 and later.
"""
import ctypes
import functools
import json
import random
import sys

CHAINS, DEEPEST_NATIVE = 150, 4
active = []  # native calls now: (how many Python frames are outside, name)


def check(expected, report):
    expected, report = (json.load(open(name)) for name in (expected, report))
    stacks, wrong = {}, []
    for site in report["sites"]:
        names = [f["function"].rsplit(".", 1)[-1] for f in site["frames"] if f["function"] and (
            f["file"] == expected["file"] if f["lang"] == "python" else f["function"].startswith("nest_"))]
        stacks[site["total_bytes"]] = names
    for size, names in expected["stacks"]:
        if stacks.get(size) != names:
            wrong.append("%s for %s" % (stacks.get(size), names))
    natives = sum(n.startswith("nest_") for _, names in expected["stacks"] for n in names)
    print("%s nested: %d stacks with %d native functions among their %d Python frames, %d not as they were%s" % (
        "NO" if wrong or not natives else "OK", len(expected["stacks"]), natives,
        sum(len(names) for _, names in expected["stacks"]) - natives, len(wrong), ": " + "; ".join(wrong[:3]) if wrong else ""))
    return bool(wrong)


def frames():
    """The Python frames outside the caller, outermost first; only those of this file."""
    out, f = [], sys._getframe(1)
    while f:
        if f.f_code.co_filename == __file__:
            out.append(f.f_code.co_name)
        f = f.f_back
    return out[::-1]


def native(function, target):
    """Calls a C function that calls `target` back. Frames: this one, the callback's, the target's."""
    @ctypes.CFUNCTYPE(ctypes.c_int)
    def called_back():
        target()
        return 0
    active.append((len(frames()), function.__name__))
    try:
        function(called_back)
    finally:
        active.pop()


class Dies:
    def __init__(self, target):
        self.target = target

    def __del__(self):
        self.target()


class Calls(Dies):
    def __init__(self, target):
        target()

    def __del__(self):
        pass


def generator(target):
    yield target()


def delegating(target):
    yield from generator(target)


def plain(target):
    target()


def sorting(target):
    sorted([1], key=lambda _: target() or 0)


def mapping(target):
    list(map(lambda _: target(), [1]))


def reducing(target):
    functools.reduce(lambda a, b: target(), [1, 2])


def partial(target):
    functools.partial(plain, target)()


def looping(target):
    for _ in delegating(target):
        pass


def taking(target):
    next(generator(target))


def dying(target):
    """Its local dies while it returns: it is no frame any more, and since 3.12 its evaluation still runs."""
    local = Dies(target)
    return bool(local)


def dropping(target):
    local = Dies(target)
    del local


def constructing(target):
    Calls(target)


def executing(target):
    exec("target()", {"target": target})


WAYS = [plain, sorting, mapping, reducing, partial, looping, taking, dying, dropping, constructing, executing]


def main(library, out):
    nest, runtime = ctypes.CDLL(library), ctypes.CDLL("libcudart.so.13")
    natives = [getattr(nest, "nest_%d" % i) for i in range(5)]
    ctypes.c_void_p.in_dll(nest, "nest_malloc").value = ctypes.cast(runtime.cudaMalloc, ctypes.c_void_p).value
    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype, new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    stacks, r = [], random.Random(4711)

    def remember(chain, *innermost):
        """The size that is to be allocated with these Python frames; 0: the same stack again, which may be the same place."""
        names, size = [], 4096 * (len(stacks) + 1)
        for i in range(len(chain) + 1):
            names += [name for depth, name in active if depth == i] + chain[i:i + 1]
        names = [*innermost, *names[::-1]]
        if any(known == names for _, known in stacks):
            return 0
        stacks.append((size, names))
        return size

    def allocate():
        size = remember(frames())
        if size:
            runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(size))

    def dropped():
        """Allocates in the destructor of its local, when it is no frame any more."""
        size = remember(frames()[:-1], "nest_drop")
        if size:
            ctypes.c_size_t.in_dll(nest, "nest_bytes").value = size
            capsule = new_capsule(1, None, ctypes.cast(nest.nest_drop, ctypes.c_void_p))
            return bool(capsule)

    def through(way, *args):
        def bound():
            return way(*args)
        return bound if r.random() < 0.5 else functools.partial(way, *args)  # one evaluation more, or not

    for _ in range(CHAINS):
        target, deep = through(r.choice([allocate, allocate, dropped])), 0
        for _ in range(r.randint(2, 9)):
            if deep < DEEPEST_NATIVE and r.random() < 0.35:
                target = through(native, r.choice(natives), target)
                deep += 1
            else:
                target = through(r.choice(WAYS), target)
        target()
    with open(out, "w") as f:
        json.dump({"file": __file__, "stacks": stacks}, f)


if __name__ == "__main__":
    sys.exit(check(*sys.argv[2:]) if sys.argv[1] == "check" else main(*sys.argv[1:]))

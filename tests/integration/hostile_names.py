"""Recordings with names that nobody may trust: of files and functions that break a format or a page if they are not escaped, and
of bytes that are no UTF-8. Programs of torch_case.py.
"""
BROKEN = b"BROKENNAME", b"BROK\xff\xfeNAME"  # in the recording: the second, which is no UTF-8

PROGRAM = '''\
import random
cudart = ctypes.CDLL("libcudart.so.13")
def grab(n):
    p = pointer()
    if cudart.cudaMalloc(ctypes.byref(p), size_t(n)): raise MemoryError
    return p
source = "def BROKENNAME(n): return malloc(n)\\ndef inner(n): return BROKENNAME(n)\\n"
code = {}
exec(compile(source, %r, "exec"), {"malloc": malloc}, code)
code["BROKENNAME"].__globals__.update(code)
f = code["inner"].__code__
code["inner"].__code__ = f.replace(co_name=%r, **({"co_qualname": %r} if sys.version_info >= (3, 11) else {}))
keep = [code["inner"](3 * MIB), code["inner"](1000)]
own = grab(7 * MIB)
pinned = pointer()
cudart.cudaMallocHost(ctypes.byref(pinned), size_t(64 * 1024))
rng, live = random.Random(1), []
def work():
    for i in range(400):
        if live and rng.random() < 0.45:
            free(live.pop(rng.randrange(len(live))))
        else:
            live.append(malloc(rng.choice([512, 5000, 300000, 2 * MIB, 9 * MIB])))
work()
try: grab(1 << 50)
except MemoryError: pass
'''


def program(file, function, text):
    """A program with 4 MiB of tensors by a function of this name, in a file of this name, a large allocation of its own
    (own), and random work (work()); it goes on with `text`."""
    return PROGRAM % (file, function, function) + text


def record(case, text, **env):
    """Runs a program() as a torch_case.Base and puts the name that is no UTF-8 into its recording, the newest one. Returns the path."""
    before = set(case.recordings())
    case.python(text, VRAMTRACK_REPORT="off", VRAMTRACK_STACKS="both", **env)
    path, = set(case.recordings()) - before
    with open(path, "rb") as f:
        image = f.read()
    case.assertIn(BROKEN[0], image)
    with open(path, "wb") as f:
        f.write(image.replace(*BROKEN))
    return path

"""check.py LIBRARY [shape...]: compares the walker's frames (file, function, line) with Python's own, in every shape.

Prints "OK what: figures", "NO what: why" or "-- what: why not"; the exit status is 1 if there was a NO.
"""
import atexit
import ctypes
import gc
import os
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

DEPTH = 128
QUALIFIED = sys.version_info >= (3, 11)


class Described(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char * 1024), ("function", ctypes.c_char * 1024), ("line", ctypes.c_int)]


with_gil, without_gil = ctypes.PyDLL(sys.argv[1]), ctypes.CDLL(sys.argv[1])
for library in (with_gil, without_gil):
    library.prepare.restype = library.status.restype = ctypes.c_char_p


def text(s, cut=1023):
    """What vt_python_describe makes of a string."""
    out = b""
    for c in s:
        n = ord(c)
        b = bytes([n - 0xdc00]) if 0xdc80 <= n <= 0xdcff else b"?" if n == 0 else \
            b"\xef\xbf\xbd" if 0xd800 <= n <= 0xdfff else c.encode()
        if len(out) + len(b) > cut:
            break
        out += b
    return out


known = {}


def cached(s):
    if s.__class__ is not str or len(s) > 200:
        return text(s)
    if s not in known:
        known[s] = text(s)
    return known[s]


def expected():
    """The stack of the caller as Python describes it, innermost first."""
    out, f = [], sys._getframe(1)
    while f is not None and len(out) < DEPTH:
        code = f.f_code
        out.append((cached(code.co_filename), cached(code.co_qualname if QUALIFIED else code.co_name), f.f_lineno or 0))
        f = f.f_back
    return out


class Check:
    def __init__(self):
        self.count = self.frames = self.different = 0
        self.none_allowed = False  # where which frames are right can't be told
        self.told, self.lock, self.mine = [], threading.Lock(), threading.local()

    def differences(self):
        return self.different

    def __call__(self, *_):
        mine = self.mine
        if getattr(mine, "busy", False):
            return  # a finalizer or a trace function of our own work
        mine.busy = True
        try:
            if not hasattr(mine, "buffer"):
                mine.buffer = (Described * DEPTH)()
            buffer, take = mine.buffer, (without_gil if self.count & 1 else with_gil).take
            n, want = take(buffer, DEPTH), expected()
            self.compare([(buffer[i].file, buffer[i].function, buffer[i].line) for i in range(n)], want)
        finally:
            mine.busy = False

    def compare(self, got, want):
        with self.lock:  # threads may be truly parallel
            self.count += 1
            self.frames += len(want)
            if got == want or (self.none_allowed and not got):
                return
            self.different += 1
            if len(self.told) < 3:
                pairs = [(g, w) for g, w in zip(got, want) if g != w]
                self.told.append("%d frames for %d; got, wanted: %r" % (len(got), len(want), pairs[:2]))


check = Check()
wrong = 0


def say(word, what, detail):
    global wrong
    wrong += word == "NO"
    print(word, what + ":", detail, flush=True)


threading.excepthook = lambda e: say("NO", "a thread", repr(e.exc_value))


def run_shapes(chosen):
    import shapes
    shapes.check = check
    before = with_gil.quick()
    for shape in shapes.ALL:
        if chosen and shape.__name__ not in chosen:
            continue
        count, frames, different = check.count, check.frames, check.different
        check.told = []
        note = None
        try:
            note = shape()
        except Exception as e:
            say("NO", shape.__name__, repr(e))
        if isinstance(note, str):
            say("--", shape.__name__, note)
        elif check.different != different:
            say("NO", shape.__name__, "%d of %d stacks differ: %s" % (check.different - different, check.count - count, check.told))
        elif check.count == count and shape.__name__ not in ("forked", "newer_syntax"):
            say("NO", shape.__name__, "compared nothing")
    say("NO" if check.different or not check.count else "OK", "shapes", "%d stacks, %d frames compared, %d differ" %
        (check.count, check.frames, check.different))
    # The quick way is for 3.12 on, but where threads run copies of the instructions. A stack that is not checked yet, or is cut,
    # is not counted.
    copies = sys.version_info >= (3, 14) and b"free-threaded" in with_gil.status()
    quick, wanted = with_gil.quick() - before, sys.version_info >= (3, 12) and not copies
    say("OK" if (quick > check.count * 0.9 if wanted else not quick) else "NO", "the quick way", "%d of %d stacks" % (quick, check.count))


def bare_threads():
    """Threads that C made: no Python before and after a callback, its frames within."""
    seen = []
    callback = ctypes.CFUNCTYPE(None)(lambda: (check(), seen.append(1)))
    without_gil.in_bare_thread.argtypes = [ctypes.c_void_p]
    different = check.different
    outside = without_gil.in_bare_thread(None) or without_gil.in_bare_thread(ctypes.cast(callback, ctypes.c_void_p))
    say("NO" if outside or not seen or check.different != different else "OK", "threads without Python", "%d frames outside the callback" % outside)


def reused_addresses(cells):
    """Code objects that are made and dropped, as in a notebook: one at an address where another one was is another one."""
    remember = with_gil.remember
    results, careless = [0, 0, 0], [0, 0, 0]

    def cell(i):
        if i % 3 == 0:  # everything differs
            return "def g%d():\n%s  r()\ng%d()\n" % (i, "\n" * (i % 50), i), "<cell %d>" % i
        if i % 3 == 1:  # the names are the same, the lines are not
            return "\n" * (i % 7) + "def g():\n" + "\n" * (i % 11) + "  x = 1\n" * (i % 5) + "  r()\ng()\n", "<cell>"
        return "def g():\n  r()\ng()\n", "/tmp/cell-%05d.py" % i

    def r():
        results[remember(8)] += 1
        careless[with_gil.remember_address()] += 1
    for i in range(cells):
        source, name = cell(i)
        exec(compile(source, name, "exec"), {"r": r})
    again = [remember(8) for _ in range(3)]
    detail = "%d cells, %d stacks mistaken; by address alone %d of %d would be mistaken" % (
        cells, results[2], careless[2], careless[1] + careless[2])
    say("NO" if results[2] or sum(results) != cells or again != [0, 1, 1] else "OK", "reused addresses", detail)


def churn(seconds, count):
    """Threads that make and drop code objects while others walk."""
    stop, failed, lock = time.monotonic() + seconds, [0, 0], threading.Lock()
    mine = Described * 4

    def run(k):
        buffer, n = mine(), 0
        take = without_gil.take
        while time.monotonic() < stop:
            n += 1
            name = "f_%d_%d" % (k, n)
            space = {"t": lambda: take(buffer, 4)}
            exec(compile("\n" * (n % 9) + "def %s():\n  return t()\nx = %s()\n" % (name, name), "file-" + name, "exec"), space)
            want = [(b"file-" + name.encode(), name.encode(), n % 9 + 2), (b"file-" + name.encode(), b"<module>", n % 9 + 3)]
            got = [(d.file, d.function, d.line) for d in buffer[1:3]]
            if space["x"] != 4 or got != want:
                failed[0] += 1
        with lock:
            failed[1] += n
    ts = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    say("NO" if failed[0] or not failed[1] else "OK", "churn", "%d threads, %d code objects, %d wrong" % (count, failed[1], failed[0]))


def together(seconds, count):
    """Threads that run the same new code objects at once, and generators that wander from thread to thread: in a free-threaded
    build since 3.14 each thread makes itself a copy of the instructions, in an array that grows while others look into it."""
    stop, lock, before, wanderers, fresh = time.monotonic() + seconds, threading.Lock(), (check.count, check.different), [], []

    def nth(i):
        with lock:
            while len(fresh) <= i:
                space = {"check": check}
                exec(compile("def f(n):\n%s  check()\n  if n:\n    f(n - 1)\n  check()\n"
                             "def g(f):\n  while True:\n    yield f(1)\n    check()\n" % ("\n" * (i % 5)), "together-%d" % i, "exec"), space)
                fresh.append((space["f"], space["g"]))
                fresh[max(0, i - 8)] = fresh[i]  # the older ones are dropped
            return fresh[i]

    def resume():
        with lock:
            g = wanderers.pop(0) if wanderers else None
        if g:
            next(g)
            with lock:
                wanderers[200:] = []
                wanderers.append(g)

    # One that has ended while another still drops the copies leaves generators without their instructions: CPython crashes.
    end = threading.Barrier(count)

    def run():
        i = 0
        while time.monotonic() < stop:
            f, g = nth(i)
            f(2)
            with lock:
                wanderers.append(g(f))
            resume()
            if i % 50 == 0:  # threads that come and go
                t = threading.Thread(target=f, args=(3,))
                t.start()
                t.join()
            if i % 40 == 0:
                gc.collect()
                # Drops the copies of threads that have ended: those that came and went, which left no generator.
                getattr(sys, "_clear_internal_caches", int)()
            i += 1
        end.wait()
    ts = [threading.Thread(target=run) for _ in range(count)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    wrong = check.different - before[1]
    say("NO" if wrong or check.count == before[0] else "OK", "together", "%d threads, %d stacks of %d code objects compared, %d differ%s" % (
        count, check.count - before[0], 2 * len(fresh), wrong, ": %s" % check.told if wrong else ""))


def at_the_end():
    """Py_Finalize frees the states of other threads: from its beginning on there are no stacks."""
    def daemon():
        buffer = (Described * 8)()
        while True:
            without_gil.take(buffer, 8)
    if without_gil.finalizing():
        say("NO", "finalizing", "said too early")
    for _ in range(3):
        threading.Thread(target=daemon, daemon=True).start()

    class Last:
        def __del__(self, say=say, os=os, library=without_gil, buffer=(Described * 8)()):
            if library.take(buffer, 8) != 0 or not library.finalizing():
                os.write(1, b"NO finalizing: a stack was taken after Py_Finalize\n")
                os._exit(1)
    sys.vt_last = Last()


def main():
    status = with_gil.prepare().decode()
    want = "CPython %d.%d.%d" % sys.version_info[:3]
    buffer = (Described * DEPTH)()
    supported = (3, 8) <= sys.version_info[:2] <= (3, 15)
    if not supported:
        n = with_gil.take(buffer, DEPTH)
        say("NO" if n or not (status.startswith(want) and ("older" in status or "newer" in status)) else "OK", "refused", status)
        return
    free = hasattr(sys, "_is_gil_enabled") and "free-threading" in sys.version
    say("OK" if status == want + (" (free-threaded)" if free else "") else "NO", "status", status)
    if sys.argv[2:] == ["early"]:
        count = ctypes.c_uint(77)
        with_gil.early.restype = ctypes.c_char_p
        early = with_gil.early(ctypes.byref(count)).decode()
        check()
        say("OK" if early == status and not count.value and not check.different else "NO", "preloaded", "%r before the start" % early)
        return
    if not sys.argv[2:]:  # before there are threads: a free-threaded 3.13 keeps all code objects from then on
        reused_addresses(int(os.environ.get("VT_PYTHON_CELLS", "20000")))
    run_shapes(sys.argv[2:])
    if not sys.argv[2:]:
        bare_threads()
        churn(float(os.environ.get("VT_PYTHON_CHURN", "0.5")), 16)
        together(float(os.environ.get("VT_PYTHON_CHURN", "0.5")), 16)
    say("OK" if with_gil.status() == status.encode() else "NO", "status at the end", with_gil.status().decode())
    at_the_end()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.exit(1 if wrong else 0)

"""The shapes of a Python program; each calls check() at many places. Written for Python 3.8 and later.

What check() gets is compared with what Python itself says of the same stack, by check.py.
"""
import asyncio
import contextlib
import ctypes
import functools
import gc
import importlib
import os
import random
import re
import sys
import tempfile
import threading

check = None  # set by check.py
NEW = sys.version_info


def recursion():
    def down(n):
        check()
        if n:
            down(n - 1)
        check()
    down(60)

    def deep(n):
        return deep(n - 1) if n else check()
    deep(800)


def generators():
    def inner(n):
        for i in range(n):
            check()
            yield i
        check()

    def outer(n):
        x = yield from inner(n)
        check()
        yield x

    for _ in outer(5):
        check()
    list(check() for _ in range(5))
    g = inner(3)
    next(g)
    g.close()
    list(outer(2))

    def echo():
        got = None
        while True:
            try:
                got = yield check() or got
            except KeyError:
                check()
    e = echo()
    next(e)
    e.send(1)
    e.throw(KeyError("x"))
    e.close()


def comprehensions():
    [check() for _ in range(3)]
    {check() for _ in range(3)}
    {i: check() for i in range(3)}
    [[check() for _ in range(2)] for _ in range(2)]
    [
        check()
        for i in range(4)
        if check() is None
    ]
    (lambda: [check() for _ in "ab"])()


def decorators():
    def outer(f):
        @functools.wraps(f)
        def wrapper(*args, **kwargs):
            check()
            try:
                return f(*args, **kwargs)
            finally:
                check()
        return wrapper

    @outer
    @outer
    @functools.lru_cache(maxsize=None)
    def work(n):
        check()
        return n if n < 2 else work(n - 1) + work(n - 2)
    work(5)
    functools.partial(outer(check))()

    @contextlib.contextmanager
    def managed():
        check()
        try:
            yield check()
        finally:
            check()
    with managed():
        check()
    with contextlib.ExitStack() as stack:
        stack.callback(check)
        stack.enter_context(managed())


class Base:
    check_at_class = staticmethod(lambda: check())

    def __init_subclass__(cls, **kwargs):
        check()

    def __set_name__(self, owner, name):
        check()


def classes():
    class Meta(type):
        def __new__(m, name, bases, space):
            check()
            return super().__new__(m, name, bases, space)

        def __call__(cls, *args):
            check()
            return super().__call__(*args)

    class Everything(Base, metaclass=Meta):
        check()
        slot = Base()
        for _i in range(2):
            check()

        class Inner:
            check()
            list(map(lambda _: check(), range(2)))

        def __init__(self):
            check()

        def dunder(self, *_):
            check()
            return 1
        __len__ = __hash__ = __index__ = __add__ = __radd__ = __getitem__ = __call__ = dunder
        __int__ = __neg__ = dunder

        def __getattr__(self, name):
            check()
            return name

        def __eq__(self, other):
            check()
            return True

        def __lt__(self, other):
            check()
            return True

        def __iter__(self):
            check()
            return iter((1, 2))

        def __bool__(self):
            check()
            return False

        def __repr__(self):
            check()
            return "e"

        def __contains__(self, x):
            check()
            return True

        def __enter__(self):
            check()

        def __exit__(self, *e):
            check()

        @property
        def prop(self):
            check()
            return self.other

        @classmethod
        def cm(cls):
            check()

        def __del__(self):
            check()

    e = Everything()
    len(e), hash(e), [1, 2, 3][e], e + 1, 1 + e, e[3], e(1), int(e), -e
    e.missing, e == e, e < e, list(e), tuple(e), bool(e), repr(e), "%r" % e, 3 in e, e.prop
    {e: 1}, sorted([e, e]), [e].index(3), max([e, e]), f"{e!r}", any([e, e]), str([e])
    e.cm()
    a, b = e
    with e:
        check()
    del e
    x = [Everything()]
    x.clear()


def c_callers():
    sorted(range(4), key=lambda x: check() or x)
    list(map(lambda x: check(), range(3)))
    list(filter(lambda x: check(), range(3)))
    functools.reduce(lambda a, b: check(), range(4))
    min([1, 2], key=lambda x: check() or x)
    [3, 1, 2].sort(key=functools.cmp_to_key(lambda a, b: check() or a - b))
    re.sub("a", lambda m: check() or "b", "aXa")
    list(iter(lambda: check(), None))
    max(map(lambda x: check() or x, (1, 2)))
    "".join(str(check()) for _ in range(2))
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    values = (ctypes.c_int * 4)(3, 1, 2, 4)

    def back(a, b):
        check()
        return 0
    ctypes.CDLL(None).qsort(values, 4, 4, compare(back))
    call = ctypes.PyDLL(None).PyObject_CallObject
    call.restype, call.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_void_p]
    call(lambda: call(check, None), None)


def executed():
    exec("check()\ncheck(\n)\n", {"check": check})
    eval("[check() for _ in 'ab']", {"check": check})
    exec(compile("def f():\n  check()\n\n\n  check()\nf()", "<eval_with_key>.7", "exec"), {"check": check})
    exec(compile("\n" * 70000 + "check()\ncheck()", "far", "exec"), {"check": check})
    exec(compile("def f():\n check()\n" + "\n" * 66000 + " check()\n check()\nf()", "jump", "exec"), {"check": check})
    exec(compile("def f(x):\n" + " x += 1\n" * 3000 + " check()\n" + " x = (x,\n\n  1)[0]\n" * 500 + " check()\nf(1)", "long", "exec"),
         {"check": check})
    exec(compile("if 1: check(); check()\nfor i in range(2):\n  check(i,\n\n  check())\nelse:\n  check()\n", "", "exec"), {"check": check})
    namespace = {}
    exec("def a(): check()\ndef b(): a()\n", namespace)
    namespace["check"] = check
    namespace["b"]()


def lines():
    check(
        check(),
        check(
            check(), 5
        ),
    )
    (check()
     or check()
     or check())
    x = {
        "a": check(),
        "b": [check(),
              check()],
    }
    x["a"] if check() else (
        check()
    )
    while check():
        pass
    try:
        check()
        raise ValueError(check())
    except (ValueError if check() is None else KeyError):
        check()
    else:
        check()
    finally:
        check()
    for _ in range(3):
        try:
            check()
            if _ == 1:
                break
            continue
        finally:
            check()
    assert check() is None, check()
    with contextlib.suppress(ZeroDivisionError):
        check(); 1 / 0
    del x["a"], x

    def defaults(a=check(), *, b=check()) -> check():
        return check()
    defaults()
    return check()


def names():
    for name in ("caf\u00e9", "\u5909\u6570", "a\U00010400b", "x" * 300, "\u0391" * 300):
        exec(compile("def %s():\n  check()\n%s()" % (name, name), "/tmp/%s.py" % name, "exec"), {"check": check})
    for raw in (b"/tmp/\xff\xfe.py", b"/tmp/\xe9t\xe9", "/tmp/\u5909\U00010400".encode() + b"\x80"):
        exec(compile("check()", os.fsdecode(raw), "exec"), {"check": check})

    class Str(str):
        pass

    def f():
        check()
    for text in (Str("sub"), Str("caf\u00e9"), Str("\u5909"), Str("\U00010400"), "", "a" * 5000):
        g = type(f)(f.__code__.replace(co_filename=text), globals())
        g()
        h = type(f)(f.__code__.replace(co_name=text), globals())
        h()


def coroutines():
    class Awaitable:
        def __await__(self):
            check()
            yield from asyncio.sleep(0).__await__()
            check()

    async def agen(n):
        for i in range(n):
            check()
            await asyncio.sleep(0)
            yield i
        check()

    class Manager:
        async def __aenter__(self):
            check()
            await asyncio.sleep(0)

        async def __aexit__(self, *e):
            check()

    async def leaf(n):
        check()
        await asyncio.sleep(0)
        check()
        if n:
            await leaf(n - 1)
        check()

    async def main():
        await asyncio.gather(*(leaf(i) for i in range(5)))
        async for _ in agen(3):
            check()
        [check() async for _ in agen(2)]
        [x async for x in agen(2) if check() is None]
        async with Manager():
            check()
        await Awaitable()
        task = asyncio.ensure_future(leaf(2))
        task.add_done_callback(lambda _: check())
        await task
        await asyncio.get_running_loop().run_in_executor(None, check)
    asyncio.run(main())


def traced():
    calls = [0]

    def tracer(frame, event, arg):
        calls[0] += 1
        if frame.f_code.co_filename == __file__ and calls[0] % 5 == 0 and frame.f_code.co_name != "tracer":
            check()
        return tracer

    def profiler(frame, event, arg):
        if frame.f_code.co_filename == __file__:
            check()

    def work(n):
        x = [i for i in range(n)]
        for i in x:
            check()
        return sorted(x, key=lambda v: check() or v)
    for start in (sys.settrace, sys.setprofile):
        start(tracer if start is sys.settrace else profiler)
        try:
            work(3)
        finally:
            start(None)
    if NEW >= (3, 12):
        m = sys.monitoring
        m.use_tool_id(3, "vt")
        m.register_callback(3, m.events.LINE, lambda code, line: check() if code is work.__code__ else None)
        m.set_events(3, m.events.LINE)
        work(3)
        m.set_events(3, 0)
        m.free_tool_id(3)
        work(3)


def threads():
    def run(n):
        random_trees(n, 20)
        recursion_small(n)

    def recursion_small(n):
        check()
        if n:
            recursion_small(n - 1)
    ts = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    if NEW >= (3, 9):
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda i: check(), range(10)))


def finalizers():
    import weakref

    class Node:
        def __init__(self):
            self.me = self
            weakref.finalize(self, check)

        def __del__(self):
            check()
    for _ in range(10):
        Node()
    gc.collect()
    gc.callbacks.append(lambda phase, info: check())
    old = gc.get_threshold()
    gc.set_threshold(20)
    try:
        for _ in range(60):
            Node(), (lambda a, b=[], *c, **d: [[], {}, (lambda: _)])(1, 2, 3, x=[])
            [list(range(3)) for _ in range(5)]
    finally:
        gc.set_threshold(*old)
        gc.callbacks.pop()
    gc.collect()


def imports():
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        try:
            for i in range(3):
                with open(os.path.join(folder, "vt_mod%d.py" % i), "w") as f:
                    f.write("import shapes\nshapes.check()\n" + ("import vt_mod%d\n" % (i + 1) if i < 2 else "") +
                            "def f():\n    shapes.check()\nf()\n")
            importlib.import_module("vt_mod0")
            importlib.reload(sys.modules["vt_mod0"])
        finally:
            sys.path.remove(folder)
            sys.dont_write_bytecode = True


def hot():
    def loop(n, f):
        total = 0
        for i in range(n):
            total += i & 3
            if i % 997 == 0:
                f()
        return total

    def inner():
        check()
    loop(12000, inner)
    loop(12000, check)

    def small(i):
        return i + 1 if i % 1009 else check() or 1
    sum(map(small, range(8000)))
    for i in range(8000):
        small(i)


def newer_syntax():
    code = []
    if NEW >= (3, 10):
        code.append("match check():\n  case 1:\n    check()\n  case None if check() is None:\n    check()\n")
    if NEW >= (3, 11):
        code.append("try:\n  check()\n  raise ExceptionGroup('g', [ValueError(check())])\nexcept* ValueError:\n  check()\n")
    if NEW >= (3, 12):
        code.append("def f[T: check()](x: T) -> T:\n  check()\n  return x\nf(1)\ntype A = check()\nA.__value__\n"
                    "f.__type_params__[0].__bound__\nf'{check()}{(lambda: check())()}'\n")
    if NEW >= (3, 14):
        code.append("def f(x: check()): pass\nf.__annotations__\nclass C:\n  a: check()\nC.__annotations__\n"
                    "t'{check()}'\n")
    for c in code:
        exec(compile(c, "<newer>", "exec"), {"check": check, "__name__": "n"})


def random_trees(seed, count):
    """Programs of functions that call each other in every way there is."""
    r = random.Random(seed)
    ways = ["{f}({n})", "[{f}({n}) for _ in 'a']", "list(map({f}, [{n}]))", "(lambda v: {f}(v))({n})",
            "sum(({f}({n}) or 0) for _ in 'ab')", "sorted([1], key=lambda _: {f}({n}) or 0)",
            "exec('{f}(n)', dict(globals(), n={n}))", "next(gen({f}, {n}))", "run({f}, {n})", "Call({f})({n})",
            "Call({f})[{n}]", "partial({f}, {n})()", "reduce(lambda a, b: {f}({n}), [1, 2])",
            "check(\n      {f}(\n        {n}))"]
    head = ("from functools import partial, reduce\n"
            "def gen(f, n):\n    yield f(n)\n"
            "async def co(f, n):\n    return f(n)\n"
            "def run(f, n):\n    try:\n        co(f, n).send(None)\n    except StopIteration:\n        check()\n"
            "class Call:\n    def __init__(self, f): self.f = f\n"
            "    def __call__(self, n): return self.f(n)\n    def __getitem__(self, n): return self.f(n)\n")
    for k in range(count):
        body = [head]
        functions = r.randint(2, 8)
        for i in range(functions):
            lines_of = ["def f%d(n):\n" % i]
            for _ in range(r.randint(1, 3)):
                lines_of.append("\n" * r.choice([0, 0, 1, 5, 140, 300]))
                if i + 1 < functions and r.random() < 0.7:
                    call = r.choice(ways).format(f="f%d" % r.randint(i + 1, functions - 1), n="n")
                    lines_of.append("    if n < 40: n += 7; %s\n" % call if "\n" not in call and r.random() < .5
                                    else "    n += 5\n    if n < 40:\n      %s\n" % call)
                else:
                    lines_of.append("    check()\n")
            lines_of.append("    return check()\n")
            body += lines_of
        body.append("f0(0)\n")
        exec(compile("".join(body), "tree%d-%d.py" % (seed, k), "exec"), {"check": check})


def trees():
    random_trees(1000, int(os.environ.get("VT_PYTHON_TREES", "300")))


def forked():
    pid = os.fork()
    if not pid:
        try:
            before = check.differences()
            recursion()
            generators()
            t = threading.Thread(target=comprehensions)
            t.start()
            t.join()
            os._exit(1 if check.differences() != before else 0)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0, "the child's stacks differ"


def greenlets():
    try:
        import greenlet
    except ImportError:
        return "no greenlet"

    def a(n):
        check()
        if n:
            b2 = greenlet.greenlet(a)
            b2.switch(n - 1)
            check()
        main.switch(n)
        check()
    main = greenlet.getcurrent()
    gs = [greenlet.greenlet(a) for _ in range(5)]
    for g in gs:
        g.switch(4)
        check()
    for g in gs:
        g.switch()
        check()

    def gen():
        for i in range(3):
            check()
            yield i

    def loop():
        for _ in gen():
            check()
            main.switch()
    gs = [greenlet.greenlet(loop) for _ in range(3)]
    for _ in range(3):
        for g in gs:
            g.switch()
            [check() for _ in "a"]


def subinterpreters():
    try:
        import _interpreters as i
    except ImportError:
        try:
            import _xxsubinterpreters as i
        except ImportError:
            return "no interpreters"
    mine = i.create("legacy") if NEW >= (3, 13) else i.create() if NEW < (3, 9) else i.create(isolated=False)
    # Before 3.10 a state that this thread made may be run by another one: while there is one, there may be no frames.
    code = ("import sys\nsys.path[:0] = %r\nsys.argv = %r\nimport check\n"
            "before = check.check.count, check.check.differences()\n"
            "check.check.none_allowed = NONE\n"
            "def f(n):\n    check.check() if not n else f(n - 1)\nf(5)\nf(4)\nf(3)\n[check.check() for _ in 'abc']\n"
            "assert check.check.count - before[0] >= 4 and check.check.differences() == before[1], check.check.told\n"
            "assert NONE or check.check.frames\n" % ([os.path.dirname(__file__)], sys.argv))
    run = i.run_string if hasattr(i, "run_string") else i.exec
    failed, old = [], NEW < (3, 10)

    def inside(interpreter, none_allowed):
        wrong = run(interpreter, code.replace("NONE", str(none_allowed)))
        check()  # without the GIL and with it: the thread's own frames again
        check()
        failed.extend([wrong] if wrong else [])

    def in_thread(*args):
        errors = []

        def caught():
            try:
                inside(*args)
            except Exception as e:
                errors.append(e)
        t = threading.Thread(target=caught)
        t.start()
        t.join()
        if errors:
            raise errors[0]
    inside(mine, False)
    check()
    in_thread(mine, old)  # in a state that another thread made
    beside(run, mine)
    inside(mine, False)
    i.destroy(mine)  # by the thread that imported threading there: CPython waits for it, some versions for ever
    check()
    assert not failed, failed


def beside(run, interpreter):
    """Another thread runs a state that this one made and has the GIL, while this one is in a call that released it."""
    started, finish = os.pipe(), os.pipe()
    code = ("import os\ndef f(n):\n    if n: return f(n - 1)\n    os.write(%d, b'x')\n"
            "    while os.read(%d, 1) != b'x': pass\nf(20)\n" % (started[1], finish[0]))
    t = threading.Thread(target=run, args=(interpreter, code))
    t.start()
    os.read(started[0], 1)
    try:
        check.none_allowed = NEW < (3, 10)
        for _ in range(4):
            check()
    finally:
        check.none_allowed = False
        os.write(finish[1], b"x")
        t.join()
        [os.close(fd) for fd in started + finish]


ALL = [recursion, generators, comprehensions, decorators, classes, c_callers, executed, lines, names, coroutines, traced,
       threads, finalizers, imports, hot, newer_syntax, trees, forked, greenlets, subinterpreters]

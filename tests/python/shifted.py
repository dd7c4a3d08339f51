"""shifted.py LIBRARY: the walker with one wrong offset at a time (taker.c built with -DVT_PYTHON_TEST_SHIFT).

Each must be refused with a reason, or make no difference (a field that this version does not use for these frames).
Never may a wrong frame come out, and never may the process die.
"""
import ctypes
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
DELTAS = (-16, -8, -4, 4, 8, 16, 24, 4096, 30000)
REFUSED, HARMLESS, SHORT, WRONG = 10, 11, 12, 13
# Not checked: the mark of a code object is weaker without it, and nothing else.
def fields():
    """The names of struct vt_py_layout's 16-bit fields, in order."""
    path = os.environ.get("VT_PYTHON_OFFSETS_H", os.path.join(HERE, "../../src/preload/python/offsets.h"))
    with open(path) as f:
        body = re.search(r"struct vt_py_layout \{(.*?)\n\};", f.read(), re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    return [name.strip() for line in re.findall(r"uint16_t ([^;]*);", body) for name in line.split(",")]


class Described(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char * 1024), ("function", ctypes.c_char * 1024), ("line", ctypes.c_int)]


def child(index, delta):
    os.environ["VT_TEST_SHIFT"] = "%d:%d" % (index, delta)
    library = ctypes.PyDLL(sys.argv[1])
    library.prepare.restype = library.status.restype = ctypes.c_char_p
    library.prepare()
    buffer = (Described * 128)()

    def down(n):
        if n:
            return down(n - 1)
        out = []
        f = sys._getframe()
        number = library.take(buffer, 128); line = f.f_lineno
        while f:
            code = f.f_code
            out.append((code.co_filename.encode(), getattr(code, "co_qualname", code.co_name).encode(), f.f_lineno))
            f = f.f_back
        out[0] = out[0][:2] + (line,)
        return number, [(buffer[i].file, buffer[i].function, buffer[i].line) for i in range(max(number, 0))], out
    results = [(lambda: [down(n) for _ in "a"][0])() for n in (0, 3, 9)]
    status = library.status().decode()
    plain = re.fullmatch(r"CPython [0-9.]+( \(free-threaded\))?", status)
    if not plain and all(r[0] == 0 for r in results):
        return REFUSED
    if plain and all(got == want for _, got, want in results):
        return HARMLESS
    if plain and all(all(g in want for g in got) for _, got, want in results):
        return SHORT  # no wrong frame, but some are missing
    if "-v" in sys.argv:
        print(results[0][1:], status, flush=True)
    return WRONG


def main():
    outcome, names, bad = {REFUSED: 0, HARMLESS: 0, SHORT: 0}, {REFUSED: [], HARMLESS: [], SHORT: []}, []
    for index, name in enumerate(fields()):
        if name in ("minor", "free_threaded"):
            continue
        for delta in DELTAS:
            pid = os.fork()
            if not pid:
                code = 99
                try:
                    code = child(index, delta)
                finally:
                    os._exit(code)
            status = os.waitpid(pid, 0)[1]
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            if code in outcome:
                outcome[code] += 1
                names[code].append("%s%+d" % (name, delta))
            else:
                bad.append("%s%+d: %d" % (name, delta, code))
    print("NO" if bad or outcome[REFUSED] < 100 else "OK", "wrong offsets: %d refused, %d without effect, %d with fewer frames%s" % (
        outcome[REFUSED], outcome[HARMLESS], outcome[SHORT], "; WRONG: " + ", ".join(bad) if bad else ""))
    if "-v" in sys.argv:
        print("without effect:", *names[HARMLESS])
        print("fewer frames:", *names[SHORT])
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())

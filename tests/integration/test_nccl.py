"""NCCL's memory: which communicator it is for, and the line of the program that made NCCL take it."""
import errno
import os
import sys

import vt

MIB = 1 << 20
HEAD = """\
import ctypes, os, threading
nccl = ctypes.CDLL(os.environ["USER"])
pointer = ctypes.c_void_p

def init(ranks, rank=0):
    c = pointer()
    code = nccl.user_init(ctypes.byref(c), ranks, rank)
    assert code == 0, code
    return c

"""
LINE = HEAD.count("\n")  # of the program's own first line, less one


class Nccl(vt.Case):
    def libraries(self):
        library = vt.compile("nccl_library.c", "-lcudart", "-Wl,-soname,libnccl.so.2", shared=True)
        place = os.path.join(vt.WORK, "nccl-" + os.path.basename(library))
        vt.place(library, place, "libnccl.so.2")
        return vt.compile("nccl_user.c", "-L" + place, "-l:libnccl.so.2", "-Wl,-rpath," + place, shared=True)

    def python(self, text, **env):
        path = os.path.join(self.dir, "train.py")
        with open(path, "w") as f:
            f.write(HEAD + text)
        done = self.run_program([sys.executable, path], USER=self.libraries(), VRAMTRACK_REPORT="off", **env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def places(self):
        """(MiB, range, lines of train.py from the innermost out) of each place."""
        out = []
        for s in self.report(moment="end")["sites"]:
            lines = [f["line"] - LINE for f in s["frames"] if f["lang"] == "python" and f["file"].endswith("train.py") and f["line"] > LINE]
            out.append((s["live_bytes"] // MIB, s["range"], lines))
        return sorted(out, key=str)

    def test_what_communicators_take(self):
        self.python("a = init(4)\n"
                    "b = init(8)\n"
                    "for _ in range(3): nccl.user_reduce(b)\n"
                    "nccl.user_reduce(a)\n")
        first, second = "NCCL communicator 1, 4 ranks", "NCCL communicator 2, 8 ranks"
        self.assertEqual(self.places(), [(2, first, [4]), (2, second, [3]), (4, first, [1]), (4, second, [2])])

    def test_native_frames_are_those_of_the_thread(self):
        self.python("a = init(4)\n")
        site, = self.report(moment="end")["sites"]
        names = [f["function"] for f in site["frames"]]
        self.assertIn("allocate", names)
        self.assertLess(names.index("allocate"), names.index("init"))

    def test_a_handle_comes_again(self):
        self.python("a, b, c = init(4), pointer(), pointer()\n"
                    "nccl.user_split(a, ctypes.byref(b))\n"
                    "nccl.user_reduce(b)\n"
                    "nccl.user_split(a, ctypes.byref(c))\n"
                    "nccl.user_reduce(c)\n")
        self.assertEqual(self.places(), [(1, "NCCL communicator 2", [2]), (1, "NCCL communicator 3", [4]), (2, "NCCL communicator 2", [3]),
                                         (2, "NCCL communicator 3", [5]), (4, "NCCL communicator 1, 4 ranks", [1])])

    def test_groups(self):
        self.python("a, b = init(2), init(3)\n"
                    "nccl.user_start(); nccl.user_start()\n"
                    "nccl.user_reduce(a)\n"
                    "nccl.user_end()\n"
                    "nccl.user_end()\n"
                    "c = init(5)\n"
                    "nccl.user_start()\n"
                    "nccl.user_reduce(b); nccl.user_reduce(c)\n"
                    "nccl.user_end()\n")
        self.assertEqual([p for p in self.places() if p[2] in ([3], [4], [5])], [(2, "NCCL communicator 1, 2 ranks", [5])])
        self.assertEqual([p for p in self.places() if p[2] in ([8], [9])], [(4, None, [9])])  # 2 MiB for each of two

    def test_two_threads_at_once(self):
        self.python("a, b = init(2), init(3)\n"
                    "t = threading.Thread(target=nccl.user_broadcast, args=(a,))\n"
                    "t.start(); nccl.user_broadcast(b); t.join()\n")
        self.assertEqual([p for p in self.places() if p[0] == 16], [(16, None, [])])
        self.assertEqual(len(self.places()), 3)

    def test_results_are_forwarded(self):
        out = self.python("a = init(2)\nprint(nccl.user_send(a), nccl.user_init(ctypes.byref(pointer()), 2, 5))\n")
        self.assertEqual(out, "%d 4\n" % (errno.EOWNERDEAD * 100 + 6))

    def test_without_recording(self):
        text = "a = init(2)\nprint(nccl.user_reduce(a), nccl.user_send(a))\n"
        self.assertEqual(self.python(text, VRAMTRACK_OFF=1), "0 %d\n" % (errno.EOWNERDEAD * 100 + 6))
        self.assertEqual(self.recordings(), [])

    def test_who_has_no_nccl_finds_none(self):
        program = vt.compile('#include <dlfcn.h>\n#include <stdio.h>\nint main(void)\n{\n    printf("%p %p\\n", dlsym(RTLD_DEFAULT, "ncclAllReduce"), '
                             'dlsym(dlopen(NULL, RTLD_NOW), "ncclCommInitRank"));\n    return 0;\n}\n')
        self.assert_silent(program)

"""The failures that other interposers of CUDA are known for, acted out: loading and look-ups.

The numbers in the test names go on in test_regressions_drivers.py (4 to 6, 14, 15) and test_regressions_books.py (7 to 13).
Programs check their own return codes, errno, dlerror and pointers and say so by their exit status; where the caller's
compilation decides (tail calls in callers of dlsym), everything is done at -O0 and at -O2.
"""
import os
import re
import shutil
import sys

import vt
from regr_case import LEVELS, MIB, Case, build, needed_by
from test_routes import DRIVER, RUNTIME


THROWER = """// c++
#include <stdexcept>
extern "C" int outer(int (*inner)(int), void (*grab)(void))
{
    try { grab(); inner(5); return 1; }
    catch (const std::runtime_error &e) { grab(); return e.what()[0] == 'r' ? 42 : 2; }
}
"""
RETHROWER = """// c++
#include <stdexcept>
extern "C" int inner(int n)
{
    try { throw std::logic_error("first"); }
    catch (const std::logic_error &) {
        if (n == 7) throw;
        throw std::runtime_error("rethrown");
    }
}
"""


class Regression01NothingChanges(Case):
    """Programs without CUDA: same output, same status, no file."""

    def test_01_shells_and_interpreters(self):
        self.assert_silent("/bin/true")
        self.assert_silent("/bin/false")
        self.assert_silent(["/bin/bash", "-c", "echo out; echo err >&2; (exit 3); echo $?; exec /bin/sh -c 'exit 4'"])
        self.assert_silent(["/bin/bash", "-c", "kill -TERM $$"])
        self.assert_silent(["/usr/bin/env", "-i", "/bin/echo", "clean"])
        self.assert_silent([sys.executable, "-c", "import ctypes, json, subprocess, threading\n"
                            "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
                            "print(subprocess.run(['/bin/echo', 'child'], capture_output=True).stdout)\n"
                            "print(ctypes.CDLL(None).getpid() > 0)\nraise SystemExit(5)"])

    def test_01_ldd(self):
        """The same libraries, and this one."""
        def libraries(done):
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return [re.sub(r" \(0x[0-9a-f]+\)", "", line) for line in done.stdout.splitlines()]
        command = ["ldd", "/bin/bash"]
        bare, under = libraries(self.run_program(command, preload=False)), libraries(self.run_program(command))
        self.assertEqual([l for l in under if "libvramtrack.so" not in l and (not vt.SAN or l in bare)], bare)
        self.assertEqual(os.listdir(self.dir), [])

    def test_01_gdb(self):
        gdb = shutil.which("gdb")
        if not gdb or vt.SAN:
            self.skipTest("gdb does not run with a sanitizer preloaded" if gdb else "gdb is not installed")
        script = []
        for line in ("set debuginfod enabled off", "break main", "run", "print 6*7", "info breakpoints", "kill", "quit"):
            script += ["-ex", line]
        program = vt.compile("int main(void) { return 0; }", "-O0", name="debugged")

        def lines(done):
            return [l for l in done.stdout.splitlines() if not re.search(r"process \d+|libthread_db|0x[0-9a-f]{12}", l)]
        command = [gdb, "-batch", "-nx", *script, program]
        bare, under = self.run_program(command, preload=False), self.run_program(command)
        self.assertEqual((under.returncode, lines(under)), (bare.returncode, lines(bare)))
        self.assertIn("$1 = 42", under.stdout)
        self.assertEqual(os.listdir(self.dir), [])

    def unwinding(self, way, *cuda):
        plugins = [vt.compile(THROWER, shared=True, name="thrower"),
                   vt.compile(RETHROWER, shared=True, name="rethrower")]
        return [build("regr_threads.c", "-lcuda" if cuda else "-DNO_CUDA"), way, *plugins, *cuda]

    def test_01_exceptions_and_cancellation(self):
        self.assertNotIn("libgcc_s", " ".join(needed_by(self.unwinding("throw")[0])))
        for way in ("throw", "cancel", "exit", "terminate"):
            if way == "exit" and vt.SAN == "tsan":
                continue  # with TSan alone too: its own thread keeps the process alive when the first thread has gone
            with self.subTest(way=way):
                self.assert_silent(self.unwinding(way))
        self.assertEqual(self.run_program(self.unwinding("throw")).stdout, "outer 42\nouter 42\n")

    def test_01_exceptions_and_cancellation_with_cuda(self):
        """The same with an allocation at every step: behaviour is the same, and all of them are on record."""
        for way, status, allocations, end in (("throw", 23, 4, "exit"), ("cancel", 23, 2, "exit"), ("exit", 0, 3, "exit"),
                                              ("terminate", -6, 4, "killed")):
            if way == "exit" and vt.SAN == "tsan":
                continue  # as above
            with self.subTest(way=way):
                command = self.unwinding(way, "cuda")
                bare, under = self.run_program(command, preload=False), self.run_program(command, VRAMTRACK_REPORT="off")
                self.assertEqual((under.returncode, under.stdout, under.stderr), (bare.returncode, bare.stdout, bare.stderr))
                self.assertEqual(under.returncode, status)
                report = self.report()
                self.assertEqual(self.figures(report, "device"), (allocations, allocations, allocations, 0))
                self.assertEqual(report["process"]["end"], end)
                self.forget()


OMPT = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
static int depth;
__attribute__((weak)) void *ompt_start_tool(unsigned version, const char *runtime)
{
    if (depth++ > 100) { puts("found itself"); exit(77); }
    void *(*next)(unsigned, const char *) = (void *(*)(unsigned, const char *))dlsym(RTLD_NEXT, "ompt_start_tool");
    return next ? next(version, runtime) : 0;
}
int start_runtime(void) { return ompt_start_tool(1, "omp") == 0; }
"""
OMPT_PROGRAM = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
int start_runtime(void);
static void *again(void *first) { return dlsym(RTLD_NEXT, "open") == first && dlsym(RTLD_NEXT, "read") ? first : 0; }
int main(void)
{
    void *first = dlsym(RTLD_NEXT, "open"), *seen;
    pthread_t t;
    if (!first) return 2;
    for (int i = 0; i < 300; i++) if (dlsym(RTLD_NEXT, "open") != first) return 3;
    pthread_create(&t, 0, again, first);
    pthread_join(t, &seen);
    if (seen != first) return 4;
    return start_runtime() ? 30 : 5;
}
"""


class Regression02Next(Case):
    def test_02_rtld_next_means_behind_the_caller(self):
        for level in LEVELS:
            for tail in ([], ["-fno-optimize-sibling-calls"]):
                with self.subTest(level=level, tail=tail):
                    library = vt.compile(OMPT, level, *tail, shared=True, name="libomp")
                    program = vt.compile(OMPT_PROGRAM, level, library, "-Wl,-rpath," + vt.WORK, name="omp")
                    self.assertEqual(self.run_program(program, preload=False, timeout=20).returncode, 30)
                    self.assert_silent(program, timeout=20)


SHIM = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef REAL
int cudnnFoo(int n) { return n + 2; }
int cublasFoo(int n) { return n + 3; }
#else
static int depth;
#define SHIM(name) int name(int n) { \
    if (depth++ > 100) { puts("found itself"); exit(77); } \
    void *h = dlopen(getenv("REAL_LIBRARY"), RTLD_NOW | RTLD_LOCAL); \
    int (*f)(int) = (int (*)(int))dlsym(h, #name); \
    return f ? f(n) : -1; }
SHIM(cudnnFoo)
SHIM(cublasFoo)
#endif
"""
PLUGIN = r"""
#include <cuda_runtime_api.h>
#include <dlfcn.h>
__attribute__((noinline)) int plugin_grab(size_t n) { void *p; return cudaMalloc(&p, n); }
int plugin_free(size_t n) { void *p; return cudaMalloc(&p, n) || cudaFree(p); }
void *plugin_probe(const char *name) { return dlsym(RTLD_DEFAULT, name); }
"""
PLUGIN_HOST = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        void *h = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (!h) { puts(dlerror()); return 1; }
        int (*grab)(size_t) = (int (*)(size_t))dlsym(h, "plugin_grab");
        int (*release)(size_t) = (int (*)(size_t))dlsym(h, "plugin_free");
        void *(*probe)(const char *) = (void *(*)(const char *))dlsym(h, "plugin_probe");
        printf("%d %d ", dlsym(RTLD_DEFAULT, "cudaMalloc") != NULL, probe("cudaMalloc") != NULL);
        printf("%d %d\n", grab(3 << 20), release(1 << 20));
    }
    return 31;
}
"""


DRIVER_PLUGIN = r"""
#include <cuda.h>
int plugin_grab(size_t n)
{
    CUcontext context;
    CUdeviceptr p;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc(&p, n);
}
"""
DRIVER_PLUGIN_HOST = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    void *h = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    int (*grab)(size_t) = (int (*)(size_t))dlsym(h, "plugin_grab");
    int failed = grab(3 << 20);
    char *error = dlerror();
    printf("%d %s\n", failed, error ? error : "none");
    return 32;
}
"""


class Regression03Handles(Case):
    def test_03_shims_that_look_their_own_names_up(self):
        real = vt.compile(SHIM, "-DREAL", shared=True, name="libreal")
        main = ("int cudnnFoo(int), cublasFoo(int);\n"
                "int main(void) { return cudnnFoo(40) == 42 && cublasFoo(40) == 43 ? 32 : 1; }")
        for level in LEVELS:
            with self.subTest(level=level):
                shim = vt.compile(SHIM, level, shared=True, name="libshim")
                program = vt.compile(main, level, shim, name="shimmed")
                self.assert_silent(program, timeout=20, REAL_LIBRARY=real)
                self.assertEqual(self.run_program(program, REAL_LIBRARY=real).returncode, 32)

    def test_03_runtime_of_a_plugin(self):
        """A runtime that only a plugin opened (RTLD_LOCAL) is that plugin's; nobody else finds one."""
        plugins = [vt.compile(PLUGIN, "-lcudart", shared=True, name="plugin_dynamic"),
                   vt.compile(PLUGIN, "-l:libcudart_static.a", "-DSTATIC", shared=True, name="plugin_static")]
        for level in LEVELS:
            with self.subTest(level=level):
                host = vt.compile(PLUGIN_HOST, level, name="plugin_host")
                bare = self.run_program([host, *plugins], preload=False)
                self.assertEqual((bare.returncode, bare.stdout.splitlines()[0]), (31, "0 1 0 0"))
                self.play(host, *plugins, code=31, out=bare.stdout)
                report = self.report()
                self.assertEqual(self.figures(report, "device"), (6, 2, 4, 2))
                self.assertEqual({(s["api"], s["live_bytes"]) for s in self.sites_in(report, "plugin_grab")},
                                 {("cudaMalloc", 3 * MIB), ("cuMemAlloc_v2", 3 * MIB)})
                self.assertEqual(report["failures"], [])
                self.forget()

    def test_03_driver_of_a_plugin(self):
        """A library that is opened (RTLD_LOCAL) with the driver as its dependency: nobody else in the process has one."""
        plugin = vt.compile(DRIVER_PLUGIN, "-lcuda", shared=True, name="plugin_driver")
        for level in LEVELS:
            with self.subTest(level=level):
                self.play(vt.compile(DRIVER_PLUGIN_HOST, level, name="plugin_driver_host"), plugin, code=32, out="0 none\n")
                self.assertEqual(self.figures(self.report(), "device"), (3, 1, 1, 0))
                self.forget()

    def answers(self, text, bare):
        """The lines; which object's scope an error speaks of is left out, as are names of ours asked for by RTLD_NEXT where
        nobody has them: the real dlsym answers those, and from a caller in front of the library it finds the library."""
        kept = []
        for line, original in zip(text.splitlines(), bare.splitlines()):
            ours = re.match(r"next (\w+): NULL", original)
            if not (ours and ours.group(1) in DRIVER + RUNTIME):
                kept.append(re.sub(r"; [^ ;]+: undefined symbol", "; undefined symbol", line))
        return kept + [len(text.splitlines())]

    def test_03_probes_and_dlerror(self):
        """What is not there is not found, and the error text is the one that it always was."""
        driver, runtime = os.path.join(vt.SIM, "libcuda.so.1"), os.path.join(vt.SIM, "libcudart.so.13")
        for level in LEVELS:
            program = build("regr_lookups.c", level)
            for libraries in ([], [driver], [runtime], ["+" + driver], ["+" + runtime], [driver, runtime],
                              ["+" + driver, "+" + runtime]):
                with self.subTest(level=level, libraries=libraries):
                    command = [program, *libraries]
                    bare, under = self.run_program(command, preload=False), self.run_program(command)
                    self.assertEqual((bare.returncode, under.returncode, under.stderr), (24, 24, ""))
                    self.assertEqual(self.answers(under.stdout, bare.stdout), self.answers(bare.stdout, bare.stdout))
                    self.assertIn("default cudaMalloc: NULL", bare.stdout)
                    self.assertEqual(os.listdir(self.dir), [])

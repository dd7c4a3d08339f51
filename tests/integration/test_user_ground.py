"""What a user's first hours brought up: teardown with shallow stacks, relative paths, stale settings, an OOM and then silence."""
import os

import vt

MIB = 1 << 20

LEAK = r"""
#include <cuda_runtime_api.h>
static int __attribute__((noinline)) grab(int mib) { void *p; return cudaMalloc(&p, (size_t)mib << 20); }
int main(void) { return grab(3) || grab(4); }
"""

PLUGIN = r"""
#include <cuda_runtime_api.h>
int __attribute__((noinline)) plug(void) { void *p; return cudaMalloc(&p, 9 << 20); }
"""

HOST = r"""
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    void *h = dlopen(argv[1], RTLD_NOW);
    int (*plug)(void) = h ? (int (*)(void))dlsym(h, "plug") : NULL;
    return argc != 3 || !plug || chdir(argv[2]) || plug();
}
"""

RELOADS = r"""
#include <dlfcn.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    for (int i = 0; i < 600; i++) {
        void *h = dlopen(argv[1], RTLD_NOW);
        int (*plug)(void) = h ? (int (*)(void))dlsym(h, "plug") : NULL;
        if (argc != 2 || !plug || plug() || dlclose(h)) return 9;
    }
    return 0;
}
"""

SILENCE = r"""
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <time.h>
static int __attribute__((noinline)) too_much(void) { void *p; return cudaMalloc(&p, (size_t)1 << 40); }
static int __attribute__((noinline)) give_back(void *p) { return cudaFree(p); }
int main(void)
{
    struct timespec t = {2, 200000000};
    void *p;
    if (cudaMalloc(&p, 5 << 20) || too_much() != cudaErrorMemoryAllocation) return 9;
    nanosleep(&t, NULL);   /* longer than any allocator's retry */
    if (give_back(p)) return 8;
    puts("freed");
    fflush(stdout);
    getchar();             /* and now nothing for ever */
    return 0;
}
"""


class UserGround(vt.Case):
    def test_shallow_stacks_do_not_hide_leaks(self):
        """The runtime's teardown at exit was taken for the program's own when the stack did not reach exit()."""
        for flags in (("-lcudart",), ("-l:libcudart_static.a",)):
            program = vt.compile(LEAK, *flags)
            for options in ({"VRAMTRACK_STACKS": "off"}, {"VRAMTRACK_DEPTH": 1}, {"VRAMTRACK_DEPTH": 2}, {"VRAMTRACK_DEPTH": 5}, {}):
                with self.subTest(flags=flags, **options):
                    self.setUp()
                    done = self.run_program(program, **options)
                    self.assertEqual(done.returncode, 0)
                    self.assertNotIn("given back", done.stderr)
                    total = self.total(self.report(), "device", device=0)
                    self.assertEqual((total["live_bytes"], total["live_count"], total["free_calls"]), (7 * MIB, 2, 0))

    def test_library_opened_by_a_relative_name(self):
        plugin = vt.compile(PLUGIN, "-lcudart", name="plugin", shared=True)
        host = vt.compile(HOST, name="host")
        os.makedirs(os.path.join(self.dir, "away"))
        os.symlink(plugin, os.path.join(self.dir, "plug.so"))
        done = self.run_program([host, "./plug.so", "away"])
        self.assertEqual(done.returncode, 0)
        site, = self.sites_in(self.report(), "plug")
        self.assertEqual(site["live_bytes"], 9 * MIB)
        frame = next(f for f in site["frames"] if f["function"] == "plug")
        self.assertEqual((os.path.basename(frame["file"]), frame["line"]), (os.path.basename(plugin) + ".c", 3))

    def test_plugin_loaded_six_hundred_times(self):
        """Each load is a new generation of what is remembered of callers; none is lost, and the program's runtime is found."""
        plugin = vt.compile(PLUGIN, "-lcudart", name="plugin", shared=True)
        done = self.run_program([vt.compile(RELOADS, "-Wl,--no-as-needed", "-lcudart", name="reloads"), plugin], VRAMTRACK_REPORT="off")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        report = self.report()
        self.assertEqual(self.total(report, "device")["alloc_calls"], 600)
        self.assertEqual({s["api"] for s in self.sites_in(report, "plug")}, {"cudaMalloc"})
        self.assertEqual(sum(s["live_bytes"] for s in self.sites_in(report, "plug")), 600 * 9 * MIB)

    def test_relative_directory_means_where_the_program_started(self):
        host, plugin = vt.compile(HOST, name="host"), vt.compile(PLUGIN, "-lcudart", name="plugin", shared=True)
        os.makedirs(os.path.join(self.dir, "out"))
        os.makedirs(os.path.join(self.dir, "away"))
        done = self.run_program([host, plugin, "away"], VRAMTRACK_DIR="out")
        self.assertEqual((done.returncode, done.stderr.count("no recording")), (0, 0))
        self.assertEqual([n[-4:] for n in sorted(os.listdir(os.path.join(self.dir, "out")))], [".txt", ".vtr"])

    def test_stale_mark_of_a_run_silences_nothing(self):
        for mark in ("x", "999999999", "1"):
            with self.subTest(mark):
                self.setUp()
                done = self.run_program(vt.compile(LEAK, "-lcudart"), VRAMTRACK_RUN=mark)
                self.assertIn("7.00 MiB", done.stderr)

    def test_failure_and_then_silence_is_an_oom(self):
        process = self.start_program(vt.compile(SILENCE, "-lcudart"))
        self.assertEqual(process.stdout.readline(), "freed\n")
        first = process.stderr.readline()      # while the program idles
        self.assertIn("out of memory: cudaMalloc could not get 1.00 TiB", first)
        process.communicate("\n")
        self.assertEqual(process.returncode, 0)
        report = self.report()
        self.assertEqual([(f["kind"], f["count"]) for f in report["failures"]], [("oom", 1)])
        self.assertEqual(self.total(self.report(moment="oom-1"), "device")["live_bytes"], 5 * MIB)

"""JAX's buffers through the PJRT C API, with a plugin of our own (jax_plugin.c) that is loaded as JAX loads its own.

The programs check the plugin's books themselves; here the report is held against the same figures. What real plugins do is
checked on a GPU machine (tests/gpu/jax_exact.py).
"""
import os
import subprocess
import sys

import vt
from regr_case import GIB, MIB, Case, functions

INCLUDE = ["-I", os.path.join(vt.ROOT, "src")]
COPY = [5, 7, 15, 16, 27, 55, 60, 63, 72, 74, 97, 98, 109, 117, 130, 136]  # functions of the table that are replaced


PYTHON = """import ctypes, sys
plugin = ctypes.CDLL(sys.argv[1])
plugin.GetPjrtApi.restype = ctypes.c_void_p
table = (ctypes.c_size_t * 143).from_address(plugin.GetPjrtApi())

def call(function, **words):
    arguments = (ctypes.c_size_t * 16)(128)
    for word, value in words.items():
        arguments[int(word[1:])] = value
    error = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(table[function])(ctypes.addressof(arguments))  # line 10
    assert not error
    return arguments

client = call(15)[8]
dims = (ctypes.c_int64 * 1)(5 << 20)

def batch():
    return call(27, w2=client, w5=ctypes.addressof(dims), w6=1)[14]  # line 18

kept = [batch() for _ in range(3)]
call(63, w2=kept.pop())
"""


class Jax(Case):
    def plugin(self):
        built = vt.compile("jax_plugin.c", *INCLUDE, shared=True)
        return vt.place(built, os.path.join(vt.WORK, "jax"), "xla_fake_plugin.so")

    def scene(self, name, code=0, out="", sanitize=False, **env):
        program = vt.compile("jax_program.c", *INCLUDE, sanitize=sanitize)
        env.setdefault("FAKE_DEVICES", 2)
        env.setdefault("SIM_DEVICES", 2)
        return self.play(program, name, self.plugin(), code=code, out=out, **env)

    def tensors(self, report, kind="device", device=None):
        t = self.total(report, kind, "tensor", device)
        return t["live_bytes"] / MIB, t["live_count"], t["alloc_calls"], t["free_calls"]

    def text(self):
        path, = self.recordings()
        return subprocess.run([vt.COMMAND, "report", path], stdout=subprocess.PIPE, text=True, check=True).stdout

    def test_the_table(self):
        changed = self.scene("table", out=None).split()
        self.assertEqual(changed, [str(i) for i in COPY] + ["of", "143"])
        self.assertEqual(self.recordings(), [])  # asking for the table is no use of CUDA

    def test_buffers(self):
        self.scene("buffers")
        report = self.report()
        self.assertEqual(self.tensors(report, device=0), (1 + 16 + 64 + 128 + 256, 5, 7, 2))
        self.assertEqual(self.tensors(report, device=1), (32, 1, 2, 1))
        self.assertEqual(self.tensors(report, "pinned"), (1 + 2, 2, 2, 0))
        self.assertEqual(self.tensors(report, "imported"), (5, 1, 2, 1))
        self.assertEqual(self.figures(report, "vmm_physical"), (8192, 2, 2, 0))
        self.assertEqual(report["failures"], [])
        self.assertEqual({s["api"] for s in report["sites"] if s["level"] == "tensor"}, {"jax"})
        # memory that changes buffers stays where it was allocated
        host = self.sites_in(report, "from_host")
        self.assertEqual((sum(s["live_bytes"] for s in host), sum(s["live_count"] for s in host)), ((1 + 128 + 256) * MIB, 3))

    def test_donation(self):
        """Donated arguments end before outputs begin: the peak is what the arena held, not twice that. All arguments are
        looked at in the first runs and now and then, later only those that were donated before; and a buffer that is gone
        is asked whether it is when it is destroyed."""
        looked = int(self.scene("donation", out=None))
        report = self.report()
        self.assertEqual(looked, 100 * 2 + 3 + 100 * 2)
        self.assertEqual(self.tensors(report, device=0), (13, 3, 303, 300))
        self.assertEqual(self.total(report, "device", "tensor")["peak_bytes"], 13 * MIB + 4)
        self.assertEqual([(s["live_bytes"], s["alloc_calls"]) for s in self.sites_in(report, "run")], [(12 * MIB, 300)])
        self.assertEqual([a["unknown_frees"] for a in report["allocators"]], [0])

    def test_arguments_that_are_kept(self):
        """The caller forbids the donation in one run of a hundred."""
        self.scene("kept", out=None)
        report = self.report()
        self.assertEqual(self.tensors(report, device=0), (13, 3, 303, 300))
        self.assertEqual(self.total(report, "device", "tensor")["peak_bytes"], 25 * MIB + 4)

    def test_a_donation_that_comes_late(self):
        """An argument that is taken over for the first time long after the first runs ends when it is destroyed."""
        self.scene("late_donation")
        self.assertEqual(self.tensors(self.report(), device=0), (0, 0, 20, 20))

    def test_buffers_of_extensions(self):
        """What was not seen to come is counted when it goes."""
        self.scene("unseen")
        allocator, = self.report()["allocators"]
        self.assertEqual((allocator["unknown_frees"], allocator["unknown_bytes"]), (1, 3 * MIB))

    def test_programs(self):
        self.scene("programs")
        report = self.report()
        self.assertEqual(self.tensors(report, device=0), (8 + 1 + 3, 3, 3, 0))
        self.assertEqual(self.tensors(report, device=1), (8, 1, 1, 0))
        self.assertEqual(self.tensors(report, "pinned"), (2 + 2, 2, 2, 0))
        keys = ("name", "framework", "executables", "loaded", "runs", "temporary_bytes", "output_bytes", "code_bytes")
        self.assertEqual([tuple(p[k] for k in keys) for p in report["programs"]], [
            ("jit_wide", "JAX", 1, 1, 1, 5 * MIB, 10 * MIB, 1000), ("jit_f", "JAX", 2, 1, 2, 7 * MIB, 3 * MIB, 1000)])
        lines = self.text().splitlines()
        start = lines.index("JAX")
        self.assertEqual([line.strip() for line in lines[start + 1:start + 7]], [
            "arena of GPU %d (xla_fake_plugin.so), when last asked: 8.00 MiB in arrays, 0 B in temporaries, constants and "
            "rounding, of 4.00 GiB reserved; largest free block 3.99 GiB" % d for d in (0, 1)] + [
            "temporary memory of compiled programs while they run, as the compiler says:",
            "7.00 MiB  jit_f: 2 runs, arguments 0 B, outputs 3.00 MiB; compiled 2 times, 1 loaded",
            "5.00 MiB  jit_wide: 1 run, arguments 0 B, outputs 10.00 MiB", ""])

    def test_the_arena_refuses(self):
        self.scene("refusals")
        report = self.report()
        keys = ("kind", "api", "count", "requested_bytes", "driver_visible", "allocated_bytes", "reserved_bytes")
        # The second one came three times, from events; what says that shared memory ran out is none
        self.assertEqual([tuple(f[k] for k in keys) for f in report["failures"]], [
            ("framework_oom", "jax", 1, 5000 * MIB, False, 0, 4 * GIB),
            ("framework_oom", "jax", 1, 3206250496, False, 0, 0),
            ("framework_oom", "jax", 1, 6000 * MIB, False, 0, 4 * GIB)])
        self.assertEqual([functions(f["frames"])[0] for f in report["failures"]], ["run", "status", "refusals"])
        self.assertEqual([self.total(report, "device", "tensor", d)["failed_allocs"] for d in (0, 1)], [1, 1])
        self.assertEqual(self.tensors(report), (0, 0, 1, 1))  # the argument was taken although nothing came of it

    def test_one_device_is_meant(self):
        """Later errors don't say where; where there is one GPU, it is meant."""
        self.scene("late", FAKE_DEVICES=1)
        failure, = self.report()["failures"]
        self.assertEqual((failure["kind"], failure["count"], failure["requested_bytes"], failure["reserved_bytes"]),
                         ("framework_oom", 1, 64 * MIB, 4 * GIB))

    def test_the_driver_refuses_on_the_way(self):
        """An arena that may grow asks the driver: its refusal is a retry if the call succeeds, and part of the call's
        refusal if it does not."""
        self.scene("growing", FAKE_DEVICES=1, FAKE_GROWS=1, SIM_TOTAL_MIB=1202)
        report = self.report()
        failures = sorted((f["kind"], f["requested_bytes"] / MIB, f["driver_visible"]) for f in report["failures"])
        self.assertEqual(failures, [("framework_oom", 450, True), ("retry", 1000, True)])

    def test_python(self):
        """A buffer's place is the line of Python, without the native frames below; both where the user asks for both. What
        is live is what was when the program's own code had ended."""
        for stacks, natives in ((None, False), ("both", True)):
            with self.subTest(stacks=stacks):
                env = {"VRAMTRACK_STACKS": stacks} if stacks else {}
                done = self.run_program([sys.executable, "-c", PYTHON, self.plugin()], VRAMTRACK_REPORT="off", **env)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
                report = self.report()
                self.assertEqual(self.tensors(report), (10, 2, 3, 1))
                site, = self.sites_in(report, "batch")
                self.assertEqual((site["live_bytes"], site["alloc_calls"]), (10 * MIB, 3))
                python = [(f["function"], f["line"]) for f in site["frames"] if f["lang"] == "python"]
                self.assertEqual(python[:2], [("call", 10), ("batch", 18)])
                self.assertEqual(any(f["lang"] == "native" for f in site["frames"]), natives)
                self.forget()

    def test_threads(self):
        self.scene("threads", sanitize=True)
        report = self.report()
        t = self.total(report, "device", "tensor")
        self.assertEqual((t["live_bytes"], t["live_count"], t["alloc_calls"], t["free_calls"]), (8 * 128, 8, 64000, 63992))
        self.assertLessEqual(t["peak_bytes"], 8 * (32 + 16 + 64 + 128 + 128))
        program, = report["programs"]
        self.assertEqual(program["runs"], 16000)
        self.assertEqual(program["executables"] - program["loaded"] + 8, program["executables"])

    def test_fork(self):
        self.scene("forks")
        reports = {self.report(path)["process"]["exit_code"]: self.report(path) for path in self.recordings()}
        self.assertEqual(self.tensors(reports[0]), (2, 1, 2, 1))
        self.assertEqual(self.tensors(reports[7]), (10, 2, 2, 0))  # what it had from its parent is not its own
        self.assertEqual([p["runs"] for p in reports[7]["programs"]], [1])

    def test_the_end_of_a_client(self):
        """What it held ends with it; what was known of its programs is not taken for true of later ones."""
        self.scene("clients")
        report = self.report()
        self.assertEqual(self.tensors(report, device=0), (2 + 4 + 3, 5, 9, 0))
        self.assertEqual(report["failures"], [])
        self.assertEqual([(p["name"], p["executables"], p["loaded"], p["runs"]) for p in report["programs"]],
                         [("jit_three", 2, 1, 2), ("jit_one", 1, 0, 1)])

    def plain(self, live, notes, kind="copy", **env):
        """A plugin that is what it says, or is left alone: the program sees no difference."""
        self.forget()
        bare = self.run_program([vt.compile("jax_program.c", *INCLUDE), "plain", self.plugin()], preload=False, **env)
        self.assertEqual((bare.returncode, bare.stdout, bare.stderr), (0, "real\n", ""))
        self.scene("plain", out=kind + "\n", **env)
        report = self.report()
        self.assertEqual(self.tensors(report)[:2], (live, 1 if live else 0))
        self.assertEqual([n for n in report["notes"] if "JAX" in n], notes)
        return report

    def test_other_tables(self):
        def note(why):
            return ["JAX's arrays are not seen, only the memory they are made from: xla_fake_plugin.so: %s." % why]
        self.plain(2, [])
        self.plain(2, [], FAKE_MINOR=400, FAKE_WORDS=512)  # newer, with functions that nobody knows yet
        self.plain(2, [], FAKE_MINOR=40, FAKE_WORDS=100)  # older
        self.plain(2, [], FAKE_WORDS=137)
        self.plain(0, note("PJRT API 1.3 is not known"), "real", FAKE_MAJOR=1, FAKE_MINOR=3)
        self.plain(0, note("PJRT API 0.116 with a table of 69 functions is not known"), "real", FAKE_WORDS=74)
        self.plain(0, note("PJRT API 0.116 with a table of 508 functions is not known"), "real", FAKE_WORDS=513)
        self.plain(0, note("PJRT API 0.116 lacks function 73"), "real", FAKE_LACKS=73)
        self.assertEqual(self.total(self.report(), "vmm_physical")["live_bytes"], 8 * GIB)

    def test_an_older_table_is_not_searched_where_it_was_rearranged(self):
        changed = self.scene("table", out=None, FAKE_MINOR=56).split()
        self.assertEqual(changed, [str(i) for i in COPY if i < 75] + ["of", "143"])

    def test_another_platform(self):
        """A plugin for something else is nobody's business: no file, no output."""
        program = vt.compile("jax_program.c", *INCLUDE)
        for scene in ("buffers", "donation", "refusals", "threads"):
            self.assert_silent([program, scene, self.plugin()], FAKE_PLATFORM="tpu", FAKE_DEVICES=2)

    def test_off(self):
        self.scene("plain", out="real\n", VRAMTRACK_OFF=1)
        self.scene("table", out="of 143\n", VRAMTRACK_OFF=1)
        self.assertEqual(os.listdir(self.dir), [])

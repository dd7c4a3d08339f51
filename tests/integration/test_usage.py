"""Who else holds the card's memory, and what the context took: what NVML says, and how the account adds up with it.

The simulated NVML is told what to say by SIM_NVML_* (tests/sim/README.md).
"""
import json
import os
import re
import signal
import subprocess
import sys

import vt

MIB, GIB = 1 << 20, 1 << 30
TOTAL = 16 * GIB
TRAINER = "4711:trainer:2048"


class Usage(vt.Case):
    def run_mode(self, mode="plain", status=3, shell=None, **env):
        """Bare and under the library: the same status and output. Returns what the library said."""
        program = [vt.compile("usage_program.c", "-lcuda"), mode]
        if shell:
            program = ["/bin/sh", "-c", shell + '; exec "$0" "$1"'] + program
        bare = self.run_program(program, preload=False, **env)
        self.assertEqual((bare.returncode, bare.stderr), (status, ""), bare.stdout)
        under = self.run_program(program, **env)
        self.assertEqual((under.returncode, under.stdout), (status, bare.stdout))
        return under.stderr

    def readings(self, path=None):
        reader = [os.path.join(vt.BUILD, "obj", "recording", name) for name in ("reader.o", "reader_check.o")]
        program = vt.compile("usage_readings.c", "-I", os.path.join(vt.ROOT, "src"), *reader, sanitize=True)
        done = subprocess.run([program, path or self.recordings()[0]], stdout=subprocess.PIPE, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def causes(self, device=0):
        return [r["cause"] for r in self.readings() if r["device"] == device]

    def account(self, device=0, moment=None, path=None):
        """The account of a device, after checking that it adds up to what CUDA offers."""
        d = self.report(path, moment)["devices"][device]
        a = d["account"]
        parts = [v for k, v in a.items() if isinstance(v, int)] + [v for v in a["tensors"].values() if v]
        parts += [x["bytes"] for x in a["libraries"] + a["other_processes"]]
        self.assertEqual(sum(parts), d["total_bytes"], a)
        return a

    def others(self, account):
        return [(p["pid"], p["name"], p["bytes"] // MIB) for p in account["other_processes"]]

    def text(self):
        done = subprocess.run([vt.COMMAND, "report", self.recordings()[0]], stdout=subprocess.PIPE, check=True)
        return done.stdout

    def test_context_and_others(self):
        self.run_mode(SIM_CONTEXT_MIB=420, SIM_NVML_PROCESSES=TRAINER + ",99:small:10", SIM_OTHERS_MIB=64)
        a = self.account()
        self.assertEqual((a["context_and_code"], a["application"]), (420 * MIB, 200 * MIB))
        self.assertEqual(self.others(a), [(4711, "trainer", 2048), (99, "small", 10)])
        self.assertEqual((a["unaccounted"], a["driver_reserved"]), (64 * MIB, 0))
        self.assertEqual(a["free"], TOTAL - (420 + 200 + 2048 + 10 + 64) * MIB)
        report = self.report()
        self.assertEqual(report["process"]["nvml"], "driver 999.1.sim")
        device = report["devices"][0]
        self.assertEqual((device["total_bytes"], device["card_bytes"], device["driver_reserved_bytes"]), (TOTAL, TOTAL + 512 * MIB, 512 * MIB))
        self.assertEqual(self.causes(), ["before", "after", "end"])
        end = self.readings()[-1]
        self.assertEqual((end["own"], end["live"]), (620 * MIB, 200 * MIB))
        lines = self.text().decode().splitlines()
        for line in ("    420.00 MiB  CUDA context and code", "      2.00 GiB  trainer (pid 4711)", "     64.00 MiB  unaccounted",
                     "  (beyond what CUDA offers, the driver reserves another 512.00 MiB)"):
            self.assertIn(line, lines)

    def test_many_others_in_the_text(self):
        self.run_mode(SIM_NVML_PROCESSES=",".join("%d:p%d:%d" % (100 + i, i, 100 - i) for i in range(9)))
        lines = self.text().decode().splitlines()
        named = [line for line in lines if re.search(r"  p\d \(pid 10\d\)$", line)]
        self.assertEqual(len(named), 5, lines)
        self.assertIn("    374.00 MiB  4 more processes", lines)
        self.assertEqual(len(self.account()["other_processes"]), 9)

    def test_more_processes_than_are_kept(self):
        """What the smallest hold is not lost, and a list that is longer than asked for is asked for again."""
        self.run_mode(SIM_NVML_PROCESSES=",".join("%d:p:%d" % (1000 + i, 2 + i) for i in range(150)))
        a = self.account()
        self.assertEqual(len(a["other_processes"]), 63)
        self.assertEqual(a["other_processes"][0]["bytes"], 151 * MIB)
        self.assertEqual(a["context_and_code"], 300 * MIB)
        self.assertEqual(a["unaccounted"], sum(2 + i for i in range(150 - 63)) * MIB)
        self.assertEqual(self.readings()[-1]["more"], 150 - 63)
        self.assertIn(b"  other processes and unaccounted\n", self.text())

    def test_oom(self):
        """At the out-of-memory the account has the failure's free memory, and who held the rest."""
        for mode in ("all", "off"):
            with self.subTest(report=mode):
                self.setUp()
                said = self.run_mode("oom", SIM_NVML_PROCESSES="4711:trainer:12288,99:small:10", VRAMTRACK_REPORT=mode)
                a = self.account(moment="oom-1")
                failure = next(f for f in self.report()["failures"] if f["kind"] == "oom")
                self.assertEqual(failure["free_bytes"], TOTAL - (12288 + 10 + 300 + 200) * MIB)
                self.assertEqual(a["free"], failure["free_bytes"])
                self.assertEqual(self.others(a), [(4711, "trainer", 12288), (99, "small", 10)])
                self.assertEqual((a["context_and_code"], a["unaccounted"], a["application"]), (300 * MIB, 0, 200 * MIB))
                self.assertEqual(self.causes(), ["before", "after", "oom", "end"])
                self.assertEqual([r["moment"] for r in self.readings()], [-1, -1, 0, -1])
                self.assertEqual("vramtrack: trainer (pid 4711) holds 12.00 GiB of it, the most of 2\n" in said, mode == "all", said)

    def test_oom_at_the_very_end(self):
        """A failure that nothing follows is settled when CUDA is gone already: the reading is that of the end."""
        program = [vt.compile("oom_scenarios.c", "-lcuda"), "single"]
        done = self.run_program(program, SIM_NVML_PROCESSES=TRAINER)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(self.causes(), ["before", "after", "end"])
        a = self.account(moment="oom-1")
        self.assertEqual(self.others(a)[0][:2], (4711, "trainer"))
        self.assertEqual(a["context_and_code"], 300 * MIB)

    def test_oom_after_oom(self):
        """Readings are bounded, however often memory runs out."""
        self.run_mode("flood", SIM_NVML_PROCESSES="4711:trainer:4096", VRAMTRACK_REPORT="off")
        causes = self.causes()
        self.assertEqual(sum(f["count"] for f in self.report()["failures"]), 400)
        self.assertTrue(8 <= causes.count("oom") <= 32, causes)
        self.assertEqual(causes[:2] + causes[-1:], ["before", "after", "end"])
        self.assertEqual(self.others(self.account(moment="oom-3")), [(4711, "trainer", 4096)])

    def test_pids_of_another_namespace(self):
        """As in a container: this process is found by what came with its context, and nobody has a name."""
        self.run_mode(SIM_NVML_PROCESSES=TRAINER + ",99:small:10", SIM_NVML_PID=31337)
        a = self.account()
        self.assertEqual((a["context_and_code"], a["unaccounted"]), (300 * MIB, 0))
        self.assertEqual(self.others(a), [(4711, None, 2048), (99, None, 10)])
        self.assertEqual([(r["foreign"], r["own"]) for r in self.readings()], [(1, -1)] * 3)
        self.assertIn(b"      2.00 GiB  another process (pid 4711)\n", self.text())

    def test_somebody_else_under_the_own_pid(self):
        """The host's process of this container's pid: too small to be this one."""
        self.run_mode(SIM_NVML_PID=31337, shell='export SIM_NVML_PROCESSES="$$:wrong:2,4711:trainer:2048"')
        a = self.account()
        self.assertEqual((a["context_and_code"], a["unaccounted"]), (300 * MIB, 0))
        self.assertEqual([(p["name"], p["bytes"] // MIB) for p in a["other_processes"]], [(None, 2048), (None, 2)])

    def test_this_process_is_not_listed(self):
        """Nobody is named then, because it can't be told whose the list is."""
        self.run_mode(SIM_NVML_PROCESSES=TRAINER, SIM_NVML_PID=0)
        a = self.account()
        self.assertEqual((a["context_and_code"], a["other_processes"], a["unaccounted"]), (300 * MIB, [], 2048 * MIB))
        self.assertIn(b"      2.00 GiB  other processes and unaccounted\n", self.text())

    def without_nvml(self):
        """A directory with the driver and the runtime, and no NVML."""
        path = os.path.join(self.dir, "lib")
        os.makedirs(path, exist_ok=True)
        for name in ("libcuda.so.1", "libcudart.so.13"):
            os.symlink(os.path.join(vt.SIM, name), os.path.join(path, name))
        return path

    def assert_unknown(self, others=2048):
        """What the account says without NVML."""
        a = self.account()
        self.assertEqual((a["context_and_code"], a["other_processes"], a["driver_reserved"]), (None, [], None))
        self.assertEqual((a["unaccounted"], a["application"]), ((others + 300) * MIB, 200 * MIB))
        device = self.report()["devices"][0]
        self.assertEqual((device["card_bytes"], device["driver_reserved_bytes"]), (None, None))

    def test_no_nvml(self):
        self.run_mode(SIM_NVML_PROCESSES=TRAINER, LD_LIBRARY_PATH=self.without_nvml())
        self.assert_unknown()
        self.assertIn("libnvidia-ml.so.1", self.report()["process"]["nvml"])

    def test_switched_off(self):
        self.run_mode(SIM_NVML_PROCESSES=TRAINER, VRAMTRACK_NVML=0)
        self.assert_unknown()
        self.assertIsNone(self.report()["process"]["nvml"])
        self.assertEqual(self.readings(), [])

    def test_nvml_fails(self):
        self.run_mode(SIM_NVML_PROCESSES=TRAINER, SIM_NVML_FAIL="nvmlInit_v2:999")
        self.assert_unknown()
        self.assertEqual(self.report()["process"]["nvml"], "nvmlInit_v2: Unknown Error (999)")

    def test_device_is_not_found(self):
        self.run_mode(SIM_NVML_PROCESSES=TRAINER, SIM_NVML_FAIL="nvmlDeviceGetHandleByUUID:6")
        self.assert_unknown()

    def test_no_list_of_processes(self):
        """As in a sandbox: the context is what free memory fell by."""
        self.run_mode(SIM_NVML_PROCESSES=TRAINER,
                      SIM_NVML_FAIL="nvmlDeviceGetComputeRunningProcesses_v3:3,nvmlDeviceGetComputeRunningProcesses_v2:3")
        a = self.account()
        self.assertEqual((a["context_and_code"], a["other_processes"], a["unaccounted"]), (300 * MIB, [], 2048 * MIB))

    def test_no_memory_info(self):
        self.run_mode(SIM_NVML_PROCESSES=TRAINER, SIM_NVML_FAIL="nvmlDeviceGetMemoryInfo_v2:3,nvmlDeviceGetMemoryInfo:3")
        a = self.account()
        self.assertEqual((a["context_and_code"], self.others(a), a["unaccounted"]), (300 * MIB, [(4711, "trainer", 2048)], 0))
        self.assertIsNone(a["driver_reserved"])

    def test_other_shapes_of_nvml(self):
        """Older libraries, drivers with longer entries, both readings of what `used` includes, a process in both lists."""
        old = os.path.join(vt.SIM, "old") + ":" + vt.SIM
        for env in ({"LD_LIBRARY_PATH": old}, {"SIM_NVML_LONG": 1}, {"SIM_NVML_USED": "all"}, {"SIM_NVML_FAIL": "nvmlDeviceGetMemoryInfo_v2:13"},
                    {"SIM_NVML_FAIL": "nvmlSystemGetDriverVersion:3,nvmlDeviceGetGraphicsRunningProcesses_v3:3"}):
            with self.subTest(env):
                self.setUp()
                self.run_mode(SIM_NVML_PROCESSES="4711:x-graphics:2048,99:y:8,98:z:7,97:w:6", **env)
                a = self.account()
                self.assertEqual((a["context_and_code"], a["unaccounted"]), (300 * MIB, 0))
                self.assertEqual(self.others(a), [(4711, "x-graphics", 2048), (99, "y", 8), (98, "z", 7), (97, "w", 6)])
                self.assertEqual(self.report()["devices"][0]["driver_reserved_bytes"], 512 * MIB)

    def test_reserved_part_of_the_total(self):
        self.run_mode(SIM_NVML_PROCESSES=TRAINER, SIM_NVML_RESERVED="inside", SIM_NVML_RESERVED_MIB=700)
        a = self.account()
        self.assertEqual((a["driver_reserved"], a["unaccounted"]), (700 * MIB, 0))
        self.assertEqual(self.report()["devices"][0]["card_bytes"], TOTAL)
        self.assertIn(b"    700.00 MiB  reserved by the driver\n", self.text())

    def test_mig(self):
        self.run_mode(SIM_NVML_PROCESSES=TRAINER, SIM_MIG=1)
        a = self.account()
        self.assertEqual((a["context_and_code"], self.others(a), a["unaccounted"]), (300 * MIB, [(4711, "trainer", 2048)], 0))
        device = self.report()["devices"][0]
        self.assertEqual(device["uuid"], "MIG-" + "73696d75-6c61-7465-642d-6d69672d3030")
        self.assertEqual(device["card_bytes"], TOTAL + 512 * MIB)

    def test_names_are_hostile(self):
        """They are shown escaped and cut, and the JSON is JSON."""
        name = os.fsdecode(b"/usr/bin/\x1b[31mred\n\xff\"<b>" + b"x" * 150)
        self.run_mode("oom", SIM_NVML_PROCESSES="4711:%s:12288" % name)
        text = self.text()
        self.assertIn(b"12.00 GiB  \\x1b[31mred\\x0a\\xff", text)
        self.assertNotIn(b"\x1b[31m", text)
        a = self.account()
        self.assertTrue(a["other_processes"][0]["name"].startswith("\x1b[31mred\n\\xff\"<b>x"), a)
        self.assertLess(len(a["other_processes"][0]["name"]), 80)

    def test_names_from_proc(self):
        """NVML doesn't say, but the kernel does."""
        sleeper = subprocess.Popen(["sleep", "100"])
        self.addCleanup(sleeper.wait)
        self.addCleanup(sleeper.kill)
        self.run_mode(SIM_NVML_PROCESSES="%d::64" % sleeper.pid)
        self.assertEqual([(p["name"], p["bytes"]) for p in self.account()["other_processes"]], [("sleep", 64 * MIB)])

    def test_only_enumerating_asks_nobody(self):
        program = [vt.compile("usage_program.c", "-lcuda"), "enumerate"]
        self.assert_silent(program)
        self.assertEqual(self.run_program(program).stdout, "1 Simulated GPU\n")

    def test_ways_to_end(self):
        """The end is read while CUDA is there, and never from a signal handler."""
        for mode, status, last in (("exit_now", 3, "end"), ("quick", 3, "end"), ("handler", 7, "after"), ("kill", -signal.SIGKILL, "after")):
            with self.subTest(mode):
                self.setUp()
                self.run_mode(mode, status, SIM_NVML_PROCESSES=TRAINER)
                self.assertEqual(self.causes()[-1], last)
                a = self.account()
                self.assertEqual((a["context_and_code"], self.others(a)), (300 * MIB, [(4711, "trainer", 2048)]))
                self.assertEqual((a["unaccounted"], a["free"]), (0, TOTAL - (2048 + 300 + 200) * MIB))

    def test_what_the_program_is_told(self):
        self.run_mode("ask", SIM_NVML_PROCESSES=TRAINER)
        self.assertEqual(self.causes(), ["before", "after", "program", "end"])
        told = self.readings()[2]
        self.assertEqual((told["free"], told["live"], told["own"]), (TOTAL - (2048 + 300 + 200) * MIB, 200 * MIB, -1))

    def test_pools_keep_what_was_freed(self):
        """That is no code of the context."""
        self.run_mode("pool", SIM_NVML_PROCESSES=TRAINER)
        a = self.account()
        self.assertEqual((a["context_and_code"], a["cached_unused"], a["application"], a["unaccounted"]), (300 * MIB, 512 * MIB, 200 * MIB, 0))

    def test_two_devices(self):
        self.run_mode("two", SIM_DEVICES=2, SIM_NVML_PROCESSES="4711:a:2048,4712:b:100:1")
        first, second = self.account(0), self.account(1)
        self.assertEqual((first["context_and_code"], self.others(first), first["application"]), (300 * MIB, [(4711, "a", 2048)], 200 * MIB))
        self.assertEqual((second["context_and_code"], self.others(second), second["application"]), (300 * MIB, [(4712, "b", 100)], 300 * MIB))

    def test_contexts_of_four_threads_at_once(self):
        self.run_mode("threads", SIM_DEVICES=4, SIM_NVML_PROCESSES="4711:a:2048,4712:b:100:3")
        for device in range(4):
            a = self.account(device)
            self.assertEqual((a["context_and_code"], a["application"], a["unaccounted"]), (300 * MIB, 100 * MIB, 0))
        self.assertEqual(self.others(self.account(3)), [(4712, "b", 100)])

    def test_fork(self):
        """A child measures its own context; but not if NVML was in use when it was forked: a lock of it may be held there."""
        for mode, of_child in (("fork_first", ["before", "after", "end"]), ("fork", [])):
            with self.subTest(mode):
                self.setUp()
                self.run_mode(mode, SIM_NVML_PROCESSES=TRAINER)
                found = {}
                for path in self.recordings():
                    a = self.account(path=path)
                    found[a["application"] // MIB] = [r["cause"] for r in self.readings(path)]
                    if found[a["application"] // MIB]:
                        self.assertEqual((a["context_and_code"], self.others(a)), (300 * MIB, [(4711, "trainer", 2048)]))
                self.assertEqual(found, {200: ["before", "after", "end"], 50: of_child})

    def test_context_is_gone_at_the_end(self):
        """Not being in the list any more is no other namespace: this process holds nothing, and the others are the others."""
        for others in (TRAINER, "4711:twin:300"):
            with self.subTest(others):
                self.setUp()
                self.run_mode("reset", SIM_NVML_PROCESSES=others)
                a = self.account(moment="end")
                self.assertEqual((a["context_and_code"], a["application"], a["unaccounted"]), (0, 0, 0))
                self.assertEqual([p["pid"] for p in a["other_processes"]], [4711])

    def test_program_ends_nvml(self):
        self.run_mode("shutdown", SIM_NVML_PROCESSES=TRAINER)
        self.assertEqual(self.causes(), ["before", "after"])
        self.assertEqual(self.others(self.account()), [(4711, "trainer", 2048)])

    def test_finalize(self):
        """What was true when a Python program's own code had ended."""
        path = os.path.join(self.dir, "train.py")
        with open(path, "w") as f:
            f.write("""
import ctypes
cuda = ctypes.CDLL("libcudart.so.13")
class Buffer:
    def __init__(self, size):
        self.p = ctypes.c_void_p()
        assert cuda.cudaMalloc(ctypes.byref(self.p), ctypes.c_size_t(size)) == 0
    def __del__(self, free=cuda.cudaFree):
        free(self.p)
kept = Buffer(64 << 20)
""")
        done = self.run_program([sys.executable, path], SIM_NVML_PROCESSES=TRAINER)
        self.assertEqual(done.returncode, 0, done.stderr)
        causes = self.causes()
        self.assertEqual(causes[:3], ["before", "after", "finalize"])
        a = self.account(moment="finalize")
        self.assertEqual((a["application"], a["context_and_code"], a["unaccounted"]), (64 * MIB, 300 * MIB, 0))
        self.assertEqual(a["free"], TOTAL - (64 + 300 + 2048) * MIB)

"""The VRAMTRACK_* environment: what is accepted, what is complained about, and what each value does."""
import glob
import os

import vt

MIB = 1 << 20


class Options(vt.Case):
    def steps(self, *steps, status=0, **options):
        done = self.run_program([vt.compile("scale_steps.c", "-lcuda")] + list(steps), **options)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        return done.stderr.splitlines()

    def test_bad_values_are_named_once(self):
        """Each with what would be accepted; the default is used."""
        bad = {"VRAMTRACK_DEPTH": ("0", "from 1 to 256"),
               "VRAMTRACK_LIMIT_MB": ("7", "from 8 to 65536"),
               "VRAMTRACK_EVENTS": ("many", "from 0 to 100000000"),
               "VRAMTRACK_STACKS": ("all of them", "auto, both, native, python or off"),
               "VRAMTRACK_REPORT": ("never", "all, oom or off"),
               "VRAMTRACK_OFF": ("yes", "0 or 1")}
        said = self.steps("hold=10", **{name: value for name, (value, _) in bad.items()})
        for name, (value, accepted) in bad.items():
            line, = [s for s in said if name in s]
            self.assertTrue(line.startswith("vramtrack: %s=%s " % (name, value)), line)
            self.assertIn(accepted, line)
            self.assertIn("ignored", line)
        report = self.report()
        self.assertEqual(self.total(report, "device")["live_bytes"], 10 * 4096)
        self.assertEqual(report["sites"][0]["frames"][0]["function"], "hold_memory")
        self.assertTrue([s for s in said if "still allocated, by:" in s], "VRAMTRACK_REPORT kept its default")

    def test_numbers_that_are_none(self):
        for value in ("", " 8", "-1", "0x10", "8.5", "99999999999999999999999"):
            with self.subTest(value):
                self.setUp()
                said = self.steps("hold=1", VRAMTRACK_DEPTH=value, VRAMTRACK_REPORT="off")
                self.assertEqual(len(said), 1, said)
                self.assertIn("VRAMTRACK_DEPTH=", said[0])

    def test_unknown_name_is_named_once(self):
        said = self.steps("hold=10", VRAMTRACK_DETPH="3", VRAMTRACK_REPORT="off")
        self.assertEqual(len(said), 1, said)
        self.assertIn("VRAMTRACK_DETPH", said[0])
        self.assertIn("ignored", said[0])

    def test_nothing_is_said_without_cuda(self):
        done = self.run_program("/bin/true", VRAMTRACK_DETPH="3", VRAMTRACK_DEPTH="x")
        self.assertEqual((done.returncode, done.stderr, os.listdir(self.dir)), (0, "", []))

    def test_off(self):
        self.assertEqual(self.steps("hold=10", VRAMTRACK_OFF="1"), [])
        self.assertEqual(os.listdir(self.dir), [])

    def test_not_off(self):
        self.steps("hold=10", VRAMTRACK_OFF="0")
        self.assertEqual(self.total(self.report(), "device")["live_count"], 10)

    def test_report_modes(self):
        """all: at the end; oom: not without one; off: never. The recording is the same."""
        for mode, told in (("all", True), ("oom", False), ("off", False)):
            with self.subTest(mode):
                self.setUp()
                said = self.steps("hold=10", "end=4", status=4, VRAMTRACK_REPORT=mode)
                self.assertEqual(bool(said), told, said)
                self.assertEqual(len(glob.glob(os.path.join(self.dir, "*.txt"))), int(told))
                self.assertEqual(self.total(self.report(), "device")["live_count"], 10)

    def test_stacks_off(self):
        """No frames, and the same totals."""
        self.steps("sites=50", "hold=10", "managed", VRAMTRACK_STACKS="off")
        report = self.report()
        self.assertEqual([s["frames"] for s in report["sites"]], [[], []])
        self.assertEqual({s["kind"]: (s["live_count"], s["live_bytes"]) for s in report["sites"]}, {"device": (60, 60 * 4096), "managed": (1, 8192)})
        self.assertEqual((self.total(report, "device")["live_bytes"], self.total(report, "managed")["live_bytes"]), (60 * 4096, 8192))

    def test_depth(self):
        self.steps("sites=50", VRAMTRACK_DEPTH="1")
        report = self.report()
        site, = report["sites"]
        self.assertEqual([f["function"] for f in site["frames"]], ["hold_memory"])
        self.assertEqual(site["live_count"], 50)

    def test_depth_cuts_the_outer_frames(self):
        self.steps("sites=50", VRAMTRACK_DEPTH="5")
        report = self.report()
        self.assertEqual({tuple(f["function"] for f in s["frames"]) for s in report["sites"]}, {("hold_memory",) + 4 * ("descend",)})
        self.assertEqual(sum(s["live_count"] for s in report["sites"]), 50)

    def test_few_events(self):
        """The ring's size changes no figure."""
        self.steps("hold=20000", VRAMTRACK_EVENTS="0")
        self.assertEqual(self.total(self.report(), "device")["live_count"], 20000)

    def test_empty_directory_means_here(self):
        self.steps("hold=1", VRAMTRACK_DIR="")
        self.assertEqual(len(self.recordings()), 1)


class PerTensor(vt.Case):
    """`vramtrack run --per-tensor`: what it sets, what it leaves alone, and that it says so."""

    def environment_of(self, *options, **env):
        command = [vt.COMMAND, "run", *options, "--", "sh", "-c", "echo $TF_GPU_ALLOCATOR,$XLA_PYTHON_CLIENT_ALLOCATOR"]
        for name in ("TF_GPU_ALLOCATOR", "XLA_PYTHON_CLIENT_ALLOCATOR"):
            self.assertNotIn(name, os.environ)
        done = self.run_program(command, preload=False, **env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip(), done.stderr.splitlines()

    def test_sets_and_says(self):
        values, said = self.environment_of("--per-tensor")
        self.assertEqual(values, "cuda_malloc_async,platform")
        self.assertEqual(said[:2], ["vramtrack run: --per-tensor: TF_GPU_ALLOCATOR=cuda_malloc_async is set for TensorFlow",
                                    "vramtrack run: --per-tensor: XLA_PYTHON_CLIENT_ALLOCATOR=platform is set for JAX"])
        self.assertEqual(len(said), 3)
        self.assertIn("the program is slower", said[2])

    def test_never_overrides(self):
        values, said = self.environment_of("--per-tensor", TF_GPU_ALLOCATOR="bfc", XLA_PYTHON_CLIENT_ALLOCATOR="")
        self.assertEqual(values, "bfc,")
        self.assertIn("TF_GPU_ALLOCATOR=bfc stays as you set it", said[0])
        self.assertIn("XLA_PYTHON_CLIENT_ALLOCATOR= stays as you set it", said[1])

    def test_says_slower_only_where_it_is(self):
        said = self.environment_of("--per-tensor", TF_GPU_ALLOCATOR="bfc", XLA_PYTHON_CLIENT_ALLOCATOR="bfc")[1]
        self.assertEqual([s.split(": ")[2].split("=")[0] for s in said], ["TF_GPU_ALLOCATOR", "XLA_PYTHON_CLIENT_ALLOCATOR"])
        said = self.environment_of("--per-tensor", TF_GPU_ALLOCATOR="cuda_malloc_async", XLA_PYTHON_CLIENT_ALLOCATOR="bfc")[1]
        self.assertEqual(len(said), 2)
        self.assertIn("the program is slower", said[1])

    def test_same_value_is_not_worth_a_word(self):
        values, said = self.environment_of("--per-tensor", TF_GPU_ALLOCATOR="cuda_malloc_async")
        self.assertEqual(values, "cuda_malloc_async,platform")
        self.assertFalse([s for s in said if "TF_GPU_ALLOCATOR" in s])

    def test_quiet_and_without(self):
        self.assertEqual(self.environment_of("--per-tensor", "-q"), ("cuda_malloc_async,platform", []))
        self.assertEqual(self.environment_of(), (",", []))

"""TensorFlow's tensors without TensorFlow: tensorflow_bfc.cpp stands in for its library.

Python opens it as it opens TensorFlow's (RTLD_LOCAL, by ctypes), so these are Python programs with Python stacks. What the
real library does is checked with tests/gpu/tensorflow_run.
"""
import os
import re
import subprocess
import sys
import unittest

import vt

MIB = 1 << 20

HEAD = '''\
import ctypes, os, sys
tf = ctypes.CDLL(os.environ["TENSORFLOW"])
size_t, pointer = ctypes.c_size_t, ctypes.c_void_p
tf.bfc_new.restype = tf.bfc_take.restype = pointer
tf.bfc_in_use.restype = tf.bfc_threads.restype = size_t
vram = ctypes.CDLL(None)
MIB = 1 << 20
def new(limit=1 << 30, grow=1, name=b"GPU_0_bfc", device=0): return tf.bfc_new(device, size_t(limit), grow, name)
def take(a, n, insist=1): return tf.bfc_take(pointer(a), size_t(n), insist)
def give(a, p): tf.bfc_give(pointer(a), pointer(p))
def in_use(a): return tf.bfc_in_use(pointer(a))
'''


class TensorFlow(vt.Case):
    def library(self, namespace="tsl", sanitize=True):
        built = vt.compile("tensorflow_bfc.cpp", "-fsemantic-interposition", "-O1", "-std=gnu++17", "-DNAMESPACE=" + namespace, "-Wl,-soname,libtensorflow_framework.so.2",
                           "-lcuda", shared=True, sanitize=sanitize)
        return vt.place(built, built[:-3], "libtensorflow_framework.so.2")

    def python(self, text, status=0, namespace="tsl", preload=True, sanitize=True, **env):
        path = os.path.join(self.dir, "train.py")
        with open(path, "w") as f:
            f.write(HEAD + text)
        self.done = self.run_program([sys.executable, path], preload, TENSORFLOW=self.library(namespace, sanitize), **env)
        self.assertEqual(self.done.returncode, status, self.done.stderr)
        return self.done

    def tensors(self, report, device=None):
        return self.total(report, "device", "tensor", device)

    def allocators(self, report):
        return {a["device"]: a for a in report["allocators"] if a["framework"] == "TensorFlow"}

    def assert_no_mismatch(self, report, device=0):
        a = self.allocators(report)[device]
        self.assertEqual((a["mismatches"], a["worst_mismatch_bytes"], a["unknown_frees"]), (0, 0, 0), a)
        self.assertGreater(a["reports"], 0)
        return a

    def text(self):
        path, = self.recordings()
        return subprocess.run([vt.COMMAND, "report", path], stdout=subprocess.PIPE, text=True, check=True).stdout

    def test_tensors_and_lines(self):
        """Bytes as the allocator counts them, by the Python line; the arena itself at the level of the driver."""
        self.python("a = new()\n"
                    "def weights(): return take(a, 1000)\n"
                    "kept = [weights() for _ in range(3)]\n"
                    "for _ in range(5): give(a, take(a, 5 * MIB))\n"
                    "vram.vramtrack_moment(b'now')\n"
                    "print(in_use(a))\n")
        self.assertEqual(self.done.stdout, "3072\n")
        report = self.report(moment="now")
        t = self.tensors(report)
        self.assertEqual((t["live_bytes"], t["live_count"], t["requested_bytes"], t["alloc_calls"], t["free_calls"]),
                         (3072, 3, 3000, 8, 5))
        self.assertEqual(self.total(report, "device")["live_count"], 2)
        site, = [s for s in self.sites_in(report, "weights") if s["level"] == "tensor"]
        self.assertEqual((site["live_bytes"], site["level"], site["api"]), (3072, "tensor", "tensorflow.bfc_allocator"))
        self.assertEqual([f["function"] for f in site["frames"] if f["lang"] == "python"][:2], ["take", "weights"])
        self.assert_no_mismatch(report)

    def test_both_forms_of_the_request(self):
        """The one without attributes calls the other one, and counts once."""
        self.python("a = new()\nkept = [take(a, 256, 2), take(a, 256, 1)]\nvram.vramtrack_moment(b'now')\n")
        self.assertEqual(self.tensors(self.report(moment="now"))["alloc_calls"], 2)

    def test_older_namespace(self):
        """Until 2.10 the class was tensorflow::BFCAllocator: forwarded and booked, without sums."""
        self.python("a = new()\nkept = [take(a, 300) for _ in range(4)]\ngive(a, kept.pop())\nvram.vramtrack_moment(b'now')\nprint(in_use(a))\n",
                    namespace="tensorflow")
        self.assertEqual(self.done.stdout, "1536\n")
        report = self.report(moment="now")
        self.assertEqual(self.tensors(report)["live_bytes"], 1536)
        self.assertEqual(self.allocators(report)[0]["reports"], 0)

    def test_a_wrong_sum_is_told(self):
        self.python("a = new()\nkept = [take(a, 256) for _ in range(9)]\ntf.bfc_lie(pointer(a), ctypes.c_long(4096))\n"
                    "kept += [take(a, 256) for _ in range(9)]\n")
        a = self.allocators(self.report())[0]
        self.assertEqual((a["mismatches"], a["worst_mismatch_bytes"]), (1, 4096))
        self.assertRegex(self.text(), r"TensorFlow's own figure for GPU 0 .* differed in 1 of 5 reports, by up to 4.00 KiB")

    def test_host_allocators_are_left_alone(self):
        self.python("a, b = new(name=b'gpu_host_bfc'), new(name=b'a name that is longer than sixteen characters')\n"
                    "kept = [take(x, 256) for x in (a, b)]\ngive(a, kept[0])\n")
        report = self.report()
        self.assertEqual(self.tensors(report)["alloc_calls"], 0)
        self.assertEqual(self.allocators(report), {})

    def test_device_is_the_drivers(self):
        """The number in the name is TensorFlow's: logical devices share a card, and a card may have another number."""
        self.python("a, b, c = new(name=b'GPU_0_bfc', device=1), new(name=b'GPU_1_bfc', device=1), new(name=b'GPU_2_bfc', device=0)\n"
                    "kept = [take(a, MIB), take(b, 2 * MIB), take(c, 4 * MIB)]\nvram.vramtrack_moment(b'now')\n", SIM_DEVICES=2)
        report = self.report(moment="now")
        self.assertEqual([self.tensors(report, d)["live_bytes"] for d in (0, 1)], [4 * MIB, 3 * MIB])
        for device in (0, 1):
            self.assert_no_mismatch(report, device)

    @unittest.skipIf("clang" in vt.CXX, "clang binds the stand-in's deleting destructor to the complete one inside the library")
    def test_allocator_that_is_destroyed(self):
        """What it still held goes with it; the next one may have its address."""
        self.python("a = new()\nkept = [take(a, MIB) for _ in range(3)]\ntf.bfc_delete(pointer(a))\n"
                    "b = new()\nkept = [take(b, 256)]\nvram.vramtrack_moment(b'now')\n")
        report = self.report(moment="now")
        self.assertEqual((self.tensors(report)["live_bytes"], self.tensors(report)["alloc_calls"]), (256, 4))
        self.assertEqual(self.total(report, "device")["live_count"], 1)

    def test_asking_for_less_is_no_failure(self):
        """The arena is extended by less and less until the driver grants it: a retry, not an out-of-memory."""
        self.python("a = new(limit=2 << 30, grow=0)\np = take(a, 100 * MIB)\nassert p\n", SIM_TOTAL_MIB=1024)
        report = self.report()
        self.assertEqual([f["kind"] for f in report["failures"]], ["retry"])
        self.assertEqual(self.total(report, "device")["alloc_calls"], 1)
        self.assertNotIn("out of memory", self.done.stderr)

    def test_refusal_is_one_failure(self):
        """Both attempts to extend, of several requests to the driver each, and the refusal."""
        done = self.python("a = new(limit=4 << 30)\nkept = [take(a, 100 * MIB) for _ in range(3)]\n"
                           "def attention(): return take(a, 700 * MIB)\n"
                           "assert attention() is None\n", SIM_TOTAL_MIB=1024)
        failure, = [f for f in self.report()["failures"] if f["kind"] != "retry"]
        self.assertEqual((failure["kind"], failure["count"], failure["requested_bytes"], failure["driver_visible"]),
                         ("framework_oom", 1, 700 * MIB, True))
        self.assertEqual(len(re.findall("vramtrack: out of memory: .* could not get 700.00 MiB on GPU 0", done.stderr)), 1, done.stderr)
        self.assertEqual([f["function"] for f in failure["frames"] if f["lang"] == "python"][:2], ["take", "attention"])
        self.assertEqual(self.allocators(self.report())[0]["ooms"], 1)

    def test_refusal_by_its_own_limit(self):
        """No call of the driver fails: the arena is full."""
        done = self.python("a = new(limit=64 * MIB, grow=0)\nkept = take(a, 60 * MIB)\nassert take(a, 8 * MIB) is None\n")
        failure, = self.report()["failures"]
        self.assertEqual((failure["kind"], failure["driver_visible"]), ("framework_oom", False))
        self.assertIn("one arena of 64.00 MiB taken at the start (preallocation), of which 60.00 MiB are in use", done.stderr)

    def test_request_that_may_be_refused(self):
        """retry_on_failure false: the caller does with less, and says so by asking that way."""
        done = self.python("a = new(limit=4 << 30)\nassert take(a, 2000 * MIB, 0) is None\nassert take(a, MIB)\n", SIM_TOTAL_MIB=1024)
        self.assertEqual([f["kind"] for f in self.report()["failures"] if f["kind"] != "retry"], [])
        self.assertNotIn("out of memory", done.stderr)

    def test_nothing_and_null(self):
        self.python("a = new()\nassert take(a, 0) is None\ngive(a, None)\nkept = take(a, 1)\n")
        report = self.report()
        self.assertEqual((self.tensors(report)["alloc_calls"], self.tensors(report)["failed_allocs"]), (1, 0))

    def test_threads(self):
        """Eight at once; the sums are compared only when nobody is inside, and agree then."""
        self.python("a = new(limit=1 << 30)\nprint(tf.bfc_threads(pointer(a), 8, 4000))\nkept = [take(a, 256) for _ in range(3000)]\n"
                    "vram.vramtrack_moment(b'now')\nprint(in_use(a))\n")
        report = self.report(moment="now")
        self.assertEqual(self.tensors(report)["live_bytes"], int(self.done.stdout.split()[1]))
        self.assertEqual(self.tensors(report)["alloc_calls"], 35000)
        self.assert_no_mismatch(report)

    def test_off(self):
        self.python("a = new()\nkept = take(a, 256)\nprint(tf.tfe_run(b'__inference_train_step_7'))\n", VRAMTRACK_OFF="1")
        self.assertEqual((self.done.stdout, self.done.stderr, self.recordings()), ("1\n", "", []))

    def test_same_without_the_library(self):
        text = "a = new()\nkept = [take(a, 300) for _ in range(10)]\ngive(a, kept[0])\nprint(in_use(a), tf.tfe_run(b'x'))\n"
        bare = self.python(text, preload=False, sanitize=False).stdout
        self.assertEqual(self.python(text, sanitize=False).stdout, bare)

    def test_steps(self):
        """The compiled functions of training loops end steps; other operations, and evaluation, do not."""
        self.python("a = new()\nkept = take(a, 256)\n"
                    "for i in range(7): assert tf.tfe_run(b'__inference_one_step_on_iterator_123')\n"
                    "for name in (b'__inference_test_step_4', b'MatMul', b'__inference_predict_step_9', b'__inference_f_2'): assert tf.tfe_run(name)\n"
                    "assert ctypes.c_int.in_dll(tf, 'tfe_executed').value == 11\n")
        self.assertEqual(self.report()["training"]["steps"], 7)

    def test_lookups(self):
        """Who asks the library for its functions gets those, and who asks everybody finds none of ours."""
        self.python("real = ctypes.cast(tf.TFE_Execute, pointer).value\n"
                    "assert not hasattr(vram, 'TFE_Execute')\n"
                    "assert not hasattr(vram, '_ZN3tsl12BFCAllocator13DeallocateRawEPv')\n"
                    "assert ctypes.cast(tf._ZN3tsl12BFCAllocator13DeallocateRawEPv, pointer).value\n")

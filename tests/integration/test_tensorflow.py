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
callback = ctypes.CFUNCTYPE(None)
for f in (tf.tfe_idle_take, tf.tfe_take, tf.tfe_take_again, tf.tfe_take_late, tf.tfe_take_both): f.restype, f.argtypes = pointer, (pointer, size_t)
tf.tfe_call_and_take.restype, tf.tfe_call_and_take.argtypes = pointer, (callback, ctypes.c_int, pointer, size_t)
tf.tfe_throw.argtypes, tf.tfe_take_cuda.argtypes, tf.tfe_take_cuda.restype = (pointer, size_t), (size_t,), size_t
'''
LINE = HEAD.count("\n")  # of the program's own first line, less one

OTHER = """\
#include <cuda.h>
#include <pthread.h>
static void *allocate(void *bytes)
{
    CUcontext context;
    CUdeviceptr p;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    return (void *)(long)cuMemAlloc(&p, (size_t)bytes);
}
int other_take(size_t bytes)
{
    pthread_t t;
    void *result;
    pthread_create(&t, NULL, allocate, (void *)bytes);
    pthread_join(t, &result);
    return result != NULL;
}
"""


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

    # --- what threads of TensorFlow's allocate while Python waits in TFE_Execute ---

    def places(self, report=None, level="tensor"):
        """Of each place that holds something: MiB, [Python's functions and the lines of train.py below HEAD]."""
        sites = (report or self.report(moment="now"))["sites"]
        return sorted([s["live_bytes"] // MIB, [(f["function"], f["line"] - LINE) for f in s["frames"] if f["lang"] == "python"]]
                      for s in sites if s["level"] == level and s["live_bytes"] >= MIB)

    def test_a_worker_allocates_for_the_line_that_waits(self):
        """Both stacks: the worker's native frames, and the Python lines of the caller below them."""
        self.python("a = new()\n"
                    "def layer(): return tf.tfe_take(a, 3 * MIB)\n"
                    "kept = [layer() for _ in range(2)]\n"
                    "kept.append(tf.tfe_take_again(a, 5 * MIB))\n"
                    "vram.vramtrack_moment(b'now')\n")
        report = self.report(moment="now")
        inside = [] if sys.version_info >= (3, 12) else [("<listcomp>", 3)]
        layer, = [s for s in self.sites_in(report, "layer") if s["level"] == "tensor"]
        self.assertEqual(self.places(report), [[5, [("<module>", 4)]], [6, [("layer", 2)] + inside + [("<module>", 3)]]])
        self.assertEqual((layer["alloc_calls"], layer["live_count"]), (2, 2))
        names = [f["function"] for f in layer["frames"]]
        self.assertIn("bfc_take", names)
        self.assertLess(names.index("bfc_take"), names.index("layer"))
        self.assertNotIn("TFE_Execute", names)
        self.assertEqual(sum(s["alloc_calls"] for s in report["sites"] if s["level"] == "tensor"), 4)
        self.assertEqual((self.tensors(report)["alloc_calls"], self.tensors(report)["free_calls"]), (4, 1))
        self.assert_no_mismatch(report)

    def test_so_does_the_arena(self):
        """What the allocator asks the driver for on that thread."""
        self.python("a = new()\nkept = tf.tfe_take(a, 3 * MIB)\nvram.vramtrack_moment(b'now')\n")
        self.assertEqual(self.places(level="driver"), [[3, [("<module>", 2)]]])

    def test_nobody_waits(self):
        """Neither before a call nor after it, when a thread that the operation started goes on."""
        self.python("a = new()\n"
                    "kept = [tf.tfe_idle_take(a, MIB), tf.tfe_take(a, 2 * MIB), tf.tfe_idle_take(a, 4 * MIB), tf.tfe_take_late(a, 8 * MIB)]\n"
                    "vram.vramtrack_moment(b'now')\n")
        places = self.places()
        self.assertEqual([p for p in places if p[1]], [[2, [("<module>", 2)]]])
        self.assertEqual(sum(p[0] for p in places if not p[1]), 13)

    def test_two_wait(self):
        """Nobody can tell whose it is; and the one that stays behind is known again."""
        self.python("import threading\n"
                    "a, kept = new(), []\n"
                    "def one(): kept.append(tf.tfe_take_both(a, MIB))\n"
                    "def two(): kept.append(tf.tfe_take_both(a, 2 * MIB))\n"
                    "t = threading.Thread(target=one); t.start(); two(); t.join()\n"
                    "def other(): kept.append(tf.tfe_take(a, 4 * MIB))\n"
                    "@callback\n"
                    "def meanwhile(): t = threading.Thread(target=other); t.start(); t.join()\n"
                    "kept.append(tf.tfe_call_and_take(meanwhile, 0, a, 8 * MIB))\n"
                    "kept.append(tf.tfe_take(a, 16 * MIB))\n"
                    "vram.vramtrack_moment(b'now')\n")
        places = self.places()
        self.assertEqual([p for p in places if p[1]], [[8, [("<module>", 9)]], [16, [("<module>", 10)]]])
        self.assertEqual(sum(p[0] for p in places if not p[1]), 7)

    def test_calls_nest(self):
        """The innermost counts; a callback on a worker has its own lines."""
        self.python("a, kept = new(), []\n"
                    "@callback\n"
                    "def inner(): kept.append(tf.tfe_take(a, MIB))\n"
                    "def outer(): kept.append(tf.tfe_call_and_take(inner, 0, a, 2 * MIB))\n"
                    "outer()\n"
                    "@callback\n"
                    "def elsewhere(): kept.append(take(a, 4 * MIB))\n"
                    "kept.append(tf.tfe_call_and_take(elsewhere, 1, a, 8 * MIB))\n"
                    "kept.append(tf.tfe_idle_take(a, 16 * MIB))\n"
                    "vram.vramtrack_moment(b'now')\n")
        places = self.places()
        self.assertEqual([places[0], places[1], places[3], places[4]],
                         [[1, [("inner", 3), ("outer", 4), ("<module>", 5)]], [2, [("outer", 4), ("<module>", 5)]], [8, [("<module>", 8)]], [16, []]])
        self.assertEqual([f for f, _ in places[2][1]], ["take", "elsewhere"])

    def test_calls_that_do_not_return(self):
        """An exception, the end of the thread, longjmp: nothing stays counted, and what comes next is known by its own line."""
        self.python("a = new()\n"
                    "assert tf.tfe_throw(a, MIB)\n"
                    "kept = [tf.tfe_idle_take(a, 2 * MIB)]\n"
                    "tf.tfe_exit()\n"
                    "kept.append(tf.tfe_take(a, 4 * MIB))\n"
                    "kept.append(tf.tfe_idle_take(a, 8 * MIB))\n"
                    "tf.tfe_jump()\n"
                    "kept.append(tf.tfe_take(a, 16 * MIB))\n"
                    "kept.append(tf.tfe_idle_take(a, 32 * MIB))\n"
                    "vram.vramtrack_moment(b'now')\n")
        places = self.places()
        self.assertEqual([p for p in places if p[1]], [[1, [("<module>", 2)]], [4, [("<module>", 5)]], [16, [("<module>", 8)]]])
        self.assertEqual(sum(p[0] for p in places if not p[1]), 42)

    def test_refusal_on_a_worker(self):
        """The out-of-memory names the line that waits."""
        done = self.python("a = new(limit=64 * MIB, grow=0)\nkept = take(a, MIB)\n"
                           "def attention(): return tf.tfe_take(a, 700 * MIB)\n"
                           "assert attention() is None\n")
        failure, = self.report()["failures"]
        self.assertEqual((failure["kind"], failure["requested_bytes"]), ("framework_oom", 700 * MIB))
        self.assertEqual([(f["function"], f["line"] - LINE) for f in failure["frames"] if f["lang"] == "python"], [("attention", 3), ("<module>", 4)])
        self.assertIn("bfc_take", [f["function"] for f in failure["frames"]])
        self.assertIn("requested by attention (train.py:%d)" % (LINE + 3), done.stderr)

    def test_the_drivers_own_pool(self):
        """cuda_malloc_async: the tensors are the driver's allocations, and so are the refusals."""
        self.python("a = new()\ndef layer(n): return tf.tfe_take_cuda(n)\n"
                    "kept = layer(3 * MIB)\nassert kept\n"
                    "assert not layer(4096 * MIB)\nvram.vramtrack_moment(b'now')\n", SIM_TOTAL_MIB=1024)
        self.assertEqual(self.places(level="driver"), [[3, [("layer", 2), ("<module>", 3)]]])
        failure, = self.report()["failures"]
        self.assertEqual([(f["function"], f["line"] - LINE) for f in failure["frames"] if f["lang"] == "python"], [("layer", 2), ("<module>", 5)])

    def test_threads_of_other_libraries(self):
        """They may call CUDA meanwhile, and are nobody's business."""
        other = vt.compile(OTHER, "-lcuda", name="other", shared=True)
        self.python("a = new()\nother = ctypes.CDLL(os.environ['OTHER'])\n"
                    "@callback\n"
                    "def meanwhile(): assert not other.other_take(size_t(4 * MIB))\n"
                    "kept = tf.tfe_call_and_take(meanwhile, 0, a, 2 * MIB)\nvram.vramtrack_moment(b'now')\n", OTHER=other)
        self.assertEqual(self.places(level="driver"), [[2, [("<module>", 5)]], [4, []]])

    def test_a_fork_inside(self):
        """The child knows nothing of the call that began before it was."""
        self.python("a, child = new(limit=64 * MIB, grow=0), []\n"
                    "kept = [tf.tfe_take(a, MIB)]\n"
                    "@callback\n"
                    "def fork(): child.append(os.fork())\n"
                    "kept.append(tf.tfe_call_and_take(fork, 0, a, 2 * MIB))\n"
                    "if child[0]: assert os.waitpid(child[0], 0)[1] == 0\n"
                    "kept.append(tf.tfe_take(a, 4 * MIB))\n"
                    "kept.append(tf.tfe_idle_take(a, 8 * MIB))\n"
                    "vram.vramtrack_moment(b'now')\n"
                    "if not child[0]: os._exit(0)\n", VRAMTRACK_REPORT="off")
        child, parent = sorted((self.places(self.report(r, moment="now")) for r in self.recordings()), key=len)
        self.assertEqual(parent, [[1, [("<module>", 2)]], [2, [("<module>", 5)]], [4, [("<module>", 7)]], [8, []]])
        self.assertEqual([p for p in child if p[1]], [[4, [("<module>", 7)]]])
        self.assertEqual(sum(p[0] for p in child if not p[1]), 10)

    def test_a_signal_handler_that_runs_operations(self):
        self.python("a = new()\nkept = [take(a, 256)]\n"
                    "assert tf.tfe_interrupted(20000) >= 100\n"
                    "kept += [tf.tfe_take(a, MIB), tf.tfe_idle_take(a, 2 * MIB)]\nvram.vramtrack_moment(b'now')\n")
        self.assertEqual(self.places(), [[1, [("<module>", 4)]], [2, []]])

    def test_many_wait(self):
        """More threads than there are places, and deeper: all is counted, and nothing is left."""
        self.python("import threading\n"
                    "a, kept = new(), []\n"
                    "def many():\n"
                    "    for _ in range(50): give(a, tf.tfe_take(a, 256))\n"
                    "all = [threading.Thread(target=many) for _ in range(12)]\n"
                    "for t in all: t.start()\n"
                    "for t in all: t.join()\n"
                    "def deeper(n):\n"
                    "    if n: tf.tfe_call_and_take(callback(lambda: deeper(n - 1)), 0, a, 256)\n"
                    "deeper(12)\n"
                    "kept += [tf.tfe_take(a, MIB), tf.tfe_idle_take(a, 2 * MIB)]\nvram.vramtrack_moment(b'now')\n")
        report = self.report(moment="now")
        self.assertEqual(self.places(report), [[1, [("<module>", 11)]], [2, []]])
        self.assertEqual((self.tensors(report)["alloc_calls"], self.tensors(report)["free_calls"]), (614, 600))
        self.assertEqual(self.allocators(report)[0]["mismatches"], 0)

    def test_lookups(self):
        """Who asks the library for its functions gets those, and who asks everybody finds none of ours."""
        self.python("real = ctypes.cast(tf.TFE_Execute, pointer).value\n"
                    "assert not hasattr(vram, 'TFE_Execute')\n"
                    "assert not hasattr(vram, '_ZN3tsl12BFCAllocator13DeallocateRawEPv')\n"
                    "assert ctypes.cast(tf._ZN3tsl12BFCAllocator13DeallocateRawEPv, pointer).value\n")

"""PyTorch's tensors, with stand-ins for its two libraries (torch_case.py): what is recorded of each, and that the exports for it
are nobody's business but PyTorch's. Refusals: test_torch_refused.py; allocators without a cache: test_torch_backends.py.
"""
import os
import shutil
import unittest

import torch_case
import vt

MIB = 1 << 20
FORMS = {"1.6 to 1.9": 0, "1.10 to 2.0": 1, "2.1 and newer": 2, "unreleased": 3}


class Tensors(torch_case.Base):
    BASICS = '''\
def layer(n):
    return malloc(n)                                        # line 2
def step():
    scratch = layer(3 * MIB)                                # line 4
    free(scratch)
other = layer(1000)                                         # line 6
first = layer(5 * MIB)
for i in range(4): step()
free(first)
print(*calls, *last[1:], torch.torch_allocated(0), torch.torch_reserved(0))
os._exit(0)
'''

    def test_every_form_of_the_reports(self):
        """Bytes, counts and lines of every tensor; the real functions get every call, with the same arguments."""
        for name, form in FORMS.items():
            with self.subTest(name):
                self.setUp()
                out = [int(w) for w in self.python(self.BASICS, FORM=form).stdout.split()]
                expected = [0] * 6
                expected[min(form, 2)] = 11
                allocated, reserved = (1024, 22 * MIB) if form else (0, 0)
                self.assertEqual(out[:6], expected)
                self.assertEqual(out[6:10], [-5 * MIB, allocated, reserved, 256])
                self.assertEqual(out[10:], [1024, 22 * MIB])
                report = self.report()
                t = self.tensors(report)
                self.assertEqual((t["live_bytes"], t["live_count"], t["peak_bytes"], t["requested_bytes"]), (1024, 1, 8 * MIB + 1024, 1024))
                self.assertEqual((t["alloc_calls"], t["free_calls"], t["failed_allocs"], t["failed_frees"]), (6, 5, 0, 0))
                self.assertEqual(self.total(report, "device")["live_bytes"], 22 * MIB)
                sites = [s for s in report["sites"] if s["level"] == "tensor"]
                self.assertEqual(sorted((self.lines(s["frames"]), s["alloc_calls"], s["live_bytes"], s["at_peak_bytes"]) for s in sites),
                                 [([2, 4, 8], 4, 0, 3 * MIB), ([2, 6], 1, 1024, 1024), ([2, 7], 1, 0, 5 * MIB)])
                self.assertEqual({s["api"] for s in sites}, {"torch.caching_allocator"})
                self.assertEqual({f["lang"] for s in sites for f in s["frames"]}, {"python"})
                a = self.assert_no_mismatch()
                self.assertEqual((a["reports"], a["base_bytes"], a["sum_bytes"], a["framework"], a["flags"]), (11, 0, 1024, 1, 0))
                self.assertEqual((a["allocated_bytes"], a["reserved_bytes"], a["reserved_peak_bytes"]),
                                 (1024, 22 * MIB, 22 * MIB) if form else (0, 0, 0))
                self.assertEqual(os.path.basename(a["name"]), "libc10_cuda.so")

    def test_stacks_by_mode(self):
        """One language is enough for a tensor, unless both are asked for; a thread without Python has the native one."""
        text = '''\
def grab():
    return malloc(1000)
kept = grab()
torch.torch_pairs_elsewhere(0, size_t(2000), 3)
os._exit(0)
'''
        expected = {"auto": ({"python"}, {"native"}), "both": ({"python", "native"}, {"native"}), "native": ({"native"}, {"native"}),
                    "python": ({"python"}, set()), "off": (set(), set())}
        for mode, (main, elsewhere) in expected.items():
            with self.subTest(mode):
                self.setUp()
                self.python(text, VRAMTRACK_STACKS=mode)
                sites = [s for s in self.report()["sites"] if s["level"] == "tensor"]
                languages = lambda calls: {f["lang"] for s in sites if s["alloc_calls"] in (calls, 4) for f in s["frames"]}
                self.assertEqual((languages(1), languages(3)), (main, elsewhere))
                self.assertEqual(sum(s["alloc_calls"] for s in sites), 4)

    def test_stacks_that_are_recognised(self):
        """Native stacks that come again are known by their return addresses: each still counts for itself."""
        self.python('''\
threads = [threading.Thread(target=torch.torch_ways_elsewhere, args=(i % 2, 1500)) for i in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
os._exit(0)
''')
        calls = {}
        for s in self.report()["sites"]:
            if s["level"] == "tensor":
                names = [f.get("function") for f in s["frames"]]
                way = [n for n in names if n and n.startswith("way_of_")]
                self.assertEqual(len(way), 1, names)
                number, size = calls.get(way[0], (0, 0))
                calls[way[0]] = (number + s["alloc_calls"], size + s["total_bytes"])
        self.assertEqual(calls, {"way_of_one": (8000, 8000 * 1024), "way_of_another": (6000, 6000 * 2048),
                                 "way_of_any_size": (6000, 6000 * 4096)})
        self.assert_no_mismatch()
        self.assert_no_mismatch(1)

    def test_other_devices_and_other_types(self):
        """Each device has its books; what is not CUDA's is nobody's."""
        self.python('''\
a, b = malloc(MIB), None
torch.torch_set(2, 0, 20)
b = malloc(2 * MIB)                        # another kind of device reports through the same function
torch.torch_set(2, 0, 1)
rt = ctypes.CDLL("libcudart.so.13")
rt.cudaSetDevice(1)
c = malloc(3 * MIB, 1)
print(calls[2])
os._exit(0)
''')
        self.assertEqual(self.done.stdout, "3\n")
        report = self.report()
        live = {t["device"]: t["live_bytes"] for t in report["totals"] if t["level"] == "tensor"}
        self.assertEqual(live, {0: MIB, 1: 3 * MIB})
        self.assertEqual(self.allocator(1)["sum_bytes"], 3 * MIB)
        self.assertEqual(self.allocator(0)["reports"], 1)

    def test_what_was_not_seen_is_counted(self):
        """A lost return, a lost request, a block from before, and totals that are not what the reports add up to."""
        self.python('''\
P, Q, R = 0x700000000000, 0x700000001000, 0x700000002000
tell = lambda p, n, change: torch.torch_tell(0, pointer(p), ctypes.c_int64(n), ctypes.c_int64(change))
tell(P, 512, 4096 + 512)                   # it has 4096 bytes that nobody saw
tell(Q, -4096, -4096)                      # and gives them back: no mismatch
tell(R, 1024, 1024)
torch.torch_tell(0, None, ctypes.c_int64(0), ctypes.c_int64(-1024))   # R comes back, but the report is lost
tell(R, 2048, 2048)                        # R again: right again
tell(R, -2048, -2048)
tell(R, -2048, 0)                          # a return of what is not out, of which the totals know nothing
print(torch.torch_allocated(0))
os._exit(0)
''')
        a = self.allocator()
        self.assertEqual(self.done.stdout, "512\n")
        self.assertEqual((a["base_bytes"], a["sum_bytes"], a["allocated_bytes"]), (4096, 2**64 + 512 - 4096, 512))
        self.assertEqual((a["unknown_frees"], a["unknown_bytes"]), (2, 4096 + 2048))
        self.assertEqual((a["mismatches"], a["worst_bytes"], a["reports"]), (0, 0, 6))
        t = self.tensors(self.report())
        self.assertEqual((t["live_bytes"], t["live_count"], t["alloc_calls"], t["free_calls"]), (512, 1, 3, 1))

    def test_a_mismatch_is_not_hidden(self):
        self.python('''\
a = malloc(512)
torch.torch_lie(ctypes.c_int64(1000))
b = malloc(512)
torch.torch_lie(ctypes.c_int64(3000))
free(b)
torch.torch_lie(ctypes.c_int64(0))
b = malloc(512)
os._exit(0)
''')
        a = self.allocator()
        self.assertEqual((a["mismatches"], a["worst_bytes"], a["sum_bytes"], a["reports"]), (2, 3000, 1024, 4))

    def test_replayed_pointers(self):
        """A graph's pool is put into an earlier state: blocks are taken back and handed out again where they were."""
        self.python('''\
a, b = malloc(512), malloc(1024)
tell = lambda p, n: torch.torch_tell(0, pointer(p), ctypes.c_int64(n), ctypes.c_int64(n))
for i in range(3):
    tell(a, -512); tell(b, -1024); tell(b, 1024); tell(a, 512)
os._exit(0)
''')
        t = self.tensors(self.report())
        self.assertEqual((t["live_bytes"], t["live_count"], t["alloc_calls"], t["free_calls"]), (1536, 2, 8, 6))
        self.assert_no_mismatch()

    def test_finalize_is_seen_by_tensors_alone(self):
        """What a script held when its code ended, though nothing at all reaches the driver afterwards."""
        self.python('''\
class Tensor:
    def __init__(self, n):
        self.p = malloc(n)
    def __del__(self, free=free):
        free(self.p)
model = [Tensor(MIB), Tensor(2 * MIB)]
''')
        self.assertEqual(self.tensors(self.report())["live_bytes"], 3 * MIB)
        self.assertEqual(self.tensors(self.report(moment="end"))["live_bytes"], 0)

    def test_a_forked_child_has_no_part_in_it(self):
        """It may free what its parent made (and does, when it ends): no recording, and nothing in the parent's."""
        self.python('''\
a, b = malloc(512), malloc(1024)
if not os.fork():
    free(a)
    os._exit(0)
os.wait()
free(b)
os._exit(0)
''')
        t = self.tensors(self.report())
        self.assertEqual((t["live_bytes"], t["alloc_calls"], t["free_calls"]), (512, 2, 1))
        self.assert_no_mismatch()

    def test_threads(self):
        """Eight threads on two devices; every tensor counted, no total mistaken."""
        self.python('''\
rt = ctypes.CDLL("libcudart.so.13")
def work(device):
    rt.cudaSetDevice(device)
    kept = []
    for i in range(300):
        kept.append(malloc(512 * (1 + i % 7), device))
        if i % 3:
            free(kept.pop(i % len(kept)), device)
    torch.torch_pairs(device, size_t(4096), 2000)
threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(torch.torch_allocated(0), torch.torch_allocated(1))
os._exit(0)
''')
        allocated = [int(w) for w in self.done.stdout.split()]
        report = self.report()
        live = {t["device"]: t["live_bytes"] for t in report["totals"] if t["level"] == "tensor"}
        self.assertEqual([live[0], live[1]], allocated)
        t = self.tensors(report)
        self.assertEqual((t["alloc_calls"], t["free_calls"], t["live_count"]), (8 * 2300, 8 * 2200, 800))
        self.assert_no_mismatch(0), self.assert_no_mismatch(1)

    def test_a_context_takes_no_tensors_with_it(self):
        """What the table of live allocations notes of a tensor is its site's number, of others their context's: up to 9 here."""
        self.python('''\
cuda = ctypes.CDLL("libcuda.so.1")
for again in range(2):
    kept = [malloc(n) for n in (1000, 2000, 3000)]
    again or [free(p) for p in kept]
for i in range(8):
    context = pointer()
    assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer()), size_t(4096)) == 0 and cuda.cuCtxDestroy_v2(context) == 0
print(torch.torch_allocated(0))
[free(p) for p in kept[:2]]
os._exit(0)
''', VRAMTRACK_STACKS="off")
        self.assertEqual(self.done.stdout, "%d\n" % (1024 + 2048 + 3072))
        t = self.tensors(self.report())
        self.assertEqual((t["live_bytes"], t["live_count"], t["alloc_calls"], t["free_calls"]), (3072, 1, 6, 5))
        self.assert_no_mismatch()

    def test_threads_of_a_site(self):
        """Each thread counts where it allocates, also where another one has made the site known before."""
        for stacks in "auto", "off":
            with self.subTest(stacks):
                self.setUp()
                self.python('''\
def work():
    for i in range(20):
        free(malloc(1000))
for i in range(3):
    t = threading.Thread(target=work)
    t.start(), t.join()
os._exit(0)
''', VRAMTRACK_STACKS=stacks)
                site, = [s for s in self.report()["sites"] if s["level"] == "tensor"]
                self.assertEqual((site["alloc_calls"], site["free_calls"], site["threads"]), (60, 60, 3))


class Names(vt.Case):
    """The exports are nobody's business but PyTorch's."""

    PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
static const char *const names[] = {"_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE",
    "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE", "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
    "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE", "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
    "_ZN3c1027reportOutOfMemoryToProfilerEmmmNS_6DeviceE"};
static void look(const char *when, void *handle)
{
    for (int i = 0; i < 6; i++) {
        Dl_info info;
        dlerror();
        void *p = dlsym(handle, names[i]);
        const char *error = dlerror(), *slash;
        if (p && dladdr(p, &info))
            printf("%s %d %s\n", when, i, (slash = strrchr(info.dli_fname, '/')) ? slash + 1 : info.dli_fname);
        else
            printf("%s %d none %d\n", when, i, error != NULL);
    }
}
int main(int argc, char **argv)
{
    look("before", RTLD_DEFAULT);
    look("program", dlopen(NULL, RTLD_NOW));
    void *local = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!local) return puts(dlerror()), 1;
    look("local", RTLD_DEFAULT);
    look("handle", local);
    dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    look("global", RTLD_DEFAULT);
    return 0;
}
"""

    @unittest.skipIf(vt.SAN == "tsan", "a library with TSan in it can't be opened by a program without")
    def test_a_program_without_pytorch_does_not_find_them(self):
        program, place = vt.compile(self.PROGRAM, name="names"), torch_case.libraries()
        command = [program, place + "/libc10.so"]
        bare = self.run_program(command, preload=[vt.SAN_PRELOAD] if vt.SAN else False).stdout.splitlines()
        under = self.run_program(command).stdout.splitlines()
        self.assertEqual(under[:24], bare[:24])  # the pointers, and whether there is an error to ask for
        self.assertEqual(bare[0], "before 0 none 1")
        self.assertEqual(bare[18], "handle 0 libc10.so")
        # What is in the global scope is found where symbols are bound: at the first definition, which is ours.
        self.assertEqual(bare[24:], ["global %d libc10.so" % i for i in range(6)])
        self.assertEqual(under[24:], ["global %d libvramtrack.so" % i for i in range(6)])
        self.assertEqual(self.recordings(), [])

    CALLER = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *, int64_t, uint64_t, uint64_t, uint16_t) __attribute__((weak));
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        void *h = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        uint64_t *calls = dlsym(h, "c10_calls");
        _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((void *)4096, 512, 512 * i, 512, 1);
        printf("%lu ", calls[2]);
        if (dlclose(h)) return 1;
    }
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((void *)4096, 512, 512, 512, 1);
    puts("none");
    return 0;
}
"""

    def test_a_reloaded_library_is_found_again_and_none_is_no_harm(self):
        place = torch_case.libraries()
        second = os.path.join(self.dir, "other")
        os.mkdir(second)
        shutil.copy(place + "/libc10.so", second)
        program = vt.compile(self.CALLER, name="reload")
        done = self.run_program([program, place + "/libc10.so", second + "/libc10.so", place + "/libc10.so"])
        self.assertEqual((done.returncode, done.stdout), (0, "1 1 1 none\n"), done.stderr)

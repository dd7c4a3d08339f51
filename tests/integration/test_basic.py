"""The shortest way through everything: a linked driver program, a recording, a report."""
import vt

PROGRAM = r"""
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <stdlib.h>
CUdeviceptr __attribute__((noinline)) grab(size_t n) { CUdeviceptr p = 0; if (cuMemAlloc_v2(&p, n)) exit(9); return p; }
int main(void)
{
    CUcontext context;
    CUdeviceptr p[10];
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 8;
    for (int i = 0; i < 10; i++) p[i] = grab((i + 1) << 20);
    for (int i = 0; i < 5; i++) if (cuMemFree_v2(p[i])) return 7;
    return 3;
}
"""


class Basic(vt.Case):
    def test_exact_figures(self):
        done = self.run_program(vt.compile(PROGRAM, "-lcuda"))
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        report = self.report()
        self.assertEqual(report["process"]["end"], "exit")
        self.assertEqual(report["process"]["exit_code"], 3)
        total = self.total(report, "device", device=0)
        self.assertEqual(total["live_bytes"], 40 << 20)
        self.assertEqual(total["peak_bytes"], 55 << 20)
        self.assertEqual((total["live_count"], total["alloc_calls"], total["free_calls"]), (5, 10, 5))
        site, = self.sites_in(report, "grab")
        self.assertEqual((site["live_bytes"], site["at_peak_bytes"], site["api"]), (40 << 20, 55 << 20, "cuMemAlloc_v2"))

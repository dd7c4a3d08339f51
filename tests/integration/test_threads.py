"""Many threads, one after another and at once: exact figures, and the number of threads of a site."""
import vt


class Threads(vt.Case):
    def check(self, count, at_once):
        done = self.run_program([vt.compile("threads_many.c", "-lcuda"), str(count), str(at_once)])
        self.assertEqual(done.returncode, 0, done.stderr)
        report = self.report()
        total = self.total(report, "device", device=0)
        live = (count + 9) // 10
        self.assertEqual((total["alloc_calls"], total["free_calls"]), (count, count - live))
        self.assertEqual((total["live_count"], total["live_bytes"]), (live, live * 4096))
        self.assertGreaterEqual(total["peak_bytes"], live * 4096)
        self.assertLessEqual(total["peak_bytes"], (live + at_once) * 4096)
        site, = self.sites_in(report, "from_thread")
        self.assertEqual((site["alloc_calls"], site["live_count"]), (count, live))
        self.assertEqual(site["threads"], min(count, 64))

    def test_few(self):
        self.check(3, 1)

    def test_1000_one_after_another(self):
        self.check(1000, 1)

    def test_1000_200_at_once(self):
        self.check(1000, 200)

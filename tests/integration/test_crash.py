"""SIGKILL at random moments: what a killed process leaves opens, says "killed", and adds up.

The raw records are read here by a second, independent reader (class Raw), whose offsets come from recording.h through a
small compiled program.
"""
import functools
import json
import random
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor

import vt

RUNS = 40 if vt.SAN else 200


@functools.lru_cache(None)
def layout():
    return json.loads(subprocess.run([vt.compile("crash_layout.c")], stdout=subprocess.PIPE, check=True).stdout)


class Raw:
    """A recording's bytes, taken apart with the offsets of recording.h."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read()
        self.number = layout()["number"]

    def field(self, name, base, field):
        at, size = layout()[name][field]
        return int.from_bytes(self.data[base + at:base + at + size], "little", signed=field in ("device", "pid"))

    def header(self, field):
        return self.field("header", 0, field)

    def entry(self, section):
        return layout()["header"]["section"][0] + self.number[section] * layout()["section_entry"]["size"]

    def section(self, section, field):
        return self.field("section_entry", self.entry(section), field)

    def records(self, section):
        """The file offset of each record that lies in the file."""
        first, count, size = (self.section(section, f) for f in ("first", "count", "record_bytes"))
        extents = struct.unpack_from("<%dQ" % self.number["MAX_EXTENTS"], self.data, self.entry(section) + layout()["section_entry"]["extent"][0])
        for e, start in enumerate(extents):
            base = first * ((1 << e) - 1)
            here = min(max(count - base, 0), first << e)
            if start and start + here * size <= len(self.data):
                yield from range(start, start + here * size, size)

    def rows(self, section, name, *fields):
        return [tuple(self.field(name, at, f) for f in fields) for at in self.records(section)]

    def live(self):
        return [s for s in self.rows("LIVE", "slot", "kind", "bytes", "site") if s[0] != self.number["KIND_NONE"]]


class Crash(vt.Case):
    def kill_once(self, operations):
        process = self.start_program([self.program, str(operations)])
        said = process.stdout.readline()
        process.kill()
        _, errors = process.communicate()
        return process.pid, said, process.returncode, errors

    def check(self, path, pid):
        report, raw = self.report(path), Raw(path)
        self.assertEqual((report["process"]["end"], report["process"]["pid"]), ("killed", pid))
        self.assertEqual(raw.header("missed_events"), 0)
        totals = raw.rows("TOTALS", "total", "kind", "device", "live_bytes", "live_count", "alloc_calls", "free_calls")
        slots = raw.live()
        biggest = max([s[1] for s in slots], default=0) or 64 * 4096
        counted, held = sum(t[3] for t in totals), sum(t[2] for t in totals)
        self.assertLessEqual(abs(counted - len(slots)), 8)
        self.assertLessEqual(abs(held - sum(s[1] for s in slots)), 8 * biggest)
        self.assertLessEqual(abs(sum(t[4] - t[5] for t in totals) - counted), 8)
        sites = raw.rows("SITES", "site", "live_count", "live_bytes")
        self.assertLessEqual(abs(sum(s[0] for s in sites) - counted), 8)
        self.assertEqual(sum(t["live_bytes"] for t in report["totals"]), sum(s[1] for s in slots), "the report goes by the slots")
        return len(slots), len({s[0] for s in slots})

    def test_killed_at_random_moments(self):
        self.program = vt.compile("crash_threads.c", "-lcuda")
        layout()
        choose = random.Random(20240229)
        moments = [choose.choice((1, 20, 400, 6000)) + choose.randrange(2000) for _ in range(RUNS)]
        with ThreadPoolExecutor(2) as pool:
            killed = list(pool.map(self.kill_once, moments))
        for pid, said, status, errors in killed:
            self.assertEqual((said, status, errors), ("go\n", -9, ""))
        paths = {int(p.split(".")[-3]): p for p in self.recordings()}
        self.assertEqual(sorted(paths), sorted(k[0] for k in killed))
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda k: self.check(paths[k[0]], k[0]), killed))
        self.assertGreater(sum(slots for slots, _ in found), 10 * RUNS, "the threads held too little for this to mean anything")
        self.assertGreater(max(kinds for _, kinds in found), 4)

"""What the regression tests share: programs that check themselves, and figures of a report in MiB."""
import os
import re
import subprocess

import vt

MIB = 1 << 20
GIB = 1 << 30
LEVELS = ("-O0", "-O2")


def build(source, *flags, **options):
    """As vt.compile, for programs that include regr.h."""
    return vt.compile(source, "-I", os.path.join(vt.ROOT, "src"), *flags, **options)


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def needed_by(file):
    """The libraries that a file names as its dependencies."""
    return re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-dW", file))


def functions(frames):
    return [f["function"] for f in frames]


class Case(vt.Case):
    def play(self, program, *arguments, code=0, out=None, **env):
        """Runs a program that must end with this status and print nothing but `out`."""
        env.setdefault("VRAMTRACK_REPORT", "off")
        done = self.run_program([program, *arguments], timeout=30, **env)
        self.assertEqual((done.returncode, done.stderr), (code, ""), done.stdout)
        if out is not None:
            self.assertEqual(done.stdout, out)
        return done.stdout

    def scene(self, name, **env):
        self.play(build("regr_driver_calls.c", "-lcuda"), name, out="", **env)
        report = self.report()
        self.assertEqual((report["process"]["end"], report["process"]["exit_code"], report["notes"]), ("exit", 0, []))
        return report

    def figures(self, report, kind, device=None):
        """(live MiB, live count, allocations, frees) of a kind."""
        t = self.total(report, kind, device=device)
        return t["live_bytes"] / MIB, t["live_count"], t["alloc_calls"], t["free_calls"]

    def failures(self, report):
        return sorted((f["kind"], f["api"], f["code"], f["requested_bytes"] / MIB, f["count"]) for f in report["failures"])

    def forget(self):
        for name in os.listdir(self.dir):
            os.remove(os.path.join(self.dir, name))

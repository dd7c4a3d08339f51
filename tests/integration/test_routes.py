"""Every entry point of src/preload/cuda/table.h, found by every route that programs use, gives a right report.

The list of entry points is read from the table. route_calls.c calls each one (what it does is in route_driver.h,
route_scenes.h and route_runtime.h), keeps books of its own and prints them; here they are compared with the recorder's
report, line by line: bytes, kind, device, api, count, the calling function, and that the totals hold nothing else. A new
entry point in the table fails test_every_entry_point_has_a_scene until it is given a line there.
"""
import hashlib
import json
import os
import re
import subprocess

import vt

TABLE = os.path.join(vt.ROOT, "src", "preload", "cuda", "table.h")
SOURCES = [TABLE, os.path.join(vt.ROOT, "tests", "sim", "sim_table.h")]
SOURCES += [os.path.join(vt.HERE, n) for n in ("route_driver.h", "route_scenes.h", "route_runtime.h")]


def table(name):
    """The entry points of one table of table.h, in its order."""
    text = re.search(r"#define %s\(X\)(.*?)(?=\n#define|\Z)" % name, open(TABLE).read(), re.S).group(1)
    return re.findall(r"\bX\((\w+)\)", text)


DRIVER, RUNTIME = table("VT_DRIVER_TABLE"), table("VT_RUNTIME_TABLE")


def program(kind):
    key = hashlib.sha1(b"".join(open(f, "rb").read() for f in SOURCES)).hexdigest()[:12]
    flags = ["-I", os.path.join(vt.ROOT, "src"), "-DSOURCES_" + key]
    return vt.compile("route_calls.c", *flags, *{"opened": [], "linked": ["-DLINKED", "-lcuda", "-lcudart"],
                                                 "static": ["-DSTATIC", "-l:libcudart_static.a"]}[kind], name="route_" + kind)


# route: (build, name in route_calls, extra environment)
DRIVER_ROUTES = {
    "linked": ("linked", "linked", {}),
    "dlsym_default": ("linked", "default", {}),
    "dlsym_next": ("linked", "next", {}),
    "dlsym_handle": ("opened", "handle", {}),
    "dlsym_handle_of_a_linked_program": ("linked", "handle", {}),
    "getprocaddress_v1": ("opened", "lookup1", {}),
    "getprocaddress_v2": ("opened", "lookup2", {}),
    "getprocaddress_v2_without_status": ("opened", "lookup2_no_status", {}),
    "getprocaddress_v2_other_flags": ("opened", "lookup2_flags", {}),
    "getprocaddress_v1_from_itself": ("opened", "lookup1_self", {}),
    "getprocaddress_v2_from_itself": ("opened", "lookup2_self", {}),
    "getprocaddress_v2_from_v1": ("opened", "lookup1_to_2", {}),
    "getprocaddress_v2_of_a_linked_program": ("linked", "lookup2_self", {}),
}
RUNTIME_ROUTES = {
    "runtime_linked": ("linked", "linked", {}),
    "runtime_dlsym_default": ("linked", "default", {}),
    "runtime_dlsym_handle": ("opened", "handle", {}),
    "runtime_static": ("static", "linked", {}),
    "runtime_linked_of_cuda_11": ("linked", "linked", {"SIM_CUDART_GPA": "v1"}),
    "runtime_linked_of_an_old_driver": ("linked", "linked", {"SIM_CUDART_GPA": "none"}),
    "runtime_static_of_cuda_11": ("static", "linked", {"SIM_CUDART_GPA": "v1"}),
    "runtime_static_of_an_old_driver": ("static", "linked", {"SIM_CUDART_GPA": "none"}),
}
COUNTED = ("live_bytes", "live_count", "requested_bytes", "alloc_calls", "free_calls")
ZERO = dict.fromkeys(COUNTED + ("failed_allocs", "failed_frees"), 0)


class Routes(vt.Case):
    @classmethod
    def setUpClass(cls):
        env = dict(os.environ, LD_LIBRARY_PATH=vt.SIM)
        env.pop("LD_PRELOAD", None)
        cls.exporter = subprocess.Popen([program("opened"), "export"], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        cls.ipc = cls.exporter.stdout.readline().strip()

    @classmethod
    def tearDownClass(cls):
        cls.exporter.communicate()
        assert cls.exporter.returncode == 0 and len(cls.ipc) == 128

    def play(self, build, *arguments, **env):
        """Runs route_calls; its lines."""
        options = dict(SIM_DEVICES=4, VRAMTRACK_REPORT="off", ROUTE_IPC=self.ipc)
        if vt.SAN == "asan":  # the simulated driver's handles must come back, as they do without the quarantine
            options["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=0:thread_local_quarantine_size_kb=0"
        options.update(env)
        done = self.run_program([program(build), *arguments], **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [json.loads(line) for line in done.stdout.splitlines()]

    def compare(self, lines, direct):
        """The report of the one recording against the books that the program printed."""
        books, refused = [l for l in lines if "alloc_calls" in l], [l for l in lines if "refused" in l]
        report = self.report()
        self.assertEqual((report["process"]["end"], report["process"]["exit_code"], report["notes"]), ("exit", 0, []))
        unexplained = list(report["sites"])
        for line in books:
            with self.subTest(function=line["function"], api=line["api"], device=line["device"]):
                sites = [s for s in self.sites_in(report, line["function"])
                         if all(s[k] == line[k] for k in ("kind", "device", "api"))]
                for k in ("total_bytes", "live_bytes", "alloc_calls", "free_calls", "live_count"):
                    self.assertEqual(sum(s[k] for s in sites), line[k], k)
                for s in sites:
                    self.assertEqual(s["level"], "driver")
                    if direct:
                        self.assertEqual(s["frames"][0]["function"], line["function"])
                    unexplained.remove(s)
        self.assertEqual(unexplained, [])
        self.compare_totals(report, books, refused)
        self.compare_failures(report, refused)

    def compare_totals(self, report, books, refused):
        expected = {}
        for line in books:
            row = expected.setdefault((line["kind"], line["device"]), dict(ZERO))
            for key in COUNTED:
                row[key] += line[key]
        for line in refused:
            expected.setdefault((line["kind"], line["device"]), dict(ZERO))["failed_allocs"] += 1
        found = {(t["kind"], t["device"]): {k: t[k] for k in ZERO} for t in report["totals"]}
        wrong = {k: (found.get(k), expected.get(k)) for k in set(found) | set(expected) if found.get(k) != expected.get(k)}
        self.assertEqual(wrong, {}, "(kind, device): (report, program)")

    def compare_failures(self, report, refused):
        found = sorted((f["api"], f["kind"], f["code"], f["count"], f["requested_bytes"]) for f in report["failures"])
        self.assertEqual(found, sorted((l["refused"], "failed_alloc", l["code"], 1, l["bytes"]) for l in refused))
        for line in refused:
            failure, = [f for f in report["failures"]
                        if (f["api"], f["requested_bytes"]) == (line["refused"], line["bytes"])]
            self.assertIn(line["function"], [f["function"] for f in failure["frames"]])

    def test_every_entry_point_has_a_scene(self):
        covered = set(self.run_program([program("opened"), "list"], preload=False).stdout.split())
        self.assertGreater(len(covered), 60)
        self.assertEqual([n for n in DRIVER + RUNTIME if n not in covered], [], "give these a line in acts[] of "
                         "tests/integration/route_driver.h, scenes[] of route_scenes.h or runtime_acts[] of route_runtime.h")

    def addresses(self, build, route, what, **options):
        return {l["entry"]: (l["object"], l["symbol"], l["offset"]) for l in self.play(build, route, what, **options)}

    def test_lookups_give_the_wrapper_of_that_very_name(self):
        for routes, entries, what in ((DRIVER_ROUTES, DRIVER, "addresses"), (RUNTIME_ROUTES, RUNTIME, "runtime-addresses")):
            for name, (build, route, env) in routes.items():
                if build == "static" or env:
                    continue
                with self.subTest(route=name):
                    found = self.addresses(build, route, what)
                    self.assertEqual({e: found[e][:2] for e in found}, {e: ("libvramtrack.so", e) for e in entries})

    def test_off_substitutes_nothing(self):
        """Switched off, look-ups give what they give without the library, and all scenes run without a trace."""
        for name in ("dlsym_handle", "getprocaddress_v1_from_itself", "getprocaddress_v2_from_itself",
                     "getprocaddress_v2_other_flags"):
            build, route, _ = DRIVER_ROUTES[name]
            with self.subTest(route=name):
                off = self.addresses(build, route, "addresses", VRAMTRACK_OFF=1)
                self.assertEqual(off, self.addresses(build, route, "addresses", preload=False))
                self.assertEqual({e: off[e][:2] for e in off}, {e: ("libcuda.so.1", e) for e in DRIVER})
        off = self.addresses("opened", "handle", "runtime-addresses", VRAMTRACK_OFF=1)
        self.assertEqual(off, self.addresses("opened", "handle", "runtime-addresses", preload=False))
        for build, *what in (("linked", "linked"), ("opened", "lookup2_self"), ("linked", "linked", "runtime"),
                             ("static", "linked", "runtime")):
            with self.subTest(build=build, what=what):
                self.assertEqual(self.play(build, *what, VRAMTRACK_OFF=1), self.play(build, *what, preload=False))
        self.assertEqual(os.listdir(self.dir), [])


def add(routes, arguments):
    for name, (build, route, env) in routes.items():
        def test(self, build=build, route=route, env=env):
            self.compare(self.play(build, route, *arguments, **env), direct=not arguments)
        setattr(Routes, "test_" + name, test)


add(DRIVER_ROUTES, [])
add(RUNTIME_ROUTES, ["runtime"])

"""tests/gpu/carry_wheel: what was split and joined is the same, less what was left out, and damage is noticed."""
import json
import os
import random
import subprocess
import sys
import zipfile

import vt

TOOL = os.path.join(vt.ROOT, "tests", "gpu", "carry_wheel")


class CarryWheel(vt.Case):
    def setUp(self):
        super().setUp()
        self.noise = random.Random(1).randbytes(5 << 19)  # 2.5 MiB that cannot be compressed
        self.files = {"demo/__init__.py": b"value = 7\n", "demo/big.bin": self.noise, "demo/include/a/b.h": b"int b;\n", "demo/tests/t.py": b"",
                      "demo-1.0.data/purelib/extra.py": b"more = 8\n", "demo-1.0.data/scripts/demo": b"#!python\n", "demo-1.0.dist-info/METADATA": b"Name: demo\n"}
        self.wheel = self.make("demo-1.0-py3-none-any.whl", self.files)

    def make(self, name, files):
        path = os.path.join(self.dir, name)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
            for place, content in files.items():
                info = zipfile.ZipInfo(place)
                info.external_attr = 0o100755 << 16 if place.endswith("big.bin") else 0o100644 << 16
                z.writestr(info, content)
        return path

    def tool(self, *words, status=0, **env):
        done = subprocess.run([sys.executable, TOOL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.dir,
                              env=dict(os.environ, **env))
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout + done.stderr

    def split(self, *words, **env):
        return self.tool("split", self.wheel, "--out", "parts", "--part-mib", "1", "--preset", "0", *words, **env)

    def parts(self):
        return sorted(n for n in os.listdir(os.path.join(self.dir, "parts")) if n.startswith("part-"))

    def test_round_trip(self):
        """Parts of the size that was wanted, also where xz is missing; modes are kept; the package can be imported."""
        for path in (os.environ["PATH"], "/nonexistent"):
            with self.subTest(path):
                self.split("--leave-out", "default", PATH=path)
                self.assertEqual(self.parts(), ["part-000", "part-001", "part-002"])
                self.assertEqual([os.path.getsize(os.path.join(self.dir, "parts", p)) for p in self.parts()[:2]], [1 << 20] * 2)
                said = self.tool("join", "parts", "--target", "site")
                self.assertIn("4 files of demo-1.0-py3-none-any.whl in site, all sums right", said)
                found = {os.path.relpath(os.path.join(d, n), os.path.join(self.dir, "site")) for d, _, names in os.walk(os.path.join(self.dir, "site")) for n in names}
                self.assertEqual(found, {"demo/__init__.py", "demo/big.bin", "extra.py", "demo-1.0.dist-info/METADATA"})
                with open(os.path.join(self.dir, "site", "demo", "big.bin"), "rb") as f:
                    self.assertEqual(f.read(), self.noise)
                self.assertEqual(os.stat(os.path.join(self.dir, "site", "demo", "big.bin")).st_mode & 0o777, 0o755)
                done = subprocess.run([sys.executable, "-c", "import demo, extra; print(demo.value, extra.more)"], stdout=subprocess.PIPE, text=True,
                                      env=dict(os.environ, PYTHONPATH=os.path.join(self.dir, "site")))
                self.assertEqual(done.stdout, "7 8\n")
                subprocess.run(["rm", "-r", os.path.join(self.dir, "parts"), os.path.join(self.dir, "site")], check=True)

    def test_left_out_and_kept(self):
        self.split("--leave-out", "demo/*", "--keep", "*/__init__.py")
        with open(os.path.join(self.dir, "parts", "manifest.json")) as f:
            self.assertEqual({f[0] for f in json.load(f)["files"]}, {"demo/__init__.py", "extra.py", "demo-1.0.dist-info/METADATA"})

    def test_parts_may_go_as_they_are_read(self):
        self.split()
        self.tool("join", "parts", "--target", "site", "--remove")
        self.assertEqual(self.parts(), [])

    def test_damage(self):
        self.split()
        path = os.path.join(self.dir, "parts", "part-001")
        with open(path, "r+b") as f:
            f.seek(1000)
            byte = f.read(1)
            f.seek(1000)
            f.write(bytes([byte[0] ^ 1]))
        self.assertIn("part-001 is not what was sent: its SHA-256 sum differs", self.tool("join", "parts", "--target", "site", status=1))
        self.assertFalse(os.path.exists(os.path.join(self.dir, "site")))
        os.unlink(path)
        self.assertIn("part-001 is missing", self.tool("join", "parts", "--target", "site", status=1))

    def test_wrong_input(self):
        plain = os.path.join(self.dir, "plain")
        open(plain, "w").close()
        self.assertIn("plain is no wheel", self.tool("split", plain, "--out", "parts", status=1))
        self.assertIn("--part-mib must be 1 or more", self.tool("split", self.wheel, "--out", "parts", "--part-mib", "0", status=1))
        self.split()
        self.assertIn("parts is not empty", self.tool("split", self.wheel, "--out", "parts", status=1))
        outside = self.make("bad-1.0-py3-none-any.whl", {"../evil.py": b""})
        self.assertIn("a file outside of its own place", self.tool("split", outside, "--out", "bad", status=1))
        other = self.make("other-1.0-py3-none-any.whl", {"demo/__init__.py": b"value = 9\n"})
        self.assertIn("different files demo/__init__.py", self.tool("split", self.wheel, other, "--out", "two", status=1))

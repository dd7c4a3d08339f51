"""What the tests of `vramtrack export` share: a recording of everything, with names that break a format, and the export of it."""
import re
import subprocess

import hostile_names
import torch_case
import vt

MIB = 1 << 20
HOSTILE_FILE = 'a";b\n\x01\u00e9\u202e,c.py'
HOSTILE_FUNCTION = 'f\n"x;y\\z{'
PROGRAM = hostile_names.program(HOSTILE_FILE, HOSTILE_FUNCTION, '''\
torch.torch_empty_cache(0)
work()
cudart.cudaFree(grab(2 * MIB))
os._exit(0)
''')


def clean(text):
    """As names leave: no control characters, nothing that reorders text."""
    return re.sub("[\0-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", lambda c: "".join("\\x%02x" % b for b in c[0].encode()), text)


class Case(torch_case.Base):
    def make(self, program=PROGRAM, **env):
        self.path = hostile_names.record(self, program, **env)

    def make_plain(self, program):
        self.python(program, VRAMTRACK_REPORT="off", VRAMTRACK_STACKS="both")
        self.path, = self.recordings()

    def export(self, format, *options, status=0):
        done = subprocess.run([vt.COMMAND, "export", "--format", format, *options, self.path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        self.assertEqual(done.returncode, status, done.stderr)
        if not status:
            self.assertEqual(done.stderr, b"")
        return done.stdout

    def shown(self, report, level=None):
        """The places that count once: tensors instead of what holds them."""
        memory = [s for s in report["sites"] if s["kind"] not in ("vmm_mapped", "vmm_reserved_va", "imported")]
        if level:
            return [s for s in memory if s["level"] == level]
        return [s for s in memory if s["level"] == "tensor" or not s["holds_tensors"]]

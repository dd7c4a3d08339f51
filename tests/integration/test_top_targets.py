"""vramtrack top: what can be looked at, and what is said of what can't."""
import json
import os
import re

import phase_programs
import test_categories
import top_case
import vt
from top_case import KEYS, Terminal, Top, wait_for


class Targets(Top):
    def test_list(self):
        first, second = self.begin("grow 1024"), self.begin("keep 2048")
        terminal = self.top(width=160, height=40)
        screen = terminal.see(r"^ +%d +1.00 MiB +1.00 MiB +0  top_program" % first.pid, r"^ +%d +2.00 MiB +2.00 MiB +0  top_program" % second.pid)
        pids = [int(m) for m in re.findall(r"^ +(\d+) ", screen, re.M)]
        self.assertEqual(pids, sorted(pids))
        second.tell("keep 1024")
        terminal.see(r"^ +%d +3.00 MiB +3.00 MiB" % second.pid)
        for _ in pids: # others' processes may come and go, so keys are not counted but their effect is looked at
            terminal.keys("Up")
        while not re.search(r"^\x1b\[7m +%d " % second.pid, terminal.tmux("capture-pane", "-p", "-e"), re.M):
            terminal.keys("Down")
            terminal.see("PID  RANK")
        terminal.keys("Enter")
        terminal.see(r"  pid %d on " % second.pid, KEYS, "^   3.00 MiB 100.0%")
        terminal.keys("Escape")
        terminal.see("recorded process", "^q quit  enter look at it")
        terminal.keys("q")
        terminal.over(0)

    def test_recording_and_directory(self):
        program = self.begin("grow 1024")
        for target in (program.recording(), self.dir):
            self.assertIn("\n   1.00 MiB 100.0%       1       - ", self.command("top", "--once", target).stdout)
        self.assertIn("pid %d on" % program.pid, self.command("top", "--once", program.recording()).stdout)

    def test_once_says_what_it_leaves_out(self):
        program = self.begin("grow 1024", "keep 512", "many 1")
        lines = self.command("top", "--once", "--top", "1", program.pid).stdout.splitlines()
        self.assertEqual((lines[-2][:11], lines[-1]), ("   1.00 MiB", " 516.00 KiB in 2 more places"))
        self.assertNotIn(" more place", self.command("top", "--once", "--top", "3", program.pid).stdout)

    def test_rank(self):
        """A world that has no room for the rank is none."""
        for world, said in (("8", "rank 5 of 8"), ("2", "rank 5"), ("0", "rank 5"), (None, "rank 5")):
            program = self.begin("grow 4", RANK="5", **({"WORLD_SIZE": world} if world else {}))
            self.assertRegex(self.command("top", "--once", program.pid).stdout, "  %s  running " % said)
            self.assertRegex(self.command("report", program.recording()).stdout, r"\(pid %d on \S+, %s\): running" % (program.pid, said))

    def test_nothing_there(self):
        empty = os.path.join(self.dir, "empty")
        os.mkdir(empty)
        self.fails("there is no recording in .*/empty", "top", "--once", empty)
        self.fails("No such file", "top", "--once", os.path.join(empty, "x.vtr"))
        self.fails("not a vramtrack recording", "top", "--once", __file__)
        self.fails("process %d is not recorded: it runs without libvramtrack.so" % os.getpid(), "top", os.getpid())
        self.fails("process 2147483647 does not exist", "top", 2147483647)
        idle = self.start_program("cat")
        self.addCleanup(idle.communicate)
        wait_for(lambda: "/libvramtrack.so" in open("/proc/%d/maps" % idle.pid).read() and os.readlink("/proc/%d/exe" % idle.pid).endswith("cat"), "cat")
        self.fails("has the recorder loaded, but no recording: it has not used a GPU yet", "top", idle.pid)

    def test_gone(self):
        program = self.begin("grow 1024")
        os.unlink(program.recording())
        self.fails("writes a recording that was deleted or moved", "top", "--once", program.pid)

    def test_other_formats(self):
        program = self.begin("grow 1024")
        newer = self.dead_copy(program.recording(), lambda h: h.put("major", 3))
        self.fails("written by format version 3, this program reads 2", "top", "--once", newer)
        terminal = self.top(newer)
        terminal.over(2)
        self.assertIn("written by format version 3, this program reads 2", terminal.text())
        later = self.dead_copy(program.recording(), lambda h: h.put("minor", 9))
        self.assertIn("   1.00 MiB", self.command("top", "--once", later).stdout)

    def test_no_terminal(self):
        program = self.begin("grow 1024")
        self.fails("no terminal: --once prints plain text, --json lines", "top", program.pid)
        terminal = Terminal(self, "env TERM=nonsense '%s' top %d" % (vt.COMMAND, program.pid))
        terminal.over(2)
        self.assertIn('the terminal "nonsense" is not known', terminal.text())
        terminal = Terminal(self, "env TERM=dumb '%s' top %d" % (vt.COMMAND, program.pid))
        terminal.over(2)
        self.assertEqual(terminal.text().split("\nstatus")[0].strip(),
                         'vramtrack top: the terminal "dumb" is not known, or cannot be drawn on: --once prints plain text')

    def test_usage(self):
        self.fails("--interval 0: seconds from 0.05", "top", "--interval", "0")
        self.fails("--top 0: a number from 1", "top", "--top", "0")
        self.fails("one process at a time", "top", "1", "2")
        self.fails("unknown option '--frob'", "top", "--frob")
        self.assertEqual(self.command("top", "--help").returncode, 0)


class Tensors(phase_programs.Base, top_case.Case):
    """A training program (PyTorch's stand-ins): tensors for the segments that they lie in, and what they are."""

    def test_training(self):
        self.python('''\
net, adam, x = Net(), AdamW(), None
for step in range(3):
    x = inputs(x)
    free(net(x))
    net.backward(1)
    adam.step()
finish()
''', head=test_categories.HEAD)
        recording, = self.recordings()
        done = self.command("top", "--once", recording, env=dict(os.environ, LC_ALL="C.UTF-8", COLUMNS="200"))
        self.assertRegex(done.stdout, r"^\S+  pid \d+ on \S+  ended: .*  step 3\n")
        self.assertRegex(done.stdout, r"\n      driver [\d.]+ MiB \(peak [\d.]+ MiB\)  tensors 27.00 MiB \(peak 42.00 MiB\)  cached unused 35.00 MiB\n")
        self.assertIn("\n      parameters 6.00 MiB, gradients 6.00 MiB, optimizer 12.00 MiB, inputs 3.00 MiB\n", done.stdout)
        self.assertRegex(done.stdout, r"\n   6.00 MiB  22.2%       2 .*  tensor +malloc \(train.py:\d+\) < Net.__init__.<locals>.<lambda> \(train.py:\d+\)\n")
        line = json.loads(self.command("top", "--once", "--json", recording).stdout)
        report = self.report(recording, "end")
        for key in ("training", "devices", "totals"):
            self.assertEqual(line[key], report[key], key)
        categories = {s["id"]: s["category_bytes"] for s in report["sites"] if s["level"] == "tensor"}
        self.assertEqual({s["id"]: s["category_bytes"] for s in line["sites"]},
                         {s["id"]: categories[s["id"]] for s in line["sites"] if s["id"] in categories})

"""vramtrack snapshot: moments that a running process is asked for."""
import os
import pwd
import subprocess

import top_case
import vt
from top_case import Header, Program, wait_for

KIB = 1024
ROOM = 128  # moments of a recording


class Snapshot(top_case.Case):
    def begin(self, *lines):
        program = Program(self)
        program.tell(*lines)
        return program

    def live(self, program, moment=None):
        return self.total(self.report(program.recording(), moment), "device")["live_bytes"] // KIB

    def start(self, *arguments):
        """A request that waits for an answer; it is in the file when this returns."""
        recording, = self.recordings()
        before = Header(recording).get("request")
        process = subprocess.Popen([vt.COMMAND, "snapshot"] + [str(a) for a in arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        wait_for(lambda: Header(recording).get("request") not in (0, before), "the request in the file")
        return process

    def assert_taken(self, process, name):
        out, err = process.communicate(timeout=top_case.LIMIT)
        self.assertEqual((process.returncode, out, err), (0, name + "\n", ""))

    def test_of_a_busy_process(self):
        program = self.begin("grow 1000", "loop")
        done = self.command("snapshot", program.pid, "first")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "first\n", ""))
        program.tell("grow 24", "loop")
        self.assertEqual(self.command("snapshot", program.pid, "second").stdout, "second\n")
        self.assertIn(self.live(program, "first"), (1000, 1064))  # 64 KiB come and go
        self.assertIn(self.live(program, "second"), (1024, 1088))
        report = self.report(program.recording(), "first")
        self.assertEqual([s["live_bytes"] for s in self.sites_in(report, "grow")], [1000 * KIB])
        self.assertEqual(Header(program.recording()).get("request"), 0)

    def test_the_next_call_takes_it(self):
        """Before it is booked: the moment is what was held when it was asked for."""
        program = self.begin("grow 100")
        process = self.start(program.pid, "waited for")
        program.tell("keep 28")
        self.assert_taken(process, "waited for")
        program.tell("keep 72")
        self.assertEqual((self.live(program, "waited for"), self.live(program)), (100, 200))

    def test_by_the_recording(self):
        program = self.begin("grow 100")
        process = self.start(program.recording(), "x")
        program.tell("drop")
        self.assert_taken(process, "x")
        self.assertEqual((self.live(program, "x"), self.live(program)), (100, 0))

    def test_names(self):
        program = self.begin("grow 100", "loop")
        asked = [None, None, "", "end", "oom-1", "peak", "a name of more than thirty-one bytes", "new\nline \x1b[31m", "x", "x",
                 "\u00e4" * 20]
        names = [self.command("snapshot", program.pid, *([a] if a is not None else [])).stdout for a in asked]
        self.assertEqual(names, ["snapshot-1\n", "snapshot-2\n", "snapshot-3\n", "mark-end\n", "mark-oom-1\n", "mark-peak\n",
                                 "a name of more than thirty-one \n", "new\\x0aline \\x1b[31m\n", "x\n", "x\n", "\u00e4" * 15 + "\n"])
        moments = [m["name"] for m in self.report(program.recording())["moments"]]
        self.assertEqual(sorted(moments), sorted(["end", "peak", "snapshot-1", "snapshot-2", "snapshot-3", "mark-end", "mark-oom-1", "mark-peak",
                                                  "a name of more than thirty-one ", "new\nline \x1b[31m", "x", "\u00e4" * 15]))
        # a name as it is printed can be given back
        self.assertEqual(self.report(program.recording(), "new\\x0aline \\x1b[31m")["moment"], "new\nline \x1b[31m")
        self.assertEqual(self.report(program.recording(), "\\x78")["moment"], "x")
        self.fails("there is no moment", "report", "--moment", "\\x79", program.recording())

    def test_nobody_answers(self):
        program = self.begin("grow 100")
        line = self.fails("no moment was taken within 0.2 s: .*makes no CUDA calls", "snapshot", "--timeout", "0.2", program.pid, "late")
        self.assertIn("vramtrack report %s" % program.recording(), line)
        self.assertEqual(Header(program.recording()).get("request"), 0)  # taken back:
        program.tell("keep 100")
        self.assertEqual([m["name"] for m in self.report(program.recording())["moments"]], ["end", "peak"])

    def test_too_short_to_tell(self):
        """Within less time than passes between two calls, nothing can be said about the process."""
        program = self.begin("grow 100")
        for seconds in ("0", "0.0001"):
            line = self.fails("took no moment within %s s$" % seconds, "snapshot", "--timeout", seconds, program.pid, "late")
            self.assertNotIn("no CUDA calls", line)

    def test_interrupted(self):
        program = self.begin("grow 100")
        process = self.start(program.pid, "late")
        process.terminate()
        self.assertIn("taken back", process.communicate()[1])
        self.assertEqual((process.returncode, Header(program.recording()).get("request")), (2, 0))

    def test_many_at_once(self):
        program = self.begin("grow 100", "loop")
        asking = [subprocess.Popen([vt.COMMAND, "snapshot", str(program.pid), "name %d" % i], stdout=subprocess.PIPE, text=True) for i in range(8)]
        self.assertEqual([p.communicate(timeout=top_case.LIMIT)[0] for p in asking], ["name %d\n" % i for i in range(8)])
        self.assertEqual([p.returncode for p in asking], [0] * 8)
        names = {m["name"] for m in self.report(program.recording())["moments"]}
        self.assertEqual(names, {"end", "peak"} | {"name %d" % i for i in range(8)})

    def test_a_dead_requester(self):
        """Its request is replaced by the next one."""
        program = self.begin("grow 100")
        dead = self.start(program.pid, "of a dead one, with a long name")
        dead.kill()
        dead.communicate()
        process = self.start(program.pid, "next")
        program.tell("keep 28")
        self.assert_taken(process, "next")
        self.assertEqual([m["name"] for m in self.report(program.recording())["moments"]], ["end", "peak", "next"])

    def test_a_dead_requester_alone(self):
        """Its request is answered by the next call, once."""
        program = self.begin("grow 100")
        dead = self.start(program.pid, "left")
        dead.kill()
        dead.communicate()
        program.tell("keep 28", "keep 28")
        self.assertEqual((self.live(program, "left"), self.live(program)), (100, 156))
        self.assertEqual(Header(program.recording()).get("request"), 0)

    def test_garbage(self):
        program = self.begin("grow 100")
        header = Header(program.recording())
        header.write(top_case.NAME, b"\xff" * top_case.NAME_BYTES)
        header.put("answer_moment", 0xffffffff)
        header.put("answer", 0xffffffff)
        header.put("request", 0xffffffff)
        program.tell("keep 28", "keep 28")
        names = [m["name"] for m in self.report(program.recording())["moments"]]
        self.assertEqual(names, ["end", "peak", "\\xff" * (top_case.NAME_BYTES - 1)])
        self.assertEqual((header.get("request"), header.get("answer"), self.live(program)), (0, 0xffffffff, 156))
        program.tell("loop")
        self.assertEqual(self.command("snapshot", program.pid, "x").stdout, "x\n")

    def test_dies_while_it_is_waited_for(self):
        program = self.begin("grow 100")
        process = self.start(program.pid, "x")
        program.kill()
        out, err = process.communicate(timeout=top_case.LIMIT)
        self.assertEqual((process.returncode, out, err.count("\n")), (2, "", 1))
        self.assertIn("ended before it took the moment", err)

    def test_ends_while_it_is_waited_for(self):
        """The end is booked too: that takes it."""
        program = self.begin("grow 100")
        process = self.start(program.pid, "x")
        program.say("exit 0")
        program.process.wait()
        self.assert_taken(process, "x")
        self.assertEqual(self.live(program, "x"), 100)

    def test_no_such_process(self):
        program = self.begin("grow 100")
        recording = program.recording()
        self.fails("is not recorded: it runs without libvramtrack.so", "snapshot", os.getpid())
        program.kill()
        self.fails("process %d does not exist" % program.pid, "snapshot", program.pid)
        self.fails("has ended: its last state is the moment \"end\"", "snapshot", recording)
        self.fails("No such file", "snapshot", os.path.join(self.dir, "nothing.vtr"))
        self.fails("not a vramtrack recording", "snapshot", __file__)

    def test_other_formats(self):
        program = self.begin("grow 100")
        newer = self.dead_copy(program.recording(), lambda h: h.put("major", 3))
        self.fails("written by format version 3, this program reads 2", "snapshot", newer)
        older = self.dead_copy(program.recording(), lambda h: h.put("minor", 3))
        self.fails("older recorder \\(format 2.3\\), which takes no requests", "snapshot", older)

    def test_no_disk(self):
        program = self.begin("grow 100")
        header = Header(program.recording())
        header.put("flags", 1)  # VT_FLAG_NO_SPACE
        self.fails("its disk was full, and no moment gets into", "snapshot", program.pid)
        header.put("flags", 4)  # VT_FLAG_STOPPED
        self.fails("records no more", "snapshot", program.pid)

    def test_not_allowed(self):
        program = self.begin("grow 100")
        recording, user = program.recording(), {}
        os.chmod(self.dir, 0o755)
        if os.geteuid() == 0: # who may write everything
            user = {"user": pwd.getpwnam("nobody").pw_uid, "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}
            self.fails("recording belongs to %s" % pwd.getpwuid(os.geteuid()).pw_name, "snapshot", recording, **user)
            self.fails("is another user's, or protected", "snapshot", program.pid, **user)
        else:
            os.chmod(recording, 0o400)
            self.fails("not writable", "snapshot", recording)

    def test_no_room(self):
        program = self.begin("grow 100", "loop")
        for i in range(ROOM):
            done = self.command("snapshot", program.pid, "m%d" % i)
            self.assertEqual((done.stdout, done.stderr), ("m%d\n" % i, ""))
        self.fails("no room for another moment", "snapshot", program.pid, "one more")
        self.assertEqual(self.command("snapshot", program.pid, "m5").stdout, "m5\n")  # takes the place of the older one

    def test_usage(self):
        self.fails("whose memory", "snapshot")
        self.fails("one process and one name", "snapshot", "1", "a", "b")
        self.fails("--timeout x: seconds from 0 to 86400", "snapshot", "--timeout", "x", "1")
        self.fails("--timeout 0x10: seconds", "snapshot", "--timeout", "0x10", "1")
        self.assertEqual(self.command("snapshot", "--help").returncode, 0)

"""What tensors are to a training program: loops whose truth is known, with PyTorch's stand-ins (phase_programs.py)."""
import subprocess

import phase_programs
import vt

MIB = 1 << 20

HEAD = phase_programs.HEAD + '''\
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from torch.nn.modules.module import Module
from torch.autograd.graph import _engine_run_backward
from torch.optim.adamw import Optimizer
class Net(Module):
    """4 + 2 MiB of parameters; forward saves 3 x 2 MiB for backward and returns 1 MiB."""
    def __init__(self):
        self.parameters = self.to(lambda: [malloc(4 * MIB), malloc(2 * MIB)])
        self.saved, self.grads = [], []
    def forward(self, x):
        scratch = malloc(7 * MIB)
        self.saved += [malloc(2 * MIB) for _ in range(3)]
        free(scratch)
        return malloc(1 * MIB)
    def work(self):
        for size in 4, 2:
            scratch = malloc(9 * MIB)
            if len(self.grads) < 2: self.grads.append(malloc(size * MIB))
            free(scratch)
        while self.saved: free(self.saved.pop())
    def backward(self, threaded=1):
        assert _engine_run_backward(backward, self.work, threaded) == 0
    def zero_grad(self):
        with zero_grad():
            while self.grads: free(self.grads.pop())
class AdamW(Optimizer):
    """12 MiB of state, 5 MiB of temporaries."""
    def __init__(self): self.made = None
    def step(self):
        def state():
            return [] if self.made else [lambda: setattr(self, "made", [malloc(4 * MIB), malloc(8 * MIB)])]
        with optimizer(): super().step(lambda: free(malloc(5 * MIB)), state)
def inputs(old=None):
    x = malloc(3 * MIB)
    if old: free(old)
    return x
'''


class Categories(phase_programs.Base):
    def said(self, moment=None):
        """Categories of a moment in MiB; the one tensor of 512 bytes from the head is left out."""
        return {k: v // MIB for k, v in self.categories(self.report(moment=moment)).items() if v >= MIB}

    def run_it(self, text, **options):
        self.python(text, head=HEAD, **options)

    def test_training(self):
        """Every part, at the turn from forward to backward and after it, in the first step and in a later one; at the peak."""
        self.run_it('''\
net, adam, x, out = Net(), AdamW(), None, None
moment("model")
for step in range(4):
    x = inputs(x)
    new = net(x)
    if out: free(out)
    out = new
    moment("turn %d" % step)
    net.backward(THREADED)
    moment("backward %d" % step)
    adam.step()
    moment("step %d" % step)
    net.zero_grad()
moment("last")
finish()
'''.replace("THREADED", "1"))
        # the output is kept into the next step by the program, so it is no activation
        self.assertEqual(self.said("model"), {"parameters": 6})
        self.assertEqual(self.said("turn 0"), {"parameters": 6, "activations": 6, "inputs": 3, "other": 1})
        self.assertEqual(self.said("backward 0"), {"parameters": 6, "gradients": 6, "inputs": 3, "other": 1})
        self.assertEqual(self.said("step 0"), {"parameters": 6, "gradients": 6, "optimizer": 12, "inputs": 3, "other": 1})
        self.assertEqual(self.said("turn 3"), {"parameters": 6, "activations": 6, "optimizer": 12, "inputs": 3, "other": 1})
        self.assertEqual(self.said("backward 3"), {"parameters": 6, "gradients": 6, "optimizer": 12, "inputs": 3, "other": 1})
        self.assertEqual(self.said("last"), {"parameters": 6, "optimizer": 12, "inputs": 3, "other": 1})
        # highest when the second gradient comes on top of its scratch of 9 MiB, the first gradient and all that was saved
        self.assertEqual(self.said("peak"), {"parameters": 6, "activations": 6, "gradients": 6, "optimizer": 12, "inputs": 3, "other": 10})

    def test_backward_in_the_training_thread(self):
        """Its Python frames say that backward was entered, and nothing of what called it."""
        self.run_it('''\
class Trainer(Module):
    """Everything inside the call of a module, as some frameworks do it."""
    def forward(self):
        global x
        x = inputs(x)
        out = net(x)
        moment("turn")
        net.backward(0)
        moment("backward")
        adam.step()
        free(out)
        net.zero_grad()
net, adam, x = Net(), AdamW(), None
trainer = Trainer()
for step in range(3): trainer()
finish()
''')
        self.assertEqual(self.said("backward"), {"parameters": 6, "gradients": 6, "optimizer": 12, "other": 4})
        self.assertEqual(self.said("turn"), {"parameters": 6, "activations": 6, "optimizer": 12, "other": 4})

    def test_accumulation(self):
        """Several backwards per step: the gradients stay, what each forward saved does not."""
        self.run_it('''\
net, adam, x = Net(), AdamW(), None
for step in range(3):
    for part in range(3):
        x = inputs(x)
        out = net(x)
        free(out)
        moment("turn %d" % part)
        net.backward()
    adam.step()
    net.zero_grad()
finish()
''')
        self.assertEqual(self.said("turn 0"), {"parameters": 6, "activations": 6, "optimizer": 12, "inputs": 3})
        self.assertEqual(self.said("turn 2"), {"parameters": 6, "activations": 6, "gradients": 6, "optimizer": 12, "inputs": 3})
        site = [s for s in self.report()["sites"] if s["category"] == "inputs"]
        self.assertEqual([self.fates(s) for s in site], [(0, 0, 6, 2)])

    def test_checkpointing(self):
        """What forward does again inside backward are activations too, at their own time."""
        self.run_it('''\
class Block(Module):
    def forward(self): return malloc(8 * MIB)
block = Block()
def work():
    again = block()                                         # computed again, for as long as it is needed
    moment("inside")
    net.work()
    free(again)
net, adam, x = Net(), AdamW(), None
for step in range(3):
    x = inputs(x)
    free(net(x))
    assert _engine_run_backward(backward, work, 1) == 0
    adam.step()
    net.zero_grad()
finish()
''')
        self.assertEqual(self.said("inside"), {"parameters": 6, "activations": 14, "optimizer": 12, "inputs": 3})

    def test_closure(self):
        """Forward and backward inside the optimizer's step."""
        self.run_it('''\
net, adam, x = Net(), AdamW(), None
def closure():
    out = net(x)
    moment("turn")
    net.zero_grad()
    net.backward()
    free(out)
for step in range(3):
    x = inputs(x)
    with optimizer():
        closure()
        Optimizer.step(adam, lambda: free(malloc(5 * MIB)),
                       lambda: [] if adam.made else [lambda: setattr(adam, "made", [malloc(4 * MIB), malloc(8 * MIB)])])
finish()
''')
        self.assertEqual(self.said("turn"), {"parameters": 6, "activations": 6, "gradients": 6, "optimizer": 12, "inputs": 3, "other": 1})

    def test_first_step_fails(self):
        """Out of memory in the first forward: nothing has ended yet, the stacks have to do."""
        self.run_it('''\
net, adam = Net(), AdamW()
x = inputs()
torch.torch_limit(0, size_t(40 * MIB))
net.forward = lambda x: (net.saved.append(malloc(2 * MIB)), malloc(100 * MIB))
print(net(x)[1])
finish()
''')
        self.assertEqual(self.done.stdout, "None\n")
        self.assertEqual(self.said("oom-1"), {"parameters": 6, "activations": 2, "inputs": 3})

    def test_validation_without_no_grad(self):
        """What is saved for a backward that never comes, and kept: activations, though nothing ever ended."""
        self.run_it('''\
net, adam, x = Net(), AdamW(), None
for step in range(3):
    x = inputs(x)
    free(net(x)); net.backward(); adam.step(); net.zero_grad()
class Evaluator(Module):
    def forward(self): return malloc(5 * MIB)
evaluator = Evaluator()
kept = [evaluator() for _ in range(4)]
moment("validated")
finish()
''')
        self.assertEqual(self.said("validated"), {"parameters": 6, "activations": 20, "optimizer": 12, "inputs": 3})

    def test_unknown(self):
        """A buffer of the program's own, made before the model: nothing says what it is."""
        self.run_it('''\
buffer = malloc(11 * MIB)
net, adam, x = Net(), AdamW(), None
for step in range(3):
    x = inputs(x)
    free(net(x)); net.backward(); adam.step(); net.zero_grad()
moment("trained")
finish()
''')
        self.assertEqual(self.said("trained"), {"parameters": 6, "unknown": 11, "optimizer": 12, "inputs": 3})

    def test_without_python(self):
        """No stacks at all: all of forward is one place, of which little can be said; phases still tell the rest."""
        self.run_it('''\
net, adam, x, out = Net(), AdamW(), None, None
for step in range(4):
    x = inputs(x)
    new = net(x)
    if out: free(out)
    out = new
    moment("turn")
    net.backward()
    adam.step()
    net.zero_grad()
finish()
''', VRAMTRACK_STACKS="off")
        said = self.said("turn")
        self.assertEqual((said["optimizer"], "gradients" in said), (12, False))

    def test_account(self):
        """The account of the card has the same sums."""
        self.run_it('''\
net, adam, x = Net(), AdamW(), None
for step in range(3):
    x = inputs(x)
    free(net(x))
    moment("turn")
    net.backward()
    adam.step()
    net.zero_grad()
finish()
''')
        tensors = self.report(moment="turn")["devices"][0]["account"]["tensors"]
        self.assertEqual({k: v // MIB for k, v in tensors.items()},
                         {"parameters": 6, "gradients": 0, "optimizer": 12, "activations": 6, "inputs": 3, "other": 0})

    def test_account_at_the_peak(self):
        """At the end the training's tensors are gone; the text says what they were when there was most of them."""
        self.run_it('''\
net, adam, x = Net(), AdamW(), None
for step in range(3):
    x = inputs(x)
    free(net(x))
    net.backward()
    adam.step()
    net.zero_grad()
for p in net.parameters: free(p)
finish()
''')
        done = subprocess.run([vt.COMMAND, "report", self.recordings()[0]], stdout=subprocess.PIPE, text=True, check=True)
        line, = [l for l in done.stdout.splitlines() if "highest point" in l]
        tensors = self.report(moment="peak")["devices"][0]["account"]["tensors"]
        self.assertEqual({k: v // MIB for k, v in tensors.items() if v},
                         {"optimizer": 12, "other": 9, "activations": 6, "parameters": 6, "gradients": 6, "inputs": 3})
        self.assertEqual(line, "  tensors at their highest point: 42.00 MiB; optimizer state 12.00 MiB, other tensors 9.00 MiB, parameters "
                               "6.00 MiB, gradients 6.00 MiB, activations 6.00 MiB, inputs 3.00 MiB")

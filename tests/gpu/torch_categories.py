#!/usr/bin/env python3
"""What the report says tensors are, against what the training script itself knows, byte by byte.

    tests/gpu/torch_categories.py [--build DIR] [--keep DIR] [--only WORD] [--device cpu]

Each scenario trains a model in a child process under the library, in the plain way that scripts do. At some moments the
child names a moment and adds up what it knows: parameters and buffers, .grad, the optimizer's state, tensors saved for
backward (torch.autograd.graph.saved_tensors_hooks), the batch. The report of that moment must say the same within 1 %.
On a GPU a tensor counts as much as its block in PyTorch's allocator. torchvision and transformers are used if they are
there, else models of the same structure. Prints one PASS, FAIL or SKIP line per scenario.

--device cpu needs no GPU: a library in front of the recorder makes tensors on the CPU pass for tensors of a GPU (small
models; PyTorch's CPU backward runs in the training thread, so this is no replacement for a run on a GPU).
"""
import argparse
import ctypes
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build")
parser.add_argument("--keep", help="leave recordings and reports here")
parser.add_argument("--only", default="")
parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
parser.add_argument("--child", help=argparse.SUPPRESS)
args = parser.parse_args()
BUILD = os.path.abspath(args.build)
LIBRARY, COMMAND = os.path.join(BUILD, "libvramtrack.so"), os.path.join(BUILD, "vramtrack")
LIMIT = 0.01
STEPS, SMALL = 6, args.device == "cpu"

MODELS = ["resnet50", "gpt2", "bert"]
WAYS = ["sgd", "adamw-foreach", "adamw-fused", "amp", "accumulate", "checkpoint", "outputs-kept", "ddp", "fsdp", "fsdp1"]
SCENARIOS = ["%s/%s" % (m, w) for m in MODELS for w in WAYS]

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#define REPORT _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
#define TEXT(name) TEXT_(name)
#define TEXT_(name) #name
bool _ZN3c1022memoryProfilingEnabledEv(void) { return true; }
void REPORT(void *block, int64_t bytes, uint64_t allocated, uint64_t reserved, uint64_t device)
{
    static int64_t total;
    void (*next)(void *, int64_t, uint64_t, uint64_t, uint64_t) = dlsym(RTLD_NEXT, TEXT(REPORT));
    allocated = reserved = (uint64_t)__atomic_add_fetch(&total, bytes, __ATOMIC_RELAXED);
    next(block, bytes, allocated, reserved, (device & 0xff) == 0 ? 1 : device);
}
"""


# --- the child: a training script, and what it knows ---


def child():
    import torch
    from torch import nn

    device = torch.device(args.device)
    moment = ctypes.CDLL(None).vramtrack_moment
    moment.restype, moment.argtypes = None, [ctypes.c_char_p]
    name, way = args.child.split("/")
    torch.manual_seed(0)
    if device.type == "cpu":
        torch.set_num_threads(2)

    def blocks():
        """Size of each live block of the allocator, by address."""
        if device.type == "cpu":
            return None
        found = {}
        for segment in torch.cuda.memory_snapshot():
            address = segment["address"]
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    found[address] = block["size"]
                address += block["size"]
        return found

    class Sum:
        """Adds up storages, each once."""

        def __init__(self):
            self.sizes, self.seen = blocks(), set()

        def __call__(self, tensors):
            total = 0
            for t in tensors:
                t = getattr(t, "_local_tensor", t)  # this rank's part of a sharded one
                address, size = t if isinstance(t, tuple) else (t.untyped_storage().data_ptr(), t.untyped_storage().nbytes())
                if not address or address in self.seen:
                    continue
                self.seen.add(address)
                if self.sizes is not None:
                    size = self.sizes.get(address, 0)
                total += size
            return total

    # models

    class Attention(nn.Module):
        def __init__(self, width, heads, causal):
            super().__init__()
            self.heads, self.causal = heads, causal
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x):
            b, s, w = x.shape
            q, k, v = self.qkv(x).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            return self.out(y.transpose(1, 2).reshape(b, s, w))

    class Block(nn.Module):
        def __init__(self, width, heads, causal):
            super().__init__()
            self.n1, self.n2, self.a = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width, heads, causal)
            self.up, self.down, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(0.1)

        def forward(self, x):
            x = x + self.drop(self.a(self.n1(x)))
            return x + self.drop(self.down(nn.functional.gelu(self.up(self.n2(x)))))

    class Transformer(nn.Module):
        def __init__(self, vocabulary, positions, width, layers, heads, causal):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
            self.blocks = nn.ModuleList(Block(width, heads, causal) for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
            self.head.weight = self.tokens.weight
            self.checkpointing = False

        def forward(self, ids):
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
            return self.head(self.norm(x))

    class Bottleneck(nn.Module):
        def __init__(self, inside, width, stride):
            super().__init__()
            out = 4 * width
            self.layers = nn.Sequential(nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                        nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                        nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
            self.short = None if inside == out and stride == 1 else nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            y = self.layers(x)
            y += x if self.short is None else self.short(x)
            return self.relu(y)

    def resnet():
        try:
            import torchvision
            return torchvision.models.resnet50(), "torchvision"
        except ImportError:
            parts, inside = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
            for width, depth, stride in (64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2):
                for i in range(depth):
                    parts.append(Bottleneck(inside, width, stride if i == 0 else 1))
                    inside = 4 * width
            return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)), "own"

    def gpt2():
        layers, width = (4, 256) if SMALL else (12, 768)
        try:
            import transformers
            config = transformers.GPT2Config(n_layer=layers, n_embd=width, n_head=width // 64, vocab_size=8192 if SMALL else 50257)
            return transformers.GPT2LMHeadModel(config), "transformers"
        except ImportError:
            return Transformer(8192 if SMALL else 50257, 1024, width, layers, width // 64, True), "own"

    def bert():
        layers, width = (4, 256) if SMALL else (12, 768)
        try:
            import transformers
            config = transformers.BertConfig(num_hidden_layers=layers, hidden_size=width, num_attention_heads=width // 64,
                                             intermediate_size=4 * width, vocab_size=8192 if SMALL else 30522)
            return transformers.BertForMaskedLM(config), "transformers"
        except ImportError:
            return Transformer(8192 if SMALL else 30522, 512, width, layers, width // 64, False), "own"

    model, origin = {"resnet50": resnet, "gpt2": gpt2, "bert": bert}[name]()
    if device.type == "cpu":  # to(device) would copy nothing: let it make the parameters
        model.to(torch.float64).to(torch.float32)
    model.to(device)
    if way == "checkpoint":
        if hasattr(model, "gradient_checkpointing_enable"):
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            model.config.use_cache = False
        elif hasattr(model, "checkpointing"):
            model.checkpointing = True
        else:
            for stage in (model.layer1, model.layer2, model.layer3, model.layer4) if hasattr(model, "layer1") else [model]:
                for i, block in enumerate(list(stage)):
                    if type(block).__name__ == "Bottleneck":
                        inner = block.forward
                        block.forward = lambda x, inner=inner: torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False)
    model.train()
    module = model
    if way in ("ddp", "fsdp", "fsdp1"):
        rendezvous = tempfile.mkdtemp(prefix="vt-ddp-")
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", init_method="file://%s/store" % rendezvous,
                                             rank=0, world_size=1)
        if way == "ddp":
            module = nn.parallel.DistributedDataParallel(model)
        elif way == "fsdp1":
            module = torch.distributed.fsdp.FullyShardedDataParallel(model, device_id=device if device.type == "cuda" else None)
        else:
            from torch.distributed.fsdp import fully_shard
            mesh = torch.distributed.device_mesh.init_device_mesh(device.type, (1,))
            for part in list(model.modules())[1:]:
                if isinstance(part, nn.ModuleList):
                    for block in part:
                        fully_shard(block, mesh=mesh)
            fully_shard(model, mesh=mesh)
    # FSDP2 shows the gathered parameters between forward and backward. What a rank owns are its parts, and these stay.
    own = [getattr(p, "_local_tensor", p) for p in module.parameters()] if way == "fsdp" else None
    optimizer = (torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9) if way == "sgd" else
                 torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True) if way == "adamw-fused" else
                 torch.optim.AdamW(module.parameters(), lr=1e-4, foreach=True))
    scaler = torch.amp.GradScaler(device.type, enabled=way == "amp" and device.type == "cuda")
    half = torch.float16 if device.type == "cuda" else torch.bfloat16
    criterion = nn.CrossEntropyLoss()
    micro = 4 if way == "accumulate" else 1

    def batch():
        if name == "resnet50":
            n, size = (4, 96) if SMALL else (64, 224)
            x, y = torch.randn(n // micro, 3, size, size), torch.randint(0, 1000, (n // micro,))
        else:
            n, length = (4, 128) if SMALL else (8, 512)
            x = torch.randint(0, 8192, (n // micro, length))
            y = x.clone()
        return (x + 0, y + 0) if device.type == "cpu" else (x, y)

    def forward(x, y, keep):
        out = module(x, labels=y) if origin == "transformers" else module(x)
        if origin == "transformers":
            return out.loss, (out if keep else None)
        return criterion(out.reshape(-1, out.shape[-1]), y.reshape(-1)), (out if keep else None)

    truth = {}

    def state():
        for s in optimizer.state.values():
            for value in s.values():
                if torch.is_tensor(value) and value.device.type == device.type:
                    yield value

    def tensors_in(value, depth=0):
        """The tensors that an output holds, whatever kind of container it is."""
        if torch.is_tensor(value):
            yield value
        elif depth < 8:
            parts = (value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else
                     vars(value).values() if hasattr(value, "__dict__") and not isinstance(value, type) else ())
            for part in parts:
                yield from tensors_in(part, depth + 1)

    def tell(moment_name, saved, held, kept):
        add = Sum()
        facts = {"parameters": add((own or list(module.parameters())) + list(module.buffers())),
                 "gradients": add(p.grad for p in module.parameters() if p.grad is not None),
                 "optimizer": add(state()), "inputs": add(held)}
        add(tensors_in(kept))  # what the program keeps beyond backward is no activation (docs/categories.md)
        if not way.startswith("fsdp"):  # saves gathered parameters as well, and frees them behind autograd's back
            facts["activations"] = add(saved)
        facts["allocated"] = torch.cuda.memory_allocated() if device.type == "cuda" else None
        moment(moment_name.encode())
        truth[moment_name] = facts

    kept = None
    for step in range(STEPS):
        watched = {0: "first", STEPS - 2: "later"}.get(step)
        for part in range(micro):
            x, y = batch()
            if device.type == "cuda":
                x = x.to(device, non_blocking=True)
                y = y.to(device, non_blocking=True)
            saved = []

            def pack(t):
                saved.append((t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()))
                return t

            watch = watched and part == micro - 1
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t) if watch else torch.enable_grad():
                with torch.autocast(device.type, dtype=half, enabled=way == "amp"):
                    loss, kept = forward(x, y, way == "outputs-kept")
            if watch:
                tell(watched + "-turn", saved, [x, y], kept)
            del saved
            scaler.scale(loss / micro).backward()
        if watched:
            tell(watched + "-backward", [], [x, y], None)
        scaler.step(optimizer)
        scaler.update()
        if watched:
            tell(watched + "-step", [], [x, y], None)
        optimizer.zero_grad()
    if device.type == "cuda":
        torch.cuda.synchronize()
    if way in ("ddp", "fsdp", "fsdp1"):
        torch.distributed.destroy_process_group()
        shutil.rmtree(rendezvous, True)
    print(json.dumps({"truth": truth, "origin": origin, "torch": torch.__version__}))


# --- the parent ---


class Failed(Exception):
    pass


def report(path, moment):
    done = subprocess.run([COMMAND, "report", "--json", path, "--moment", moment], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode or done.stderr:
        raise Failed("vramtrack report: %s" % done.stderr.strip())
    return json.loads(done.stdout)


def categories(said):
    out = {}
    for site in said["sites"]:
        for category, size in (site.get("category_bytes") or {}).items():
            out[category] = out.get(category, 0) + size
    return out


def scenario(name, directory):
    preload = [LIBRARY]
    if args.device == "cpu":
        shim = os.path.join(directory, "shim.so")
        source = os.path.join(directory, "shim.c")
        with open(source, "w") as f:
            f.write(SHIM)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl"], check=True)
        preload.insert(0, shim)
    env = dict(os.environ, VRAMTRACK_DIR=directory, VRAMTRACK_REPORT="off", LD_PRELOAD=" ".join(preload), TRANSFORMERS_OFFLINE="1")
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--child", name, "--device", args.device], env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", timeout=570, cwd=directory)
    if "No module named 'torch'" in done.stderr:
        return "SKIP", "no PyTorch"
    if done.returncode:
        raise Failed("exit status %d: %s" % (done.returncode, done.stderr.strip()[-600:]))
    facts = json.loads(done.stdout.strip().splitlines()[-1])
    recordings = glob.glob(os.path.join(directory, "*.vtr"))
    if len(recordings) != 1:
        raise Failed("%d recordings" % len(recordings))
    worst, wrong = 0, []
    for moment, truth in facts["truth"].items():
        said = report(recordings[0], moment)
        by_sites = categories(said)
        total = truth.pop("allocated") or sum(by_sites.values())
        if sum(by_sites.values()) != total:
            wrong.append("%s: the sum is %d, torch says %d" % (moment, sum(by_sites.values()), total))
        for device in said["devices"]:
            tensors = device["account"].get("tensors") or {}
            for category in truth:
                if category in tensors and tensors[category] != by_sites.get(category, 0):
                    wrong.append("%s: account %s %d, places %d" % (moment, category, tensors[category], by_sites.get(category, 0)))
        for category, want in truth.items():
            got = by_sites.get(category, 0)
            off = abs(got - want) / max(want, total / 100)
            worst = max(worst, off)
            if off > LIMIT:
                wrong.append("%s %s: said %d, is %d (%+.2f %%)" % (moment, category, got, want, 100 * (got - want) / max(want, 1)))
    if wrong:
        raise Failed("; ".join(wrong))
    return "PASS", "%s, torch %s: worst %.3f %%" % (facts["origin"], facts["torch"], 100 * worst)


def main():
    results = {"PASS": 0, "FAIL": 0, "SKIP": 0}
    for name in SCENARIOS:
        if args.only not in name or (name.endswith("/fsdp1") and args.device == "cpu"):  # FSDP1 is for GPUs alone
            continue
        directory = tempfile.mkdtemp(prefix="vt-categories-")
        try:
            word, text = scenario(name, directory)
        except (Failed, subprocess.SubprocessError) as e:
            word, text = "FAIL", str(e)
        results[word] += 1
        print("%s %s: %s" % (word, name, text), flush=True)
        if args.keep:
            shutil.copytree(directory, os.path.join(args.keep, name.replace("/", "-")), dirs_exist_ok=True)
        shutil.rmtree(directory, True)
    print("%d passed, %d failed, %d skipped" % (results["PASS"], results["FAIL"], results["SKIP"]))
    return 1 if results["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(child() if args.child else main())

"""What one rank of tests/gpu/ranks does: `ranks_program.py SCENARIO`, started by torchrun, or alone for those of one process.

Trains a small transformer in the way that the scenario names, as scripts do it, and writes what it knows about its own memory
into $FACTS/RANK.json: PyTorch's own figures per device, the bytes of its parameters, and where its work went. With
DEVICE=cpu and gloo it runs without a GPU, to try the programs themselves.
"""
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

RANK, LOCAL, WORLD = (int(os.environ.get(n, d)) for n, d in (("RANK", 0), ("LOCAL_RANK", 0), ("WORLD_SIZE", 1)))
CPU = os.environ.get("DEVICE") == "cpu"
SMALL = CPU or bool(os.environ.get("SMALL"))
GPUS = 1 if CPU else int(os.environ.get("GPUS", torch.cuda.device_count()))
SHARED = WORLD > GPUS  # several ranks on a GPU: gloo, since NCCL refuses that
MIB = 1 << 20
WIDTH, LAYERS, LENGTH, BATCH = (64, 2, 32, 2) if SMALL else (1024, 8, 512, 8)
facts = {"rank": RANK}


def device(index=LOCAL):
    return torch.device("cpu") if CPU else torch.device("cuda", index % GPUS)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, WIDTH // 32, batch_first=True)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def start():
    if not CPU:
        torch.cuda.set_device(device())
    dist.init_process_group("gloo" if CPU or SHARED else "nccl")


def local(tensor):
    return getattr(tensor, "_local_tensor", tensor)


def known(model):
    """Bytes of this rank's parameters and gradients, and PyTorch's figures of every device that it used."""
    def size(tensors):
        return sum(s.nbytes() for s in {local(t).untyped_storage().data_ptr(): local(t).untyped_storage() for t in tensors}.values())
    facts["parameters"] = size(model.parameters())
    facts["gradients"] = size(p.grad for p in model.parameters() if p.grad is not None)
    if not CPU:
        torch.cuda.synchronize()
        facts["devices"] = {i: {"allocated": torch.cuda.memory_allocated(i), "peak": torch.cuda.max_memory_allocated(i),
                                "reserved": torch.cuda.memory_reserved(i)} for i in range(torch.cuda.device_count())
                            if torch.cuda.max_memory_allocated(i)}


def train(model, optimizer, steps=6, batch=BATCH, each=None):
    began = time.perf_counter()
    for step in range(steps):
        if step == 2:
            began = time.perf_counter()
        x = torch.randn(batch, LENGTH, WIDTH).to(device())
        model(x).square().mean().backward()
        optimizer.step()
        if step < steps - 1:
            optimizer.zero_grad()
        if each:
            each(step)
    if not CPU:
        torch.cuda.synchronize()
    facts["step_ms"] = 1000 * (time.perf_counter() - began) / max(1, steps - 2)
    known(model)


def ddp(**more):
    start()
    model = nn.parallel.DistributedDataParallel(Model().to(device()))
    train(model, torch.optim.AdamW(model.parameters()), **more)


def fsdp(reshard):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    start()
    model, mesh = Model().to(device()), init_device_mesh(device().type, (WORLD,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
    train(model, torch.optim.AdamW(model.parameters()))


def fsdp1(strategy):
    from torch.distributed import fsdp as f
    start()
    model = f.FullyShardedDataParallel(Model().to(device()), sharding_strategy=getattr(f.ShardingStrategy, strategy), device_id=device())
    train(model, torch.optim.AdamW(model.parameters()))


def zero_optimizer():
    from torch.distributed.optim import ZeroRedundancyOptimizer
    start()
    model = nn.parallel.DistributedDataParallel(Model().to(device()))
    train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW))


def deepspeed(stage, offload=False):
    import deepspeed as ds
    if not CPU:
        torch.cuda.set_device(device())
    zero = {"stage": stage, "reduce_bucket_size": 1 << 22, "allgather_bucket_size": 1 << 22}
    if offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    model = Model()
    engine, *_ = ds.initialize(model=model, model_parameters=model.parameters(), optimizer=torch.optim.AdamW(model.parameters()), config={
        "train_micro_batch_size_per_gpu": BATCH, "zero_optimization": zero, "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False})
    for _ in range(6):
        engine.backward(engine(torch.randn(BATCH, LENGTH, WIDTH, device=device(), dtype=torch.bfloat16)).square().mean())
        engine.step()
    known(model)


def data_parallel():
    model = nn.DataParallel(Model().to(device(0)))
    train(model, torch.optim.AdamW(model.parameters()), batch=2 * BATCH)


def pipeline():
    first, second = Model().to(device(0)), Model().to(device(1))
    optimizer = torch.optim.AdamW([*first.parameters(), *second.parameters()])
    for step in range(6):
        y = second(first(torch.randn(BATCH, LENGTH, WIDTH).to(device(0))).to(device(1)))
        y.square().mean().backward()
        optimizer.step()
        if step < 5:
            optimizer.zero_grad()
    known(nn.ModuleList([first, second]))


def consume(tensor, done):
    facts["seen"] = float(tensor.sum())
    own = torch.ones(8 * MIB // 4, device=tensor.device)
    facts["own_peak"] = torch.cuda.max_memory_allocated()
    done.put((facts["seen"], facts["own_peak"], float(own[0])))


def ipc():
    import torch.multiprocessing as mp
    context = mp.get_context("spawn")
    tensor, done = torch.ones(64 * MIB // 4, device=device(0)), context.Queue()
    child = context.Process(target=consume, args=(tensor, done))
    child.start()
    facts["child"] = done.get(timeout=100)
    child.join()
    facts["status"] = child.exitcode
    known(nn.Module())


def peer():
    """Memory of one GPU that the other one reads, with expandable segments: mapped for both, counted once."""
    a = torch.ones(96 * MIB // 4, device=device(0))
    b = a.to(device(1))
    facts["sum"] = float(b.sum())
    known(nn.Module())


def longer_sequence():
    start()
    model = nn.parallel.DistributedDataParallel(Model().to(device()))
    optimizer, kept = torch.optim.AdamW(model.parameters()), []
    for step in range(50):
        length = LENGTH
        if RANK == WORLD - 1 and step == 3:  # one sample of another kind, on one rank
            free = (256 << 20) if CPU else torch.cuda.mem_get_info()[0]
            length = 4 * free // (4 * WIDTH * BATCH)
        kept = model(torch.zeros(BATCH, length, WIDTH, device=device()))
        kept.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def killed():
    def each(step):
        if RANK == WORLD - 1 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
    ddp(each=each, steps=50)


kept_for_ever = []


def remember(step):
    kept_for_ever.append(torch.full((16 * MIB // 4,), float(step)).to(device()) + 0)


def leak():
    ddp(each=remember if RANK == WORLD - 1 else None, steps=40)


def stray():
    start()
    model = nn.parallel.DistributedDataParallel(Model().to(device()))
    stray_tensor = torch.zeros(4 * MIB // 4, device="cuda:0")  # on every rank
    train(model, torch.optim.AdamW(model.parameters()))
    facts["stray"] = stray_tensor.nbytes


def communicators():
    """NCCL alone: two communicators, and how fast the larger one is."""
    start()
    second = dist.new_group(list(range(WORLD)))
    x = torch.ones((8 if SMALL else 256) * MIB // 4, device=device())
    dist.all_reduce(x[:1024], group=second)
    for i in range(25):
        if i == 5:
            torch.cuda.synchronize()
            began = time.perf_counter()
        dist.all_reduce(x)
    torch.cuda.synchronize()
    facts["gb_per_s"] = 20 * x.nbytes / (time.perf_counter() - began) / 1e9
    known(nn.Module())


SCENARIOS = {
    "ddp": ddp, "fsdp-full": lambda: fsdp(True), "fsdp-grad-op": lambda: fsdp(False), "fsdp1-full": lambda: fsdp1("FULL_SHARD"),
    "fsdp1-grad-op": lambda: fsdp1("SHARD_GRAD_OP"), "zero-optimizer": zero_optimizer, "zero-1": lambda: deepspeed(1),
    "zero-2": lambda: deepspeed(2), "zero-3": lambda: deepspeed(3), "zero-2-offload": lambda: deepspeed(2, True),
    "data-parallel": data_parallel, "pipeline": pipeline, "ipc": ipc, "peer": peer, "longer-sequence": longer_sequence,
    "killed": killed, "leak": leak, "stray": stray, "communicators": communicators,
}

if __name__ == "__main__":
    torch.manual_seed(0)
    try:
        SCENARIOS[sys.argv[1]]()
    except ImportError as e:
        facts["missing"] = str(e)
    if os.environ.get("FACTS"):
        with open("%s/%d.json" % (os.environ["FACTS"], RANK), "w") as out:
            json.dump(facts, out)
    if dist.is_initialized():
        dist.destroy_process_group()

"""Two TensorFlow sessions (graphs of the old kind) with growing memory, in one process beside PyTorch."""
import numpy as np
from common import begin, memory, result, tf

begin()
try:
    import torch
except ImportError:
    raise SystemExit("SKIP no torch")
tf.config.experimental.set_memory_growth(tf.config.list_physical_devices("GPU")[0], True)
kept = [torch.ones(1 << 20, device="cuda") for _ in range(8)]
for number in range(2):
    graph = tf.Graph()
    with graph.as_default(), tf.device("/GPU:0"):
        a = tf.compat.v1.placeholder(tf.float32, [512, 512])
        b = tf.matmul(a, a) + float(number)
    with tf.compat.v1.Session(graph=graph, config=tf.compat.v1.ConfigProto(gpu_options=tf.compat.v1.GPUOptions(allow_growth=True))) as session:
        for _ in range(3):
            out = session.run(b, {a: np.ones((512, 512), np.float32)})
    result(number, float(out.sum()), float(sum(float(t.sum()) for t in kept)))
    kept = [t * 2 for t in kept]
print("TORCH", torch.cuda.memory_allocated(), flush=True)
memory()

"""A compiled function that is traced anew for each shape, with and without XLA."""
import os

import numpy as np
from common import begin, memory, result, tf

begin()
tf.config.experimental.enable_op_determinism()


@tf.function(jit_compile=bool(int(os.environ.get("JIT", 0))))
def train_step(x, w):
    with tf.GradientTape() as tape:
        tape.watch(w)
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
    return loss, w - 0.1 * tape.gradient(loss, w)


random = np.random.default_rng(0)
w = tf.constant(random.random((256, 128), dtype=np.float32))
for rows in (16, 64, 17, 256, 1024, 31, 2048):
    for _ in range(3):
        loss, w = train_step(tf.constant(random.random((rows, 256), dtype=np.float32)), w)
    result(rows, "%.6e" % float(loss))
memory()

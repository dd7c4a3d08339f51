"""A list of tensors that grows: nothing but transfers, so it runs on a simulated GPU too."""
import numpy as np
from common import begin, memory, result, tf

history = []


def remember(i):
    history.append(tf.constant(np.full((i + 1) * 25_003, i, np.float32)))


begin()
with tf.device("GPU:0"):
    for i in range(40):
        remember(i)
        if i % 3 == 2:
            history.pop(0)
result(len(history), [int(t.numpy()[-1]) for t in history])
memory()

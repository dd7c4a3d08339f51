"""Runs out of memory, catches TensorFlow's error, and goes on."""
import os

import numpy as np
from common import begin, memory, result, tf

begin()
MIB = int(os.environ.get("TENSOR_MIB", 4096))
held = []


def fill():
    while len(held) < 1000:
        with tf.device("GPU:0"):
            held.append(tf.zeros([MIB << 20], tf.uint8) if MIB >= 1024 else tf.constant(np.zeros(MIB << 20, np.uint8)))


try:
    fill()
except (tf.errors.ResourceExhaustedError, tf.errors.InternalError) as e: # the second one: a transfer of an eager tensor
    result(type(e).__name__, len(held) > 2)
del held[len(held) // 2 :]
with tf.device("GPU:0"):
    result(float(tf.constant(np.ones(10, np.float32)).numpy().sum()))
memory()

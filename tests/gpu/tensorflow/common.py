"""What the programs share: lines that must be equal with and without the library, and TensorFlow's own figure at one instant.

The programs need nothing of vramtrack. If its library is there, a moment is taken where the figure is read, so that both speak
of the same instant.
"""
import ctypes
import os

import tensorflow as tf

GPU = "GPU:0"
LIMIT = int(os.environ.get("LIMIT_MIB", 0))  # of a logical device; 0: none


def begin():
    """To be called before the first operation."""
    tf.keras.utils.set_random_seed(1)
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        raise SystemExit("no GPU was registered")
    if LIMIT:
        tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT)])


def result(*values):
    print("RESULT", *values, flush=True)


def memory():
    """TensorFlow's bytes in use, and the library's view of the same instant."""
    tf.test.experimental.sync_devices()
    mark = getattr(ctypes.CDLL(None), "vramtrack_moment", None)
    if mark:
        mark(b"memory")
    info = tf.config.experimental.get_memory_info(GPU)
    print("MEMORY", info["current"], info["peak"], flush=True)

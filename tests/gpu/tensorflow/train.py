"""Keras' own training loop on random data."""
import numpy as np
from common import begin, memory, result, tf

begin()
tf.config.experimental.enable_op_determinism()
model = tf.keras.Sequential([tf.keras.layers.Dense(2048, activation="relu"), tf.keras.layers.Dense(2048, activation="relu"), tf.keras.layers.Dense(1)])
model.compile(optimizer="adam", loss="mse", jit_compile=False)
random = np.random.default_rng(0)
x = random.random((4096, 512), dtype=np.float32)
history = model.fit(x, x.sum(1, keepdims=True), epochs=3, batch_size=256, verbose=0)
result("losses", ["%.6e" % v for v in history.history["loss"]])
result("sum", "%.6e" % float(sum(tf.reduce_sum(w) for w in model.trainable_weights)))
memory()

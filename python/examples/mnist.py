"""Trains a small classifier of handwritten digits with Optax.

The digits are made up: each class is a pattern, and each example a noisy copy of one. With real data in place of
`digits` nothing else changes.

    JAX_PLATFORMS=hloom,cpu python mnist.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax


def digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of 28 by 28 in rows of 784 numbers, and their classes."""
    patterns = np.random.default_rng(0).normal(size=(10, 784)).astype(np.float32)
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 10, size=count)
    return patterns[classes] + rng.normal(size=(count, 784)).astype(np.float32), classes


def init(key: jax.Array, hidden: int) -> dict[str, jax.Array]:
    first, second = jax.random.split(key)
    return {
        "w1": jax.random.normal(first, (784, hidden)) / 28.0,
        "b1": jnp.zeros(hidden),
        "w2": jax.random.normal(second, (hidden, 10)) / hidden**0.5,
        "b2": jnp.zeros(10),
    }


def logits(params: dict[str, jax.Array], images: jax.Array) -> jax.Array:
    hidden = jax.nn.relu(images @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def loss(params: dict[str, jax.Array], images: jax.Array, classes: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, images), classes).mean()


def train(steps: int = 60, batch: int = 64, hidden: int = 64) -> tuple[list[float], float]:
    """The loss of each step, and how many of the test images are classified rightly afterwards."""
    params = init(jax.random.key(0), hidden)
    optimizer = optax.adam(1e-3)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, images, classes):
        value, gradient = jax.value_and_grad(loss)(params, images, classes)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state, value

    losses = []
    for n in range(steps):
        params, state, value = step(params, state, *digits(batch, seed=n + 1))
        losses.append(value)
    images, classes = digits(512, seed=0)
    right = jnp.argmax(jax.jit(logits)(params, images), axis=1) == classes
    return [float(value) for value in losses], float(right.mean())


if __name__ == "__main__":
    losses, accuracy = train()
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, {accuracy:.1%} right")

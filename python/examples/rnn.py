"""Trains a recurrent network, a `scan` over time, to add up what it sees.

    JAX_PLATFORMS=hloom,cpu python rnn.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax


def init(key: jax.Array, width: int) -> dict[str, jax.Array]:
    keys = jax.random.split(key, 3)
    return {
        "in": jax.random.normal(keys[0], (1, width)) * 0.3,
        "again": jnp.eye(width) + jax.random.normal(keys[1], (width, width)) * 0.05,
        "out": jax.random.normal(keys[2], (width, 1)) * 0.3,
    }


def run(params: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
    """What the network says after each of `inputs`, which is [batch, time]."""

    def step(state, x):
        state = jnp.tanh(x[:, None] @ params["in"] + state @ params["again"])
        return state, (state @ params["out"])[:, 0]

    first = jnp.zeros((inputs.shape[0], params["again"].shape[0]))
    _, outputs = jax.lax.scan(step, first, inputs.T)
    return outputs.T


def train(steps: int = 80, batch: int = 16, time: int = 10, width: int = 16) -> list[float]:
    """The loss of each step."""
    params = init(jax.random.key(0), width)
    optimizer = optax.adam(3e-3)
    state = optimizer.init(params)

    def loss(params, inputs):
        return jnp.mean((run(params, inputs) - jnp.cumsum(inputs, axis=1)) ** 2)

    @jax.jit
    def step(params, state, inputs):
        value, gradient = jax.value_and_grad(loss)(params, inputs)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state, value

    losses = []
    for n in range(steps):
        inputs = np.random.default_rng(n).normal(size=(batch, time)).astype(np.float32) * 0.2
        params, state, value = step(params, state, inputs)
        losses.append(value)
    return [float(value) for value in losses]


if __name__ == "__main__":
    losses = train(steps=300)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")

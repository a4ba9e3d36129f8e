"""Trains a small transformer, written with Flax, to continue sequences.

    JAX_PLATFORMS=hloom,cpu python transformer.py
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax


class Block(nn.Module):
    """Attention to what came before, then a layer for each place."""

    width: int
    heads: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=self.heads)(y, y, mask=mask)
        y = nn.Dense(4 * self.width)(nn.LayerNorm()(x))
        return x + nn.Dense(self.width)(nn.gelu(y))


class Transformer(nn.Module):
    """From the numbers of tokens to what each next one may be."""

    vocabulary: int
    width: int
    heads: int
    layers: int
    length: int

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        places = self.param("places", nn.initializers.normal(0.02), (self.length, self.width))
        x = nn.Embed(self.vocabulary, self.width)(tokens) + places[: tokens.shape[1]]
        for _ in range(self.layers):
            x = Block(self.width, self.heads)(x)
        return nn.Dense(self.vocabulary)(nn.LayerNorm()(x))


def sequences(count: int, length: int, vocabulary: int, seed: int) -> np.ndarray:
    """Sequences that count upwards by a step of their own."""
    rng = np.random.default_rng(seed)
    starts, steps = rng.integers(0, vocabulary, (count, 1)), rng.integers(1, 4, (count, 1))
    return (starts + steps * np.arange(length + 1)) % vocabulary


def train(steps: int = 30, batch: int = 16, length: int = 12, width: int = 32) -> list[float]:
    """The loss of each step."""
    vocabulary = 16
    model = Transformer(vocabulary=vocabulary, width=width, heads=4, layers=2, length=length)
    params = model.init(jax.random.key(0), jnp.zeros((1, length), jnp.int32))
    optimizer = optax.adamw(3e-3)
    state = optimizer.init(params)

    def loss(params, tokens):
        logits = model.apply(params, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    @jax.jit
    def step(params, state, tokens):
        value, gradient = jax.value_and_grad(loss)(params, tokens)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, value

    losses = []
    for n in range(steps):
        params, state, value = step(params, state, sequences(batch, length, vocabulary, seed=n))
        losses.append(value)
    return [float(value) for value in losses]


if __name__ == "__main__":
    losses = train(steps=100)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")

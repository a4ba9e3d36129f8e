"""Two layers whose weights are spread over four devices with `shard_map`, against the same on one device.

    HLOOM_NUM_DEVICES=4 JAX_PLATFORMS=hloom,cpu python tensor_parallel.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P


def mlp(x: jax.Array, w1: jax.Array, w2: jax.Array) -> jax.Array:
    return jax.nn.gelu(x @ w1) @ w2


def spread(mesh: jax.sharding.Mesh):
    """The same: each device has columns of the first weights and the rows of the second that belong to them."""

    def part(x, w1, w2):
        return jax.lax.psum(mlp(x, w1, w2), "model")

    specs = (P(), P(None, "model"), P("model", None))
    return jax.jit(jax.shard_map(part, mesh=mesh, in_specs=specs, out_specs=P())), specs


def compare(batch: int = 8, width: int = 32, hidden: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """The result on four devices, and on one."""
    devices = jax.devices()[:4]
    if len(devices) < 4:
        raise RuntimeError("this needs four devices: set HLOOM_NUM_DEVICES=4")
    mesh = jax.make_mesh((4,), ("model",), devices=devices, axis_types=(jax.sharding.AxisType.Auto,))
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = [(batch, width), (width, hidden), (hidden, width)]
    arguments = [jax.random.normal(key, shape) / width**0.5 for key, shape in zip(keys, shapes)]
    alone = jax.jit(mlp)(*arguments)
    function, specs = spread(mesh)
    placed = [jax.device_put(a, NamedSharding(mesh, spec)) for a, spec in zip(arguments, specs)]
    return np.asarray(function(*placed)), np.asarray(alone)


if __name__ == "__main__":
    together, alone = compare()
    print(f"the largest difference is {jnp.abs(together - alone).max():.2e}")

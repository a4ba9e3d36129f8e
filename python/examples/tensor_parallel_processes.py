"""The layers of `tensor_parallel.py` over two processes of two devices each: data along one axis, weights along the other.

    HLOOM_NUM_DEVICES=2 JAX_PLATFORMS=hloom,cpu mpirun -n 2 python tensor_parallel_processes.py

Without a launcher, `data_parallel.py` says how.
"""

from __future__ import annotations

import sys

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec as P

from data_parallel import initialize
from tensor_parallel import mlp


def compare(batch: int = 8, width: int = 32, hidden: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """The result on two by two devices, and by numpy's leave on this process alone."""
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    rng = np.random.default_rng(0)
    shapes = [(batch, width), (width, hidden), (hidden, width)]
    arguments = [rng.normal(size=shape).astype(np.float32) / width**0.5 for shape in shapes]
    specs = (P("data", None), P(None, "model"), P("model", None))

    def part(x, w1, w2):
        return jax.lax.psum(mlp(x, w1, w2), "model")

    function = jax.jit(jax.shard_map(part, mesh=mesh, in_specs=specs, out_specs=P("data", None)))
    placed = [jax.make_array_from_callback(a.shape, NamedSharding(mesh, s), lambda i, a=a: a[i]) for a, s in zip(arguments, specs)]
    together = multihost_utils.process_allgather(function(*placed), tiled=True)
    return np.asarray(together), np.asarray(jax.jit(mlp)(*arguments))


if __name__ == "__main__":
    initialize(sys.argv[1:])
    together, alone = compare()
    if jax.process_index() == 0:
        print(f"the largest difference is {np.abs(together - alone).max():.2e}")

"""Trains the classifier of `mnist.py` on several processes, each with its own part of every batch.

Under a launcher:

    JAX_PLATFORMS=hloom,cpu mpirun -n 4 python data_parallel.py

or by hand, one process after the other (this needs MPICH):

    JAX_PLATFORMS=hloom,cpu python data_parallel.py localhost:1234 4 0 &   # … 1, 2 and 3
"""

from __future__ import annotations

import os
import sys

import jax
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec as P

from mnist import digits, init, logits, loss


def initialize(arguments: list[str]) -> None:
    """Joins the other processes: as the arguments say, or as the launcher does."""
    if len(arguments) == 3:
        address, count, rank = arguments[0], int(arguments[1]), int(arguments[2])
    else:
        rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")))
        count = int(os.environ.get("OMPI_COMM_WORLD_SIZE", os.environ.get("PMI_SIZE", "1")))
        address = os.environ.get("COORDINATOR", "localhost:12355")
    jax.distributed.initialize(address, num_processes=count, process_id=rank)


def train(steps: int = 40, batch: int = 64, hidden: int = 64) -> tuple[list[float], float]:
    """The loss of each step, and how many of the test images are classified rightly afterwards."""
    mesh = jax.make_mesh((len(jax.devices()),), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    rows, whole = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())
    everywhere = lambda tree: jax.tree.map(lambda a: jax.make_array_from_process_local_data(whole, np.asarray(a)), tree)  # noqa: E731
    optimizer = optax.sgd(0.1, momentum=0.9)
    params = init(jax.random.key(0), hidden)
    params, state = everywhere(params), everywhere(optimizer.init(params))

    @jax.jit
    def step(params, state, images, classes):
        value, gradient = jax.value_and_grad(loss)(params, images, classes)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state, value

    # Every process makes the part of the batch that belongs to its devices.
    count, own = jax.process_count(), jax.process_index()
    losses = []
    for n in range(steps):
        images, classes = (a[own * batch // count : (own + 1) * batch // count] for a in digits(batch, seed=n + 1))
        local = [jax.make_array_from_process_local_data(rows, a) for a in (images, classes)]
        params, state, value = step(params, state, *local)
        losses.append(float(value))
    images, classes = digits(512, seed=0)
    here = jax.tree.map(lambda a: np.asarray(a.addressable_shards[0].data), params)
    right = np.mean(np.argmax(np.asarray(logits(here, images)), axis=1) == classes)
    return losses, float(right)


if __name__ == "__main__":
    initialize(sys.argv[1:])
    losses, right = train()
    if jax.process_index() == 0:
        print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last; {right:.1%} right")

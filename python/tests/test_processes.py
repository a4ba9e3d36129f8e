"""Programs over the devices of several processes, which find each other without a launcher.

Skipped where JAX, the library or MPICH is not there.
"""

import ctypes.util
import os
import pathlib
import socket
import subprocess
import sys
import unittest

try:
    import jax  # noqa: F401

    from jax_plugins import hloom

    MISSING = "" if os.path.exists(hloom.library_path()) else "hloom's library is not built"
    MISSING = MISSING or ("" if ctypes.util.find_library("mpich") else "MPICH is not there (Debian: apt-get install mpich)")
except ImportError as error:
    MISSING = f"JAX is not there: {error}"

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"

COLLECTIVES = """
import sys, jax, numpy as np
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec as P
count = jax.process_count()
assert jax.process_index() == int(sys.argv[3]) and count == int(sys.argv[2])
assert len(jax.devices()) == 2 * count and len(jax.local_devices()) == 2, jax.devices()
assert [d.process_index for d in jax.devices()] == [n // 2 for n in range(2 * count)]
mesh = jax.make_mesh((2 * count,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
local = np.arange(4, dtype=np.float32) + 4 * jax.process_index()
whole = jax.make_array_from_process_local_data(NamedSharding(mesh, P("x")), local)
assert whole.shape == (4 * count,)
total = jax.jit(lambda a: a.sum())(whole)
assert float(total) == sum(range(4 * count)), total
ring = [(n, (n + 1) % (2 * count)) for n in range(2 * count)]
shifted = jax.jit(jax.shard_map(lambda a: jax.lax.ppermute(a, "x", ring), mesh=mesh, in_specs=P("x"), out_specs=P("x")))(whole)
gathered = multihost_utils.process_allgather(shifted, tiled=True)
assert np.array_equal(gathered, np.roll(np.arange(4 * count), 2)), gathered
everyone = multihost_utils.process_allgather(np.array([jax.process_index()]))
assert sorted(everyone.ravel()) == list(range(count)), everyone
# A program on a device of another process is run there.
there = jax.sharding.SingleDeviceSharding(jax.local_devices(process_index=1)[0])
more = jax.jit(lambda a: a + 1)(jax.device_put(np.arange(4.0, dtype=np.float32), there))
more.block_until_ready()
assert [s.data.tolist() for s in more.addressable_shards] == [[1, 2, 3, 4]] * (jax.process_index() == 1)
multihost_utils.sync_global_devices("the end")
print("well")
"""


def launch(command: list[str], count: int, **variables: str) -> list[str]:
    """Starts so many processes, and gives what each printed."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "JAX_PLATFORMS": "hloom,cpu", "HLOOM_TIME_LIMIT": "120", **variables}
    arguments = lambda rank: [f"localhost:{port}", str(count), str(rank)]  # noqa: E731
    started = [
        subprocess.Popen([*command, *arguments(r)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for r in range(count)
    ]
    texts = []
    for process in started:
        out, err = process.communicate(timeout=300)
        if process.returncode:
            raise AssertionError(f"a process ended with {process.returncode}: {err[-2000:]}")
        texts.append(out)
    return texts


@unittest.skipIf(MISSING, MISSING)
class Processes(unittest.TestCase):
    def test_devices_of_all_processes_work_together(self):
        texts = launch([sys.executable, "-c", COLLECTIVES], 2, HLOOM_NUM_DEVICES="2")
        self.assertEqual([t.strip() for t in texts], ["well"] * 2)

    def test_processes_train_together(self):
        texts = launch([sys.executable, str(EXAMPLES / "data_parallel.py")], 4, HLOOM_NUM_DEVICES="1")
        self.assertIn("% right", texts[0])
        self.assertGreater(float(texts[0].rsplit(";", 1)[1].split("%")[0]), 90)

    def test_layers_are_spread_over_processes(self):
        texts = launch([sys.executable, str(EXAMPLES / "tensor_parallel_processes.py")], 2, HLOOM_NUM_DEVICES="2")
        self.assertLess(float(texts[0].split()[-1]), 1e-5)


if __name__ == "__main__":
    unittest.main()

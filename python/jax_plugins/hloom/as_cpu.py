"""What JAX decides by the name of a platform, decided for hloom as for JAX's own CPU."""

from __future__ import annotations

import dataclasses
import os
import re

import numpy as np


def client_options() -> dict[str, int]:
    """Options of the client that JAX has under other names: the number of devices."""
    if os.environ.get("HLOOM_NUM_DEVICES"):
        return {}
    from jax._src import xla_bridge

    count = xla_bridge.num_cpu_devices.value
    if count == -1:
        flags = os.environ.get("XLA_FLAGS", "")
        counts = re.findall(r"--xla_force_host_platform_device_count=(\d+)", flags)
        count = int(counts[-1]) if counts else -1
    return {"num_devices": count} if count > 0 else {}


def _is_ours(array) -> bool:
    """Whether an array is on one of our devices."""
    try:
        return all("hloom" in d.client.platform_version for d in array.sharding.device_set)
    except Exception:
        return False


def _hand_out_memory(platform: str) -> None:
    """Lets arrays be handed to others and taken from them by DLPack: their memory is the host's."""
    from jax._src import array, dlpack, xla_bridge

    kind = array.ArrayImpl
    original, original_device, original_from = kind.__dlpack__, kind.__dlpack_device__, dlpack.from_dlpack

    def on_host(self):
        return np.asarray(self)

    def to_dlpack(self, **options):
        if self.platform() != platform or not _is_ours(self):
            return original(self, **options)
        if len(self.sharding.device_set) > 1:
            raise BufferError("to_dlpack can only pack a dlpack tensor from an array on a singular device")
        options.pop("stream", None)
        host = on_host(self)
        # What is read only cannot be handed out by numpy; whoever takes it must not write to it, as from any other.
        view = np.frombuffer(memoryview(host).cast("B"), dtype=host.dtype).reshape(host.shape) if host.size else host
        if not view.flags.writeable:
            view = host.copy()
        return view.__dlpack__(**options)

    def dlpack_device(self):
        if self.platform() != platform:
            return original_device(self)
        return dlpack.DLDeviceType.kDLCPU, 0

    def from_dlpack(external_array, device=None, copy=None):
        made = original_from(external_array, device=device, copy=copy)
        if device is None and copy is not False and xla_bridge.default_backend() == platform and not _is_ours(made):
            import jax

            return jax.device_put(made, jax.devices()[0])
        return made

    kind.__dlpack__, kind.__dlpack_device__ = to_dlpack, dlpack_device
    dlpack.from_dlpack = from_dlpack
    import jax.dlpack

    jax.dlpack.from_dlpack = from_dlpack


def _call_exported(platform: str) -> None:
    """Lets what was exported for JAX's CPU be called on hloom."""
    from jax._src.export import _export
    from jax._src.interpreters import mlir

    original = _export._call_exported_lowering

    def lower(ctx, *args, exported):
        wanted = tuple(ctx.module_context.platforms)
        if wanted == (platform,) and platform not in exported.platforms and "cpu" in exported.platforms:
            platforms = tuple(platform if p == "cpu" else p for p in exported.platforms)
            exported = dataclasses.replace(exported, platforms=platforms)
        return original(ctx, *args, exported=exported)

    mlir.register_lowering(_export.call_exported_p, lower)


def _estimate_costs() -> None:
    """Lets the costs of lowered programs be estimated, by the estimates of JAX's own CPU."""
    from jax._src import xla_bridge
    from jax._src.interpreters import pxla
    from jaxlib import _jax

    original = pxla.MeshComputation.cost_analysis

    def cost_analysis(self):
        if "hloom" not in self.compile_args["backend"].platform_version:
            return original(self)
        return _jax.hlo_module_cost_analysis(xla_bridge.get_backend("cpu"), self.hlo().as_hlo_module())

    pxla.MeshComputation.cost_analysis = cost_analysis


def register(platform: str) -> None:
    """Has JAX treat hloom as it treats its own CPU."""
    _hand_out_memory(platform)
    _call_exported(platform)
    _estimate_costs()

"""hloom for JAX: registers the plugin, and what JAX needs to know of it.

JAX finds this module by itself and calls `initialize` when it first looks for devices.
"""

from __future__ import annotations

import os

PLATFORM = "hloom"


def library_path() -> str:
    """The shared library: of this package, or the one that HLOOM_LIBRARY names."""
    given = os.environ.get("HLOOM_LIBRARY")
    if given:
        return given
    return os.path.join(os.path.dirname(__file__), "libhloom_pjrt.so")


def initialize() -> None:
    """Registers hloom with JAX."""
    from jax._src import xla_bridge

    from jax_plugins.hloom import as_cpu, lowering

    path = library_path()
    if not os.path.exists(path):
        raise FileNotFoundError(f"hloom's library is not there: {path}")
    xla_bridge.register_plugin(PLATFORM, priority=500, library_path=path, options=as_cpu.client_options)
    lowering.register(PLATFORM, path)
    as_cpu.register(PLATFORM)

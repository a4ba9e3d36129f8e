"""How JAX's operations are written for hloom: as for JAX's own CPU, but for calls back into Python."""

from __future__ import annotations

import collections
import ctypes
import itertools
import traceback
import weakref

import numpy as np

# The library, which lives as long as the process, and functions that it keeps pointers to.
_kept: list[object] = []

# Programs keep the functions that they call.
_callbacks: weakref.WeakValueDictionary[int, "Callback"] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


class _Array(ctypes.Structure):
    """An array of the library's: `struct HloomArray`."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
    ]


_CALL = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_uint64,
    ctypes.POINTER(_Array),
    ctypes.c_size_t,
    ctypes.POINTER(_Array),
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_char),
    ctypes.c_size_t,
)
_RESOLVE = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)
_CONVERT = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t, ctypes.c_void_p)


class Callback:
    """A Python function that programs call, for as long as somebody keeps this."""

    def __init__(self, function, operand_avals, result_avals):
        self.function = function
        self.operands = [(a.shape, np.dtype(a.dtype)) for a in operand_avals]
        self.results = [(a.shape, np.dtype(a.dtype)) for a in result_avals]
        self.number = next(_numbers)
        _callbacks[self.number] = self

    def __call__(self, operands, results):
        arguments = []
        for (shape, dtype), given in zip(self.operands, operands):
            array = np.empty(shape, dtype)
            if array.nbytes:
                ctypes.memmove(array.ctypes.data, given.data, array.nbytes)
            arguments.append(array)
        values = self.function(*arguments)
        for (shape, dtype), value, to in zip(self.results, values, results):
            array = np.ascontiguousarray(np.asarray(value, dtype=dtype)).reshape(shape)
            if array.nbytes != to.size:
                raise RuntimeError(f"a callback gave {array.nbytes} bytes where {to.size} are needed")
            if array.nbytes:
                ctypes.memmove(to.data, array.ctypes.data, array.nbytes)


def _call(number, operands, operand_count, results, result_count, message, room):
    """What the library calls: runs the function of that number, and says in `message` what went wrong."""
    try:
        _callbacks[number]([operands[i] for i in range(operand_count)], [results[i] for i in range(result_count)])
        return 0
    except BaseException:  # Nothing may pass through the library.
        text = traceback.format_exc().encode()[: max(room - 1, 0)]
        ctypes.memmove(message, text + b"\0", len(text) + 1)
        return 1


def _pointer(capsule) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return get(capsule, name(capsule))


def _is_ours(ctx, platform) -> bool:
    """Whether what is lowered is for hloom, by whatever name."""
    platforms = tuple(ctx.module_context.platforms)
    if platforms == (platform,):
        return True
    backend = ctx.module_context.backend
    return len(platforms) == 1 and backend is not None and "hloom" in backend.platform_version


def _emit_callback(original, platform, ctx, callback, token, operands, operand_avals, result_avals, **options):
    """As `emit_python_callback` of JAX, for a platform that it does not know."""
    if options.get("partitioned") or not _is_ours(ctx, platform):
        return original(ctx, callback, token, operands, operand_avals, result_avals, **options)
    import dataclasses

    from jax._src import callback as jax_callback
    from jax._src import core, dtypes, ffi
    from jax._src.interpreters import mlir

    sharding = options.get("sharding")

    def checked(*arguments):
        values = callback(*arguments)
        if len(values) != len(result_avals):
            raise RuntimeError(
                "Mismatched number of outputs from callback. "
                f"Expected: {len(result_avals)}, Actual: {len(values)}"
            )
        values = [dtypes.canonicalize_value(np.asarray(v)) for v in values]
        for i, (value, aval) in enumerate(zip(values, result_avals)):
            if value.shape != aval.shape:
                raise RuntimeError(
                    f"Incorrect output shape for return value #{i}: Expected: {aval.shape}, Actual: {value.shape}"
                )
            if value.dtype != aval.dtype:
                raise RuntimeError(
                    f"Incorrect output dtype for return value #{i}: Expected: {aval.dtype}, Actual: {value.dtype}"
                )
        return values

    kept = Callback(checked, operand_avals, result_avals)
    # By its callbacks JAX knows that a program takes tokens and is not to be kept in a file.
    ctx.module_context.add_host_callback(checked)
    ctx.module_context.add_keepalive(kept)
    if token:
        operands = [token, *operands]
        if isinstance(sharding, jax_callback.SdyArrayList) and len(ctx.avals_out) > 0:
            # One for each value, and the token is one.
            devices = sharding.shardings[0].logical_device_ids
            of_token = jax_callback.SdyArray(mesh_shape=(), dim_shardings=(), logical_device_ids=devices)
            sharding = jax_callback.SdyArrayList((of_token, *sharding.shardings))
        ctx = dataclasses.replace(
            ctx, avals_in=[core.abstract_token, *ctx.avals_in], avals_out=[core.abstract_token, *ctx.avals_out]
        )
    call = ffi.build_ffi_lowering_function("hloom_python_callback", has_side_effect=options.get("has_side_effect", False))
    result = call(ctx, *operands, number=np.uint64(kept.number))
    if sharding is not None:
        mlir.set_sharding(ctx.module_context, result, sharding)
    results = result.results
    if token:
        token, *results = results
    return results, token, kept


class _Buffer:
    """An array of a program as a `buffer_callback` sees it: the memory itself."""

    def __init__(self, array, writeable):
        array.flags.writeable = writeable
        self._array = array
        self.shape, self.dtype, self.ndim, self.writeable = array.shape, array.dtype, array.ndim, writeable

    def __array__(self, dtype=None, copy=None):
        if dtype is not None and np.dtype(dtype) != self.dtype:
            if copy is False:
                raise ValueError("the dtype cannot be changed without a copy")
            return self._array.astype(dtype)
        return self._array.copy() if copy else self._array

    def __dlpack__(self, **options):
        # Numpy hands out only arrays that can be written; what is done to them is the callback's to answer for.
        return _view_of(self._array.ctypes.data, self.shape, self.dtype).__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def _view_of(address, shape, dtype):
    """The memory at an address as an array."""
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype=dtype, count=count).reshape(shape)


class _BufferContext:
    """What a `buffer_callback` is told of the run that it is part of."""

    def __init__(self):
        from jax.experimental import buffer_callback

        self.stage = buffer_callback.ExecutionStage.EXECUTE

    @property
    def stream(self):
        import jax

        raise jax.errors.JaxRuntimeError("UNIMPLEMENTED: XLA FFI GPU context is not available")


class _BufferCallback(Callback):
    """A Python function that works on the memory of a program's arrays."""

    def __init__(self, function, operand_avals, result_avals, aliases):
        super().__init__(function, operand_avals, result_avals)
        self.aliases = dict(aliases)

    def __call__(self, operands, results):
        # A result that shares memory with an operand begins with its elements.
        operands = [results[self.aliases[i]] if i in self.aliases else given for i, given in enumerate(operands)]

        def views(kinds, given, writeable):
            return [_Buffer(_view_of(a.data, *kind), writeable) for kind, a in zip(kinds, given)]

        self.function(_BufferContext(), *views(self.operands, operands, False), *views(self.results, results, True))


def _lower_buffer_callback(original, platform, ctx, *args, callback, in_tree, out_tree, **options):
    """As the rule of JAX for its own CPU."""
    if not _is_ours(ctx, platform):
        return original(ctx, *args, callback=callback, in_tree=in_tree, out_tree=out_tree, **options)
    from jax._src import ffi, tree_util

    def called(context, *buffers):
        given, made = buffers[: in_tree.num_leaves], buffers[in_tree.num_leaves :]
        arguments, named = tree_util.tree_unflatten(in_tree, given)
        if callback(context, tree_util.tree_unflatten(out_tree, made), *arguments, **named) is not None:
            raise ValueError("buffer_callback callback must not return any values.")

    kept = _BufferCallback(called, ctx.avals_in, ctx.avals_out, options["input_output_aliases"])
    ctx.module_context.add_host_callback(called)
    ctx.module_context.add_keepalive(kept)
    rule = ffi.ffi_lowering(
        "hloom_python_callback",
        has_side_effect=options["has_side_effect"],
        operand_output_aliases=dict(options["input_output_aliases"]),
    )
    return rule(ctx, *args, number=np.uint64(kept.number))


class _CachedAsCpu:
    """What JAX's cache of compiled programs looks at when it decides whether to keep those of a backend."""

    platform = "cpu"
    supports_executable_serialization = True


def _use_cache(platform: str) -> None:
    """Has JAX's cache keep our programs: it does for a list of platforms only."""
    from jax._src import compilation_cache

    original = compilation_cache.is_cache_used

    def is_cache_used(backend):
        return original(_CachedAsCpu if backend.platform == platform else backend)

    compilation_cache.is_cache_used = is_cache_used


def _register_buffer_callback(mlir, platform: str) -> None:
    """Lets buffer callbacks be lowered by our rule where they are ours."""
    from jax._src import buffer_callback

    original = buffer_callback._buffer_callback_lowering

    def lower(ctx, *args, **options):
        return _lower_buffer_callback(original, platform, ctx, *args, **options)

    mlir.register_lowering(buffer_callback.buffer_callback_p, lower)


def register(platform: str, path: str) -> None:
    """Tells JAX and the library of each other."""
    from jax._src import callback
    from jax._src.interpreters import mlir
    from jax._src.lax import lax
    from jax.interpreters import mlir as public_mlir
    from jaxlib import xla_client

    library = ctypes.CDLL(path)
    library.hloom_register_custom_call.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p]
    library.hloom_set_python_callback.argtypes = [_CALL]
    library.hloom_set_resolver.argtypes = [_RESOLVE]
    library.hloom_set_mlir_converter.argtypes = [_CONVERT]
    library.hloom_take_text.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]

    def give(name, target):
        if isinstance(target, dict):
            target = target.get("execute")
        if target is not None:
            name = name.encode() if isinstance(name, str) else name
            library.hloom_register_custom_call(name, len(name), _pointer(target))

    def handler(name, target, platform_name, api_version=1, traits=0):
        if api_version == 1:
            give(name, target)

    def resolve(name, size):
        """Calls that were registered for JAX's own CPU are ours too."""
        try:
            from jaxlib import cpu_sparse, lapack

            lapack_initialize = getattr(lapack, "_lapack", None)
            if lapack_initialize is not None and hasattr(lapack_initialize, "initialize"):
                lapack_initialize.initialize()
            wanted = ctypes.string_at(name, size).decode()
            target = xla_client.custom_call_targets("Host").get(wanted)
            if target is None:
                sparse = cpu_sparse.registrations().get("cpu", [])
                target = next((t for n, t, version in sparse if n == wanted and version == 1), None)
            if target is None:
                # What was registered before JAX's own CPU was started waits in a list.
                waiting = getattr(xla_client, "_custom_callback", {}).get("Host", [])
                target = next((t for name, t, version, _ in waiting if name == wanted and version == 1), None)
            if target is not None:
                give(wanted, target)
        except BaseException:
            traceback.print_exc()

    def convert(code, size, to):
        """The programs that custom partitioners answer with, as text."""
        try:
            from jaxlib.mlir import ir

            with mlir.make_ir_context() as context:
                module = ir.Module.parse(ctypes.string_at(code, size), context)
                text = module.operation.get_asm(enable_debug_info=False).encode()
            library.hloom_take_text(to, text, len(text))
            return 0
        except BaseException:
            traceback.print_exc()
            return 1

    functions = _CALL(_call), _RESOLVE(resolve), _CONVERT(convert)
    library.hloom_set_python_callback(functions[0])
    library.hloom_set_resolver(functions[1])
    library.hloom_set_mlir_converter(functions[2])
    _kept.extend([library, *functions, handler])
    try:
        xla_client.register_custom_call_handler(platform, handler)
    except Exception:  # Another handler for the platform is there already.
        pass

    rules = mlir._platform_specific_lowerings
    # Products of any precision are ours; the rule for JAX's CPU refuses those that it would ignore.
    own = dict(rules.get(platform, {}))
    for primitive in (lax.dot_general_p, lax.ragged_dot_general_p):
        if primitive in mlir._lowerings:
            own.setdefault(primitive, mlir._lowerings[primitive])
    rules[platform] = collections.ChainMap(own, rules["cpu"])
    if platform not in mlir._platforms_with_donation:
        mlir._platforms_with_donation.append(platform)

    original = callback.emit_python_callback

    def emit_python_callback(ctx, function, token, operands, operand_avals, result_avals, **options):
        return _emit_callback(
            original, platform, ctx, function, token, operands, operand_avals, result_avals, **options
        )

    callback.emit_python_callback = emit_python_callback
    public_mlir.emit_python_callback = emit_python_callback
    _register_buffer_callback(mlir, platform)
    _use_cache(platform)

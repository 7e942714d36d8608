"""How kernels are compiled: what Python calls is kept on disk, and what only kernels call becomes part of them.

Numba is made for functions that somebody else wrote. It makes instructions of every function that it compiles,
optimised by itself, even where it will only ever be linked into another and optimised there again; it looks for
closures, array expressions and the like, and counts references wherever an array is passed on. Kernels have none of
that to offer: explicit vectors, loops, arrays that outlive the call. Leaving it out halves the time to compile, and
changes no number:

- Of thirty functions that a kernel is made of, one is ever called. The others are handed on as they are, and the whole
  is optimised once. LLVM is not asked to find vectors where they are written down.
- Passes for what kernels do not use are left out: closures, comprehensions, `with`, `literal_unroll`, functions that
  Numba inlines, fused array expressions.
- Parts and pieces count no references: the kernel holds the arrays. So they cannot make arrays, nor return any.
- The garbage collector rests meanwhile. Compiling makes millions of small objects, and nearly all of them stay.

This rests on parts of Numba that are not its public interface. So it is done with the versions that it was tried with,
and others compile in the usual way, which takes longer and comes to the same.
"""

import gc
from types import FunctionType
from typing import Any

import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

TRIED = numba.version_info.short == (0, 68)

_UNUSED = {
    "with_lifting", "inline_closure_likes", "make_function_op_code_to_jit_function", "inline_inlinables",
    "find_literally", "literal_unroll", "LiteralPropagation", "inline_overloads", "nopython_rewrites",
    "nopython_supported_feature_validation", "annotate_types", "dump_parfor_diagnostics",
}  # fmt: skip


class _Linked(JITCodeLibrary):
    """The code of a function that only other compiled functions call: put together, and left to them to optimise."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.environments: dict[str, Any] = {}  # where compiled code finds Python's constants, by the name of the place

    @property
    def codegen(self) -> Any:
        """Asked for by who would set an environment: it is kept until there are instructions that could look for it."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        self.environments[name] = environment

    def get_pointer_to_function(self, _name: str) -> int:
        """None: nobody calls it from outside."""
        return 0

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self.environments |= _environments(self._linking_libraries)
        self._finalize_dynamic_globals()
        self._finalized = True


class _Whole(JITCodeLibrary):
    """The code of a kernel, with all that was linked into it."""

    # What LLVM's passes are told beyond their usual settings.
    settings: dict[str, Any] = {"loop_vectorize": False}  # noqa: RUF012

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """Once: Numba's first round is for counts of references, which only the kernel itself has here."""
        passes, builder = self._codegen._module_pass_manager(**self.settings)
        passes.run(self._final_module, builder)

    def finalize(self) -> None:
        super().finalize()
        places = {variable.name for variable in self._final_module.global_variables}
        for name, environment in _environments(self._linking_libraries).items():
            if name in places:  # others were optimised away
                self._codegen.set_env(name, environment)


class _WholeOfScalars(_Whole):
    """The same for a kernel in which LLVM has to find the vectors."""

    settings: dict[str, Any] = {}  # noqa: RUF012


def _environments(libraries: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for library in libraries:
        found |= library.environments if isinstance(library, _Linked) else {}
    return found


def _call(function: Any, argument: Any) -> Any:
    return function(argument)


# Frames of Python lie in chunks of 16 kB, and a loop whose calls begin on one and end on the next gets and gives back a
# chunk with every call. Compilers call deeply. A frame that says it needs much gets a chunk that is twice as large, and
# the other half is for all frames above it.
_roomily = FunctionType(_call.__code__.replace(co_stacksize=1 << 16), globals())


class _Compiler(Compiler):
    """The passes of Numba's that kernels need, into a library of ours."""

    library: type[JITCodeLibrary]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # This compiler's own copy. All there is was just read; Numba would read it again for every array.
        self.state.targetctx.refresh = lambda: None

    def define_pipelines(self) -> list[Any]:
        state = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        (usual,) = super().define_pipelines()
        usual.passes = [each for each in usual.passes if each[0].name() not in _UNUSED]
        return [usual]


class _Inner(_Compiler):
    library = _Linked

    def compile_extra(self, function: Any) -> Any:
        compiled = super().compile_extra(function)
        kind = compiled.signature.return_type
        if not self.state.flags.nrt and self.state.targetctx.data_model_manager[kind].contains_nrt_meminfo():
            # Its caller would give up a reference that nobody took.
            raise TypeError(f"Expected {function.__name__} to return no array, got {kind}. Declare it a `maker`.")
        return compiled


class _Outer(_Compiler):
    library = _Whole

    def compile_extra(self, function: Any) -> Any:
        collects = gc.isenabled()
        gc.disable()
        try:
            return _roomily(super().compile_extra, function)
        finally:
            if collects:
                gc.enable()


class _OuterOfScalars(_Outer):
    library = _WholeOfScalars


def _with(tried: dict[str, Any]) -> dict[str, Any]:
    """Options for a function of kernels, of which some are for Numba's insides."""
    return {"error_model": "numpy", **(tried if TRIED else {})}


# Parts stay functions of their own; pieces work on vectors, and vanish into their callers so that these stay in
# registers. Neither has an entry from Python, nor one from C. As options they are for `overload`.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
PART: dict[str, Any] = {**_INNER, **_with({"pipeline_class": _Inner, "_nrt": False})}
PIECE: dict[str, Any] = {**PART, "forceinline": True}
_KERNEL: dict[str, Any] = {"nogil": True, "cache": True, "no_cfunc_wrapper": True}

kernel = numba.njit(**_KERNEL, **_with({"pipeline_class": _Outer}))  # its loops are over vectors
scalar_kernel = numba.njit(**_KERNEL, **_with({"pipeline_class": _OuterOfScalars}))  # over numbers, for LLVM to combine
part = numba.njit(**PART)
piece = numba.njit(**PIECE)
maker = numba.njit(**_INNER, **_with({"pipeline_class": _Inner, "_nrt": True}))  # a part that makes arrays for a kernel

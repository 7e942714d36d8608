"""How kernels are compiled: what Python calls is kept on disk, and what only kernels call becomes part of them.

Numba makes instructions of every function that it compiles, optimised by itself, even where it will only ever be linked
into another and optimised there again. Of sixty functions that a kernel is made of one is ever called. The others are
handed on as they are here, which takes a fifth off the time to compile, and changes no instruction that runs.

This rests on parts of Numba that are not its public interface. So it is done with the versions that it was tried with,
and others compile in the usual way, which takes longer and comes to the same.
"""

from typing import Any

import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

TRIED = numba.version_info.short == (0, 68)


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

    def finalize(self) -> None:
        super().finalize()
        places = {variable.name for variable in self._final_module.global_variables}
        for name, environment in _environments(self._linking_libraries).items():
            if name in places:  # others were optimised away
                self._codegen.set_env(name, environment)


def _environments(libraries: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for library in libraries:
        found |= library.environments if isinstance(library, _Linked) else {}
    return found


class _Compiler(Compiler):
    """Numba's usual passes, into a library of ours."""

    library: type[JITCodeLibrary]

    def define_pipelines(self) -> list[Any]:
        state = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        passes: list[Any] = super().define_pipelines()
        return passes


class _Inner(_Compiler):
    library = _Linked


class _Outer(_Compiler):
    library = _Whole


# Parts stay functions of their own; pieces work on vectors, and vanish into their callers so that these stay in
# registers. Neither has an entry from Python, nor one from C. As options they are for `overload`.
PART: dict[str, Any] = {
    "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True,
    **({"pipeline_class": _Inner} if TRIED else {}),
}  # fmt: skip
PIECE: dict[str, Any] = {**PART, "forceinline": True}

kernel = numba.njit(
    nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True,
    **({"pipeline_class": _Outer} if TRIED else {}),
)  # fmt: skip
part = numba.njit(**PART)
piece = numba.njit(**PIECE)

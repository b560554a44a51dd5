"""Puts a mutant into a process that has everything imported already.

A function keeps its identity and gets other code, so whoever has imported it runs the mutant too.
A constant is replaced in every module that has it under the same name.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from scripts.mutation.mutants import Mutant

_PLAIN = (int, float, str, bytes, tuple, frozenset, dict)


class NotInstalled(Exception):
    """The mutant is at a place that this cannot change."""


def install(mutant: Mutant) -> None:
    tree = mutant.tree()
    module = sys.modules[mutant.module]
    if not mutant.function:
        _install_constants(module, tree)
        return
    new = _last(_codes(compile(tree, str(mutant.path), "exec"), mutant.function), mutant.line)
    for function in _functions(module, mutant.function):
        if function.__code__.co_firstlineno == new.co_firstlineno:
            function.__code__ = new
            return
    raise NotInstalled(mutant.name)


def _codes(code: CodeType, name: str) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == name:
                yield constant
            yield from _codes(constant, name)


def _last(codes: Iterator[CodeType], line: int) -> CodeType:
    """A property has several functions of one name: the one that the line is in."""
    found = [code for code in codes if code.co_firstlineno <= line]
    if not found:
        raise NotInstalled
    return max(found, key=lambda code: code.co_firstlineno)


def _functions(module: ModuleType, name: str) -> Iterator[FunctionType]:
    holder: Any = module
    *classes, last = name.split(".")
    for part in classes:
        holder = vars(holder)[part]
    found = vars(holder).get(last)
    for candidate in (
        found,
        getattr(found, "__func__", None),
        getattr(found, "__wrapped__", None),
        getattr(found, "fget", None),
        getattr(found, "fset", None),
    ):
        if isinstance(candidate, FunctionType):
            yield candidate


def _install_constants(module: ModuleType, tree: ast.Module) -> None:
    assignments: list[ast.stmt] = [
        node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)
    ]
    fresh = dict(vars(module))
    exec(compile(ast.Module(assignments, []), module.__name__, "exec"), fresh)
    changed = {
        name: (old, fresh[name])
        for name, old in vars(module).items()
        if isinstance(old, _PLAIN) and not name.startswith("__") and fresh[name] != old
    }
    if not changed:
        raise NotInstalled(module.__name__)
    for other in list(sys.modules.values()):
        names = vars(other)
        for name, (old, new) in changed.items():
            if names.get(name) is old:
                names[name] = new

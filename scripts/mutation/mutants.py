"""Small wrong changes of a module: each mutant is one change at one node of its syntax tree.

A mutant is named by its place and its kind, so that a later run knows it again. What only people
read (texts, annotations, `__repr__`) and what is only checked (`assert`) is left alone.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_NUMBERS = {"i64", "int", "float"}

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
_EMPTY: dict[str, ast.expr] = {
    "bytes": ast.Constant(b""),
    "str": ast.Constant(""),
    "list": ast.List([], ast.Load()),
    "dict": ast.Dict([], []),
}
_LEFT_ALONE = (ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)
_SILENT = ("__repr__", "__str__")

Change = Callable[[ast.AST], ast.AST]


@dataclass(frozen=True)
class Mutant:
    """One change: `change` makes the new node out of a copy of the old one."""

    module: str
    path: Path
    function: str  # the qualified name of the outermost function; "": in the module itself
    line: int
    columns: str
    kind: str
    lines: frozenset[int]  # whoever runs none of them cannot notice
    steps: tuple[tuple[str, int], ...] = field(repr=False)  # the way from the root to the node
    change: Change = field(repr=False)

    @property
    def name(self) -> str:
        return f"{self.module}:{self.line}:{self.columns}:{self.kind}"

    def tree(self) -> ast.Module:
        """The module with the change in it."""
        tree = ast.parse(self.path.read_text(encoding="utf-8"))
        parent: ast.AST = tree
        for name, place in self.steps[:-1]:
            parent = _child(parent, name, place)
        name, place = self.steps[-1]
        new = ast.copy_location(
            self.change(_child(parent, name, place)), _child(parent, name, place)
        )
        if place < 0:
            setattr(parent, name, new)
        else:
            getattr(parent, name)[place] = new
        return ast.fix_missing_locations(tree)

    def shown(self) -> tuple[str, str]:
        """The node as it is, and as the mutant has it, each on one line."""
        old: ast.AST = ast.parse(self.path.read_text(encoding="utf-8"))
        for name, place in self.steps:
            old = _child(old, name, place)
        new = self.change(copy.deepcopy(old))
        ast.fix_missing_locations(new)
        return _text(old), _text(new)


def _child(node: ast.AST, name: str, place: int) -> ast.AST:
    value = getattr(node, name)
    child: ast.AST = value if place < 0 else value[place]
    return child


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:160]


def mutants_of(path: Path, module: str) -> list[Mutant]:
    """All mutants of a module, in the order of their places."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    walk = _Walk(module, path)
    walk.body(tree, "body", tree.body, ())
    return walk.found


class _Walk:
    def __init__(self, module: str, path: Path) -> None:
        self.module = module
        self.path = path
        self.found: list[Mutant] = []
        self.scope: list[str] = []
        self.function = ""
        self.names: dict[str, int] = {}  # how often the function binds each name
        self.returns = ""
        self.lines: frozenset[int] = frozenset()

    def add(
        self,
        node: ast.expr | ast.stmt,
        kind: str,
        steps: tuple[tuple[str, int], ...],
        change: Change,
    ) -> None:
        columns = f"{node.col_offset}-{node.end_col_offset}"
        place = (self.module, self.path, self.function, node.lineno, columns)
        self.found.append(Mutant(*place, kind, self.lines, steps, change))

    def body(
        self,
        parent: ast.AST,
        name: str,
        statements: list[ast.stmt],
        steps: tuple[tuple[str, int], ...],
    ) -> None:
        for place, statement in enumerate(statements):
            self.statement(statement, (*steps, (name, place)))

    def statement(self, node: ast.stmt, steps: tuple[tuple[str, int], ...]) -> None:
        if isinstance(node, ast.ClassDef):
            self.enter_class(node, steps)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.enter_function(node, steps)
        elif not isinstance(node, _LEFT_ALONE) and (self.function or not self.scope):
            self.lines = _lines_of(node)
            if self.function:
                self.whole_statement(node, steps)
            elif not isinstance(node, ast.Assign | ast.AnnAssign):
                return
            self.parts(node, steps)

    def enter_class(self, node: ast.ClassDef, steps: tuple[tuple[str, int], ...]) -> None:
        if not self.function:
            self.scope.append(node.name)
            self.body(node, "body", node.body, steps)
            self.scope.pop()

    def enter_function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, steps: tuple[tuple[str, int], ...]
    ) -> None:
        if node.name in _SILENT:
            return
        outermost = not self.function
        before = self.names, self.returns
        if outermost:
            self.function = ".".join([*self.scope, node.name])
        self.names = _bound(node)
        self.returns = ast.unparse(node.returns) if node.returns else ""
        self.body(node, "body", node.body, steps)
        self.names, self.returns = before
        if outermost:
            self.function = ""

    def whole_statement(self, node: ast.stmt, steps: tuple[tuple[str, int], ...]) -> None:
        if self.is_worth_removing(node):
            self.add(node, "remove", steps, lambda node: ast.Pass())
        if isinstance(node, ast.Break):
            self.add(node, "continue", steps, lambda node: ast.Continue())
        elif isinstance(node, ast.Continue):
            self.add(node, "break", steps, lambda node: ast.Break())
        elif isinstance(node, ast.AugAssign):
            other = _ARITHMETIC.get(type(node.op))
            if other is not None:
                self.add(node, "arithmetic", steps, _with_operator(other))
        elif isinstance(node, ast.If) or (
            isinstance(node, ast.While) and not isinstance(node.test, ast.Constant)
        ):
            self.add(node.test, "negate", (*steps, ("test", -1)), _negated)
        elif isinstance(node, ast.Return) and node.value is not None:
            change = self.other_result(node.value)
            if change is not None:
                self.add(node.value, "result", (*steps, ("value", -1)), change)

    def is_worth_removing(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.Expr):
            return isinstance(node.value, ast.Call)
        if isinstance(node, ast.Raise | ast.Delete) or (
            isinstance(node, ast.Return) and node.value is None
        ):
            return True
        if isinstance(node, ast.Assign):
            return all(self.lasts(target) for target in node.targets)
        return isinstance(node, ast.AugAssign) or (
            isinstance(node, ast.AnnAssign) and node.value is not None and self.lasts(node.target)
        )

    def lasts(self, target: ast.expr) -> bool:
        """Without the assignment there is still some value, if only an older one."""
        if isinstance(target, ast.Tuple):
            return all(self.lasts(element) for element in target.elts)
        if isinstance(target, ast.Attribute):  # what `__init__` leaves out is missed by all
            return not self.function.endswith("__init__")
        return not isinstance(target, ast.Name) or self.names.get(target.id, 0) > 1

    def other_result(self, value: ast.expr) -> Change | None:
        if isinstance(value, ast.Constant):
            return None
        if self.returns == "bool":
            return _negated
        if self.returns in _NUMBERS:
            return lambda node: ast.BinOp(_expression(node), ast.Add(), ast.Constant(1))
        if self.returns.endswith("| None"):
            return lambda node: ast.Constant(None)
        empty = _EMPTY.get(self.returns.partition("[")[0])
        return (lambda node: copy.deepcopy(empty)) if empty is not None else None

    def parts(self, node: ast.AST, steps: tuple[tuple[str, int], ...]) -> None:
        for name, place, child in _children(node):
            below = (*steps, (name, place))
            if isinstance(child, ast.stmt):
                self.statement(child, below)
            elif isinstance(child, ast.ExceptHandler | ast.match_case):
                self.body(child, "body", child.body, below)
            elif not isinstance(child, _LEFT_ALONE) and name not in ("annotation", "returns"):
                if isinstance(child, ast.expr):
                    self.expression(child, below)
                self.parts(child, below)

    def expression(self, node: ast.expr, steps: tuple[tuple[str, int], ...]) -> None:
        if isinstance(node, ast.Compare):
            for place, operator in enumerate(node.ops):
                for other in _COMPARISONS[type(operator)]:
                    self.add(
                        node,
                        f"compare-{place}-{other.__name__}",
                        steps,
                        _with_comparison(place, other),
                    )
        elif isinstance(node, ast.BoolOp):
            other_kind = ast.Or if isinstance(node.op, ast.And) else ast.And
            self.add(
                node,
                other_kind.__name__.lower(),
                steps,
                lambda node: ast.BoolOp(other_kind(), _values(node)),
            )
            for place in range(len(node.values)):
                self.add(node, f"drop-{place}", steps, _without(place))
        elif isinstance(node, ast.BinOp) and not _is_text(node.left) and not _is_text(node.right):
            other_operator = _ARITHMETIC.get(type(node.op))
            if other_operator is not None:
                self.add(node, "arithmetic", steps, _with_operator(other_operator))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            if not isinstance(node.operand, ast.Constant):
                self.add(node, "unary", steps, _operand)
        elif isinstance(node, ast.IfExp):
            self.add(node, "swap", steps, _swapped)
        elif isinstance(node, ast.Constant):
            self.constant(node, steps)

    def constant(self, node: ast.Constant, steps: tuple[tuple[str, int], ...]) -> None:
        value = node.value
        if isinstance(value, bool):
            self.add(node, "flip", steps, lambda node: ast.Constant(not value))
        elif isinstance(value, int | float):
            self.add(node, "plus", steps, lambda node: ast.Constant(value + 1))
            self.add(node, "minus", steps, lambda node: ast.Constant(value - 1))


def _children(node: ast.AST) -> Iterator[tuple[str, int, ast.AST]]:
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            for place, child in enumerate(value):
                if isinstance(child, ast.AST):
                    yield name, place, child
        elif isinstance(value, ast.AST):
            yield name, -1, value


def _lines_of(node: ast.stmt) -> frozenset[int]:
    """The lines of a simple statement, or of the head of a compound one."""
    inner = getattr(node, "body", None)
    if isinstance(inner, list) and inner:
        last = max(node.lineno, inner[0].lineno - 1)
    else:
        last = node.end_lineno or node.lineno
    return frozenset(range(node.lineno, last + 1))


def _bound(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts[node.id] = counts.get(node.id, 0) + 1
        elif isinstance(node, ast.arg):
            counts[node.arg] = counts.get(node.arg, 0) + 1
    return counts


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _expression(node: ast.AST) -> ast.expr:
    assert isinstance(node, ast.expr)
    return node


def _values(node: ast.AST) -> list[ast.expr]:
    assert isinstance(node, ast.BoolOp)
    return node.values


def _negated(node: ast.AST) -> ast.AST:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    return ast.UnaryOp(ast.Not(), _expression(node))


def _operand(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.UnaryOp)
    return node.operand


def _swapped(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.IfExp)
    return ast.IfExp(node.test, node.orelse, node.body)


def _without(place: int) -> Change:
    def change(node: ast.AST) -> ast.AST:
        values = [value for number, value in enumerate(_values(node)) if number != place]
        assert isinstance(node, ast.BoolOp)
        return values[0] if len(values) == 1 else ast.BoolOp(node.op, values)

    return change


def _with_operator(operator: type[ast.operator]) -> Change:
    def change(node: ast.AST) -> ast.AST:
        if isinstance(node, ast.AugAssign):
            return ast.AugAssign(node.target, operator(), node.value)
        assert isinstance(node, ast.BinOp)
        return ast.BinOp(node.left, operator(), node.right)

    return change


def _with_comparison(place: int, operator: type[ast.cmpop]) -> Change:
    def change(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Compare)
        operators = [operator() if n == place else old for n, old in enumerate(node.ops)]
        return ast.Compare(node.left, operators, node.comparators)

    return change

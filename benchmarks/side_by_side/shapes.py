"""How the load generator works: on how many connections, and how much at a time on each."""

from typing import Final

SHAPES: Final[dict[str, tuple[int, int]]] = {
    "c1": (1, 1),
    "c50": (50, 1),
    "c500": (500, 1),
    "c1x100": (1, 100),
    "c50x100": (50, 100),
}
"""Connections, and how many jobs each of them has under way at a time."""


def shape_name(shape: str) -> str:
    connections, depth = SHAPES[shape]
    name = f"{connections} connection" + ("s" if connections > 1 else "")
    return name if depth == 1 else f"{name}, {depth} deep"

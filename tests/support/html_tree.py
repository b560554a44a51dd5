"""A page as a tree of elements, to be asked what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

_EMPTY = frozenset(("img", "link", "meta"))


class Element:
    def __init__(self, tag: str, attributes: dict[str, str | None]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.parent: Element | None = None
        self.children: list[Element | str] = []

    def all(self, tag: str = "", **attributes: str) -> list[Element]:
        """Those within it, in their order; `class_` is for `class`."""
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [
            each
            for each in self._walk()
            if tag in ("", each.tag) and wanted.items() <= each.attributes.items()
        ]

    def one(self, tag: str = "", **attributes: str) -> Element:
        (found,) = self.all(tag, **attributes)
        return found

    def around(self, tag: str) -> Element:
        """The nearest one that this is in."""
        found = self.parent
        while found is not None and found.tag != tag:
            found = found.parent
        assert found is not None
        return found

    def rows(self) -> list[list[str]]:
        """What the cells of a table's body say."""
        (body,) = self.all("tbody")
        return [
            [cell.text for cell in row.children if isinstance(cell, Element)]
            for row in body.all("tr")
        ]

    @property
    def text(self) -> str:
        return re.sub(r"[ \n]+", " ", self._raw()).strip(" \n")  # but keep spaces of other kinds

    def _raw(self) -> str:
        return "".join(each if isinstance(each, str) else each._raw() for each in self.children)

    def _walk(self) -> Iterator[Element]:
        for each in self.children:
            if isinstance(each, Element):
                yield each
                yield from each._walk()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.top = self.now = Element("", {})

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, dict(attrs))
        made.parent = self.now
        self.now.children.append(made)
        if tag not in _EMPTY:
            self.now = made

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.now.tag, f"</{tag}> ends a <{self.now.tag}>"
        assert self.now.parent is not None
        self.now = self.now.parent

    def handle_data(self, data: str) -> None:
        self.now.children.append(data)


def read_html(page: str) -> Element:
    """Every element must be ended by its own tag."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.now is reader.top
    return reader.top

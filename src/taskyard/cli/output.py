"""What a command says: tables and sentences for people, a JSON object a line for programs."""

import io
import itertools
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from taskyard.cli.progress import ProgressBar
from taskyard.cli.style import Style, is_terminal
from taskyard.cli.table import Column, print_table
from taskyard.cli.text import escape_unsafe, escape_unsafe_json, escape_unsafe_lines, pad


class Output:
    def __init__(self, stream: TextIO, *, json: bool) -> None:
        self.json = json
        self.stream = stream
        self.style = Style(stream)
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character gets a question mark, not a traceback.
            stream.reconfigure(errors="replace")

    @property
    def on_terminal(self) -> bool:
        return is_terminal(self.stream)

    def print_items(self, columns: Sequence[Column], rows: Iterable[Any], none: str) -> int:
        """A list; gives how many there were. `none` is the sentence for people if it is empty."""
        if self.json:
            with ProgressBar("reading", streaming=True) as progress:
                for row in rows:
                    self.print_object(row)
                    progress.step()
            return progress.done
        count = print_table(columns, rows, self.stream)
        if not count:
            self.print_nothing_found(none)
        return count

    def print_limited_items(
        self, columns: Sequence[Column], rows: Iterable[Any], most: int | None, none: str
    ) -> None:
        """The same, up to so many; a note says if there are more."""
        rest = iter(rows)
        self.print_items(columns, rest if most is None else itertools.islice(rest, most), none)
        if most is not None and next(rest, None) is not None:
            self.flush()
            self.print_note(f"These are the first {most:,}: --all shows all of them.")

    def print_bytes(self, data: bytes) -> None:
        """Print them as they are; on a terminal as text that is safe there, with a line end."""
        if self.on_terminal:
            for line in escape_unsafe_lines(data.decode(errors="replace")):
                print(line, file=self.stream)
            return
        self.flush()
        self.stream.buffer.write(data)

    def print_object(self, value: Any) -> None:
        """A line of JSON."""
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        print(escape_unsafe_json(text), file=self.stream)

    def print_result(self, value: dict[str, Any], sentence: str) -> None:
        """What the command has done."""
        if self.json:
            self.print_object(value)
        else:
            self.print_line(sentence)

    def print_line(self, text: str) -> None:
        print(escape_unsafe(text), file=self.stream)

    def print_fields(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Names and values below each other."""
        wide = max((len(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            print(
                f"{self.style.paint(pad(name, wide), 'bold')}  {escape_unsafe(value)}",
                file=self.stream,
            )

    def print_block(self, title: str, text: str) -> None:
        """A title, and below it lines that may be many."""
        print(self.style.paint(title, "bold"), file=self.stream)
        for line in escape_unsafe_lines(text):
            print(f"  {line}", file=self.stream)

    def print_nothing_found(self, sentence: str) -> None:
        """Print a note for people, beside the output, in place of an empty list."""
        if not self.json and sentence:
            print(escape_unsafe(sentence), file=sys.stderr)

    def print_note(self, text: str) -> None:
        """For people only, beside the output."""
        if is_terminal(sys.stderr):
            print(escape_unsafe(text), file=sys.stderr)

    def flush(self) -> None:
        self.stream.flush()

"""Writes the table of all settings into docs/configuration.md, from the table in the code.

Run it after a change of src/taskyard/server/settings/schema.py: `make reference`. A test says when
it is due.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from taskyard.server.settings.schema import Option, options  # noqa: E402 (behind the path it is found on)

PAGE = ROOT / "docs" / "configuration.md"
BEGIN = "<!-- made by scripts/reference.py from src/taskyard/server/settings/schema.py -->\n"
END = "<!-- end of what is made -->\n"
HEAD = "| flag | variable | TOML key | default | range | meaning |\n|---|---|---|---|---|---|\n"
SAYS_NOTHING = ("PATH", "HOST")  # what is expected there goes without saying


def row(option: Option) -> str:
    kind = option.kind
    expected = "" if kind.metavar in SAYS_NOTHING else kind.expected
    cells = (
        f"`{option.flag}`",
        f"`{option.variable}`",
        f"`{option.name}`" if option.in_file else "-",
        f"`{option.default}`" if option.default else "none",
        kind.range() or expected,
        option.doc,
    )
    return f"| {' | '.join(cells)} |\n"


def made(page: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{HEAD}{''.join(map(row, options()))}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

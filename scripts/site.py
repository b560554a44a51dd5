"""A hook of MkDocs: pages of the site from files that are not in docs/, and links that lead there.

A page may link to any file of the repository, as it is read there. CONTRIBUTING.md and CHANGELOG.md
are pages of the site, README.md is its home, and what else is linked to is copied as plain text.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
HOME = {"README.md": "index.md"}
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[#)])")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.mdx_configs["toc"]["slugify"] = anchor
    return config


def anchor(title: str, separator: str) -> str:
    """The name of a heading, the same as where the repository is read."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", separator)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, "assets/code.css", content=_colours()))
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_moved(text, source, page)))
    for file in list(files.documentation_pages()):
        for link in LINK.findall(file.content_string):
            target = _target(_repository_path(file.src_uri), link)
            copied = _copied(target)
            if target is not None and copied and files.get_file_from_path(copied) is None:
                text = (ROOT / target).read_text(encoding="utf-8")
                files.append(File.generated(config, copied, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    return markdown if uri in PAGES.values() else _moved(markdown, f"docs/{uri}", uri)


def _colours() -> str:
    """Of code, in the light and in the dark theme."""
    light = HtmlFormatter(style="friendly", cssclass="codehilite").get_style_defs()
    dark = HtmlFormatter(style="github-dark").get_style_defs("[data-bs-theme=dark] .codehilite")
    return f"{light}\n{dark}\n"


def _moved(text: str, source: str, page: str) -> str:
    """The text of a file of the repository, with links as they are from a page of the site."""

    def place(link: re.Match[str]) -> str:
        target = _target(source, link[0])
        if target is None:
            return link[0]
        return posixpath.relpath(_on_site(target), posixpath.dirname(page) or ".")

    return LINK.sub(place, text)


def _target(source: str, link: str) -> str | None:
    """The file of the repository to which a link of such a file leads."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    return path if (ROOT / path).is_file() else None


def _repository_path(uri: str) -> str:
    return next((source for source, page in PAGES.items() if page == uri), f"docs/{uri}")


def _on_site(path: str) -> str:
    named = {**PAGES, **HOME}.get(path)
    return named or _copied(path) or path.removeprefix("docs/")


def _copied(path: str | None) -> str | None:
    if path is None or path in PAGES or path in HOME or path.startswith("docs/"):
        return None
    return f"source/{path}.txt"

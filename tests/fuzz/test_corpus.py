"""Every input that is kept, and every seed, once through its target: on both forms, unguided."""

from __future__ import annotations

import pytest
from fuzz import catalog

MOST_BYTES = 1_000_000


@pytest.mark.parametrize("name", catalog.names())
def test_what_was_once_found_is_still_right(name: str) -> None:
    target = catalog.load(name)
    for seed in target.SEEDS:
        target.fuzz(seed)
    for path in catalog.corpus(name):
        try:
            target.fuzz(path.read_bytes())
        except BaseException as error:
            error.add_note(f"the input is {path}")
            raise


def test_each_input_belongs_to_a_target() -> None:
    assert {path.name for path in catalog.CORPUS.iterdir()} <= set(catalog.names())


def test_the_corpus_stays_small() -> None:
    files = [path for path in catalog.CORPUS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES

"""What somebody may have meant by a name that there is not."""

import pytest

from taskyard.shared.misspelt import check_names, did_you_mean


def test_a_name_that_is_alike_is_offered() -> None:
    assert did_you_mean("retires", ["ttl", "retries"]) == " (did you mean retries?)"
    assert did_you_mean("zzz", ["ttl", "retries"]) == ""
    assert did_you_mean("shwo", ["show"], 0.8) == ""


def test_names_are_checked() -> None:
    check_names("option", ["ttl"], ["ttl", "retries"])
    with pytest.raises(TypeError, match=r"^there is no option 'tl' \(did you mean ttl\?\)$"):
        check_names("option", ["ttl", "tl"], ["ttl"])
    with pytest.raises(TypeError, match=r"^there is no option 'eta' \(it is run_at here\)$"):
        check_names("option", ["eta"], ["ttl"], {"eta": "it is run_at here"})

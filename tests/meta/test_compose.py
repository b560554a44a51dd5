"""The file for Compose: as its schema says, and with commands and ports that there are."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.manifests import PACKAGING, documents, faults, ports, serve_settings, write

from taskyard.cli import work

FILE = PACKAGING / "compose.yml"
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    [found] = documents(FILE)
    result: dict[str, Any] = found["services"]
    return result


def with_defaults(text: str) -> str:
    """As Compose fills it in for whoever sets no variable, and VALUE where one must be set."""
    return VARIABLE.sub(lambda match: match[3] if match[2] == "-" else "VALUE", text)


def test_the_file_is_as_its_schema_says() -> None:
    assert not faults("compose-spec", FILE)


def test_the_schema_refuses_a_misspelt_key(tmp_path: Path) -> None:
    [content] = documents(FILE)
    content["services"]["server"]["healthchek"] = content["services"]["server"].pop("healthcheck")
    assert "healthchek" in faults("compose-spec", write(tmp_path, content))


def test_the_server_starts_with_settings_that_exist(services: dict[str, Any]) -> None:
    settings = serve_settings(services["server"]["command"])
    volumes = [text.partition(":")[2] for text in services["server"]["volumes"]]
    assert [str(settings.data), str(settings.lake)] == volumes
    [secret] = services["server"]["secrets"]
    assert str(settings.users) == f"/run/secrets/{secret['target']}"


def test_every_listener_is_there_for_this_machine_only(services: dict[str, Any]) -> None:
    wanted = sorted(f"127.0.0.1:{port}:{port}" for port in ports().values())
    assert sorted(services["server"]["ports"]) == wanted


def test_volumes_and_secrets_are_declared() -> None:
    [content] = documents(FILE)
    server = content["services"]["server"]
    assert {text.partition(":")[0] for text in server["volumes"]} == content["volumes"].keys()
    assert {secret["source"] for secret in server["secrets"]} == content["secrets"].keys()


def test_the_worker_runs_an_app(services: dict[str, Any]) -> None:
    words = [with_defaults(word) for word in services["worker"]["command"]]
    assert words[0] == "work"
    assert work.parser().parse_args(words[1:]).app == "mail:app"


def test_the_worker_waits_for_the_server_at_its_port(services: dict[str, Any]) -> None:
    url = with_defaults(services["worker"]["environment"]["TASKYARD_URL"])
    assert url == f"taskyard://:VALUE@server:{ports()['resp']}"
    assert services["worker"]["depends_on"] == {"server": {"condition": "service_healthy"}}
    probe = services["server"]["healthcheck"]["test"][-1]
    assert f"http://127.0.0.1:{ports()['http']}/readyz" in probe


def test_both_run_what_the_recipe_builds(services: dict[str, Any]) -> None:
    build = services["server"]["build"]
    recipe = PACKAGING / build["context"] / build["dockerfile"]
    assert f" AS {build['target']}\n" in recipe.read_text()
    assert services["worker"]["image"] == services["server"]["image"]


def test_no_variable_is_taken_for_a_setting() -> None:
    """Whoever starts a server beside it has them in the same environment."""
    names = {match[1] for match in VARIABLE.finditer(FILE.read_text())}
    assert names
    assert not any(name.startswith("TASKYARD_") for name in names)

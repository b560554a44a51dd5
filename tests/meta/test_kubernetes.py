"""The manifests: as the schemas of Kubernetes and KEDA say, and about a server as it is."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from support.json_schema import Invalid, check
from support.keda import SCHEMAS
from support.manifests import (
    PACKAGING,
    documents,
    kubernetes_faults,
    ports,
    serve_settings,
    write,
)
from support.process import WarmServer
from support.users import user, users_of

import taskyard
from taskyard.access.users import save_users
from taskyard.cli import work
from taskyard.client.url import Address

PLACE = PACKAGING / "kubernetes"
FILES = ("server.yaml", "worker.yaml")
# The oldest with what the manifests use, and the newest that the schemas are for.
KUBERNETES = ("1.29", "1.37")
TOKEN = "ty_a-token-of-the-worker"


def resource(name: str, kind: str) -> Any:
    [found] = [each for each in documents(PLACE / name) if each["kind"] == kind]
    return found


@pytest.fixture(scope="module")
def server() -> Any:
    return resource("server.yaml", "StatefulSet")["spec"]


@pytest.fixture(scope="module")
def worker() -> Any:
    return resource("worker.yaml", "Deployment")["spec"]


@pytest.fixture(scope="module")
def triggers() -> list[Any]:
    found: list[Any] = resource("autoscaling.yaml", "ScaledObject")["spec"]["triggers"]
    return found


# Schemas


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("version", KUBERNETES)
def test_a_manifest_is_as_kubernetes_wants_it(name: str, version: str) -> None:
    assert not kubernetes_faults(version, PLACE / name)


def test_the_schema_of_kubernetes_refuses_a_field_that_it_does_not_know(tmp_path: Path) -> None:
    changed = resource("server.yaml", "StatefulSet")
    changed["spec"]["template"]["spec"]["enableServiceLink"] = False
    found = kubernetes_faults(KUBERNETES[1], write(tmp_path, changed))
    assert "enableServiceLink" in found


def test_autoscaling_is_as_keda_wants_it() -> None:
    for document in documents(PLACE / "autoscaling.yaml"):
        schema = SCHEMAS[document["kind"]]
        check(document, schema, schema)


@pytest.mark.parametrize("change", [{"targetValue": 20}, {"valueLocatoin": "counts.ready"}])
def test_the_schema_of_keda_refuses_a_wrong_parameter(change: dict[str, Any]) -> None:
    changed = resource("autoscaling.yaml", "ScaledObject")
    changed["spec"]["triggers"][0]["metadata"] |= change
    with pytest.raises(Invalid, match=next(iter(change))):
        check(changed, SCHEMAS["ScaledObject"], SCHEMAS["ScaledObject"])


# The server


def container(spec: Any) -> Any:
    [found] = spec["template"]["spec"]["containers"]
    return found


def test_the_server_starts_with_settings_that_exist(server: Any) -> None:
    settings = serve_settings(container(server)["args"])
    mounts = {mount["name"]: mount["mountPath"] for mount in container(server)["volumeMounts"]}
    assert settings.data.is_relative_to(mounts["data"])
    assert settings.users is not None
    assert settings.users.is_relative_to(mounts["users"])


def test_every_listener_has_its_port(server: Any) -> None:
    found = {port["name"]: port["containerPort"] for port in container(server)["ports"]}
    assert found == ports()


def test_the_service_leads_to_the_ports_of_the_pod(server: Any) -> None:
    services = [each for each in documents(PLACE / "server.yaml") if each["kind"] == "Service"]
    labels = server["template"]["metadata"]["labels"]
    assert server["selector"]["matchLabels"] == labels
    for service in services:
        assert service["spec"]["selector"] == labels
        for port in service["spec"]["ports"]:
            assert (port["targetPort"], port["port"]) in ports().items()
    assert server["serviceName"] in [each["metadata"]["name"] for each in services]


def test_mounted_is_what_there_is(server: Any, worker: Any) -> None:
    for spec in (server, worker):
        pod = spec["template"]["spec"]
        claims = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])]
        names = [*claims, *(volume["name"] for volume in pod["volumes"])]
        assert sorted(names) == sorted(it["name"] for it in container(spec)["volumeMounts"])


def test_one_server_has_one_volume_and_no_variables_of_services(server: Any) -> None:
    assert server["replicas"] == 1
    assert len(server["volumeClaimTemplates"]) == 1
    assert server["template"]["spec"]["enableServiceLinks"] is False


def test_the_image_has_the_version_of_the_package(server: Any) -> None:
    assert container(server)["image"] == f"taskyard:{taskyard.__version__}"


# Workers


def test_a_worker_runs_an_app_at_the_address_of_the_service(worker: Any) -> None:
    words = container(worker)["args"]
    assert words[0] == "work"
    options = work.parser().parse_args(words[1:])
    assert options.app == "mail:app"
    environment = {each["name"]: each.get("value") for each in container(worker)["env"]}
    address = Address.parse(environment["TASKYARD_URL"].replace("$(TOKEN)", TOKEN))
    assert (address.host, address.port) == ("taskyard", ports()["resp"])
    assert worker["selector"]["matchLabels"] == worker["template"]["metadata"]["labels"]


def test_what_scales_is_the_worker_with_its_token(worker: Any, triggers: list[Any]) -> None:
    scaled = resource("autoscaling.yaml", "ScaledObject")["spec"]
    target = resource("worker.yaml", "Deployment")["metadata"]["name"]
    assert scaled["scaleTargetRef"] == {"name": target}
    assert "replicas" not in worker  # or each `kubectl apply` would undo what KEDA has set
    login = resource("autoscaling.yaml", "TriggerAuthentication")
    [secret] = login["spec"]["secretTargetRef"]
    [wanted] = [each["valueFrom"] for each in container(worker)["env"] if "valueFrom" in each]
    assert wanted["secretKeyRef"] == {"name": secret["name"], "key": secret["key"]}
    for trigger in triggers:
        assert trigger["authenticationRef"] == {"name": login["metadata"]["name"]}


def test_a_worker_is_kept_for_as_many_jobs_as_it_runs_at_once(
    worker: Any, triggers: list[Any]
) -> None:
    options = work.parser().parse_args(container(worker)["args"][1:])
    [leased] = [each["metadata"] for each in triggers if each["name"] == "leased"]
    assert int(leased["targetValue"]) == options.concurrency


# What KEDA asks for


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmServer]:
    directory = tmp_path_factory.mktemp("guarded")
    rules = (("mail,unused", "take,push,inspect"),)
    save_users(directory / "users.toml", users_of(user("worker", tokens=(TOKEN,), rules=rules)))
    with WarmServer(directory, "--users", str(directory / "users.toml")) as server:
        yield server


def ask(server: WarmServer, url: str) -> Any:
    """As KEDA does, but for the name of the service."""
    place = "http://{}:{}".format(*server.address("http"))
    start = f"http://taskyard:{ports()['http']}"
    assert url.startswith(start)
    login = {"Authorization": f"Bearer {TOKEN}"}
    with urlopen(Request(place + url.removeprefix(start), headers=login), timeout=60) as answer:
        return json.loads(answer.read())


def test_the_server_tells_what_keda_looks_for(running: WarmServer, triggers: list[Any]) -> None:
    url = "taskyard://:{}@{}:{}".format(TOKEN, *running.address("resp"))
    with taskyard.Client(url) as client:
        client.push_many("mail", range(5))
        assert len(client.fetch("mail", count=2)) == 2
        for trigger, wanted in zip(triggers, (3, 2), strict=True):
            found = ask(running, trigger["metadata"]["url"])
            for name in trigger["metadata"]["valueLocation"].split("."):
                found = found[name]
            assert found == wanted


def test_a_queue_that_was_never_used_is_an_error_that_keda_falls_back_for(
    running: WarmServer, triggers: list[Any]
) -> None:
    with pytest.raises(HTTPError, match="404"):
        ask(running, triggers[0]["metadata"]["url"].replace("/mail", "/unused"))
    assert resource("autoscaling.yaml", "ScaledObject")["spec"]["fallback"]["replicas"] > 0

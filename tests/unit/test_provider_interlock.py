"""The interlock: account, region and endpoint must be the cluster's, or nothing is done."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from in_moto import REGION, in_moto
from moto.core import DEFAULT_ACCOUNT_ID

from contract.errors import CloudError, ConfigError, WrongAccountError
from contract.inventory import Endpoint, EndpointKind
from contract.resources import Home
from provider import interlock
from provider.interlock import Interlock

OTHER_ACCOUNT = "000099999999"


def home(account_id: str = DEFAULT_ACCOUNT_ID, url: str | None = None) -> Home:
    kind = EndpointKind.REHEARSAL if url else EndpointKind.AWS
    return Home(account_id=account_id, region=REGION, endpoint=Endpoint(kind=kind, url=url))


@pytest.fixture
def _aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with in_moto(monkeypatch):
        yield


@pytest.fixture
def world() -> Iterator[tuple[str, dict[str, str]]]:
    """A rehearsal's marker alone; its answer can be changed."""
    marker = {"worldId": "w1", "accountId": DEFAULT_ACCOUNT_ID, "region": REGION}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(marker).encode()
            self.send_response(200 if self.path == "/rayrig-rehearsal" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", marker
    server.shutdown()
    server.server_close()
    thread.join(timeout=5)


@pytest.mark.usefixtures("_aws")
def test_the_own_account_passes_and_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = Interlock()
    lock.require(home())
    monkeypatch.setattr(interlock, "caller", lambda _: pytest.fail("asked again"))
    lock.require(home())


@pytest.mark.usefixtures("_aws")
def test_another_account_is_refused_and_both_are_named() -> None:
    with pytest.raises(WrongAccountError) as caught:
        Interlock().require(home(OTHER_ACCOUNT))
    assert OTHER_ACCOUNT in str(caught.value)
    assert DEFAULT_ACCOUNT_ID in str(caught.value)


def test_a_rehearsals_cluster_from_a_shell_that_talks_to_aws() -> None:
    with pytest.raises(WrongAccountError, match=r"rehearsal at http://127.0.0.1:1, this shell talks to AWS itself"):
        Interlock().require(home(url="http://127.0.0.1:1"))


def test_awss_cluster_from_a_rehearsals_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1/")
    with pytest.raises(WrongAccountError, match="lives in AWS itself, this shell talks to the rehearsal"):
        Interlock().require(home())


def test_a_rehearsal_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(CloudError, match="does not answer"):
        Interlock().require(home(url="http://127.0.0.1:1"))


@pytest.mark.parametrize("change", [{"accountId": OTHER_ACCOUNT}, {"region": "us-east-1"}])
def test_another_world_at_the_same_address(world, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]) -> None:
    url, marker = world
    marker.update(change)
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    with pytest.raises(WrongAccountError, match="another rehearsal's world"):
        Interlock().require(home(url=url))


def test_something_else_at_the_address(world, monkeypatch: pytest.MonkeyPatch) -> None:
    url, marker = world
    marker.clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    with pytest.raises(WrongAccountError, match="account None"):
        Interlock().require(home(url=url))


def test_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="no usable AWS credentials"):
        Interlock().require(home())


@pytest.mark.usefixtures("_aws")
def test_a_refusal_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = Interlock()
    with monkeypatch.context() as shell:
        shell.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        with pytest.raises(WrongAccountError):
            lock.require(home())
    lock.require(home())

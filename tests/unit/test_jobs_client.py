"""The Jobs API's client on a machine whose environment names a proxy."""

import http.server
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from contract.errors import UnreachableError
from jobs.client import JobClient
from jobs.tunnel import Dashboard


class Head(http.server.BaseHTTPRequestHandler):
    """Ray's version call."""

    def do_GET(self) -> None:
        body = json.dumps({"version": "4", "ray_version": "2.60.0", "ray_commit": "x", "session_name": "s"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture
def port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Head)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield int(server.server_address[1])
    server.shutdown()
    server.server_close()
    thread.join(timeout=5)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_the_tunnel_on_loopback_and_its_token_never_go_to_the_persons_proxy(
    port: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    JobClient(Dashboard(url=f"http://127.0.0.1:{port}", token="t" * 64))


def test_a_head_whose_ray_is_down_is_told_with_the_command_that_brings_it_back() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(UnreachableError, match="Jobs API does not answer") as caught:
            JobClient(Dashboard(url=f"http://127.0.0.1:{unused.getsockname()[1]}", token="t" * 64))
    assert caught.value.next_step is not None
    assert "pulumi up --replace '**RayFleet::ray'" in caught.value.next_step

"""The programs that run on nodes: whole and standard-library only as sent, and right in what they answer."""

import ast
import http.server
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from remote_ssh_server import SshServer, new_key

from bootstrap import on_node
from bootstrap.on_node import boot, follow, nodes, ports, program, prove, pull, run_program, token, versions
from remote import CommandError, Target, connect
from remote.keys import Login

NAMES = sorted(
    path.stem for path in Path(on_node.__file__).parent.glob("*.py") if path.stem not in {"__init__", "docker_socket"}
)
RAY_ONLY = {"prove"}


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_whole_and_imports_only_what_a_node_has(name):
    tree = ast.parse(program(name))
    top = {
        alias.name.partition(".")[0]
        for entry in tree.body
        if isinstance(entry, ast.Import | ast.ImportFrom)
        for alias in ([ast.alias(entry.module)] if isinstance(entry, ast.ImportFrom) else entry.names)
    }
    allowed = set(sys.stdlib_module_names) | ({"ray"} if name in RAY_ONLY else set())
    assert top <= allowed
    assert any(isinstance(entry, ast.FunctionDef) and entry.name == "main" for entry in tree.body)


@pytest.mark.parametrize("name", NAMES)
def test_a_program_runs_on_the_oldest_python_of_our_machine_images(name):
    # Ubuntu 22.04 has 3.10, so no syntax of later versions.
    ast.parse(program(name), feature_version=(3, 10))


def run(name, **arguments):
    done = subprocess.run(
        [sys.executable, "-", json.dumps(arguments)],
        input=program(name),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_facts_answer_on_any_linux_without_docker_or_gpu(tmp_path):
    found = run(
        "facts",
        image="r/i@sha256:0",
        container="none-such",
        token_path=str(tmp_path / "t"),
        versions_path=str(tmp_path / "v"),
    )
    assert found["system"]["memory_bytes"] > 2**28
    assert found["container"] is None
    assert found["token"] is None
    assert found["image"]["present"] is False


def test_ports_proves_open_refused_and_listening():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as spare:
        open_port, shut_port = listener.getsockname()[1], spare.getsockname()[1]
        spare.close()
        answer = run(
            "ports",
            listen=[],
            peers=0,
            connect=[["127.0.0.1", open_port], ["127.0.0.1", shut_port]],
            wait_seconds=0.5,
        )
    assert answer == {"failed": {f"127.0.0.1:{shut_port}": "refused"}, "tried": 2}


def test_a_port_that_opens_late_passes():
    with socket.create_server(("127.0.0.1", 0)) as spare:
        port = spare.getsockname()[1]
    late: list[socket.socket] = []
    timer = threading.Timer(0.4, lambda: late.append(socket.create_server(("127.0.0.1", port))))
    timer.start()
    try:
        assert ports.probe("127.0.0.1", port, end=__import__("time").monotonic() + 5) is None
    finally:
        timer.join()
        late[0].close()


def test_settled_counts_each_address_once_and_no_ghosts():
    def rows(*entries):
        return [{"node_ip": ip, "state": state, "start_time_ms": start} for ip, state, start in entries]

    wanted = {"a": 100.0, "b": 200.0}
    assert nodes.settled(rows(("a", "ALIVE", 100), ("b", "ALIVE", 250), ("b", "DEAD", 90)), wanted, [])
    assert not nodes.settled(rows(("a", "ALIVE", 100), ("b", "ALIVE", 250), ("b", "ALIVE", 90)), wanted, [])
    assert not nodes.settled(rows(("a", "ALIVE", 100), ("b", "ALIVE", 90)), wanted, [])
    assert not nodes.settled(rows(("a", "ALIVE", 100)), wanted, [])
    assert not nodes.settled(rows(("a", "ALIVE", 100), ("b", "ALIVE", 250)), {"a": 100.0}, ["b"])


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("manifest for r/i@sha256:0 not found: manifest unknown: manifest unknown", "unknown"),
        ("write /var/lib/docker/tmp: no space left on device", "disk"),
        ("toomanyrequests: You have reached your pull rate limit", "rate"),
        ("pull access denied for r/i, repository does not exist", "denied"),
        ("Get https://r/v2/: http: server gave HTTP response to HTTPS client", "plain-http"),
        ("Get https://r/v2/: dial tcp 10.0.0.1:443: connect: connection refused", "unreachable"),
        ("dial tcp: lookup r on 127.0.0.53:53: no such host", "unreachable"),
        ("net/http: request canceled while waiting for connection", "unreachable"),
        ("something new", "other"),
    ],
)
def test_the_engines_words_are_sorted_by_what_to_do(words, kind):
    assert pull.kind_of(words) == kind


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("10.0.0.1:5000/rayrig@sha256:0", ("10.0.0.1", 5000)),
        ("0123.dkr.example/rayrig@sha256:0", ("0123.dkr.example", 443)),
        ("rayrig@sha256:0", None),
        ("owner/rayrig@sha256:0", None),
    ],
)
def test_the_registry_is_read_from_the_reference(image, registry):
    assert pull.registry_of(image) == registry


def test_pull_progress_adds_up_layers(tmp_path):
    state = pull.State(str(tmp_path / "state.json"))
    state.see({"id": "sha256:0", "status": "Pulling from rayrig"})
    state.see({"id": "one", "status": "Already exists"})
    state.see({"id": "two", "status": "Pulling fs layer"})
    state.see({"id": "two", "status": "Downloading", "progressDetail": {"current": 30, "total": 100}})
    state.write(finished=False)
    seen = follow.read(tmp_path / "state.json")
    assert (seen["layers"], seen["layers_done"], seen["bytes"], seen["total_bytes"]) == (2, 1, 30, 100)
    state.see({"id": "two", "status": "Download complete"})
    state.see({"id": "two", "status": "Extracting", "progressDetail": {"current": 40, "total": 100}})
    state.write(finished=False)
    assert follow.read(tmp_path / "state.json")["unpacked_bytes"] == 40
    state.see({"id": "two", "status": "Pull complete"})
    state.write(finished=True)
    seen = follow.read(tmp_path / "state.json")
    assert (seen["finished"], seen["layers_done"], seen["bytes"]) == (True, 2, 100)


def test_a_missing_pull_state_is_no_error(tmp_path):
    assert follow.read(tmp_path / "none") == {"missing": True, "finished": False}


def test_boot_tells_stage_errors_and_warnings(tmp_path, monkeypatch):
    monkeypatch.setattr(boot, "RUN", tmp_path)
    (tmp_path / "status.json").write_text(
        json.dumps({"v1": {"stage": "modules-final", "recoverable_errors": {"WARNING": ["late"]}}})
    )
    state = boot.boot_state()
    assert (state["expected"], state["finished"], state["stage"]) == (True, False, "modules-final")
    (tmp_path / "result.json").write_text(json.dumps({"v1": {"errors": ["('scripts_user', boom)"]}}))
    state = boot.boot_state()
    assert (state["finished"], state["errors"], state["warnings"]) == (True, ["('scripts_user', boom)"], ["late"])
    (tmp_path / "disabled").touch()
    assert boot.boot_state()["expected"] is False


class Api(http.server.BaseHTTPRequestHandler):
    """Guards its job list as Ray's does."""

    def do_GET(self):
        given = self.headers.get("Authorization")
        status = 401 if given is None else 200 if given == "Bearer good" else 403
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_the_token_program_asks_with_without_and_wrong(tmp_path):
    (tmp_path / "token").write_text("good\n")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        answers = {"right": token.status(port, "good"), "none": token.status(port, None)}
        assert answers == {"right": 200, "none": 401}
        assert run("token", dashboard_port=port, token_path=str(tmp_path / "token")) == {
            "right": 200,
            "none": 401,
            "wrong": 403,
        }
        server.shutdown()


def test_versions_are_read_without_importing_torch_or_ray():
    found = run("versions")
    assert found["python"].startswith("3.")
    assert found["ray"] == "2.60.0"
    assert "torch" in found
    assert versions.torch_versions()["torch"] == found["torch"]


def test_everybody_fetches_from_everybody_until_that_is_too_much():
    assert prove.sources(["head", "a", "b"], "a") == ["head", "b"]
    many = ["head", *(f"worker-{n}" for n in range(40))]
    for name in many:
        chosen = prove.sources(many, name)
        assert name not in chosen
        assert 3 <= len(chosen) <= 4
        assert name == "head" or "head" in chosen
    fetched = {source for name in many for source in prove.sources(many, name)}
    assert fetched == set(many)


def test_a_node_of_an_earlier_up_does_not_fail_the_proof_for_its_instance_is_ended_after_it(monkeypatch, capsys):
    # A first `up` with three workers that failed, then one with two: the third joined, and ends only after the proof.
    alive = {"Alive": True, "Resources": {}}
    rows = [alive | {"NodeManagerAddress": f"10.77.0.{n}", "NodeID": f"id-{n}"} for n in (4, 5, 6)]
    monkeypatch.setattr(prove.ray, "nodes", lambda: rows)
    wanted = [{"name": name, "ip": ip, "gpus": 0} for name, ip in (("head", "10.77.0.4"), ("worker-1", "10.77.0.5"))]
    proof = prove.Proof({"nodes": wanted})
    proof.find_nodes()
    assert proof.failures == []
    assert proof.ids == {"head": "id-4", "worker-1": "id-5"}
    assert proof.strangers == ["10.77.0.6"]
    assert "10.77.0.6" in capsys.readouterr().out


def test_a_program_runs_over_ssh_and_answers_typed(tmp_path):
    host_key, user_key = new_key(), new_key()
    server = SshServer(folder=tmp_path, host_key=host_key, user_key=user_key).start()
    target = Target(
        name="worker-1",
        host="127.0.0.1",
        port=server.port,
        user="ubuntu",
        host_key=f"{host_key.get_name()} {host_key.get_base64()}",
    )
    try:
        with connect(target, login=Login(key=user_key, allow_agent=False, look_for_keys=False)) as connection:
            answer = run_program(connection, "follow", timeout_seconds=20, state_path="/nowhere", wait_seconds=0)
            assert answer == {"missing": True, "finished": False}
            with pytest.raises(CommandError, match="KeyError"):
                run_program(connection, "follow", timeout_seconds=20)
    finally:
        server.close()

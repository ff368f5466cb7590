"""remote/ against a real SSH server on loopback: every failure has its own name and comes in time."""

import contextlib
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import paramiko
import pytest
from remote_ssh_server import SshServer, new_key

from contract.errors import ConfigError, UnreachableError
from remote import (
    AuthenticationError,
    BannerError,
    ChannelError,
    CommandError,
    CommandTimeoutError,
    ConnectionLostError,
    Deadlines,
    HostKeyError,
    Target,
    TcpError,
    connect,
    connect_until,
)
from remote.keys import Login, find_login

QUICK = Deadlines(tcp_seconds=1, banner_seconds=0.5, auth_seconds=3, channel_seconds=1)


def public_text(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.get_base64()}"


@pytest.fixture(scope="module")
def keys():
    return [new_key() for _ in range(3)]


@pytest.fixture
def server(tmp_path, keys):
    made = SshServer(folder=tmp_path, host_key=keys[0], user_key=keys[1]).start()
    yield made
    made.close()


@pytest.fixture
def login(keys):
    return Login(key=keys[1], allow_agent=False, look_for_keys=False)


def target(server, **changes):
    base = {"name": "head", "host": "127.0.0.1", "host_key": public_text(server.host_key), "user": "ubuntu"}
    return Target(**{**base, "port": server.port, **changes})


@pytest.fixture
def connection(server, login):
    with connect(target(server), deadlines=QUICK, login=login) as opened:
        yield opened


def within(seconds):
    """Asserts that the block ends in time."""

    @contextlib.contextmanager
    def measured():
        started = time.monotonic()
        yield
        assert time.monotonic() - started < seconds

    return measured()


def test_a_command_gives_its_streams_and_exit_code(connection):
    result = connection.run(["sh", "-c", "cat; echo bad >&2; exit 3"], stdin="in ✓", timeout_seconds=5, check=False)
    assert (result.exit_code, result.stdout, result.stderr) == (3, "in ✓", "bad\n")
    assert result.seconds < 3 * 2


def test_arguments_are_never_parsed_by_the_remote_shell(connection):
    hostile = "a b; $(touch /tmp/never) '\" \\ *"
    assert connection.run(["printf", "%s", hostile], timeout_seconds=5).stdout == hostile


def test_a_failing_command_tells_node_exit_code_and_last_words(connection):
    with pytest.raises(CommandError) as caught:
        connection.run(["sh", "-c", "echo no such disk >&2; exit 9"], timeout_seconds=5)
    assert caught.value.status == 9
    assert "head (127.0.0.1)" in str(caught.value)
    assert "no such disk" in str(caught.value)


def test_large_input_and_output_pass_whole(connection):
    text = "0123456789abcdef" * 100_000
    assert connection.run(["cat"], stdin=text, timeout_seconds=20).stdout == text


def test_a_script_runs_from_standard_input(connection):
    assert connection.run_script("print(6 * 7)", interpreter=("python3", "-"), timeout_seconds=10).stdout == "42\n"


def test_put_text_writes_mode_and_content_and_leaves_no_temporary_file(connection, tmp_path):
    folder = tmp_path / "etc"
    folder.mkdir()
    connection.put_text("secret", str(folder / "token"), mode="0600", owner=f"{os.getuid()}:{os.getgid()}")
    assert [p.name for p in folder.iterdir()] == ["token"]
    assert (folder / "token").read_text() == "secret"
    assert (folder / "token").stat().st_mode & 0o777 == 0o600


def test_total_deadline(connection):
    with within(3), pytest.raises(CommandTimeoutError, match=r"not finished after 0\.5 s"):
        connection.run(["sleep", "30"], timeout_seconds=0.5)


def test_a_timed_out_command_ends_on_the_node_too(connection, tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises(CommandTimeoutError):
        connection.run(["sh", "-c", f"trap 'echo ended > {mark}' TERM; sleep 30 & wait"], timeout_seconds=0.2)
    end = time.monotonic() + 10
    while not mark.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert mark.exists()


def test_idle_deadline_counts_from_the_last_output(connection):
    with within(4), pytest.raises(CommandTimeoutError, match=r"silent for 0\.5 s.*Its last words: one\ntwo"):
        connection.run(["sh", "-c", "echo one; sleep 0.3; echo two; sleep 30"], timeout_seconds=20, idle_seconds=0.5)


def test_output_is_passed_on_as_it_arrives(connection):
    pieces: list[str] = []
    connection.run(["sh", "-c", "echo a; sleep 0.3; echo b"], timeout_seconds=5, on_output=pieces.append)
    assert pieces == ["a\n", "b\n"]


def test_many_commands_at_once_on_one_connection(connection):
    with ThreadPoolExecutor(8) as pool:
        runs = pool.map(lambda n: connection.run(["echo", str(n)], timeout_seconds=10).stdout, range(24))
        assert list(runs) == [f"{n}\n" for n in range(24)]


def test_connection_lost_in_a_command(server, connection):
    threading.Timer(0.3, server.drop).start()
    with within(4), pytest.raises(ConnectionLostError, match="during `sleep 20`"):
        connection.run(["sleep", "20"], timeout_seconds=20)


def test_the_next_command_after_a_loss_dials_again(server, connection):
    server.drop()
    end = time.monotonic() + 5
    while connection.alive and time.monotonic() < end:
        time.sleep(0.02)
    assert connection.run(["echo", "back"], timeout_seconds=5).stdout == "back\n"


def test_a_channel_that_never_opens(server, connection):
    server.hold_channels.set()
    with within(3), pytest.raises(ChannelError, match="no channel for a command within 1 s"):
        connection.run(["true"], timeout_seconds=20)


def test_a_refused_channel(server, connection):
    server.refuse_sessions = True
    with pytest.raises(ChannelError, match="refused a channel"):
        connection.run(["true"], timeout_seconds=5)


def test_closed_port_silent_server_wrong_key_and_wrong_host_key_are_told_apart(server, login, keys):
    with socket.create_server(("127.0.0.1", 0)) as spare:
        free = spare.getsockname()[1]
    with (
        within(2),
        pytest.raises(TcpError, match=f"TCP port {free} is closed"),
        connect(target(server, port=free), deadlines=QUICK, login=login),
    ):
        pass
    stranger = Login(key=keys[2], allow_agent=False, look_for_keys=False)
    with (
        within(4),
        pytest.raises(AuthenticationError, match="refused every key for user ubuntu"),
        connect(target(server), deadlines=QUICK, login=stranger),
    ):
        pass
    with (
        within(4),
        pytest.raises(HostKeyError, match="not the one this node published"),
        connect(target(server, host_key=public_text(keys[2])), deadlines=QUICK, login=login),
    ):
        pass
    other_kind = public_text(paramiko.RSAKey.generate(2048))
    with (
        pytest.raises(HostKeyError, match="not the one this node published"),
        connect(target(server, host_key=other_kind), deadlines=QUICK, login=login),
    ):
        pass
    server.silent = True
    with (
        within(2),
        pytest.raises(BannerError, match="open but silent"),
        connect(target(server), deadlines=QUICK, login=login),
    ):
        pass


def test_something_else_on_the_port(login, server):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def greet():
            peer, _ = other.accept()
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            threading.Event().wait(1)
            peer.close()

        threading.Thread(target=greet, daemon=True).start()
        with (
            within(3),
            pytest.raises(BannerError, match="not an SSH server"),
            connect(target(server, port=other.getsockname()[1]), deadlines=QUICK, login=login),
        ):
            pass


def test_no_answer_at_all_ends_in_time(server, login):
    # A listener whose queue is full drops further packets, as a security group does.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf, contextlib.ExitStack() as fillers:
        for _ in range(4):
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        with (
            within(4),
            pytest.raises(TcpError, match=r"no answer on TCP port \d+ within 1 s"),
            connect(target(server, port=deaf.getsockname()[1]), deadlines=QUICK, login=login),
        ):
            pass


def test_a_malformed_host_key_is_a_configuration_error(server, login):
    with (
        pytest.raises(ConfigError, match="not a public key"),
        connect(target(server, host_key="ssh-ed25519 nonsense"), deadlines=QUICK, login=login),
    ):
        pass


def test_connect_until_waits_for_a_late_server(tmp_path, keys, login):
    with socket.create_server(("127.0.0.1", 0)) as spare:
        port = spare.getsockname()[1]
    late = SshServer(folder=tmp_path, host_key=keys[0], user_key=keys[1], port=port)
    seen: list[type[UnreachableError]] = []
    starter = threading.Timer(0.8, late.start)
    starter.start()
    try:
        with connect_until(
            target(late), timeout_seconds=10, deadlines=QUICK, login=login, on_wait=lambda e: seen.append(type(e))
        ) as opened:
            assert opened.run(["echo", "up"], timeout_seconds=5).stdout == "up\n"
    finally:
        starter.join()
        late.close()
    assert seen == [TcpError]


def test_connect_until_gives_the_last_failure_with_how_long_it_tried(server, login):
    server.silent = True
    with (
        within(5),
        pytest.raises(BannerError, match="tried for 1 s"),
        connect_until(target(server), timeout_seconds=1, deadlines=QUICK, login=login),
    ):
        pass


def test_connect_until_does_not_retry_a_wrong_host_key(server, login, keys):
    with (
        within(4),
        pytest.raises(HostKeyError),
        connect_until(target(server, host_key=public_text(keys[2])), timeout_seconds=30, deadlines=QUICK, login=login),
    ):
        pass


class Echo:
    """A TCP service on the 'node' that echoes what it gets."""

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self.listener.accept()
                threading.Thread(target=self._echo, args=(peer,), daemon=True).start()

    @staticmethod
    def _echo(peer):
        with peer, contextlib.suppress(OSError):
            while data := peer.recv(65536):
                peer.sendall(data)


def exchange(port: int, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(text)
        sock.shutdown(socket.SHUT_WR)
        got = b""
        while data := sock.recv(65536):
            got += data
        return got


def test_forward_carries_many_connections_at_once(connection):
    with Echo() as echo, connection.forward(echo.port) as port, ThreadPoolExecutor(16) as pool:
        texts = [f"{n}:".encode() * 5000 for n in range(40)]
        assert list(pool.map(lambda t: exchange(port, t), texts)) == texts


def test_forward_survives_a_refused_channel(connection):
    with socket.create_server(("127.0.0.1", 0)) as spare:
        free = spare.getsockname()[1]
    with connection.forward(free) as port:
        for _ in range(3):
            with within(3):
                assert exchange_or_closed(port) == b""
        with socket.create_server(("127.0.0.1", free)) as late:
            threading.Thread(target=lambda: late.accept()[0].sendall(b"now"), daemon=True).start()
            with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
                assert sock.recv(3) == b"now"


def exchange_or_closed(port: int) -> bytes:
    try:
        return exchange(port, b"x")
    except (ConnectionResetError, BrokenPipeError):
        return b""


def test_forward_dials_again_after_the_transport_died(server, connection):
    with Echo() as echo, connection.forward(echo.port) as port:
        assert exchange(port, b"one") == b"one"
        server.drop()
        end = time.monotonic() + 5
        while connection.alive and time.monotonic() < end:
            time.sleep(0.02)
        assert exchange(port, b"two") == b"two"


def test_forward_ends_with_its_block(connection):
    with Echo() as echo, connection.forward(echo.port) as port:
        open_one = socket.create_connection(("127.0.0.1", port), timeout=5)
        open_one.sendall(b"x")
        assert open_one.recv(1) == b"x"
    with within(3), open_one:
        assert open_one.recv(1) == b""
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_the_key_comes_from_the_environment_first(tmp_path):
    path = tmp_path / "id"
    key = paramiko.RSAKey.generate(2048)
    key.write_private_key_file(str(path))
    found = find_login({"RAYRIG_SSH_KEY": str(path)})
    assert found.key == key
    assert not found.allow_agent
    assert not found.look_for_keys
    assert find_login({}) == Login(key=None, allow_agent=True, look_for_keys=True)


@pytest.mark.parametrize(
    ("content", "message"), [(None, "does not exist"), ("no key at all\n", "not an SSH private key")]
)
def test_an_unusable_key_file_is_named(tmp_path, content, message):
    path = tmp_path / "id"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        find_login({"RAYRIG_SSH_KEY": str(path)})


def test_an_encrypted_key_names_ssh_add(tmp_path):
    path = tmp_path / "id"
    paramiko.RSAKey.generate(2048).write_private_key_file(str(path), password="secret")
    with pytest.raises(ConfigError, match="ssh-add"):
        find_login({"RAYRIG_SSH_KEY": str(path)})

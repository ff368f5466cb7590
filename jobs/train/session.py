"""The Ray that a training runs on: the cluster's, or an embedded one of its own that ends with it."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contract.errors import JobError


@contextmanager
def embedded_settings() -> Iterator[Path]:
    """Settings of an embedded Ray and the folder that it lives in, removed afterwards.

    Enter it before anything imports ray, which reads them only once. The token is for this Ray alone: other users of
    the machine can reach its ports, and Ray would leave one in the home directory.
    """
    # Ray's sockets live below it and a socket's path may have 107 bytes, so TMPDIR is not asked.
    folder = Path(tempfile.mkdtemp(prefix="rayrig-", dir="/tmp"))
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32), encoding="ascii")
    os.environ.pop("RAY_ADDRESS", None)
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def connected(embedded_in: Path | None) -> Iterator[None]:
    """Connects to the cluster whose job this process is, or starts an embedded Ray and ends it, and nothing else.

    Args:
        embedded_in: the folder for an embedded Ray; it never joins one that happens to run on the machine.

    Raises:
        JobError: Ray does not start or cannot be reached.
    """
    import ray  # noqa: PLC0415 - after the settings

    options: dict[str, object] = {"address": "auto"}
    if embedded_in is not None:
        options = {
            "address": "local",
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": str(embedded_in / "ray"),
        }
    try:
        ray.init(logging_level="ERROR", **options)
    except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
        what = "cannot connect to the cluster's Ray" if embedded_in is None else "cannot start an embedded Ray"
        raise JobError(what, why=str(error)) from error
    try:
        yield
    finally:
        ray.shutdown()

"""moto, with the gap fillers in front, served from threads of this process."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import BaseWSGIServer, make_server

from rehearsal.aws.addresses import PublicAddresses, hand_out
from rehearsal.aws.front import Front
from rehearsal.aws.request_log import RequestLog

STOP_SECONDS = 10.0


class _QuietHandler(MotoRequestHandler):  # type: ignore[misc]
    """Requests go to the request log, not to the terminal."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Writes nothing."""


@dataclass(kw_only=True)
class Server:
    """A running AWS of one world; a context manager that stops it.

    Attributes:
        url: where it answers, without a slash at the end.
        account_id: the account that every call is made in, whatever the credentials.
        request_log: the file of requests, None when none was asked for.
    """

    url: str
    account_id: str
    region: str
    world_id: str
    request_log: Path | None
    _http: BaseWSGIServer = field(repr=False)
    _thread: threading.Thread = field(repr=False)
    _undo: list[Callable[[], None]] = field(repr=False)

    def stop(self) -> None:
        """Stops answering and gives moto's own behaviour back; a second call does nothing."""
        self._http.shutdown()
        self._thread.join(timeout=STOP_SECONDS)
        self._http.server_close()
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Self:
        """The server itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops it."""
        self.stop()


def serve(
    *,
    host: str,
    port: int,
    world_id: str,
    account_id: str,
    region: str,
    public_cidr: str | None,
    request_log: Path | None = None,
    weigh_policies: bool = False,
) -> Server:
    """Starts moto with the gap fillers; returns when it answers. One at a time in a process.

    Args:
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        world_id: name of the world, given back by the marker.
        account_id: twelve digits; every call is made in this account.
        region: region of calls that name none.
        public_cidr: block of the instances' public addresses; None leaves moto's random ones.
        request_log: where to append one JSON line per request; None keeps no log.
        weigh_policies: whether calls with a role's credentials are held to the role's policies, as AWS does.

    Raises:
        OSError: the address or port cannot be used.
    """
    undo = [_set_variables(account_id)]
    log = RequestLog(request_log)
    front = Front(world_id=world_id, account_id=account_id, region=region, log=log, weigh_policies=weigh_policies)
    if public_cidr is not None:
        undo.append(hand_out(PublicAddresses(public_cidr, front.public_addresses)))
    http = make_server(host, port, front, threaded=True, request_handler=_QuietHandler)
    thread = threading.Thread(target=http.serve_forever, name="rehearsal-aws", daemon=True)
    thread.start()
    return Server(
        url=f"http://{host}:{http.server_port}",
        account_id=account_id,
        region=region,
        world_id=world_id,
        request_log=request_log,
        _http=http,
        _thread=thread,
        _undo=undo,
    )


def _set_variables(account_id: str) -> Callable[[], None]:
    """Tells moto its account and to bring no images of its own (it reads both when it works); returns the way back."""
    wanted = {"MOTO_ACCOUNT_ID": account_id, "MOTO_EC2_LOAD_DEFAULT_AMIS": "false"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)

    def restore() -> None:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    return restore

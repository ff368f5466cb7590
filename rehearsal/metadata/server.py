"""The metadata service over HTTP: who asks is told by the address that asks, as on EC2."""

import logging
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from botocore.exceptions import BotoCoreError, ClientError

from rehearsal.metadata.source import Source
from rehearsal.metadata.tokens import Tokens
from rehearsal.metadata.tree import identity_document, look_up
from rehearsal.nodes.instances import Instance

TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105 - a header's name
TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"
_VERSION = re.compile(r"^(latest|\d{4}-\d{2}-\d{2}|1\.0)$")
_CREDENTIALS = "meta-data/iam/security-credentials"
_IDLE_SECONDS = 30

log = logging.getLogger("rehearsal.metadata")


class Refusal(Exception):  # noqa: N818 - the service's answer, not a failure of ours
    """An answer other than 200; nothing follows it."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One HTTP answer."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


class MetadataServer:
    """Serves in threads of this process from construction until `stop`.

    It listens twice. The second port is for cloud-init alone: without DMI it takes its machine for a look-alike of EC2
    and never asks for a token (tried: refused, it ends without a data source). Role credentials are not given there.

    Args:
        source: where the facts come from.
        host: address on the lab bridge.
    """

    def __init__(self, source: Source, *, host: str) -> None:
        tokens = Tokens()
        self._servers = tuple(_Server(host, source, tokens, for_boot=for_boot) for for_boot in (False, True))
        self._threads = tuple(
            threading.Thread(target=server.serve_forever, name="metadata", kwargs={"poll_interval": 0.1})
            for server in self._servers
        )
        for thread in self._threads:
            thread.start()

    @property
    def port(self) -> int:
        """The port of the service proper."""
        return int(self._servers[0].server_address[1])

    @property
    def boot_port(self) -> int:
        """The port for cloud-init."""
        return int(self._servers[1].server_address[1])

    def stop(self) -> None:
        """Ends the service."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        for thread in self._threads:
            thread.join(timeout=5)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, source: Source, tokens: Tokens, *, for_boot: bool) -> None:
        super().__init__((host, 0), _Handler)
        self.source = source
        self.tokens = tokens
        self.for_boot = for_boot


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "EC2ws"
    sys_version = ""
    timeout = _IDLE_SECONDS
    server: _Server

    def do_PUT(self) -> None:
        """Gives a session token."""
        self._answer(self._token)

    def do_GET(self) -> None:
        """Answers with text."""
        self._answer(self._text)

    def _answer(self, make: Callable[[Instance], Reply]) -> None:
        try:
            reply = make(self._caller())
        except Refusal as refusal:
            reply = Reply(status=refusal.status, body=refusal.status.phrase.encode())
        except (BotoCoreError, ClientError) as error:
            log.error("%s %s: moto did not answer: %s", self.command, self.path, error)  # noqa: TRY400 - no bug of ours
            reply = Reply(status=HTTPStatus.INTERNAL_SERVER_ERROR, body=b"")
        self.send_response(reply.status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(reply.body)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def _caller(self) -> Instance:
        instance = self.server.source.instance_at(self.client_address[0])
        if instance is None:
            raise Refusal(HTTPStatus.NOT_FOUND)
        if not instance.metadata_enabled:
            raise Refusal(HTTPStatus.FORBIDDEN)
        return instance

    def _token(self, instance: Instance) -> Reply:
        if self.path.rstrip("/") != "/latest/api/token":
            raise Refusal(HTTPStatus.NOT_FOUND)
        if "X-Forwarded-For" in self.headers:
            raise Refusal(HTTPStatus.FORBIDDEN)
        ttl = self.headers.get(TTL_HEADER, "")
        try:
            token = self.server.tokens.issue(instance.instance_id, int(ttl))
        except ValueError as error:
            raise Refusal(HTTPStatus.BAD_REQUEST) from error
        return Reply(body=token.encode(), headers={TTL_HEADER: ttl})

    def _text(self, instance: Instance) -> Reply:
        version, _, path = unquote(self.path).lstrip("/").partition("/")
        self._check_token(instance, path)
        if not version:
            return Reply(body=b"latest")
        if not _VERSION.match(version):
            raise Refusal(HTTPStatus.NOT_FOUND)
        body = self._body(instance, path)
        if body is None:
            raise Refusal(HTTPStatus.NOT_FOUND)
        return Reply(body=body)

    def _check_token(self, instance: Instance, path: str) -> None:
        token = self.headers.get(TOKEN_HEADER)
        if token is not None:
            if not self.server.tokens.valid(token, instance.instance_id):
                raise Refusal(HTTPStatus.UNAUTHORIZED)
            return
        if self.server.for_boot and not path.startswith(_CREDENTIALS):
            return
        if instance.token_required:
            raise Refusal(HTTPStatus.UNAUTHORIZED)

    def _body(self, instance: Instance, path: str) -> bytes | None:
        source = self.server.source
        branch, _, rest = path.partition("/")
        if branch == "user-data" and not rest:
            return source.user_data(instance)
        if not path:
            return b"dynamic\nmeta-data\nuser-data"
        facts = source.facts(instance)
        if path.rstrip("/") == "dynamic/instance-identity/document":
            return identity_document(facts).encode()
        if facts.role and path.rstrip("/") == f"{_CREDENTIALS}/{facts.role.name}":
            return source.credentials(instance, facts.role).encode()
        text = look_up(facts, rest) if branch == "meta-data" else None
        return None if text is None else text.encode()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name for it
        """One line per request in the world's log, at debug level."""
        log.debug("%s %s", self.client_address[0], format % args)

"""One AWS request and answer as they pass by: whose call it is, its parameters, and errors in AWS's own forms."""

import io
import json
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode
from xml.sax.saxutils import escape

Environ = dict[str, Any]

CREDENTIAL = re.compile(r"Credential=([^/,]+)/\d{8}/([^/]+)/([^/]+)/aws4_request")
REST_JSON_SERVICES = frozenset({"elasticfilesystem", "scheduler", "lambda"})
UNREAD_SERVICES = frozenset({"s3"})
"""Services whose bodies are data and are left to moto unread."""


class AwsRefusal(Exception):  # noqa: N818 - it is AWS's answer, not a failure of ours
    """An error answer in AWS's words.

    Attributes:
        code: AWS's error code, as `DependencyViolation`.
        message: the text that AWS gives with it.
        status: HTTP status.
    """

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


@dataclass(kw_only=True)
class Call:
    """One request: `params` may be changed before moto sees it (query protocol only)."""

    service: str
    region: str
    action: str
    method: str
    path: str
    access_key: str
    params: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)
    json_protocol: bool = False
    changed: bool = False

    def set(self, name: str, value: str) -> None:
        """Sets one query parameter for moto."""
        self.params[name] = value
        self.changed = True

    def members(self, prefix: str) -> list[str]:
        """Values of a numbered list parameter, as SecurityGroupId.1, SecurityGroupId.2, in their order."""
        pattern = re.compile(rf"^{re.escape(prefix)}\.(\d+)$")
        found = [(int(match[1]), value) for name, value in self.params.items() if (match := pattern.match(name))]
        return [value for _, value in sorted(found)]

    def groups(self, prefix: str) -> dict[int, dict[str, str]]:
        """Numbered structures, as BlockDeviceMapping.1.Ebs.Iops: number -> {rest of the name: value}."""
        pattern = re.compile(rf"^{re.escape(prefix)}\.(\d+)\.(.+)$")
        found: dict[int, dict[str, str]] = {}
        for name, value in self.params.items():
            if match := pattern.match(name):
                found.setdefault(int(match[1]), {})[match[2]] = value
        return found


def read_call(environ: Environ, *, default_region: str) -> Call:
    """The AWS call in a WSGI request; the body stays readable for moto."""
    match = CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
    access_key, region, service = match.groups() if match else ("", default_region, "s3")
    method, path = environ["REQUEST_METHOD"], environ.get("PATH_INFO", "")
    call = Call(service=service.lower(), region=region, action="", method=method, path=path, access_key=access_key)
    call.params = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if call.service not in UNREAD_SERVICES:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        if "json" in environ.get("CONTENT_TYPE", ""):
            call.json_protocol = True
            call.body = _json_object(body)
        elif environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
            call.params |= dict(parse_qsl(body.decode(), keep_blank_values=True))
    call.action = call.params.get("Action") or target.rpartition(".")[2] or f"{method} {path}"
    return call


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def write_back(call: Call, environ: Environ) -> None:
    """Puts changed query parameters into the request that moto reads."""
    if not call.changed:
        return
    body = urlencode(call.params).encode()
    environ["wsgi.input"] = io.BytesIO(body)
    environ["CONTENT_LENGTH"] = str(len(body))
    environ["QUERY_STRING"] = ""


@dataclass(kw_only=True)
class Answer:
    """A whole HTTP answer."""

    status: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def code(self) -> int:
        """HTTP status as a number."""
        return int(self.status.split(" ", 1)[0])

    @property
    def ok(self) -> bool:
        """Whether AWS did what it was asked."""
        return self.code < 400  # noqa: PLR2004 - HTTP's own border

    def error_code(self) -> str | None:
        """AWS's error code in the answer, None when there is none."""
        if self.ok:
            return None
        text = self.body.decode(errors="replace")
        match = re.search(r"<Code>([^<]+)</Code>", text) or re.search(r'"__type":\s*"([^"]+)"', text)
        return match[1].rpartition("#")[2] if match else str(self.code)

    def send(self, start_response: Any) -> Iterable[bytes]:  # noqa: ANN401 - WSGI's own callable
        """Answers through WSGI."""
        start_response(self.status, self.headers)
        return [self.body]


def refusal_answer(call: Call, refusal: AwsRefusal) -> Answer:
    """An error in the form that the called service's SDK reads."""
    code, message, request_id = escape(refusal.code), escape(refusal.message), uuid.uuid4()
    error = f"<Code>{code}</Code><Message>{message}</Message>"
    if call.json_protocol or call.service in REST_JSON_SERVICES:
        body, kind = json.dumps({"__type": refusal.code, "message": refusal.message}), "application/x-amz-json-1.1"
    elif call.service == "ec2":
        body = f"<Response><Errors><Error>{error}</Error></Errors><RequestID>{request_id}</RequestID></Response>"
        kind = "text/xml"
    elif call.service == "s3":
        body, kind = f"<Error>{error}<RequestId>{request_id}</RequestId></Error>", "application/xml"
    else:
        body = (
            f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error>"
            f"<RequestId>{request_id}</RequestId></ErrorResponse>"
        )
        kind = "text/xml"
    data = body.encode()
    headers = [
        ("Content-Type", kind),
        ("Content-Length", str(len(data))),
        ("x-amzn-RequestId", str(request_id)),
        ("x-amzn-ErrorType", refusal.code),
    ]
    return Answer(status=f"{refusal.status} Refused", headers=headers, body=data)


def empty_list_answer(call: Call, element: str) -> Answer:
    """EC2's answer with nothing in it; `element` is the list's name on the wire."""
    name = f"{call.action}Response"
    space = "http://ec2.amazonaws.com/doc/2016-11-15/"
    data = f'<{name} xmlns="{space}"><requestId>{uuid.uuid4()}</requestId><{element}/></{name}>'.encode()
    return Answer(
        status="200 OK", headers=[("Content-Type", "text/xml"), ("Content-Length", str(len(data)))], body=data
    )


def json_answer(value: object, *, status: str = "200 OK") -> Answer:
    """An answer of the rehearsal's own endpoints."""
    data = json.dumps(value).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
    return Answer(status=status, headers=headers, body=data)

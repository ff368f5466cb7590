"""A registry's HTTP interface, as far as the lab needs it: upload blobs and manifests, read them back."""

import hashlib
import http.client
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from contract.errors import RayrigError

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar"
LAYER_GZIP = "application/vnd.docker.image.rootfs.diff.tar.gzip"
_TIMEOUT_SECONDS = 120.0
_READY_POLL_SECONDS = 0.05


def sha256(content: bytes) -> str:
    """A content's digest, as registries write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True, kw_only=True)
class Blob:
    """What a manifest says of one of its parts.

    Attributes:
        media_type: one of this module's.
        digest: `sha256:…` of the stored bytes.
        size_bytes: their number.
    """

    media_type: str
    digest: str
    size_bytes: int

    def to_wire(self) -> dict[str, str | int]:
        """As it stands in a manifest."""
        return {"mediaType": self.media_type, "size": self.size_bytes, "digest": self.digest}


@dataclass(frozen=True, kw_only=True)
class Repository:
    """One repository of a registry that speaks plain HTTP.

    Attributes:
        registry: HOST:PORT.
        name: the repository.
    """

    registry: str
    name: str

    def wait_ready(self, timeout_seconds: float) -> None:
        """Waits until the registry answers.

        Raises:
            RayrigError: it does not within the time.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                self._call("GET", "/v2/", expected=(200,))
            except RayrigError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_READY_POLL_SECONDS)
            else:
                return

    def has_blob(self, digest: str) -> bool:
        """Whether the repository holds a blob."""
        status, _, _ = self._call("HEAD", f"/v2/{self.name}/blobs/{digest}", expected=(200, 404))
        return status == http.client.OK

    def put_blob(self, content: bytes, media_type: str) -> Blob:
        """Uploads a small blob unless it is there already."""
        digest = sha256(content)
        if not self.has_blob(digest):
            self._finish(self._begin(), digest, content)
        return Blob(media_type=media_type, digest=digest, size_bytes=len(content))

    def put_stream(self, chunks: Iterable[bytes], media_type: str) -> Blob:
        """Uploads a blob whose digest is known only at its end."""
        digest = hashlib.sha256()
        size = 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                yield chunk

        headers = {"Content-Type": "application/octet-stream", "Transfer-Encoding": "chunked"}
        _, answer, _ = self._call("PATCH", self._begin(), body=counted(), headers=headers, expected=(202,))
        name = f"sha256:{digest.hexdigest()}"
        self._finish(answer["location"], name, b"")
        return Blob(media_type=media_type, digest=name, size_bytes=size)

    def put_manifest(self, tag: str, config: Blob, layers: Iterable[Blob]) -> str:
        """Uploads the manifest of parts that are there, under a tag; its digest names the image."""
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.to_wire(),
            "layers": [layer.to_wire() for layer in layers],
        }
        content = json.dumps(manifest, indent=1).encode()
        headers = {"Content-Type": MANIFEST}
        self._call("PUT", f"/v2/{self.name}/manifests/{tag}", body=content, headers=headers, expected=(201,))
        return sha256(content)

    def manifest(self, tag: str) -> dict[str, Any]:
        """The manifest under a tag or digest.

        Raises:
            RayrigError: there is none.
        """
        return self._json(f"/v2/{self.name}/manifests/{tag}", {"Accept": MANIFEST})

    def json_blob(self, digest: str) -> dict[str, Any]:
        """A blob that is JSON, such as an image's configuration."""
        return self._json(f"/v2/{self.name}/blobs/{digest}", {})

    def _json(self, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
        _, _, content = self._call("GET", path, headers=headers, expected=(200,))
        answer: dict[str, Any] = json.loads(content)
        return answer

    def _begin(self) -> str:
        _, headers, _ = self._call("POST", f"/v2/{self.name}/blobs/uploads/", expected=(202,))
        return headers["location"]

    def _finish(self, location: str, digest: str, content: bytes) -> None:
        joined = "&" if "?" in location else "?"
        headers = {"Content-Type": "application/octet-stream"}
        path = f"{location}{joined}{urlencode({'digest': digest})}"
        self._call("PUT", path, body=content, headers=headers, expected=(201,))

    def _call(
        self,
        method: str,
        path: str,
        *,
        body: bytes | Iterable[bytes] = b"",
        headers: Mapping[str, str] | None = None,
        expected: tuple[int, ...],
    ) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(path)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        connection = http.client.HTTPConnection(self.registry, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request(
                method, target, body=body, headers=dict(headers or {}), encode_chunked=not isinstance(body, bytes)
            )
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise RayrigError(
                "The lab's registry did not answer",
                where=self.registry,
                why=f"{method} {parts.path}: {error or type(error).__name__}",
                next_step="see whether its container runs: docker ps --filter label=rayrig.rehearsal",
            ) from error
        finally:
            connection.close()
        if response.status not in expected:
            raise RayrigError(
                "The lab's registry refused a request",
                where=self.registry,
                why=f"{method} {parts.path}: {response.status} {content[:300].decode(errors='replace')}",
            )
        return response.status, {name.lower(): value for name, value in response.getheaders()}, content

"""Lines beside a resource's row in the engine's display, sent from any thread."""

import grpc
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

LOG_SECONDS = 2.0
"""A display that does not take a line in this time goes without it."""


class EngineLog:
    """The engine's Log call.

    Args:
        address: the engine's address; None when the plugin was started by hand, and then nothing is shown.
    """

    def __init__(self, address: str | None) -> None:
        self._stub = engine_pb2_grpc.EngineStub(grpc.insecure_channel(address)) if address else None

    def progress(self, urn: str, message: str) -> None:
        """Shows a line that the next one replaces."""
        self._send(urn, message, engine_pb2.INFO, ephemeral=True)

    def info(self, urn: str, message: str) -> None:
        """Shows lines that stay."""
        self._send(urn, message, engine_pb2.INFO, ephemeral=False)

    def warning(self, urn: str, message: str) -> None:
        """Shows a warning that stays."""
        self._send(urn, message, engine_pb2.WARNING, ephemeral=False)

    def _send(self, urn: str, message: str, severity: engine_pb2.LogSeverity.ValueType, *, ephemeral: bool) -> None:
        if self._stub is None:
            return
        request = engine_pb2.LogRequest(severity=severity, message=message, urn=urn, ephemeral=ephemeral)
        try:
            self._stub.Log(request, timeout=LOG_SECONDS)
        except grpc.RpcError:  # a display that is gone is no reason to fail the work
            return

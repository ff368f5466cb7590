"""The one writer of a run directory: settings, versions, metrics, log, checkpoints, summary.

    RUN/config.json      settings as parsed
    RUN/cluster.json     versions, nodes, seeds, commit
    RUN/metrics.jsonl    one object per iteration
    RUN/log              what the driver said
    RUN/checkpoints/     NAME/…, latest.json and best.json: pointers, written last
    RUN/summary.json     how it ended; written last of all

Writes that happen during training are made by a thread of their own, so that training does not wait for them; an
object store's PUT is atomic, and a local file is written beside its place and renamed.
"""

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import fsspec
from botocore.exceptions import BotoCoreError, ClientError
from fsspec.implementations.local import LocalFileSystem
from pydantic import BaseModel, ConfigDict

from contract.errors import JobError

FLUSH_SECONDS = 2.0
"""Metrics and log reach the run directory at most this much later, or 20 times an upload's own length."""
FINAL_WRITE_SECONDS = 60.0
"""How long the last writes are tried again when storage does not answer."""
STORAGE_ERRORS = (OSError, ClientError, BotoCoreError)

LATEST = "latest.json"
BEST = "best.json"


class CheckpointRecord(BaseModel):
    """What a pointer file holds: which checkpoint, and what a resumed run needs beside it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    iteration: int
    env_steps: int
    seconds: float
    evaluation: float | None = None
    best: float | None = None
    evaluations: int = 0
    held: int = 0
    window: list[tuple[float, int]] = []


def open_directory(uri: str) -> tuple[Any, str]:
    """The file system of a run directory and the path in it; raises JobError for a URI it can't open."""
    options: dict[str, object] = {}
    if uri.startswith("s3://"):
        # s3fs tries five times itself.
        waits = {"connect_timeout": 5, "read_timeout": 20, "retries": {"mode": "standard", "max_attempts": 1}}
        options = {"config_kwargs": waits, "use_listings_cache": False}
    try:
        # fsspec does not decode a file URI's %20.
        place = unquote(urlsplit(uri).path) if uri.startswith("file://") else uri
        filesystem, path = fsspec.core.url_to_fs(place, **options)
    except (ValueError, ImportError) as error:
        raise JobError("cannot open the run directory", where=uri, why=str(error)) from error
    return filesystem, path.rstrip("/")


class Recorder:
    """Writes one run directory.

    Args:
        uri: of the run directory, such as s3://bucket/runs/dev/ppo-1 or file:///home/me/.rayrig/runs/ppo-1.

    Raises:
        JobError: storage cannot be opened or written.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        self._filesystem, self._root = open_directory(self.uri)
        self._scratch = tempfile.TemporaryDirectory(prefix="rayrig-run-", ignore_cleanup_errors=True)
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="recorder")
        self._lock = threading.Lock()
        self._rows: list[str] = []
        self._lines: list[str] = []
        self._flush: Future[None] | None = None
        self._flushed_at = 0.0
        self._flush_took = 0.0
        self._checkpoint: Future[None] | None = None
        self._kept: dict[str, str] = {}
        self._complained = False

    def start(self, config: Mapping[str, object], cluster: Mapping[str, object]) -> None:
        """Writes config.json and cluster.json at once; raises JobError where storage takes no file."""
        try:
            self._write("config.json", _json(config))
            self._write("cluster.json", _json(cluster))
        except STORAGE_ERRORS as error:
            raise JobError(
                "cannot write the run directory",
                where=self.uri,
                why=str(error),
                next_step="check the bucket and the instance role's permissions",
            ) from error

    def new_folder(self) -> Path:
        """An empty local folder, gone at the latest when the run is finished."""
        return Path(tempfile.mkdtemp(dir=self._scratch.name))

    def say(self, line: str) -> None:
        """Prints a line now and keeps it in the run's log."""
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        with self._lock:
            self._lines.append(line + "\n")

    def metric(self, row: Mapping[str, object]) -> None:
        """Adds one row to metrics.jsonl; it is uploaded in the background."""
        with self._lock:
            self._rows.append(json.dumps(row) + "\n")
        self._flush_if_due()

    def checkpoint(self, directory: Path, record: CheckpointRecord, *, best: bool) -> None:
        """Uploads a checkpoint in the background and removes the local directory afterwards.

        The pointer is written last, so it never names a half-written checkpoint; then those that no pointer names
        are deleted.
        """
        self._checkpoint = self._writer.submit(self._upload, directory, record, best)

    @property
    def busy(self) -> bool:
        """Whether the last checkpoint is still on its way."""
        return self._checkpoint is not None and not self._checkpoint.done()

    def finish(self, summary: Mapping[str, object]) -> None:
        """Waits for pending writes, writes the rest and summary.json; raises JobError if storage does not take them."""
        self._writer.shutdown(wait=True)
        # An earlier one that failed was followed by a newer one.
        failure = self._checkpoint.exception() if self._checkpoint else None
        self._scratch.cleanup()
        deadline = time.monotonic() + FINAL_WRITE_SECONDS
        wait_seconds = 0.5
        while True:
            try:
                self._write_series()
                self._write("summary.json", _json(summary))
                break
            except STORAGE_ERRORS as error:
                if time.monotonic() + wait_seconds > deadline:
                    raise JobError("cannot finish the run directory", where=self.uri, why=str(error)) from error
                time.sleep(wait_seconds)
                wait_seconds *= 2
        if failure is not None:
            raise JobError("the last checkpoint could not be saved", where=self.uri, why=str(failure)) from failure

    def resume(self) -> tuple[Path, CheckpointRecord] | None:
        """Fetches the latest checkpoint into a new local directory, and keeps the metrics up to it.

        Returns:
            The directory and its record; None when the run has no checkpoint yet.

        Raises:
            JobError: storage does not answer, or the checkpoint is damaged.
        """
        try:
            latest = self._read_record(LATEST)
            if latest is None:
                return None
            best = self._read_record(BEST)
            self._kept = {LATEST: latest.name} | ({BEST: best.name} if best else {})
            local = self.new_folder()
            self._filesystem.get(f"{self._root}/checkpoints/{latest.name}/", f"{local}/", recursive=True)
            self._rows = [r for r in self._lines_of("metrics.jsonl") if json.loads(r)["iteration"] <= latest.iteration]
            self._lines = self._lines_of("log")
        except (*STORAGE_ERRORS, ValueError, KeyError) as error:
            raise JobError("cannot read the run's checkpoint", where=self.uri, why=str(error)) from error
        return local, latest

    def _flush_if_due(self) -> None:
        if self._flush is not None:
            if not self._flush.done():
                return
            self._complain(self._flush.exception())
        # The whole file is written each time: the longer that takes, the rarer it is done.
        if time.monotonic() - self._flushed_at >= max(FLUSH_SECONDS, 20 * self._flush_took):
            self._flushed_at = time.monotonic()
            self._flush = self._writer.submit(self._timed_flush)

    def _timed_flush(self) -> None:
        started = time.monotonic()
        self._write_series()
        self._flush_took = time.monotonic() - started

    def _complain(self, error: BaseException | None) -> None:
        if isinstance(error, STORAGE_ERRORS):
            if not self._complained:
                self.say(f"warning: the run directory {self.uri} could not be written, it is tried again: {error}")
            self._complained = True
        elif error is not None:
            raise error
        else:
            self._complained = False

    def _write_series(self) -> None:
        with self._lock:
            rows, lines = "".join(self._rows), "".join(self._lines)
        self._write("metrics.jsonl", rows)
        self._write("log", lines)

    def _write(self, name: str, text: str) -> None:
        path = f"{self._root}/{name}"
        if isinstance(self._filesystem, LocalFileSystem):
            place = Path(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            beside = place.with_name(f".{place.name}.{os.getpid()}")
            beside.write_text(text, encoding="utf-8")
            beside.replace(place)
        else:
            self._filesystem.pipe_file(path, text.encode())

    def _upload(self, directory: Path, record: CheckpointRecord, best: bool) -> None:
        checkpoints = f"{self._root}/checkpoints"
        self._filesystem.makedirs(checkpoints, exist_ok=True)
        self._filesystem.put(f"{directory}/", f"{checkpoints}/{record.name}/", recursive=True)
        text = _json(record.model_dump())
        before = set(self._kept.values())
        for pointer in (LATEST, *((BEST,) if best else ())):
            self._write(f"checkpoints/{pointer}", text)
            self._kept[pointer] = record.name
        for name in before - set(self._kept.values()):
            self._filesystem.rm(f"{checkpoints}/{name}", recursive=True)
        shutil.rmtree(directory, ignore_errors=True)

    def _read_record(self, pointer: str) -> CheckpointRecord | None:
        path = f"{self._root}/checkpoints/{pointer}"
        if not self._filesystem.exists(path):
            return None
        return CheckpointRecord.model_validate_json(self._filesystem.cat_file(path))

    def _lines_of(self, name: str) -> list[str]:
        path = f"{self._root}/{name}"
        if not self._filesystem.exists(path):
            return []
        return [str(line) for line in self._filesystem.cat_file(path).decode().splitlines(keepends=True)]


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, indent=2, default=str) + "\n"

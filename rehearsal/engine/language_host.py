"""Pulumi's Python language host: runs the program of a Python project for the engine.

The official CLI brings one; a CLI built from Go modules lacks it, since the host's own module is not published.
This file is installed beside such a CLI (see shims.py), so it stands alone: standard library, grpc and the Pulumi
SDK only. It speaks the LanguageRuntime protocol, prints its port as the first line, ends quietly on SIGINT or
SIGTERM and when the engine that started it is gone, and never shows a traceback of its own.
"""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

VERSION = "3.274.1"
EXECUTOR = "pulumi-language-python-exec"
BAIL_EXIT_CODE = 32
"""The executor's exit code when the program's error was already shown to the person (Pulumi's own convention)."""
STOP_GRACE_SECONDS = 3.0
PARENT_POLL_SECONDS = 1.0
MAX_MESSAGE_BYTES = 400 * 1024 * 1024
"""Pulumi's own limit; gRPC's default of 4 MB is too small for large programs."""

DEPENDENCIES_SCRIPT = """
import importlib.metadata as m, json, re, sys
found = {d.metadata["Name"]: d for d in m.distributions() if d.metadata["Name"]}
plain = lambda name: re.sub(r"[-_.]+", "-", name).lower()
needed = {plain(re.split(r"[^A-Za-z0-9._-]", r, maxsplit=1)[0]) for d in found.values() for r in d.requires or ()}
names = [n for n in found if sys.argv[1] == "all" or plain(n) not in needed]
print(json.dumps([[n, found[n].version] for n in sorted(names)]))
"""


class ProgramError(Exception):
    """The program cannot be started; the message is for the person."""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """The Python that runs the program.

    Attributes:
        executable: path or name of the interpreter.
        virtualenv: the virtual environment's folder; None for a Python found on PATH.
    """

    executable: str
    virtualenv: Path | None

    def environment(self) -> dict[str, str]:
        """This process's environment, with the virtual environment active as its `activate` script would do it."""
        env = dict(os.environ)
        if self.virtualenv is not None:
            env["VIRTUAL_ENV"] = str(self.virtualenv)
            env["PATH"] = os.pathsep.join([str(self.virtualenv / "bin"), env.get("PATH", os.defpath)])
            env.pop("PYTHONHOME", None)
        return env


def find_interpreter(root: str, options: Mapping[str, Any]) -> Interpreter:
    """The Python named by `runtime.options.virtualenv` of Pulumi.yaml (relative to the project), else the one on PATH.

    Raises:
        ProgramError: the virtual environment is named but not there, or no Python is on PATH.
    """
    name = options.get("virtualenv")
    if name:
        virtualenv = Path(root) / str(name)
        executable = virtualenv / "bin" / "python"
        if not executable.exists():
            raise ProgramError(
                f"the virtual environment {virtualenv} named in Pulumi.yaml is not there: run `make setup`"
            )
        return Interpreter(executable=str(executable), virtualenv=virtualenv)
    command = os.environ.get("PULUMI_PYTHON_CMD") or "python3"
    found = shutil.which(command)
    if found is None:
        raise ProgramError(f"no `{command}` on PATH to run the program with")
    return Interpreter(executable=found, virtualenv=None)


def required_plugins(interpreter: Interpreter) -> list[tuple[str, str, str]]:
    """Resource plugins that the installed SDK packages name in their `pulumi-plugin.json`: (name, version, server)."""
    if interpreter.virtualenv is None:
        return []
    plugins = []
    for file in sorted(interpreter.virtualenv.glob("lib/python3*/site-packages/*/pulumi-plugin.json")):
        facts = json.loads(file.read_text(encoding="utf-8"))
        if facts.get("resource"):
            name = facts.get("name") or file.parent.name.removeprefix("pulumi_")
            plugins.append((name, facts.get("version", ""), facts.get("server", "")))
    return plugins


def find_executor() -> str:
    """The SDK's program that runs a Python file under the engine; beside this file, else on PATH."""
    beside = Path(__file__).resolve().parent / EXECUTOR
    found = str(beside) if beside.exists() else shutil.which(EXECUTOR)
    if found is None:
        raise ProgramError(f"{EXECUTOR} is neither beside {__file__} nor on PATH: run `python -m rehearsal.engine`")
    return found


def run_argv(request: Any, interpreter: Interpreter, engine: str) -> list[str]:  # noqa: ANN401 - protobuf
    """The command that runs the program of a RunRequest."""
    info = request.info
    argv = [interpreter.executable, "-u", find_executor()]
    for flag, value in (
        ("--monitor", request.monitor_address),
        ("--engine", engine),
        ("--project", request.project),
        ("--stack", request.stack),
        ("--organization", request.organization),
        ("--root_directory", info.root_directory),
        ("--pwd", request.pwd),
        ("--parallel", str(request.parallel)),
        ("--dry_run", "true" if request.dryRun else "false"),
    ):
        if value:
            argv += [flag, value]
    return [*argv, str(Path(info.program_directory) / info.entry_point), *request.args]


def run_environment(request: Any, interpreter: Interpreter) -> dict[str, str]:  # noqa: ANN401 - protobuf
    """The program's environment: the interpreter's, with configuration passed as the SDK expects it."""
    env = interpreter.environment()
    env["PULUMI_CONFIG"] = json.dumps(dict(request.config))
    env["PULUMI_CONFIG_SECRET_KEYS"] = json.dumps(list(request.configSecretKeys))
    return env


class LanguageHost:
    """The LanguageRuntime service; what it does not serve is answered with UNIMPLEMENTED."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._root: str | None = None
        self._lock = threading.Lock()
        self._programs: set[subprocess.Popen[bytes]] = set()
        self._cancelled = threading.Event()

    def __getattr__(self, name: str) -> Callable[[Any, Any], None]:
        """A handler for each call of the protocol that this host has no use for."""
        if name not in language_pb2_grpc.LanguageRuntimeServicer.__dict__:
            raise AttributeError(name)

        def unimplemented(_request: Any, context: Any) -> None:  # noqa: ANN401 - gRPC
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"rayrig's Python language host does not serve {name}")

        return unimplemented

    def Handshake(self, request: Any, _context: Any) -> Any:  # noqa: ANN401, N802 - gRPC
        """Learns the engine's address."""
        self._engine = request.engine_address or self._engine
        self._root = request.root_directory or None
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, _request: Any, _context: Any) -> Any:  # noqa: ANN401, N802 - gRPC
        """The host's version: that of the CLI it stands beside."""
        return plugin_pb2.PluginInfo(version=VERSION)

    def GetRequiredPlugins(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - gRPC
        """The resource plugins of the installed SDK packages, for older engines."""
        plugins = [
            plugin_pb2.PluginDependency(name=name, kind="resource", version=version, server=server)
            for name, version, server in required_plugins(self._interpreter(request.info, context))
        ]
        return language_pb2.GetRequiredPluginsResponse(plugins=plugins)

    def GetRequiredPackages(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - gRPC
        """The resource plugins of the installed SDK packages."""
        packages = [
            plugin_pb2.PackageDependency(name=name, kind="resource", version=version, server=server)
            for name, version, server in required_plugins(self._interpreter(request.info, context))
        ]
        return language_pb2.GetRequiredPackagesResponse(packages=packages)

    def About(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - gRPC
        """Which Python runs the program, for `pulumi about`."""
        interpreter = self._interpreter(request.info, context)
        answer = self._ask(interpreter, ["-c", "import platform; print(platform.python_version())"], context)
        return language_pb2.AboutResponse(
            executable=interpreter.executable, version=answer.strip(), metadata={"host": "rayrig"}
        )

    def GetProgramDependencies(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - gRPC
        """The distributions installed for the program; unless all are asked for, those that no other requires."""
        interpreter = self._interpreter(request.info, context)
        which = "all" if request.transitiveDependencies else "direct"
        found = json.loads(self._ask(interpreter, ["-c", DEPENDENCIES_SCRIPT, which], context))
        dependencies = [language_pb2.DependencyInfo(name=name, version=version) for name, version in found]
        return language_pb2.GetProgramDependenciesResponse(dependencies=dependencies)

    def RuntimeOptionsPrompts(self, _request: Any, _context: Any) -> Any:  # noqa: ANN401, N802 - gRPC
        """No question is asked of the person."""
        return language_pb2.RuntimeOptionsResponse()

    def InstallDependencies(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: ANN401, N802 - gRPC
        """Installs nothing: the project's environment comes from its lock file; fails where it is not there."""
        interpreter = self._interpreter(request.info, context)
        told = f"dependencies come from the lock files (`make setup`); using {interpreter.executable}\n"
        yield language_pb2.InstallDependenciesResponse(stdout=told.encode())

    def Cancel(self, _request: Any, _context: Any) -> Any:  # noqa: ANN401, N802 - gRPC
        """Ends the running program."""
        self.end_programs()
        return empty_pb2.Empty()

    def Run(self, request: Any, _context: Any) -> Any:  # noqa: ANN401, N802 - gRPC
        """Runs the program to its end; its output is this process's."""
        if request.attach_debugger:
            return language_pb2.RunResponse(error="this language host cannot attach a debugger")
        try:
            interpreter = find_interpreter(request.info.root_directory, dict(request.info.options.items()))
            # The engine ends this process group by SIGINT: the program must not answer it by a traceback.
            argv = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *run_argv(request, interpreter, self._engine)]
            program = subprocess.Popen(
                argv, cwd=request.pwd, env=run_environment(request, interpreter), stdin=subprocess.DEVNULL
            )
        except (ProgramError, OSError) as error:
            return language_pb2.RunResponse(error=f"the program could not be started: {error}")
        with self._lock:
            self._programs.add(program)
        if self._cancelled.is_set():
            self.end_programs()
        code = program.wait()
        with self._lock:
            self._programs.discard(program)
        return self._run_response(code)

    def end_programs(self) -> None:
        """Ends every running program: SIGTERM, and SIGKILL after STOP_GRACE_SECONDS."""
        self._cancelled.set()
        with self._lock:
            programs = list(self._programs)
        for program in programs:
            program.terminate()
        for program in programs:
            try:
                program.wait(STOP_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                program.kill()

    def _run_response(self, code: int) -> Any:  # noqa: ANN401 - protobuf
        if code == 0:
            return language_pb2.RunResponse()
        if code == BAIL_EXIT_CODE or self._cancelled.is_set():
            return language_pb2.RunResponse(bail=True)
        if code < 0:
            name = signal.Signals(-code).name if -code in signal.Signals.__members__.values() else f"signal {-code}"
            return language_pb2.RunResponse(error=f"the program was ended by {name}")
        return language_pb2.RunResponse(error=f"the program exited with code {code}")

    def _interpreter(self, info: Any, context: Any) -> Interpreter:  # noqa: ANN401 - gRPC
        try:
            return find_interpreter(info.root_directory or self._root or ".", dict(info.options.items()))
        except ProgramError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise

    @staticmethod
    def _ask(interpreter: Interpreter, arguments: list[str], context: Any) -> str:  # noqa: ANN401 - gRPC
        try:
            return subprocess.run(
                [interpreter.executable, *arguments],
                env=interpreter.environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=30,
                check=True,
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            context.abort(grpc.StatusCode.INTERNAL, f"cannot ask {interpreter.executable}: {error}")
            raise


def serve(engine: str) -> None:
    """Serves until a signal says stop or the process that started this one is gone."""
    stop = threading.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda _signum, _frame: stop.set())
    parent = os.getppid()
    host: Any = LanguageHost(engine)
    options = [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16), options=options)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    while os.getppid() == parent and not stop.wait(PARENT_POLL_SECONDS):
        continue
    host.end_programs()
    server.stop(grace=0.5).wait(1.0)


def main(arguments: list[str]) -> int:
    """Entry point; the engine's address is the only argument that is no flag."""
    logging.getLogger("grpc").setLevel(logging.CRITICAL + 1)
    addresses = [argument for argument in arguments if not argument.startswith("-")]
    serve(addresses[0] if addresses else "")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

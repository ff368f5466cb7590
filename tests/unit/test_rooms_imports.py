"""The arrows between rooms, as the design draws them, read from the code itself."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES = 450
MAX_MAIN_LINES = 120

ANYWHERE = {"pydantic", "pydantic_core", "typing_extensions", "tenacity", "yaml"}
AWS = {"boto3", "botocore"}
ENGINE = {"pulumi", "grpc", "google"}
TERMINAL = {"rich", "typer"}

ROOMS: dict[str, set[str]] = {
    "contract": set(),
    "account": {"contract"},
    "images": {"contract"},
    "remote": {"contract"},
    "infra": {"contract", "account", "images"},
    "bootstrap": {"contract", "remote"},
    "bootstrap/on_node": {"images"},
    "provider": {"contract", "account", "bootstrap", "images"},
    "jobs": {"contract", "account", "remote", "jobs/train"},
    "jobs/train": {"contract", "images"},
    "cli": {"contract", "account", "images", "infra", "remote", "bootstrap", "provider", "jobs"},
    "rehearsal": {"contract"},
}
"""Room by room, the other rooms that it may import; nobody may import rehearsal or cli.

jobs/train runs on the cluster and in an embedded Ray; bootstrap/on_node is sent to nodes as text, never imported.
"""

PACKAGES: dict[str, set[str]] = {
    "contract": {"pydantic"},
    "account": AWS | ANYWHERE,
    "images": ANYWHERE | {"ray", "torch", "gymnasium"},
    "remote": {"fabric", "paramiko", "invoke", *ANYWHERE},
    "infra": {"pulumi", "pulumi_aws", "grpc", *ANYWHERE},
    "bootstrap": ANYWHERE,
    "bootstrap/on_node": {"ray", "fsspec"},
    "provider": ENGINE | ANYWHERE,
    "jobs": {"fsspec", "s3fs", "ray", "aiohttp", "requests", "httpx", *TERMINAL, *ANYWHERE},
    "jobs/train": {
        "botocore",
        "ray",
        "torch",
        "gymnasium",
        "numpy",
        "fsspec",
        "s3fs",
        "matplotlib",
        "tensorboardX",
        *ANYWHERE,
    },
    "cli": TERMINAL | ANYWHERE,
    "rehearsal": AWS
    | ENGINE
    | TERMINAL
    | ANYWHERE
    | {"moto", "docker", "werkzeug", "flask", "psutil", "requests", "cryptography", "httpx"},
}
"""Room by room, the packages from outside that it may import, besides the standard library."""

LATE_ROOMS = {"provider": {"bootstrap", "images", "remote"}}
"""Rooms that may be imported inside functions only: destroy must work with them broken."""
ONE_MODULE = {
    ("infra", "images"): "images.matrix",
    ("jobs/train", "images"): "images.verify",
    ("bootstrap/on_node", "images"): "images.verify",
    ("jobs", "jobs/train"): "jobs.train.config",
}
"""Where only one module of another room may be imported."""
LATE_PACKAGES = {"images": {"ray", "torch", "gymnasium"}}
"""Packages that may be imported inside functions only: they are slow to load, or not there on every machine."""
TOP_LEVEL_PACKAGES = {"provider": ENGINE | {"pydantic"}}
"""Where the module level is held to fewer packages than the functions."""


@dataclass(frozen=True)
class Import:
    file: Path
    line: int
    name: str
    late: bool

    def __str__(self) -> str:
        return (
            f"{self.file.relative_to(ROOT)}:{self.line} imports {self.name}{' inside a function' if self.late else ''}"
        )

    @property
    def package(self) -> str:
        return self.name.split(".", 1)[0]


def room_of(path: Path) -> str:
    return room_imported(".".join(path.relative_to(ROOT).with_suffix("").parts))


def room_imported(name: str) -> str:
    """The room of a module; an inner room's `__init__` belongs to the outer one, for which it speaks."""
    first, second, third = [*name.split(".", 3), "", ""][:3]
    inner = f"{first}/{second}"
    return inner if inner in ROOMS and third != "__init__" and (ROOT / inner / f"{third}.py").exists() else first


def python_files(room: str) -> Iterator[Path]:
    top = ROOT / room
    for path in sorted(top.rglob("*")):
        if path.is_file() and room_of(path) == room and (path.suffix == ".py" or is_python_script(path)):
            yield path


def is_python_script(path: Path) -> bool:
    if path.suffix or "__pycache__" in path.parts:
        return False
    with path.open("rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" in first


def imports_of(path: Path) -> Iterator[Import]:
    def walk(node: ast.AST, *, late: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(path, child.lineno, alias.name, late) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}:{child.lineno}: relative import; name the room"
                names = [f"{child.module}.{alias.name}" for alias in child.names]
                yield from (Import(path, child.lineno, name, late) for name in names)
            elif is_type_checking(child):
                continue
            else:
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from walk(child, late=late or inside)

    yield from walk(ast.parse(path.read_text(encoding="utf-8"), str(path)), late=False)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def wrong_import(room: str, found: Import) -> str | None:
    """Why an import breaks the rules; None when it does not."""
    target = room_imported(found.name)
    if target in ROOMS:
        return wrong_room(room, target, found)
    if found.package in sys.stdlib_module_names:
        return None
    if found.package not in PACKAGES[room]:
        return f"{room} may not import the package {found.package}"
    early = TOP_LEVEL_PACKAGES.get(room, PACKAGES[room]) - LATE_PACKAGES.get(room, set())
    return None if found.late or found.package in early else f"{room} may import {found.package} inside functions only"


def wrong_room(room: str, target: str, found: Import) -> str | None:
    late = LATE_ROOMS.get(room, set())
    if target == room:
        return None
    if target not in ROOMS[room] | late:
        return f"{room} may not import {target}"
    only = ONE_MODULE.get((room, target))
    if only and not f"{found.name}.".startswith(f"{only}."):
        return f"{room} may import {only} only"
    return f"{room} may import {target} inside functions only" if target in late and not found.late else None


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_the_design_allows(room: str) -> None:
    wrong = []
    for path in python_files(room):
        for found in imports_of(path):
            reason = wrong_import(room, found)
            if reason:
                wrong.append(f"{found}: {reason}")
    assert not wrong, "\n".join(wrong)


def test_every_folder_with_code_is_a_room() -> None:
    others = {"tests", "benchmarks", "docs", "build"}
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
    with_code = {name for name in folders - others if any((ROOT / name).rglob("*.py"))}
    assert with_code <= set(ROOMS), "add the new room to ROOMS, as the design draws its arrows"


@pytest.mark.parametrize(
    ("room", "name", "late", "allowed"),
    [
        ("contract", "account.clients", False, False),
        ("provider", "bootstrap.steps", False, False),
        ("provider", "bootstrap.steps", True, True),
        ("provider", "account.clients", False, True),
        ("provider", "boto3", True, False),
        ("infra", "bootstrap.facts", True, False),
        ("jobs", "rehearsal.world", True, False),
        ("jobs", "jobs.train.ppo", False, False),
        ("jobs/train", "jobs.submit", False, False),
        ("jobs/train", "images.verify.main", False, True),
        ("jobs/train", "images.build", False, False),
        ("jobs", "jobs.train.config.PpoConfig", False, True),
        ("jobs", "torch", True, False),
        ("rehearsal", "infra.spec", False, False),
        ("remote", "boto3", False, False),
        ("bootstrap", "json", False, True),
        ("bootstrap", "bootstrap.on_node.prove", True, False),
    ],
)
def test_the_rules_themselves(room: str, name: str, *, late: bool, allowed: bool) -> None:
    assert (wrong_import(room, Import(ROOT / room / "x.py", 1, name, late)) is None) is allowed


def test_the_submit_command_does_not_wait_for_ray_to_load() -> None:
    script = "import sys, jobs.submit; print([name for name in ('ray', 'torch') if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "[]"


def test_a_main_module_is_short() -> None:
    mains = [path for room in ROOMS for path in python_files(room) if path.name == "__main__.py"]
    long = [
        f"{path.relative_to(ROOT)}: {count_lines(path)} lines" for path in mains if count_lines(path) > MAX_MAIN_LINES
    ]
    assert not long, f"a __main__.py has at most {MAX_MAIN_LINES} lines: {long}"


def test_no_module_grows_too_long() -> None:
    paths = [path for room in ROOMS for path in python_files(room)]
    paths += (ROOT / "tests").rglob("*.py")
    long = [f"{path.relative_to(ROOT)}: {count_lines(path)} lines" for path in paths if count_lines(path) > MAX_LINES]
    assert not long, f"split what has more than {MAX_LINES} lines: {long}"


def count_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


# Built from parts, so that this file does not hold what it forbids.
FORBIDDEN = {
    "a package registry's address": [
        ".".join(parts)
        for parts in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("deb", "debian", "org"),
            ("security", "debian", "org"),
            ("archive", "ubuntu", "com"),
            ("proxy", "golang", "org"),
            ("registry", "npmjs", "org"),
            ("registry-1", "docker", "io"),
            ("crates", "io"),
        )
    ],
    "a path of one machine": ["/" + "/".join(parts) for parts in (("work", "main"), ("work", "shared"), ("tmp", "su"))],
}
TEXT_SUFFIXES = {"", ".cfg", ".json", ".lock", ".md", ".py", ".sh", ".sum", ".toml", ".txt", ".yaml", ".yml"}
LOCAL_FOLDERS = {
    ".git",
    ".venv",
    ".rayrig",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
}


def repository_texts() -> Iterator[Path]:
    for path in sorted(ROOT.rglob("*")):
        local = LOCAL_FOLDERS & set(path.relative_to(ROOT).parts) or any(
            part.endswith(".egg-info") for part in path.parts
        )
        if not local and path.is_file() and not path.is_symlink() and path.suffix in TEXT_SUFFIXES:
            yield path


def test_no_registry_address_and_no_path_of_one_machine_is_in_the_repository() -> None:
    patterns = {re.compile(re.escape(text)): what for what, texts in FORBIDDEN.items() for text in texts}
    wrong = []
    for path in repository_texts():
        text = path.read_text(encoding="utf-8", errors="replace")
        wrong += [
            f"{path.relative_to(ROOT)}: {what}: {pattern.pattern}"
            for pattern, what in patterns.items()
            if pattern.search(text)
        ]
    assert not wrong, "\n".join(wrong)

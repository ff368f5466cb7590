"""Makes rehearsal/double/replaces/*.json from the real Terraform provider's answers.

`python -m rehearsal.double.make_replaces PATH-TO/tf_oracle.py [TOKEN ...]` (the oracle's own environment variables
hold; without tokens: every type that has a file). Nothing here is written by hand: what the oracle cannot answer
stays `unknown`, and the double refuses a change of it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rehearsal.double.answers import FOLDER, file_of

TIMEOUT_SECONDS = 1800.0


def ask(oracle: Path, tokens: list[str]) -> dict[str, Any]:
    """The oracle's report on the types; raises CalledProcessError when it could not do its work."""
    with tempfile.TemporaryDirectory(prefix="replaces.") as folder:
        report = Path(folder) / "report.json"
        argv = [sys.executable, str(oracle), "replaces", "--json", str(report), *tokens]
        subprocess.run(argv, check=True, timeout=TIMEOUT_SECONDS)
        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        return found


def write(report: dict[str, Any]) -> None:
    """One file per type, properties in order, so that a new provider shows as a readable difference."""
    for token, found in report["types"].items():
        table = {
            "token": token,
            "terraform": f"{found['tf_type']} of provider {report['provider']}",
            "properties": dict(sorted(found["properties"].items())),
        }
        file_of(token).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Asks and writes."""
    parser = argparse.ArgumentParser(prog="python -m rehearsal.double.make_replaces", description=__doc__)
    parser.add_argument("oracle", type=Path, help="path of tf_oracle.py")
    parser.add_argument("tokens", nargs="*", help="Pulumi type tokens; none: those that have a file")
    options = parser.parse_args()
    tokens = options.tokens or [
        json.loads(path.read_text(encoding="utf-8"))["token"] for path in sorted(FOLDER.glob("*.json"))
    ]
    write(ask(options.oracle, tokens))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

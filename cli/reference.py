"""Writes docs/reference/ from the models themselves: `python -m cli.reference`."""

import inspect
import re
from pathlib import Path

from contract.exit_codes import ExitCode
from infra.spec import ClusterSpec, config_key, set_command

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"


def config_page() -> str:
    """Every configuration key with its meaning, default and the command that sets it."""
    rows = []
    for name, field in ClusterSpec.model_fields.items():
        if field.is_required():
            default = "needed"
        elif field.default_factory is not None or field.default is None:
            default = ""
        else:
            default = f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"
        rows.append(f"| `{config_key(name)}` | {field.description} | {default} | `{set_command(name)}` |")
    return "\n".join(
        [
            "# Configuration",
            "",
            "Made from the model by `python -m cli.reference`. Everything is set with `pulumi config set`; unknown or",
            "misspelt keys are errors that name the nearest one.",
            "",
            "| key | meaning | default | example |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def exit_code_page() -> str:
    """Every exit code with its meaning, from the enumeration's own docstrings."""
    source = inspect.getsource(ExitCode)
    told = {
        name: " ".join(text.split()) for name, text in re.findall(r'(\w+) = \d+\n\s+"""(.*?)"""', source, re.DOTALL)
    }
    rows = [f"| {code.value} | {code.name} | {told[code.name]} |" for code in ExitCode]
    return "\n".join(
        [
            "# Exit codes",
            "",
            "Made from `contract/exit_codes.py` by `python -m cli.reference`. A FAILED job passes its driver code on.",
            "",
            "| code | name | meaning |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


PAGES = {"config.md": config_page, "exit-codes.md": exit_code_page}


def main() -> None:
    """Writes all pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()

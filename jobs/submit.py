"""`python -m jobs.submit NAME`: trains on the cluster of the current stack, or, without one, on this machine."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from contract.errors import RayrigError
from jobs.catalog import ENTRIES

CATALOG = "; ".join(f"{entry.name}: {entry.summary}" for entry in ENTRIES.values())

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def submit(
    name: Annotated[str, typer.Argument(help=CATALOG)],
    *,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="a setting of the job")
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE.yaml", help="settings of the job")] = None,
    stack: Annotated[str | None, typer.Option(help="the stack; by default the selected one")] = None,
    inventory: Annotated[Path | None, typer.Option(metavar="FILE", help="an inventory instead of a stack")] = None,
    run_name: Annotated[str | None, typer.Option(help="name of the run; an existing one is attached to")] = None,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="go on from that run's latest checkpoint")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="return once the job is submitted")] = False,
    local: Annotated[bool, typer.Option("--local", help="train on this machine, whatever the stack")] = False,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="stop the job if it takes longer")] = None,
    pending_timeout: Annotated[float, typer.Option(metavar="SECONDS", help="give up if it does not start")] = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="standard output is one line of JSON, at the end")] = False,
) -> None:
    """Submits a job, follows its log and exits with its own code (0, the driver's, 130 stopped, 75 lost)."""
    from jobs import command  # noqa: PLC0415 - --help needs none of it

    options = command.Options(
        name=name,
        settings=tuple(settings or ()),
        config=config,
        stack=stack,
        inventory=inventory,
        run_name=run_name,
        resume=resume,
        detach=detach,
        local=local,
        timeout_seconds=timeout,
        pending_seconds=pending_timeout,
        as_json=as_json,
    )
    try:
        code = command.run(options)
    except RayrigError as error:
        sys.stderr.write(f"error: {error}\n")
        if as_json:
            end = {"state": "ERROR", "exit_code": int(error.exit_code), "error": str(error)}
            sys.stdout.write(json.dumps(end) + "\n")
        code = error.exit_code
    raise typer.Exit(code)


def main() -> None:
    """The command."""
    app()


if __name__ == "__main__":
    main()

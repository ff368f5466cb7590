"""`rayrig`: each verb's code lives in its room and is imported when called, so that help and errors are instant."""

import importlib.metadata
import runpy
import sys
from collections.abc import Sequence

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def show_version(wanted: bool) -> None:
    """Prints the installed version and ends."""
    if wanted:
        typer.echo(f"rayrig {importlib.metadata.version('rayrig')}")
        raise typer.Exit


@app.callback()
def rayrig(*, version: bool = typer.Option(False, "--version", callback=show_version, is_eager=True)) -> None:
    """A private GPU Ray cluster on AWS: train on it, look after it."""


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def submit(context: typer.Context) -> None:
    """Submits a training to the cluster; the same as `python -m jobs.submit`."""
    run_module("jobs.submit", context.args)


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Runs a room's command as `python -m` would; its exit code becomes ours."""
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def main() -> None:
    """Entry point of the `rayrig` script."""
    app()


if __name__ == "__main__":
    main()

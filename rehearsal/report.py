"""What a rehearsal proved: stages with seconds, as a table for people and JSON for programs."""

from pathlib import Path

from pydantic import BaseModel, Field
from rich.table import Table

GOAL_SECONDS = {"up": 60.0, "second up": 10.0, "submit to first metric": 45.0, "destroy": 30.0}
"""Goals on two idle cores with everything built and cached: reported beside the figure, never a failure."""
GOAL_MEMORY_BYTES = 8 * 2**30


class Stage(BaseModel):
    """One stage of a rehearsal."""

    name: str
    seconds: float
    proven: bool
    detail: str = ""


class Report(BaseModel):
    """A whole rehearsal. Fields that a stage never reached stay None."""

    stages: list[Stage] = Field(default_factory=list)
    nodes: int | None = Field(default=None, description="nodes of the cluster as its inventory lists them")
    second_up_changes: int | None = Field(default=None, description="resources that a second `pulumi up` touched")
    return_: float | None = Field(default=None, serialization_alias="return", description="held evaluation return")
    peak_memory_bytes: int | None = Field(default=None, description="highest memory in use above that at the start")
    left: int | None = Field(default=None, description="resources left after destroy, counted apart from the receipt")

    @property
    def proven(self) -> bool:
        """Whether every stage was proven."""
        return bool(self.stages) and all(stage.proven for stage in self.stages)

    def save(self, path: Path) -> None:
        """Writes the JSON form."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(by_alias=True, indent=2) + "\n", encoding="utf-8")


def table(report: Report) -> Table:
    """The report as a table: stage, seconds, goal, proven, detail."""
    rows = Table(title="Rehearsal", title_justify="left")
    for heading, justify in (("stage", "left"), ("seconds", "right"), ("goal", "right"), ("proven", "left")):
        rows.add_column(heading, justify="right" if justify == "right" else "left", no_wrap=True)
    rows.add_column("what was seen", overflow="fold")
    for stage in report.stages:
        goal = GOAL_SECONDS.get(stage.name)
        mark = "[green]yes[/green]" if stage.proven else "[red]NO[/red]"
        over = goal is not None and stage.seconds > goal
        seconds = f"[yellow]{stage.seconds:.1f} over[/yellow]" if over else f"{stage.seconds:.1f}"
        rows.add_row(stage.name, seconds, f"{goal:.0f}" if goal else "", mark, stage.detail)
    if report.peak_memory_bytes is not None:
        rows.add_section()
        seen = f"{report.peak_memory_bytes / 2**30:.1f} GiB above the start (goal {GOAL_MEMORY_BYTES / 2**30:.0f} GiB)"
        rows.add_row("peak memory", "", "", "", seen)
    return rows

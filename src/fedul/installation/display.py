"""Text of `DoctorResult` for a terminal: what is wrong first, then versions, extras, machine and folders."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from fedul._utils.display import counted, make_table
from fedul.installation.result import DoctorResult, ExtraStatus, FolderStatus, MachineStatus, PackageStatus

STATE_COLOURS = {"installed": "green", "missing": "dim", "broken": "red"}


def doctor_view(result: DoctorResult) -> Group:
    """Return the result as text and tables."""
    problems = [each.sentence for each in result.issues if each.level == "problem"]
    notes = [each.sentence for each in result.issues if each.level == "note"]
    verdict = f"[bold red]{counted(len(problems), 'problem')}[/]" if problems else "[bold green]no problem found[/]"
    parts: list[RenderableType] = [
        f"{verdict}: fedul {escape(result.fedul)}, Python {escape(result.python)}, {escape(result.executable)}",
        *(f"[red]problem:[/] {escape(sentence)}" for sentence in problems),
        *(f"[yellow]note:[/] {escape(sentence)}" for sentence in notes),
        "",
        _machine_text(result.machine),
        _packages_table(result.packages),
        _extras_table(result.extras),
        _folders_table(result.folders),
        *(f"{each.name}: {escape(each.path or 'not installed')} ({escape(each.use)})" for each in result.programs),
    ]
    return Group(*parts)


def _machine_text(machine: MachineStatus) -> str:
    memory = "" if machine.memory_gb is None else f", {machine.memory_gb:.0f} GB of memory"
    free = "" if machine.free_memory_gb is None else f" ({machine.free_memory_gb:.0f} GB free)"
    half = {True: "faster in bfloat16", False: "no bfloat16 in hardware", None: "bfloat16 unknown"}[machine.bfloat16]
    settings = [f"{name}={value}" for name, value in machine.threads.items()]
    lines = [
        f"{machine.processor}, {counted(machine.cores, 'core')}{memory}{free}",
        f"{machine.system}",
        f"instruction sets: {', '.join(machine.features) or 'unknown'}; {half}",
        f"GPUs: {', '.join(machine.gpus) or 'none'}",
        f"threads: {', '.join(settings) or 'no variables are set'}",
    ]
    return escape("\n".join(lines))


def _packages_table(packages: tuple[PackageStatus, ...]) -> Table:
    table = make_table(["package", "version", "needed"], [])
    for package in packages:
        version = package.version or "not installed"
        cells = (package.name, version if package.accepted else f"{version} (wrong)", package.needed)
        table.add_row(*map(escape, cells), style=None if package.accepted else "red")
    return table


def _extras_table(extras: tuple[ExtraStatus, ...]) -> Table:
    table = make_table(["extra", "state"], [])
    table.add_column("for, or how to install it", overflow="fold")
    for extra in extras:
        state = f"[{STATE_COLOURS[extra.state]}]{extra.state}[/]"
        versions = ", ".join(f"{each.name} {each.version}" for each in extra.packages)
        details = versions if extra.state == "installed" else f"{extra.install}: {extra.purpose}"
        table.add_row(escape(extra.name), state, escape(details))
    return table


def _folders_table(folders: tuple[FolderStatus, ...]) -> Table:
    table = make_table(["folder for"], [])
    table.add_column("path", overflow="fold")
    table.add_column("writable", no_wrap=True)
    table.add_column("GB free", justify="right", no_wrap=True)
    for folder in folders:
        free = "" if folder.free_gb is None else f"{folder.free_gb:,.0f}"
        table.add_row(escape(folder.use), escape(folder.path), "yes" if folder.writable else "no", free)
    return table

"""The floors of the code, its purity and its size.

Read with `ast` rather than with an import graph library: the same walk answers what a graph does not hold (imports
inside functions, relative imports of the guest, third parties by file, sizes), and needs nothing importable.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent

#: Module or group -> floor. A module imports only from lower floors; inside a group imports run one way. A half floor
#: stands on the whole one below it. A new file needs one row.
FLOORS: dict[str, float] = {
    "prime_kernel": 0,
    "prime.errors": 1,
    "prime.messages": 1,
    "prime.guest": 1,
    "prime.raster": 1,
    "prime.reaper": 1,
    "prime.gate": 1.2,
    "prime.sandbox": 1.2,
    "prime.bubblewrap": 1.5,
    "prime.screen": 1,
    "prime.live": 1.5,
    "prime.agent_events": 1.5,
    "prime.gate_events": 1.5,
    "prime.endpoints": 1,
    "prime.pricing": 1.4,
    "prime.config": 1.5,
    "prime.kernel_events": 1.5,
    "prime.job_events": 1.5,
    "prime.events": 2,
    "prime.contract_events": 1.5,
    "prime.store": 2,
    "prime.repl": 2,
    "prime.tools": 2,
    "prime.providers": 2,
    "prime.locators": 2.2,
    "prime.side": 3,
    "prime.predicates": 3,
    "prime.pinned": 2.5,
    "prime.trace": 3,
    "prime.inbox": 3,
    "prime.running": 3,
    "prime.kin": 3,
    "prime.surface": 3,
    "prime.tokens": 3,
    "prime.ledger": 3.5,
    "prime.prompt": 3,
    "prime.projection": 3,
    "prime.policies": 3.5,
    "prime.state": 3.5,
    "prime.repair": 3.5,
    "prime.log": 4,
    "prime.checked": 4.5,
    "prime.items": 4.5,
    "prime.originals": 4.5,
    "prime.verify": 4.5,
    "prime.sessions": 4.5,
    "prime.texts": 4.2,
    "prime.filters": 3,
    "prime.recalled": 3,
    "prime.search": 4.5,
    "prime.hits": 5,
    "prime.history": 5.5,
    "prime.recoverable": 5.8,
    "prime.recall": 4.5,
    "prime.namespace": 4.5,
    "prime.notices": 4.5,
    "prime.peek": 4.5,
    "prime.snapshots": 4.5,
    "prime.idle": 5,
    "prime.caps": 6,
    "prime.shown": 6,
    "prime.approvals": 5,
    "prime.dispatch": 6,
    "prime.context": 6,
    "prime.replayed": 6.5,
    "prime.spending": 6.8,
    "prime.request": 6,
    "prime.query": 6.5,
    "prime.contract": 6,
    "prime.cell": 6.5,
    "prime.loop": 7,
    "prime.agent": 8,
    "prime.agents": 8.5,
    "prime.jobs": 5,
    "prime.terminals": 5.5,
    "prime.beside": 5.8,
    "prime.mcp": 3,
    "prime.views": 9,
    "prime.testing": 9,
    "prime.models": 9,
    "prime.surroundings": 9.5,
    "prime.app": 10,
    "prime.faces": 10.5,
    "prime.doctor": 10.5,
    "prime.cli": 11,
    "prime.__main__": 12,
    "prime": 12,
}

#: These meet in the loop, by value.
STRANGERS = ("prime.repl", "prime.tools", "prime.providers", "prime.policies", "prime.views")

#: Guest file -> what it may import beside the standard library. The guest runs in the user's environment, which is
#: sure to have ipykernel and what that needs, and nothing else.
GUEST_IMPORTS = {
    "app": {"IPython", "ipykernel", "tornado", "traitlets"},
    "cell": {"IPython"},
    "display": {"IPython"},
    "interrupt": {"ipykernel"},
    "launch": {"ipykernel"},
    "magics": {"IPython"},
    "shell": {"IPython", "ipykernel", "traitlets"},
    "streams": {"ipykernel"},
    "threads": {"ipykernel"},
}

#: Imports inside a function: (module, what it imports). Only an optional dependency may be here, and what would make
#: a command start late, or a session large, that does not need it.
LOCAL_IMPORTS = {
    ("prime.cli.mcp", "prime.cli.servers"),
    ("prime.mcp.servers", "prime.mcp.connection"),
    ("prime.mcp.servers", "prime.mcp.checks"),
    ("prime.cli.commands", "prime.cli.cells"),
    ("prime.cli.commands", "prime.cli.chat"),
    ("prime.cli.commands", "prime.cli.demo"),
    ("prime.cli.commands", "prime.cli.doctor"),
    ("prime.cli.commands", "prime.cli.headless"),
    ("prime.cli.commands", "prime.cli.models"),
    ("prime.cli.options", "prime.config"),
    ("prime.cli.recorded", "prime.views.terminal"),
    ("prime.cli.sessions", "prime.cli.recorded"),
    ("prime.cli.sessions", "prime.cli.costs"),
    ("prime.cli.sessions", "prime.cli.prices"),
    ("prime.cli.sessions", "prime.cli.inspections"),
    ("prime.pricing", "genai_prices"),
    ("prime.raster", "resvg_py"),
    ("prime.terminals.commands", "prime.terminals.emulator"),
    ("prime.providers.windows", "genai_prices.data_snapshot"),
    ("prime.tools.fetch", "html_to_markdown"),
    ("prime.tools.text", "charset_normalizer"),
}

#: Imports of the guest by its full name. The package is only importable once this file has loaded it.
ABSOLUTE_IMPORTS = {("prime_kernel.launch", "prime_kernel.app"), ("prime_kernel.launch", "prime_kernel.template")}

MAX_FILE, MAX_FUNCTION, MAX_PARAMETERS = 400, 60, 8


class Module(NamedTuple):
    """A parsed file."""

    name: str
    lines: int
    tree: ast.Module


class Import(NamedTuple):
    """One imported module. ``local``: inside a function; ``typing``: under ``if TYPE_CHECKING``."""

    source: str
    target: str
    local: bool
    typing: bool


def _modules() -> Iterator[Module]:
    for folder, package in ((ROOT / "kernel", "prime_kernel"), (ROOT / "prime", "prime")):
        for path in sorted(folder.rglob("*.py")):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            text = path.read_text()
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield Module(name, text.count("\n"), ast.parse(text))


MODULES = {module.name: module for module in _modules()}
PACKAGES = {name.rpartition(".")[0] for name in MODULES}


def _imports(module: Module) -> Iterator[Import]:
    def visit(node: ast.AST, local: bool, typing: bool) -> Iterator[Import]:
        for target in _targets(module, node):
            yield Import(module.name, target, local, typing)
        local |= isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        typing |= isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, local, typing)

    return visit(module.tree, False, False)


def _targets(module: Module, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        base = module.name if module.name in PACKAGES else module.name.rpartition(".")[0]
        for _ in range(node.level - 1):
            base = base.rpartition(".")[0]
        start = node.module if not node.level else f"{base}.{node.module}" if node.module else base
        for alias in node.names:
            inner = f"{start}.{alias.name}"
            yield inner if inner in MODULES else str(start)


def _row(name: str) -> str | None:
    """Return the row of the floors table that a module belongs to: its own, or that of its group."""
    if name in FLOORS:
        return name
    first, _, rest = name.partition(".")
    group = f"{first}.{rest.partition('.')[0]}" if first == "prime" else first
    return group if group in FLOORS and group in PACKAGES else None


IMPORTS = [found for module in MODULES.values() for found in _imports(module)]
OURS = [found for found in IMPORTS if found.target in MODULES and found.source != found.target]


def test_every_file_has_a_floor() -> None:
    assert [name for name in MODULES if _row(name) is None] == []


def test_imports_go_down() -> None:
    up = []
    for found in OURS:
        source, target = _row(found.source), _row(found.target)
        if source is None or target is None or source == target:
            continue
        if FLOORS[target] >= FLOORS[source]:
            up.append(f"{found.source} ({FLOORS[source]}) imports {found.target} ({FLOORS[target]})")
    assert up == []


def test_groups_that_meet_in_the_loop_never_import_each_other() -> None:
    met = [
        f"{found.source} imports {found.target}"
        for found in OURS
        if _row(found.source) != _row(found.target)
        and _row(found.source) in STRANGERS
        and _row(found.target) in STRANGERS
    ]
    assert met == []


def test_imports_run_one_way() -> None:
    needs: dict[str, set[str]] = {}
    for found in OURS:
        if not found.typing and found.target not in PACKAGES:
            needs.setdefault(found.source, set()).add(found.target)
    # what stands on nothing, or carries nothing, is on no circle
    while free := {
        name for name in needs if not needs[name] & needs.keys() or name not in set().union(*needs.values())
    }:
        needs = {name: targets for name, targets in needs.items() if name not in free}
    assert sorted(needs) == []


def test_the_guest_imports_the_standard_library_and_what_is_listed() -> None:
    foreign = []
    for found in IMPORTS:
        package, _, name = found.source.partition(".")
        root = found.target.partition(".")[0]
        allowed = {"prime_kernel", *sys.stdlib_module_names, *GUEST_IMPORTS.get(name, ())}
        if package == "prime_kernel" and root not in allowed:
            foreign.append(f"{found.source} imports {found.target}")
    assert foreign == []


def test_the_guest_imports_itself_relatively() -> None:
    absolute = []
    for name, module in MODULES.items():
        if name.partition(".")[0] != "prime_kernel":
            continue
        for node in ast.walk(module.tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            absolute += [
                f"{name} imports {target}"
                for target in names
                if target.partition(".")[0] in {"prime", "prime_kernel"} and (name, target) not in ABSOLUTE_IMPORTS
            ]
    assert absolute == []


def test_imports_stand_at_the_top_of_the_file() -> None:
    hidden = [
        f"{found.source} imports {found.target}"
        for found in IMPORTS
        if found.local and (found.source, found.target) not in LOCAL_IMPORTS
    ]
    assert hidden == []


def test_files_and_functions_stay_small() -> None:
    large = [f"{name}: {module.lines} lines" for name, module in MODULES.items() if module.lines >= MAX_FILE]
    for name, module in MODULES.items():
        for node in ast.walk(module.tree):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            lines = int(node.end_lineno or node.lineno) - node.lineno + 1
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = len([each for each in given if each.arg not in {"self", "cls"}])
            if lines >= MAX_FUNCTION:
                large.append(f"{name}.{node.name}: {lines} lines")
            if count >= MAX_PARAMETERS:
                large.append(f"{name}.{node.name}: {count} parameters")
    assert large == []


def test_every_package_is_in_the_distribution() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "prime").rglob("*.py")}
    assert named == [*sorted(".".join(folder.parts) for folder in folders), "prime_kernel"]

"""Imports point down, processes are made only in `supervise`, tasks only in its scope: read from the source itself."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "quell"

SPAWNING_MODULES = frozenset({"subprocess", "multiprocessing", "_posixsubprocess", "pty", "pexpect", "psutil"})
SPAWNING_OF_OS = frozenset(
    "fork forkpty posix_spawn posix_spawnp system popen"
    " spawnl spawnle spawnlp spawnlpe spawnv spawnve spawnvp spawnvpe".split()
)
SPAWNERS = frozenset(
    "Popen create_subprocess_exec create_subprocess_shell subprocess_exec subprocess_shell open_process run_process"
    " ProcessPoolExecutor".split()
)

TASK_MAKERS = frozenset(
    "create_task ensure_future TaskGroup create_task_group gather as_completed"
    " run_coroutine_threadsafe eager_task_factory".split()
)
"""What makes an asyncio task (H07). `asyncio.run` makes the first one, and is the composition root's."""

BANNED = frozenset(
    "stdio_client ClientSessionGroup spawn_agent_process spawn_client_process spawn_stdio_connection"
    " spawn_stdio_transport connect_to_agent run_agent SubprocessCLITransport".split()
)
"""Exports of libraries that own what we own: processes (H01) and the tasks of a connection (H07)."""

TOO_HEAVY_FOR_EXEC = frozenset({"asyncio", "msgspec", "typer", "subprocess", "argparse", "dataclasses", "inspect"})
"""What `quell exec` starts without: asyncio alone costs more than the rest of it."""

Offence = str
Rule = Callable[[str, ast.Module], Iterator[Offence]]


def imports(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that `module` imports, at any depth; `from a import b` is `a.b`."""
    package = module.split(".")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level] if node.level else []
            start = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{start}.{alias.name}") for alias in node.names)


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of every name that is read, reached by a dot or imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names)


def within(name: str, *folders: str) -> bool:
    return any(name == folder or name.startswith(folder + ".") for folder in folders)


def is_stdlib(name: str) -> bool:
    return name.split(".")[0] in sys.stdlib_module_names


def keeper_stands_alone(module: str, tree: ast.Module) -> Iterator[Offence]:
    if not within(module, "quell.supervise.keeper"):
        return
    for line, name in imports(module, tree):
        if not is_stdlib(name) and not within(name, "quell.supervise.keeper"):
            yield f"{module}:{line}: the keeper imports {name}; it may import the standard library and its own folder"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            absolute = any(within(alias.name, "quell") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            absolute = node.level == 0 and within(node.module or "", "quell")
        else:
            continue
        if absolute:
            yield f"{module}:{node.lineno}: the keeper names its folder in full; it imports from it relatively"


def supervise_knows_no_agents(module: str, tree: ast.Module) -> Iterator[Offence]:
    if not within(module, "quell.supervise"):
        return
    for line, name in imports(module, tree):
        if not is_stdlib(name) and not within(name, "quell.supervise", "quell.errors"):
            yield f"{module}:{line}: supervise imports {name}; it may import the standard library and quell.errors"


BELOW = {
    "quell.errors": ("quell.supervise.receipt.Receipt",),  # the type only
    "quell.events": (),
    "quell.config": (),
    "quell.secrecy": (),
    "quell.images": ("quell.events",),
    "quell.configfile": ("quell.config", "quell.secrecy"),
    "quell.ports": ("quell.events", "quell.config", "quell.supervise"),
    "quell.kernel": (
        "quell.events",
        "quell.ports",
        "quell.config",
        "quell.secrecy",
        "quell.images",
        "quell.supervise",
        "quell.__version__",
    ),
    "quell.models": ("quell.events", "quell.ports", "quell.config"),
    "quell.toolbox": ("quell.events", "quell.ports", "quell.supervise"),
    "quell.stores": ("quell.events", "quell.ports", "quell.supervise"),
    "quell.runtime": ("quell.kernel", "quell.stores", "quell.ports", "quell.config", "quell.supervise"),
    "quell.surfaces": (
        "quell.kernel",
        "quell.events",
        "quell.ports",
        "quell.config",
        "quell.supervise",
        "quell.__version__",
    ),
}
"""What each layer may import besides itself and quell.errors. What implements ports knows neither kernel nor peers."""


def imports_point_down(module: str, tree: ast.Module) -> Iterator[Offence]:
    layer = next((layer for layer in BELOW if within(module, layer)), None)
    if layer is None:
        return
    for line, name in imports(module, tree):
        if within(name, "quell") and not within(name, layer, "quell.errors", *BELOW[layer]):
            yield f"{module}:{line}: imports {name}, which is not below {layer}"


def nothing_imports_the_command_line(module: str, tree: ast.Module) -> Iterator[Offence]:
    if within(module, "quell.cli", "quell.__main__"):
        return
    for line, name in imports(module, tree):
        if within(name, "quell.cli"):
            yield f"{module}:{line}: imports {name}; only the command line imports the command line"


def processes_are_made_in_supervise(module: str, tree: ast.Module) -> Iterator[Offence]:
    if within(module, "quell.supervise"):
        return
    said = [f"imports {name}" for _, name in imports(module, tree) if name.split(".")[0] in SPAWNING_MODULES]
    said += [f"names {name}" for _, name in names(tree) if name in SPAWNERS]
    said += [f"names os.{name}" for name in of_os(module, tree) if name in SPAWNING_OF_OS]
    yield from (f"{module}: {what}; processes are made only in quell.supervise" for what in said)


def of_os(module: str, tree: ast.Module) -> Iterator[str]:
    """What is reached through the module `os`, under whatever name it was imported."""
    yield from (name.split(".")[-1] for _, name in imports(module, tree) if name.startswith(("os.", "posix.")))
    nodes = list(ast.walk(tree))
    aliases = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name in {"os", "posix"}
    }
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield node.attr


def nothing_imports_the_test_tools(module: str, tree: ast.Module) -> Iterator[Offence]:
    if within(module, "quell.testing"):
        return
    for line, name in imports(module, tree):
        if within(name, "quell.testing"):
            yield f"{module}:{line}: imports {name}; only tests use the test tools"


def tasks_are_made_in_the_scope(module: str, tree: ast.Module) -> Iterator[Offence]:
    if module == "quell.supervise.scope" or within(module, "quell.testing"):  # whose loops are its own
        return
    for line, name in names(tree):
        if name in TASK_MAKERS:
            yield f"{module}:{line}: names {name}; tasks are made only in quell.supervise.scope"


def libraries_own_nothing_of_ours(module: str, tree: ast.Module) -> Iterator[Offence]:
    for line, name in names(tree):
        if name in BANNED:
            yield f"{module}:{line}: names {name}; that export owns processes or tasks that are ours"


RULES: tuple[Rule, ...] = (
    keeper_stands_alone,
    supervise_knows_no_agents,
    imports_point_down,
    nothing_imports_the_command_line,
    nothing_imports_the_test_tools,
    processes_are_made_in_supervise,
    tasks_are_made_in_the_scope,
    libraries_own_nothing_of_ours,
)


def modules(source: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(source.rglob("*.py")):
        parts = [source.name, *path.relative_to(source).with_suffix("").parts]
        yield ".".join(parts), ast.parse(path.read_text(encoding="utf-8"), str(path))


def offences(source: Path, rule: Rule) -> list[Offence]:
    return [offence for module, tree in modules(source) for offence in rule(module, tree)]


def unbounded(requirements: list[str]) -> list[Offence]:
    """The requirements that lack a floor or a ceiling."""
    return [each for each in requirements if re.fullmatch(r"[\w-]+>=[\d.]+,<[\d.]+", each) is None]


def requirements() -> list[str]:
    """Everything that pyproject.toml asks for: to build, to run, to develop."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        document = tomllib.load(file)
    extras = [each for extra in document["project"]["optional-dependencies"].values() for each in extra]
    return [*document["build-system"]["requires"], *document["project"]["dependencies"], *extras]


def unlocked(requirements: list[str], lock: str) -> list[Offence]:
    """The requirements that the lock does not pin to one version with its hashes."""
    pinned = set(re.findall(r"^([\w-]+)==\S+.*\\\n +--hash=sha256:", lock, re.MULTILINE))
    return [each for each in requirements if re.split(r"[<>=]", each)[0] not in pinned]


def loaded_by(*statements: str) -> set[str]:
    """The modules that these statements add to a bare start of this Python."""
    probe = "import sys; before = set(sys.modules); {}; print(*sorted(set(sys.modules) - before))"
    command = [sys.executable, "-c", probe.format("; ".join(statements))]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_source_keeps_the_rule(rule: Rule) -> None:
    """H57: no export that owns processes or tasks of ours is named; and imports point down."""
    assert offences(SOURCE, rule) == []


def test_the_rules_read_every_module() -> None:
    """H56: a rule over an empty folder would always hold."""
    read = {module for module, _ in modules(SOURCE)}
    assert {
        "quell.__init__",
        "quell.supervise.__init__",
        "quell.supervise.keeper.__init__",
        "quell.cli.__init__",
    } <= read


@pytest.mark.parametrize(
    ("rule", "where", "text"),
    [
        (keeper_stands_alone, "supervise/keeper/box.py", "from ...errors import QuellError"),
        (keeper_stands_alone, "supervise/keeper/box.py", "from .. import receipt"),
        (keeper_stands_alone, "supervise/keeper/box.py", "import quell.supervise.keeper.link"),
        (keeper_stands_alone, "supervise/keeper/box.py", "def late():\n    import msgspec"),
        (supervise_knows_no_agents, "supervise/box.py", "from quell.kernel import bus"),
        (supervise_knows_no_agents, "supervise/box.py", "from ..config import Settings"),
        (supervise_knows_no_agents, "supervise/box.py", "from .. import events"),
        (supervise_knows_no_agents, "supervise/box.py", "import psutil"),
        (imports_point_down, "kernel/loop.py", "from ..toolbox import shell"),
        (imports_point_down, "kernel/host.py", "def late():\n    from ..stores.sqlite import SqliteStore"),
        (imports_point_down, "toolbox/shell.py", "from ..kernel.caller import Call"),
        (imports_point_down, "toolbox/shell.py", "from quell.models import scripted"),
        (imports_point_down, "events.py", "from .ports import Tool"),
        (imports_point_down, "kernel/runtime.py", "from ..surfaces.http import front"),
        (imports_point_down, "surfaces/http/app.py", "from ...stores.sqlite import SqliteStore"),
        (nothing_imports_the_command_line, "errors.py", "from .cli import main"),
        (nothing_imports_the_test_tools, "supervise/box.py", "from ..testing import census"),
        (processes_are_made_in_supervise, "cli/exec.py", "import os\npid = os.fork()"),
        (processes_are_made_in_supervise, "cli/exec.py", "from os import posix_spawn as quietly"),
        (processes_are_made_in_supervise, "cli/exec.py", "from posix import fork"),
        (processes_are_made_in_supervise, "cli/exec.py", "import os\nos.system('true')"),
        (processes_are_made_in_supervise, "cli/exec.py", "import os as system\nstart = system.fork"),
        (processes_are_made_in_supervise, "toolbox/shell.py", "def late():\n    import subprocess"),
        (
            processes_are_made_in_supervise,
            "toolbox/shell.py",
            "async def f(a):\n    await a.create_subprocess_exec('true')",
        ),
        (tasks_are_made_in_the_scope, "kernel/bus.py", "import asyncio\nmake = asyncio.create_task"),
        (tasks_are_made_in_the_scope, "supervise/box.py", "async def f(loop, x):\n    loop.create_task(x)"),
        (tasks_are_made_in_the_scope, "kernel/bus.py", "from asyncio import TaskGroup"),
        (libraries_own_nothing_of_ours, "toolbox/mcp.py", "from mcp.client.stdio import stdio_client as connect"),
        (libraries_own_nothing_of_ours, "harnesses/acp.py", "import acp\nacp.spawn_agent_process"),
    ],
)
def test_a_planted_offender_is_found(tmp_path: Path, rule: Rule, where: str, text: str) -> None:
    """H56: every gate is seen to fail. H57: the banned exports are found under another name too."""
    planted = tmp_path / "quell" / where
    planted.parent.mkdir(parents=True)
    planted.write_text(text, encoding="utf-8")
    assert len(offences(tmp_path / "quell", rule)) >= 1


def test_what_the_rules_allow_is_not_an_offence(tmp_path: Path) -> None:
    allowed = {
        "supervise/keeper/box.py": "import os\nfrom . import link\nfrom .proc import children\nos.fork()",
        "supervise/box.py": "import os, subprocess\nfrom ..errors import QuellError\nfrom .keeper import link",
        "supervise/scope.py": "import asyncio\nasync def f(x):\n    return asyncio.create_task(x)",
        "cli/exec.py": "from ..supervise import Zygote\nfrom . import signals\nZygote.fork().box().spawn(['true'])",
    }
    for where, text in allowed.items():
        path = tmp_path / "quell" / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert [offence for rule in RULES for offence in offences(tmp_path / "quell", rule)] == []


def test_every_library_has_a_floor_and_a_ceiling_and_is_locked() -> None:
    """H57: a new version of what we rely on comes when we let it in."""
    assert unbounded(requirements()) == []
    assert unlocked(requirements(), (ROOT / "requirements.lock").read_text(encoding="utf-8")) == []


def test_a_library_without_bounds_or_lock_is_found() -> None:
    """H56: the check of versions is seen to fail."""
    assert unbounded(["a>=1,<2", "b>=1", "c", "d<2", "e==1"]) == ["b>=1", "c", "d<2", "e==1"]
    lock = "a==1.0 \\\n    --hash=sha256:00\nb==1.0\n"
    assert unlocked(["a>=1,<2", "b>=1,<2", "c>=1,<2"], lock) == ["b>=1,<2", "c>=1,<2"]


def test_quell_exec_starts_without_the_heavy_modules() -> None:
    assert loaded_by("import quell.cli.exec") & TOO_HEAVY_FOR_EXEC == set()


def test_a_heavy_module_would_be_seen() -> None:
    """H56: the check of what `quell exec` loads is seen to fail."""
    assert loaded_by("import quell.cli.exec", "import asyncio") & TOO_HEAVY_FOR_EXEC >= {"asyncio"}

"""Every command and every piece of code that README.md and docs show is run, and prints what is shown."""

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BOUND = 60.0
"""Seconds that one block may take."""

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<info>.*)$")
BETWEEN = "=== end of one command ==="
RUN = {"console", "python"}
READ = {"json", "toml", "text"}
"""`json` must parse, and `toml` be a configuration; `text` is a picture or a quotation, and is not checked."""


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    info: str
    text: str

    @property
    def language(self) -> str:
        return self.info.split(" ")[0]

    @property
    def no_run(self) -> str | None:
        """The reason given after `no-run:`; empty when there is none; None when the block is to be run."""
        rest = self.info.partition(" ")[2]
        return rest.removeprefix("no-run").removeprefix(":").strip() if rest.startswith("no-run") else None

    @property
    def name(self) -> str:
        return f"{self.page.name}:{self.line}"


@dataclass(frozen=True)
class Command:
    text: str
    shown: str


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        if (opening := FENCE.match(line)) is None:
            continue
        body: list[str] = []
        for _, inner in lines:
            if inner.strip() == opening["ticks"]:
                break
            body.append(inner.removeprefix(opening["indent"]))
        else:
            raise AssertionError(f"{page.name}:{number}: a block that is never closed")
        found.append(Block(page, number, opening["info"].strip(), "\n".join(body)))
    return found


def faults(block: Block) -> list[str]:
    """What is wrong with a block before anything is run."""
    if block.language not in RUN | READ:
        return [f"{block.name}: a block is one of {sorted(RUN | READ)}, not {block.language!r}"]
    if block.info != block.language and not block.no_run:
        return [f"{block.name}: only `no-run: REASON`, with its reason, may follow {block.language}"]
    if block.language == "console" and not block.text.startswith("$ "):
        return [f"{block.name}: a console block starts with a command after `$ `"]
    return []


def commands(text: str) -> list[Command]:
    """The commands of a console block (a `\\` at the end of a line goes on), each with the output shown below it."""
    found: list[tuple[list[str], list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif not found[-1][1] and found[-1][0][-1].endswith("\\"):
            found[-1][0].append(line)
        else:
            found[-1][1].append(line)
    return [Command("\n".join(command), "\n".join(output).strip()) for command, output in found]


def matches(shown: str, printed: str) -> bool:
    """Whether the output is the one shown, where `...` stands for anything."""
    pattern = ".*".join(re.escape(piece) for piece in shown.split("..."))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def run(argv: list[str], folder: Path) -> tuple[int, str]:
    """Exit code and output of a command, stderr among it; a process that outlives the bound is ended with its group."""
    environment = os.environ | {"PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"}
    environment.pop("QUELL_CANCEL_BUDGET", None)  # the page says its own
    output = folder.parent / f"{folder.name}.output"  # a file: a pipe would wait for whatever holds it open
    with output.open("wb") as file:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            code = process.wait(BOUND)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
    return code, output.read_text(encoding="utf-8", errors="replace")


def run_console(text: str, folder: Path) -> list[str]:
    """Run the commands of one block in one shell; say where it failed or printed something else than is shown."""
    wanted = commands(text)
    script = "".join(f"{command.text}\necho '{BETWEEN}'\n" for command in wanted)
    code, output = run(["bash", "-euo", "pipefail", "-c", script], folder)
    printed = output.split(BETWEEN + "\n")
    if code != 0:
        return [f"exit code {code} from: $ {wanted[len(printed) - 1].text}\n{printed[-1]}"]
    pairs = zip(wanted, printed, strict=False)
    return [
        f"$ {command.text}\nprinted:\n{got}\nbut this is shown:\n{command.shown}"
        for command, got in pairs
        if command.shown and not matches(command.shown, got)
    ]


def run_python(text: str, folder: Path) -> list[str]:
    code, output = run([sys.executable, "-W", "error", "-c", text], folder)
    return [] if code == 0 else [f"exit code {code}:\n{output}"]


def run_toml(text: str, folder: Path) -> list[str]:
    """As `quell config check` finds it."""
    (folder / "config.toml").write_text(text)
    code, output = run(["quell", "config", "check", "config.toml"], folder)
    return [] if code == 0 else [output]


def run_block(block: Block, folder: Path) -> list[str]:
    if block.language == "json":
        json.loads(block.text)
        return []
    if block.language == "toml":
        return run_toml(block.text, folder)
    if block.language == "text" or block.no_run:
        return []
    return run_console(block.text, folder) if block.language == "console" else run_python(block.text, folder)


ALL = [block for page in PAGES for block in blocks(page)]


@pytest.mark.parametrize("block", ALL, ids=lambda block: block.name)
def test_what_the_page_shows_is_what_happens(block: Block, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    assert faults(block) == []
    assert run_block(block, folder) == []


def test_the_readme_shows_something_that_is_run() -> None:
    """H56: a check over no block would always hold."""
    assert [block for block in ALL if block.page.name == "README.md" and block.language in RUN and not block.no_run]


def test_the_demonstration_leaves_nothing_under_quell_and_shows_the_escapees_without_it(tmp_path: Path) -> None:
    """H23: the runtime is killed with SIGKILL, and an oracle outside of it sees 0 processes left."""
    code, output = run([sys.executable, str(ROOT / "examples" / "demo.py")], tmp_path)
    assert code == 0, output
    assert "all 5 gone after" in output
    assert output.count("survived") == 4


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("$ false", "exit code 1 from: $ false"),
        ("$ echo one\none\n$ echo two\nthree", "printed:\ntwo"),
        ("$ true | false | true", "exit code 1"),
        ("$ echo $NO_SUCH_VARIABLE", "unbound variable"),
    ],
)
def test_a_planted_command_that_does_not_do_what_is_shown_is_found(text: str, complaint: str, tmp_path: Path) -> None:
    """H56: the check of console blocks is seen to fail."""
    assert complaint in "\n".join(run_console(text, tmp_path))


@pytest.mark.parametrize("text", ["raise SystemExit(3)", "import warnings; warnings.warn('old')"])
def test_planted_code_that_fails_is_found(text: str, tmp_path: Path) -> None:
    """H56: the check of python blocks is seen to fail."""
    assert run_python(text, tmp_path) != []


@pytest.mark.parametrize(
    "info", ["", "bash", "console no-run", "console no-run:", "python  norun: x", "console hidden"]
)
def test_a_block_that_would_not_be_run_without_a_reason_is_found(info: str) -> None:
    """H56: no block slips past by its label."""
    assert faults(Block(Path("page.md"), 1, info, "$ true")) != []


def test_blocks_are_read_as_people_write_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "- item:\n\n  ```console no-run: needs a key\n  $ a \\\n    b\n  out\n  $ c\n  ```\n", encoding="utf-8"
    )
    [block] = blocks(page)
    assert (block.name, block.language, block.no_run, faults(block)) == ("page.md:3", "console", "needs a key", [])
    assert commands(block.text) == [Command("a \\\n  b", "out"), Command("c", "")]
    assert matches("a ... c\n...", "a b\nb c\nd\n")
    assert not matches("a ... c", "a b d")

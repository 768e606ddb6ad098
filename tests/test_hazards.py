"""`docs/hazards.md` and the tests name each other: a row without a test, or a test whose row is not there, fails."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "hazards.md"

ROW = re.compile(r"^\| (H\d\d) \|(.+)\|(.+)\|(.+)\|$")
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py::test_\w+)`")
HAZARD = re.compile(r"\bH\d\d\b")

EVERY_ROW = {f"H{n:02}" for n in (*range(1, 28), *range(30, 42), *range(50, 68))}
"""All hazards that are known; a new one is added here and in the table by the change that found it."""

Rows = dict[str, set[str]]


def rows(document: str) -> Rows:
    """The tests that each row of the table names."""
    found: Rows = {}
    for line in document.splitlines():
        if match := ROW.match(line):
            assert match[1] not in found, f"two rows for {match[1]}"
            assert all(cell.strip() for cell in match.groups()), f"an empty cell in the row of {match[1]}"
            found[match[1]] = set(NAMED_TEST.findall(match[4]))
    return found


def listed(document: str, heading: str) -> set[str]:
    """The hazards named at the start of the list items below a heading."""
    part = document.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return {
        row for line in part.splitlines() if line.startswith("- ") for row in HAZARD.findall(line.partition(":")[0])
    }


def hazards_of(test: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return set(HAZARD.findall(ast.get_docstring(test) or ""))


def pins(folder: Path) -> Iterator[tuple[str, set[str]]]:
    """Each test function, with the hazards that its docstring names."""
    for path in sorted(folder.rglob("test_*.py")):
        where = f"tests/{path.relative_to(folder).as_posix()}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield f"{where}::{node.name}", hazards_of(node)


def mismatches(table: Rows, pinned: dict[str, set[str]]) -> list[str]:
    """Every way in which the table and the docstrings disagree, as sentences."""
    wrong = [f"{row} names no test" for row, named in table.items() if not named]
    for row, named in table.items():
        for test in sorted(named):
            if test not in pinned:
                wrong.append(f"{row} names {test}, which does not exist")
            elif row not in pinned[test]:
                wrong.append(f"{row} names {test}, whose docstring does not name {row}")
    for test, hazards in pinned.items():
        wrong += [
            f"{test} names {row}, whose row does not list it"
            for row in sorted(hazards)
            if test not in table.get(row, set())
        ]
    return wrong


def test_the_table_and_the_tests_name_each_other() -> None:
    """H56: a rule that no test pins is not kept."""
    assert mismatches(rows(TABLE.read_text(encoding="utf-8")), dict(pins(ROOT / "tests"))) == []


def test_every_hazard_is_answered_or_listed_as_open() -> None:
    document = TABLE.read_text(encoding="utf-8")
    answered, habits, waiting = set(rows(document)), listed(document, "Habits"), listed(document, "Not answered yet")
    assert answered | habits | waiting == EVERY_ROW
    assert not answered & habits
    assert not answered & waiting
    assert not habits & waiting


@pytest.mark.parametrize(
    ("table", "pinned", "sentence"),
    [
        ({"H01": set()}, {}, "H01 names no test"),
        ({"H01": {"a"}}, {}, "H01 names a, which does not exist"),
        ({"H01": {"a"}}, {"a": {"H02"}}, "H01 names a, whose docstring does not name H01"),
        ({"H01": {"a"}}, {"a": {"H01"}, "b": {"H01"}}, "b names H01, whose row does not list it"),
        ({}, {"b": {"H01"}}, "b names H01, whose row does not list it"),
    ],
)
def test_a_planted_disagreement_is_found(table: Rows, pinned: dict[str, set[str]], sentence: str) -> None:
    """H56: the matching is seen to fail in each direction."""
    assert sentence in mismatches(table, pinned)


def test_the_table_and_the_docstrings_are_read_as_people_write_them(tmp_path: Path) -> None:
    """H56: a reader of tables that reads nothing would find no fault."""
    (tmp_path / "supervise").mkdir()
    (tmp_path / "supervise" / "test_a.py").write_text(
        'async def test_x():\n    """H11: it is gone. H12."""', encoding="utf-8"
    )
    document = (
        "| # | symptom | rule | tests |\n|---|---|---|---|\n| H11 | s | r | `tests/supervise/test_a.py::test_x` |"
    )
    assert rows(document) == {"H11": {"tests/supervise/test_a.py::test_x"}}
    assert dict(pins(tmp_path)) == {"tests/supervise/test_a.py::test_x": {"H11", "H12"}}
    assert listed("## Habits\n- H54, H55: read (H01)\n\n## Next\n- H56: x", "Habits") == {"H54", "H55"}

"""A pytest plugin that does nothing until it is used; used, it fails a test that leaves anything behind.

    def test_a(leak_census): …                         by the fixture
    @pytest.mark.leak_census(ignore=["thread *"])      by the mark, on a test, a class or a module (`pytestmark`)
    pytest --leak-census, or `leak_census = true`      every test

The census is taken before the test's own fixtures are set up and compared when they are all gone, so a leak is an
error of the teardown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .counting import Census

NAME = "leak_census"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("quell")
    group.addoption("--leak-census", action="store_true", help="fail every test that leaves something behind")
    parser.addini(NAME, "fail every test that leaves something behind", type="bool", default=False)
    parser.addini(f"{NAME}_kinds", "the kinds that the census counts (all)", type="args", default=[])
    parser.addini(f"{NAME}_settle", "seconds that what a test made may take to go (2)", default="")
    parser.addini(f"{NAME}_ignore", "patterns of what is no leak, one on each line", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{NAME}(kinds=None, settle=2.0, ignore=()): fail the test if it leaves something behind; "
        "kinds=() turns that off.",
    )
    if config.getoption("--leak-census") or config.getini(NAME):
        config.pluginmanager.register(EveryTest(), "quell-every-test")


class EveryTest:
    """Registered where every test is to be counted."""

    @pytest.fixture(autouse=True)
    def _leak_census_of_every_test(self, leak_census: object) -> None:
        pass


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the fixture to the tests that have the mark."""
    for item in items:
        if item.get_closest_marker(NAME) is not None and isinstance(item, pytest.Function):
            names = item.fixturenames
            if NAME not in names:
                names.insert(_place(item), NAME)


def _place(item: pytest.Function) -> int:
    """Before all that lives as long as the test, after what lives longer and is no leak of this test."""
    known = item._fixtureinfo.name2fixturedefs
    for at, name in enumerate(item.fixturenames):
        if name in known and known[name][-1].scope == "function":
            return at
    return len(item.fixturenames)


@pytest.fixture
def leak_census(request: pytest.FixtureRequest) -> Iterator[Census]:
    """What there was before the test. The test fails if there is more after it."""
    from .counting import KINDS, SETTLE, census, tracking

    mark = request.node.get_closest_marker(NAME)
    asked: dict[str, Any] = dict(mark.kwargs) if mark is not None else {}
    kinds, settle, ignore = asked.pop("kinds", None), asked.pop("settle", None), asked.pop("ignore", ())
    if asked or (mark is not None and mark.args):
        raise pytest.UsageError(f"the mark {NAME} takes kinds=, settle= and ignore=, by name; not {mark.args} {asked}")
    ini = request.config.getini
    if kinds is None:
        kinds = ini(f"{NAME}_kinds") or KINDS
    if settle is None:
        settle = float(ini(f"{NAME}_settle") or SETTLE)
    of_test = [ignore] if isinstance(ignore, str) or callable(ignore) else ignore
    if not kinds:
        yield census(kinds)
        return
    with tracking(settle):
        before = census(kinds, [*ini(f"{NAME}_ignore"), *of_test])
        yield before
        left = before.leaks(settle=settle)
    if left:
        pytest.fail("the test left behind:\n  " + "\n  ".join(map(str, left)), pytrace=False)

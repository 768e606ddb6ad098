"""Which rung is chosen, and what is said when one cannot be had."""

import os

import pytest

from quell.errors import ContainmentError, UsageError
from quell.supervise import Zygote, contain
from quell.supervise.contain import order


def test_the_default_is_the_strongest_that_costs_nothing() -> None:
    assert order("auto")[0] == ("pidns" if os.geteuid() == 0 else order("auto")[0])
    assert "userns" not in order("auto") and order("auto")[-1] == "subreaper"


def test_an_unknown_rung_is_refused_with_the_names() -> None:
    with pytest.raises(UsageError, match="choose one of auto, pidns, userns, cgroup, subreaper"):
        order("jail")


def test_a_rung_that_cannot_be_had_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contain, "_capabilities", lambda: 0)
    with pytest.raises(ContainmentError, match="needs CAP_SYS_ADMIN; run as root"):
        order("pidns")
    monkeypatch.setattr(contain, "_cgroup_mount", lambda: None)
    with pytest.raises(ContainmentError, match="no cgroup v2 is mounted"):
        order("cgroup")
    assert order("auto") == ["subreaper"]


def test_a_rung_that_fails_when_tried_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """The keeper's own word counts: a cgroup folder in which no cgroup can be made is refused when it is made."""
    monkeypatch.setattr(contain, "_capabilities", lambda: 0)
    monkeypatch.setattr(contain, "_cgroup", lambda: (str(tmp_path), None))
    with Zygote("auto") as zygote:
        box = zygote.box()
        assert box.rung == "subreaper"
        assert box.spawn(["true"]).wait(10) == {"code": 0}
        box.stop()
        with pytest.raises(ContainmentError, match=r"rung 'cgroup': .*cgroup\.kill"):
            zygote.box("cgroup")

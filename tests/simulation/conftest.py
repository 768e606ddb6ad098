"""Simulations collect their garbage after each run, and only theirs: what was there before is put aside."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def only_our_own_garbage() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()

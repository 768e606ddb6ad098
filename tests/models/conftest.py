"""What the tests of the models share."""

import socket

import pytest


@pytest.fixture
def unused_port() -> int:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port

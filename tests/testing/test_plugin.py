"""The plugin fails a test that leaves something behind, says what and where; and does nothing until it is used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LEAKS = """
import asyncio, os, socket, subprocess, threading, pytest

kept = []

@pytest.fixture(scope="session", autouse=True)
def cleanup():
    yield
    for process in kept:
        process.kill()
        process.wait()

def test_descriptor():
    os.open("/dev/null", os.O_RDONLY)

def test_socket():
    kept_socket.append(socket.create_server(("127.0.0.1", 0)))

kept_socket = []

class Bound:
    async def spawn(self):
        self.process = subprocess.Popen(["sleep", "600"])
        kept.append(self.process)
        await self.bind()
        return self

    async def bind(self):
        await asyncio.sleep(600)

def test_cancelled_spawn():
    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Bound().spawn(), 0.05)
    asyncio.run(main())

class Connection:
    def __init__(self):
        self.loops = [asyncio.create_task(self.loop(), name=name) for name in ("sender", "dispatcher")]

    async def loop(self):
        await asyncio.get_running_loop().create_future()

async def listen():
    connection = Connection()
    await asyncio.sleep(600)

async def cancelled_listener():
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(listen(), 0.05)

def test_cancelled_listener():
    asyncio.run(cancelled_listener())

def test_cancelled_listener_in_a_bare_loop():
    loop = asyncio.new_event_loop()
    loop.run_until_complete(cancelled_listener())
    loop.close()
"""

CLEAN = """
import asyncio, os, subprocess, threading, pytest

@pytest.fixture(scope="module")
def of_module():
    with open("/dev/null") as file:
        yield file

@pytest.fixture
def closing():
    opened = []
    yield opened
    for file in opened:
        file.close()

def test_nothing():
    pass

def test_of_module(of_module):
    assert not of_module.closed

def test_what_a_fixture_closes(closing, tmp_path):
    closing.append(open(tmp_path / "a", "w"))

def test_processes_threads_and_tasks():
    subprocess.run(["true"], check=True)
    asyncio.run(asyncio.to_thread(os.getpid))
"""


def pytest_of(folder: Path, text: str, *options: str, ini: str = "", code: int = 0) -> str:
    """The output of pytest over one planted file, with this plugin alone."""
    (folder / "test_planted.py").write_text(text, encoding="utf-8")
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = --strict-markers\n{ini}", encoding="utf-8")
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    environment.pop("CI", None)  # there pytest says everything twice
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "quell.testing.plugin", "-q", *options]
    done = subprocess.run([*command, "."], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def made_at(folder: Path, words: str, text: str = LEAKS) -> str:
    """How a leak names the line of the planted file that contains these words."""
    number = next(at for at, line in enumerate(text.splitlines(), 1) if words in line)
    return f"made at {folder}/test_planted.py:{number} in "


def section(output: str, test: str) -> str:
    """What was said of one test."""
    return output.partition(f"ERROR at teardown of {test} _")[2].partition("\n____")[0]


def test_each_planted_leak_is_named_with_the_line_that_made_it(tmp_path: Path) -> None:
    """A cancelled spawn leaves its process, and a cancelled listener its two loops. H56: the plugin is seen to fail."""
    output = pytest_of(tmp_path, LEAKS, "--leak-census", ini="leak_census_settle = 0.2", code=1)
    assert "5 passed, 5 errors" in output
    said = section(output, "test_descriptor")
    assert "the test left behind:\n  fd " in said
    assert f" of /dev/null, {made_at(tmp_path, 'os.open(')}test_descriptor" in said
    said = section(output, "test_socket")
    assert ", AF_INET SOCK_STREAM, listening on 127.0.0.1:" in said
    assert made_at(tmp_path, "create_server") in said
    said = section(output, "test_cancelled_spawn")
    assert f" 'sleep 600', {made_at(tmp_path, 'subprocess.Popen')}Bound.spawn" in said
    for test in ("test_cancelled_listener", "test_cancelled_listener_in_a_bare_loop"):
        said = section(output, test)
        assert said.count(made_at(tmp_path, "self.loops = ")) == 2
        assert "task 'sender' " in said
        assert "task 'dispatcher' " in said


USES = {
    "the option": ("", ["--leak-census"], ""),
    "the ini file": ("", [], "leak_census = true"),
    "the mark of a module": ("pytestmark = pytest.mark.leak_census", [], ""),
    "the fixture for a module": ("pytestmark = pytest.mark.usefixtures('leak_census')", [], ""),
    "the ini file's fixtures": ("", [], "usefixtures = leak_census"),
}


@pytest.mark.parametrize("use", USES)
def test_a_clean_file_passes_however_the_census_is_asked_for(use: str, tmp_path: Path) -> None:
    text, options, ini = USES[use]
    assert "4 passed" in pytest_of(tmp_path, f"{CLEAN}\n{text}\n", *options, ini=ini)


LEAK = "import os, pytest\ndef test_a({}):\n    os.open('/dev/null', os.O_RDONLY)\n{}"


@pytest.mark.parametrize("use", USES)
def test_a_leak_fails_however_the_census_is_asked_for(use: str, tmp_path: Path) -> None:
    """H56: each way to ask for it is seen to fail."""
    text, options, ini = USES[use]
    ini = f"{ini}\nleak_census_settle = 0"
    assert "1 error" in pytest_of(tmp_path, LEAK.format("", text), *options, ini=ini, code=1)


def test_the_fixture_gives_the_census_to_the_test(tmp_path: Path) -> None:
    text = (
        "def test_a(leak_census):\n    with open('/dev/null'):\n        assert len(leak_census.leaks(settle=0)) == 1\n"
    )
    assert "1 passed" in pytest_of(tmp_path, text)


MARKS = {
    "kinds='socket'": 0,
    "kinds=['fd', 'socket']": 1,
    "kinds=()": 0,
    "ignore='fd * of /dev/null'": 0,
    "ignore=['socket *']": 1,
    "ignore=lambda leak: leak.what.endswith('/dev/null')": 0,
    "settle=0": 1,
}


@pytest.mark.parametrize("arguments", MARKS)
def test_the_mark_says_what_is_counted(arguments: str, tmp_path: Path) -> None:
    """H53: each argument has its effect, for one test among all."""
    text = LEAK.replace("def", f"@pytest.mark.leak_census({arguments})\ndef").format("", "")
    pytest_of(tmp_path, text, "--leak-census", ini="leak_census_settle = 0.1", code=MARKS[arguments])


@pytest.mark.parametrize("arguments", ["0.2", "setle=0"])
def test_a_mark_with_other_arguments_is_refused(arguments: str, tmp_path: Path) -> None:
    """H53: what is not known is not passed over."""
    text = LEAK.replace("def", f"@pytest.mark.leak_census({arguments})\ndef").format("", "")
    assert "takes kinds=, settle= and ignore=, by name" in pytest_of(tmp_path, text, code=1)


@pytest.mark.parametrize(
    ("ini", "code"),
    [
        ("leak_census_kinds = socket task", 0),
        ("leak_census_kinds = fd", 1),
        ("leak_census_ignore =\n  thread *\n  fd * of /dev/null", 0),
        ("leak_census_ignore = thread *", 1),
    ],
)
def test_the_ini_file_says_what_is_counted_in_every_test(ini: str, code: int, tmp_path: Path) -> None:
    """H53: each setting has its effect."""
    pytest_of(tmp_path, LEAK.format("", ""), "--leak-census", ini=f"leak_census_settle = 0\n{ini}", code=code)


ASYNC = """
import asyncio, socket, pytest

pytestmark = [pytest.mark.anyio, pytest.mark.leak_census(settle=0.2)]

@pytest.fixture(params=[{}, {"use_uvloop": True}], ids=["asyncio", "uvloop"])
def anyio_backend(request):
    return "asyncio", request.param

@pytest.fixture
async def background():
    task = asyncio.create_task(asyncio.sleep(600))
    yield task
    task.cancel()

async def loops():
    await asyncio.sleep(600)

async def test_clean(background):
    task = asyncio.create_task(loops())
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    task.cancel()

async def test_leaks(background):
    for name in ("sender", "dispatcher"):
        asyncio.create_task(loops(), name=name)

connections = []

async def test_accepts():
    before = len(connections)
    server = await asyncio.start_server(lambda reader, writer: connections.append(writer), "127.0.0.1", 0)
    near = socket.create_connection(server.sockets[0].getsockname())
    while len(connections) == before:  # the loop accepts it, and nobody closes it
        await asyncio.sleep(0)
    near.close()
    server.close()
"""


def test_async_tests_are_counted_though_their_runner_sweeps_up_after_them(tmp_path: Path) -> None:
    """Under anyio's plugin, on asyncio and on uvloop."""
    output = pytest_of(tmp_path, ASYNC, "-p", "anyio.pytest_plugin", code=1)
    assert "6 passed, 3 errors" in output
    for loop in ("asyncio", "uvloop"):
        assert section(output, f"test_clean[{loop}]") == ""
        said = section(output, f"test_leaks[{loop}]")
        assert said.count("left to the end of its runner, waiting at") == 2
        assert said.count(made_at(tmp_path, "name=name", ASYNC)) == 2
    assert section(output, "test_accepts[asyncio]").count("AF_INET SOCK_STREAM, 127.0.0.1:") == 1
    assert section(output, "test_accepts[uvloop]") == ""  # it closes what is open when it is closed itself


INERT = """
import sys
heard = []
sys.addaudithook(lambda event, args: heard.append(event) if event == "sys.addaudithook" else None)
import pytest
assert pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:], "."]) == 0
assert heard == []
import os, threading
assert type(os.pipe).__name__ == "builtin_function_or_method"
assert threading.Thread.start.__code__.co_filename == threading.__file__
print(*sorted(sys.modules))
"""


def test_the_plugin_is_inert_until_it_is_used(tmp_path: Path) -> None:
    """No audit hook, nothing patched, and no module loaded but its own."""
    (tmp_path / "test_planted.py").write_text("def test_a():\n    pass\n", encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    loaded = []
    for options in ([], ["-p", "quell.testing.plugin"]):
        command = [sys.executable, "-c", INERT, *options]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        loaded.append(set(done.stdout.splitlines()[-1].split()))
    assert loaded[1] - loaded[0] == {"quell", "quell.testing", "quell.testing.plugin"}
    assert "asyncio" not in loaded[1]

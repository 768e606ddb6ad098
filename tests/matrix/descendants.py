"""What a command may leave below it: every program here tries, in its own way, to outlive the one who started it.

Each program opens the oracle's FIFO before anything else and keeps it open in all that it starts, so that the kernel
says when the last one is gone. A program writes one line per birth; it ends by itself only when it reads from
`QM_GO`, and those that attack do so when they read from `QM_ACT`. The paths come by the environment, so that a decoy
can have the very same argv.
"""

import sys
from dataclasses import dataclass

_SHELL = """
exec 9>"$QM_FIFO"
echo born >&9
{body}
read -r word <"$QM_GO"
"""

_PYTHON = """
import os, signal, time
fifo = os.open(os.environ["QM_FIFO"], os.O_WRONLY)
os.set_inheritable(fifo, True)
def say(word):
    os.write(fifo, word + b"\\n")
def hear(name):
    with open(os.environ[name]) as file:
        file.readline()
say(b"born")
if os.fork() == 0:
{body}
hear("QM_GO")
"""


@dataclass(frozen=True)
class Descendant:
    argv: tuple[str, ...]
    births: int = 2
    """Lines to wait for before the trigger: the command's own, and those of what it starts."""
    acts: bool = False
    """It attacks when told to by `QM_ACT`, and says `acted` if it lives to do so."""

    @property
    def heeds(self) -> bool:
        """It ends when asked by SIGTERM, and holds still to be asked."""
        return not self.acts and self not in (
            DESCENDANTS["ignores TERM"],
            DESCENDANTS["hopper"],
            DESCENDANTS["fork flood"],
        )


def _shell(body: str, births: int = 2, acts: bool = False) -> Descendant:
    return Descendant(("sh", "-c", _SHELL.format(body=body.strip())), births, acts)


def _python(body: str, births: int = 2, acts: bool = False) -> Descendant:
    program = _PYTHON.format(body="\n".join("    " + line for line in body.strip().splitlines()))
    return Descendant((sys.executable, "-I", "-S", "-c", program), births, acts)


FLOOD = 200
"""Live processes at which the fork flood is capped."""

NOTHING = "nothing"
"""What proves the harness: a command that leaves nothing."""

DESCENDANTS: dict[str, Descendant] = {
    NOTHING: _shell("", births=1),
    "plain": _shell("sleep 1000 & echo born >&9"),
    "ignores TERM": _shell("(trap '' TERM HUP INT; echo born >&9; exec sleep 1000) &"),
    "SIGSTOPped": _shell("sleep 1000 & kill -STOP $!; echo born >&9"),
    "setsid": _shell("setsid sh -c 'echo born >&9; exec sleep 1000' &"),
    "double-fork daemon": _shell(
        "setsid sh -c 'cd /; (trap \"\" HUP; echo born >&9; exec sleep 1000) </dev/null >/dev/null 2>&1 &'"
    ),
    "daemon without environment, under another argv": _python("""
os.setsid()
if os.fork():
    os._exit(0)
say(b"born")
os.execve("/bin/sleep", ["[kworker/u4:2]", "1000"], {})
"""),
    "hopper": _python(
        """
for hop in range(100000):
    os.setsid()
    if hop < 5:
        say(b"born")
    time.sleep(0.005)
    if os.fork():
        os._exit(0)
""",
        births=6,
    ),
    # Every one forks on and on. A child that finds no free slot goes at once, and a slot is free as soon as its holder
    # is dead (a POSIX lock): what is killed is replaced. Who forks waits for its child to have decided, so that there
    # are never more than two per slot, on however slow a machine.
    "fork flood": _python(
        f"""
import fcntl, random
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
slots = os.memfd_create("slots")
def take(slot):
    try:
        fcntl.lockf(slots, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
    except OSError:
        return False
    return True
for mine in range({FLOOD}):
    if os.fork() == 0:
        take(mine)
        say(b"born")
        break
else:
    os._exit(0)
while True:
    time.sleep(random.uniform(0.3, 0.9))
    deciding, decided = os.pipe()
    if os.fork() == 0:
        os.close(deciding)
        if not any(take(random.randrange({FLOOD})) for attempt in range(4)):
            os._exit(0)
    else:
        os.close(decided)
        os.read(deciding, 1)
        os.close(deciding)
        continue
    os.close(decided)
""",
        births=FLOOD + 1,
    ),
    "floods stdout": _shell("yes & echo born >&9"),
    # It keeps all that it was given, opens what it can of everybody above it, and takes the rest by pidfd_getfd (438).
    "holds our pipes": _python("""
import ctypes
call, taken, above = ctypes.CDLL(None).syscall, [], os.getppid()
os.setsid()
while above > 1:
    handle = os.pidfd_open(above)
    try:
        numbers = [int(name) for name in os.listdir(f"/proc/{above}/fd")]
    except OSError:
        numbers = []
    for number in numbers:
        try:
            taken.append(os.open(f"/proc/{above}/fd/{number}", os.O_RDWR | os.O_NONBLOCK))
        except OSError:
            pass
        taken.append(call(438, handle, number, 0))
    above = int(open(f"/proc/{above}/stat").read().rsplit(")", 1)[1].split()[1])
say(b"born")
time.sleep(1000)
"""),
    # It has its own bystander, which the kernel ends with it; it alone is spared by kill(-1) and lives on.
    "kill -9 -1": _python(
        """
uid = int(os.environ.get("QM_UID") or os.getuid())
if uid != os.getuid():
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    say(b"born")
    time.sleep(1000)
say(b"born")
hear("QM_ACT")
os.kill(-1, signal.SIGKILL)
say(b"acted")
time.sleep(1000)
""",
        births=3,
        acts=True,
    ),
    "kill -9 $PPID": _shell(
        """
trap '' TERM HUP INT
setsid sh -c 'echo born >&9; exec sleep 1000' &
read -r word <"$QM_ACT"
kill -9 $PPID
echo acted >&9
""",
        acts=True,
    ),
    # The shell is ended by its own pkill, whose pattern is in its argv; the sleep is not, and stays.
    "pkill -9 -f python": _shell(
        """
trap '' TERM HUP INT
setsid sh -c 'echo born >&9; exec sleep 1000' &
read -r word <"$QM_ACT"
pkill -9 -f python
echo acted >&9
""",
        acts=True,
    ),
}

WRITER = _shell("""
(read -r word <"$QM_ACT"; echo word >"$QM_DISK/file") &
echo born >&9
""")
"""Writes to a disk when told to, and waits for it uninterruptibly where that disk takes no writes."""

"""Keys and resizes: who gets the signal, how often, and what the shell makes of the end."""

import os
import re
import signal
import time

from tests.cli import oracle
from tests.cli.scenarios import COUNT, scenario, shown, up
from tests.cli.terminal import Terminal


@scenario
def ctrl_c_ends_a_command_with_130(t: Terminal) -> object:
    up(t, "exec sleep 100")
    t.key("C-c")
    t.prompt()
    t.run("echo $?")
    return shown(t)


@scenario
def ctrl_c_breaks_a_loop(t: Terminal) -> object:
    t.line("for i in 1 2 3; do $Q sh -c 'echo turn $0; exec sleep 100' $i; echo after $i; done")
    t.expect("turn 1\n")
    t.key("C-c")
    t.prompt()
    t.run("echo $?")
    return shown(t)


def wait_for_exec(t: Terminal) -> None:
    """Wait till the shell's child is no shell any more, and no interpreter that starts: `sleep`, or quell in charge."""

    def there() -> bool:
        children = oracle.below(t.shell)[:1]
        return any(
            oracle.comm(pid) == "sleep" or (oracle.comm(pid) == "quell" and oracle.in_charge(pid)) for pid in children
        )

    oracle.wait_for(there, "the command")


@scenario
def ctrl_c_at_once_breaks_a_loop(t: Terminal) -> object:
    """H22: Ctrl+C in the first moments, while what the shell started may not yet have started CMD."""
    seen = set()
    for step in range(12):
        t.line("for i in 1 2 3; do $Q sleep 100; echo after $i; done")
        wait_for_exec(t)
        time.sleep(step * 0.008)  # not for luck: each turn aims at another moment of the start
        t.key("C-c")
        seen.add((t.prompt().replace("^C", "").strip(), t.run("echo $?").strip()))
    return sorted(seen)


@scenario
def ctrl_c_trapped_by_the_command_lets_a_loop_go_on(t: Terminal) -> object:
    t.run("""turn='trap "exit 3" INT; echo turn $0; while :; do sleep 0.05; done'""")
    t.line("""for i in 1 2; do $Q bash -c "$turn" $i; echo $?; done""")
    for turn in (1, 2):
        t.expect(f"turn {turn}\n")
        t.key("C-c")
    t.prompt()
    return shown(t)


@scenario
def ctrl_backslash_quits_with_131(t: Terminal) -> object:
    up(t, "exec sleep 100")
    t.key("C-\\")
    t.prompt()
    t.run("echo $?")
    return shown(t)


@scenario
def ctrl_d_ends_the_input(t: Terminal) -> object:
    t.line("$Q cat")
    t.line("one line")
    t.expect("one line\n")
    t.key("C-d")
    t.prompt()
    t.run("echo $?")
    return shown(t)


@scenario
def what_is_typed_ahead_is_the_shells(t: Terminal) -> object:
    t.line("$Q sh -c 'echo up; sleep 0.3'")
    t.expect("up\n")
    t.line("echo typed ahead")
    t.prompt()
    t.prompt()
    return shown(t)


@scenario
def each_key_and_each_resize_is_one_signal(t: Terminal) -> object:
    t.run(f'count="{COUNT}"')
    t.line('$Q python3 -I -c "$count" SIGINT SIGQUIT SIGWINCH SIGCONT SIGTSTP')
    t.expect("up\n")
    for key in ("C-c", "C-\\", "C-c", "C-z"):
        t.key(key)
        t.expect("got SIG")
        t.expect("\n")
    t.resize(40, 120)
    t.expect("got SIGWINCH\n")
    pid = t.command("SIGWINCH")
    os.kill(pid, signal.SIGCONT)
    t.expect("got SIGCONT\n")
    os.kill(pid, signal.SIGKILL)
    t.prompt()
    return re.findall(r"got \w+", t.text), t.run("echo $?")


@scenario
def a_command_brought_back_gets_one_sigcont(t: Terminal) -> object:
    t.run(f'count="{COUNT}"')
    t.line('$Q python3 -I -c "$count" SIGCONT SIGWINCH')
    t.expect("up\n")
    for rows in (30, 31, 32):
        t.pause()
        t.key("C-z")
        t.prompt()
        t.line("fg")
        t.expect("got SIGCONT\n")
        t.pause()
        t.resize(rows, 100)
        t.expect("got SIGWINCH\n")
    t.key("C-\\")
    t.prompt()
    return re.findall(r"got \w+", t.text), t.run("echo $?")


@scenario
def a_signal_to_the_whole_group_comes_once(t: Terminal) -> object:
    """`kill 0` in a script reaches the script, and whatever else is in its group, once."""
    t.run(f'count="{COUNT}"')
    for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGTERM", "SIGINT"):
        t.line(f'$Q python3 -I -c "$count; " {name} SIGALRM')
        t.expect("up\n")
        pid = t.command(name)
        os.killpg(os.getpgid(pid), signal.Signals[name])
        t.expect(f"got {name}\n")
        os.kill(pid, signal.SIGALRM)
        t.expect("got SIGALRM\n")
        os.kill(pid, signal.SIGKILL)
        t.prompt()
    return re.findall(r"got \w+", t.text)


@scenario
def a_script_that_ends_its_own_group(t: Terminal) -> object:
    t.run("""$Q bash -c 'trap "kill 0" EXIT; sleep 100 & exit 3'""")
    t.run("echo $?")
    t.run("""$Q bash -c 'trap "exit 7" TERM; kill 0; sleep 1'; echo $?""")
    return shown(t)

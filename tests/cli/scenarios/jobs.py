"""Job control: background, stop and continue, the terminal kept from background jobs."""

import os
import signal

from tests.cli import oracle
from tests.cli.scenarios import masked, scenario, shown, up
from tests.cli.terminal import Terminal


@scenario
def a_background_command_is_waited_for(t: Terminal) -> object:
    t.run("$Q sh -c 'sleep 0.1; exit 5' &")
    t.run("wait $!; echo $?")
    t.run("jobs")
    return shown(t)


@scenario
def background_commands_are_listed_and_killed(t: Terminal) -> object:
    for number in (1, 2):
        t.run(f"$Q sleep 100{number} &")
        t.command(f"100{number}")
    jobs = t.run("jobs")
    t.run("kill %1; wait %1")
    status = t.run("echo $?")
    t.run("kill -INT %2; wait %2")
    return jobs, status, t.run("echo $?"), t.run("jobs")


@scenario
def ctrl_z_then_bg_then_fg(t: Terminal) -> object:
    up(t, "exec sleep 100")
    t.key("C-z")
    t.prompt()
    t.run("echo $?")
    t.run("jobs")
    t.run("bg")
    t.run("jobs")
    t.line("fg")
    t.in_front("100")
    t.key("C-c")
    t.prompt()
    t.run("echo $?; jobs")
    return shown(t)


@scenario
def stop_and_continue_again_and_again(t: Terminal) -> object:
    t.line("$Q cat")
    for number in range(4):
        t.line(f"line {number}")
        t.expect(f"line {number}\n")
        t.key("C-z")
        t.prompt()
        t.line("fg")
        t.in_front("cat")
    t.key("C-d")
    t.prompt()
    t.run("echo $?; jobs")
    return shown(t)


@scenario
def a_command_stopped_and_continued_by_pid(t: Terminal) -> object:
    up(t, "exec sleep 1003")
    pid = t.command("1003")
    os.kill(pid, signal.SIGSTOP)
    t.prompt()
    t.run("echo $?")
    t.run("jobs")
    t.line("fg")
    assert t.in_front("1003") == pid
    t.key("C-c")
    t.prompt()
    t.run("echo $?")
    return shown(t)


@scenario
def a_stopped_command_continued_by_pid_is_running_for_the_shell(t: Terminal) -> object:
    t.run("$Q sleep 1003 &")
    pid = t.command("1003")
    os.kill(pid, signal.SIGSTOP)
    found: list[str] = []

    def listed(word: str) -> bool:
        found[:] = [t.run("jobs")]
        return word in found[0]

    oracle.wait_for(lambda: listed("Stopped"), "the shell to see the stop")
    stopped = found[0].splitlines()[-1]
    os.kill(pid, signal.SIGCONT)
    oracle.wait_for(lambda: listed("Running"), "the shell to see it go on")
    running = found[0].splitlines()[-1]
    t.run("kill %1; wait %1")
    return stopped, running, t.run("echo $?")


@scenario
def a_background_writer_is_stopped_under_tostop(t: Terminal) -> object:
    t.run("stty tostop")
    t.run("$Q sh -c 'echo text' &")
    oracle.wait_for(lambda: "Stopped" in t.run("jobs"), "the writer to be stopped")
    jobs = masked(t.run("jobs -l"))
    t.line("fg")
    t.expect("text'\ntext\n")
    t.prompt()
    return jobs, t.run("echo $?; jobs; stty -tostop")


@scenario
def a_background_reader_is_stopped(t: Terminal) -> object:
    t.run("$Q cat &")
    oracle.wait_for(lambda: "Stopped" in t.run("jobs"), "the reader to be stopped")
    jobs = masked(t.run("jobs -l"))
    t.line("fg")
    t.expect("$Q cat\n")
    t.line("typed")
    t.expect("typed\n")
    t.key("C-d")
    t.prompt()
    return jobs, t.run("echo $?; jobs")


@scenario
def leaving_the_shell_with_a_stopped_job_warns_once(t: Terminal) -> object:
    up(t, "exec sleep 100")
    t.key("C-z")
    t.prompt()
    t.run("exit")
    t.run("kill -CONT %1; kill %1; wait %1 2>/dev/null; jobs")
    return t.text[t.text.index("exit\n") :].split("kill")[0]

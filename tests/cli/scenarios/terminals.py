"""The terminal itself: its size, its modes, shells and terminals inside it, and its end."""

from tests.cli import oracle
from tests.cli.scenarios import need, scenario, shown, up
from tests.cli.terminal import PROMPT, Terminal

SIZE = (
    "import os, signal, time; "
    "show = lambda n, f: os.write(1, '{} by {}\\n'.format(*os.get_terminal_size()).encode()); "
    "signal.signal(signal.SIGWINCH, show); signal.signal(signal.SIGINT, signal.SIG_DFL); os.write(1, b'up\\n'); "
    "[time.sleep(0.05) for _ in iter(int, 1)]"
)


@scenario
def a_resize_is_seen_by_the_command(t: Terminal) -> object:
    t.run(f'size="{SIZE}"')
    t.line('$Q python3 -I -c "$size"')
    t.expect("up\n")
    for rows, columns in ((40, 120), (30, 90)):
        t.resize(rows, columns)
        t.expect(f"{columns} by {rows}\n")
    t.key("C-c")
    t.prompt()
    t.run("stty size")
    return shown(t)


@scenario
def a_shell_inside_has_its_own_job_control(t: Terminal) -> object:
    t.line("PS1='inner> ' $Q bash --norc --noprofile --noediting -i")
    t.expect("inner> ")
    t.line("sh -c 'echo up; exec sleep 100'")
    t.expect("up\n")
    t.key("C-z")
    t.expect("inner> ")
    t.line("jobs")
    t.expect("inner> ")
    t.line("fg")
    t.in_front("100")
    t.key("C-c")
    t.expect("inner> ")
    t.line("echo $?")
    t.expect("130\ninner> ")
    t.line("exit 4")
    t.prompt()
    t.run("echo $?; jobs")
    return shown(t)


@scenario
def a_shell_inside_suspends_itself_and_comes_back(t: Terminal) -> object:
    t.line("PS1='inner> ' $Q bash --norc --noprofile --noediting -i")
    t.expect("inner> ")
    t.line("suspend")
    t.prompt()
    t.run("echo $?; jobs")
    t.line("fg")
    t.expect("-i\ninner> ")
    t.line("echo again")
    t.expect("again\ninner> ")
    t.line("exit")
    t.prompt()
    t.run("echo $?; jobs")
    return shown(t)


@scenario
def a_password_is_not_shown_and_echo_comes_back(t: Terminal) -> object:
    t.line("""$Q bash -c 'read -s -p "Password: " x; echo; echo "got ${#x} letters"'""")
    t.expect("Password: ")
    hidden = not t.echoes()
    t.send("secret\n")
    t.prompt()
    t.run("echo $?")
    return shown(t), hidden, t.echoes(), "secret" in t.text


@scenario
def ctrl_c_at_a_password_gives_the_echo_back(t: Terminal) -> object:
    t.line("""$Q python3 -I -c 'import getpass; getpass.getpass("Password: ")' 2>/dev/null""")
    oracle.wait_for(lambda: not t.echoes(), "the echo to go")
    t.key("C-c")
    t.prompt()
    return t.run("echo $?"), t.echoes()


@scenario
def modes_left_by_a_command_that_died_are_mended_by_the_shell(t: Terminal) -> object:
    """bash gives the terminal its modes back after a command that a signal ended, not after one that exited."""
    seen = []
    for name in ("TERM", "KILL", "SEGV", "HUP"):
        t.line(f"$Q sh -c 'stty -echo; kill -{name} $$'")
        t.prompt()
        seen.append((name, t.echoes()))
        t.send("stty sane\n")
        t.prompt()
    return seen


@scenario
def what_the_shell_says_of_a_command_that_a_signal_ended(t: Terminal) -> object:
    for name in ("TERM", "KILL", "SEGV", "USR1", "HUP"):
        t.run(f"$Q sh -c 'kill -{name} $$'")
        t.run("echo $?")
    t.run("$Q sh -c 'kill -TERM $$' & wait $!; echo $?")
    return shown(t)


@scenario
def closing_the_terminal_ends_all(t: Terminal) -> object:
    up(t, "sleep 1004 & sleep 1005")
    t.command("1005")
    t.hang_up()
    return t.gone()


@scenario
def closing_the_terminal_ends_stopped_and_background_jobs(t: Terminal) -> object:
    t.run("$Q sleep 1006 &")
    t.command("1006")
    up(t, "exec sleep 1007")
    t.key("C-z")
    t.prompt()
    t.hang_up()
    return t.gone()


@scenario
def a_terminal_multiplexer_inside(t: Terminal) -> object:
    need("tmux")
    t.line(f"PS1='{PROMPT}' $Q tmux -S socket -f /dev/null new-session 'PS1=\"inner> \" exec bash --norc --noprofile'")
    t.expect("inner> ")
    t.send("echo $((6 * 7)).\r")
    t.expect("42.")
    t.send("exit 3\r")
    t.expect("[exited]")
    t.prompt()
    return t.run("echo $?"), t.echoes()

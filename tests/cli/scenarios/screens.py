"""Full-screen programs: pagers, editors, a REPL."""

from tests.cli.scenarios import need, scenario
from tests.cli.terminal import Terminal


@scenario
def a_pager_at_the_end_of_a_pipeline_is_read_and_quit(t: Terminal) -> object:
    need("less")
    t.line("seq 1000 | $Q less")
    t.expect("23\n:")
    t.send("G")
    t.expect("1000\n")
    t.send("q")
    t.prompt()
    return t.run("echo ${PIPESTATUS[@]}"), t.echoes()


@scenario
def a_pager_in_a_pipeline_is_stopped_and_brought_back(t: Terminal) -> object:
    need("less")
    t.line("seq 1000 | $Q less")
    t.expect("23\n:")
    t.in_front("less")
    t.key("C-z")
    stopped = t.prompt()[-60:]
    status = t.run("echo $?")
    jobs = t.run("jobs")
    cooked = t.echoes()
    t.line("fg")
    t.expect("23\n:")
    t.send("q")
    t.prompt()
    return stopped, status, jobs, cooked, t.run("echo ${PIPESTATUS[@]}; jobs"), t.echoes()


@scenario
def an_editor_types_saves_and_quits(t: Terminal) -> object:
    need("vim")
    t.line("$Q vim -u NONE -N note.txt")
    t.expect('"note.txt" [New]')
    t.send("ihello from vim")
    t.key("Esc")
    t.send(":wq\r")
    t.expect("written")
    t.prompt()
    return t.run("echo $?; cat note.txt"), t.echoes()


@scenario
def an_editor_stops_its_own_group_and_comes_back(t: Terminal) -> object:
    """vim reads Ctrl+Z as a key and sends SIGTSTP to its whole process group itself."""
    need("vim")
    t.line("$Q vim -u NONE -N note.txt")
    t.expect('"note.txt" [New]')
    t.in_front("vim")
    t.key("C-z")
    stopped = t.prompt()[-60:]
    jobs = t.run("echo $?; jobs")
    t.line("fg")
    t.expect("~  ")
    t.send("iback")
    t.expect("back")
    t.key("Esc")
    t.send(":wq\r")
    t.prompt()
    return stopped, jobs, t.run("echo $?; cat note.txt; jobs"), t.echoes()


@scenario
def a_second_editor_types_saves_and_quits(t: Terminal) -> object:
    need("nano")
    t.line("$Q nano -I note.txt")
    t.expect("New File")
    t.send("hello from nano")
    t.expect("nano")
    t.key("C-o")
    t.expect("Write")
    t.send("\r")
    t.expect("Wrote")
    t.key("C-x")
    t.prompt()
    return t.run("echo $?; cat note.txt"), t.echoes()


@scenario
def a_repl_gets_one_interrupt_for_each_key(t: Terminal) -> object:
    t.line("$Q python3 -s -q")  # not -I: PYTHON_BASIC_REPL asks newer Pythons for the plain one
    t.expect(">>> ")
    for _ in range(5):
        t.in_front("-q")
        t.key("C-c")
        t.expect("KeyboardInterrupt\n")
        t.expect(">>> ")
    t.line("import time; print('as' + 'leep'); time.sleep(100)")
    t.expect("asleep\n")
    t.key("C-c")
    t.expect("KeyboardInterrupt\n")
    t.expect(">>> ")
    t.line("print(6 * 7)")
    t.expect("42\n>>> ")
    t.line("exit(5)")
    t.prompt()
    return t.run("echo $?"), t.text.count("KeyboardInterrupt"), t.echoes()

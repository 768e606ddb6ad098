"""Streams as shells connect them: pipelines, here-documents, substitutions."""

from tests.cli.scenarios import scenario, shown
from tests.cli.terminal import Terminal


@scenario
def two_quells_in_one_pipeline(t: Terminal) -> object:
    t.run("$Q seq 5 | $Q tail -1; echo ${PIPESTATUS[@]}")
    t.run("$Q sh -c 'echo out; exit 3' | $Q sh -c 'cat; exit 4'; echo ${PIPESTATUS[@]}")
    return shown(t)


@scenario
def two_quells_in_one_pipeline_are_stopped_and_brought_back(t: Terminal) -> object:
    t.line("$Q sh -c 'echo up >&2; exec sleep 100' | $Q cat")
    t.expect("up\n")
    t.command("cat")
    t.key("C-z")
    t.prompt()
    t.run("jobs")
    t.line("fg")
    t.in_front("100")
    t.in_front("cat")
    t.key("C-c")
    t.prompt()
    t.run("echo ${PIPESTATUS[@]}; jobs")
    return shown(t)


@scenario
def a_writer_whose_reader_has_gone_dies_of_sigpipe(t: Terminal) -> object:
    t.run("$Q yes | head -1; echo ${PIPESTATUS[@]}")
    t.run("$Q yes | $Q head -1; echo ${PIPESTATUS[@]}")
    return shown(t)


@scenario
def a_here_document_and_a_here_string_are_read(t: Terminal) -> object:
    t.line("$Q cat <<END")
    t.line("a $((1 + 1))")
    t.line("END")
    t.prompt()
    t.run("$Q wc -c <<<'four' ; echo $?")
    t.run("printf '\\0\\377' | $Q od -An -tx1")
    return shown(t)


@scenario
def input_that_the_command_leaves_is_there_for_the_next(t: Terminal) -> object:
    t.run("""printf 'one\\ntwo\\n' | { $Q sh -c 'read x; echo got $x'; cat; }""")
    t.run("""printf 'a\\nb\\nc\\n' | while read line; do echo $line; $Q true; done""")
    return shown(t)


@scenario
def process_substitution_reaches_the_command(t: Terminal) -> object:
    t.run("$Q diff <(echo a) <(echo b); echo $?")
    t.run("diff <($Q echo a) <($Q echo b); echo $?")
    t.run("$Q sh -c 'echo to the third >&3' 3>third.txt; cat third.txt")
    return shown(t)


@scenario
def command_substitution_takes_the_output(t: Terminal) -> object:
    t.run("""x=$($Q sh -c 'echo out; echo error >&2; exit 6'); echo "$? [$x]" """)
    t.run("echo `$Q basename /a/b` $($Q pwd | wc -l)")
    return shown(t)


@scenario
def a_list_and_a_condition_take_the_status(t: Terminal) -> object:
    t.run("$Q true && echo yes; $Q false || echo no; ! $Q false; echo $?")
    t.run("if $Q test -d .; then echo a folder; fi; $Q sh -c 'exit 200'; echo $?")
    t.run("$Q no-such-command 2>/dev/null; echo $?; $Q ./. 2>/dev/null; echo $?")
    return shown(t)


@scenario
def a_script_run_by_a_shell_without_job_control(t: Terminal) -> object:
    t.run("""printf '$Q sleep 100 &\\necho started\\nkill $!\\nwait $!\\necho $?\\n' >script; bash script""")
    return shown(t)

"""The file of settings and agents: what it says is taken, what makes no sense is refused with a sentence."""

from pathlib import Path

import msgspec
import pytest

from quell.config import ASSISTANT, Agent, Defaults, Limits, Provider, Settings
from quell.configfile import load
from quell.errors import UsageError
from quell.secrecy import is_secret, secrets_in

KEY = "sk-canary-0123456789"


def written(folder: Path, text: str, mode: int = 0o600) -> str:
    file = folder / "config.toml"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def test_without_a_file_there_are_the_defaults(tmp_path: Path) -> None:
    loaded = load(None, {"HOME": str(tmp_path)})
    assert loaded.settings == Settings()
    assert (loaded.agents, loaded.file, loaded.secrets, loaded.warnings) == ((), "", (), ())


def test_settings_and_agents_are_read_from_the_file(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        f"""
        [settings]
        term = 3
        silent = 0.5

        [agents.careful]
        model = "scripted"
        tools = ["shell"]
        system = "be brief"

        [agents.careful.approval]
        shell = "ask"
        "*" = "deny"

        [agents.careful.limits]
        steps = 3

        [agents.careful.env]
        EDITOR = "true"
        API_KEY = "{KEY}"

        [agents.plain]
        """,
    )
    loaded = load(file, {})
    assert loaded.settings == Settings(term=3.0, silent=0.5)
    assert loaded.agents == (
        Agent(
            name="careful",
            tools=("shell",),
            system="be brief",
            approval={"shell": "ask", "*": "deny"},
            limits=Limits(steps=3),
            env={"EDITOR": "true", "API_KEY": KEY},
        ),
        Agent(name="plain"),
    )
    assert loaded.file == file
    assert loaded.secrets == (KEY,)
    assert loaded.warnings == ()
    assert KEY not in repr(loaded.agents)


def test_defaults_and_models_are_read_and_their_keys_are_known_to_be_secret(tmp_path: Path) -> None:
    """The keys are in the environment, by the names that the file gives; a word that is everybody's is none."""
    file = written(
        tmp_path,
        """
        [defaults]
        agent = "coder"
        model = "local:llama3"

        [models.local]
        base_url = "http://127.0.0.1:11434/v1"
        key_env = "LOCAL_THING"
        price_input = 0.5

        [models.router]
        kind = "anthropic"
        key_env = "ROUTER"
        api = "chat"
        price_input = 1.5
        price_cached = 0.1
        price_output = 3

        [agents.coder]
        [agents.assistant.limits]
        steps = 3
        [agents.own]
        model = "scripted"
        """,
    )
    loaded = load(file, {"LOCAL_THING": KEY, "ROUTER": "password"})
    assert loaded.defaults == Defaults(agent="coder", model="local:llama3")
    assert loaded.providers == (
        Provider(name="local", base_url="http://127.0.0.1:11434/v1", key_env="LOCAL_THING", price_input=0.5),
        Provider(
            name="router",
            kind="anthropic",
            key_env="ROUTER",
            api="chat",
            price_input=1.5,
            price_cached=0.1,
            price_output=3.0,
        ),
    )
    assert loaded.secrets == (KEY,)
    coder, assistant, own = loaded.agents
    assert (coder.model, own.model) == ("local:llama3", "scripted")
    assert assistant == msgspec.structs.replace(ASSISTANT, limits=Limits(steps=3))
    assert loaded.origins["defaults.model"] == loaded.origins["agents.assistant.limits.steps"] == "file"
    over = load(file, {"QUELL_AGENT": "own", "QUELL_MODEL": " openai:gpt-5 "})
    assert over.defaults == Defaults(agent="own", model="openai:gpt-5")
    assert over.agents[0].model == "openai:gpt-5"
    assert over.origins["defaults.model"] == "QUELL_MODEL"


def test_the_usual_place_and_the_one_that_the_environment_names_are_looked_at(tmp_path: Path) -> None:
    home, xdg = tmp_path / "home", tmp_path / "xdg"
    for folder, seconds in ((home / ".config", 1), (xdg, 2)):
        (folder / "quell").mkdir(parents=True)
        (folder / "quell" / "config.toml").write_text(f"[settings]\nterm = {seconds}\n")
    named = written(tmp_path, "[settings]\nterm = 4\n")
    environ = {"HOME": str(home)}
    assert load(None, environ).settings.term == 1
    assert load(None, environ | {"XDG_CONFIG_HOME": "not/absolute"}).settings.term == 1
    environ["XDG_CONFIG_HOME"] = str(xdg)
    assert load(None, environ).settings.term == 2
    assert load(None, environ).file == str(xdg / "quell" / "config.toml")
    assert load(None, environ | {"QUELL_CONFIG": ""}).settings.term == 2
    assert load(None, environ | {"QUELL_CONFIG": named}).settings.term == 4
    assert load(str(home / ".config/quell/config.toml"), environ | {"QUELL_CONFIG": named}).settings.term == 1


def test_the_environment_overrides_settings_and_other_names_of_ours_are_left_alone(tmp_path: Path) -> None:
    file = written(tmp_path, "[settings]\nterm = 3\nask = 1\n")
    environ = {
        "QUELL_TERM": "7.5",
        "QUELL_ASK": "",
        "QUELL_STATE_DIR": "/nowhere",
        "QUELL_REPEATS": "20",
        "QUELL_CANCEL_BUDGET": "x",
    }
    assert load(file, environ).settings == Settings(term=7.5, ask=1.0)


def test_every_setting_can_be_set_by_file_and_environment(tmp_path: Path) -> None:
    """H53: none is inert."""
    for name in Settings.__struct_fields__:
        file = written(tmp_path, f"[settings]\n{name} = 1.5\n")
        assert load(file, {}).settings == Settings(**{name: 1.5})
        assert load(file, {f"QUELL_{name.upper()}": "2.5"}).settings == Settings(**{name: 2.5})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[settings]\ntem = 1", "{file}: settings: there is no setting 'tem'; did you mean term? there are ask, "),
        ("[setings]", "{file}: there is no table 'setings'; did you mean settings? there are settings, defaults, "),
        ("settings = 1", "{file}: settings is a table, [settings], not 1"),
        ("[settings]\nterm = 'x'", "{file}: settings.term takes a number, 0 or more"),
        ("[settings]\nterm = true", "{file}: settings.term takes a number, 0 or more"),
        ("[settings]\nterm = -1", "{file}: settings.term takes a number, 0 or more"),
        ("[settings]\nterm = inf", "{file}: settings.term is a number, not inf"),
        ("[settings]\nterm = nan", "{file}: settings.term is a number, not nan"),
        ("[agents]\nx = 1", "{file}: agents.x is a table, [agents.x], not 1"),
        ("[agents.x]\nmodle = 'y'", "{file}: agents.x: there is no key 'modle'; did you mean model? there are model"),
        ("[agents.x]\nname = 'y'", "{file}: agents.x: there is no key 'name'; there are model, "),
        ("[agents.x]\ntools = 'shell'", '{file}: agents.x.tools takes a list of words, as ["one", "other"]'),
        ("[agents.x]\nlimits = 3", "{file}: agents.x.limits is a table, not 3"),
        ("[agents.x.limits]\nstep = 3", "{file}: agents.x.limits: there is no limit 'step'; did you mean steps? "),
        ("[agents.x.limits]\nsteps = -3", "{file}: agents.x.limits.steps takes a whole number, 0 or more"),
        ("[agents.x.limits]\ncost = inf", "{file}: agents.x.limits.cost is a number, not inf"),
        (
            "[agents.x.approval]\nshell = 'maybe'",
            "{file}: agents.x.approval.shell takes allow, ask or deny",
        ),
        ("[agents.x.env]\nA = 3", "{file}: agents.x.env.A takes a text"),
        ("[agents.x.env]\n'A=B' = 'x'", "{file}: agents.x.env: 'A=B' is no name of a variable"),
        ('[agents.x.env]\nA = "\\u0000"', "{file}: agents.x.env.A takes a text"),
        ("[agents.x]\nisolation = 'bwarp'", "{file}: agents.x.isolation takes none or bwrap; did you mean bwrap?"),
        ("[agents.'a b']", "{file}: agents.'a b' is no name of an agent: letters, digits"),
        ("[agents.'']", "{file}: agents.'' is no name of an agent: letters, digits"),
        ("[agents.x]\nisolation = 'vm'", "{file}: agents.x.isolation takes none or bwrap"),
        (
            "[agents.x.approval]\n'shell(' = 'ask'",
            "{file}: agents.x.approval: the rule 'shell(' makes no sense: it is *,",
        ),
        (f"[agents.x]\nisolation = '{KEY}'", "{file}: agents.x.isolation takes none or bwrap"),
        (
            "[defaults]\nmodle = 'x'",
            "{file}: defaults: there is no default 'modle'; did you mean model? there are agent",
        ),
        ("[defaults]\nmodel = 1", "{file}: defaults.model takes a text"),
        ("[models.x]\nurl = 'y'", "{file}: models.x: there is no key 'url'; there are kind, "),
        (
            "[models.x]\nbase_ulr = 'y'",
            "{file}: models.x: there is no key 'base_ulr'; did you mean base_url? there are",
        ),
        ("[models.x]\nkind = 'other'", "{file}: models.x.kind takes openai or anthropic"),
        ("[models.x]\nname = 'y'", "{file}: models.x: there is no key 'name'; "),
        ("[models.X]", "{file}: models.X: a name of models is a small letter, "),
        ("[models.'a:b']", "{file}: models.a:b: a name of models is a small letter, "),
        ("[models.shell]", "{file}: models.shell: shell comes with Quell and is something else; choose another name"),
        ("[models]\nx = 1", "{file}: models.x is a table, [models.x], not 1"),
        (f"[models.x]\nkey = '{KEY}'", "{file}: models.x.key: a key does not belong into this file; put it into a var"),
        (f"[models.x]\nAPI_KEY = '{KEY}'", "{file}: models.x.API_KEY: a key does not belong into this file; "),
        (f"[models.x]\nkey_env = '{KEY}'", "{file}: models.x.key_env is the name of the variable that holds the key"),
        (f"[models.x]\nbase_url = 'http://me:{KEY}@x/'", "{file}: models.x.base_url holds a name or a password: "),
        ("[models.x]\nbase_url = 'x.org/v1'", "{file}: models.x.base_url is no address; it looks like https://"),
        ("[models.x]\nbase_url = 'http://x:99999/'", "{file}: models.x.base_url is no address; it looks like https://"),
        ("[models.x]\nprice_input = -1", "{file}: models.x.price_input takes a number, 0 or more"),
        ("[settings", "{file} is no TOML: "),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_file_and_the_key(tmp_path: Path, text: str, sentence: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(UsageError) as refused:
        load(file, {})
    assert str(refused.value).startswith(sentence.format(file=file))
    assert "\n" not in str(refused.value)
    assert KEY not in str(refused.value)


@pytest.mark.parametrize("value", ["x", "-1", "inf", "nan", "3 s"])
def test_a_variable_that_is_no_number_is_refused_by_its_name(value: str) -> None:
    with pytest.raises(UsageError, match=f"QUELL_TERM is a number of seconds, not '{value}'"):
        load(None, {"QUELL_TERM": value, "HOME": "/nonexistent"})


def test_a_file_that_is_named_and_cannot_be_read_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    for path, environ in ((str(missing), {}), (None, {"QUELL_CONFIG": str(missing)})):
        with pytest.raises(UsageError, match=f"there is no file {missing}"):
            load(path, environ)
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        load(str(tmp_path), {})
    with pytest.raises(UsageError, match="cannot be read: embedded null byte"):
        load("a\0b", {})
    (tmp_path / "latin").write_bytes(b"# \xe4\n")
    with pytest.raises(UsageError, match="latin is no TOML"):
        load(str(tmp_path / "latin"), {})


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, True), (0o604, True), (0o622, False)])
def test_a_file_with_secrets_that_others_may_read_is_warned_of(tmp_path: Path, mode: int, warned: bool) -> None:
    with_key = written(tmp_path, f"[agents.x.env]\nAPI_KEY = '{KEY}'\n", mode)
    warnings = load(with_key, {}).warnings
    assert bool(warnings) == warned
    assert KEY not in "".join(warnings)
    if warned:
        assert warnings == (f"{with_key} holds secrets, and others may read it: chmod 600 {with_key}",)
    assert load(written(tmp_path, "[agents.x.env]\nEDITOR = 'vim -u NONE'\n", mode), {}).warnings == ()


@pytest.mark.parametrize(
    "name",
    "GITHUB_TOKEN npm_authtoken OPENAI_API_KEY FOO_APIKEY AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID DB_PASSWORD"
    " PGPASSWORD DB_PASS MYSQL_PWD MY_PASSWD SSH_PRIVATE_KEY KEY_PASSPHRASE X_CREDENTIAL CLIENT_SECRET VAULT_SECRET_ID"
    " GITHUB_PAT GITHUB_TOKEN_2".split(),
)
def test_a_variable_with_such_a_name_holds_a_secret(name: str) -> None:
    assert is_secret(name, KEY)
    assert not is_secret(name, "short")
    assert not is_secret(name, "postgres")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SSH_AUTH_SOCK", "/tmp/ssh-abcdefgh/agent.1"),
        ("GPG_KEY", "A035C8C19219BA821ECEA86B64E628F8D684696D"),
        ("PWD", "/home/somebody"),
        ("OLDPWD", "/home/somebody"),
        ("GIT_ASKPASS", "/usr/bin/askpass"),
        ("TOKENIZERS_PARALLELISM", "false, and so on"),
        ("MAX_OUTPUT_TOKENS", "1000000000"),
        ("OAUTH_TOKEN_URL", "https://example.org/token"),
        ("DB_PASSWORD_FILE", "/run/secrets/of-the-db"),
        ("GOOGLE_APPLICATION_CREDENTIALS", __file__),
        ("COMPASS_HEADING", "north-north-west"),
        ("KEYBOARD_LAYOUT", "something-long"),
        ("XAUTHORITY", "/home/somebody/.Xauthority"),
    ],
)
def test_a_variable_with_another_name_or_that_only_says_where_it_is_holds_none(name: str, value: str) -> None:
    assert not is_secret(name, value)


def test_agents_of_a_file_are_as_those_of_a_program(tmp_path: Path) -> None:
    """Every key of an agent can be written, and comes back as it was."""
    agent = Agent(
        name="all",
        model="m",
        harness="h",
        strategy="react",
        tools=("a", "b"),
        memory="mem",
        system="s",
        approval={"*": "allow"},
        isolation="none",
        limits=Limits(steps=1, tokens=2, seconds=3.0, cost=4.0, history=5, depth=6, breadth=7),
        env={"A": "b"},
    )
    plain = msgspec.to_builtins(agent)
    del plain["name"]
    file = written(tmp_path, _toml(plain))
    assert load(file, {}).agents == (agent,)


def _toml(plain: dict[str, object]) -> str:
    """Enough of it for this."""
    flat = {name: value for name, value in plain.items() if not isinstance(value, dict)}
    tables = {name: value for name, value in plain.items() if isinstance(value, dict)}
    lines = ["[agents.all]", *(f"{name} = {_value(value)}" for name, value in flat.items())]
    for table, values in tables.items():
        lines += [f"[agents.all.{table}]", *(f"'{name}' = {_value(value)}" for name, value in values.items())]
    return "\n".join(lines)


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode()


def test_a_secret_in_an_address_is_known_by_its_place() -> None:
    """A password also as a header has it; what everybody may read of an address is no secret."""
    environ = {
        "DATABASE_URL": "postgres://me:correct%20horse@db.example.org/app?sslmode=verify-full",
        "OPENAI_BASE_URL": "https://example.org/v1?api-version=2024-06-01&Api-Key=battery-staple",
        "HALF": "http://[::1",
        "HOMEPAGE": "https://me@example.org/token/of-nobody#password",
    }
    assert secrets_in(environ) == ("correct horse", "correct%20horse", "bWU6Y29ycmVjdCBob3JzZQ==", "battery-staple")

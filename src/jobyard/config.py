"""What the server was asked to be: `Config`, and where each of its values came from.

Flags win over the environment, the environment over `jobyard.toml`, that over the defaults.
A key nobody knows and a value that makes no sense are refused with the place they came from and
the nearest right word; a wrong setting never becomes a default in silence.
Must not know the click library, sockets, or what an address means (the cli checks that).
Adding a setting is one row in SETTINGS and one field in Config; adding a door one row in DOORS.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from jobyard.config_values import (
    GIB,
    KIB,
    MIB,
    Choice,
    Folder,
    Kind,
    SecretFile,
    Size,
    Switch,
    Words,
    quoted,
    size_text,
    suggestion,
)
from jobyard.errors import StartRefused
from jobyard.model.limits import JOB_SIZE_DEFAULT, JOB_SIZE_MAX, RESULT_DEFAULT, RESULT_MAX

# Small enough for tests that roll segments by the dozen; of no use to anybody else.
SEGMENT_SIZE_MIN: Final = 64 * KIB
# Recovery reads a segment's batches as one unit of work; past this a start would stall on one.
SEGMENT_SIZE_MAX: Final = 4 * GIB
SEGMENT_SIZE_DEFAULT: Final = 32 * MIB
BODY_MEMORY_DEFAULT: Final = 1 * GIB
# More than any machine has: the size arithmetic stays far inside 64 bits.
BODY_MEMORY_MAX: Final = 1 << 50
CONNECTION_MEMORY_DEFAULT: Final = 512 * MIB
# Less would not hold one message of usual size for everybody.
CONNECTION_MEMORY_MIN: Final = 16 * MIB
SYNC_INTERVAL_MS_DEFAULT: Final = 50
REQUEST_WINDOW_MS_DEFAULT: Final = 60_000
WEBHOOK_RETRIES_DEFAULT: Final = 3
FRAME_TIMEOUT_MS_DEFAULT: Final = 60_000
KEEP_ALIVE_MS_DEFAULT: Final = 75_000
EVENTS_HOURS_DEFAULT: Final = 24
# Ten years: milliseconds of it stay far inside 64 bits.
EVENTS_HOURS_MAX: Final = 87_600
EVENTS_BYTES_DEFAULT: Final = 1 * GIB

# Exit codes of `jobyard serve`.
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
# Exit codes of the original, which service files may know: `jobyard beanstalkd` keeps them.
DROP_IN_EXIT_USAGE: Final = 5
DROP_IN_EXIT_DATA: Final = 10
DROP_IN_EXIT_NO_USER: Final = 33
DROP_IN_EXIT_USER: Final = 34
DROP_IN_EXIT_LISTEN: Final = 111

CONFIG_FILE: Final = "jobyard.toml"
ENVIRONMENT_PREFIX: Final = "JOBYARD_"
DOOR_OFF: Final = "off"

# Not settings: what the package build reads, and what Kubernetes gives to every pod beside a
# service that is called jobyard (JOBYARD_PORT=tcp://... and the like).
_OTHER_VARIABLE: Final = re.compile(
    r"JOBYARD_(COMPILE|SERVICE_(HOST|PORT)(_.*)?|PORT(_[0-9]+_(TCP|UDP)(_.*)?)?)"
)

Durability = Literal["sync", "os", "off"]
LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
LoopKind = Literal["epoll", "uvloop", "asyncio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything `server.run` needs to know. Made once, never changed."""

    #: The directory of the journal. Not looked at when `memory` is set.
    data: Path = Path("jobyard-data")
    memory: bool = False
    #: "sync": answer after fdatasync. "os": after write, synced every `sync_interval_ms`.
    #: "off": after write, never synced by us (the drop-in's -F).
    durability: Durability = "sync"
    sync_interval_ms: int = SYNC_INTERVAL_MS_DEFAULT

    #: The address of the beanstalk door, or "off".
    beanstalk: str = "127.0.0.1:11300"
    #: The address of the bunqueue door, or "off".
    bunqueue: str = "127.0.0.1:6789"
    #: The address of the HTTP door, or "off".
    http: str = "127.0.0.1:6790"
    #: The address of the glide-mq door, or "off".
    glidemq: str = "127.0.0.1:6379"
    #: The password of its clients; empty for none. This and the other secrets may come from files.
    glidemq_password: str = ""
    #: Tokens of which a bunqueue client must know one, separated by commas; empty for none.
    auth_token: str = ""
    #: Ask for a token of bunqueue's scrapers too.
    metrics_auth: bool = False
    #: The origins whose pages may use the HTTP port, separated by commas; "*" for any.
    cors_origin: str = ""
    #: Further names by which the HTTP port is reached, separated by commas; "*" for any.
    public_host: str = ""
    #: Keys of the topics API, `key[:scopes[:prefixes]]`, separated by commas; empty for none.
    topics_key: str = ""
    #: Ask for a key also of who wants to know whether the server is well.
    probe_auth: bool = False
    #: What the topics API lets its callers use up; each 0 for no limit.
    max_topics: int = 100_000
    max_routers: int = 10_000
    max_watch_sessions: int = 10_000
    max_sse_connections: int = 10_000
    max_sse_connections_per_key: int = 1000
    max_inflight_per_key: int = 1000
    max_total_bytes: int = 0
    max_body_bytes: int = 64 * MIB
    #: How long an HTTP connection may be idle between requests; 0 for ever.
    keep_alive_ms: int = KEEP_ALIVE_MS_DEFAULT
    #: Addresses and networks of proxies that are believed when they say who asks.
    trusted_proxy: str = ""
    #: Commands one bunqueue connection may send in a window; 0 for no limit.
    request_limit: int = 0
    request_window_ms: int = REQUEST_WINDOW_MS_DEFAULT
    #: How long a bunqueue frame may stay incomplete without another byte of it.
    frame_timeout_ms: int = FRAME_TIMEOUT_MS_DEFAULT
    #: How often a webhook is tried before it is given up.
    webhook_retries: int = WEBHOOK_RETRIES_DEFAULT
    #: Bytes of unfinished input and unsent output that all connections may hold together.
    connection_memory: int = CONNECTION_MEMORY_DEFAULT
    #: Connections of one address; 0 for no limit.
    max_connections_per_address: int = 0
    #: Let webhooks point to addresses inside the network.
    allow_private_webhooks: bool = False
    allow_public_bind: bool = False
    #: Listening sockets inherited from the service manager; they replace the door's address.
    socket_fds: tuple[int, ...] = ()
    #: Become this user once the doors are open and before any data is touched.
    user: str | None = None

    max_job_size: int = JOB_SIZE_DEFAULT
    max_result_size: int = RESULT_DEFAULT
    segment_size: int = SEGMENT_SIZE_DEFAULT
    #: Bytes of job bodies kept in RAM; beyond, they live on disk only (or puts are refused).
    body_memory: int = BODY_MEMORY_DEFAULT

    #: How long, and how much of, the journal is kept as history; 0 for none.
    events_hours: int = EVENTS_HOURS_DEFAULT
    events_bytes: int = EVENTS_BYTES_DEFAULT

    log_format: LogFormat = "text"
    log_level: LogLevel = "info"
    loop: LoopKind = "epoll"
    #: Serving in place of the original: its exit codes, its file modes.
    drop_in: bool = False


@dataclass(frozen=True, slots=True)
class Door:
    """One protocol's listener: the name of its setting and what it speaks."""

    name: str
    speaks: str


DOORS: Final = (
    Door("beanstalk", "the beanstalkd protocol"),
    Door("bunqueue", "the bunqueue protocol"),
    Door("glidemq", "glide-mq over RESP: its functions, its keys, its consumer groups"),
    Door("http", "HTTP: topics, and bunqueue's own API"),
)

# Each may also be set as the original of the topics API calls it: TOPICS_MAX_TOPICS and so on.
TOPICS_LIMITS: Final = {
    "max_topics": "Topics there may be",
    "max_routers": "Routers there may be",
    "max_watch_sessions": "Watches there may be",
    "max_sse_connections": "Streams and WebSockets of topics that may be open",
    "max_sse_connections_per_key": "Those of one key",
    "max_inflight_per_key": "Calls of one key that may wait for an answer",
    "max_total_bytes": "Bytes of records in all topics together",
    "max_body_bytes": "Size of an HTTP body",
}

# Names the originals read from the environment; one of our own goes before.
ORIGINAL_VARIABLES: Final = {
    "AUTH_TOKENS": "auth_token",
    "METRICS_AUTH": "metrics_auth",
    "CORS_ALLOW_ORIGIN": "cors_origin",
    "TOPICS_API_KEYS": "topics_key",
    "TOPICS_PROBE_AUTH": "probe_auth",
    "TOPICS_ALLOW_INSECURE_NO_AUTH": "allow_public_bind",
    **{f"TOPICS_{name.upper()}": name for name in TOPICS_LIMITS},
    "RATE_LIMIT_MAX_REQUESTS": "request_limit",
    "RATE_LIMIT_WINDOW_MS": "request_window_ms",
    "WEBHOOK_MAX_RETRIES": "webhook_retries",
    "TCP_IDLE_TIMEOUT_MS": "frame_timeout_ms",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One value a user may set: `--its-name`, `JOBYARD_ITS_NAME`, `its_name = ...`."""

    name: str
    kind: Kind
    help: str

    @property
    def flag(self) -> str:
        """The flag that sets it."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def default_text(self) -> str:
        """The default as the help shows it."""
        if isinstance(self.kind, SecretFile):
            return ""
        value = getattr(Config(), self.name)
        return size_text(value) if isinstance(self.kind, Size) else str(value)


SETTINGS: Final = (
    Setting("data", Folder(), "Directory of the journal; made when it does not exist."),
    Setting("memory", Switch(), "Keep everything in memory: no journal, nothing after a restart."),
    Setting(
        "durability",
        # "off" is left out: it exists for the drop-in's -F and is no answer to a new user.
        Choice(("sync", "os")),
        "sync: a write is answered when it is on disk. os: when the kernel has it, with a sync "
        f"every {SYNC_INTERVAL_MS_DEFAULT} ms.",
    ),
    *(Setting(door.name, Words("ADDR|off"), f"Where to speak {door.speaks}.") for door in DOORS),
    Setting(
        "allow_public_bind",
        Switch(),
        "Listen on addresses that other machines reach, although not everybody is asked for a "
        "password there (also TOPICS_ALLOW_INSECURE_NO_AUTH).",
    ),
    Setting(
        "auth_token",
        Words("T,..."),
        "Tokens of which a bunqueue client must know one (also AUTH_TOKENS).",
    ),
    Setting(
        "auth_token_file",
        SecretFile("auth_token", is_list=True),
        "A file with such tokens, separated by commas or line ends.",
    ),
    Setting(
        "metrics_auth",
        Switch(),
        "Ask for such a token at /prometheus too (also METRICS_AUTH).",
    ),
    Setting(
        "cors_origin",
        Words("ORIGIN,..."),
        "Origins whose web pages may use the HTTP port, such as https://example.org, * for any "
        "(also CORS_ALLOW_ORIGIN).",
    ),
    Setting(
        "public_host",
        Words("NAME,..."),
        "Names by which browsers and clients reach the HTTP port, beside localhost and the address "
        "it listens on, * for any; asked for where no key or token is.",
    ),
    Setting(
        "glidemq_password",
        Words("TEXT"),
        "The password a glide-mq client must say.",
    ),
    Setting(
        "glidemq_password_file",
        SecretFile("glidemq_password", is_list=False),
        "A file with that password.",
    ),
    Setting(
        "topics_key",
        Words("K,..."),
        "Keys of which a topics client must know one: KEY, KEY:SCOPES or KEY:SCOPES:PREFIXES "
        "(also TOPICS_API_KEYS).",
    ),
    Setting(
        "topics_key_file",
        SecretFile("topics_key", is_list=True),
        "A file with such keys, separated by commas or line ends.",
    ),
    Setting(
        "probe_auth",
        Switch(),
        "Ask for such a key at /v0/health, /v0/ready and /readyz too (also TOPICS_PROBE_AUTH).",
    ),
    *(
        Setting(
            name,
            Size(0, BODY_MEMORY_MAX),
            f"{what}, 0 for no limit (also TOPICS_{name.upper()}).",
        )
        for name, what in TOPICS_LIMITS.items()
    ),
    Setting(
        "keep_alive_ms",
        Size(0, 1 << 40),
        "How long an HTTP connection may be idle between requests, in milliseconds, 0 for ever.",
    ),
    Setting(
        "trusted_proxy",
        Words("ADDR|CIDR,..."),
        "Proxies whose X-Forwarded-For and X-Real-IP tell who asks; from others these are ignored.",
    ),
    Setting(
        "request_limit",
        Size(0, 1 << 40),
        "Commands one bunqueue connection may send in a window, 0 for no limit "
        "(also RATE_LIMIT_MAX_REQUESTS).",
    ),
    Setting(
        "request_window_ms",
        Size(1, 1 << 40),
        "Length of that window in milliseconds (also RATE_LIMIT_WINDOW_MS).",
    ),
    Setting(
        "frame_timeout_ms",
        Size(1, 1 << 40),
        "How long a bunqueue frame may stay incomplete, in milliseconds "
        "(also TCP_IDLE_TIMEOUT_MS).",
    ),
    Setting(
        "webhook_retries",
        Size(1, 100),
        "How often a webhook is tried before it is given up (also WEBHOOK_MAX_RETRIES).",
    ),
    Setting(
        "allow_private_webhooks",
        Switch(),
        "Let webhooks point to this machine and to private addresses.",
    ),
    Setting("max_job_size", Size(1, JOB_SIZE_MAX), "Largest body of a job."),
    Setting("max_result_size", Size(0, RESULT_MAX), "Largest result of a job."),
    Setting(
        "segment_size",
        Size(SEGMENT_SIZE_MIN, SEGMENT_SIZE_MAX),
        "Size of one file of the journal; its space is reserved when it is made.",
    ),
    Setting(
        "body_memory",
        Size(0, BODY_MEMORY_MAX),
        "Bodies and results of jobs kept in RAM. Beyond it they are read back from disk; with "
        "--memory, further puts are refused.",
    ),
    Setting(
        "connection_memory",
        Size(CONNECTION_MEMORY_MIN, BODY_MEMORY_MAX),
        "Unfinished commands and unread answers that all connections may hold together in RAM. "
        "Beyond it, who sends or asks for more is refused.",
    ),
    Setting(
        "max_connections_per_address",
        Size(0, 1 << 40),
        "Connections that one address may have open, 0 for no limit.",
    ),
    Setting(
        "events_hours",
        Size(0, EVENTS_HOURS_MAX),
        "How long the topic _events tells what became of jobs, in hours; 0: there is none.",
    ),
    Setting(
        "events_bytes",
        Size(0, BODY_MEMORY_MAX),
        "How much of the journal is kept for it beyond what is needed; 0: nothing.",
    ),
    Setting("log_format", Choice(("text", "json")), "Form of the log lines on stderr."),
    Setting("log_level", Choice(("debug", "info", "warning", "error")), "Least level to log."),
    Setting(
        "loop",
        Choice(("epoll", "uvloop", "asyncio")),
        "What waits for the sockets; epoll is the fastest.",
    ),
)

_BY_NAME: Final = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class Settled:
    """A Config and, for every value that is not a default, the place that set it."""

    config: Config
    origins: Mapping[str, str]

    def origin(self, name: str) -> str:
        """The place to name in a complaint about this value."""
        return self.origins.get(name, f"default of {_BY_NAME[name].flag}")


@dataclass(frozen=True, slots=True)
class Given:
    """A value as found, and where."""

    value: object
    origin: str


Layer = Mapping[str, Given]


def settle(flags: Mapping[str, object], environ: Mapping[str, str], folder: Path) -> Settled:
    """Bring flags, environment and file together, the stronger over the weaker.

    `flags` holds only those the user gave, by setting name, and perhaps "config"; `folder` is
    where a `jobyard.toml` is looked for when no file was named. Raises StartRefused, exit 2.
    """
    environment = _environment_layer(environ)
    named = flags.get("config") or environ.get(ENVIRONMENT_PREFIX + "CONFIG")
    layers = (
        _file_layer(Path(str(named)) if named else None, folder),
        environment,
        {
            name: Given(value, _BY_NAME[name].flag)
            for name, value in flags.items()
            if name != "config"
        },
    )
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in map(_with_secrets, layers):
        read = {name: _read(_BY_NAME[name], given) for name, given in layer.items()}
        _settle_memory(layer, read)
        values.update(read)
        origins.update((name, given.origin) for name, given in layer.items())
    return Settled(Config(**values), origins)


def _read(setting: Setting, given: Given) -> object:
    try:
        return setting.kind.read(given.value)
    except ValueError as error:
        raise StartRefused(f"{given.origin}: {error}", EXIT_USAGE) from error


def _with_secrets(layer: Layer) -> Layer:
    """Return a layer with what its files hold in the place of their names."""
    found: dict[str, Given] = {}
    for name, given in layer.items():
        setting = _BY_NAME[name]
        if not isinstance(setting.kind, SecretFile):
            found[name] = given
            continue
        target = setting.kind.target
        if target in layer:
            text = f"{given.origin} and {layer[target].origin} exclude each other"
            raise StartRefused(text, EXIT_USAGE)
        found[target] = Given(_read(setting, given), given.origin)
    return found


def _settle_memory(layer: Layer, read: dict[str, Any]) -> None:
    # `data` and `memory` are two answers to one question: a directory given in a stronger place
    # takes back a `memory` from a weaker one, and both in one place cannot be meant.
    if "data" not in read:
        return
    if read.get("memory"):
        raise StartRefused(
            f"{layer['memory'].origin} and {layer['data'].origin} exclude each other", EXIT_USAGE
        )
    read["memory"] = False


def _environment_layer(environ: Mapping[str, str]) -> Layer:
    known = {setting.variable: setting for setting in SETTINGS}
    config_variable = ENVIRONMENT_PREFIX + "CONFIG"
    layer: dict[str, Given] = {
        name: Given(environ[variable], variable)
        for variable, name in ORIGINAL_VARIABLES.items()
        if environ.get(variable)
    }
    for variable, value in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == config_variable:
            continue
        if variable in known:
            # Compose files and unit files write VAR= for "not set".
            if value:
                layer[known[variable].name] = Given(value, variable)
        elif _OTHER_VARIABLE.fullmatch(variable) is None:
            hint = suggestion(variable, (*known, config_variable))
            raise StartRefused(f"environment: unknown setting {variable}{hint}", EXIT_USAGE)
    return layer


def _file_layer(named: Path | None, folder: Path) -> Layer:
    path = folder / CONFIG_FILE if named is None else named
    # The words of a complaint name the file as the user did.
    shown = CONFIG_FILE if named is None else str(named)
    try:
        content = path.read_text("utf-8")
    except FileNotFoundError:
        if named is None:
            return {}
        raise StartRefused(f"{shown}: there is no such file", EXIT_USAGE) from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise StartRefused(f"{shown}: cannot be read: {why}", EXIT_USAGE) from error
    try:
        table = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise StartRefused(f"{shown}: {error}", EXIT_USAGE) from error
    layer: dict[str, Given] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in _BY_NAME:
            hint = suggestion(name, _BY_NAME)
            raise StartRefused(f"{shown}: unknown setting {quoted(key)}{hint}", EXIT_USAGE)
        if name in layer:
            raise StartRefused(f"{shown}: {name} is set twice", EXIT_USAGE)
        layer[name] = Given(value, f"{shown}: {key}")
    return layer

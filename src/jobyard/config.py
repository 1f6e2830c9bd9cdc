"""The server's configuration: `Config`, and where each of its values came from.

Flags override the environment, which overrides `jobyard.toml`, which overrides the defaults.
Unknown keys and invalid values are refused with the place they came from and the nearest valid
name; a wrong setting never silently becomes a default.
Must not know the click library, sockets, or what an address means (the cli checks that).
A new setting takes one row in SETTINGS and one field in Config; a new door one row in DOORS.
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
    SecretFile,
    SettingKind,
    Size,
    Switch,
    Words,
    quoted,
    size_text,
    suggestion,
)
from jobyard.errors import StartRefused
from jobyard.model.limits import JOB_SIZE_DEFAULT, JOB_SIZE_MAX, RESULT_DEFAULT, RESULT_MAX
from jobyard.model.topic.cursor import HOLD_BYTES_DEFAULT
from jobyard.model.topic.txn import (
    STAGE_MINUTES,
    STAGED_BYTES_MAX,
    TXN_BYTES_MAX,
    TXN_DAYS,
    TXN_ROWS_MAX,
    TXNS_MAX,
)

# Small enough for tests that fill dozens of segments; of no use otherwise.
SEGMENT_SIZE_MIN: Final = 64 * KIB
# Recovery reads a segment as one unit of work; a larger one would stall the start.
SEGMENT_SIZE_MAX: Final = 4 * GIB
SEGMENT_SIZE_DEFAULT: Final = 32 * MIB
BODY_MEMORY_DEFAULT: Final = 1 * GIB
# More than any machine has; size arithmetic stays far below 64 bits.
BODY_MEMORY_MAX: Final = 1 << 50
CONNECTION_MEMORY_DEFAULT: Final = 512 * MIB
# Less would not hold one message of usual size per connection.
CONNECTION_MEMORY_MIN: Final = 16 * MIB
SYNC_INTERVAL_MS_DEFAULT: Final = 50
REQUEST_WINDOW_MS_DEFAULT: Final = 60_000
WEBHOOK_RETRIES_DEFAULT: Final = 3
FRAME_TIMEOUT_MS_DEFAULT: Final = 60_000
KEEP_ALIVE_MS_DEFAULT: Final = 75_000
EVENTS_HOURS_DEFAULT: Final = 24
# Ten years: in milliseconds still far below 64 bits.
EVENTS_HOURS_MAX: Final = 87_600
EVENTS_BYTES_DEFAULT: Final = 1 * GIB

# Exit codes of `jobyard serve`.
EXIT_FAILED: Final = 1
EXIT_DAMAGED: Final = 3
EXIT_USAGE: Final = 2
# Exit codes of beanstalkd, which service files may rely on: `jobyard beanstalkd` keeps them.
DROP_IN_EXIT_USAGE: Final = 5
DROP_IN_EXIT_DATA: Final = 10
DROP_IN_EXIT_NO_USER: Final = 33
DROP_IN_EXIT_USER: Final = 34
DROP_IN_EXIT_LISTEN: Final = 111

CONFIG_FILE: Final = "jobyard.toml"
ENVIRONMENT_PREFIX: Final = "JOBYARD_"
DOOR_OFF: Final = "off"

# Not settings: variables that the package build reads, and those that Kubernetes sets in every pod
# next to a service named jobyard (JOBYARD_PORT=tcp://... and similar).
_OTHER_VARIABLE: Final = re.compile(
    r"JOBYARD_(COMPILE|SERVICE_(HOST|PORT)(_.*)?|PORT(_[0-9]+_(TCP|UDP)(_.*)?)?)"
)

Durability = Literal["sync", "os", "off"]
LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
LoopKind = Literal["epoll", "uvloop", "asyncio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings of `server.run`. Created once, never changed."""

    #: The directory of the journal. Ignored when `memory` is set.
    data: Path = Path("jobyard-data")
    memory: bool = False
    #: "sync": answer after fdatasync. "os": after write, synced every `sync_interval_ms`.
    #: "off": after write, never synced by the server (the drop-in's -F).
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
    #: The password for glide-mq clients; empty for none. All secrets may come from files.
    glidemq_password: str = ""
    #: Tokens for bunqueue clients, separated by commas; empty for none.
    auth_token: str = ""
    #: Require a token at the metrics endpoint too.
    metrics_auth: bool = False
    #: Origins whose pages may use the HTTP port, separated by commas; "*" for any.
    cors_origin: str = ""
    #: Additional host names of the HTTP port, separated by commas; "*" for any.
    public_host: str = ""
    #: API keys for topics, `key[:scopes[:prefixes]]`, separated by commas; empty for none.
    topics_key: str = ""
    #: Require an API key on the health endpoints too.
    probe_auth: bool = False
    #: Limits of the topics API; 0 for no limit.
    max_topics: int = 100_000
    max_routers: int = 10_000
    max_watch_sessions: int = 10_000
    max_cursors: int = 10_000
    max_sse_connections: int = 10_000
    max_sse_connections_per_key: int = 1000
    max_inflight_per_key: int = 1000
    max_total_bytes: int = 0
    max_body_bytes: int = 64 * MIB
    #: Records of one commit (an ended run counts as three, a dead letter as 20, a record with a key
    #: as two, 64 characters of an error as one), bytes of its records and dead letters, bytes of
    #: all stages, transactions that are open or remembered, and equally many claim sets.
    txn_rows_max: int = TXN_ROWS_MAX
    txn_bytes_max: int = TXN_BYTES_MAX
    txn_stage_bytes: int = STAGED_BYTES_MAX
    txn_max: int = TXNS_MAX
    #: How long transactions are remembered, and how long their stages live without a call.
    txn_days: int = TXN_DAYS
    txn_stage_minutes: int = STAGE_MINUTES
    #: How long an HTTP connection may stay idle between requests; 0 for no limit.
    keep_alive_ms: int = KEEP_ALIVE_MS_DEFAULT
    #: Addresses and networks of proxies whose forwarding headers are trusted.
    trusted_proxy: str = ""
    #: Commands that one bunqueue connection may send per window; 0 for no limit.
    request_limit: int = 0
    request_window_ms: int = REQUEST_WINDOW_MS_DEFAULT
    #: How long a bunqueue frame may stay incomplete without receiving another byte.
    frame_timeout_ms: int = FRAME_TIMEOUT_MS_DEFAULT
    #: How many times a webhook is tried before it is given up.
    webhook_retries: int = WEBHOOK_RETRIES_DEFAULT
    #: Limit on unfinished input and unsent output of all connections together, in bytes.
    connection_memory: int = CONNECTION_MEMORY_DEFAULT
    #: Connections per client address; 0 for no limit.
    max_connections_per_address: int = 0
    #: Allow webhooks to private and loopback addresses.
    allow_private_webhooks: bool = False
    allow_public_bind: bool = False
    #: Listening sockets inherited from the service manager; they override the address.
    socket_fds: tuple[int, ...] = ()
    #: Switch to this user after the doors are open and before any data is read.
    user: str | None = None

    max_job_size: int = JOB_SIZE_DEFAULT
    max_result_size: int = RESULT_DEFAULT
    segment_size: int = SEGMENT_SIZE_DEFAULT
    #: Bytes of job bodies held in RAM; beyond that they are on disk only (or puts are refused).
    body_memory: int = BODY_MEMORY_DEFAULT

    #: Age and size limits of the journal history; 0 for none.
    events_hours: int = EVENTS_HOURS_DEFAULT
    events_bytes: int = EVENTS_BYTES_DEFAULT
    #: How many bytes of a topic, or of _events, a cursor may hold beyond what would be kept.
    hold_bytes: int = HOLD_BYTES_DEFAULT

    log_format: LogFormat = "text"
    log_level: LogLevel = "info"
    loop: LoopKind = "epoll"
    #: Run as a replacement for beanstalkd, with its exit codes and file modes.
    drop_in: bool = False


@dataclass(frozen=True, slots=True)
class DoorSetting:
    """One protocol's listener: the name of its setting and its protocol."""

    name: str
    speaks: str


DOORS: Final = (
    DoorSetting("beanstalk", "the beanstalkd protocol"),
    DoorSetting("bunqueue", "the bunqueue protocol"),
    DoorSetting("glidemq", "glide-mq over RESP (functions, keys and consumer groups)"),
    DoorSetting("http", "HTTP (the topics API and bunqueue's HTTP API)"),
)

# Each can also be set by the variable of the original topics server: TOPICS_MAX_TOPICS and so on.
TOPICS_LIMITS: Final = {
    "max_topics": "Maximum number of topics",
    "max_routers": "Maximum number of routers",
    "max_watch_sessions": "Maximum number of watches",
    "max_cursors": "Maximum number of cursors",
    "max_sse_connections": "Maximum number of open streams and WebSockets of topics",
    "max_sse_connections_per_key": "Maximum number of open streams and WebSockets per API key",
    "max_inflight_per_key": "Maximum number of waiting calls per API key",
    "max_total_bytes": "Maximum size of the records of all topics together",
    "max_body_bytes": "Maximum size of an HTTP request body",
}

# Environment variables of the original servers; our own JOBYARD_ variables override them.
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
    """One setting: `--its-name`, `JOBYARD_ITS_NAME` or `its_name = ...`."""

    name: str
    kind: SettingKind
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
        """The default as shown in the help."""
        if isinstance(self.kind, SecretFile):
            return ""
        value = getattr(Config(), self.name)
        return size_text(value) if isinstance(self.kind, Size) else str(value)


SETTINGS: Final = (
    Setting("data", Folder(), "Directory of the journal; created if missing."),
    Setting("memory", Switch(), "Run without a journal: all data is lost on restart."),
    Setting(
        "durability",
        # "off" is omitted: it exists only for the drop-in's -F.
        Choice(("sync", "os")),
        "sync: confirm a write when it is on disk. os: confirm it when the kernel has it, and sync "
        f"every {SYNC_INTERVAL_MS_DEFAULT} ms.",
    ),
    *(Setting(door.name, Words("ADDR|off"), f"Address for {door.speaks}.") for door in DOORS),
    Setting(
        "allow_public_bind",
        Switch(),
        "Allow listening on public addresses where clients do not have to authenticate "
        "(also TOPICS_ALLOW_INSECURE_NO_AUTH).",
    ),
    Setting(
        "auth_token",
        Words("T,..."),
        "Require one of these tokens from bunqueue clients (also AUTH_TOKENS).",
    ),
    Setting(
        "auth_token_file",
        SecretFile("auth_token", is_list=True),
        "Read the bunqueue tokens from a file, separated by commas or newlines.",
    ),
    Setting(
        "metrics_auth",
        Switch(),
        "Require a bunqueue token at /prometheus too (also METRICS_AUTH).",
    ),
    Setting(
        "cors_origin",
        Words("ORIGIN,..."),
        "Origins whose web pages may use the HTTP port, such as https://example.org; * for any "
        "(also CORS_ALLOW_ORIGIN).",
    ),
    Setting(
        "public_host",
        Words("NAME,..."),
        "Host names of the HTTP port, besides localhost and the address it listens on; * for any. "
        "Other host names are refused where no key or token is required.",
    ),
    Setting(
        "glidemq_password",
        Words("TEXT"),
        "Require this password from glide-mq clients.",
    ),
    Setting(
        "glidemq_password_file",
        SecretFile("glidemq_password", is_list=False),
        "Read the glide-mq password from a file.",
    ),
    Setting(
        "topics_key",
        Words("K,..."),
        "Require one of these API keys from topics clients: KEY, KEY:SCOPES or "
        "KEY:SCOPES:PREFIXES (also TOPICS_API_KEYS).",
    ),
    Setting(
        "topics_key_file",
        SecretFile("topics_key", is_list=True),
        "Read the topics API keys from a file, separated by commas or newlines.",
    ),
    Setting(
        "probe_auth",
        Switch(),
        "Require an API key at /v0/health, /v0/ready and /readyz too (also TOPICS_PROBE_AUTH).",
    ),
    *(
        Setting(
            name,
            Size(0, BODY_MEMORY_MAX, "SIZE" if name.endswith("_bytes") else "N"),
            f"{what}; 0 for no limit (also TOPICS_{name.upper()}).",
        )
        for name, what in TOPICS_LIMITS.items()
    ),
    Setting(
        "txn_rows_max",
        Size(1, 1 << 24, "N"),
        "Maximum number of records of one commit, which enter at one moment; an ended run counts "
        "as three, a dead letter as 20, a record with a key as two, and each 64 characters of an "
        "error as one.",
    ),
    Setting(
        "txn_bytes_max",
        Size(2 * MIB, BODY_MEMORY_MAX),
        "Maximum size of the records and dead letters of one commit; others wait while they are "
        "written.",
    ),
    Setting(
        "txn_stage_bytes",
        Size(0, BODY_MEMORY_MAX),
        "Maximum size of all staged records together.",
    ),
    Setting(
        "txn_max",
        Size(1, 1 << 30, "N"),
        "Maximum number of open and remembered transactions, and of remembered claim sets.",
    ),
    Setting(
        "txn_days",
        Size(1, 3650, "DAYS"),
        "Days for which a transaction or a claim set is remembered.",
    ),
    Setting(
        "txn_stage_minutes",
        Size(1, 525_600, "MINUTES"),
        "Minutes after which staged records are dropped if no call names their transaction.",
    ),
    Setting(
        "keep_alive_ms",
        Size(0, 1 << 40, "MS"),
        "Close an HTTP connection that is idle between requests for this many milliseconds; 0 for "
        "never.",
    ),
    Setting(
        "trusted_proxy",
        Words("ADDR|CIDR,..."),
        "Proxies whose X-Forwarded-For and X-Real-IP headers are trusted; those of others are "
        "ignored.",
    ),
    Setting(
        "request_limit",
        Size(0, 1 << 40, "N"),
        "Maximum number of commands per bunqueue connection and window; 0 for no limit "
        "(also RATE_LIMIT_MAX_REQUESTS).",
    ),
    Setting(
        "request_window_ms",
        Size(1, 1 << 40, "MS"),
        "Length of the --request-limit window in milliseconds (also RATE_LIMIT_WINDOW_MS).",
    ),
    Setting(
        "frame_timeout_ms",
        Size(1, 1 << 40, "MS"),
        "Close a bunqueue connection when an incomplete frame gets no data for this many ms "
        "(also TCP_IDLE_TIMEOUT_MS).",
    ),
    Setting(
        "webhook_retries",
        Size(1, 100, "N"),
        "Maximum number of attempts to deliver a webhook (also WEBHOOK_MAX_RETRIES).",
    ),
    Setting(
        "allow_private_webhooks",
        Switch(),
        "Allow webhooks to this machine and to private addresses.",
    ),
    Setting("max_job_size", Size(1, JOB_SIZE_MAX), "Maximum size of a job body."),
    Setting("max_result_size", Size(0, RESULT_MAX), "Maximum size of a job result."),
    Setting(
        "segment_size",
        Size(SEGMENT_SIZE_MIN, SEGMENT_SIZE_MAX),
        "Size of one journal file; its space is reserved when it is created.",
    ),
    Setting(
        "body_memory",
        Size(0, BODY_MEMORY_MAX),
        "Memory for job bodies and results. Beyond it they are read back from disk; with --memory, "
        "further puts are refused.",
    ),
    Setting(
        "connection_memory",
        Size(CONNECTION_MEMORY_MIN, BODY_MEMORY_MAX),
        "Memory for unfinished commands and unread replies of all connections together. Beyond it, "
        "clients that send or request more are refused or disconnected.",
    ),
    Setting(
        "max_connections_per_address",
        Size(0, 1 << 40, "N"),
        "Maximum number of open connections per client address; 0 for no limit.",
    ),
    Setting(
        "events_hours",
        Size(0, EVENTS_HOURS_MAX, "HOURS"),
        "Hours of job history in the topic _events; 0 disables it.",
    ),
    Setting(
        "events_bytes",
        Size(0, BODY_MEMORY_MAX),
        "Journal space for job history, beyond what the jobs need; 0 disables it.",
    ),
    Setting(
        "hold_bytes",
        Size(0, BODY_MEMORY_MAX),
        "How much of a log or of _events a cursor may keep beyond caps, age and window.",
    ),
    Setting("log_format", Choice(("text", "json")), "Format of the log lines on stderr."),
    Setting("log_level", Choice(("debug", "info", "warning", "error")), "Lowest level to log."),
    Setting(
        "loop",
        Choice(("epoll", "uvloop", "asyncio")),
        "Event loop; epoll is the fastest.",
    ),
)

_BY_NAME: Final = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class SettledConfig:
    """A Config and, for each value that is not a default, where it was set."""

    config: Config
    origins: Mapping[str, str]

    def origin(self, name: str) -> str:
        """Return where this value was set, for error messages."""
        return self.origins.get(name, f"default of {_BY_NAME[name].flag}")


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """A raw value and where it was set."""

    value: object
    origin: str


Layer = Mapping[str, ConfigSource]


def settle(flags: Mapping[str, object], environ: Mapping[str, str], folder: Path) -> SettledConfig:
    """Merge flags, environment and file, in this order of precedence.

    `flags` holds only the flags that were given, by setting name, and possibly "config"; `folder`
    is searched for a `jobyard.toml` when no file is named. Raises StartRefused with exit code 2.
    """
    environment = _environment_layer(environ)
    named = flags.get("config") or environ.get(ENVIRONMENT_PREFIX + "CONFIG")
    layers = (
        _file_layer(Path(str(named)) if named else None, folder),
        environment,
        {
            name: ConfigSource(value, _BY_NAME[name].flag)
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
    return SettledConfig(Config(**values), origins)


def _read(setting: Setting, given: ConfigSource) -> object:
    try:
        return setting.kind.read(given.value)
    except ValueError as error:
        raise StartRefused(f"{given.origin}: {error}", EXIT_USAGE) from error


def _with_secrets(layer: Layer) -> Layer:
    """Replace settings that name secret files by the contents of these files."""
    found: dict[str, ConfigSource] = {}
    for name, given in layer.items():
        setting = _BY_NAME[name]
        if not isinstance(setting.kind, SecretFile):
            found[name] = given
            continue
        target = setting.kind.target
        if target in layer:
            text = f"{given.origin} and {layer[target].origin} cannot be used together"
            raise StartRefused(text, EXIT_USAGE)
        found[target] = ConfigSource(_read(setting, given), given.origin)
    return found


def _settle_memory(layer: Layer, read: dict[str, Any]) -> None:
    # A directory overrides a `memory` from a place of lower precedence; both in one place are a
    # mistake.
    if "data" not in read:
        return
    if read.get("memory"):
        raise StartRefused(
            f"{layer['memory'].origin} and {layer['data'].origin} cannot be used together",
            EXIT_USAGE,
        )
    read["memory"] = False


def _environment_layer(environ: Mapping[str, str]) -> Layer:
    known = {setting.variable: setting for setting in SETTINGS}
    config_variable = ENVIRONMENT_PREFIX + "CONFIG"
    layer: dict[str, ConfigSource] = {
        name: ConfigSource(environ[variable], variable)
        for variable, name in ORIGINAL_VARIABLES.items()
        if environ.get(variable)
    }
    for variable, value in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == config_variable:
            continue
        if variable in known:
            # Compose files and unit files use VAR= for "not set".
            if value:
                layer[known[variable].name] = ConfigSource(value, variable)
        elif _OTHER_VARIABLE.fullmatch(variable) is None:
            hint = suggestion(variable, (*known, config_variable))
            raise StartRefused(f"environment: unknown setting {variable}{hint}", EXIT_USAGE)
    return layer


def _file_layer(named: Path | None, folder: Path) -> Layer:
    path = folder / CONFIG_FILE if named is None else named
    # Error messages name the file as the user did.
    shown = CONFIG_FILE if named is None else str(named)
    try:
        content = path.read_text("utf-8")
    except FileNotFoundError:
        if named is None:
            return {}
        raise StartRefused(f"{shown}: no such file", EXIT_USAGE) from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise StartRefused(f"{shown}: cannot be read: {why}", EXIT_USAGE) from error
    try:
        table = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise StartRefused(f"{shown}: {error}", EXIT_USAGE) from error
    layer: dict[str, ConfigSource] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in _BY_NAME:
            hint = suggestion(name, _BY_NAME)
            raise StartRefused(f"{shown}: unknown setting {quoted(key)}{hint}", EXIT_USAGE)
        if name in layer:
            raise StartRefused(f"{shown}: {name} is set twice", EXIT_USAGE)
        layer[name] = ConfigSource(value, f"{shown}: {key}")
    return layer

"""What a command line says: which script runs, what multiprocessing or a launcher made of it; and redaction (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainprobe.model.dataclass import dataclass
from trainprobe.model.text import StrEnum

ARGUMENTS_LIMIT = 64
TORCHRUN_PORT = "29500"
ARGUMENT_LIMIT = 512
REDACTED = "[redacted]"

_PYTHON = re.compile(r"(i?python|pypy)[0-9.]*(-dbg|-config|d|m|t)?", re.IGNORECASE)
_PYTHON_COMM = ("python", "pt_", "ipython", "pypy", "torchrun", "accelerate", "deepspeed", "ray::", "jupyter", "uv")
_LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed", "horovodrun", "mpirun", "mpiexec", "orterun"})
_LAUNCHER_MODULES = frozenset({
    "torch.distributed.run", "torch.distributed.launch", "torch.distributed.launcher", "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli", "deepspeed.launcher.launch", "deepspeed.launcher.runner",
})  # fmt: skip


class ProgramKind(StrEnum):
    SCRIPT = "script"  # a Python script or module
    LAUNCHER = "launcher"  # torchrun and its like; the script is the one it launches
    SPAWNED = "spawned"  # a child of multiprocessing's spawn or forkserver start method
    FORKSERVER = "forkserver"
    TRACKER = "tracker"  # multiprocessing's resource tracker
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Understood:
    kind: ProgramKind
    script: str  # last path component or module; "" unknown


def python_like(comm: str) -> bool:
    """Whether a thread name suggests Python (a hint for what to look at first, no proof)."""
    return comm.lower().startswith(_PYTHON_COMM)


def understand(command: Sequence[str]) -> Understood:
    """Which script a command line runs, and as what."""
    if not command:
        return Understood(ProgramKind.OTHER, "")
    program, rest = _name(command[0]), list(command[1 : ARGUMENTS_LIMIT * 4])
    if program in _LAUNCHERS:
        return _launcher(rest)
    if not _PYTHON.fullmatch(program):
        return Understood(ProgramKind.OTHER, program)
    how, value, rest = _python_arguments(rest)
    if how == "c":
        return _inline(value)
    if how == "m":
        return _launcher(rest) if value in _LAUNCHER_MODULES else Understood(ProgramKind.SCRIPT, value)
    script = _name(value)
    return _launcher(rest) if script in _LAUNCHERS else Understood(ProgramKind.SCRIPT, script)


def _python_arguments(rest: list[str]) -> tuple[str, str, list[str]]:
    """("m", module, its arguments), ("c", code, …) or ("", script, …) of an interpreter's arguments."""
    index = 0
    while index < len(rest):
        argument = rest[index]
        index += 1
        if argument == "--check-hash-based-pycs":
            index += 1
        elif argument.startswith("--"):
            continue
        elif argument.startswith("-") and len(argument) > 1:
            for at, letter in enumerate(argument[1:], start=1):
                if letter in "cmWX":
                    value = argument[at + 1 :]
                    if not value:
                        value = rest[index] if index < len(rest) else ""
                        index += 1
                    if letter in "cm":
                        return letter, value, rest[index:]
                    break
        else:
            return "", argument, rest[index:]
    return "", "", []


def _inline(code: str) -> Understood:
    head = code[:256]
    if "multiprocessing.forkserver" in head:
        return Understood(ProgramKind.FORKSERVER, "")
    if "multiprocessing.resource_tracker" in head:
        return Understood(ProgramKind.TRACKER, "")
    if "spawn_main" in head:
        return Understood(ProgramKind.SPAWNED, "")
    return Understood(ProgramKind.SCRIPT, "")


def _launcher(rest: list[str]) -> Understood:
    """The launched script: the first *.py, or what follows -m; launchers' own options are too many to know."""
    for index, argument in enumerate(rest):
        if argument.endswith(".py") and not argument.startswith("-"):
            return Understood(ProgramKind.LAUNCHER, _name(argument))
        if argument in ("-m", "--module") and index + 1 < len(rest):
            return Understood(ProgramKind.LAUNCHER, rest[index + 1])
    return Understood(ProgramKind.LAUNCHER, "")


def mentioned_script(command: Sequence[str]) -> str:
    """The first word that ends in .py, for a wrapper that runs a training (env, nice, bash -c "…"); "" none."""
    for argument in command[:ARGUMENTS_LIMIT]:
        for word in argument[: ARGUMENT_LIMIT * 8].split():
            if word.strip("\"';&").endswith(".py"):
                return _name(word.strip("\"';&"))
    return ""


def torchrun_id(command: Sequence[str]) -> str:
    """The value of --rdzv-id of a torchrun command line; "" when there is none."""
    return _options(command).get("rdzv-id", "")


def torchrun_meeting(command: Sequence[str]) -> tuple[str, str, str]:
    """(address, port, world size) of a torchrun command line for a static rendezvous of several hosts, as far as it
    says them."""
    given = _options(command)
    if given.get("rdzv-backend", "static") != "static":
        return "", "", ""
    address, _, port = given.get("rdzv-endpoint", "").rpartition(":")
    nodes, processes = given.get("nnodes", "1"), given.get("nproc-per-node", "1")
    known = nodes.isdecimal() and processes.isdecimal() and len(nodes + processes) < 12 and int(nodes) > 1
    world = str(int(nodes) * int(processes)) if known else ""
    return address or given.get("master-addr", ""), port or given.get("master-port", TORCHRUN_PORT), world


def _options(command: Sequence[str]) -> dict[str, str]:
    """torchrun's own options, which come before the script."""
    found: dict[str, str] = {}
    for index, argument in enumerate(command[:ARGUMENTS_LIMIT]):
        name, equals, value = argument.partition("=")
        if name.startswith("--"):
            given = value if equals else command[index + 1] if index + 1 < len(command) else ""
            found.setdefault(name[2:].replace("_", "-"), given)
        elif found and argument.endswith(".py"):
            break
    return found


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


_SECRET_WORDS = frozenset({
    "key", "keys", "apikey", "apikeys", "token", "secret", "secrets", "password", "passwords", "passwd", "passphrase",
    "pwd", "pass", "credential", "credentials", "auth", "authorization", "bearer", "pw", "sig", "signature", "pat",
    "cookie", "webhook",
})  # fmt: skip
_SECRET_ENDS = ("apikey", "accesskey", "secretkey", "authkey", "token", "secret", "password", "passwd")
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_PLAIN = re.compile(r"-?[0-9]{1,7}(\.[0-9]{1,7})?|true|false|none|yes|no|on|off|auto", re.IGNORECASE)
_IN_URL = re.compile(r"(?<![a-zA-Z0-9+.-])([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s]+@")
_IN_QUERY = re.compile(r"([?&][^=&?\s]{0,64}(?:sig|signature|key|pass|auth|credential)=)[^&\s]+", re.IGNORECASE)
_IN_HEADER = re.compile(
    r"(\b(?:authorization\s{0,4}[=:]\s{0,4})?(?:bearer|basic)\s{1,4})[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE
)
_IN_SCHEME = re.compile(
    r"(\bauthorization[\"']?\s{0,4}[=:]\s{0,4}[\"']?(?:[a-z][a-z0-9-]{0,30}\s{1,4})?)[^\s\"',;]{4,}", re.IGNORECASE
)
_IN_PATH = re.compile(
    r"((?:hooks\.slack\.com/[a-z]{1,20}|discord(?:app)?\.com/api/webhooks|webhook\.office\.com/[a-z0-9]{1,20}|"
    r"api\.telegram\.org)/)[^\s\"']{6,}",
    re.IGNORECASE,
)
_NAMED = re.compile(r"(?<![A-Za-z0-9_.-])([A-Za-z0-9_.-]+)[\"']?\s{0,4}[=:]\s{0,4}[\"']?")
_VALUE = re.compile(r"[^\s\"',;&)]{4,}")
_LOOKS = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|"
    r"glpat-[A-Za-z0-9_-]{16,}|xox[a-z]-[A-Za-z0-9-]{10,}|A[KS]IA[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|"
    r"nvapi-[A-Za-z0-9_-]{16,}|pypi-[A-Za-z0-9_-]{16,}|[rs]k_(?:live|test)_[A-Za-z0-9]{10,}|gsk_[A-Za-z0-9]{20,}|"
    r"[0-9]{8,10}:[A-Za-z0-9_-]{35}|"
    r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]+)?)"
)


def redact(command: Sequence[str]) -> tuple[str, ...]:
    """The command line to show: bounded, and without the values of arguments that look like secrets.

    A name counts by its words (``--api-key``, ``hubToken``, ``WANDB_API_KEY=``), so ``--tokenizer`` and
    ``--max-tokens`` are left alone; so are numbers and switches, which are no secrets.
    """
    shown: list[str] = []
    hide_next = False
    for argument in command[:ARGUMENTS_LIMIT]:
        if hide_next and not argument.startswith("-") and not _PLAIN.fullmatch(argument):
            shown.append(REDACTED)
            hide_next = False
            continue
        name, equals, value = argument.partition("=")
        secret = len(name) <= ARGUMENT_LIMIT and (_secret(name) or name == "-p")
        hide_next = secret and not equals and argument.startswith("-")
        if secret and equals and value and not _PLAIN.fullmatch(value):
            shown.append(f"{name}={REDACTED}")
        else:
            shown.append(_scrub(argument[: ARGUMENT_LIMIT * 2]))
    if len(command) > ARGUMENTS_LIMIT:
        shown.append("…")
    return tuple(shown)


def _secret(name: str) -> bool:
    if not re.fullmatch(r"[-+A-Za-z0-9_.]+", name):
        return False
    words = [word.lower() for word in _WORDS.findall(name)]
    return any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDS) for word in words)


def _scrub(text: str) -> str:
    """One argument that is no secret by its name, but may hold one (a URL, inline code)."""
    text = _IN_URL.sub(rf"\1{REDACTED}@", text)
    for pattern in (_IN_PATH, _IN_QUERY, _IN_HEADER, _IN_SCHEME):
        text = pattern.sub(rf"\1{REDACTED}", text)
    text = _without_named(_LOOKS.sub(REDACTED, text))
    return text if len(text) <= ARGUMENT_LIMIT else text[:ARGUMENT_LIMIT] + "…"


def _without_named(text: str) -> str:
    """Without the values of names in it that are a secret's by their words, as in --export=ALL,DB_PASS=x."""
    shown, at = [], 0
    for match in _NAMED.finditer(text):
        named = match.start() >= at and _secret(match[1]) and not match[1].lower().endswith("authorization")
        value = _VALUE.match(text, match.end()) if named else None
        if value is not None and not _PLAIN.fullmatch(value[0]):
            shown += [text[at : match.end()], REDACTED]
            at = value.end()
    return "".join([*shown, text[at:]])

"""What every test may rely on: markers by folder, and skips that say why.

A test below ``tests/kernel`` is marked ``kernel`` and so on; what this machine lacks for it skips it with the reason.
``TRAINPROBE_REQUIRE_KERNEL=1`` (set by ``make test``) turns these skips into failures.

Each session has one seed: ``TRAINPROBE_SEED``, or a fresh one. Every failure shows it.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import random
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from benchmarks.limits import fake_cuda, fake_nvml
from benchmarks.stalls.host import CannotHere
from tests.contract.contradictions import contradictions
from trainprobe.model.moment import Moment
from trainprobe.model.report import Report
from trainprobe.pipeline import Pipeline
from trainprobe.wire import report as wire

# Examples are not kept (the checkout may be read-only), and a busy machine is no failure.
settings.register_profile("project", database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")

# What thousands of tests keep is looked through seldom. Programs that they start collect as ever.
gc.set_threshold(200_000, 20, 20)

TESTS = Path(__file__).parent
SEED = "TRAINPROBE_SEED"
OF_RECORDINGS = frozenset(
    [
        *(f"tests/replay/test_{name}.py" for name in ("accounts", "cause_pages", "contradictions", "figures")),
        *(f"tests/replay/test_{name}.py" for name in ("frameworks", "headlines", "pseudo_language", "recordings")),
        *("tests/replay/test_reports_meanwhile.py", "tests/replay/test_rhythm.py", "tests/unit/text/test_render.py"),
    ]
)
"""Files whose tests read what ``tests.replay.replay`` keeps of all recordings."""
MADE: dict[int, tuple[Pipeline, Report]] = {}
"""What a test's pipelines reported last."""
FOLDERS = frozenset({"kernel", "training", "observability", "browser", "systemd", "nightly"})


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """The seed is in the environment before workers and programs of tests start; hypothesis uses it too."""
    os.environ[SEED] = os.environ.get(SEED) or str(random.SystemRandom().randrange(1_000_000))
    config.option.hypothesis_seed = config.option.hypothesis_seed or os.environ[SEED]


class RecordingsTogether(LoadFileScheduling):
    """``--dist loadfile``, and one process for the files that read the same replays: each is made once."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "recordings" if file in OF_RECORDINGS else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    return RecordingsTogether(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """What was collected stays: no collection of garbage looks through it again."""
    gc.freeze()


def pytest_report_header() -> str:
    return f"{SEED}={os.environ[SEED]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections.append(("Seed", pytest_report_header()))
    return report


@pytest.fixture(scope="session")
def seed() -> int:
    """The session's seed."""
    return int(os.environ[SEED])


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Draws by the session's seed and the test's name."""
    return random.Random(f"{os.environ[SEED]}/{request.node.nodeid}")


@pytest.fixture(scope="session", autouse=True)
def compiled_programs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Programs that are compiled once serve the whole session, and no file of the host is touched or trusted."""
    of_process = tmp_path_factory.getbasetemp()
    cache = (of_process.parent if "PYTEST_XDIST_WORKER" in os.environ else of_process) / "cache"
    cache.mkdir(exist_ok=True)
    os.environ.setdefault("TRAINPROBE_CACHE", str(cache))


@pytest.fixture(scope="session", autouse=True)
def last_reports() -> Iterator[None]:
    """Pipelines keep their last reports in ``MADE``."""
    report = Pipeline.report

    def kept(self: Pipeline, at: Moment, *, reuse: bool = False) -> Report:
        MADE[id(self)] = self, report(self, at, reuse=reuse)
        return MADE[id(self)][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pipeline, "report", kept)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """No two statements of a report that a test's pipeline makes contradict each other; its last report is checked."""
    result = yield
    made = list(MADE.values())
    MADE.clear()
    for _, last in made:
        assert contradictions(json.loads(wire.encode(last))) == []
    return result


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in FOLDERS:
            item.add_marker(folder)


def pytest_runtest_setup(item: pytest.Item) -> None:
    random.seed(f"{os.environ[SEED]}/{item.nodeid}")  # the module ``random`` draws by the session's seed and the name
    for marker, lacking in LACKING.items():
        if item.get_closest_marker(marker) and (reason := lacking()):
            if os.environ.get("TRAINPROBE_REQUIRE_KERNEL") == "1":
                pytest.fail(f"{marker} test cannot run: {reason}", pytrace=False)
            pytest.skip(reason)


def lacking_kernel() -> str:
    if os.geteuid() != 0:
        return "not root"
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return "this kernel has no BTF (CONFIG_DEBUG_INFO_BTF)"
    if importlib.util.find_spec("bcc") is None:
        return "this Python has no bcc (apt-get install python3-bpfcc, and a venv with --system-site-packages)"
    return ""


def lacking_training() -> str:
    if not os.environ.get("TRAINPROBE_TORCH_PYTHON"):
        return "TRAINPROBE_TORCH_PYTHON names no Python with torch (make training sets it)"
    return lacking_kernel()


def lacking_observability() -> str:
    return "" if shutil.which("prometheus") else "no prometheus on PATH"


def lacking_browser() -> str:
    return "" if shutil.which("chromium") else "no chromium on PATH"


def lacking_systemd() -> str:
    missing = [name for name in ("systemd-nspawn", "mmdebstrap", "dpkg-deb") if shutil.which(name) is None]
    return f"no {' and no '.join(missing)} on PATH" if missing else lacking_kernel()


LACKING: dict[str, Callable[[], str]] = {
    "kernel": lacking_kernel,
    "training": lacking_training,
    "observability": lacking_observability,
    "browser": lacking_browser,
    "systemd": lacking_systemd,
}


@pytest.fixture(scope="session")
def torch_python() -> str:
    """The Python that runs trainings: it imports torch and numpy."""
    return os.environ["TRAINPROBE_TORCH_PYTHON"]


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libnvidia-ml.so.1 whose GPUs a file describes."""
    try:
        return fake_nvml.built(tmp_path_factory.mktemp("nvml"))
    except CannotHere as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def cuda_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libcudart.so.12 and a libcuda.so.1 whose GPU is on paper."""
    try:
        return fake_cuda.built(tmp_path_factory.mktemp("cuda"))
    except CannotHere as reason:
        pytest.skip(str(reason))

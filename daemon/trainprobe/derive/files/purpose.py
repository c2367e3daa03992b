"""The class of a written file: checkpoint, log or other. A name that tells it decides, else size and way of writing."""

from __future__ import annotations

from dataclasses import field
from fnmatch import fnmatchcase
from functools import lru_cache

from trainprobe.derive.files.words import Holds, holds, holds_results
from trainprobe.model.dataclass import dataclass
from trainprobe.model.text import StrEnum

CHECKPOINT_PATTERNS: tuple[str, ...] = (
    "*.pth", "*.pt", "*.ckpt", "*.pth.tar", "*.pt.tar", "*.ckpt.tar", "*.bin", "*.safetensors", "*.distcp", "*.pkl",
    "*.h5", "*.hdf5", "*.keras", "*.npz", "*.pdparams", "*.msgpack", "*/checkpoint-[0-9]*/*",
    "*/tmp-checkpoint-[0-9]*/*", "*/global_step[0-9]*/*", "*/iter_[0-9]*/*", "*orbax-checkpoint-tmp*", "*.ocdbt",
    "*/ocdbt.process_*",
    "*/_CHECKPOINT_METADATA", "*_steps.zip", "*model*.zip", "*.joblib",
    "*/iteration_[0-9]*/point_cloud.ply",
)  # fmt: skip
_DATA: tuple[str, ...] = ("*.bin", "*.pkl", "*.h5", "*.hdf5", "*.npz", "*.msgpack", "*model*.zip", "*.joblib")
"""Names that checkpoints share with data sets and output: before the first step, a file of such a name is data."""
_TENSORS: tuple[str, ...] = ("*.pt", "*.pth", "*.pt.tar", "*.pth.tar", "*.safetensors")
"""Names for whatever consists of tensors, models mostly."""
_STATES = ("model", "checkpoint", "ckpt", "weight", "optim", "state", "param")
"""Words in the names of checkpoints in formats that data sets use too."""
_SETS = ("train", "test", "val", "data")
"""Beginnings of names of data sets."""
_NEVER: tuple[str, ...] = (
    "*.arrow", "*.lock", "*.npy", "*.pyc", "*.so", "*.o", "*.parquet", "*.mdb", "*.tfrecord", "*.idx", "*.cubin",
)  # fmt: skip
_BESIDE: tuple[str, ...] = ("*.arrow", "*.lock", "*.parquet", "*.log", "*.log.*", "*.csv", "*.tsv", "*.jsonl")
"""No part of a checkpoint in a checkpoint's directory either."""
_CACHES: tuple[str, ...] = ("/.cache/", "/torchinductor_", "/.triton/", "/__pycache__/", "/pymp-")
_LOGS: tuple[str, ...] = ("*.log", "*.jsonl", "*.csv", "*.txt", "*.out", "*.err", "*.tsv", "*.log.*", "*.ndjson",
                          "*.db", "*.db-*", "*.sqlite", "*.sqlite-*", "*.sqlite3", "*.sqlite3-*")  # fmt: skip
_MEDIA: tuple[str, ...] = ("*.png", "*.jpg", "*.jpeg", "*.gif", "*.webp", "*.bmp", "*.tif", "*.tiff", "*.svg", "*.pdf",
                           "*.ppm", "*.exr", "*.avif", "*.mp4", "*.avi", "*.mov", "*.mkv", "*.webm", "*.wav", "*.mp3",
                           "*.flac", "*.ogg", "*.opus", "*.m4a", "*.html")  # fmt: skip
"""Output for people (images, videos), wherever it is written, also beside a checkpoint."""
_TEXTS: tuple[str, ...] = ("*.json", "*.geojson", "*.xml", "*.yaml", "*.yml", "*.md", "*.tex", "*.json.gz",
                           "*.jsonl.gz", "*.csv.gz", "*.tsv.gz", "*.txt.gz", "*.xml.gz")  # fmt: skip
_CONTAINERS: tuple[str, ...] = (
    "*.nii", "*.nii.gz", "*.mha", "*.mhd", "*.nrrd", "*.dcm", "*.mgz", "*.mrc",
    "*.ply", "*.obj", "*.stl", "*.off", "*.glb", "*.gltf", "*.pcd", "*.las", "*.laz", "*.xyz", "*.vtk", "*.vtu",
    "*.vtp", "*.feather", "*.orc", "*.avro", "*.lance", "*.lmdb", "*.duckdb", "*.index", "*.faiss", "*.ann",
    "*.xlsx", "*.nc", "*.mat", "*.fits", "*.root", "*.grib", "*.beton", "*.pdb", "*.cif", "*.sdf", "*.fasta", "*.fastq",
    "*.bam", "*.nsys-rep", "*.ncu-rep", "*.prof", "*.pstats", "*.pftrace", "*.perfetto-trace", "*.xplane.pb",
)  # fmt: skip
"""Text, and containers of output and data, in which few programs keep a model: one whose name says so is a
checkpoint."""
_FOLDERS = (".zarr/", ".n5/", ".lmdb/")
"""Ends of directories that are such a container."""
_WILD = frozenset("*?[")
LARGE = 1 << 20  # bytes: an unnamed file that is written whole and at least so large is a checkpoint


class FileClass(StrEnum):
    CHECKPOINT = "checkpoint"
    LOG = "log"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class FileKind:
    """The class of a file and, for logs, which kind (``tensorboard``, ``wandb``, ``stdout``, ``log``)."""

    of: FileClass
    log: str = ""


@dataclass(frozen=True, slots=True)
class FileRules:
    """Patterns that make a file a checkpoint (fnmatch on the whole path)."""

    checkpoints: tuple[str, ...] = field(default=CHECKPOINT_PATTERNS)


@lru_cache(maxsize=1024)
def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    endings, others = _endings(patterns)
    return path.endswith(endings) or any(fnmatchcase(path, pattern) for pattern in others)


@lru_cache(maxsize=64)
def _endings(patterns: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The patterns that ask for nothing but an ending, as that, and the others: a path is compared with all endings
    in a hundredth of the time."""
    plain = tuple(pattern for pattern in patterns if pattern[:1] == "*" and not _WILD.intersection(pattern[1:]))
    return tuple(pattern[1:] for pattern in plain), tuple(pattern for pattern in patterns if pattern not in plain)


@lru_cache(maxsize=8)
def _of_names(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Those that are not for all files of a directory."""
    return tuple(pattern for pattern in patterns if not pattern.endswith("/*"))


@lru_cache(maxsize=8)
def _unlike_data(patterns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(pattern for pattern in patterns if pattern not in _DATA)


def classify(
    path: str, size: int, *, created: bool, append: bool, early: bool = False, rules: FileRules | None = None
) -> FileKind:
    """The kind of a written file.

    ``path`` as the process sees it, ``size`` the bytes written so far, ``created`` whether it was opened with
    O_CREAT or O_TRUNC, ``append`` whether with O_APPEND, ``early`` whether that was before the first step.
    """
    return _kind(path, size >= LARGE, created, append, early, rules or FileRules())


def is_restored(path: str, rules: FileRules) -> bool:
    """Whether a file that is read before the first step is a checkpoint, by its name."""
    name = path.rpartition("/")[2].lower()
    if _is_of_data(path) or _matches(name, _NEVER) or holds_results(name):
        return False
    if _matches(path, _unlike_data(rules.checkpoints)):
        return True
    return _matches(path, rules.checkpoints) and any(word in name for word in _STATES)


def _is_of_data(path: str) -> bool:
    """Whether a file that is read or written before the first step is of a data set, by its name."""
    name = path.rpartition("/")[2].lower()
    return "-packages/" in path or "/processed/" in path or name.startswith(_SETS)


def is_named_output(path: str) -> bool:
    """Whether the name alone tells a log, or output for people: at any size, however it is opened."""
    return _kind(path, True, False, False, False, FileRules()).of == FileClass.LOG


def may_belong(path: str) -> bool:
    """Whether a file in the directory of a save may be a part of it, as config.json and tokenizer.json are."""
    name = path.rpartition("/")[2]
    return not (is_named_output(path) or holds(name) == Holds.OUTPUT or _is_contained(path, name, _CONTAINERS))


def _is_contained(path: str, name: str, containers: tuple[str, ...]) -> bool:
    return _matches(name.lower(), containers) or any(folder in path for folder in _FOLDERS)


def is_output(path: str) -> bool:
    """Whether a file of a name that is not kept for checkpoints is output or data of the training, by that name."""
    name = path.rpartition("/")[2]
    said = holds(name)
    return said == Holds.OUTPUT or (said is None and _is_contained(path, name, (*_TEXTS, *_CONTAINERS)))


def _is_checkpoint(path: str, patterns: tuple[str, ...]) -> bool:
    """By its name, or by its directory."""
    name, sure = path.rpartition("/")[2], _unlike_data(patterns)
    if holds_results(name):
        sure = tuple(pattern for pattern in sure if pattern not in _TENSORS)
    if not _matches(path, patterns) or (not _matches(path, sure) and is_output(path)):
        return False
    return not _matches(name, _BESIDE) or _matches(path, _of_names(patterns))


@lru_cache(maxsize=1024)
def _kind(path: str, large: bool, created: bool, append: bool, early: bool, rules: FileRules) -> FileKind:
    """The same, cached: a file that each step writes needs it in each step."""
    name = path.rpartition("/")[2]
    if ".tfevents." in name:
        return FileKind(FileClass.LOG, "tensorboard")
    if name.endswith(".wandb"):
        return FileKind(FileClass.LOG, "wandb")
    if path.startswith(("/dev/pts/", "/dev/tty")):
        return FileKind(FileClass.LOG, "stdout")
    if path.startswith(("/dev/", "/proc/", "/sys/")) and "/dev/shm/" not in path:
        return FileKind(FileClass.OTHER)
    if any(cache in path for cache in _CACHES) or (name.startswith("torch_") and path.startswith("/dev/shm/")):
        return FileKind(FileClass.OTHER)
    if _matches(name.lower(), _MEDIA):
        return FileKind(FileClass.LOG, "log")
    named = _unlike_data(rules.checkpoints) if early else rules.checkpoints
    if _is_checkpoint(path, named) and not (early and _is_of_data(path)):
        return FileKind(FileClass.CHECKPOINT)
    if "/wandb/" in path:  # what a run keeps there, but for its models
        return FileKind(FileClass.LOG, "wandb")
    if _matches(name, _LOGS) or append:
        return FileKind(FileClass.LOG, "stdout" if name in {"stdout", "stderr"} else "log")
    if _matches(name, _NEVER):
        return FileKind(FileClass.OTHER)
    if created and large and not early and not is_output(path):
        return FileKind(FileClass.CHECKPOINT)
    if not large and name and "." in name and not name.startswith(".") and not name.startswith("tmp"):
        return FileKind(FileClass.LOG, "log")
    return FileKind(FileClass.OTHER)

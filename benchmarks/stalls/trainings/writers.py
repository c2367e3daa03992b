"""The ways in which checkpoints are written in the wild. Each returns the final path."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import torch

State = dict[str, Any]


def save_path(state: State, path: str) -> str:
    torch.save(state, path)
    return path


def save_path_fsync(state: State, path: str) -> str:
    torch.save(state, path)
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
    return path


def save_file(state: State, path: str) -> str:
    with open(path, "wb") as file:
        torch.save(state, file)
    return path


def save_file_fsync(state: State, path: str) -> str:
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    return path


def safetensors_like(state: State, path: str) -> str:
    """A temporary name, the full size first, one write per tensor, renamed while it is still open."""
    path = os.path.splitext(path)[0] + ".safetensors"
    tensors = _tensors(state)
    header = json.dumps({name: list(t.shape) for name, t in tensors.items()}).encode()
    descriptor, temporary = tempfile.mkstemp(prefix=".tmp", dir=os.path.dirname(path))
    with os.fdopen(descriptor, "wb") as file:
        file.truncate(8 + len(header) + sum(t.numel() * t.element_size() for t in tensors.values()))
        file.write(len(header).to_bytes(8, "little") + header)
        for tensor in tensors.values():
            file.write(tensor.contiguous().view(torch.uint8).numpy().data)
        file.flush()
        os.fsync(file.fileno())
        os.rename(temporary, path)
    return path


def mkstemp_rename(state: State, path: str) -> str:
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    with os.fdopen(descriptor, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    return path


def copy_across(state: State, path: str) -> str:
    """Written where temporary files go, then moved: rename says EXDEV and the bytes are copied."""
    descriptor, temporary = tempfile.mkstemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    with os.fdopen(descriptor, "wb") as file:
        torch.save(state, file)
    shutil.move(temporary, path)
    return path


def positioned(state: State, path: str) -> str:
    """HDF5's way: pwrite at offsets, a header that is rewritten at the end."""
    path = os.path.splitext(path)[0] + ".h5"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        offset = 4096
        for tensor in _tensors(state).values():
            data = tensor.contiguous().view(torch.uint8).numpy().data
            offset += os.pwrite(descriptor, data, offset)
        os.pwrite(descriptor, b"\0" * 4096, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return path


WRITERS: dict[str, Callable[[State, str], str]] = {
    writer.__name__: writer
    for writer in (
        save_path,
        save_path_fsync,
        save_file,
        save_file_fsync,
        safetensors_like,
        mkstemp_rename,
        copy_across,
        positioned,
    )
}


def payload(size: int, pieces: int = 16) -> list[torch.Tensor]:
    """Tensors of ``size`` bytes in all, made once, so that a save writes and does not allocate."""
    return [torch.full((max(size // pieces // 4, 1),), float(i)) for i in range(pieces)]


def _tensors(state: State) -> dict[str, torch.Tensor]:
    named = {f"model.{name}": tensor for name, tensor in state["model"].items()}
    named.update({f"extra.{i}": tensor for i, tensor in enumerate(state["extra"])})
    return named

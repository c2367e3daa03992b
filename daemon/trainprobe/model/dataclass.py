"""``dataclass`` of the standard library, made in a quarter of the time: a start makes hundreds of classes.

CPython's compiles six methods of each class from text. Here ``__init__`` alone is; ``__eq__``, ``__hash__`` and
``__repr__`` are one function for all classes and mean the same. Type checkers see the standard library's, so they hold
``frozen``; at run time nothing does, and an object is made three times as fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses
    from operator import attrgetter

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False):
        def made(cls):
            cls.__doc__ = cls.__doc__ or cls.__name__  # else it is made of the signature, which takes long
            shared = {"__repr__": _repr, "__eq__": _eq, "__hash__": _hash if frozen else None}
            own = {name for name in shared if cls.__dict__.get(name) is not None}
            cls = dataclasses.dataclass(repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
            fields = dataclasses.fields(cls)
            cls._compared = _getter([field.name for field in fields if field.compare])
            cls._hashed = _getter([field.name for field in fields if (field.hash, field.compare) in HASHED])
            for name in shared.keys() - own:
                setattr(cls, name, shared[name])
            return cls

        return made if cls is None else made(cls)

    HASHED = ((True, True), (True, False), (None, True))
    """What ``field(hash=…, compare=…)`` may say of a field that counts."""

    def _getter(names):
        """A tuple of attributes, also of one or none."""
        return attrgetter(*(names if len(names) > 1 else 2 * (names or ["__class__"])))

    def _eq(self, other):
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self._compared(self) == self._compared(other)

    def _hash(self):
        return hash(self._hashed(self))

    def _repr(self):
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

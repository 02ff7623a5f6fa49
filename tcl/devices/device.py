"""The description of one device: its TVM target, how it is reached and what is known about it."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tcl.errors import BadInput

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]*")
NAME_LENGTH = 64
_RESERVED = ("workloads", "workloads.parquet")
"""What lies beside the devices' records has these names."""
_TEXTS = ("cpu_model", "cpu", "gpu_model", "isa")
_NUMBERS = {  # the largest of each
    "cores": 1 << 16,
    "sm_count": 1 << 16,
    "vector_bits": 1 << 16,
    "l1d_bytes": 1 << 40,
    "l2_bytes": 1 << 40,
    "l3_bytes": 1 << 40,
    "clock_hz": 1 << 40,
}
_FIELDS = {"name", "target", "rpc", "facts"}
_DEFAULT_VECTOR_BITS = 128


@dataclass(frozen=True)
class Rpc:
    """A TVM RPC tracker through which a device is reached.

    Attributes
    ----------
    host, port
        The tracker's address.
    key
        The key under which the device's servers registered at the tracker.
    """

    host: str
    port: int
    key: str

    def __post_init__(self) -> None:
        for name in ("host", "key"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise BadInput(
                    f"the device's rpc.{name} must be a non-empty text, not {getattr(self, name)!r}"
                )
        if type(self.port) is not int or not 0 < self.port < 65536:
            raise BadInput(f"the device's rpc.port must be a number from 1 to 65535, not {self.port!r}")


@dataclass(frozen=True)
class Device:
    """A device; valid by construction.

    Attributes
    ----------
    name
        Lower-case letters, digits, '.', '_' and '-', at most 64; it names files and registered models.
    target
        TVM target as JSON, e.g. ``{"kind": "llvm", "mcpu": "znver4", "num-cores": 2}``.
    rpc
        How the device is reached; None is this host.
    facts
        What is known of ``cpu_model``, ``cpu`` (LLVM's name of the machine's CPU, also where the target is weaker),
        ``isa``, ``cores``, ``l1d_bytes``, ``l2_bytes``, ``l3_bytes``, ``vector_bits``; of a GPU ``gpu_model``,
        ``sm_count``, ``clock_hz``.

    Raises
    ------
    BadInput
        From the constructor, when a field is not as described.
    """

    name: str
    target: dict[str, Any]
    rpc: Rpc | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(self.name)
        where = f"device {self.name!r}"
        if not isinstance(self.target, dict):
            raise BadInput(f"{where}: the target must be a JSON object, not {type(self.target).__name__}")
        kind = self.target.get("kind")
        if not isinstance(kind, str) or not kind:
            raise BadInput(f'{where}: the target needs a "kind", e.g. {{"kind": "llvm", "num-cores": 4}}')
        if kind == "llvm" or "num-cores" in self.target:
            cores = self.target.get("num-cores")
            if type(cores) is not int or cores < 1:
                raise BadInput(
                    f'{where}: the target needs a positive "num-cores" (the threads to use), not {cores!r}'
                )
        if self.rpc is not None and not isinstance(self.rpc, Rpc):
            raise BadInput(f"{where}: rpc must be host, port and key, not {self.rpc!r}")
        if not isinstance(self.facts, dict):
            raise BadInput(f"{where}: the facts must be a JSON object, not {type(self.facts).__name__}")
        for fact, value in self.facts.items():
            if fact in _TEXTS and not isinstance(value, str):
                raise BadInput(f"{where}: the fact {fact!r} must be a text, not {value!r}")
            most = _NUMBERS.get(fact)
            if most is not None and not (type(value) in (int, float) and 0 <= value <= most):
                raise BadInput(f"{where}: the fact {fact!r} must be a number from 0 to {most}, not {value!r}")
        try:
            json.dumps(asdict(self), allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInput(f"{where}: target and facts must be plain JSON ({error})") from None

    @property
    def num_cores(self) -> int:
        """Threads a program may use on the device (1 where the target does not say)."""
        return int(self.target.get("num-cores", 1))

    @property
    def vector_bits(self) -> int:
        """Width of the widest vector register that the target's code uses, in bits."""
        return int(self.facts.get("vector_bits", _DEFAULT_VECTOR_BITS))

    def identity(self) -> str:
        """Return a hash, in hex, of all content but the name: equal devices stay equal when renamed."""
        content = {key: value for key, value in self.to_json().items() if key != "name"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the device as a JSON object; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> "Device":
        """Read what `to_json` returned.

        Raises
        ------
        BadInput
            When `value` is not a device.
        """
        if not isinstance(value, dict):
            raise BadInput(f"a device must be a JSON object, not {type(value).__name__}")
        unknown, missing = sorted(set(value) - _FIELDS), sorted({"name", "target"} - set(value))
        if unknown:
            raise BadInput(f"a device has no field {unknown[0]!r}; allowed: {', '.join(sorted(_FIELDS))}")
        if missing:
            raise BadInput(f"a device needs the field {missing[0]!r}")
        rpc = value.get("rpc")
        if rpc is not None:
            if not isinstance(rpc, dict) or set(rpc) != {"host", "port", "key"}:
                raise BadInput("a device's rpc must be null or an object with host, port and key")
            rpc = Rpc(**rpc)
        return cls(name=value["name"], target=value["target"], rpc=rpc, facts=value.get("facts") or {})


def check_name(name: Any, path: Path | None = None) -> str:
    """Return `name` when it can name a device.

    Parameters
    ----------
    name
        The name.
    path
        The file or folder that has it, for the error message.

    Raises
    ------
    BadInput
        When it cannot (other characters than the pattern's, too long, a path in disguise, or taken).
    """
    where = f"{path}: " if path else ""
    if name in _RESERVED:
        raise BadInput(f"{where}no device can be named {name!r}: the records' workloads are")
    if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name) or len(name) > NAME_LENGTH:
        raise BadInput(
            f"{where}{name!r} is no device name: use lower-case letters, digits, '.', '_' and '-', the first one a"
            f" letter or digit, at most {NAME_LENGTH} characters"
        )
    return name


def parse_device(name: str, target: str, rpc: str | None = None, key: str | None = None) -> Device:
    """Make a device from the texts of a command line.

    Parameters
    ----------
    name
        The device's name.
    target
        The TVM target as JSON text.
    rpc
        The RPC tracker as HOST:PORT; None: the device is this host.
    key
        The device's key at the tracker; needed with `rpc`.

    Raises
    ------
    BadInput
        When a text is not as described.
    """
    try:
        parsed = json.loads(target)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"device {name!r}: the target is not JSON ({error}); write for example"
            ' \'{"kind": "llvm", "num-cores": 4}\''
        ) from None
    return Device(name, parsed, parse_rpc(name, rpc, key))


def parse_rpc(name: str, rpc: str | None, key: str | None) -> Rpc | None:
    """Make the address of a device from the texts of a command line, as `parse_device` takes them."""
    if (rpc is None) != (key is None):
        raise BadInput(f"device {name!r}: give both an RPC tracker (HOST:PORT) and a key, or none of them")
    if rpc is None or key is None:
        return None
    host, _, port = rpc.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise BadInput(f"device {name!r}: the RPC tracker must be HOST:PORT, not {rpc!r}")
    return Rpc(host.strip("[]"), int(port), key)


def is_other_cpu(facts: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether the facts of two devices name different CPUs; what one of them does not tell is no difference.

    Hypervisors may give all CPUs of a vendor one model name, so LLVM's name counts as well.
    """
    return any(facts[key] != others[key] for key in ("cpu_model", "cpu") if key in facts and key in others)


def cpu_name(facts: Mapping[str, Any]) -> str:
    """The CPU in words, e.g. "AMD EPYC (znver4)"."""
    return f"{facts.get('cpu_model', 'an unknown CPU')}" + (f" ({facts['cpu']})" if "cpu" in facts else "")

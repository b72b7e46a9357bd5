"""Trust in what the folder of an index names: models and databases, which can run code.

A folder may come from somebody else. What it names is used only if the caller names it too, or
trusts the folder, or has named it before on this machine. The latter is known by a signature in the
folder, made with a key that never leaves the user's home. It covers the path of the folder, so
nobody can copy the signature of one folder to another.
"""

from __future__ import annotations

import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

_KEY_BYTES = 32


def sign(folder: Path, name: str) -> str:
    """Return the signature of a name that the caller has given; empty if no key can be kept.

    Examples
    --------
    >>> signature = sign(Path("index"), "models/mine")
    >>> is_signed(Path("index"), "models/theirs", signature)
    False
    """
    key = _key()
    signed = f"{folder.resolve()}\0{name}".encode(errors="surrogateescape")
    return hmac.new(key, signed, "sha256").hexdigest() if key else ""


def is_signed(folder: Path, name: str, signature: object) -> bool:
    """Return whether this user has signed a name for a folder at this place."""
    expected = sign(folder, name)
    return bool(expected) and hmac.compare_digest(expected, str(signature))


def untrusted(folder: Path, what: str, option: str) -> ValueError:
    """Return the error for something that only the folder names."""
    return ValueError(
        f"only {folder} names {what}, which can run code or see credentials: name it with {option}, "
        "or say trust_index=True (--trust) if you trust whoever made the index"
    )


def _key() -> bytes:
    """Return the key of this user, made at the first use; empty if there is no place for it."""
    with suppress(OSError, RuntimeError):  # the latter if the user has no home
        state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        path = Path(state).expanduser() / "pylate-eigenli" / "key"
        with suppress(FileExistsError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
                new.write(secrets.token_bytes(_KEY_BYTES))
        key = path.read_bytes()
        if len(key) == _KEY_BYTES:  # another process may be writing it
            return key
    return b""

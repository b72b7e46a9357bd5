"""How an index was made, as its catalogue says: of texts or pages, with which model, by whom."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ..models.default import cache_folder
from ..models.encoder import Encoder, is_folder, is_gone
from ..storage.trust import is_signed, sign

_OF_THE_HUB = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")


def origin_of(path: Path, encoder: Encoder) -> dict[str, str]:
    """Return the facts that a catalogue keeps about the model of its documents."""
    return {
        "model": encoder.name,
        "fingerprint": encoder.fingerprint,
        "signature": sign(path, encoder.name),
    }


def check_same_model(path: Path, about: Mapping[str, str], encoder: Encoder) -> None:
    """Raise an error if a model is not the one that encoded the documents of an index.

    Models are known by the fingerprints of their files, wherever these are. Names decide only if
    one of the fingerprints is not known.
    """
    made_with = about.get("model")
    if made_with is None:
        return
    recorded, given = about.get("fingerprint"), encoder.fingerprint
    if recorded and given:
        if recorded != given:
            raise ValueError(
                f"{path} was made with the model {made_with}"
                + (
                    ", which has changed since: its embeddings no longer fit; index the documents "
                    "again with override=True (--override), or restore the model"
                    if made_with == encoder.name
                    else f", not {encoder.name}"
                )
            )
    elif made_with != encoder.name and not is_gone(made_with):
        raise ValueError(f"{path} was made with the model {made_with}, not {encoder.name}")


def is_trusted(path: Path, about: Mapping[str, str], runs_code: bool = False) -> bool:
    """Return whether the model that a catalogue names can be used without being named again.

    sentence-transformers imports Python classes from the folder of a model, but not from the Hub.
    """
    name = about.get("model", "")
    if not runs_code and _OF_THE_HUB.fullmatch(name) and not is_folder(name):
        return True
    if is_signed(path, name, about.get("signature")):
        return True
    return is_folder(name) and Path(name).resolve().is_relative_to(cache_folder().resolve())

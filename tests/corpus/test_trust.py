"""The folder of an index from somebody else runs nothing and contacts nobody."""

from __future__ import annotations

import json
import pickle
import shutil
import sqlite3
import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pylate_eigenli import EigenLISVIndex, open_index
from pylate_eigenli.cli import app
from pylate_eigenli.corpus.catalogue import Catalogue
from pylate_eigenli.corpus.committing import verify
from pylate_eigenli.corpus.document import Document
from pylate_eigenli.corpus.page_index import open_corpus
from pylate_eigenli.corpus.text_index import TextIndex
from pylate_eigenli.indexes import databases
from pylate_eigenli.indexes.ann import accelerator
from pylate_eigenli.indexes.ann.voyager import VoyagerBackend
from pylate_eigenli.indexes.registry import type_of
from pylate_eigenli.models.fingerprint import fingerprint_of

DOCUMENTS = [Document("apple", "red fruit"), Document("sky", "blue")]


@pytest.fixture
def another_user(tmp_path, monkeypatch):
    """Return a function that makes this process one of another user, who has another key."""
    return lambda: monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.output


class TestModels:
    @pytest.fixture
    def payload(self, tmp_path, tiny_model):
        """A model whose code makes a file."""
        model = tmp_path / "model"
        shutil.copytree(tiny_model, model)
        modules = json.loads((model / "modules.json").read_text())
        modules[0]["type"] = "payload.Module"
        (model / "modules.json").write_text(json.dumps(modules))
        (model / "payload.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
            "from sentence_transformers.models import Transformer as Module\n"
        )
        return model

    @pytest.fixture
    def received(self, tmp_path, tiny_model, payload, another_user):
        with TextIndex(tmp_path / "index", model=str(tiny_model), k=4) as index:
            index.add_documents(DOCUMENTS)
        another_user()
        return tmp_path / "index"

    @pytest.mark.parametrize("relative", [False, True])
    def test_that_only_the_folder_names_are_not_loaded(
        self, received, payload, relative, monkeypatch
    ):
        monkeypatch.chdir(payload.parent)
        name = payload.name if relative else str(payload)
        with sqlite3.connect(received / "texts.sqlite") as connection:
            connection.execute("UPDATE about SET value = ? WHERE name = 'model'", (name,))
            forged = (fingerprint_of(str(payload)),)
            connection.execute("UPDATE about SET value = ? WHERE name = 'fingerprint'", forged)
        for command in ("info", "verify", "compact"):
            run(command, received)
        for command in ("search", "add"):
            output = run(command, received, payload / "README.md", code=1)
            assert output.startswith(f"error: only {received} names the model {name}, which can")
            assert len(output.splitlines()) == 1
        with open_corpus(received) as index, pytest.raises(ValueError, match="trust_index=True"):
            index.spectra(["apple"])
        assert not (payload.parent / "ran").exists()
        with open_corpus(received, trust_index=True) as index:
            assert index.answers(["red"])[0].hits
        assert (payload.parent / "ran").exists()

    @pytest.mark.parametrize(
        "name",
        ["\0", "x" * 5000, "/" + "x/" * 3000, "/proc/1/root"],
        ids=["no characters", "long", "long path", "not mine"],
    )
    def test_with_names_that_no_folder_has_are_not_loaded(self, received, name):
        with sqlite3.connect(received / "texts.sqlite") as connection:
            connection.execute("UPDATE about SET value = ? WHERE name = 'model'", (name,))
        assert verify(received) == []
        with open_corpus(received) as index:
            assert index.answers([np.eye(8)[:2]])[0].hits
            with pytest.raises(ValueError, match=r"names the model|is no longer in"):
                index.answers(["red"])

    def test_are_used_if_they_are_named_now_or_were_before(self, received, tiny_model, monkeypatch):
        with open_corpus(received) as index, pytest.raises(ValueError, match=r"only .* names"):
            index.answers(["red"])
        with open_corpus(received, str(tiny_model)) as index:
            found = index.answers(["red"])[0].hits
            index.add_documents(DOCUMENTS)  # which signs
        with open_corpus(received) as index:
            assert index.answers(["red"])[0].hits == found
        received.rename(received.parent / "moved")
        with (
            open_corpus(received.parent / "moved") as index,
            pytest.raises(ValueError, match=r"only .* names"),
        ):
            index.answers(["red"])

    def test_a_signature_is_of_one_model(self, received, tiny_model, payload):
        with open_corpus(received, str(tiny_model)) as index:
            index.add_documents(DOCUMENTS)
        with sqlite3.connect(received / "texts.sqlite") as connection:
            connection.execute("UPDATE about SET value = ? WHERE name = 'model'", (str(payload),))
        with open_corpus(received) as index, pytest.raises(ValueError, match=r"only .* names"):
            index.answers(["red"])

    def test_of_the_hub_are_used_but_not_their_code(self, received):
        with sqlite3.connect(received / "texts.sqlite") as connection:
            connection.execute("UPDATE about SET value = 'nobody/colbert' WHERE name = 'model'")
        with open_corpus(received) as index:
            assert index.encoder.name == "nobody/colbert"
            with pytest.raises(ValueError, match=r"only .* names the model nobody/colbert"):
                index.check_trust(runs_code=True)

    def test_of_the_cache_of_this_library_are_used(self, received, payload, monkeypatch):
        """The default model is there, and nobody else writes to it."""
        monkeypatch.setenv("EIGENLI_CACHE", str(payload.parent))
        with open_corpus(received) as index, pytest.raises(ValueError, match=r"only .* names"):
            index.check_trust()
        with sqlite3.connect(received / "texts.sqlite") as connection:
            connection.execute("UPDATE about SET value = ? WHERE name = 'model'", (str(payload),))
        with open_corpus(received) as index:
            index.check_trust()

    def test_without_a_home_are_named_every_time(self, tmp_path, tiny_model, monkeypatch):
        monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
        with TextIndex(tmp_path / "index", model=str(tiny_model), k=4) as index:
            index.add_documents(DOCUMENTS)
            assert index.answers(["red"])[0].hits
        with TextIndex(tmp_path / "index") as again, pytest.raises(ValueError, match="names"):
            again.answers(["red"])
        assert verify(tmp_path / "index") == []


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


class TestDatabases:
    @pytest.fixture
    def received(self, tmp_path, another_user):
        """An index whose embedded database runs code when it is opened."""
        pytest.importorskip("qdrant_client")
        settings = {"single_vector": True, "backend": "qdrant", "k": 2}
        with TextIndex(tmp_path / "index", **settings) as index:
            index.add_documents(DOCUMENTS, [np.eye(8), np.eye(8)])
        with TextIndex(tmp_path / "index") as again:
            assert len(again) == 2
        (rows,) = (tmp_path / "index.qdrant").rglob("storage.sqlite")
        with sqlite3.connect(rows) as connection:
            payload = pickle.dumps(Payload(tmp_path / "ran"))
            connection.execute("INSERT INTO points VALUES ('1', ?)", (payload,))
        another_user()
        return tmp_path / "index"

    def test_that_only_the_folder_names_are_not_opened(self, received, tmp_path):
        for command in (("info",), ("search", "red"), ("remove", "apple"), ("compact",)):
            output = run(command[0], received, *command[1:], code=1)
            assert output.startswith(f"error: only {received} names the qdrant database next to it")
        for arguments in ({}, {"backend": "qdrant"}):
            with pytest.raises(ValueError, match="trust_index=True"):
                EigenLISVIndex(str(tmp_path), "index", **arguments)
        run("verify", received)
        assert not (tmp_path / "ran").exists()
        with pytest.raises(Exception):  # noqa: B017, PT011  (a payload is no document)
            EigenLISVIndex(str(tmp_path), "index", trust_index=True)
        assert (tmp_path / "ran").exists()

    @pytest.mark.parametrize("backend", ["qdrant", "milvus"])
    def test_credentials_go_to_no_server_that_only_the_folder_names(
        self, backend, tmp_path, monkeypatch
    ):
        pytest.importorskip({"qdrant": "qdrant_client", "milvus": "pymilvus"}[backend])
        settings = {"k": 2, "backend": "exact", "dtype": "float32", "show_progress": False}
        with EigenLISVIndex(str(tmp_path), "index", **settings) as index:
            index.add_documents(["a"], [np.eye(8)])
            store = index._collection.store
            with store.transaction() as transaction:
                transaction.meta["uri"] = "https://192.0.2.1:9"
                transaction.meta["settings"]["backend"] = backend
        monkeypatch.setattr(databases, "connect", pytest.fail)
        monkeypatch.setenv("QDRANT_API_KEY", "secret")
        with pytest.raises(ValueError, match=f"the {backend} database https://192.0.2.1:9"):
            EigenLISVIndex(str(tmp_path), "index")

    @pytest.mark.parametrize("backend", ["qdrant", "milvus"])
    @pytest.mark.parametrize("given", [True, False])
    def test_credentials_are_sent_with_tls_or_to_this_machine_only(
        self, backend, given, monkeypatch
    ):
        pytest.importorskip({"qdrant": "qdrant_client", "milvus": "pymilvus"}[backend])
        kind = type_of(backend)
        monkeypatch.setattr(kind, "__init__", lambda self, *arguments: None)
        monkeypatch.setenv(kind.token_variable, "" if given else "secret")
        token = "secret" if given else None
        for uri in ("http://example.org:1", "tcp://10.0.0.1", "http://localhost.example.org"):
            with pytest.raises(ValueError, match="would get the credentials unencrypted"):
                databases.connect(backend, uri, token, "index")
        for uri in (
            "https://example.org",
            "http://localhost:1",
            "http://127.0.0.2",
            "http://[::1]",
        ):
            databases.connect(backend, uri, token, "index")
        monkeypatch.delenv(kind.token_variable)
        databases.connect(backend, "http://example.org:1", None, "index")

    def test_an_export_does_not_sign_what_its_source_has_not_signed(self, tmp_path, another_user):
        pytest.importorskip("qdrant_client")
        with TextIndex(tmp_path / "index", k=2) as index:
            index.add_documents(DOCUMENTS, [np.eye(8), np.eye(8)])
            index.catalogue.put([], 2, {"model": str(tmp_path), "signature": "forged"})
        run("convert", tmp_path / "index", tmp_path / "index-qdrant", "--backend", "qdrant")
        about = Catalogue(tmp_path / "index-qdrant").about
        assert (about["model"], about["signature"]) == (str(tmp_path), "forged")


class TestStructures:
    """Libraries trust the bytes of their graphs: forged ones can run code."""

    QUERIES = np.random.default_rng(1).standard_normal((2, 4, 8)).astype(np.float32)

    @pytest.fixture
    def received(self, tmp_path, another_user, monkeypatch):
        pytest.importorskip("voyager")
        tokens = np.random.default_rng(0).standard_normal((50, 4, 8)).astype(np.float32)
        with EigenLISVIndex(str(tmp_path), "index", backend="voyager", k=2) as index:
            index.add_documents(range(50), tokens).build()
        another_user()
        monkeypatch.setattr(accelerator, "_made_here", set())
        return tmp_path / "index"

    def test_of_somebody_else_are_not_read_and_documents_are_scanned(self, received, monkeypatch):
        with open_index(received, trust_index=True) as trusted:
            expected = trusted(self.QUERIES, k=3)
        load = VoyagerBackend.from_bytes
        monkeypatch.setattr(VoyagerBackend, "from_bytes", pytest.fail)
        with open_index(received) as index:
            with pytest.warns(UserWarning, match=r"structure of .*index was made by somebody else"):
                assert index(self.QUERIES, k=3) == expected
            with warnings.catch_warnings():  # once is enough
                warnings.simplefilter("error")
                index(self.QUERIES, k=3)
            with pytest.warns(UserWarning, match="index.build"):
                index.add_documents([50], self.QUERIES[:1]).build()
        monkeypatch.setattr(accelerator, "_made_here", set())
        monkeypatch.setattr(VoyagerBackend, "from_bytes", load)
        with open_index(received) as index, warnings.catch_warnings():
            warnings.simplefilter("error")  # it is ours now
            assert index(self.QUERIES, k=3)[0][0]["id"] == 50
        received.rename(received.parent / "moved")
        with (
            open_index(received.parent / "moved") as index,
            pytest.warns(UserWarning, match="or in another folder"),
        ):
            index(self.QUERIES)

    def test_are_used_without_a_key_by_the_process_that_made_them(self, tmp_path, monkeypatch):
        pytest.importorskip("voyager")
        monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
        with (
            EigenLISVIndex(str(tmp_path), backend="voyager", k=2) as index,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("error")
            index.add_documents(range(2), self.QUERIES).build()
            assert index(self.QUERIES, k=1)[1][0]["id"] == 1

    def test_both_views_of_a_server_trust_the_folder(self, received):
        with open_corpus(received, trust_index=True) as corpus, warnings.catch_warnings():
            warnings.simplefilter("error")
            assert corpus.reopened().index(self.QUERIES, k=1) == corpus.index(self.QUERIES, k=1)

"""The server over HTTP: answers, errors, limits and authorisation."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from functools import partial
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from helpers.served import TOKEN

from pylate_eigenli.corpus.document import Document
from pylate_eigenli.corpus.text_index import TextIndex
from pylate_eigenli.server import app as serving
from pylate_eigenli.server.parsing import SMALL
from pylate_eigenli.server.schemas import SearchRequest
from pylate_eigenli.server.service import Service


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=server, headers=headers, timeout=60) as client:
        yield client


def search(client: httpx.Client, **body: object) -> dict:
    response = client.post("/search", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_texts_and_their_embeddings_find_the_same(client, make_index) -> None:
    with TextIndex(make_index()) as index:
        (query,) = index.encoder.encode_queries(["green grass"])
        (tokens,) = index.encoder.query_tokens(["green grass"])
        (expected,) = index.answers(["green grass"], k=3)
    by_text = search(client, queries=["green grass"], top=3, explain=True)
    by_tokens = search(client, queries_embeddings=[query.tolist()], top=3)
    (answer,), (same,) = by_text["results"], by_tokens["results"]
    assert answer["tokens"] == tokens
    assert [hit["id"] for hit in answer["hits"]] == [hit.id for hit in expected.hits]
    for hit, other in zip(answer["hits"], same["hits"], strict=True):
        assert hit["score"] == pytest.approx(other["score"], rel=1e-4)
        assert sum(hit["contributions"]) == pytest.approx(hit["score"], rel=1e-4)


def test_subset_and_rerank_are_those_of_the_index(client) -> None:
    answer = search(client, queries=["red", "blue"], subset=["d3", "d5", "?"], rerank="maxsim")
    assert [{hit["id"] for hit in a["hits"]} for a in answer["results"]] == [{"d3", "d5"}] * 2
    assert "maxsim" in answer["method"]


def test_documents_come_and_go(client) -> None:
    info = client.get("/info").json()
    before = info["documents"]
    assert info["files"] == 0
    added = client.post("/documents", json={"documents": [{"id": 1, "text": "yellow water"}]})
    assert added.json()["documents"] == before + 1
    (answer,) = search(client, queries=["yellow water"], top=1000)["results"]
    assert {"id": 1, "snippet": "yellow water"}.items() <= max(
        answer["hits"], key=lambda hit: hit["id"] == 1
    ).items()
    spectrum = client.post("/spectrum", json={"ids": [1, "?"]}).json()
    assert [s["id"] for s in spectrum["spectra"]] == [1]
    removed = client.request("DELETE", "/documents", json={"ids": [1]}).json()
    assert removed["documents"] == before
    assert removed["generation"] > added.json()["generation"]


@pytest.mark.parametrize(
    ("body", "status", "culprit"),
    [
        ({}, 422, "either queries or queries_embeddings"),
        ({"queries": ["a"], "kk": 3}, 422, "kk"),
        ({"queries": ["a"], "top": 0}, 422, "top"),
        ({"queries_embeddings": [[[1.0, 2.0]]]}, 400, "query 0 has dimension 2, expected 8"),
        ({"queries_embeddings": [[[1.0], [1.0, 2.0]]]}, 422, "queries_embeddings.0: "),
        ({"queries": ["a"], "rerank": "eigenlii"}, 422, "rerank"),
        ({"queries": [""]}, 422, "body.queries.0: "),
        ({"queries": ["red", " \n"]}, 422, "body.queries.1: the query is empty"),
        ({"queries": ["a"], "where": {"no": 1}}, 400, "no document of the index has metadata"),
        ({"queries": ["a"], "where": {"year": {"ge": 1}}}, 422, "where.year"),
        ({"queries": ["a"], "where": {"year": [[1]]}}, 422, "where.year: give a value, a list"),
        ({"queries": ["a"], "where": {"year": []}}, 422, "where.year: give a value, a list"),
        ({"queries": ["a"], "where": {"a": 1}, "subset": [1]}, 422, "either where or subset"),
    ],
)
def test_a_bad_search_is_refused_in_one_line(client, body, status, culprit) -> None:
    response = client.post("/search", json=body)
    assert response.status_code == status
    assert culprit in response.json()["detail"]


@pytest.mark.parametrize(
    ("body", "culprit"),
    [
        ({"queries": ["a"] * 64, "top": 1000}, "queries x top: 64,000 is more than the 10,000"),
        ({"queries": ["a"] * 64, "n_candidates": 100_000}, "queries x n_candidates: 6,400,000"),
        ({"queries": ["a"], "n_candidates": 10_000_000}, "n_candidates"),
        ({"queries_embeddings": [[[1.0]] * 2500] * 2}, "tokens of all queries: 5,000"),
        ({"queries_embeddings": [[[1.0]] * 1000], "top": 1000, "explain": True}, "1,000,000"),
        ({"queries": ["a" * 1000], "top": 1000, "explain": True}, "query tokens x top to explain"),
        ({"queries": ["a"], "subset": [1] * 100_001}, "subset"),
    ],
)
def test_a_search_that_would_take_too_long_is_refused_before_it_begins(
    client, body, culprit
) -> None:
    response = client.post("/search", json=body)
    assert response.status_code == 422
    assert culprit in response.json()["detail"]


def test_bad_values_that_json_can_spell_are_refused(client) -> None:
    for text in ('{"queries": ["\\ud800"]}', '{"queries_embeddings": [[[NaN]]]}', '{"top": 1e999}'):
        response = client.post(
            "/search", content=text, headers={"Content-Type": "application/json"}
        )
        assert response.status_code in (400, 422)
        assert "Content-Type" not in response.text


def test_a_body_that_is_not_sent_as_json_is_told_how(client) -> None:
    plain = client.post("/search", content='{"queries": ["red"]}')
    assert (plain.status_code, plain.json()["detail"]) == (
        422,
        "send JSON with Content-Type: application/json",
    )
    broken = client.post("/search", content="{", headers={"Content-Type": "application/json"})
    assert broken.status_code == 422
    assert broken.json()["detail"].startswith("the body is not JSON: ")


def test_a_body_of_no_type_is_refused_by_every_version_of_fastapi(make_index, monkeypatch) -> None:
    # Before 0.132 it was read as JSON, which lets any web page write to a server on its machine.
    monkeypatch.setattr(serving, "FastAPI", partial(FastAPI, strict_content_type=False))
    body = b'{"documents": [{"id": "evil", "text": "red"}]}'

    async def sent(app: FastAPI, **headers: str) -> int:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return (await client.post("/documents", content=body, headers=headers)).status_code

    service = Service(make_index())
    before = service.info().generation
    app = serving.create_app(service)
    assert asyncio.run(sent(app)) == 422
    assert asyncio.run(sent(app, **{"Content-Type": "text/plain"})) == 422
    assert service.info().generation == before
    assert asyncio.run(sent(app, **{"Content-Type": "application/json; charset=utf-8"})) == 200
    service.close()


def test_changes_that_would_wait_too_long_are_refused(make_index) -> None:
    release = threading.Event()

    class Slow(Service):
        def add(self, documents):
            release.wait(60)
            return super().add(documents)

    async def crowd(app: FastAPI) -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:

            async def add(number: int) -> int:
                body = {"documents": [{"id": number, "text": "red"}]}
                return (await client.post("/documents", json=body)).status_code

            calls = [asyncio.create_task(add(number)) for number in range(30)]
            while sum(call.done() for call in calls) < 13:
                await asyncio.sleep(0.01)
            release.set()
            return await asyncio.gather(*calls)

    service = Slow(make_index())
    statuses = asyncio.run(crowd(serving.create_app(service)))
    service.close()
    # One at work and 16 waiting, or 16 if it was still waiting itself when the others came.
    assert statuses.count(200) in (16, 17)
    assert statuses.count(200) + statuses.count(429) == 30


@pytest.mark.parametrize("backend", ["qdrant", "milvus"])
def test_an_index_in_an_embedded_database_is_served(backend, tmp_path, tiny_model) -> None:
    pytest.importorskip({"qdrant": "qdrant_client", "milvus": "milvus_lite"}[backend])
    settings = {"single_vector": True, "backend": backend, "k": 4}
    with TextIndex(tmp_path / "index", model=str(tiny_model), **settings) as index:
        index.add_documents([Document("apple", "the apple is red")])

    async def scenario(app: FastAPI) -> dict:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            body = {"documents": [{"id": "sky", "text": "the sky is blue"}]}
            assert (await client.post("/documents", json=body)).json()["documents"] == 2
            answer = await client.post("/search", json={"queries": ["the sky is blue"], "top": 1})
            return answer.json()["results"][0]["hits"][0]

    service = Service(tmp_path / "index")
    service.warm_up()
    hit = asyncio.run(scenario(serving.create_app(service)))
    service.close()
    assert (hit["id"], hit["snippet"]) == ("sky", "the sky is blue")


def test_a_change_that_cannot_be_made_whole_is_not_made(client) -> None:
    before = client.get("/info").json()["generation"]
    response = client.request("DELETE", "/documents", json={"ids": ["d0", "nobody"]})
    assert (response.status_code, response.json()["detail"]) == (
        404,
        "1 of 2 documents are not in the index: 'nobody'",
    )
    documents = [{"id": "d0", "text": "new"}, {"id": "x", "embeddings": [[1.0, 2.0]]}]
    assert client.post("/documents", json={"documents": documents}).status_code == 400
    assert client.get("/info").json()["generation"] == before
    (answer,) = search(client, queries=["red"], subset=["d0"])["results"]
    assert answer["hits"][0]["snippet"] == "the apple is red"


def test_a_filter_is_that_of_the_index(make_index) -> None:
    languages = {"red": "en", "rot": "de", "rouge": "fr"}
    documents = [
        {"id": text, "text": text, "metadata": {"lang": lang, "model": "x"}}
        for text, lang in languages.items()
    ]

    async def found(client: httpx.AsyncClient, where: dict, fill: int = 0) -> set[str]:
        body = json.dumps({"queries": ["red"], "where": where}) + " " * fill
        headers = {"Content-Type": "application/json"}
        answer = await client.post("/search", content=body, headers=headers)
        (result,) = answer.json()["results"]
        return {hit["id"] for hit in result["hits"]}

    async def scenario(app: FastAPI) -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            added = await client.post("/documents", json={"documents": documents})
            assert added.status_code == 200, added.text
            assert await found(client, {"lang": "de"}) == {"rot"}
            assert await found(client, {"lang": ["de", "fr"]}) == {"rot", "rouge"}
            assert await found(client, {"lang": {"gte": "en"}}) == {"red", "rouge"}
            # Also of a body that another process parses, whatever its names are.
            assert await found(client, {"model": "x", "lang": "en"}, fill=SMALL) == {"red"}
            # In the address of a search it is written as on the command line.
            written = {"q": "red", "where": ["lang>=en", "model=x"]}
            (result,) = (await client.get("/search", params=written)).json()["results"]
            assert {hit["id"] for hit in result["hits"]} == {"red", "rouge"}
            # Together with others, each gets its own.
            both = await asyncio.gather(*(found(client, {"lang": x}) for x in ("en", "fr")))
            assert both == [{"red"}, {"rouge"}]

    service = Service(make_index())
    asyncio.run(scenario(serving.create_app(service)))
    service.close()


def test_whole_texts_are_there_for_those_who_ask(client, monkeypatch, make_index) -> None:
    (plain,) = search(client, queries=["red apple"], top=2)["results"]
    assert [hit["text"] for hit in plain["hits"]] == [None, None]
    (whole,) = search(client, queries=["red apple"], top=2, include_text=True)["results"]
    address = {"q": "red apple", "top": 2, "include_text": True}
    by_address = client.get("/search", params=address)
    assert by_address.json()["results"] == [whole]
    for hit in whole["hits"]:
        assert hit["score"] > 0
        assert 0 < hit["share"] <= 1
        document = client.get(f"/documents/{quote(hit['id'], safe='')}").json()
        assert document.items() <= hit.items()
    assert client.get("/documents/d0").json() == {
        "id": "d0", "title": "T0", "text": "the apple is red", "metadata": {}, "file": None,
        "page": None,
    }  # fmt: skip


def test_a_text_may_be_too_long_for_an_answer(make_index, monkeypatch) -> None:
    monkeypatch.setattr("pylate_eigenli.server.service.MAX_TEXT", 20)
    service = Service(make_index())
    with pytest.raises(ValueError, match=r"ask for fewer, or for one at a time with GET"):
        service.search([SearchRequest(queries=["red"], include_text=True)])
    service.close()


def test_a_document_has_an_address_whatever_its_id(client) -> None:
    ids = [7, "8", "a/b.md#1", "\u00e9 ?", "two\nlines\n"]
    documents = [{"id": i, "text": f"text of {i}", "metadata": {"n": 1.5}} for i in ids]
    assert client.post("/documents", json={"documents": documents}).status_code == 200
    for document in documents:
        answer = client.get(f"/documents/{quote(str(document['id']), safe='')}").json()
        assert document.items() <= answer.items()
    client.request("DELETE", "/documents", json={"ids": ids})
    gone = client.get("/documents/7")
    assert (gone.status_code, gone.json()["detail"]) == (404, "no document '7' in the index")


@pytest.mark.parametrize(
    "query",
    ["", "?q=", "?q=%20", "?q=red&top=0", "?q=red&top=1001", "?q=red&k=3", "?q=red&where=year"],
)
def test_a_bad_address_of_a_search_is_refused(client, query) -> None:
    response = client.get(f"/search{query}")
    assert response.status_code == 422
    assert response.json()["detail"].startswith("query.")


class TestAccess:
    def test_without_the_token_only_the_page_and_health_answer(self, server) -> None:
        for path in ("/", "/health"):
            assert httpx.get(server + path).status_code == 200
        for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
            for path in ("/info", "/search?q=red", "/documents/d0"):
                assert httpx.get(server + path, headers=given).status_code == 401
            body = {"documents": [{"id": 1, "text": "a"}]}
            assert httpx.post(server + "/documents", json=body, headers=given).status_code == 401

    @pytest.mark.parametrize("token", ["", " ", "p\u00e4ss", "two\nlines", "open sesame "])
    def test_a_token_that_no_request_can_bring_is_refused(self, token, make_index) -> None:
        service = Service(make_index())
        with pytest.raises(ValueError, match="printable ASCII"):
            serving.create_app(service, token=token)
        service.close()

    def test_a_foreign_host_name_is_refused(self, server) -> None:
        assert httpx.get(server + "/health", headers={"Host": "evil.example"}).status_code == 400

    def test_large_bodies_are_refused_announced_or_not(self, client) -> None:
        body = b'{"queries": ["' + b"a" * (1 << 20) + b'"]}'
        assert client.post("/search", content=body).status_code == 413

        def in_pieces() -> Iterator[bytes]:
            yield from (body[i : i + 65536] for i in range(0, len(body), 65536))

        assert client.post("/search", content=in_pieces()).status_code == 413

    def test_the_page_may_run_nothing_but_its_own_script(self, server) -> None:
        response = httpx.get(server)
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in response.text.replace("http://www.w3.org/2000/svg", "")

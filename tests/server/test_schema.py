"""Whatever the OpenAPI description allows, and much that it does not: never a server error."""

from __future__ import annotations

import pytest
import schemathesis
from helpers.served import TOKEN
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def operations(server):
    schema = schemathesis.openapi.from_url(f"{server}/openapi.json")
    return [result.ok() for result in schema.get_all_operations()]


@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_no_request_is_a_server_error(operations, mode) -> None:
    mode = getattr(schemathesis.GenerationMode, mode)
    assert {operation.path for operation in operations} == {
        "/health", "/info", "/search", "/spectrum", "/documents", "/documents/{id}"
    }  # fmt: skip
    strategies = [
        operation.as_strategy(generation_mode=mode)
        for operation in operations
        if mode == schemathesis.GenerationMode.POSITIVE or operation.body
    ]

    @settings(
        max_examples=80,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.one_of(strategies))
    def check(case) -> None:
        response = case.call(headers={"Authorization": f"Bearer {TOKEN}"})
        assert response.status_code < 500, case.as_curl_command()
        assert str(response.status_code) in case.operation.definition.raw["responses"]

    check()

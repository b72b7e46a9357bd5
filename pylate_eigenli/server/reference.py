"""The page at ``/docs``: the API on one page, made from its OpenAPI description.

FastAPI's own page loads Swagger UI from a CDN. Swagger UI hosted here (fastapi-offline) would be
1.5 MB of foreign script beside the reader's token, and it needs ``unsafe-inline`` in the content
security policy (swagger-api/swagger-ui#5817, #10655), which the pages of this server do not allow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; }
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem; line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h2 { margin-top: 2.5rem; } h2 code { font-size: 1.15rem; } h3 { margin: 1.25rem 0 .25rem; font-size: 1rem; }
code, pre { font-family: ui-monospace, Consolas, monospace; font-size: .875rem; }
pre { overflow-x: auto; padding: .75rem 1rem; border: 1px solid #8885; border-radius: .5rem; }
table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid #8885; padding: .3rem .75rem .3rem 0; vertical-align: top; }
td:first-child { white-space: nowrap; width: 13rem; }
"""

_EXAMPLES = {
    ("post", "/search"): '{"queries": ["how do I bake bread?"], "k": 3}',
    ("post", "/spectrum"): '{"ids": ["bread.txt#1"]}',
    ("post", "/documents"): '{"documents": [{"id": "new", "text": "Penguins swim."}]}',
    ("delete", "/documents"): '{"ids": ["new"]}',
}


def reference(openapi: dict[str, Any]) -> str:
    """Return the page.

    Parameters
    ----------
    openapi
        The description that FastAPI makes of an application.

    Examples
    --------
    >>> from fastapi import FastAPI
    >>> app = FastAPI(title="Small")
    >>> @app.get("/health")
    ... def health() -> dict[str, str]:
    ...     "Say that all is well."
    ...     return {}
    >>> "<p>Say that all is well.</p>" in reference(app.openapi())
    True
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(openapi['info']['title'])} API</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(_body(openapi))}</body></html>"
    )


def _body(openapi: dict[str, Any]) -> Iterator[str]:
    about = openapi["info"]
    schemas = openapi.get("components", {}).get("schemas", {})
    operations = [
        (method, path, operation)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    ]
    yield f"<h1>{escape(about['title'])} API</h1><p>{escape(about.get('description', ''))} "
    yield 'For programs: <a href="openapi.json">openapi.json</a>. <a href="./">Search page</a>.</p>'
    for method, path, operation in operations:
        yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
        yield f"<p>{escape(operation.get('description', ''))}</p>"
        example = _EXAMPLES.get((method, path))
        if example is not None:
            yield f"<pre>{escape(_curl(method, path, example, 'security' in operation))}</pre>"
        if "requestBody" in operation:
            yield from _content("Request", operation["requestBody"], schemas)
        yield from _content("Answer", operation["responses"]["200"], schemas)
    meanings = {
        status: response["description"]
        for *_, operation in operations
        for status, response in operation["responses"].items()
        if status != "200"
    }
    yield "<h2>Errors</h2><p>The body says in one line what is wrong, as <code>detail</code>.</p>"
    yield f"<table>{''.join(_row(*meaning) for meaning in sorted(meanings.items()))}</table>"
    nested = sorted(_referred(schemas))
    if nested:
        yield "<h2>Parts of requests and answers</h2>"
    for name in nested:
        yield f'<h3 id="{name}">{name}</h3>{_fields(schemas[name])}'


def _curl(method: str, path: str, body: str, guarded: bool) -> str:
    how = "" if method == "post" else f" -X {method.upper()}"
    token = ' -H "Authorization: Bearer $TOKEN"' if guarded else ""
    return (
        f"curl{how} http://127.0.0.1:8000{path}{token} "
        f"-H 'Content-Type: application/json' \\\n  -d '{body}'"
    )


def _content(heading: str, part: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    schema = part["content"]["application/json"]["schema"]
    name = schema.get("$ref", "").rpartition("/")[2]
    if name in schemas:
        yield f"<h3>{heading}</h3>{_fields(schemas[name])}"


def _fields(schema: dict[str, Any]) -> str:
    needed = schema.get("required", [])
    rows = []
    for name, field in schema.get("properties", {}).items():
        words = [f"{_type(field)}.", escape(field.get("description", ""))]
        if "const" in field:
            pass
        elif field.get("default") not in (None, ""):
            words.append(f"By default {escape(json.dumps(field['default']))}.")
        elif name not in needed:
            words.append("Optional.")
        rows.append(_row(f"<code>{escape(name)}</code>", " ".join(filter(None, words))))
    return f"<p>{escape(schema.get('description', ''))}</p><table>{''.join(rows)}</table>"


def _row(*cells: str) -> str:
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _type(schema: dict[str, Any]) -> str:
    """Return the type of a value in words, as HTML."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        kinds = [_type(option) for option in schema["anyOf"] if option.get("type") != "null"]
        return " or ".join(kinds)
    if "const" in schema:
        return escape(repr(schema["const"]))
    if "enum" in schema:
        return " or ".join(escape(repr(value)) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    kind = str(schema.get("type", "anything"))
    limits = [
        f"{words} {schema[key]:,}"
        for key, words in (("minimum", "at least"), ("maximum", "at most"))
        if key in schema and abs(schema[key]) < 2**53
    ]
    return " ".join([kind, *([f"({', '.join(limits)})"] if limits else [])])


def _referred(schemas: dict[str, Any]) -> set[str]:
    """Return the names of the schemas that the fields of others refer to."""
    fields = [field for s in schemas.values() for field in s.get("properties", {}).values()]
    found: set[str] = set()
    for field in fields:
        html = _type(field)
        found.update(name for name in schemas if f'href="#{name}"' in html)
    return found

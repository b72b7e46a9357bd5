"""The page at ``/``: one file without outside references, and the policy that holds it to that."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

from starlette.responses import HTMLResponse


def page() -> HTMLResponse:
    """Return the page; its script and style are the only ones a browser may run for it."""
    html = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    policy = [
        "default-src 'none'",
        f"script-src {_hash(html, 'script')}",
        f"style-src {_hash(html, 'style')}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    headers = {
        "Content-Security-Policy": "; ".join(policy),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return HTMLResponse(html, headers=headers)


def _hash(html: str, tag: str) -> str:
    (contents,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    digest = hashlib.sha256(contents.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

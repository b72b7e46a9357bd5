"""Pages with text on them, and files that are not what they should be."""

from __future__ import annotations

import struct
import zlib

from PIL import Image, ImageDraw


def sheet(text: str, size: tuple[int, int] = (212, 275)) -> Image.Image:
    """A page of paper with a text."""
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).text((12, 20), text, fill="black", font_size=24)
    return image


def encrypted_pdf() -> bytes:
    """A PDF that opens with a password only."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 100 100] >>",
        b"<< /Filter /Standard /V 1 /R 2 /P -4 /O <%s> /U <%s> >>" % (b"41" * 32, b"42" * 32),
    ]
    content, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return content + (
        b"xref\n0 5\n0000000000 65535 f \n%strailer\n<< /Size 5 /Root 1 0 R /Encrypt 4 0 R "
        b"/ID [<00> <00>] >>\nstartxref\n%d\n%%%%EOF\n" % (table, len(content))
    )


def png_bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is huge."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(64))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data

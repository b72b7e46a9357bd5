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


def pdf(*objects: bytes) -> bytes:
    """A PDF of objects, the first of them its catalogue; readers find the others themselves."""
    body = b"".join(b"%d 0 obj\n%s\nendobj\n" % pair for pair in enumerate(objects, 1))
    return b"%PDF-1.4\n" + body + b"trailer\n<< /Root 1 0 R >>\n"


def stream(entries: bytes, content: bytes) -> bytes:
    return b"<< %s /Length %d >>\nstream\n%s\nendstream" % (entries, len(content), content)


def pdf_bomb(depth: int = 9, times: int = 10) -> bytes:
    """A small PDF that draws a text ``times ** depth`` times."""
    font = b"/Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >>"
    forms = [
        stream(
            b"/Type /XObject /Subtype /Form /BBox [0 0 99 99] /Resources "
            b"<< /XObject << /X %d 0 R >> >>" % (number + 1),
            b"/X Do " * times,
        )
        for number in range(5, 5 + depth - 1)
    ]
    last = stream(
        b"/Type /XObject /Subtype /Form /BBox [0 0 99 99] /Resources << %s >>" % font,
        b"BT /F 9 Tf 9 9 Td (bomb) Tj ET " * times,
    )
    return pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents 4 0 R "
        b"/Resources << /XObject << /X 5 0 R >> >> >>",
        stream(b"", b"/X Do"),
        *forms,
        last,
    )


def pdf_of_one_page_many_times(times: int = 2000) -> bytes:
    """A small PDF that is slow to read, because each of its many pages is the same slow one."""
    font = b"/Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >>"
    return pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b"3 0 R " * times, times),
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents [%s] "
        b"/Resources << %s >> >>" % (b"4 0 R " * 1000, font),
        stream(b"", b"BT /F 9 Tf 9 9 Td (slow) Tj ET " * 10),
    )

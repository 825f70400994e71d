"""PDFs for tests, written by hand: each line of text at its place."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class At(NamedTuple):
    """A line of text; (0, 0) is the lower left corner of a page of 612 by 792 points."""

    x: float
    y: float
    text: str
    size: float = 9
    font: str = "F3"  # F1 is plain, F2 bold, F3 of one width, F4 of Hebrew letters, F5 of none, F6 of formulas
    turned: int = 0  # how often by 90 degrees, against the clock


def column(lines: Sequence[str], x: float = 72, y: float = 700, step: float = 12, size: float = 9) -> list[At]:
    """Lines below one another."""
    return [At(x, y - step * number, line, size) for number, line in enumerate(lines)]


def write_pdf(path: Path, pages: Sequence[Sequence[At]], extra: str = "", page_extra: str = "") -> Path:
    """Write a PDF; `extra` goes into its trailer, `page_extra` into each page."""
    fonts = "/F1 4 0 R /F2 5 0 R /F3 6 0 R /F4 7 0 R /F5 9 0 R /F6 11 0 R"
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        3: b"<< >>",
        4: _font("Helvetica"),
        5: _font("Helvetica-Bold"),
        6: _font("Courier"),
        7: _font("Helvetica", " /ToUnicode 8 0 R"),
        8: _stream(_to_unicode({0x41 + number: 0x5D0 + number for number in range(27)} | {0x20: 0x20})),
        9: _font("Helvetica", " /ToUnicode 10 0 R"),
        10: _stream(_to_unicode({code: 0xE100 + code for code in range(0x41, 0x7B)})),
        11: _font("Helvetica", " /ToUnicode 12 0 R"),
        12: _stream(_to_unicode({code: 0x1D3F3 + code for code in range(0x41, 0x5B)} | {0x20: 0x20, 0x61: 0x1F600})),
    }
    numbers = []
    for page in pages:
        number = len(objects) + 2
        numbers.append(number)
        box = "/MediaBox [0 0 612 792]"
        resources = f"/Resources << /Font << {fonts} >> >> /Contents {number + 1} 0 R {page_extra}"
        objects[number] = f"<< /Type /Page /Parent 2 0 R {box} {resources} >>".encode()
        objects[number + 1] = _stream(b"\n".join(_shown(line) for line in page))
    kids = " ".join(f"{number} 0 R" for number in numbers)
    objects[2] = f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode()
    content = b"%PDF-1.7\n"
    places = {}
    for number in sorted(objects):
        places[number] = len(content)
        content += f"{number} 0 obj\n".encode() + objects[number] + b"\nendobj\n"
    size = max(objects) + 1
    table = [
        f"{places[number]:010} 00000 n \n" if number in places else "0000000000 65535 f \n" for number in range(size)
    ]
    trailer = f"trailer\n<< /Size {size} /Root 1 0 R /Info 3 0 R {extra} >>\nstartxref\n{len(content)}\n%%EOF\n"
    path.write_bytes(content + f"xref\n0 {size}\n{''.join(table)}{trailer}".encode())
    return path


def _font(name: str, extra: str = "") -> bytes:
    return f"<< /Type /Font /Subtype /Type1 /BaseFont /{name} /Encoding /WinAnsiEncoding{extra} >>".encode()


def _stream(content: bytes) -> bytes:
    return f"<< /Length {len(content)} >>\nstream\n".encode() + content + b"\nendstream"


def _to_unicode(codes: dict[int, int]) -> bytes:
    lines = "\n".join(f"<{code:02x}> <{chr(letter).encode('utf-16-be').hex()}>" for code, letter in codes.items())
    head = "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /Own def /CMapType 2 def"
    space = "1 begincodespacerange <00> <ff> endcodespacerange"
    return f"{head} {space} {len(codes)} beginbfchar\n{lines}\nendbfchar endcmap end end".encode()


def _shown(line: At) -> bytes:
    text = line.text.encode("cp1252").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
    matrix = ("1 0 0 1", "0 1 -1 0", "-1 0 0 -1", "0 -1 1 0")[line.turned]
    return f"BT /{line.font} {line.size} Tf {matrix} {line.x} {line.y} Tm (".encode() + text + b") Tj ET"

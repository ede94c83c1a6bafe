"""What a job has written, as it is kept: on the disk, and the end of what does not go there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import full_disk

from prime.jobs.output import DISK, LEAST, TAIL, Output, whole


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs" / "1.out"


def everything(output: Output, limit: int = 100_000) -> tuple[bytes, int]:
    """Read from the start on; return what there is and how much is gone."""
    offset, found, gone = 0, bytearray(), 0
    while offset < output.total:
        piece = output.read(offset, limit)
        assert piece.data
        assert piece.offset == offset + piece.left_out
        found += piece.data
        gone += piece.left_out
        offset = piece.offset + len(piece.data)
    return bytes(found), gone


def test_all_of_it_can_be_read_from_any_place(path: Path) -> None:
    output = Output.create(path)
    for number in range(1_000):
        output.add(b"%d\n" % number)
    written = b"".join(b"%d\n" % number for number in range(1_000))
    assert everything(output) == everything(output, 7) == (written, 0)
    assert output.read(5, 3).data == written[5:8]
    assert output.read(len(written), 10).data == output.read(10**9, 10).data == b""
    output.close()
    assert everything(Output.stored(path, len(written))) == (written, 0)


def flood(output: Output, size: int) -> bytes:
    chunk = bytes(range(256)) * 256
    for _ in range(size // len(chunk)):
        output.add(chunk)
    return chunk


def test_of_a_flood_the_beginning_and_the_end_stay_and_memory_does_not_grow(path: Path) -> None:
    output = Output.create(path)
    chunk = flood(output, DISK + 20 * TAIL)
    output.add(b"the end")
    assert output.total == DISK + 20 * TAIL + 7
    assert path.stat().st_size == DISK
    assert output.read(DISK - 10, 100).data == chunk[-10:]
    output.close()
    for kept in (output, Output.stored(path, output.total)):
        assert kept.read(DISK, 100).left_out == 19 * TAIL + 7
        found, gone = everything(kept, 1024 * 1024)
        assert (len(found), gone) == (DISK + TAIL, 19 * TAIL + 7)
        assert found.endswith(chunk[-100:] + b"the end")
    assert sum(file.stat().st_size for file in path.parent.iterdir()) == DISK + TAIL


def test_what_goes_a_little_over_the_disk_has_no_gap(path: Path) -> None:
    output = Output.create(path)
    flood(output, DISK)
    output.add(b"more")
    assert output.read(DISK - 2, 10).data[2:] == b"more"
    output.close()
    assert Output.stored(path, output.total).read(DISK - 2, 10).data[2:] == b"more"


def test_on_a_full_disk_the_end_stays_in_memory(path: Path) -> None:
    output = Output.create(path)
    output.add(b"first\n")
    with full_disk(path, 3):
        output.add(b"second\n")
        output.add(b"third\n")
    assert output.read(0, 100).data == b"first\nsecond\nthird\n"


def test_a_full_session_gives_a_new_job_its_least(path: Path) -> None:
    path.parent.mkdir()
    with (path.parent / "0.out").open("wb") as sparse:
        sparse.truncate(1024 * 1024 * 1024)
    output = Output.create(path)
    flood(output, LEAST * 2)
    assert path.stat().st_size == LEAST


def test_of_a_lost_job_stays_what_is_on_the_disk(path: Path) -> None:
    Output.create(path).add(b"half")
    lost = Output.stored(path, None)
    assert (lost.total, lost.over, lost.read(0, 10).data) == (4, True, b"half")
    with pytest.raises(FileNotFoundError):
        Output.stored(path.with_name("2.out"), None)


@given(st.text(alphabet="aä€😀", max_size=12), st.integers(0, 40))
def test_a_page_never_ends_inside_of_a_character(text: str, cut: int) -> None:
    data = text.encode()[:cut]
    assert data.decode(errors="ignore").encode() == whole(data)


def test_what_is_no_text_is_left_alone() -> None:
    assert whole(b"\x80\x80\x80\x80\x80") == b"\x80\x80\x80\x80\x80"
    assert whole(b"ab\xff") == b"ab"

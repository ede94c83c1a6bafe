"""read, write and edit on real files."""

import asyncio
import base64
import codecs
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from prime.errors import ToolFailed
from prime.tools import read as reading
from prime.tools.base import Tool
from prime.tools.edit import edit
from prime.tools.files import unified
from prime.tools.read import read
from prime.tools.workspace import Workspace
from prime.tools.write import write

pytestmark = pytest.mark.anyio

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


async def refusal(item: Tool, place: Workspace, **arguments: Any) -> tuple[str, str]:
    with pytest.raises(ToolFailed) as caught:
        await item.run(place, arguments)
    return caught.value.code, str(caught.value)


async def checked(item: Tool, place: Workspace, **arguments: Any) -> Any:
    """Run the tool, and check what holds for every canonical value."""
    value = await item.run(place, arguments)
    assert item.signature.returns.dump_python(item.signature.returns.validate_python(value), mode="json") == value
    full = item.validate(arguments)
    assert item.for_model(full, value)
    assert "\n" not in item.for_human(full, value)
    return value


# read


async def test_read_gives_the_text_and_where_it_is(place: Workspace):
    (place.cwd / "a.txt").write_text("one\ntwo\n")
    value = await checked(read, place, path="a.txt")
    assert value == {
        "path": "a.txt",
        "text": "one\ntwo\n",
        "offset": 1,
        "line_count": 2,
        "total_lines": 2,
        "truncated": False,
        "encoding": "utf-8",
    }
    assert read.for_model({}, value) == "     1\tone\n     2\ttwo"
    assert read.for_human({}, value) == "read a.txt (lines 1-2 of 2)"


async def test_read_a_window_says_how_to_go_on(place: Workspace):
    (place.cwd / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 11)))
    value = await checked(read, place, path="a.txt", offset=3, limit=2)
    assert (value["text"], value["line_count"], value["total_lines"], value["truncated"]) == ("3\n4\n", 2, 10, True)
    assert read.for_model({}, value).endswith("[lines 3-4 of 10; go on with offset=5]")
    last = await checked(read, place, path="a.txt", offset=10)
    assert (last["text"], last["truncated"]) == ("10\n", False)
    beyond = await checked(read, place, path="a.txt", offset=11)
    assert (beyond["text"], beyond["line_count"], beyond["truncated"]) == ("", 0, False)
    assert read.for_model({}, beyond) == "[a.txt has 10 lines, none from line 11 on]"


async def test_read_an_empty_file(place: Workspace):
    (place.cwd / "empty").touch()
    value = await checked(read, place, path="empty")
    assert (value["text"], value["line_count"], value["total_lines"]) == ("", 0, 0)


lines = st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), max_size=8)
newlines = st.sampled_from(["\n", "\r\n"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(st.tuples(lines, newlines), max_size=12),
    last=lines,
    limit=st.integers(1, 5),
    before=st.integers(0, 60),
)
def test_windows_partition_the_file(tmp_path, pieces, last, limit, before):
    text = "".join(line + newline for line, newline in pieces) + last
    # a first line that ends just before one MiB, so that the border of two reads falls anywhere in the text
    (tmp_path / "a").write_bytes(b"x" * (2**20 - 1 - before) + b"\n" + text.encode())
    place, got, offset = Workspace(tmp_path), [], 2
    while True:
        value = read(place, "a", offset, limit)
        assert isinstance(value, reading.TextWindow)
        assert value.line_count <= limit
        got.append(value.text)
        offset += value.line_count
        if not value.truncated:
            break
    assert "".join(got) == text.replace("\r\n", "\n")
    assert offset - 1 == value.total_lines


async def test_read_stops_before_the_line_that_does_not_fit(place: Workspace):
    line = "x" * 99 + "\n"
    (place.cwd / "a").write_text(line * 5000)
    value = await checked(read, place, path="a", limit=5000)
    assert value["line_count"] == reading.TEXT_LIMIT // 100
    assert value["text"] == line * value["line_count"]
    assert value["truncated"]


async def test_a_line_larger_than_the_cap_is_cut_and_said_to_be(place: Workspace):
    (place.cwd / "a").write_text("é" * reading.TEXT_LIMIT + "\nnext\n")
    value = await checked(read, place, path="a")
    assert value["text"] == "é" * (reading.TEXT_LIMIT // 2)
    assert (value["line_count"], value["total_lines"], value["truncated"]) == (1, 2, True)
    assert "[line 1 of 2 is cut" in read.for_model({}, value)
    assert (await checked(read, place, path="a", offset=2))["text"] == "next\n"
    (place.cwd / "b").write_text("x" * (reading.TEXT_LIMIT + 1))
    assert (await checked(read, place, path="b"))["truncated"]


@pytest.mark.parametrize(
    ("data", "text", "encoding"),
    [
        (codecs.BOM_UTF8 + "é\r\n".encode(), "é\n", "utf-8"),
        (codecs.BOM_UTF16_LE + "é€\r\n".encode("utf-16-le"), "é€\n", "utf-16-le"),
        (codecs.BOM_UTF16_BE + "é€\r\n".encode("utf-16-be"), "é€\n", "utf-16-be"),
        (codecs.BOM_UTF32_LE + "é€\n".encode("utf-32-le"), "é€\n", "utf-32-le"),
        (b"lone \r stays\n", "lone \r stays\n", "utf-8"),
    ],
)
async def test_encodings_with_a_mark_and_newlines(place: Workspace, data: bytes, text: str, encoding: str):
    (place.cwd / "a").write_bytes(data)
    value = await checked(read, place, path="a")
    assert (value["text"], value["encoding"]) == (text, encoding)


async def test_an_encoding_without_a_mark_is_guessed(place: Workspace):
    text = "Привет, мир. Это обычный русский текст в старой кодировке.\n" * 20
    (place.cwd / "a").write_bytes(text.encode("cp1251"))
    value = await checked(read, place, path="a")
    assert value["text"] == text
    edited = await checked(edit, place, path="a", old="обычный", new="новый", replace_all=True)
    assert edited["replaced"] == 20
    assert (place.cwd / "a").read_bytes() == text.replace("обычный", "новый").encode("cp1251")


async def test_read_a_picture(place: Workspace):
    (place.cwd / "a.dat").write_bytes(PNG)  # told by its bytes, not by its name
    value = await checked(read, place, path="a.dat")
    assert value == {
        "path": "a.dat",
        "media_type": "image/png",
        "bytes": len(PNG),
        "image": base64.b64encode(PNG).decode(),
    }
    assert read.images(value)[0].media_type == "image/png"
    assert read.for_model({}, value) == f"a.dat: image/png, {len(PNG)} bytes"


@pytest.mark.parametrize(
    ("head", "media_type"),
    [(b"\xff\xd8\xff\xe0", "image/jpeg"), (b"GIF89a", "image/gif"), (b"RIFF\x08\0\0\0WEBPVP8 ", "image/webp")],
)
async def test_pictures_are_told_by_their_first_bytes(place: Workspace, head: bytes, media_type: str):
    (place.cwd / "a").write_bytes(head)
    assert (await checked(read, place, path="a"))["media_type"] == media_type


async def test_what_cannot_be_read_says_what_to_do(place: Workspace):
    (place.cwd / "folder").mkdir()
    (place.cwd / "binary").write_bytes(b"\x7fELF\0\0")
    (place.cwd / "notes.txt").touch()
    (place.cwd / "dangling").symlink_to("gone")
    (place.cwd / "large.png").write_bytes(PNG + bytes(reading.IMAGE_LIMIT))
    os.mkfifo(place.cwd / "pipe")
    for path, code, words in [
        ("folder", "is_directory", "list it with glob"),
        ("binary", "binary", "binary is a binary file"),
        ("note.txt", "not_found", "did you mean 'notes.txt'"),
        ("no/such/file", "not_found", "nor does the folder no/such"),
        ("notes.txt/x", "not_found", "does not exist"),
        ("dangling", "not_found", "link to gone"),
        ("pipe", "not_a_file", "pipe"),
        ("", "bad_path", "empty"),
        ("a\0b", "bad_path", "NUL"),
        ("x" * 300, "io_error", "name too long"),
        ("large.png", "too_large", "shrink it"),
    ]:
        got, message = await refusal(read, place, path=path)
        assert got == code, message
        assert words in message
        assert "\n" not in message


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is denied to root")
async def test_permission_denied(place: Workspace):
    (place.cwd / "a").touch(mode=0)
    assert (await refusal(read, place, path="a"))[0] == "denied"
    (place.cwd / "shut").mkdir(mode=0o500)
    assert (await refusal(write, place, path="shut/a", content=""))[0] == "denied"


@pytest.mark.parametrize("name", ["with space", "-rf", "*.py", "naïve 文件.txt", "quote'\"", "new\nline", "~name"])
async def test_unusual_file_names(place: Workspace, name: str):
    value = await checked(write, place, path=name, content="x\n")
    assert value["path"] == name
    assert (await read.run(place, {"path": name}))["text"] == "x\n"
    await edit.run(place, {"path": name, "old": "x", "new": "y"})
    assert (place.cwd / name).read_text() == "y\n"


async def test_paths_are_absolute_relative_or_start_at_home(place: Workspace, tmp_path_factory: pytest.TempPathFactory):
    other = tmp_path_factory.mktemp("other") / "a"
    assert (await checked(write, place, path=str(other), content=""))["path"] == str(other)
    assert place.resolve("~/x") == Path.home() / "x"
    assert place.name(place.resolve("sub/../a")) == "a"


# write


async def test_write_creates_with_parent_folders(place: Workspace):
    value = await checked(write, place, path="new/folder/a.txt", content="one\r\ntwo")
    assert value["operation"] == "create"
    assert value["replaced"] == 0
    assert value["diff"] == (
        "--- new/folder/a.txt\n+++ new/folder/a.txt\n@@ -0,0 +1,2 @@\n+one\r\n+two\n\\ No newline at end of file\n"
    )
    assert (place.cwd / "new/folder/a.txt").read_bytes() == b"one\r\ntwo"
    assert write.for_model({}, value) == "created new/folder/a.txt"
    assert write.for_human({}, value) == "created new/folder/a.txt (+2 -0 lines)"
    assert list((place.cwd / "new/folder").iterdir()) == [place.cwd / "new/folder/a.txt"]


async def test_a_new_file_has_the_mode_of_the_umask_and_an_old_one_keeps_its_own(place: Workspace):
    await write.run(place, {"path": "a", "content": "1"})
    plain = place.cwd / "plain"
    plain.touch()
    assert (place.cwd / "a").stat().st_mode == plain.stat().st_mode
    (place.cwd / "a").chmod(0o751)
    await write.run(place, {"path": "a", "content": "2"})
    assert stat.S_IMODE((place.cwd / "a").stat().st_mode) == 0o751


async def test_write_replaces_what_was_read(place: Workspace):
    (place.cwd / "a").write_text("one\ntwo\nthree\n")
    await read.run(place, {"path": "a"})
    value = await checked(write, place, path="a", content="one\n2\nthree\n")
    assert (value["operation"], value["replaced"]) == ("update", 1)
    assert value["diff"] == "--- a\n+++ a\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
    assert write.for_model({}, value) == value["diff"]
    assert write.for_human({}, value) == "changed a (+1 -1 lines)"
    again = await checked(write, place, path="a", content="one\n2\nthree\n")  # its own writing counts as seen
    assert write.for_model({}, again) == "a has that content already"


@pytest.mark.parametrize(
    ("item", "arguments"), [(write, {"content": "mine\n"}), (edit, {"old": "theirs", "new": "mine"})]
)
async def test_only_the_version_that_was_seen_is_overwritten(place: Workspace, item: Tool, arguments: dict[str, str]):
    file = place.cwd / "a"
    file.write_text("theirs\n")
    assert await refusal(item, place, path="a", **arguments) == (
        "unread",
        "a exists and was not read yet; read it first",
    )
    await read.run(place, {"path": "a"})
    file.write_text("theirs, later\n")
    assert await refusal(item, place, path="a", **arguments) == (
        "stale",
        "a changed since it was read; read it again",
    )
    assert file.read_text() == "theirs, later\n"
    await read.run(place, {"path": "a", "limit": 1})
    await item.run(place, {"path": "a", **arguments})
    assert file.read_text().startswith("mine")


async def test_what_cannot_be_written_says_so(place: Workspace):
    (place.cwd / "folder").mkdir()
    (place.cwd / "binary").write_bytes(b"\0")
    (place.cwd / "file").touch()
    os.mkfifo(place.cwd / "pipe")
    refused = {"folder": "is_directory", "binary": "binary", "file/a": "io_error", "pipe": "not_a_file"}
    for path, code in refused.items():
        assert (await refusal(write, place, path=path, content="x"))[0] == code
    assert (await refusal(edit, place, path="nothing", old="a", new="b"))[0] == "not_found"


async def test_a_symlink_stays_and_its_file_is_written(place: Workspace):
    (place.cwd / "real").write_text("old\n")
    (place.cwd / "link").symlink_to("real")
    await read.run(place, {"path": "link"})
    await write.run(place, {"path": "link", "content": "new\n"})
    assert (place.cwd / "link").is_symlink()
    assert (place.cwd / "real").read_text() == "new\n"
    await edit.run(place, {"path": "real", "old": "new", "new": "newer"})  # the same file under its other name
    assert (place.cwd / "link").read_text() == "newer\n"


async def test_an_encoding_without_the_character_is_refused(place: Workspace):
    (place.cwd / "a").write_bytes("Ein schöner Text über Größe und Öl, für alle.\n".encode("latin-1") * 10)
    await read.run(place, {"path": "a"})
    code, message = await refusal(edit, place, path="a", old="alle", new="文", replace_all=True)
    assert code == "encoding"
    assert "'文' does not exist in" in message


async def test_two_writers_of_one_file_do_not_lose_an_edit(place: Workspace):
    (place.cwd / "a").write_text("\n".join(f"line {n}." for n in range(20)))
    await read.run(place, {"path": "a"})
    await asyncio.gather(
        *(edit.run(place, {"path": "a", "old": f"line {n}.", "new": f"LINE {n}."}) for n in range(20)),
    )
    assert (place.cwd / "a").read_text() == "\n".join(f"LINE {n}." for n in range(20))


async def test_two_agents_cannot_both_change_the_version_they_saw(place: Workspace):
    (place.cwd / "a").write_text("start")
    agents = [Workspace(place.cwd) for _ in range(8)]
    for agent in agents:
        await read.run(agent, {"path": "a"})
    tries = [write.run(agent, {"path": "a", "content": f"{n}"}) for n, agent in enumerate(agents)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    won = [n for n, result in enumerate(results) if isinstance(result, dict)]
    assert len(won) == 1
    assert {result.code for result in results if isinstance(result, ToolFailed)} == {"stale"}
    assert (place.cwd / "a").read_text() == str(won[0])


# edit


async def test_edit_needs_one_match(place: Workspace):
    await write.run(place, {"path": "a", "content": "x = 1\ny = 2\nx = 1\n    deep = 3\n"})
    code, message = await refusal(edit, place, path="a", old="x = 1", new="x = 2")
    assert code == "many_matches"
    assert "2 times in a (lines 1, 3)" in message
    assert "replace_all=True" in message
    for old, words in [
        ("y  = 2", "the nearest is line 2: 'y = 2'"),
        ("deep = 3\nmore", "line 4 differs from it in white space only"),
        ("y = 2\nz", "its first line is line 2, what follows differs"),
        ("nothing like it at all", "read the file again"),
    ]:
        code, message = await refusal(edit, place, path="a", old=old, new="")
        assert code == "no_match"
        assert words in message
    assert (await refusal(edit, place, path="a", old="", new="x"))[0] == "bad_arguments"
    assert (await refusal(edit, place, path="a", old="x\r\n", new="x\n"))[0] == "no_change"
    value = await checked(edit, place, path="a", old="x = 1", new="x = 2", replace_all=True)
    assert value["replaced"] == 2
    assert edit.for_human({}, value) == "changed a (+2 -2 lines)"
    assert edit.for_model({}, value) == value["diff"]


async def test_overlapping_matches_are_ambiguous(place: Workspace):
    await write.run(place, {"path": "a", "content": "aaa"})
    assert (await refusal(edit, place, path="a", old="aa", new="b"))[0] == "many_matches"


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(st.tuples(st.text("ab é\x0b", max_size=3), newlines), max_size=8),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    old=st.text("ab\n", min_size=1, max_size=3),
    new=st.text("cd\n", max_size=3),
)
def test_edit_keeps_newlines_and_encoding(tmp_path, pieces, encoding, old, new):
    raw = "".join(line + newline for line, newline in pieces)
    file = tmp_path / "a"
    file.write_bytes(raw.encode(encoding))
    place = Workspace(tmp_path)
    seen = read(place, "a").text  # type: ignore[union-attr]
    assert seen == raw.replace("\r\n", "\n")
    if old == new or old not in seen:
        with pytest.raises(ToolFailed, match="same text" if old == new else "does not occur"):
            edit(place, "a", old, new, replace_all=True)
        assert file.read_bytes() == raw.encode(encoding)
        return
    edit(place, "a", old, new, replace_all=True)
    after = file.read_bytes().decode(encoding)
    assert after.encode(encoding) == file.read_bytes()  # the mark, if any, is there once
    assert after.replace("\r\n", "\n") == seen.replace(old, new)
    if "\r\n" in raw and raw.count("\r\n") == raw.count("\n"):
        assert after.count("\r\n") == after.count("\n")
    if "\n" not in old + new:  # then the newlines are those that were there, one by one
        assert [part for part in after if part in "\r\n"] == [part for part in raw if part in "\r\n"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
async def test_write_keeps_newlines_and_encoding(place: Workspace, encoding: str, newline: str):
    (place.cwd / "a").write_bytes(f"é{newline}{newline}".encode(encoding))
    await read.run(place, {"path": "a"})
    await write.run(place, {"path": "a", "content": "\ufeffone\r\ntwo\nü"})
    assert (place.cwd / "a").read_bytes() == f"one{newline}two{newline}ü".encode(encoding)


# diffs


@settings(max_examples=100, deadline=None)
@given(before=st.lists(st.sampled_from("abc"), max_size=30), after=st.lists(st.sampled_from("abc"), max_size=30))
@example(["a"] * 10, ["a"] * 11)
@example(["a"] * 11, ["a"] * 10)
def test_a_diff_leads_from_the_one_text_to_the_other(before: list[str], after: list[str]):
    old, new = ("".join(f"{line}\n" for line in side) for side in (before, after))
    result, position = [], 0
    for line in unified(old, new, "f").split("\n")[2:-1]:
        if line.startswith("@@"):
            start = int(line.split()[1][1:].split(",")[0])
            length = line.split()[1].partition(",")[2]
            start -= length != "0"
            result += before[position:start]
            position = start
        elif line[0] == "+":
            result.append(line[1:])
        else:
            assert before[position] == line[1:]
            result += line[1:] if line[0] == " " else ""
            position += 1
    assert result + before[position:] == after


async def test_a_large_diff_is_left_out():
    before, after = "a\n" * 6000, "b\n" * 6000
    assert unified(before, after, "f").endswith("@@ 6,000 lines became 6,000 lines; too many to show @@\n")
    wide = unified("", "".join(f"{'x' * 999}\n" for _ in range(100)), "f")
    assert wide.endswith("@@ the rest of the diff is left out @@\n")
    assert len(wide) < 70_000

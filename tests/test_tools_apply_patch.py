"""apply_patch on real files: a corpus of shapes, generated trees, and what stands in the way of a write."""

import os
import resource
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prime.errors import ToolFailed
from prime.tools.apply_patch import apply_patch
from prime.tools.changes import Change, make
from prime.tools.hunks import patched
from prime.tools.patch import Hunk
from prime.tools.read import read
from prime.tools.workspace import Workspace, fingerprint

pytestmark = pytest.mark.anyio

CORPUS = yaml.safe_load((Path(__file__).parent / "fixtures" / "patches.yaml").read_text(encoding="utf-8"))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fill(folder: Path, files: dict[str, str]) -> Workspace:
    """Write the files and let the agent have seen them."""
    place = Workspace(folder)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        place.saw(path, fingerprint(text.encode()))
    return place


async def refusal(place: Workspace, patch: str) -> tuple[str, str]:
    """Apply a patch that must not apply, and see that nothing changes."""
    before = tree(place.cwd)
    with pytest.raises(ToolFailed) as caught:
        await apply_patch.run(place, {"patch": patch})
    assert tree(place.cwd) == before
    assert "\n" not in str(caught.value)
    return caught.value.code, str(caught.value)


def body(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch"))


@pytest.mark.parametrize("case", CORPUS, ids=[case["name"] for case in CORPUS])
async def test_the_corpus(tmp_path: Path, case: dict[str, Any]):
    place = fill(tmp_path, case["before"])
    if "refused" in case:
        code, message = await refusal(place, case["patch"])
        assert code == case["refused"]
        assert [word for word in case["words"] if word not in message] == []
        return
    value = await apply_patch.run(place, {"patch": case["patch"]})
    after = {name: text for name, text in (case["before"] | case["after"]).items() if text is not None}
    assert {name: data.decode() for name, data in tree(tmp_path).items()} == after
    assert value["files"]
    assert apply_patch.for_model({}, value)
    assert "\n" not in apply_patch.for_human({}, value)


def test_the_corpus_is_large_and_its_cases_have_names_of_their_own():
    assert len({case["name"] for case in CORPUS}) == len(CORPUS) >= 40


async def test_the_value(tmp_path: Path):
    place = fill(tmp_path, {"a": "one\n", "b": "two\nthree\n", "c": "four\n"})
    patch = body("*** Add File: d", "+x", "*** Update File: a", "-one", "+1", "*** Delete File: c")
    value = await apply_patch.run(place, {"patch": patch})
    assert value == {
        "files": [
            {
                "path": "d",
                "operation": "add",
                "hunks": 0,
                "moved_from": None,
                "diff": "--- d\n+++ d\n@@ -0,0 +1 @@\n+x\n",
            },
            {
                "path": "a",
                "operation": "update",
                "hunks": 1,
                "moved_from": None,
                "diff": "--- a\n+++ a\n@@ -1 +1 @@\n-one\n+1\n",
            },
            {
                "path": "c",
                "operation": "delete",
                "hunks": 0,
                "moved_from": None,
                "diff": "--- c\n+++ c\n@@ -1 +0,0 @@\n-four\n",
            },
        ]
    }
    assert apply_patch.for_model({}, value) == "added d\nchanged a\n--- a\n+++ a\n@@ -1 +1 @@\n-one\n+1\ndeleted c"
    patch = body("*** Update File: b", "*** Move to: sub/b", "-two", "+2", "@@", "-three", "+3")
    [moved] = (await apply_patch.run(place, {"patch": patch}))["files"]
    assert (moved["path"], moved["operation"], moved["moved_from"], moved["hunks"]) == ("sub/b", "move", "b", 2)


async def test_the_model_sees_diffs_up_to_a_limit_and_where_the_rest_is(tmp_path: Path):
    place = fill(tmp_path, {"large": "x\n", "small": "y\n"})
    lines = [f"+{'z' * 70} {number}" for number in range(200)]
    patch = body("*** Update File: large", "-x", *lines, "*** Update File: small", "-y", "+Y")
    shown = apply_patch.for_model({}, await apply_patch.run(place, {"patch": patch}))
    assert shown.startswith("changed large\n(its diff is in .files[0].diff)\nchanged small\n--- small")


async def test_only_versions_that_were_seen_are_changed(tmp_path: Path):
    (tmp_path / "a").write_text("one\n")
    place = Workspace(tmp_path)
    for lines in (("*** Update File: a", "-one", "+1"), ("*** Delete File: a",), ("*** Add File: a", "+x")):
        assert (await refusal(place, body(*lines)))[0] == "unread"
    await read.run(place, {"path": "a"})
    (tmp_path / "a").write_text("one\nmore\n")
    for lines in (("*** Update File: a", "-one", "+1"), ("*** Delete File: a",), ("*** Add File: a", "+x")):
        assert (await refusal(place, body(*lines)))[0] == "stale"
    await read.run(place, {"path": "a"})
    for old, new in (("one", "1"), ("1", "2")):  # what it wrote itself, it has seen
        await apply_patch.run(place, {"patch": body("*** Update File: a", f"-{old}", f"+{new}")})
    assert (tmp_path / "a").read_text() == "2\nmore\n"


async def test_a_file_that_may_not_get_its_content_keeps_the_others_as_they_are(tmp_path: Path):
    asked = []

    def permitted(name: str, text: str) -> None:
        asked.append((name, text))
        if name == "b":
            raise ToolFailed("contract", "not so")

    fill(tmp_path, {"a": "one\r\n"})
    place = Workspace(tmp_path, permitted=permitted)
    await read.run(place, {"path": "a"})
    lines = ("*** Update File: a", "-one", "+1", "*** Add File: b", "+x")
    assert (await refusal(place, body(*lines)))[0] == "contract"
    assert asked == [("a", "1\n"), ("b", "x\n")]


async def test_permissions_stay_and_move_along(tmp_path: Path):
    place = fill(tmp_path, {"run.sh": "a\n", "old.sh": "b\n"})
    for name in ("run.sh", "old.sh"):
        (tmp_path / name).chmod(0o751)
    patch = body("*** Update File: run.sh", "-a", "+A", "*** Update File: old.sh", "*** Move to: new.sh", " b")
    await apply_patch.run(place, {"patch": patch})
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("run.sh", "new.sh")] == [0o751] * 2


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1"])
async def test_encodings_stay(tmp_path: Path, encoding: str):
    before = "Le café était déjà fermé, à côté de la forêt où les élèves français allaient.\nzwei\n" * 4
    (tmp_path / "a").write_bytes(before.encode(encoding))
    place = Workspace(tmp_path)
    await read.run(place, {"path": "a"})
    await apply_patch.run(place, {"patch": body("*** Update File: a", "-zwei", "+trois")})
    assert (tmp_path / "a").read_bytes() == before.replace("zwei", "trois", 1).encode(encoding)


async def test_a_character_that_the_encoding_lacks_changes_no_file(tmp_path: Path):
    place = fill(tmp_path, {"a": "one\n"})
    data = "naïve café, déjà vu, garçon, élève\n".encode("latin-1") * 4
    (tmp_path / "b").write_bytes(data)
    await read.run(place, {"path": "b"})
    lines = ("*** Update File: a", "-one", "+1", "*** Update File: b", "+漢")
    assert (await refusal(place, body(*lines)))[0] == "encoding"


async def test_a_binary_file_is_not_patched(tmp_path: Path):
    place = Workspace(tmp_path)
    (tmp_path / "a").write_bytes(b"one\n\0\n")
    place.saw(tmp_path / "a", fingerprint(b"one\n\0\n"))
    assert (await refusal(place, body("*** Update File: a", "-one", "+1")))[0] == "binary"
    value = await apply_patch.run(place, {"patch": body("*** Delete File: a")})
    assert value["files"][0]["diff"] == ""
    assert tree(tmp_path) == {}


async def test_a_link_stays_and_its_file_changes(tmp_path: Path):
    place = fill(tmp_path, {"real": "one\n"})
    (tmp_path / "link").symlink_to("real")
    lines = ("*** Update File: link", "-one", "+1", "*** Update File: real", "-1", "+2")
    await apply_patch.run(place, {"patch": body(*lines)})
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "2\n"
    for lines in (("*** Delete File: link",), ("*** Update File: link", "*** Move to: c", " 2")):
        code, message = await refusal(place, body(*lines))
        assert code == "not_a_file"
        assert "link to real" in message


async def test_paths_are_those_of_the_other_file_tools(tmp_path: Path):
    (tmp_path / "work").mkdir()
    place = Workspace(tmp_path / "work")
    lines = ("*** Add File: ../beside", "+a", f"*** Add File: {tmp_path}/absolute", "+b", "*** Add File: x/../y", "+c")
    await apply_patch.run(place, {"patch": body(*lines)})
    assert tree(tmp_path) == {"beside": b"a\n", "absolute": b"b\n", "work/y": b"c\n"}
    assert (await refusal(place, body("*** Add File: a\0b", "+c")))[0] == "bad_path"
    assert (await refusal(place, body("*** Delete File: ../work")))[0] == "is_directory"


async def test_when_a_folder_cannot_be_made_nothing_is(tmp_path: Path):
    place = fill(tmp_path, {"a": "one\n", "file": ""})
    lines = ("*** Update File: a", "-one", "+1", "*** Add File: new/b", "+b", "*** Add File: file/c", "+c")
    code, message = await refusal(place, body(*lines))
    assert code == "io_error"
    assert "file/c" in message
    assert "nothing was changed" in message
    assert not (tmp_path / "new").exists()


def broken(folder: Path, before: bytes) -> list[Change]:
    """Return changes of which the last cannot be made, because a folder is in the way."""
    for name, data in {"a": before, "gone": b"gone\n"}.items():
        (folder / name).write_bytes(data)
    (folder / "wall" / "in it").mkdir(parents=True)
    names = {"a": (before, b"A\n"), "gone": (b"gone\n", None), "new/b": (None, b"b\n"), "wall": (b"", b"no\n")}
    return [Change(folder / name, name, *data, folder / name) for name, data in names.items()]


def test_a_write_that_fails_undoes_those_before(tmp_path: Path):
    changes = broken(tmp_path, b"a\n")
    (tmp_path / "a").chmod(0o640)
    with pytest.raises(ToolFailed, match=r"^wall: .*; nothing was changed$") as caught:
        make(changes)
    assert caught.value.code == "io_error"
    assert sorted(os.listdir(tmp_path)) == ["a", "gone", "wall"]
    assert tree(tmp_path) == {"a": b"a\n", "gone": b"gone\n"}
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_what_cannot_be_undone_is_named(tmp_path: Path):
    changes = broken(tmp_path, b"a" * 100_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))  # like a disk that has become full
    try:
        with pytest.raises(ToolFailed, match=r"wall: .*; changed and not put back: a \(") as caught:
            make(changes)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.code == "partial"
    assert tree(tmp_path) == {"a": b"A\n", "gone": b"gone\n"}


# generated trees

LINES = st.sampled_from(["", "a", "b", " a", "a ", "}", "\tx", "“q”", '"q"', "*** End Patch", "@@", "+", "-", "é"])
TEXTS = st.lists(LINES, max_size=12).map(lambda lines: "".join(f"{line}\n" for line in lines))
NAMES = st.sampled_from(["a", "b", "c", "d/e"])


@st.composite
def hunks(draw: st.DrawFn, before: list[str], after: list[str]) -> list[str]:
    """Write the change as hunks: equal lines at both ends are context, as many as make the place plain."""
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    stop = 0
    while stop < min(len(before), len(after)) - start and before[-1 - stop] == after[-1 - stop]:
        stop += 1
    for context in range(draw(st.integers(0, min(3, len(before)))), len(before) + 1):
        head, tail = before[max(0, start - context) : start], before[len(before) - stop :][:context]
        old = before[max(0, start - context) : len(before) - stop + len(tail)]
        first = next(at for at in range(len(before) + 1) if before[at : at + len(old)] == old)
        if first == start - len(head) and (old or not before):
            break
    gone, come = before[start : len(before) - stop], after[start : len(after) - stop]
    signs = ((" ", head), ("-", gone), ("+", come), (" ", tail))
    return [sign + line for sign, lines in signs for line in lines]


@st.composite
def patches(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, str], str]:
    """Return files before and after, and a patch that leads from the ones to the others."""
    before = draw(st.dictionaries(NAMES, TEXTS, max_size=4))
    after, lines = dict(before), []
    for name in draw(st.permutations(sorted(before))):
        kind = draw(st.sampled_from(["keep", "update", "move", "delete", "add"]))
        old = before[name].split("\n")[:-1]
        new = draw(TEXTS)
        if kind == "delete":
            del after[name]
            lines.append(f"*** Delete File: {name}")
        elif kind == "add":
            after[name] = new
            lines += [f"*** Add File: {name}", *(f"+{line}" for line in new.split("\n")[:-1])]
        elif kind != "keep" and (old or new):
            lines.append(f"*** Update File: {name}")
            if kind == "move":
                lines.append(f"*** Move to: moved/{name}")
                del after[name]
            after[f"moved/{name}" if kind == "move" else name] = new
            lines += draw(hunks(old, new.split("\n")[:-1])) or [f" {old[0]}"]
    if not lines:
        after["fresh"], lines = "x\n", ["*** Add File: fresh", "+x"]
    return before, after, body(*lines)


@given(patches())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_patch_leads_from_the_one_tree_to_the_other(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[dict[str, str], dict[str, str], str]
):
    before, after, patch = case
    folder = tmp_path_factory.mktemp("tree")
    await apply_patch.run(fill(folder, before), {"patch": patch})
    assert {name: data.decode() for name, data in tree(folder).items()} == after


@given(patches(), st.randoms(use_true_random=False))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_patch_with_a_line_that_is_nowhere_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[dict[str, str], dict[str, str], str], random: Any
):
    before, _, patch = case
    folder = tmp_path_factory.mktemp("tree")
    place = fill(folder, before | {"last": "x\n"})
    wrong = body(*patch.split("\n")[1:-1], "*** Update File: last", random.choice(["-", " "]) + "nowhere")
    assert (await refusal(place, wrong))[0] == "no_match"


@given(TEXTS, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_what_no_hunk_names_stays_byte_for_byte(text: str, newline: str, closed: bool):
    raw = ("first\n" + text).replace("\n", newline) + ("" if closed else "end")
    hunk = Hunk(1, None, (("-", "first"), ("+", "1"), ("+", "2")))
    assert patched(raw, newline, [hunk], "a") == f"1{newline}2" + raw.removeprefix("first")

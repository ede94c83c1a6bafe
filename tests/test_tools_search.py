"""grep and glob: the same results with ripgrep and without, on trees made to tell them apart."""

import asyncio
import json
import os
import random
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from prime.errors import ToolFailed
from prime.tools.base import Tool, tool
from prime.tools.glob import glob
from prime.tools.grep import LINE_LIMIT, grep
from prime.tools.threads import abandoned
from prime.tools.walk import walk
from prime.tools.workspace import Workspace

pytestmark = pytest.mark.anyio

needs_ripgrep = pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not on the path")
RIPGREP = {"PATH": os.environ["PATH"]}


@pytest.fixture(params=["ripgrep", "python"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    """Both ways: which one is taken depends on the path of the workspace's environment alone."""
    if request.param == "ripgrep" and shutil.which("rg") is None:
        pytest.skip("ripgrep is not on the path")
    return Workspace(tmp_path, RIPGREP if request.param == "ripgrep" else {})


def plant(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


async def checked(item: Tool, place: Workspace, **arguments: Any) -> Any:
    value = await item.run(place, arguments)
    adapter = item.signature.returns
    assert adapter.dump_python(adapter.validate_json(json.dumps(value)), mode="json") == value
    full = item.validate(arguments)
    assert item.for_model(full, value)
    assert "\n" not in item.for_human(full, value)
    return value


async def refusal(item: Tool, place: Workspace, **arguments: Any) -> tuple[str, str]:
    with pytest.raises(ToolFailed) as caught:
        await item.run(place, arguments)
    assert "\n" not in str(caught.value)
    return caught.value.code, str(caught.value)


async def hits(place: Workspace, pattern: str, **arguments: Any) -> list[tuple[str, int]]:
    value = await checked(grep, place, pattern=pattern, **arguments)
    return [(match["path"], match["line"]) for match in value["matches"]]


async def test_grep_finds_lines_by_path_and_line(place: Workspace):
    plant(place.cwd, {"b.py": "x = 1\ny = 2\nx = 3\n", "a/z.txt": "x = 4", "a.txt": "x = 0\n"})
    value = await checked(grep, place, pattern=r"x = \d")
    assert value == {
        "matches": [
            {"path": "a/z.txt", "line": 1, "text": "x = 4"},
            {"path": "a.txt", "line": 1, "text": "x = 0"},
            {"path": "b.py", "line": 1, "text": "x = 1"},
            {"path": "b.py", "line": 3, "text": "x = 3"},
        ],
        "files": 3,
        "truncated": False,
    }
    assert grep.for_model({}, value) == "a/z.txt\n  1: x = 4\na.txt\n  1: x = 0\nb.py\n  1: x = 1\n  3: x = 3"
    assert grep.for_human({"pattern": r"x = \d"}, value) == r"grep x = \d: 4 lines in 3 files"


async def test_grep_in_one_file_even_one_that_is_left_out(place: Workspace):
    plant(place.cwd, {".git/x": "", ".gitignore": "*.log\n", "a.log": "x\n", ".hidden": "x\n"})
    assert await hits(place, "x") == []
    assert await hits(place, "x", path="a.log") == [("a.log", 1)]
    assert await hits(place, "x", path=".hidden", glob="*.py") == [(".hidden", 1)]


async def test_grep_takes_text_globs_and_case(place: Workspace):
    plant(place.cwd, {"a.py": "f(x)\nF(X)\n", "src/b.py": "f(x)\n", "src/c.ts": "f(x)\n", "d.txt": "f(x)\n"})
    assert await hits(place, "f(x)", literal=True, glob="*.py") == [("a.py", 1), ("src/b.py", 1)]
    assert await hits(place, "f(x)", literal=True, glob="*.py", ignore_case=True) == [
        ("a.py", 1),
        ("a.py", 2),
        ("src/b.py", 1),
    ]
    assert await hits(place, "f", glob="src/*.{py,ts}") == [("src/b.py", 1), ("src/c.ts", 1)]
    assert await hits(place, "f", path="src", glob="*.ts") == [("src/c.ts", 1)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"b(?=ar)", [1]),  # what only Python has
        (r"(o)\1", [1, 2, 3]),
        (r"(?i)FOO", [1, 2, 3]),
        (r"\bfoo$", [2]),
        (r"^$", [4]),
        (r"é+\s", [5]),
        (r"[\[\]-]", [6]),
        (r"\Afoo", [1, 2]),
        (r"o{2}\b", [2, 3]),
        (r"[o&&x]", [1, 2, 3, 5]),  # an intersection to ripgrep
        (r"(?:\w{100}){100}", [7]),  # too large for it
    ],
)
async def test_patterns_mean_what_they_mean_in_python(place: Workspace, pattern: str, expected: list[int]):
    plant(place.cwd, {"a": "foobar\nfoo\nFoo \n\néé x\n[-]\n" + "w" * 10_000})
    assert [line for _, line in await hits(place, pattern)] == expected


@pytest.mark.parametrize("literal", [True, False])
async def test_a_pattern_with_a_newline_or_a_fault_is_refused(place: Workspace, literal: bool):
    plant(place.cwd, {"a": "a\\nb\n"})
    assert (await refusal(grep, place, pattern="a\nb", literal=literal))[0] == "bad_pattern"
    if literal:
        assert await hits(place, r"a\nb", literal=True) == [("a", 1)]
        assert await hits(place, "(", literal=True) == []
        return
    assert (await refusal(grep, place, pattern=r"a\nb"))[0] == "bad_pattern"
    assert await hits(place, r"a\\nb") == [("a", 1)]
    code, message = await refusal(grep, place, pattern="(")
    assert code == "bad_pattern"
    assert "literal=True" in message


async def test_a_pattern_that_would_never_end_is_given_up(tmp_path: Path):
    place = Workspace(tmp_path)
    plant(place.cwd, {"a": "ok\n" + "x" * 60 + "\n"})
    running = asyncio.create_task(refusal(grep, place, pattern="(x|xx)+$y?z"))
    turns = 0
    while not running.done():  # the host goes on meanwhile
        await asyncio.sleep(0.01)
        turns += 1
    assert turns > 20
    code, message = await running
    assert code == "too_slow"
    assert "line 2 of a" in message


async def test_newline_styles_encodings_and_binaries(place: Workspace):
    plant(
        place.cwd,
        {
            "crlf": "one\r\ntwo\r\n",
            "latin": "sch\xf6n one\n".encode("latin-1"),
            "mark": "\ufeffone\n".encode(),
            "utf16": "é\none\n".encode("utf-16"),
            "binary": b"one\n\0\n",
            "late": b"one\n" + b"x" * 300_000 + b"\0",
            "none": "",
        },
    )
    value = await checked(grep, place, pattern="^one$")
    assert [(match["path"], match["text"]) for match in value["matches"]] == [
        ("crlf", "one"),
        ("mark", "one"),
        ("utf16", "one"),
    ]
    assert (await checked(grep, place, pattern="one$", glob="latin"))["matches"][0]["text"] == "sch\ufffdn one"


async def test_the_limit_counts_matches_over_all_files(place: Workspace):
    plant(place.cwd, {"a": "x\n" * 3, "b": "x\n" * 3})
    for limit, truncated in [(5, True), (6, False), (7, False)]:
        value = await checked(grep, place, pattern="x", limit=limit)
        assert len(value["matches"]) == min(limit, 6)
        assert value["truncated"] is truncated
    assert "there are more" in grep.for_model({}, await checked(grep, place, pattern="x", limit=1))


async def test_a_long_line_is_shown_around_its_match(place: Workspace):
    plant(place.cwd, {"a": "a" * 5000 + "needle" + "b" * 5000 + "\n"})
    text = (await checked(grep, place, pattern="needle"))["matches"][0]["text"]
    assert text.startswith("…")
    assert text.endswith("…")
    assert len(text) == LINE_LIMIT + 2
    assert text.index("needle") == 101


async def test_unusual_names_are_found_and_links_are_not_followed(place: Workspace):
    plant(place.cwd, {"-n": "x", "a b": "x", "new\nline": "x", "é/ü": "x", "*": "x", "folder/real": "x"})
    (place.cwd / "link").symlink_to("folder")
    (place.cwd / "linked").symlink_to("folder/real")
    plant(place.cwd, {os.fsdecode(b"\xff"): "x"})
    names = ["*", "-n", "a b", "folder/real", "new\nline", "é/ü", "\ufffd"]
    assert [name for name, _ in await hits(place, "x")] == names
    found = await checked(glob, place, pattern="**")
    assert sorted(found["paths"]) == sorted([*names, "linked"])
    assert [name for name, _ in await hits(place, "x", path="link")] == ["link/real"]  # named, it is followed


async def test_what_cannot_be_searched_says_so(place: Workspace):
    os.mkfifo(place.cwd / "pipe")
    plant(place.cwd, {"file": ""})
    assert (await refusal(grep, place, pattern="x", path="nowhere"))[0] == "not_found"
    assert (await refusal(grep, place, pattern="x", path="pipe"))[0] == "not_a_file"
    assert (await refusal(glob, place, pattern="*", path="file"))[0] == "not_a_folder"
    assert (await refusal(glob, place, pattern="*", path="fil")) == (
        "not_found",
        "fil does not exist; did you mean 'file'?",
    )


async def test_rules_stop_at_a_repository_and_above_a_folder_that_was_named(place: Workspace):
    plant(
        place.cwd,
        {
            ".git": "gitdir: elsewhere\n",
            ".gitignore": "*.log\nbuild/\n!.shown\n",
            "a.log": "x",
            ".shown": "x",
            "sub/.gitignore": "!kept.log\n/only\n",
            "sub/kept.log": "x",
            "sub/other.log": "x",
            "sub/only": "x",
            "sub/deep/only": "x",
            "repo/.git/config": "x",
            "repo/b.log": "x",
            "build/out/c.log": "x",
            "build/d": "x",
        },
    )
    assert [name for name, _ in await hits(place, "x")] == [".shown", "repo/b.log", "sub/deep/only", "sub/kept.log"]
    assert [name for name, _ in await hits(place, "x", path="build")] == ["build/d", "build/out/c.log"]
    assert [name for name, _ in await hits(place, "x", path="build/out")] == ["build/out/c.log"]
    assert [name for name, _ in await hits(place, "x", path="sub")] == ["sub/deep/only", "sub/kept.log"]


NAMES = ["a", "b", "c.py", "d.log", "build", ".dot", "e f", "é", "[x]", "g#h"]
RULES = """
*.log|!d.log|build/|build|/a|a/|a/*|!a/b|**/c.py|a/**/b|b/**|*|!*/|!*.py|# note||\\#x|[ab]|?.py|!.dot|.dot|e\\ f|e f|é
/**/d.log|a/b/|/|g#h|c.py   |\\[x\\]|**|!build|build/*|!build/a|a/b/c.py
""".replace("\n", "|").split("|")


def grow(folder: Path, dice: random.Random, depth: int) -> None:
    folder.mkdir(exist_ok=True)
    if dice.random() < 0.5:
        rules = dice.choices(RULES, k=dice.randint(1, 4))
        (folder / ".gitignore").write_text("\n".join(rules) + dice.choice(["", "\n"]))
    if dice.random() < 0.1:
        (folder / ".git").mkdir()
    for name in dice.sample(NAMES, k=5):
        if depth and dice.random() < 0.5:
            grow(folder / name, dice, depth - 1)
        else:
            content = dice.choice([b"hit\n", b"miss\nhit here\n", b"hit\r\nhit\r\n", b"hit\0", b"miss\n", b"\xffhit"])
            (folder / name).write_bytes(content)


async def test_rules_count_in_repositories_only_and_odd_lines_mean_nothing(tmp_path: Path):
    plant(
        tmp_path,
        {".gitignore": "*\n", "repo/.git/x": "", "repo/.gitignore": "!\n*.log\n", "repo/a": "", "repo/b.log": ""},
    )
    found = await glob.run(Workspace(tmp_path), {"pattern": "**"})
    assert found["paths"] == ["repo/a"]


@needs_ripgrep
@pytest.mark.parametrize("seed", range(25))
async def test_both_ways_agree_on_a_random_tree(tmp_path: Path, seed: int):
    dice = random.Random(seed)
    grow(tmp_path / "tree", dice, 3)
    (tmp_path / "tree/.git").mkdir(exist_ok=True)
    folders = [path for path in (tmp_path / "tree").rglob("*") if path.is_dir()]
    for path in [tmp_path / "tree", *dice.sample(folders, k=min(4, len(folders)))]:
        arguments = {"pattern": "hit$", "path": str(path), "limit": dice.choice([3, 1000])}
        fast = await grep.run(Workspace(tmp_path, RIPGREP), arguments)
        slow = await grep.run(Workspace(tmp_path), arguments)
        assert fast == slow, path


# glob


async def test_glob_lists_files_sorted_by_path(place: Workspace):
    plant(
        place.cwd, {"b.py": "", "a/x.py": "", "a/deep/y.py": "", "a.txt": "", ".hid/z.py": "", ".gitignore": "no.py\n"}
    )
    plant(place.cwd, {"a/no.py": "", ".git/k.py": ""})
    for pattern, paths in {
        "**/*.py": ["a/deep/y.py", "a/x.py", "b.py"],
        "*.py": ["b.py"],
        "./*.py": ["b.py"],
        "a/*.py": ["a/x.py"],
        "a/**": ["a/deep/y.py", "a/x.py"],
        "*/*/*.py": ["a/deep/y.py"],
        "{a.txt,b.*}": ["a.txt", "b.py"],
        "[ab].py": ["b.py"],
        ".hid/*": [".hid/z.py"],
        ".git/*": [],
        "**/.hid/*": [".hid/z.py"],
        "*.nothing": [],
    }.items():
        assert (await checked(glob, place, pattern=pattern))["paths"] == paths, pattern
    value = await checked(glob, place, pattern="*.py", path="a")
    assert value == {"root": "a", "paths": ["a/x.py"], "truncated": False}
    assert glob.for_model({}, value) == "a/x.py"
    assert glob.for_human({"pattern": "*.py"}, value) == "glob *.py in a: 1 files"


async def test_a_walk_looks_no_deeper_than_asked(tmp_path: Path):
    plant(tmp_path, {"a": "", "b/c": "", "b/d/e": ""})
    assert [entry.name for entry in walk(tmp_path, depth=2)] == ["a", "c"]


async def test_an_abandoned_search_stops(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    ended = threading.Event()

    @tool
    def watched() -> bool:
        """Says so when nobody waits for it any more."""
        (tmp_path / "pipe").write_text("started")
        while not abandoned():
            time.sleep(0.001)
        ended.set()
        return True

    running = asyncio.create_task(watched.run(Workspace(tmp_path), {}))
    await asyncio.to_thread((tmp_path / "pipe").read_text)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(ended.wait, 10)


async def test_glob_says_when_there_is_more(place: Workspace):
    plant(place.cwd, {f"{n}": "" for n in range(5)})
    value = await checked(glob, place, pattern="*", limit=4)
    assert (value["paths"], value["truncated"]) == (["0", "1", "2", "3"], True)
    assert glob.for_model({}, value).endswith("[there are more; narrow the pattern or raise limit]")
    assert (await checked(glob, place, pattern="*", limit=5))["truncated"] is False


@pytest.mark.parametrize("pattern", ["", "/etc/*", "../*", "a/../b", "~/x", "{1..99}{1..99}"])
async def test_glob_refuses_what_it_could_never_find(place: Workspace, pattern: str):
    assert (await refusal(glob, place, pattern=pattern))[0] == "bad_pattern"

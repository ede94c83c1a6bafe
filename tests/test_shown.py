"""What the model sees of a cell: bounded whatever comes, exact where it is cut."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from prime import shown
from prime.messages import ImagePart, TextPart
from prime.repl.signals import Ended, Failed, Image, Output
from prime.shown import MAX_IMAGES, Shown

PICTURE = Image("image/png", "AAAA")


def finished(pieces: list[str], limit: int = 1_000, before: str = "", after: str = "", seq: int = 7) -> str:
    collected = Shown(limit)
    for piece in pieces:
        collected.add(Output("stdout", piece))
    (part,) = collected.finish(before, after, seq).parts
    assert isinstance(part, TextPart)
    return part.text


def ended(status: str = "ok", **fields: object) -> Ended:
    usual = {
        "generation": 1,
        "error": None,
        "set": (),
        "removed": (),
        "unawaited": (),
        "dropped": 0,
        "duration_s": 1.5,
    }
    return Ended(status=status, **{**usual, **fields})  # type: ignore[arg-type]


texts = st.text(st.sampled_from("ab \n0é漢😀"), max_size=60)


@given(
    st.lists(st.one_of(texts, texts.map(lambda text: text * 200)), max_size=30),
    st.integers(1_000, 3_000),
    st.one_of(texts, texts.map(lambda text: text * 100)),
    st.one_of(texts, texts.map(lambda text: text * 100)),
)
def test_the_text_never_exceeds_the_limit_and_is_cut_between_code_points(
    pieces: list[str], limit: int, before: str, after: str
) -> None:
    text = finished(pieces, limit, before, after)
    assert len(text.encode()) <= limit
    assert "\ufffd" not in text
    whole = "".join(pieces)
    room = limit - len(before.encode()) - len(after.encode()) - 2
    if len(whole.encode()) <= room and len(before.encode()) <= limit // 4 and len(after.encode()) <= limit // 2:
        assert whole.rstrip("\n") in text
        assert "not shown" not in text


@given(st.lists(texts.filter(bool), min_size=1, max_size=40), st.integers(1, 50))
def test_a_cut_says_how_much_there_was_and_keeps_both_ends(pieces: list[str], times: int) -> None:
    whole = "".join(pieces) * times
    text = finished(pieces * times)
    found = re.search(r"\n\[\.\.\. ([\d,]+) bytes in all, .*history\.expand\(seq=7, format=1\).*\.\.\.\]\n", text)
    if found is None:
        assert text == whole.removesuffix("\n")
        return
    assert int(found[1].replace(",", "")) == len(whole.encode())
    head, tail = text[: found.start()], text[found.end() :]
    assert whole.startswith(head)
    assert whole.removesuffix("\n").endswith(tail)
    # both ends have what the limit leaves, but for a part of a code point and a line end
    assert min(len(head.encode()), len(tail.encode())) >= (1_000 - 2 - (found.end() - found.start())) // 2 - 5


def test_one_huge_piece_and_many_small_ones_show_the_same() -> None:
    text = "".join(f"line {number}\n" for number in range(10_000))
    assert finished([text]) == finished(text.splitlines(keepends=True)) == finished(list(text))


def test_memory_is_bounded_while_output_is_collected() -> None:
    collected = Shown(1_000)
    for number in range(100_000):
        collected.add(Output("stdout", f"{number}\n"))
    kept = sum(map(len, collected._head)) + sum(map(len, collected._tail))
    assert kept <= 2_100


def test_an_error_is_shown_whole_whatever_was_printed() -> None:
    error = Failed("ValueError", "bad", "Cell, line 3\nValueError: bad")
    text = finished(["x" * 100_000], 12_000, after=shown.outcome(ended("error", error=error), called=False))
    assert text.endswith("Cell, line 3\nValueError: bad")


def test_a_long_error_is_cut_in_the_middle_and_leaves_room_for_output() -> None:
    text = finished(["printed"], 1_000, after="first line\n" + "x" * 50_000 + "\nlast line")
    assert "printed" in text
    assert "first line" in text
    assert text.endswith("last line")
    assert "50,020 bytes" not in text
    assert f"{len('first line') + 1 + 50_000 + 1 + len('last line'):,} bytes, the middle is not shown" in text


def test_a_result_begins_on_a_line_of_its_own() -> None:
    collected = Shown(1_000)
    collected.add(Output("stdout", "no line end"))
    collected.add(Output("result", "5"))
    assert collected.finish("", "", 0).parts == (TextPart(text="no line end\n5"),)


def test_images_are_parts_and_too_many_are_named() -> None:
    collected = Shown(1_000)
    for _ in range(MAX_IMAGES + 3):
        collected.add(Output("display", "<Figure>", image=PICTURE))
    text, *images = collected.finish("", "", 0).parts
    assert images == [ImagePart(media_type="image/png", data="AAAA")] * MAX_IMAGES
    assert isinstance(text, TextPart)
    assert f"[image {MAX_IMAGES}: image/png]" in text.text
    assert "[3 more images are not shown]" in text.text


def test_how_a_cell_ended_is_said_in_words() -> None:
    assert shown.outcome(ended(), called=False) == ""
    assert "names are kept" in shown.outcome(ended("interrupted"), called=False)
    assert "before it ran" in shown.outcome(ended("interrupted", generation=None), called=False)
    assert "time limit" in shown.outcome(ended("timeout"), called=False)
    assert "all names are gone" in shown.outcome(ended("killed"), called=False)
    assert "died" in shown.outcome(ended("died"), called=False)
    assert "may have had effects" in shown.outcome(ended("killed"), called=True)
    assert "may have had effects" not in shown.outcome(ended("error"), called=True)
    assert "1,234 bytes" in shown.outcome(ended(dropped=1_234), called=False)
    assert shown.outcome(ended(unawaited=("tools.a: x: y",)), called=True) == "[not awaited] tools.a: x: y"


def test_a_loss_lists_names_and_counts_the_rest() -> None:
    notice = shown.loss_notice(tuple((f"name{number}", "int") for number in range(shown.MAX_NAMES + 5)))
    assert "name0, name1" in notice
    assert "and 5 more" in notice
    assert "Gone" not in shown.loss_notice(())


def test_a_kernel_that_could_not_be_started_did_not_die() -> None:
    failed = Failed("KernelStartFailed", "no such interpreter", "")
    words = shown.outcome(Ended("died", None, failed, (), (), (), 0, 0.0), False)
    assert words == "[the kernel could not be started, and nothing ran: no such interpreter]"


def test_clearing_the_screen_takes_images_and_text_away() -> None:
    collected = Shown(1_000)
    for number in range(20):
        collected.add(Output("stdout", "\x1b[2J"))
        collected.add(Output("display", f"state {number}", image=PICTURE))
    collected.add(Output("stdout", "\x1b[2J"))
    text, *images = collected.finish("", "", 7).parts
    assert text == TextPart(text="state 19\n[image 1: image/png]")
    assert len(images) == 1


def test_an_error_loses_its_colours() -> None:
    assert finished(["out"], after="\x1b[31mred\x1b[0m") == "out\nred"

"""Views over a recorded log: `fixtures/views/session.jsonl` is what `sessions export --to jsonl` wrote of a session
with a picture, a failing call, a failing cell, a refused call, a retry, a cell by hand and an interrupted turn."""

from __future__ import annotations

import io
import json
import re
from decimal import Decimal
from pathlib import Path

from rich.console import Console
from strategies import cell_ended

from prime import events as ev
from prime.messages import Delta, Header, ImagePart, TextPart, Usage
from prime.views import jsonl, markdown, summary, terminal
from prime.views.calls import called, condensed, duration
from prime.views.progress import Progress, Words
from prime.views.transcript import Cell, Notice, Reply, Said, Step, Turn, transcript

FIXTURES = Path(__file__).parent / "fixtures" / "views"


def entries() -> list[ev.Entry]:
    found = []
    for line in (FIXTURES / "session.jsonl").read_text().splitlines():
        fields = json.loads(line)
        kind = ev.TYPES[fields["type"]]
        event = kind.model_validate_json(
            json.dumps({name: fields[name] for name in kind.model_fields if name in fields})
        )
        found.append(ev.Entry(**{name: fields[name] for name in ("session", "seq", "at", "turn", "step")}, event=event))
    return found


def entry(seq: int, event: object) -> ev.Entry:
    return ev.Entry("s", seq, 1_796_000_000_000, None, None, event)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def plain_console(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False)


def test_the_transcript_has_every_turn_step_cell_call_and_notice() -> None:
    first, by_hand, second = transcript(entries()).items
    assert isinstance(first, Turn)
    assert isinstance(by_hand, Cell)
    assert isinstance(second, Turn)
    assert by_hand.by_hand
    said, *steps = first.items
    assert isinstance(said, Said)
    assert said.text == "How many lines has *a.txt*?\nCount them."
    kinds = [[type(item) for item in step.items] for step in steps if isinstance(step, Step)]
    assert kinds == [[Reply, Cell], [Reply, Cell, Notice], [Notice, Notice, Reply]]
    cell = steps[0].items[1]  # type: ignore[union-attr]
    assert isinstance(cell, Cell)
    assert [
        (call.target, call.ended.error.code if call.ended and call.ended.error else None) for call in cell.calls
    ] == [
        ("tools.read", None),
        ("tools.read", "not_found"),
    ]
    assert [image.name for image in cell.images] == ["image-15.png"]
    assert second.ended is not None
    assert second.ended.reason == "cancelled"


def test_a_transcript_of_any_beginning_of_a_log_says_what_is_open() -> None:
    whole = entries()
    for end in range(1, len(whole) + 1):
        part = transcript(whole[:end])
        assert len(markdown.markdown(part)) > 0
        plain_console().print(terminal.document(part))
    cut = next(index for index, one in enumerate(whole) if one.event.type == "cell_ended")
    assert "*The cell is not over.*" in markdown.markdown(transcript(whole[:cut]))
    assert "*The turn is not over.*" in markdown.markdown(transcript(whole[:cut]))


def test_markdown_is_as_it_was() -> None:
    assert markdown.markdown(transcript(entries()), "pictures") == (FIXTURES / "session.md").read_text()


def test_markdown_without_a_folder_names_its_images() -> None:
    text = markdown.markdown(transcript(entries()))
    assert "*Image: image-15.png*" in text
    assert "](" not in text


def test_jsonl_holds_every_entry() -> None:
    assert "".join(jsonl.lines(entries())) == (FIXTURES / "session.jsonl").read_text()


def test_a_row_needs_only_its_types() -> None:
    whole = summary.row(entries())
    assert summary.row(one for one in entries() if one.event.type in summary.TYPES) == whole
    assert (whole.title, whole.turns, whole.cells) == ("How many lines has *a.txt*? Count them.", 2, 3)
    assert whole.as_json()["started"].endswith("+00:00")


def test_an_unknown_price_is_never_zero() -> None:
    row = summary.row(entries())
    assert row.price is None
    assert row.as_json()["price"] is None
    assert "- Price: unknown\n" in markdown.markdown(transcript(entries()))


def test_a_known_price_is_shown() -> None:
    header = Header(model="anthropic/claude-haiku-4-5", system="", tools=())
    reply = ev.ModelReplied(parts=(TextPart(text="a"),), stop="end", model="m", usage=Usage(input=1_000_000))
    log = [
        entry(0, ev.SessionCreated(session="s", cwd="/", version="1")),
        entry(1, ev.TurnStarted()),
        entry(2, ev.HeaderChanged(header=header)),
        entry(3, ev.StepStarted(request="", messages=1)),
        entry(4, reply),
    ]
    assert summary.row(log).price == Decimal(1)
    assert "- Price: $1.0000\n" in markdown.markdown(transcript(log))


def test_a_fork_does_not_count_its_parents_tokens() -> None:
    log = [*entries(), entry(43, ev.SessionForked(session="child", parent="p", version="1"))]
    whole = transcript(log)
    assert (whole.session, whole.parent, whole.usage) == ("child", "p", {})
    assert whole.cells == transcript(entries()).cells


def test_several_images_of_one_message_have_names_of_their_own() -> None:
    image = ImagePart(media_type="image/jpeg", data="")
    said = Said(7, 0, "ask", (image, TextPart(text="a"), image))
    assert [one.name for one in said.images] == ["image-7.jpeg", "image-7-2.jpeg"]


def test_late_output_goes_to_the_cell_that_made_it() -> None:
    log = [one for one in entries() if one.turn is None or one.turn == 1]
    first = next(one.event.cell for one in log if one.event.type == "cell_started")
    late = ev.CellOutput(cell=first, stream="stdout", text="late words", late=True)
    whole = transcript([*log, entry(99, late)])
    assert [output.event.text for output in whole.cells[0].outputs][-1] == "late words"
    assert "[late] late words" in markdown.markdown(whole)


def test_no_control_character_reaches_a_terminal() -> None:
    odd = "\x1b]0;title\x07 10%\r20%\x9b31m\n"
    ended = cell_ended("c", None, shown=(TextPart(text=odd),))
    for shown in (terminal.result(ended, []), terminal.code(odd), terminal.note(odd)):
        assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown.plain) is None
    bar = ev.CellOutput(cell="c", stream="stdout", text="10%\r20%")
    begun = ev.CellStarted(cell="c", call_id=None, code="x")
    assert "10%" not in markdown.markdown(transcript([entry(0, begun), entry(1, bar), entry(2, ended)]))


def test_progress_prints_a_session_as_it_happens() -> None:
    console = plain_console()
    kept = []
    progress = Progress(console, lambda seq, image: kept.append(seq) or f"/images/{seq}")
    for one in entries():
        progress.take(one)
    text = printed(console)
    assert kept == [15]
    for line in (
        "I read the file and draw it.",
        "  → tools.read(path='a.txt')",
        "  [image saved: /images/15]",
        "IndexError: string index out of range",
        "  [attempt 1 failed: rate_limit: scripted/s.yaml: reply 3 is scripted to fail (rate_limit)]",
        "  [interrupted here]",
        "  [cancelled]",
    ):
        assert f"{line}\n" in text
    assert "[context:" not in text
    assert "reply 3" in text


def test_words_that_streamed_are_not_printed_again() -> None:
    console = plain_console()
    progress = Progress(console, lambda seq, image: "")
    for one in entries():
        if isinstance(one.event, ev.ModelReplied):
            for part in one.event.parts:
                if isinstance(part, TextPart):
                    progress.take(Delta(kind="text", text=part.text))
        progress.take(one)
    assert printed(console).count("I read the file and draw it.") == 1
    assert printed(console).count("Half") == 1


def test_streaming_words_come_in_whole_lines() -> None:
    console = plain_console(width=20)
    words = Words(console)
    for letter in "The quick brown fox jumps over.\nNext ":
        words.add(letter)
    assert printed(console) == "The quick brown fox\njumps over.\n"
    words.end()
    assert printed(console).endswith("over.\nNext \n")


def test_only_the_first_calls_get_a_line() -> None:
    console = plain_console()
    progress = Progress(console, lambda seq, image: "")
    progress.take(entry(0, ev.CellStarted(cell="c", call_id=None, code="x")))
    for number in range(40):
        progress.take(
            entry(number, ev.DispatchStarted(cell="c", call=number, target="tools.read", arguments={"path": "a"}))
        )
    assert printed(console).count("→ tools.read") == 5
    assert printed(console).count("→ …") == 1


def test_a_long_result_shows_head_and_tail() -> None:
    shown = "\n".join(map(str, range(1000))) + "\n[context: 1,234 of 9,000 tokens]"
    ended = ev.CellEnded(
        cell="c",
        call_id=None,
        status="ok",
        generation=1,
        shown=(TextPart(text=shown),),
        error=None,
        set={},
        removed=(),
        calls=0,
        dropped=0,
        duration_s=0.5,
    )
    lines = terminal.result(ended, ["tools.read"] * 3).plain.splitlines()
    assert len(lines) == terminal.SHOWN_LINES + 2
    assert lines[-2:] == ["  999", "  [calls: read ×3 · 500 ms]"]
    assert "  … 976 more lines …" in lines


def test_a_cell_names_what_it_set_and_removed() -> None:
    fields = {"cell": "c", "call_id": None, "status": "ok", "generation": 1, "shown": (), "error": None}
    names = {f"n{number}": "int" for number in range(10)}
    ended = ev.CellEnded(**fields, set=names, removed=("old",), calls=0, dropped=0, duration_s=0.5)
    listed = "n0, n1, n2, n3, n4, n5, n6, n7 and 2 more"
    assert terminal.result(ended, []).plain == f"  [set {listed} · removed old · 500 ms]"


def test_calls_in_one_line() -> None:
    assert called("tools.write", {"path": "a", "content": "x" * 500}) == f"tools.write(path='a', content='{'x' * 58}…)"
    assert condensed(["tools.read", "tools.grep", "tools.read", "history.step"]) == "read ×2, grep, history.step"
    assert (duration(0.0123), duration(2.345)) == ("12 ms", "2.3 s")

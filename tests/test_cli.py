"""The commands as processes, with scripted models, real kernels and real logs."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from command import COMMAND, as_in_a_terminal, environment, objects, prime, script

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
#: A script without cells: no kernel is started.
WORDS = {"text": "Fine words.", "repeat": 20}


def said(home: Path, *texts: str) -> list[str]:
    """Make sessions in which something was said; return their ids, newest first."""
    model = script(home, WORDS)
    for text in texts:
        assert prime(home, "run", text, "-m", model).returncode == 0
    return [row["id"] for row in objects(prime(home, "sessions", "list", "--json").stdout)]


def test_run_gives_progress_on_stderr_and_only_the_answer_on_stdout(home: Path) -> None:
    model = script(home, {"text": "I compute.", "code": "x = 20\nprint(x)\nx + 1"}, {"text": "It is **21**."})
    ran = prime(home, "run", "What is x + 1?", "-m", model)
    assert (ran.returncode, ran.stdout) == (0, "It is **21**.\n")
    for line in ("I compute.", "│ print(x)", "  20", "  21", "price unknown"):
        assert line in ran.stderr
    assert "\x1b" not in ran.stderr


def test_run_json_prints_every_entry_and_nothing_else(home: Path) -> None:
    model = script(home, {"text": "Three", "code": "1"}, {"text": "words."})
    ran = prime(home, "run", "Go", "-m", model, "--json")
    printed = objects(ran.stdout)
    assert ran.stderr == ""
    assert printed[-1]["type"] == "turn_ended"
    shown = objects(prime(home, "sessions", "show", "last", "--json").stdout)
    exported = objects(prime(home, "sessions", "export", "last", "--to", "jsonl").stdout)
    assert shown == exported
    assert [one for one in shown if one["seq"] in {line["seq"] for line in printed}] == printed
    assert [one["type"] for one in shown if one not in printed] == ["session_created", "session_closed"]


def test_run_deltas_prints_the_pieces_of_replies_too(home: Path) -> None:
    ran = prime(home, "run", "Go", "-m", script(home, {"text": "one two", "chunk": 4}), "--deltas")
    pieces = [one["text"] for one in objects(ran.stdout) if one["type"] == "delta"]
    assert pieces == ["one ", "two"]


@pytest.mark.parametrize(
    ("code", "reply", "options"),
    [
        (1, {"error": {"code": "auth"}}, ()),
        (1, {"text": "", "stop": "filter"}, ()),
        (3, {"text": "cut", "stop": "length"}, ()),
        (3, {"call": {"name": "grep"}, "repeat": 9}, ("--max-steps", "2")),
        (3, {"text": "", "repeat": 9}, ()),
    ],
)
def test_the_exit_code_of_run_tells_how_it_ended(home: Path, code: int, reply: dict, options: tuple[str, ...]) -> None:
    assert prime(home, "run", "Go", "-m", script(home, reply), *options).returncode == code


@pytest.mark.parametrize("argument", [("-",), ()])
def test_run_reads_the_task_from_standard_input(home: Path, argument: tuple[str, ...]) -> None:
    model = script(home, {"text": "Heard.", "expect": "words\nfrom a pipe"})
    assert prime(home, "run", *argument, "-m", model, given="words\nfrom a pipe").stdout == "Heard.\n"


def test_run_goes_on_with_a_session(home: Path) -> None:
    (first,) = said(home, "First words")
    ran = prime(home, "run", "Second words", "-m", script(home, WORDS), "--session", first[:-2])
    assert ran.returncode == 0
    (row,) = objects(prime(home, "sessions", "list", "--json").stdout)
    assert (row["id"], row["turns"], row["title"]) == (first, 2, "First words")


def test_run_shows_the_model_a_picture(home: Path) -> None:
    (home / "pixel.png").write_bytes(PIXEL)
    ran = prime(home, "run", "Look", "-m", script(home, WORDS), "--image", home / "pixel.png", "--json")
    (words,) = [one for one in objects(ran.stdout) if one["type"] == "user_said"]
    assert words["parts"][1] == {"type": "image", "media_type": "image/png", "data": base64.b64encode(PIXEL).decode()}


def test_ctrl_c_ends_the_turn_and_closes_every_bracket(home: Path) -> None:
    model = script(home, {"code": "print('begun', flush=True)\nawait asyncio.sleep(60)"})
    command = [*COMMAND, "run", "Go", "-m", model, "--json"]
    with subprocess.Popen(
        command, env=environment(home), stdout=subprocess.PIPE, text=True, preexec_fn=as_in_a_terminal
    ) as running:
        assert running.stdout is not None
        assert any('"cell_output"' in line for line in running.stdout)  # reads no further than that
        running.send_signal(signal.SIGINT)
        rest = objects(running.stdout.read())
    assert running.returncode == 130
    assert [one["type"] for one in rest] == ["cell_ended", "step_ended", "turn_ended"]
    assert rest[-1]["reason"] == "cancelled"
    assert prime(home, "sessions", "verify", "last").returncode == 0


def test_images_of_a_run_are_saved_and_named(home: Path) -> None:
    code = f"from IPython.display import Image, display\ndisplay(Image(data={PIXEL!r}))"
    ran = prime(home, "run", "Draw", "-m", script(home, {"code": code}, WORDS))
    (file,) = home.glob("sessions/*/images/*.png")
    assert file.read_bytes() == PIXEL
    assert str(file) in ran.stderr.replace("\n", "")
    out = home / "out.md"
    assert prime(home, "sessions", "export", "last", "-o", out).returncode == 0
    assert (home / "out-images" / file.name).read_bytes() == PIXEL
    assert f"(out-images/{file.name})" in out.read_text()


def test_cells_keep_their_names_and_print_what_they_show(home: Path) -> None:
    (home.parent / "a.txt").write_text("hello")
    ran = prime(home, "cell", "-c", "x = 41", "-c", "x + 1", "-c", "(await tools.read(path='a.txt')).text")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "42\n'hello'\n", "")


def test_cell_json_prints_exactly_one_object_for_each_cell(home: Path) -> None:
    ran = prime(home, "cell", "--json", "-c", "await tools.glob('*')\nprint('a')", "-c", "1 / 0", "-c", "'later'")
    first, second = objects(ran.stdout)
    assert list(first) == ["status", "shown", "generation", "duration_s", "calls"]
    assert (first["status"], first["shown"], first["generation"], first["calls"]) == ("ok", "a", 1, 1)
    assert second["status"] == "error"
    assert "ZeroDivisionError" in second["shown"]
    assert ran.returncode == 1


def test_cell_keeps_going_when_told_to(home: Path) -> None:
    ran = prime(home, "cell", "--json", "--keep-going", "-c", "1 / 0", "-c", "'later'")
    assert [one["status"] for one in objects(ran.stdout)] == ["error", "ok"]
    assert ran.returncode == 1


def test_cell_takes_a_file_standard_input_and_a_time_limit(home: Path) -> None:
    (home / "cell.py").write_text("y = 7\ny * 6\n")
    assert prime(home, "cell", home / "cell.py").stdout == "42\n"
    assert prime(home, "cell", "-", given="6 * 7").stdout == "42\n"
    slow = prime(home, "cell", "--json", "--cell-timeout", "0.5", "-c", "import time; time.sleep(60)")
    assert objects(slow.stdout)[0]["status"] == "timeout"


def test_cells_go_into_the_session_that_is_named(home: Path) -> None:
    prime(home, "cell", "-c", "1")
    prime(home, "cell", "-c", "2", "--session", "last")
    (row,) = objects(prime(home, "sessions", "list", "--json").stdout)
    assert (row["cells"], row["turns"], row["model"], row["title"]) == (2, 0, None, "1")


def test_cell_ends_at_ctrl_c_with_its_result_in_the_log(home: Path) -> None:
    begun = home / "begun"
    os.mkfifo(begun)  # opens when the cell is there
    command = [*COMMAND, "cell", "-c", f"open({str(begun)!r}, 'w').close()\nawait asyncio.sleep(60)", "-c", "2"]
    with subprocess.Popen(
        command, env=environment(home), stdout=subprocess.PIPE, text=True, preexec_fn=as_in_a_terminal
    ) as running:
        begun.read_text()
        running.send_signal(signal.SIGINT)
        assert running.stdout is not None
        assert "[interrupted after" in running.stdout.read()
    assert running.returncode == 130
    shown = objects(prime(home, "sessions", "show", "last", "--json").stdout)
    assert [one["status"] for one in shown if one["type"] == "cell_ended"] == ["interrupted"]


def test_sessions_are_listed_newest_first(home: Path) -> None:
    said(home, "Older words", "Newer words")
    rows = objects(prime(home, "sessions", "list", "--json").stdout)
    assert [row["title"] for row in rows] == ["Newer words", "Older words"]
    assert list(rows[0]) == ["id", "title", "started", "turns", "cells", "model", "price", "cwd"]
    assert rows[0]["price"] is None
    table = prime(home, "sessions", "list").stdout.splitlines()
    assert table[0].split() == ["id", "started", "turns", "cells", "price", "title"]
    assert table[1].endswith("unknown  Newer words")


def test_a_damaged_session_hides_no_other(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    newest, _ = said(other, "One", "Two")
    (other / "sessions" / newest / "log.sqlite3").write_bytes(b"no database at all" * 1000)
    ran = prime(other, "sessions", "list", "--json")
    assert [row["title"] for row in objects(ran.stdout)] == ["One"]
    assert ran.stderr.startswith(f"error: {newest}: ")
    checked = prime(other, "sessions", "verify", "--all")
    assert checked.returncode == 1
    assert checked.stdout.endswith("1 requests checked, all as written\n")
    assert checked.stderr.startswith(f"error: {newest}: ")


def test_sessions_show_prints_a_transcript(home: Path) -> None:
    said(home, "Some *words*")
    shown = prime(home, "sessions", "show", "last").stdout
    assert shown.startswith("# Some \\*words\\*\n")
    assert "Fine words." in shown


def test_fork_ends_where_it_is_told_to(home: Path) -> None:
    (parent,) = said(home, "One")
    prime(home, "run", "Two", "-m", script(home, WORDS), "-s", parent)
    whole, turn = (
        prime(home, "sessions", "fork", parent, *options).stdout.strip() for options in ((), ("--turn", "1"))
    )
    end = next(one["seq"] for one in objects(prime(home, "sessions", "show", turn, "--json").stdout)[::-1])
    at = prime(home, "sessions", "fork", parent, "--at", str(end - 1)).stdout.strip()
    rows = {row["id"]: row["turns"] for row in objects(prime(home, "sessions", "list", "--json").stdout)}
    assert rows == {parent: 2, whole: 2, turn: 1, at: 1}
    assert prime(home, "sessions", "verify", "--all").returncode == 0


def test_deleting_asks_or_is_told(home: Path) -> None:
    (session,) = said(home, "One")
    refused = prime(home, "sessions", "delete", session)
    assert refused.returncode == 2
    assert "pass --yes" in refused.stderr
    assert prime(home, "sessions", "delete", "last", "--yes").stdout == f"deleted {session}\n"
    assert not (home / "sessions" / session).exists()


@pytest.mark.parametrize("files", [{}, {"a.txt": "alpha beta\n" * 3, "sub/b.py": "x = 1\n", "c.bin": "\0\1\2"}])
def test_the_demo_works_in_any_folder_without_a_model(home: Path, tmp_path: Path, files: dict[str, str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    ran = prime(home, "demo", "--cwd", folder)
    assert ran.returncode == 0, ran.stderr
    assert "a script that comes with prime-repl" in ran.stderr
    assert "error" not in ran.stderr
    readable = sum("\0" not in text for text in files.values())
    assert f"{readable} text files read" in ran.stderr
    assert ran.stdout.strip()


def test_run_without_a_model_lists_the_choices_in_one_line(home: Path) -> None:
    ran = prime(home, "run", "Go")
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert "--model: anthropic/NAME, " in ran.stderr


def test_models_names_a_key_and_never_shows_it(home: Path) -> None:
    ran = prime(home, "models", "--json", DEEPSEEK_API_KEY="sk-canary")
    assert objects(ran.stdout)[0] == {"model": "deepseek/deepseek-chat", "why": "DEEPSEEK_API_KEY is set"}
    assert "canary" not in ran.stdout + ran.stderr


def test_models_check_asks_each_for_a_word(home: Path) -> None:
    good = prime(home, "models", "--check", "-m", script(home, {"text": "ready"}))
    assert "answers: 'ready'" in good.stdout
    bad = prime(home, "models", "--check", "-m", script(home, {"error": {"code": "auth", "message": "wrong key"}}))
    assert bad.returncode == 1
    assert "fails: wrong key" in bad.stdout


def test_doctor_finds_a_good_environment_good(home: Path) -> None:
    ran = prime(home, "doctor", "--json", "-m", script(home, WORDS))
    found = {one["check"]: one["level"] for one in objects(ran.stdout)}
    assert ran.returncode == 0, ran.stdout
    assert [found[name] for name in ("python", "interpreter", "data directory", "kernel", "model")] == ["ok"] * 5
    assert found["sandbox"] == ("ok" if shutil.which("bwrap") else "note")
    assert objects(prime(home, "sessions", "list", "--json").stdout) == []


@pytest.mark.parametrize(
    ("check", "options", "more"),
    [
        ("interpreter", ("--python", "/nowhere/python"), {}),
        ("interpreter", ("--python", str(shutil.which("false"))), {}),
        ("data directory", (), {"PRIME_REPL_HOME": "/proc/nowhere"}),
        ("model", ("-m", "local/nothing"), {}),
    ],
)
def test_doctor_says_what_is_broken_and_the_fix(
    home: Path, check: str, options: tuple[str, ...], more: dict[str, str]
) -> None:
    ran = prime(home, "doctor", "--json", *options, **more)
    (finding,) = [one for one in objects(ran.stdout) if one["check"] == check]
    assert ran.returncode == 1
    assert finding["level"] == "problem"
    assert finding["fix"]


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (2, ["nonsense"]),
        (2, ["run"]),
        (2, ["run", "  "]),
        (2, ["run", "Go", "--max-steps", "many"]),
        (2, ["run", "Go", "--max-steps", "0"]),
        (2, ["run", "Go", "--model", "nobody/knows"]),
        (2, ["run", "Go", "--model", "openai/gpt"]),
        (2, ["run", "Go", "--model", "scripted/none.yaml"]),
        (2, ["run", "Go", "--nonsense"]),
        (2, ["run", "Go", "--image", "note.txt"]),
        (1, ["run", "Go", "--image", "none.png"]),
        (1, ["run", "Go", "--model", "scripted/SCRIPT", "--session", "20990101"]),
        (1, ["run", "Go", "--model", "scripted/SCRIPT", "--cwd", "/nowhere"]),
        (2, ["chat"]),
        (2, ["cell"]),
        (2, ["cell", "-c", "1", "file.py"]),
        (1, ["cell", "none.py"]),
        (1, ["cell", "-c", "1", "--session", "20990101"]),
        (1, ["cell", "-c", "1", "--python", "/nowhere/python"]),
        (1, ["sessions", "show", "20990101"]),
        (1, ["sessions", "export", "last"]),
        (2, ["sessions", "export", "last", "--to", "pdf"]),
        (2, ["sessions", "fork", "last", "--turn", "1", "--at", "2"]),
        (2, ["sessions", "verify"]),
        (1, ["sessions", "delete", "20990101", "--yes"]),
        (2, ["doctor", "--max-steps", "-1"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_bad_input_gets_one_line(home: Path, code: int, arguments: list[str]) -> None:
    script(home, WORDS)
    ran = prime(home, *(one.replace("SCRIPT", str(home / "script.yaml")) for one in arguments))
    message = ran.stderr if ran.stderr else ran.stdout
    assert ran.returncode == code, message
    assert message.count("\n") <= (3 if "--python" in arguments else 1)
    assert "Traceback" not in message
    assert message.startswith("error: ") or "--python" in arguments


def test_a_cell_that_is_no_text_gets_one_line(home: Path) -> None:
    (home / "cell.py").write_bytes(PIXEL)
    ran = prime(home, "cell", home / "cell.py")
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: 'utf-8' codec can't decode")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [(), ("sessions",), ("--debug",)])
def test_no_command_gets_help(home: Path, arguments: tuple[str, ...]) -> None:
    ran = prime(home, *arguments)
    assert ran.returncode == 0
    assert ran.stdout.startswith("Usage: ")


def test_debug_shows_the_traceback(home: Path) -> None:
    ran = prime(home, "--debug", "sessions", "show", "20990101")
    assert ran.returncode == 1
    assert "Traceback" in ran.stderr


def test_a_reader_that_goes_away_is_no_error(home: Path) -> None:
    said(home, "One")
    reader, writer = os.pipe()
    os.close(reader)
    command = [*COMMAND, "sessions", "list"]
    ran = subprocess.run(
        command, env=environment(home), stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (1, "")


def test_version(home: Path) -> None:
    assert prime(home, "--version").stdout.startswith("prime-repl 0.")


def test_a_run_goes_on_while_jobs_wake_it_and_asks_about_those_that_still_run(home: Path) -> None:
    start = 'await jobs.start("while [ ! -e go ]; do sleep 0.05; done; echo built", name="build")'
    model = script(
        home,
        {"code": f"{start}\nawait jobs.start('sleep 1000', name='server')"},
        {"text": "Both run."},
        {"code": "open('go', 'w').close()\nawait jobs.output(1, wait_s=30)", "expect": "ends with your next answer"},
        {"text": "It is built.", "expect": "built"},
    )
    ran = prime(home, "run", "Build it", "-m", model)
    assert (ran.returncode, ran.stdout) == (0, "It is built.\n")
    assert "[ended with the run: job 2 (server)]" in ran.stderr
    shown = prime(home, "sessions", "show", "last").stdout
    for line in ("job 1 (build) started: while", "job 1 ended (exited): exit code 0", "job 2 ended (closed): ended by"):
        assert line in " ".join(shown.split())


def test_a_run_answers_after_the_last_turn_that_a_job_has_started(home: Path) -> None:
    model = script(
        home,
        {"code": "await jobs.start('sleep 0.5')"},
        {"text": "It runs.", "delay_s": 1.5},
        {"text": "It ended.", "expect": "job 1 has ended: exit code 0"},
    )
    assert prime(home, "run", "Go", "-m", model).stdout == "It ended.\n"

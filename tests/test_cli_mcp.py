"""The commands about MCP servers, on a configuration file of a person."""

import sys
from pathlib import Path

from command import objects, prime

SERVER = Path(__file__).parent / "fixtures" / "mcp" / "server.py"


def test_the_file_keeps_what_a_person_wrote(home: Path) -> None:
    file = home / ".config" / "prime-repl" / "config.toml"
    file.parent.mkdir(parents=True)
    written = "# mine\nmax_steps = 7  # enough\n\n[mcp_servers.old] # keep\ncommand = 'x'\n"
    file.write_text(written)
    file.chmod(0o640)
    added = prime(home, "mcp", "add", "web", "--url", "https://example.org/mcp", "--header", "X-Key=s3cret")
    assert (added.returncode, added.stdout) == (0, f"added web to {file}\n")
    assert file.read_text().startswith(written)
    assert file.stat().st_mode & 0o777 == 0o640
    listed = prime(home, "mcp", "list", "--json")
    assert [(one["name"], one["at"], one["headers"]) for one in objects(listed.stdout)] == [
        ("old", "x", []),
        ("web", "https://example.org/mcp", ["X-Key"]),
    ]
    assert "s3cret" not in prime(home, "mcp", "list").stdout + listed.stdout
    assert prime(home, "mcp", "remove", "web").returncode == 0
    assert file.read_text().strip() == written.strip()


def test_a_new_file_is_for_its_owner(home: Path) -> None:
    file = home / ".config" / "prime-repl" / "config.toml"
    assert prime(home, "mcp", "add", "a", "--env", "K=s3cret", "--", "prog", "-y", "arg").returncode == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert "prog -y arg" in prime(home, "mcp", "list").stdout


def test_what_cannot_be_a_server_is_refused_in_one_line(home: Path) -> None:
    url = "https://example.org/mcp"
    assert prime(home, "mcp", "add", "a", "prog").returncode == 0
    for arguments, words in (
        (("add", "a", "prog"), "mcp remove a"),
        (("add", "b"), "either a command or a url"),
        (("add", "b", "prog", "--url", url), "either a command or a url"),
        (("add", "1b", "prog"), "no name for a server"),
        (("add", "b", "prog", "--env", "X"), "NAME=VALUE"),
        (("add", "b", "--url", "ftp://example.org"), "https://"),
        (("remove", "c"), "there are: a"),
        (("test", "c"), "there are: a"),
    ):
        ran = prime(home, "mcp", *arguments)
        assert ran.returncode == 2, arguments
        assert words in ran.stderr
        assert ran.stderr.count("\n") == 1


def test_a_server_is_tried(home: Path) -> None:
    prime(home, "mcp", "add", "fix", "--", sys.executable, str(SERVER))
    prime(home, "mcp", "add", "bad", "--", sys.executable, str(SERVER), "--broken")
    tried = prime(home, "mcp", "test", "fix")
    assert tried.returncode == 0
    assert "tools.fix_add(a: int, b: int = 2) -> {result: int}\n" in tried.stdout
    broken = prime(home, "mcp", "test", "bad")
    assert broken.returncode == 1
    assert "no such key" in broken.stderr
    assert "the MCP server bad ended before it was ready" in broken.stderr
    checked = prime(home, "doctor", "--json")
    assert {one["check"]: one["level"] for one in objects(checked.stdout) if one["check"].startswith("mcp")} == {
        "mcp fix": "ok",
        "mcp bad": "note",
    }


def test_a_project_may_not_have_servers(home: Path) -> None:
    (home.parent / "prime-repl.toml").write_text("[mcp_servers.a]\ncommand = 'touch'\nargs = ['ran']\n")
    ran = prime(home, "cell", "-c", "1")
    assert ran.returncode == 2
    assert "a project may not set 'mcp_servers'" in ran.stderr
    assert not (home.parent / "ran").exists()

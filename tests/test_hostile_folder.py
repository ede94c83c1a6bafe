"""Opening a folder that somebody else has written: nothing of it runs before a cell asks for it."""

from __future__ import annotations

import os
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import environment, script

#: Not ``python -m prime`` alone, with which Python itself looks for modules in the folder first.
COMMAND = (sys.executable, "-P", "-m", "prime")

#: What some program or other runs, reads or obeys when it finds it in a folder.
FILES = (
    *("sitecustomize.py", "usercustomize.py", "evil.pth", "conftest.py", "setup.py", ".pythonrc.py"),
    *("ipython_config.py", "ipython_kernel_config.py", "jupyter_config.py", "jupyter_server_config.py"),
    *("profile_default/startup/00.py", "profile_default/ipython_config.py", "profile_default/ipython_kernel_config.py"),
    *(".ipython/profile_default/startup/00.py", ".ipython/profile_default/ipython_config.py"),
    *(".prime-repl/hooks.py", "hooks/start.py", "skills/skill.py", ".prime-repl/settings.py"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which a file for every module there is, and every such file, leaves a trace when it runs."""
    folder = tmp_path / "theirs"
    modules = {*sys.stdlib_module_names, *(module.name for module in pkgutil.iter_modules()), "prime_kernel", "debugpy"}
    for name in (*FILES, *(f"{module}.py" for module in modules)):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        # so early in the life of a Python that only this much works
        file.write_text(f"import posix\nposix.mkdir({str(tmp_path / 'ran') + '-'!r} + __name__)\n")
    for program in ("bash", "sh", "rg", "python", "env", "git"):
        file = folder / program
        file.write_text(f"#!/bin/sh\nmkdir '{tmp_path}/ran-{program}'\n")
        file.chmod(0o755)
    (folder / "pyproject.toml").write_text("[tool.prime-repl]\npython = './python'\n")
    (folder / "prime-repl.toml").write_text("max_steps = 5\n")
    return folder


CODE = "(await tools.bash('echo hi')).stdout, (await tools.grep('max')).files, (await tools.glob('*.toml')).paths"


@pytest.mark.parametrize(
    "arguments",
    [
        ("cell", "-c", CODE, "-c", "!echo hi", "-c", "1 / 0", "--keep-going"),
        ("cell", "-c", CODE, "-c", "!echo hi", "-c", "1 / 0", "--keep-going", "--sandbox", "full"),
        ("run", "go", "-m", "MODEL"),
        ("doctor",),
    ],
)
def test_nothing_of_it_runs(home: Path, folder: Path, arguments: tuple[str, ...]) -> None:
    if "--sandbox" in arguments and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    model = script(home, {"code": CODE}, {"text": "Done."})
    ran = subprocess.run(
        [*COMMAND, *(model if each == "MODEL" else each for each in arguments)],
        cwd=folder,
        env=environment(home, PATH=f":{os.environ['PATH']}:.", LD_LIBRARY_PATH=":"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.stdout.count("hi\n") == 1 or arguments[0] != "cell", ran.stderr
    assert [trace.name for trace in folder.parent.glob("ran-*")] == []


def test_the_search_path_of_python_does_not_lead_into_it(home: Path, folder: Path) -> None:
    variables = environment(home, PYTHONPATH=f":{os.environ.get('PYTHONPATH', '')}:.")
    command = [*COMMAND, "cell", "--cwd", str(folder), "-c", "print('through')", "-c", "!python3 -c ''"]
    ran = subprocess.run(command, cwd=home, env=variables, capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout == "through\n"
    assert [trace.name for trace in folder.parent.glob("ran-*")] == []

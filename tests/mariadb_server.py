"""A MariaDB server of our own, from Debian's packages, for the tests of the business data."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pymysql
import pytest


class MariadbServer:
    """One server in a temporary folder, reached over loopback."""

    def __init__(self) -> None:
        """Make the data folder and start it."""
        install, server = shutil.which("mariadb-install-db"), _server()
        if install is None or server is None:
            pytest.fail("MariaDB is missing: `make databases` installs it from Debian's packages")
        self._folder = Path(tempfile.mkdtemp(prefix="followup-my-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        init = self._folder / "init.sql"
        init.write_text(
            "CREATE USER followup@'%' IDENTIFIED BY 'secret';\n"
            "GRANT ALL ON *.* TO followup@'%' WITH GRANT OPTION;\n",
            encoding="utf-8",
        )
        data = self._folder / "data"
        user = ["--user=root"] if os.geteuid() == 0 else []
        subprocess.run(
            [install, "--no-defaults", f"--datadir={data}", "--skip-test-db", *user],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
        self._log = (self._folder / "log").open("wb")
        self._process = subprocess.Popen(
            [
                server, "--no-defaults", f"--datadir={data}", f"--port={self.port}",
                "--bind-address=127.0.0.1", f"--socket={self._folder / 'socket'}",
                "--innodb-flush-log-at-trx-commit=0", f"--init-file={init}", *user,
            ],
            stdout=subprocess.DEVNULL, stderr=self._log,
        )  # fmt: skip
        self._await()

    def _await(self) -> None:
        until = time.monotonic() + 30
        while True:
            try:
                self._connect().close()
            except pymysql.Error:
                assert time.monotonic() < until, (self._folder / "log").read_text("utf-8")[-2000:]
                time.sleep(0.05)
            else:
                return

    def _connect(self) -> pymysql.Connection:  # type: ignore[type-arg]
        return pymysql.connect(host="127.0.0.1", port=self.port, user="followup", password="secret")

    def database(self) -> str:
        """The URL of a new, empty database. Its own collation does not tell case, as is usual."""
        name = f"db{time.monotonic_ns()}"
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        return f"mysql+pymysql://followup:secret@127.0.0.1:{self.port}/{name}?charset=utf8mb4"

    def remove(self) -> None:
        """Stop and delete everything."""
        self._process.kill()
        self._process.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _server() -> str | None:
    found = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
    return found if Path(found).exists() else None

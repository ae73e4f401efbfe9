"""`make bench`: what the agent costs, as ratios measured side by side in one run.

Absolute times depend on the machine and the hour; ratios within one run do not. Each line says what
was run, and min / median / max over the interleaved rounds. Exit code 1 when a limit is missed.
"""

import argparse
import asyncio
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["LANGSMITH_TRACING"] = "false"

import data
import model
import subjects

from followup_agent import FollowupAgent
from followup_agent.graph.checkpoints import open_sqlite_saver, strict_serializer

ROUNDS = 11
RUNS = 40
failures: list[str] = []


def report(name: str, ratios: list[float], limit: float | None = None) -> None:
    """One line; a limit is held against the median."""
    low, mid, high = min(ratios), statistics.median(ratios), max(ratios)
    verdict = ""
    if limit is not None:
        verdict = f"   limit {limit:g}: {'ok' if mid <= limit else 'MISSED'}"
        if mid > limit:
            failures.append(name)
    print(f"  {name:<66} {low:6.2f} / {mid:6.2f} / {high:6.2f}{verdict}", flush=True)


def hold(name: str, share: float, limit: float) -> None:
    """One line; a share that must not be under its limit."""
    ok = share >= limit
    if not ok:
        failures.append(name)
    verdict = "ok" if ok else "MISSED"
    print(f"  {name:<66} {share:6.1%}   at least {limit:.0%}: {verdict}", flush=True)


def bound(name: str, value: float, limit: float, unit: str) -> None:
    """One line; a figure that must not be over its limit."""
    ok = value <= limit
    if not ok:
        failures.append(name)
    print(
        f"  {name:<84} {value:8.1f} {unit}   limit {limit:g}: {'ok' if ok else 'MISSED'}",
        flush=True,
    )


async def cpu_of(judge: Callable[[str], Awaitable[Any]], runs: int, tag: str) -> float:
    """CPU seconds of this process, all threads, per judgement."""
    gc.collect()
    gc.freeze()  # as the command line does after its imports
    started = time.process_time()
    for number in range(runs):
        await judge(f"{tag}-{number}")
    return (time.process_time() - started) / runs


async def compare(
    machines: dict[str, Callable[[str], Awaitable[Any]]], runs: int = RUNS
) -> dict[str, list[float]]:
    """CPU seconds per judgement by machine, one entry a round, rounds interleaved."""
    for name, judge in machines.items():
        await cpu_of(judge, 5, f"warm-{name}")
    spent: dict[str, list[float]] = {name: [] for name in machines}
    for round_number in range(ROUNDS):
        for name, judge in machines.items():
            spent[name].append(await cpu_of(judge, runs, f"{name}-{round_number}"))
    return spent


def ratios(spent: dict[str, list[float]], above: str, below: str) -> list[float]:
    """Round by round."""
    return [a / b for a, b in zip(spent[above], spent[below], strict=True)]


def config(thread: str) -> dict[str, Any]:
    """One thread a judgement."""
    return {"configurable": {"thread_id": thread}, "recursion_limit": 500}


async def orchestration(folder: Path) -> None:
    """CPU per judgement of three tool calls, planner and tools without latency."""
    build, log = subjects.ours(folder / "log.jsonl")
    updates = await subjects.record(build())
    graph_input = {"user_goal": subjects.GOAL}
    chat_input = {"messages": [("user", subjects.GOAL)]}
    plain_log = (folder / "plain.jsonl").open("w", encoding="utf-8")
    ours, bare, langchain = build(), subjects.bare(updates), subjects.langchain_agent()
    command = subjects.bare(updates, command=True)
    spent = await compare(
        {
            "plain": lambda thread: subjects.plain_loop(plain_log),
            "bare": lambda thread: bare.ainvoke(graph_input, config(thread)),
            "command": lambda thread: command.ainvoke(graph_input, config(thread)),
            "ours": lambda thread: ours.ainvoke(graph_input, config(thread)),
            "create_agent": lambda thread: langchain.ainvoke(chat_input, config(thread)),
        }
    )
    print("\nCPU per judgement, three tool calls, no latency, no checkpoints (min / median / max)")
    print(f"  ours: {statistics.median(spent['ours']) * 1000:.2f} ms, for orientation only")
    report("ours : bare LangGraph graph of the same shape", ratios(spent, "ours", "bare"), 1.25)
    report("ours : the same with Command(goto) for edges", ratios(spent, "ours", "command"))
    report("ours : the seed's plain loop", ratios(spent, "ours", "plain"), 25)
    report("bare : the seed's plain loop", ratios(spent, "bare", "plain"))
    report("ours : LangChain create_agent", ratios(spent, "ours", "create_agent"), 1)

    async with (
        open_sqlite_saver(folder / "bare.db") as bare_saver,
        open_sqlite_saver(folder / "ours.db") as our_saver,
        open_sqlite_saver(folder / "chain.db") as chain_saver,
    ):
        bare, ours = subjects.bare(updates, bare_saver), build(our_saver)
        langchain = subjects.langchain_agent(chain_saver)
        spent = await compare(
            {
                "bare": lambda t: bare.ainvoke(graph_input, config(t), durability="sync"),
                "ours": lambda t: ours.ainvoke(graph_input, config(t), durability="sync"),
                "create_agent": lambda t: langchain.ainvoke(
                    chat_input, config(t), durability="sync"
                ),
            },
            runs=10,
        )
    print("\nCPU per judgement with durable SQLite (AsyncSqliteSaver, WAL, synchronous FULL)")
    report("ours : bare LangGraph graph of the same shape", ratios(spent, "ours", "bare"), 1.25)
    report("ours : LangChain create_agent on the same saver", ratios(spent, "ours", "create_agent"))
    log.close()


def sample(home: Path) -> None:
    """A made-up company."""
    followup = str(Path(sys.executable).with_name("followup"))
    arguments = [followup, "data", "sample", "--home", str(home)]
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)


async def lease_and_ledger(folder: Path) -> None:
    """What one writer per thread costs a judgement that writes nothing: the whole agent, its SQLite
    tools and its event log included, with and without lease, fence and held events."""
    home = folder / "agent"
    async with (
        FollowupAgent.aopen(home=home, planner="rules") as leased,
        subjects.unleased(home) as plain,
    ):
        walls: dict[str, list[float]] = {"leased": [], "plain": []}

        def timed(name: str, agent: FollowupAgent) -> Callable[[str], Awaitable[Any]]:
            async def judge(thread: str) -> Any:
                started = time.perf_counter()
                run = await agent.aask("Does user_123 need priority follow-up?", thread_id=thread)
                walls[name].append(time.perf_counter() - started)
                assert run.status == "completed"

            return judge

        spent = await compare(
            {"plain": timed("plain", plain), "leased": timed("leased", leased)}, runs=20
        )
    print("\nLease, fence and ledger, per read-only judgement of the whole agent on SQLite")
    report("CPU: the agent as it is : without them", ratios(spent, "leased", "plain"), 1.10)
    medians = [statistics.median(walls[name]) for name in ("leased", "plain")]
    report("wall: the same, medians of all judgements", [medians[0] / medians[1]])


async def stored_bytes(folder: Path) -> None:
    """Bytes in the checkpoint tables of one run, by its number of steps."""
    print("\nStored bytes of one run, by steps (exact count of checkpoint and write values)")
    counts: dict[int, int] = {}
    for steps in (3, 10, 30, 100):
        build, log = subjects.ours(folder / "log.jsonl", calls=steps)
        async with open_sqlite_saver(folder / f"steps-{steps}.db") as saver:
            graph = build(saver)
            limits = {"configurable": {"thread_id": "t"}, "recursion_limit": 1000}
            await graph.ainvoke({"user_goal": subjects.GOAL}, limits, durability="sync")
            total = 0
            for table, columns in (
                ("checkpoints", ("checkpoint", "metadata")),
                ("writes", ("value",)),
            ):
                sums = " + ".join(f"COALESCE(SUM(LENGTH({column})), 0)" for column in columns)
                async with saver.conn.execute(f"SELECT {sums} FROM {table}") as cursor:
                    total += (await cursor.fetchone())[0]
        counts[steps] = total
        print(f"  {steps:>4} steps: {total:>9,} bytes   {total / counts[3]:5.2f} x those at 3")
        log.close()
    report("bytes at 30 steps : bytes at 3 steps", [counts[30] / counts[3]], 10)


def wall_of(arguments: list[str], environment: dict[str, str]) -> float:
    """Seconds of wall time of one process."""
    started = time.perf_counter()
    subprocess.run(
        arguments, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return time.perf_counter() - started


def start_up(folder: Path) -> None:
    """Wall time of whole commands against a process that only imports pydantic."""
    followup = str(Path(sys.executable).with_name("followup"))
    environment = {**os.environ, "FOLLOWUP_HOME": str(folder / "home"), "FOLLOWUP_PLANNER": "rules"}
    subprocess.run(
        [followup, "data", "sample"], env=environment, check=True, stdout=subprocess.DEVNULL
    )
    commands = {
        "followup ask (rules)": [followup, "ask", subjects.GOAL],
        "followup --help": [followup, "--help"],
        "followup threads": [followup, "threads"],
        "followup tools": [followup, "tools"],
    }
    baseline = [sys.executable, "-c", "from pydantic import BaseModel"]
    spent: dict[str, list[float]] = {name: [] for name in ("pydantic", *commands)}
    for _ in range(ROUNDS):
        spent["pydantic"].append(wall_of(baseline, environment))
        for name, command in commands.items():
            spent[name].append(wall_of(command, environment))
    print("\nWall of a whole process : a process that only runs `from pydantic import BaseModel`")
    for name in commands:
        limit = 13 if "ask" in name else None
        report(name, ratios(spent, name, "pydantic"), limit)


def main() -> None:
    """Run everything, or one part of it, and say what was run on."""
    parts = {
        "orchestration": lambda folder: asyncio.run(orchestration(folder)),
        "lease": lambda folder: asyncio.run(lease_and_ledger(folder)),
        "bytes": lambda folder: asyncio.run(stored_bytes(folder)),
        "start-up": start_up,
        "model": lambda folder: asyncio.run(model.run_all(folder, report, hold)),
        "data": lambda folder: data.run_all(folder, bound),
    }
    parser = argparse.ArgumentParser(description="What the agent costs, as ratios.")
    parser.add_argument("--only", choices=sorted(parts))
    only = parser.parse_args().only
    names = ("langgraph", "langgraph-checkpoint-sqlite", "langchain", "pydantic")
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores,",
        ", ".join(f"{n} {version(n)}" for n in names),
    )
    print(f"{ROUNDS} interleaved rounds; serializer {type(strict_serializer()).__name__}, strict")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sample(folder / "agent")
        for part, run in parts.items():
            if only in (None, part):
                run(folder)
    print("\n" + json.dumps({"limits_missed": failures}))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

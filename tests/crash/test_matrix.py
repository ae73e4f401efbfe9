"""The crash matrix: whatever is killed wherever, there is one task, or a stop for a person.

Points x {SQLite, PostgreSQL} x {local table, HTTP task system} x {plain crash, tool timeout with its
thread still running, cancelled caller, two approvals at once, resume twice at once}; real processes,
real SIGKILL. Each cell ends the run as a person would: approve what waits, resume what was cut off.
"""

import time
from collections import Counter
from typing import Any

import pytest
from crash.conftest import GOAL, Processes, World, Worlds, plain
from reports import report

pytestmark = [pytest.mark.slow, pytest.mark.crash]

NAMED = [
    "with the lease just taken",
    "in the answer",
    "before the intent",
    "after the intent",
    "inside the effect",
    "after the effect",
    "after the receipt",
    "before the lease is given back",
]
CHECKPOINTS = [f"{side} checkpoint {n}" for n in range(1, 7) for side in ("before", "after")]
WRITES = [f"{side} writes {n}" for n in range(1, 7) for side in ("before", "after")]
STORES, DOWNSTREAMS = ("sqlite", "postgres"), ("table", "http")
KINDS = ("crash", "timeout", "cancelled", "two approvals", "two resumes")
LEASE_S = 30.0
"""Far longer than a cell: a dead holder's lease must end at once, not when it runs out."""


def settle(processes: Processes, world: World) -> dict[str, Any]:
    """End the run as a person would; what the run came to."""
    said: dict[str, Any] = processes.run(world, ["aapprove", ["t"]])
    heard = [said]
    while len(heard) < 6:
        if said.get("error") == "NotWaiting":
            said = processes.run(world, ["aget", ["t"]])
        run = said.get("run", {})
        if run.get("status") in ("completed", "failed"):
            return dict(run)
        call = "aapprove" if run.get("status") == "needs_input" else "aresume"
        said = processes.run(world, [call, ["t"]])
        heard.append(said)
    raise AssertionError(f"the run did not come to an end: {heard}")


def told_twice(world: World) -> list[Any]:
    """Steps that the log tells more than once."""
    told = Counter(
        (e["runId"], e["step"], e["eventName"], (e.get("decision") or {}).get("toolName"))
        for e in world.log()
    )
    return [what for what, times in told.items() if times > 1]


@pytest.fixture(scope="session")
def reference(processes: Processes, worlds: Worlds) -> dict[str, Any]:
    """The run that nobody disturbs, by task system."""
    runs = {}
    for downstream in DOWNSTREAMS:
        world = worlds.new("sqlite", downstream)
        with world.running():
            run = processes.run(world, ["aapprove", ["t"]])["run"]
            runs[downstream] = {**plain(run), "run_id": ""}
            assert len(world.made()) == 1
            assert told_twice(world) == []
    return runs


def disturb(kind: str, point: str, processes: Processes, world: World) -> str:
    """Approve, and be disturbed at this point; what came of it, in a word."""
    approve = ["aapprove", ["t"]]
    if kind == "cancelled":
        said = processes.run(world, approve, point=point, cancel=True)
        return str(said.get("error") or "finished")
    if kind == "two approvals":
        at = time.time() + 0.15
        pair = [
            processes.start(world, approve, point=point, at=at),
            processes.start(world, approve, at=at),
        ]
        said_both = [processes.wait(one) for one in pair]
        finished = [said for said in said_both if "run" in said]
        refused = [said for said in said_both if "error" in said]
        assert len(finished) <= 1 or len(refused) + len(finished) == 2
        assert all(said["error"] in ("ThreadBusy", "NotWaiting") for said in refused), refused
        return "killed" if any("killed" in said for said in said_both) else "not reached"
    said = processes.run(world, approve, point=point, slow=kind == "timeout")
    if kind == "two resumes":
        run = processes.run(world, ["aget", ["t"]])["run"]
        call = "aapprove" if run["status"] == "needs_input" else "aresume"
        at = time.time() + 0.15
        pair = [processes.start(world, [call, ["t"]], at=at) for _ in range(2)]
        for one in pair:
            said_too = processes.wait(one)
            assert "run" in said_too or said_too["error"] in ("ThreadBusy", "NotWaiting"), said_too
    return "killed" if "killed" in said else "not reached"


@pytest.mark.parametrize("downstream", DOWNSTREAMS)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", KINDS)
def test_one_task_whatever_is_killed_wherever(
    kind: str,
    store: str,
    downstream: str,
    processes: Processes,
    worlds: Worlds,
    reference: dict[str, Any],
) -> None:
    """B02, B03, B15 and the whole of their kind."""
    lines, wrong = [], []
    points = NAMED + CHECKPOINTS + (WRITES if kind == "crash" else [])
    for point in points:
        delay_s = 0.3 if kind == "timeout" else 0.0
        world = worlds.new(
            store, downstream, **({"delay_s": delay_s} if downstream == "http" else {})
        )
        with world.running():
            came = disturb(kind, point, processes, world)
            if world.tasks is not None:
                world.tasks.delay_s = 0.0
            try:
                run = settle(processes, world)
            except AssertionError as error:
                wrong.append(f"{point} {error}")
                continue
            tasks, problems = world.made(), []
            unknown = (run["last_error"] or {}).get("kind") == "outcome_unknown"
            if len(tasks) > 1 or (not tasks and not unknown):
                problems.append(f"{len(tasks)} tasks")
            if not unknown and {**plain(run), "run_id": ""} != reference[downstream]:
                problems.append("another result")
            if unknown and (kind != "timeout" or run["status"] != "failed"):
                problems.append("unknown")
            if not unknown and world.effects() != ["done"]:
                problems.append(f"ledger {world.effects()}")
            if unknown:  # a person looks, and asks again: the ledger asks downstream first
                processes.run(world, ["aask", [GOAL]])
                again = processes.run(world, ["aask", [GOAL]])["run"]
                done = processes.run(world, ["aapprove", [again["thread_id"]]])["run"]
                if len(world.made()) != 1 or done["status"] != "completed":
                    problems.append("asked again")
            if twice := told_twice(world):
                problems.append(f"told twice: {twice}")
        if kind in ("crash", "two resumes") and came != "killed":
            problems.append("the point was not reached")
        end = f"{len(tasks)} task, {'unknown' if unknown else run['status']}"
        lines.append(
            f"{store:<8} {downstream:<5} {kind:<13} {point:<30} {came:<14} {end:<20} "
            f"{'WRONG ' + '; '.join(problems) if problems else 'ok'}"
        )
        wrong += [lines[-1]] if problems else []
    report(f"crash matrix {kind} {store} {downstream}", lines)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("store", STORES)
def test_a_run_killed_while_it_asks_goes_on_to_the_same_question(
    store: str, processes: Processes, worlds: Worlds
) -> None:
    """Before the approval nothing is written; the run still loses nothing and tells nothing twice."""
    whole = worlds.new(store, "table", "fresh")
    asked = plain(processes.run(whole, ["aask", [GOAL]])["run"])
    lines, wrong = [], []
    for number in range(1, 14):
        for side in ("before", "after"):
            point = f"{side} checkpoint {number}"
            world = worlds.new(store, "table", "fresh")
            said = processes.run(world, ["aask", [GOAL]], named={"thread_id": "t"}, point=point)
            again = processes.run(world, ["aresume", ["t"]])
            if again.get("error") == "UnknownThread":  # killed before anything was stored
                again = processes.run(world, ["aask", [GOAL]], named={"thread_id": "t"})
            elif again.get("error") == "NotWaiting":  # killed after the last was
                again = processes.run(world, ["aget", ["t"]])
            problems = []
            if "run" not in again or plain({**again["run"], "run_id": "", "thread_id": ""}) != {
                **asked, "run_id": "", "thread_id": ""
            }:  # fmt: skip
                problems.append(f"another result {again.get('error')}")
            if twice := told_twice(world):
                problems.append(f"told twice: {twice}")
            came = "killed" if "killed" in said else "not reached"
            lines.append(
                f"{store:<8} -     ask           {point:<30} {came:<14} {'waits for approval':<20} "
                f"{'WRONG ' + '; '.join(problems) if problems else 'ok'}"
            )
            wrong += [lines[-1]] if problems else []
    report(f"crash matrix ask {store}", lines)
    assert not wrong, "\n".join(wrong)

"""`followup eval push`, `pull` and `run --langsmith`."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml
from langsmith import Client

from followup_agent.cli.evals import writable
from followup_agent.cli.output import console, notice, print_json
from followup_agent.cli.start import OK
from followup_agent.evals import langsmith_pull as pulling
from followup_agent.evals import langsmith_sync as sync
from followup_agent.evals.cases import Case, load_cases
from followup_agent.evals.report import describe
from followup_agent.evals.subject import Episode, Subject


@contextmanager
def _client() -> Iterator[Client]:
    """The client, whose errors are the user's; what is queued is sent at the end."""
    client = sync.open_client()
    try:
        with sync.langsmith_errors(client):
            yield client
    finally:
        sync.close(client)


def push(dataset: str, *, remove: bool, folder: Path | None, as_json: bool) -> int:
    """Bring the dataset in step; what would be removed is said, and removed only when asked."""
    cases = load_cases(folder)
    with _client() as client:
        plan = sync.push(client, cases, dataset, remove=remove)
    if as_json:
        print_json({**plan._asdict(), "removed": remove})
        return OK
    text = console()
    for verb, names in (("created", plan.create), ("updated", plan.update)):
        for name in names:
            text.print(f"{verb} {name}")
    for name in plan.remove:
        text.print(
            f"{'removed' if remove else 'in the dataset, and not among these cases:'} {name}"
        )
    if plan.remove and not remove:
        text.print(
            f"{len(plan.remove)} kept; the same command with --remove deletes them from {dataset}"
        )
    text.print(
        f"{dataset}: {len(plan.create)} created, {len(plan.update)} updated, "
        f"{len(plan.remove) if remove else 0} removed, {len(plan.unchanged)} unchanged"
    )
    return OK


def pull(project: str, *, out: Path, limit: int, as_json: bool) -> int:
    """Write the cases that annotated runs make."""
    writable(out)
    with _client() as client:
        rows, left_out = pulling.pull(client, project, limit=limit)
    text = yaml.safe_dump(rows, allow_unicode=True, sort_keys=False, width=110)
    out.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"cases": [row["name"] for row in rows], "left_out": left_out})
        return OK
    said = console()
    for run_id, why in left_out.items():
        said.print(f"left out run {run_id}: {why}")
    said.print(f"{len(rows)} cases: {out}; look at them, give them names, and add them to yours")
    return OK


def experiment(
    dataset: str,
    cases: Sequence[Case],
    subject: Subject,
    *,
    repeat: int,
    concurrency: int,
    upload: bool,
) -> list[Episode]:
    """Run the cases through LangSmith's runner, as an experiment or with nothing sent."""
    if not upload:
        offline = sync.run_offline(cases, subject, repeat=repeat, concurrency=concurrency)
        return asyncio.run(offline)
    with _client() as client:
        done = asyncio.run(
            sync.run_experiment(
                client,
                dataset,
                cases,
                subject,
                repeat=repeat,
                concurrency=concurrency,
                metadata=describe(subject, cases),
            )
        )
    notice(f"experiment: {done.name}")
    return done.episodes

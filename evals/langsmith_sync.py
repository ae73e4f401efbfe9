"""LangSmith: the cases as a dataset, and their runs as an experiment.

Imported only when LangSmith is asked for. Every error of its service that a user can do something
about is a ConfigurationError of one sentence, which never holds any part of a key.
"""

import asyncio
import hashlib
import io
import json
import os
import re
import uuid
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime
from typing import Any, NamedTuple

import requests
from langsmith import Client, LangsmithError, aevaluate, tracing_context
from langsmith.evaluation import EvaluationResult, EvaluationResults
from langsmith.run_helpers import get_current_run_tree
from langsmith.schemas import (
    Dataset,
    Example,
    FeedbackSourceType,
    LangSmithInfo,
    TracerSession,
)
from langsmith.utils import (
    LangSmithAuthError,
    LangSmithConnectionError,
    LangSmithError,
    LangSmithNotFoundError,
)

from followup_agent.evals.cases import Case, tags_of
from followup_agent.evals.running import CONCURRENCY, run_cases
from followup_agent.evals.scorers import SCORERS, Score, score
from followup_agent.evals.subject import Episode, Subject, crash_of
from followup_agent.service.errors import ConfigurationError

HOSTED = "https://api.smith.langchain.com"
AT_ONCE = 50
"""Ids in one address: servers take no longer ones."""


# --- the way there ---


class _Client(Client):
    """One that knows what it could not send."""

    lost: list[Exception]


def open_client() -> Client:
    """A client of LANGSMITH_ENDPOINT with LANGSMITH_API_KEY, to be given to `close`."""
    key, url = _variable("API_KEY"), _variable("ENDPOINT") or HOSTED
    if not key:
        raise ConfigurationError("LangSmith needs an API key: set LANGSMITH_API_KEY")
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError("LANGSMITH_ENDPOINT must begin with http:// or https://")
    lost: list[Exception] = []
    client = _Client(
        api_url=url,
        api_key=key,
        info=_info(url, key),
        tracing_mode="langsmith",
        tracing_sampling_rate=1.0,
        tracing_error_callback=lost.append,
        disable_prompt_cache=True,
    )
    client.lost = lost
    return client


def close(client: Client) -> None:
    """Send what is queued, and end; ConfigurationError when some of it could not be sent."""
    client.close()
    lost = client.lost if isinstance(client, _Client) else []
    if lost:
        raise ConfigurationError(
            f"LangSmith at {client.api_url} did not take everything: {len(lost)} uploads failed, "
            "so that the experiment there is not complete"
        )


def _variable(name: str) -> str:
    """As LangSmith's own client reads its settings."""
    found = (
        os.environ.get(f"{prefix}_{name}", "").strip() for prefix in ("LANGSMITH", "LANGCHAIN")
    )
    return next((value for value in found if value), "")


def _info(url: str, key: str) -> LangSmithInfo:
    """What the server can do. Asked here: later, the client would only log that it is away."""
    client = Client(api_url=url, api_key=key, auto_batch_tracing=False, disable_prompt_cache=True)
    try:
        with langsmith_errors(client):
            return LangSmithInfo(**client.request_with_retries("GET", "/info").json())
    finally:
        client.close()


@contextmanager
def langsmith_errors(client: Client) -> Iterator[None]:
    """LangSmith's errors in one sentence; their own texts hold parts of the key."""
    url = client.api_url
    try:
        yield
    except (LangSmithConnectionError, requests.RequestException):
        raise ConfigurationError(
            f"LangSmith cannot be reached at {url}: is LANGSMITH_ENDPOINT right?"
        ) from None
    except LangSmithNotFoundError:
        raise ConfigurationError(f"LangSmith at {url} has no such dataset or project") from None
    except (LangSmithError, LangsmithError) as error:
        status = re.search(r"\b([45][0-9]{2}) (?:Client|Server) Error", str(error))
        if isinstance(error, LangSmithAuthError) or (status and status[1] == "403"):
            problem = "does not accept the key in LANGSMITH_API_KEY"
        else:
            problem = f"declined: {f'HTTP {status[1]}' if status else type(error).__name__}"
        raise ConfigurationError(f"LangSmith at {url} {problem}") from None


# --- the cases as a dataset ---


class PushPlan(NamedTuple):
    """What a push does, by the names of the cases."""

    create: list[str]
    update: list[str]
    remove: list[str]
    """Pushed once, and no case any more: deleted only when that is asked for."""
    unchanged: list[str]


class _Stored(NamedTuple):
    """An example that a push has made."""

    name: str
    content_hash: str


def example_of(case: Case) -> dict[str, Any]:
    """The case as an example: inputs, outputs (what must be true), metadata and split.

    `content_hash` covers the whole case, its company included.
    """
    stated = case.model_dump(mode="json", by_alias=True, exclude_unset=True)
    expected = {
        name: value
        for name, value in stated.items()
        if name.startswith("expected_") or name in ("must_not_contain", "tools_match")
    }
    asked = ("turns", "world", "faults", "as_of", "max_steps")
    inputs = {"user_goal": case.input, "case": case.name}
    inputs |= {name: stated[name] for name in asked if name in stated}
    whole = [
        case.model_dump(mode="json", exclude_defaults=True),
        case.company().model_dump(mode="json", exclude_defaults=True),
    ]
    text = json.dumps(whole, sort_keys=True, ensure_ascii=False)
    return {
        "inputs": inputs,
        "outputs": expected,
        "metadata": {
            "name": case.name,
            "tags": case.tags,
            "tier": case.tier,
            "language": case.language,
            "content_hash": hashlib.sha256(text.encode()).hexdigest()[:16],
        },
        "split": tags_of(case),
    }


def example_id(dataset: str, case_name: str) -> uuid.UUID:
    """The same for ever: pushing a case again can never make a second example of it."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"followup-agent:{dataset}:{case_name}")


def plan_push(client: Client, cases: Iterable[Case], dataset: str) -> PushPlan:
    """What `push` would do; nothing is written."""
    with langsmith_errors(client):
        return _plan(cases, dataset, _stored(client, _find(client, dataset)))


def push(client: Client, cases: Sequence[Case], dataset: str, *, remove: bool = False) -> PushPlan:
    """Bring the dataset in step with the cases; it is made when there is none.

    Examples that were not pushed from here are left alone. `remove`: delete what the plan lists.
    """
    with langsmith_errors(client):
        found = _find(client, dataset)
        plan = _plan(cases, dataset, _stored(client, found))
        if found is None:
            found = client.create_dataset(dataset, description="The eval cases of followup-agent.")
        examples = {case.name: example_of(case) for case in cases}
        if plan.create:
            made = [{"id": example_id(dataset, n), **examples[n]} for n in plan.create]
            for one in made:
                one["reference_outputs"] = one.pop("outputs")  # its name there, when it is new
            client.create_examples(dataset_id=found.id, examples=made)
        if plan.update:
            updates = [{"id": example_id(dataset, n), **examples[n]} for n in plan.update]
            client.update_examples(dataset_id=found.id, updates=updates)
        gone = [example_id(dataset, name) for name in plan.remove] if remove else []
        for start in range(0, len(gone), AT_ONCE):
            client.delete_examples(gone[start : start + AT_ONCE])
    return plan


def _plan(cases: Iterable[Case], dataset: str, stored: Mapping[uuid.UUID, _Stored]) -> PushPlan:
    plan = PushPlan([], [], [], [])
    seen = set()
    for case in cases:
        key = example_id(dataset, case.name)
        seen.add(key)
        before = stored.get(key)
        if before is None:
            plan.create.append(case.name)
        elif before.content_hash == example_of(case)["metadata"]["content_hash"]:
            plan.unchanged.append(case.name)
        else:
            plan.update.append(case.name)
    plan.remove.extend(sorted(one.name for key, one in stored.items() if key not in seen))
    return plan


def _find(client: Client, dataset: str) -> Dataset | None:
    return next(client.list_datasets(dataset_name=dataset, limit=1), None)


def _stored(client: Client, dataset: Dataset | None) -> dict[uuid.UUID, _Stored]:
    """The examples that a push has made: their id follows from the name they bear."""
    if dataset is None:
        return {}
    stored = {}
    for example in client.list_examples(dataset_id=dataset.id):
        metadata = example.metadata or {}
        name = str(metadata.get("name"))
        if example.id == example_id(dataset.name, name):
            stored[example.id] = _Stored(name, str(metadata.get("content_hash")))
    return stored


# --- an experiment ---


class Experiment(NamedTuple):
    """What an experiment is called in LangSmith, and what came of the cases, in their order."""

    name: str
    episodes: list[Episode]


async def run_experiment(
    client: Client,
    dataset: str,
    cases: Sequence[Case],
    subject: Subject,
    *,
    concurrency: int = CONCURRENCY,
    metadata: Mapping[str, Any] | None = None,
    repeat: int = 1,
) -> Experiment:
    """Run the cases as an experiment on the dataset, which must hold them as they are now.

    Each episode is a run of its own, with the graph's trace below it and a feedback of each
    evaluator. All of it has been sent when this returns.
    """
    with langsmith_errors(client):
        found = await asyncio.to_thread(_in_step, client, cases, dataset)
        ids = {example_id(dataset, case.name) for case in cases}
        examples = [
            example
            for example in await asyncio.to_thread(
                lambda: list(client.list_examples(dataset_id=found.id))
            )
            if example.id in ids
        ]
        project = await asyncio.to_thread(
            client.create_project,
            f"{subject.name}-{uuid.uuid4().hex[:8]}",
            reference_dataset_id=found.id,
            metadata=dict(metadata or {}),
            num_examples=len(examples),
            num_repetitions=repeat,
            evaluator_keys=list(SCORERS),
        )
        trial = _Trial(cases, subject, client, project)
        episodes = await trial.run(
            examples, concurrency=concurrency, repeat=repeat, metadata=metadata or {}
        )
        await asyncio.to_thread(client.flush)
    return Experiment(str(project.name), episodes)


def _in_step(client: Client, cases: Sequence[Case], dataset: str) -> Dataset:
    """The dataset; ConfigurationError when there is none, or when it is behind the cases."""
    found = _find(client, dataset)
    if found is None:
        raise ConfigurationError(
            f"LangSmith has no such dataset or project: {dataset!r}; `followup eval push` makes it"
        )
    plan = _plan(cases, dataset, _stored(client, found))
    if plan.create or plan.update:
        raise ConfigurationError(
            f"the dataset {dataset!r} is not in step with {len(plan.create) + len(plan.update)} "
            "cases: run `followup eval push` first"
        )
    return found


async def run_offline(
    cases: Sequence[Case],
    subject: Subject,
    *,
    concurrency: int = CONCURRENCY,
    repeat: int = 1,
) -> list[Episode]:
    """The same experiment without LangSmith's service: no key, no network, nothing sent."""
    client = Client(
        api_url="http://127.0.0.1:9",  # where nobody listens: and nobody is asked
        api_key="none",
        info=LangSmithInfo(),
        auto_batch_tracing=False,
        tracing_mode="langsmith",
        disable_prompt_cache=True,
    )
    dataset = example_id("", "")
    examples = []
    for case in cases:
        one = example_of(case)
        one["metadata"]["dataset_split"] = one.pop("split")
        key = example_id("", case.name)
        examples.append(Example(id=key, dataset_id=dataset, created_at=datetime.now(UTC), **one))
    try:
        trial = _Trial(cases, subject, client, None)
        return await trial.run(examples, concurrency=concurrency, repeat=repeat, metadata={})
    finally:
        client.close()


class _Trial:
    """Target and evaluators of one experiment."""

    def __init__(
        self,
        cases: Sequence[Case],
        subject: Subject,
        client: Client,
        project: TracerSession | None,
    ) -> None:
        """`project` None: nothing is sent."""
        self._cases = {case.name: case for case in cases}
        self._subject = subject
        self._client = client
        self._project = project
        self._attempts: Counter[str] = Counter()
        self._episodes: dict[uuid.UUID, Episode] = {}
        self._scored: dict[tuple[str, int], Episode] = {}
        self._unsent: list[LangSmithError] = []

    async def run(
        self,
        examples: list[Example],
        *,
        concurrency: int,
        repeat: int,
        metadata: Mapping[str, Any],
    ) -> list[Episode]:
        """Run it all."""
        quiet = io.StringIO()  # it prints, and stdout is for what was asked for
        with warnings.catch_warnings(), redirect_stdout(quiet):
            warnings.filterwarnings("ignore", message="'upload_runs' parameter is in beta")
            running = await aevaluate(
                self._target,
                data=examples,
                evaluators=[self._evaluate],
                metadata=dict(metadata),
                max_concurrency=concurrency,
                num_repetitions=repeat,
                client=self._client,
                experiment=self._project,
                upload_runs=self._project is not None,
                disable_evaluator_tracing=True,
                blocking=False,
            )
        await running.wait()
        if self._unsent:
            raise self._unsent[0]
        return [self._scored[name, n] for name in self._cases for n in range(1, repeat + 1)]

    async def _target(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Run the case of this name; the episode as JSON."""
        case = self._cases[inputs["case"]]
        self._attempts[case.name] += 1
        attempt = self._attempts[case.name]
        tree = get_current_run_tree()
        assert tree is not None  # noqa: S101 - LangSmith has begun one
        try:
            with tracing_context(enabled=self._project is not None):
                (episode,) = await run_cases([case], self._subject)
            episode.attempt = attempt
        except Exception as error:
            crash = crash_of(error)
            self._episodes[tree.id] = Episode(case=case.name, attempt=attempt, crash=crash)
            raise
        self._episodes[tree.id] = episode
        return episode.model_dump(mode="json")

    async def _evaluate(self, run: Any, example: Any) -> EvaluationResults:
        """Score the episode.

        The feedback is sent from here: LangSmith's own threads may still be at it when the
        experiment ends, and it leaves the score of an evaluator that broke empty.
        """
        episode = self._episodes[run.id]
        scores = score(self._cases[episode.case], episode)
        self._scored[episode.case, episode.attempt] = episode
        if self._project is None:
            return {"results": [EvaluationResult(**_feedback(one)) for one in scores]}
        for one in scores:
            try:
                await asyncio.to_thread(
                    self._client.create_feedback,
                    run.id,
                    **_feedback(one),
                    trace_id=run.trace_id,
                    session_id=self._project.id,
                    start_time=run.start_time,
                    feedback_source_type=FeedbackSourceType.MODEL,
                    stop_after_attempt=3,
                )
            except LangSmithError as error:
                self._unsent.append(error)
        return {"results": []}


def _feedback(one: Score) -> dict[str, Any]:
    """A score as LangSmith has it; one that broke is a 0 that says so."""
    comment = f"error: {one.reason}" if one.errored else one.reason
    return {"key": one.eval, "score": 1.0 if one.passed else 0.0, "comment": comment}

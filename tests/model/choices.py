"""What a model chooses: first decisions of 20 goals, and whole runs of a few eval cases."""

import asyncio
from pathlib import Path

from followup_agent.evals.cases import load_cases, select
from followup_agent.evals.running import run_cases
from followup_agent.evals.scorers import score
from followup_agent.evals.subject import Subject
from followup_agent.goals.ids import IdPattern
from followup_agent.judgement.policy import load_policy
from followup_agent.service.settings import load_settings
from followup_agent.service.wiring import make_planner
from followup_agent.tools import BUILT_IN
from followup_agent.tools.registry import ToolRegistry


def subject(guidance: str, home: Path) -> Subject:
    """The model of the environment, under this guidance."""
    settings = load_settings(
        planner="llm", model="small", home=home, guidance=guidance, max_output_tokens=200
    )
    planner = make_planner(
        settings, policy=load_policy(), registry=ToolRegistry(BUILT_IN), ids=IdPattern()
    )
    return Subject(planner=planner)


def first_decisions(guidance: str, home: Path, goals: int = 20) -> tuple[int, int]:
    """How many first decisions are of a kind that the case allows, and of how many."""
    cases = [case for case in select(load_cases(), tags=["baseline"], names=[]) if not case.turns]
    chosen = cases[:: max(1, len(cases) // goals)][:goals]
    chosen = [case.model_copy(update={"max_steps": 1}) for case in chosen]
    episodes = asyncio.run(run_cases(chosen, subject(guidance, home), concurrency=1))
    right = 0
    for case, episode in zip(chosen, episodes, strict=True):
        first = episode.decisions[0] if episode.decisions else None
        wanted = case.expected_tools or []
        if first is not None:
            right += first.tool_name in wanted if wanted else first.type != "tool"
    return right, len(chosen)


def ideal_runs(guidance: str, home: Path, runs: int = 6) -> tuple[int, int]:
    """How many whole runs pass everything that their case asks, and of how many."""
    cases = [
        case
        for case in select(load_cases(), tags=["baseline"], names=[])
        if len(case.expected_tools or []) == 3 and not case.turns
    ]
    chosen = cases[:: max(1, len(cases) // runs)][:runs]
    episodes = asyncio.run(run_cases(chosen, subject(guidance, home), concurrency=1))
    passed = [
        all(given.passed for given in score(case, episode))
        for case, episode in zip(chosen, episodes, strict=True)
    ]
    return sum(passed), len(passed)

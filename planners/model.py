"""The planner that asks a chat model: from the state to one decision, or one named failure.

    prompt -> call -> read -> decision
                       └─ unusable: told what was wrong, once; a second one counts
                       └─ finish before the evidence is in: handed back, once a run

A step is at most three calls (one, one repair, one hand-back) of at most `chat.MAX_REQUESTS`
requests each. What the model decides is only a proposal: the gate, the approval and the verdict
are code, and the same as for the rules.
"""

import hashlib
import time
from collections.abc import Callable
from datetime import tzinfo
from functools import cached_property
from typing import Any, NamedTuple

from followup_agent.answers.conclude import is_answered
from followup_agent.goals.ids import IdPattern
from followup_agent.goals.limits import Guidance
from followup_agent.judgement.judge import SOURCES, WRITE_TOOL
from followup_agent.judgement.policy import Policy
from followup_agent.planners import Planned, PlannerFailure
from followup_agent.planners.chat import Answer, Chat, ChatFailed, Trouble
from followup_agent.planners.forms import ASK, FINISH, Forms, Offer
from followup_agent.planners.methods import Methods
from followup_agent.planners.needs import (
    lack_of,
    left_out,
    task_due,
    unasked,
    verdict_now,
)
from followup_agent.planners.prompt import Prompt, PromptMaker
from followup_agent.planners.reading import REFUSALS, Misread, read_reply
from followup_agent.planners.rules import MAX_UNUSABLE_ANSWERS
from followup_agent.planners.usage import added
from followup_agent.state import (
    NO_USAGE,
    AgentState,
    Decision,
    Usage,
    budget_spent,
    time_left_s,
)
from followup_agent.tools.outcome import FailureKind

_KIND: dict[Trouble, FailureKind] = {
    "unavailable": "unavailable",
    "rate_limited": "unavailable",
    "timeout": "timeout",
    "method": "refused",
    "refused": "refused",
    "filtered": "refused",
    "unreadable": "invalid_args",
    "broken": "internal",
}


class ModelPlanner:
    """Decides by a chat model. Stateless: one object serves any number of runs and event loops."""

    def __init__(
        self,
        chat: Chat,
        forms: Forms,
        prompts: PromptMaker,
        methods: Methods,
        policy: Policy,
        *,
        guidance: Guidance = "free",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask `chat`, by `methods`, for one of `forms`."""
        self.chat = chat
        self.methods = methods
        self.forms = forms
        self.prompts = prompts
        self._policy = policy
        self._guidance = guidance
        self._monotonic = monotonic

    @property
    def name(self) -> str:
        """The model's name."""
        return self.chat.endpoint.model

    @cached_property
    def prompt_hash(self) -> str:
        """Of the static prompts of both languages: 12 hex digits of SHA-256."""
        texts = [self.prompts.instructions(language, "prompt") for language in ("zh", "en")]
        return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]

    async def decide(self, state: AgentState) -> Planned:
        """The next action, or why there is none; the usage either way. Never raises for a reply."""
        return await _Step(self, state).run()

    def offer(self, state: AgentState) -> Offer | None:
        """What is open in this round; None: everything."""
        return None if self._guidance == "free" else offer_of(state, self.forms, self._policy)

    def on(self, ids: IdPattern, zone: tzinfo) -> "ModelPlanner":
        """The same planner for a company with other ids, in another time zone."""
        return ModelPlanner(
            self.chat,
            self.forms,
            self.prompts.on(ids, zone),
            self.methods,
            self._policy,
            guidance=self._guidance,
            monotonic=self._monotonic,
        )

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        await self.chat.aclose()


class _Failed(Exception):
    """The step ends without a decision."""

    def __init__(self, failure: PlannerFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _Read(NamedTuple):
    """A reply that was understood, and the prompt that it came by."""

    decision: Decision
    prompt: Prompt


class _Step:
    """One step: what was spent in it, and what is left of its one repair."""

    def __init__(self, planner: ModelPlanner, state: AgentState) -> None:
        self._planner = planner
        self._state = state
        self._started = planner._monotonic()
        self._method = planner.methods.current
        self._usage: Usage = NO_USAGE
        self._requests = 0
        self._offer = planner.offer(state)
        subjects = state["parsed_goal"]["subjects"]
        self._subject = subjects[0] if len(subjects) == 1 else None
        self._repaired = False

    async def run(self) -> Planned:
        state, prompts = self._state, self._planner.prompts
        handed_back = False
        try:
            read = await self._decision(None)
            missing = left_out(state, self._planner.forms.registry.names(), self._planner._policy)
            early = read.decision["type"] == FINISH and bool(missing)
            if early and not state["counters"]["handed_back"]:
                handed_back = True
                prompt = prompts.too_early(
                    read.prompt, self._method, read.decision, state["language"], missing
                )
                read = await self._decision(prompt)
        except _Failed as failed:
            return self._planned(None, failed.failure, handed_back=handed_back)
        return self._planned(read.decision, None, handed_back=handed_back)

    def _planned(
        self, decision: Decision | None, failure: PlannerFailure | None, *, handed_back: bool
    ) -> Planned:
        trace: dict[str, Any] = {
            "model": self._planner.name,
            "method": self._method,
            "promptHash": self._planner.prompts.hash(self._state["language"], self._method),
            "requests": self._requests,
            "repaired": self._repaired,
            "handedBack": handed_back,
        }
        return Planned(
            decision=decision,
            failure=failure,
            usage=self._usage,
            handed_back=handed_back,
            trace=trace,
        )

    def _first_prompt(self) -> Prompt:
        state, why_not = self._state, None
        if state["counters"]["invalid_decisions"] and state["last_error"] is not None:
            why_not = state["last_error"]["message"]
        return self._planner.prompts.make(state, self._method, offer=self._offer, why_not=why_not)

    async def _decision(self, prompt: Prompt | None) -> _Read:
        """One decision, with one repair a step; _Failed when there is none.

        None: the prompt of the round, made again when the output method turns out to be another.
        """
        planner, language = self._planner, self._state["language"]
        longest = planner.chat.endpoint.max_output_tokens
        while True:
            asked = prompt or self._first_prompt()
            try:
                answer = await self._ask(asked, longest)
            except ChatFailed as error:
                if error.trouble == "method" and planner.methods.refused(self._method):
                    self._method = planner.methods.current
                    continue
                raise _Failed(self._not_answered(error)) from error
            try:
                decision = read_reply(answer.reply, self._method, planner.forms, self._offer)
            except Misread as error:
                if self._repaired or error.fault == "content_filter":
                    raise _Failed(_misread(error, answer)) from error
                self._repaired = True
                prompt = planner.prompts.repair(asked, answer.reply.shown, language, str(error))
                longest *= 2 if error.fault == "cut_off" else 1  # never the same limit again
                continue
            planner.methods.proved(self._method)
            return _Read(decision, asked)

    async def _ask(self, prompt: Prompt, longest: int) -> Answer:
        """One call, within the run's time and budget."""
        state = self._state
        spent = added(state["usage"], self._usage)
        if budget_spent({**state, "usage": spent}):
            failure = PlannerFailure(
                kind="refused",
                fault="budget",
                message="the run's budget for the model is spent",
                ends="budget",
            )
            raise _Failed(failure)
        try:
            answer = await self._planner.chat.ask(
                prompt.messages,
                self._planner.forms.request(self._method, self._offer, self._subject),
                tokens=prompt.tokens,
                within_s=self._left_s(),
                max_output_tokens=longest,
            )
        except ChatFailed as error:
            self._requests += error.requests
            # Sent and not answered is a call all the same; what it cost, no server has said.
            self._usage = added(self._usage, {**NO_USAGE, "model_calls": int(error.requests > 0)})
            raise
        self._requests += answer.requests
        self._usage = added(self._usage, answer.usage)
        return answer

    def _left_s(self) -> float | None:
        """What is left of the run's time."""
        left_s = time_left_s(self._state)
        if left_s is None:
            return None
        return max(0.0, left_s - (self._planner._monotonic() - self._started))

    def _not_answered(self, error: ChatFailed) -> PlannerFailure:
        """A call without a reply ends the run: what may help has been tried."""
        out_of_time = self._left_s() == 0.0
        filtered = error.trouble == "filtered"
        return PlannerFailure(
            kind=_KIND[error.trouble],
            fault=error.trouble,
            message=str(error),
            ends="deadline" if out_of_time else "model_refused" if filtered else "planner_failed",
            cause=error,
        )


def _misread(error: Misread, answer: Answer) -> PlannerFailure:
    """An unusable reply, after its repair."""
    return PlannerFailure(
        kind="unknown_tool" if error.fault == "unknown_tool" else "invalid_args",
        fault=error.fault,
        message=f"the model's reply is no decision ({error.fault}): {error}",
        tool_name=error.tool_name,
        raw=answer.reply.shown[:4000],
        ends="model_refused" if error.fault in REFUSALS else None,
    )


def offer_of(state: AgentState, forms: Forms, policy: Policy) -> Offer:
    """What makes sense now: evidence still missing, finish only when there is enough of it or no
    more to be had, ask_user only while something is missing that only the user knows."""
    tools = forms.registry.names()
    if state["counters"]["unusable_answers"] >= MAX_UNUSABLE_ANSWERS:
        return frozenset({FINISH})
    if lack_of(state) is not None:
        return frozenset({ASK})
    verdict = verdict_now(state, policy)
    called = {call["tool_name"] for call in state["tool_history"]}
    sources = unasked(state, tools)
    own = [name for name in forms.registry.names("read") if name not in (*SOURCES, *called)]
    offer = {*sources, *own}  # a company's own tools are open until they were used
    if not sources and task_due(state, tools, verdict):
        offer.add(WRITE_TOOL)
    elif not sources or is_answered(state, verdict):
        offer.add(FINISH)
    return frozenset(offer)

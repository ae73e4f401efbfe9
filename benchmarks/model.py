"""What a model planner costs: CPU a call, requests under faults, prompt, tokens, throughput.

The model is a scripted server in a process of its own, on loopback: what it says is known, and what it
costs is not counted.
"""

import asyncio
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import httpx
import openai
import subjects
from langchain_core.messages import BaseMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict, SecretStr

from followup_agent.goals.ids import IdPattern
from followup_agent.goals.limits import OutputMethod
from followup_agent.judgement.policy import load_policy
from followup_agent.planners.chat import Chat, Endpoint
from followup_agent.planners.forms import Forms
from followup_agent.planners.methods import Methods
from followup_agent.planners.model import ModelPlanner
from followup_agent.planners.prompt import PromptMaker, tokens_of
from followup_agent.planners.reading import read_reply
from followup_agent.state import AgentState
from followup_agent.testing.openai_server import OpenAIServer

CALLS = 150
ROUNDS = 7
LATENCY_S = 0.3

SERVER = """
import json, sys
sys.path.insert(0, {folder!r})
from model import next_step
from followup_agent.testing.openai_server import OpenAIServer
server = OpenAIServer(then=next_step, latency_s=float(sys.argv[1]))
print(server.url, flush=True)
import threading
threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
for line in sys.stdin:
    print(json.dumps({{"connections": server.connections, "requests": len(server.requests)}}), flush=True)
"""


def next_step(body: dict[str, Any]) -> dict[str, Any]:
    """The next call of a judgement, from how many rounds the prompt shows."""
    step = sum(message["role"] == "assistant" for message in body["messages"])
    if step >= 3:
        return {"decision": {"type": "finish", "answer_draft": "", "reason": "enough"}}
    decision = {
        "type": "tool",
        "tool_name": subjects.NAMES[step],
        "args": {"user_id": "user_123", "days": 7},
        "reason": "evidence is still missing",
        "expected_outcome": "two numbers",
    }
    return {"decision": decision}


@asynccontextmanager
async def served(latency_s: float = 0.0) -> Any:
    """The server in a process of its own: its URL, and a function that tells its counts."""
    code = SERVER.format(folder=str(Path(__file__).parent))
    with subprocess.Popen(  # noqa: ASYNC220 - before anything is measured
        [sys.executable, "-c", code, str(latency_s)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        url = process.stdout.readline().strip()

        def counts() -> dict[str, int]:
            process.stdin.write("\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        try:
            yield url, counts
        finally:
            process.kill()


def planner(url: str, method: OutputMethod = "json_schema") -> ModelPlanner:
    """Ours, on this server."""
    forms = Forms(subjects.registry())
    endpoint = Endpoint(model="scripted", base_url=url, api_key=SecretStr("x"))
    return ModelPlanner(
        Chat(endpoint, jitter=lambda: 0.0),
        forms,
        PromptMaker(forms, IdPattern(), UTC),
        Methods(method, endpoint.shown, None, lambda: datetime.now(UTC)),
        load_policy(),
    )


class _Seen:
    """A planner that keeps the states it was asked in."""

    name = "seen"

    def __init__(self, calls: int) -> None:
        self._planner = subjects.Scripted(calls)
        self.states: list[AgentState] = []

    async def decide(self, state: AgentState) -> Any:
        self.states.append(state)
        return await self._planner.decide(state)


async def states(folder: Path, calls: int) -> list[AgentState]:
    """The states in which the decisions of a run of so many calls were made."""
    seen = _Seen(calls)
    build, log = subjects.ours(folder / "states.jsonl", calls, seen)
    await build().ainvoke({"user_goal": subjects.GOAL}, {"recursion_limit": 500})
    log.close()
    return seen.states


# --- CPU a call ---


class _Args(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user_id: str
    days: int


class _Tool(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["tool"]
    tool_name: Literal["get_user_activity", "get_user_orders", "get_open_tickets"]
    args: _Args
    reason: str
    expected_outcome: str


class _Ask(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["ask_user"]
    question: str
    reason: str


class _Finish(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["finish"]
    answer_draft: str
    reason: str


class _Decision(BaseModel):
    """What `with_structured_output` is given: the same forms, as one model."""

    model_config = ConfigDict(extra="forbid")

    decision: _Tool | _Ask | _Finish


async def _cpu(call: Callable[[], Awaitable[Any]]) -> float:
    gc.collect()
    started = time.process_time()
    for _ in range(CALLS):
        await call()
    return (time.process_time() - started) / CALLS * 1000


async def cpu_per_call(folder: Path, report: Callable[..., None]) -> None:
    """One call on the prompt of a third round, by five ways."""
    state = (await states(folder, 3))[2]
    async with served() as (url, _):
        ours = planner(url)
        prompt = ours.prompts.make(state, "json_schema")
        form = ours.forms.request("json_schema")
        messages: list[BaseMessage] = prompt.messages
        roles = {"system": "system", "human": "user", "ai": "assistant"}
        plain = {
            "model": "scripted",
            "messages": [{"role": roles[m.type], "content": m.content} for m in messages],
            "temperature": 0.0,
            **form,
        }
        options: dict[str, Any] = {
            "model": "scripted", "base_url": url, "api_key": SecretStr("x"), "temperature": 0.0,
            "max_retries": 0,
        }  # fmt: skip
        default = ChatOpenAI(**options)
        structured = default.with_structured_output(_Decision, method="json_schema")
        client = httpx.AsyncClient()

        async def bare() -> None:
            answer = await client.post(f"{url}/chat/completions", json=plain)
            json.loads(answer.json()["choices"][0]["message"]["content"])

        async def call() -> None:
            answer = await ours.chat.ask(messages, form, tokens=prompt.tokens)
            read_reply(answer.reply, "json_schema", ours.forms)

        ways: dict[str, Callable[[], Awaitable[Any]]] = {
            "bare httpx, body and answer as JSON": bare,
            "ChatOpenAI, plain text": lambda: default.ainvoke(messages),
            "ChatOpenAI.with_structured_output": lambda: structured.ainvoke(messages),
            "ours: call and strict reading": call,
            "ours: the whole step, prompt included": lambda: ours.decide(state),
        }
        spent: dict[str, list[float]] = {name: [] for name in ways}
        for way in ways.values():
            for _ in range(10):
                await way()
        for _ in range(ROUNDS):
            for name, way in ways.items():
                spent[name].append(await _cpu(way))
        await client.aclose()
        await ours.aclose()
    print(f"\nCPU of this process a model call, {CALLS} calls a round, ms (min / median / max)")
    for name, values in spent.items():
        report(name, values)
    mine = spent["ours: call and strict reading"]

    def over(name: str) -> list[float]:
        return [a / b for a, b in zip(mine, spent[name], strict=True)]

    report("ours : with_structured_output", over("ChatOpenAI.with_structured_output"), 0.65)
    report("ours : bare httpx", over("bare httpx, body and answer as JSON"), 5)


# --- requests under faults ---

BUSY = {"status": 503, "error": {"message": "busy"}}
FAULTS: dict[str, Any] = {
    "nothing wrong": None,
    "prose every time": {"text": "no"},
    "cut off every time": {"text": '{"decision": {"type":'},
    "500 every time": {"status": 500, "error": {"message": "broken"}},
    "429 with retry-after 90": {"status": 429, "headers": {"retry-after": "90"}, "error": {}},
    "400 about the request": {"status": 400, "error": {"message": "no such model"}},
    "401": {"status": 401, "error": {"message": "no"}},
    "connection closed": {"close": True},
    "no chat completion": {"raw": "{}"},
}


async def requests_under_faults(folder: Path) -> None:
    """Exact counts, of one planner step and of the whole run that it ends."""
    print("\nRequests under each fault: of one step, of the whole run (exact counts)")
    state = (await states(folder, 3))[0]
    for name, fault in FAULTS.items():
        with OpenAIServer(then=fault or next_step).running() as server:
            own = planner(server.url)
            await own.decide(state)
            step = len(server.requests)
            build, log = subjects.ours(folder / "faults.jsonl", 3, own)
            run = await build().ainvoke({"user_goal": subjects.GOAL}, {"recursion_limit": 500})
            log.close()
            await own.aclose()
            total = len(server.requests) - step
        print(f"  {name:<28} {step:>2}   {total:>2}   {run['stop_reason']}")


# --- the prompt ---


def _text(messages: list[BaseMessage]) -> str:
    return "".join(f"\n[{message.type}]{message.content}" for message in messages)


async def prompt_share(folder: Path, hold: Callable[[str, float, float], None]) -> None:
    """Of all prompts of a run, the share that the prompt before had sent byte by byte."""
    print("\nShare of the prompts of a run that the round before had sent, byte by byte; tokens")
    maker = planner("http://127.0.0.1:1/v1").prompts
    for steps, limit in ((3, 0.65), (6, 0.76), (12, 0.86)):
        prompts = [maker.make(state, "prompt") for state in await states(folder, steps)]
        texts = [_text(prompt.messages) for prompt in prompts]
        shared = sum(
            _common(before.encode(), after.encode()) for before, after in itertools.pairwise(texts)
        )
        whole = sum(len(text.encode()) for text in texts)
        tokens = sum(tokens_of(text) for text in texts)
        hold(f"{steps} tool calls, {tokens} input tokens at most", shared / whole, limit)


def _common(one: bytes, other: bytes) -> int:
    """Bytes at the beginning of both."""
    for number, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return number
    return min(len(one), len(other))


# --- throughput ---


async def throughput(folder: Path, hold: Callable[[str, float, float], None]) -> None:
    """Judgements of four calls each against a server that takes 300 ms for a call: ours, and a bare
    LangGraph graph of the same shape whose planner node calls `ChatOpenAI` with the same prompts, a
    ready-made schema and the same client, and reads nothing."""
    print(
        f"\nModel calls a second of what concurrency ÷ {LATENCY_S:g} s would give, in one process"
    )
    seen = await states(folder, 3)
    async with served(LATENCY_S) as (url, counts):
        own = planner(url)
        build, log = subjects.ours(folder / "load.jsonl", 3, own)
        recording, other = subjects.ours(folder / "recorded.jsonl", 3)
        updates = await subjects.record(recording())
        client = ChatOpenAI(
            model="scripted", base_url=url, api_key=SecretStr("x"), max_retries=0,
            http_async_client=openai.DefaultAioHttpClient(timeout=None),
        )  # fmt: skip
        prompts = [own.prompts.make(state, "json_schema").messages for state in seen]
        form = own.forms.request("json_schema")

        async def planning(calls: int) -> None:
            await client.ainvoke(prompts[calls], extra_body=form)

        graphs = {"ours": build(), "bare LangGraph": subjects.bare(updates, planning=planning)}

        async def judge(graph: Any, number: int) -> None:
            await graph.ainvoke({"user_goal": subjects.GOAL}, thread(number))

        async def worker(graph: Any, queue: "asyncio.Queue[int]") -> None:
            while not queue.empty():
                await judge(graph, queue.get_nowait())

        for concurrency, judgements, limit in ((16, 96, 0.88), (64, 320, 0.60)):
            shares: dict[str, list[float]] = {name: [] for name in graphs}
            opened = 0
            for turn in range(4):
                for name, graph in graphs.items():
                    queue: asyncio.Queue[int] = asyncio.Queue()
                    for number in range(judgements):
                        queue.put_nowait(number)
                    gc.collect()
                    gc.freeze()
                    before, started = counts(), time.perf_counter()
                    await asyncio.gather(*(worker(graph, queue) for _ in range(concurrency)))
                    seconds = time.perf_counter() - started
                    after = counts()
                    calls = after["requests"] - before["requests"]
                    if name == "ours":
                        opened += after["connections"] - before["connections"]
                    if turn:  # the first one warms up
                        shares[name].append(calls / seconds / (concurrency / LATENCY_S))
            bare = statistics.median(shares["bare LangGraph"])
            print(f"  {f'{concurrency} runs at once, bare LangGraph':<66} {bare:6.1%}")
            hold(f"{concurrency} runs at once, ours", statistics.median(shares["ours"]), limit)
            print(f"    connections that ours opened in {4 * judgements} judgements: {opened}")
        log.close()
        other.close()
        await own.aclose()
        await client.http_async_client.aclose()


def thread(number: int) -> dict[str, Any]:
    """One thread a judgement."""
    return {"configurable": {"thread_id": f"t{number}"}, "recursion_limit": 500}


async def tokens_per_judgement() -> None:
    """Of the built-in tools' own prompt, with the usage that a server would report."""
    print(
        "\nTokens of one judgement (three calls and a finish), by the estimate of a third of the bytes"
    )
    from followup_agent.tools import BUILT_IN
    from followup_agent.tools.registry import ToolRegistry

    forms = Forms(ToolRegistry(BUILT_IN))
    maker = PromptMaker(forms, IdPattern(), UTC)
    for language in ("zh", "en"):
        static = tokens_of(maker.instructions(language, "prompt"))
        print(
            f"  {language}: static part {static}, so about {4 * static} of the input in four calls"
        )


async def run_all(
    folder: Path, report: Callable[..., None], hold: Callable[[str, float, float], None]
) -> None:
    """Every figure."""
    await cpu_per_call(folder, report)
    await requests_under_faults(folder)
    await prompt_share(folder, hold)
    await tokens_per_judgement()
    await throughput(folder, hold)

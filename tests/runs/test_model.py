"""A model plans whole runs: the real client over real sockets, against a scripted server."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field, SecretStr
from support import NOW, SEND, SHANGHAI, Harness, finish, replaced, tasks, tool

from followup_agent.customers.database import CustomerDatabase
from followup_agent.goals.ids import IdPattern
from followup_agent.goals.limits import OutputMethod
from followup_agent.judgement.policy import load_policy
from followup_agent.planners.chat import MAX_REQUESTS, Chat, Endpoint
from followup_agent.planners.forms import Forms
from followup_agent.planners.limiter import RateLimiter
from followup_agent.planners.methods import Methods
from followup_agent.planners.model import ModelPlanner
from followup_agent.planners.prompt import PromptMaker
from followup_agent.planners.usage import Price
from followup_agent.state import NO_LIMITS
from followup_agent.testing.openai_server import OpenAIServer
from followup_agent.tools import BUILT_IN
from followup_agent.tools.definition import ToolArgs, ToolDefinition, ToolResult
from followup_agent.tools.registry import ToolRegistry

pytestmark = pytest.mark.slow
METHODS: tuple[OutputMethod, ...] = ("json_schema", "function_calling", "json_object", "prompt")
ZH, EN = "帮我判断 user_123 最近是否需要重点跟进", "Does user_123 need priority follow-up?"


def planner(server: OpenAIServer, **changes: Any) -> ModelPlanner:
    """A model planner on this server; no waits between retries."""
    forms = Forms(ToolRegistry([*BUILT_IN, *changes.pop("tools", ())]))
    chat = {
        "price": changes.pop("price", None),
        "limiter": changes.pop("limiter", None),
        "jitter": changes.pop("jitter", lambda: 0.0),
    }
    endpoint = Endpoint(
        model="scripted",
        base_url=server.url,
        api_key=SecretStr("x"),
        timeout_s=changes.pop("timeout_s", 20.0),
    )
    folder: Path | None = changes.pop("folder", None)
    method = changes.pop("method", "json_schema")
    max_tokens = changes.pop("max_tokens", 12_000)
    return ModelPlanner(
        Chat(endpoint, **chat),
        forms,
        PromptMaker(forms, IdPattern(), SHANGHAI, max_tokens=max_tokens),
        Methods(method, endpoint.shown, folder, lambda: NOW),
        load_policy(),
        **changes,
    )


async def ask(
    server: OpenAIServer,
    company: CustomerDatabase,
    goal: str = EN,
    *,
    harness: dict[str, Any] | None = None,
    **changes: Any,
) -> tuple[dict[str, Any], Harness]:
    """One run to its end or its first pause."""
    own = planner(server, **changes)
    rig = Harness(company, own, **(harness or {}))
    try:
        return await rig.ask(goal), rig
    finally:
        await own.aclose()


def look(name: str, **args: Any) -> dict[str, Any]:
    """A reply that calls a tool for user_123."""
    return {"decision": tool("r", name, user_id="user_123", **args)}


THREE = [
    look("get_user_activity", days=7),
    look("get_user_orders", days=7),
    look("get_open_tickets"),
]
DONE = {"decision": finish()}


def judged(state: dict[str, Any]) -> bool:
    """A run that came to the right end."""
    verdict = state["verdict"]
    return state["status"] == "completed" and verdict is not None and verdict["needs_followup"]


# --- the four methods ---


@pytest.mark.parametrize("goal", [ZH, EN])
@pytest.mark.parametrize("method", METHODS)
async def test_a_judgement_by_each_method_in_both_languages(
    method: OutputMethod, goal: str, company: CustomerDatabase
) -> None:
    """Under rules as strict as OpenAI's: B17, B29."""
    with OpenAIServer([*THREE, DONE], strict=True).running() as server:
        state, _ = await ask(server, company, goal, method=method)
    assert judged(state)
    assert state["planner"] == "scripted"
    assert ("判断：" if goal == ZH else "Judgement:") in state["final_answer"]
    assert [call["outcome"] for call in state["tool_history"]] == ["empty", "empty", "found"]
    assert len(server.requests) == 4
    assert server.connections == 1
    assert state["usage"]["model_calls"] == 4
    assert state["usage"]["input_tokens"] > 4 * 1000
    body = server.bodies[0]
    kind = (body.get("response_format") or {}).get("type")
    assert kind == {"json_schema": "json_schema", "json_object": "json_object"}.get(method)
    assert ("tools" in body) == (method == "function_calling")
    assert "\\u" not in json.dumps(body["messages"], ensure_ascii=False)


@pytest.mark.parametrize("method", METHODS)
async def test_a_question_and_its_answer(method: OutputMethod, company: CustomerDatabase) -> None:
    question = {"decision": {"type": "ask_user", "question": "哪位客户？", "reason": "没有编号"}}
    with OpenAIServer([question, *THREE, DONE], strict=True).running() as server:
        own = planner(server, method=method)
        rig = Harness(company, own)
        state = await rig.ask("最近要不要重点跟进？")
        assert state["pending_questions"][0]["question"] == "哪位客户？"
        state = await rig.resume("user_123")
        await own.aclose()
    assert judged(state)
    assert "user_123" in json.dumps(server.bodies[1]["messages"])


@pytest.mark.parametrize("method", METHODS)
async def test_a_write_is_proposed_shown_and_made_once(
    method: OutputMethod, own_company: CustomerDatabase
) -> None:
    send = {"decision": tool("asked for", "send_followup_task", **SEND)}
    with OpenAIServer([*THREE, send, DONE], strict=True).running() as server:
        own = planner(server, method=method)
        rig = Harness(own_company, own)
        state = await rig.ask("Create a follow-up task for user_123")
        assert state["approval"]["args"] == SEND
        assert tasks(own_company) == []
        state = await rig.resume("approve")
        await own.aclose()
    assert state["status"] == "completed"
    assert len(tasks(own_company)) == 1


# --- finding the method out ---


@pytest.mark.parametrize("status", [400, 500])
async def test_auto_finds_out_what_the_server_takes_and_remembers_it(
    status: int, company: CustomerDatabase, tmp_path: Path
) -> None:
    """B34, and llama-cpp-python's way of saying it."""
    refused = ("json_schema", "function_calling")
    with OpenAIServer(
        [*THREE, DONE, *THREE, DONE], refuse=refused, refuse_status=status
    ).running() as server:
        state, _ = await ask(server, company, method="auto", folder=tmp_path)
        assert judged(state)
        assert len(server.requests) == 4 + 2  # each refused method once
        again, _ = await ask(server, company, method="auto", folder=tmp_path)
        assert judged(again)
        assert len(server.requests) == 4 + 2 + 4


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_object"])
async def test_a_set_method_that_the_server_refuses_names_the_setting(
    method: OutputMethod, company: CustomerDatabase
) -> None:
    """B34: one request, no retry."""
    with OpenAIServer([DONE], refuse=[method]).running() as server:
        state, _ = await ask(server, company, method=method)
    assert state["stop_reason"] == "planner_failed"
    assert "FOLLOWUP_OUTPUT_METHOD" in state["last_error"]["message"]
    assert "FOLLOWUP_OUTPUT_METHOD" in state["final_answer"]
    assert len(server.requests) == 1


async def test_a_400_about_something_else_is_not_retried_and_changes_no_method(
    company: CustomerDatabase, tmp_path: Path
) -> None:
    error = {"status": 400, "error": {"message": "maximum context length is 512 tokens"}}
    with OpenAIServer([error, DONE]).running() as server:
        state, _ = await ask(server, company, method="auto", folder=tmp_path)
    assert state["stop_reason"] == "planner_failed"
    assert "maximum context length" in state["last_error"]["message"]
    assert len(server.requests) == 1
    assert not (tmp_path / "output_methods.json").exists()


# --- unusable replies ---

UNUSABLE: dict[str, Any] = {
    "prose": {"text": "我认为应该跟进"},
    "empty": {"text": ""},
    "reasoning": {"message": {"role": "assistant", "content": None, "reasoning_content": json.dumps(DONE)}},
    "cut": {"text": '{"decision":{"type":"tool","tool_name":"send_followup_task","reason":"r","args":{"user_id":"user_12'},
    "length": {"decision": finish(), "finish_reason": "length"},
    "two": {"text": '{"type":"finish","reason":"r","answer_draft":""}' * 2},
    "duplicate": {"text": '{"type":"finish","type":"finish","reason":"r","answer_draft":""}'},
    "unknown tool": {"decision": tool("r", "query_db", user_id="user_123")},
    "bad id": look("get_open_tickets") | {"decision": tool("r", "get_open_tickets", user_id="user 123")},
    "bad days": look("get_user_activity", days=0),
    "extra": look("get_user_activity", days=7, limit=3),
    "not a completion": {"raw": '{"choices": null}'},
    "no choices": {"raw": '{"choices": []}'},
    "error in a success": {"raw": '{"error": {"message": "busy"}}'},
    "html": {"raw": "<html>login</html>", "content_type": "text/html"},
    "broken json": {"raw": '{"choices": ['},
    "odd message": {"raw": '{"choices": [{"message": "hello"}]}'},
}  # fmt: skip
UNREADABLE = {
    "not a completion",
    "no choices",
    "error in a success",
    "html",
    "broken json",
    "odd message",
}


@pytest.mark.parametrize("name", sorted(UNUSABLE.keys() - UNREADABLE))
async def test_an_unusable_reply_is_repaired_once(name: str, company: CustomerDatabase) -> None:
    """B16, B36, B49, B66, B73: what was wrong goes back as data, and the run goes on."""
    with OpenAIServer([UNUSABLE[name], *THREE, DONE]).running() as server:
        state, rig = await ask(server, company)
    assert judged(state)
    assert len(server.requests) == 5
    first, second = server.bodies[:2]
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert "could not be used" in second["messages"][-1]["content"]
    assert state["counters"]["invalid_decisions"] == 0
    assert rig.log.names().count("agent.plan.failed") == 0
    assert all(call["args"]["user_id"] == "user_123" for call in state["tool_history"])


@pytest.mark.parametrize("name", sorted(UNUSABLE.keys() - UNREADABLE))
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
async def test_two_unusable_decisions_end_the_run_with_what_was_found(
    name: str, method: OutputMethod, own_company: CustomerDatabase
) -> None:
    """Two decisions, each with its one repair: four calls, and nothing was ever written."""
    bad = UNUSABLE[name]
    with OpenAIServer([THREE[0], bad, bad, bad, bad, DONE]).running() as server:
        state, rig = await ask(server, own_company, method=method)
    assert (state["status"], state["stop_reason"]) == ("failed", "planner_failed")
    assert len(server.requests) == 5
    assert state["verdict"]["needs_followup"] is not False
    assert "Active on 0 of the last 7 days" in state["final_answer"]
    assert tasks(own_company) == []
    failed = [e for e in rig.log.events if e["eventName"] == "agent.plan.failed"]
    assert len(failed) == 2
    assert all(event["planner"]["fault"] for event in failed)
    if name == "unknown tool":
        assert failed[0]["decision"]["toolName"] == "query_db"
        assert state["last_error"]["kind"] == "unknown_tool"
        assert "query_db" in state["last_error"]["message"]


@pytest.mark.parametrize("name", sorted(UNREADABLE))
async def test_what_is_no_chat_completion_ends_the_run_by_its_name(
    name: str, company: CustomerDatabase
) -> None:
    with OpenAIServer([UNUSABLE[name]], then=UNUSABLE[name]).running() as server:
        state, _ = await ask(server, company)
    assert state["stop_reason"] == "planner_failed"
    assert "no chat completion" in state["last_error"]["message"]
    assert len(server.requests) == 1


async def test_the_raw_reply_is_kept_and_not_shown(company: CustomerDatabase) -> None:
    """B16."""
    secret = "我认为 user_123 应该跟进，理由保密"
    with OpenAIServer(then={"text": secret}).running() as server:
        state, rig = await ask(server, company, ZH)
    assert "保密" not in state["final_answer"]
    assert any(secret in str(error) for _, error in rig.log.errors)


async def test_the_longer_reply_is_asked_for_with_a_larger_limit(company: CustomerDatabase) -> None:
    """B49: never the same again."""
    with OpenAIServer([UNUSABLE["length"], *THREE, DONE]).running() as server:
        await ask(server, company)
    first, second = (body["max_tokens"] for body in server.bodies[:2])
    assert second == 2 * first
    assert server.bodies[2]["max_tokens"] == first


@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        ({"message": {"role": "assistant", "content": None, "refusal": "I cannot help"}}, 2),
        ({"decision": finish(), "finish_reason": "content_filter"}, 1),
        ({"status": 400, "error": {"message": "filtered", "code": "content_filter"}}, 1),
    ],
)
async def test_a_refusal_is_a_reason_of_its_own(
    reply: dict[str, Any], calls: int, company: CustomerDatabase
) -> None:
    with OpenAIServer([THREE[0]], then=reply).running() as server:
        state, _ = await ask(server, company)
    assert (state["status"], state["stop_reason"]) == ("failed", "model_refused")
    assert "The model refused" in state["final_answer"]
    assert len(server.requests) == 1 + calls
    assert "Active on 0" in state["final_answer"]


# --- retries and time ---


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
async def test_a_busy_server_gets_exactly_the_documented_requests(
    status: int, company: CustomerDatabase
) -> None:
    """B37: one place retries. The step is one call, and it ends the run."""
    with OpenAIServer(then={"status": status, "error": {"message": "busy"}}).running() as server:
        state, rig = await ask(server, company)
    assert len(server.requests) == MAX_REQUESTS == 3
    assert (state["status"], state["stop_reason"]) == ("failed", "planner_failed")
    assert state["last_error"]["kind"] == "unavailable"
    assert state["current_step"] == 1
    assert rig.log.names().count("agent.plan.failed") == 1


@pytest.mark.parametrize("status", [401, 403, 404, 422])
async def test_a_refused_request_is_sent_once(status: int, company: CustomerDatabase) -> None:
    with OpenAIServer(then={"status": status, "error": {"message": "no"}}).running() as server:
        state, _ = await ask(server, company)
    assert len(server.requests) == 1
    assert state["last_error"]["kind"] == "refused"


async def test_a_passing_failure_is_got_over(company: CustomerDatabase) -> None:
    busy = {"status": 503, "error": {"message": "starting"}}
    with OpenAIServer(
        [busy, {"close": True}, *THREE, {"close": "mid", "text": "x"}, DONE]
    ).running() as server:
        state, _ = await ask(server, company)
    assert judged(state)


async def test_nobody_there_is_said_so(company: CustomerDatabase) -> None:
    server = OpenAIServer()
    server.server_close()
    state, _ = await ask(server, company)
    assert state["stop_reason"] == "planner_failed"
    assert "cannot be reached" in state["last_error"]["message"]


async def test_a_spent_quota_is_not_a_busy_server(company: CustomerDatabase) -> None:
    error = {"message": "You exceeded your current quota", "code": "insufficient_quota"}
    with OpenAIServer(then={"status": 429, "error": error}).running() as server:
        state, _ = await ask(server, company)
    assert len(server.requests) == 1
    assert "quota" in state["last_error"]["message"]


async def test_a_long_retry_after_ends_the_call_and_is_told(company: CustomerDatabase) -> None:
    """B41."""
    wait = {"status": 429, "headers": {"retry-after": "90"}, "error": {"message": "slow down"}}
    with OpenAIServer(then=wait).running() as server:
        started = time.monotonic()
        state, _ = await ask(server, company, harness={"budget": {**NO_LIMITS, "deadline_s": 20.0}})
    assert time.monotonic() - started < 5
    assert len(server.requests) == 1
    assert "wait 90 s" in state["last_error"]["message"]


@pytest.mark.parametrize(
    ("text", "requests"),
    [
        ("the function timed out in tool worker 3", MAX_REQUESTS),
        ("strict mode of the cache failed", MAX_REQUESTS),
        ("unsupported response_format", 1),
    ],
)
async def test_a_broken_server_is_not_taken_for_one_that_lacks_a_method(
    text: str, requests: int, company: CustomerDatabase, tmp_path: Path
) -> None:
    """A word in passing changes no method; the parameter's name does, and the next one is tried."""
    bad = {"status": 500, "error": {"message": text}, "times": requests}
    with OpenAIServer([bad, *THREE, DONE]).running() as server:
        state, _ = await ask(server, company, method="auto", folder=tmp_path)
    if requests == 1:
        assert judged(state)
        assert "function_calling" in (tmp_path / "output_methods.json").read_text("utf-8")
    else:
        assert state["stop_reason"] == "planner_failed"
        assert len(server.requests) == MAX_REQUESTS
        assert not (tmp_path / "output_methods.json").exists()


async def test_a_retry_after_may_be_a_date(company: CustomerDatabase) -> None:
    """Of the server's own clock."""
    later = {
        "date": "Mon, 02 Mar 2026 07:30:00 GMT",
        "retry-after": "Mon, 02 Mar 2026 07:31:30 GMT",
    }
    with OpenAIServer(then={"status": 503, "headers": later, "error": {}}).running() as server:
        state, _ = await ask(server, company)
    assert len(server.requests) == 1  # 90 s is longer than anybody waits
    assert state["stop_reason"] == "planner_failed"


async def test_two_choices_are_two_decisions(company: CustomerDatabase) -> None:
    """A server that sends more replies than were asked for has decided nothing."""
    choice = {
        "message": {"role": "assistant", "content": json.dumps(DONE)},
        "finish_reason": "stop",
    }
    both = {"raw": json.dumps({"choices": [choice, choice]})}
    with OpenAIServer([both, *THREE, DONE]).running() as server:
        state, _ = await ask(server, company)
    assert judged(state)
    assert "2 replies came" in server.bodies[1]["messages"][-1]["content"]


async def test_a_short_retry_after_is_kept(company: CustomerDatabase) -> None:
    """B41."""
    wait = {"status": 429, "headers": {"retry-after-ms": "150"}, "error": {"message": "slow"}}
    with OpenAIServer([wait, *THREE, DONE]).running() as server:
        state, _ = await ask(server, company)
    assert judged(state)
    first, second = (request["at"] for request in server.requests[:2])
    assert 0.15 <= second - first < 1


async def test_a_server_that_drips_is_cut_off_at_the_deadline_of_the_call(
    company: CustomerDatabase,
) -> None:
    """B35: and no request is left over."""
    drip = {"decision": finish(), "drip": {"pieces": 40, "every_s": 0.05}}
    with OpenAIServer(then=drip).running() as server:
        started = time.monotonic()
        state, _ = await ask(server, company, timeout_s=0.3)
        assert time.monotonic() - started < 1.5
        assert state["last_error"]["kind"] == "timeout"
        assert state["stop_reason"] == "planner_failed"
        assert len(server.requests) == 1
        await _until(lambda: server.in_flight == 0)


async def test_a_server_that_hangs_ends_with_the_runs_deadline(company: CustomerDatabase) -> None:
    with OpenAIServer([*THREE[:2], {"hang": True}]).running() as server:
        started = time.monotonic()
        state, _ = await ask(server, company, harness={"budget": {**NO_LIMITS, "deadline_s": 0.6}})
        assert time.monotonic() - started < 3
        await _until(lambda: server.in_flight == 0)
    assert state["stop_reason"] == "deadline"
    assert state["status"] == "failed"
    assert "Active on 0 of the last 7 days" in state["final_answer"]
    assert "The run's time was up" in state["final_answer"]


async def test_what_was_found_by_the_deadline_may_suffice(company: CustomerDatabase) -> None:
    with OpenAIServer([*THREE, {"hang": True}]).running() as server:
        state, _ = await ask(server, company, harness={"budget": {**NO_LIMITS, "deadline_s": 0.6}})
    assert (state["status"], state["stop_reason"]) == ("completed", "deadline")
    assert state["verdict"]["needs_followup"] is True


async def test_a_deadline_counts_over_resumes_and_not_the_time_of_a_person(
    company: CustomerDatabase,
) -> None:
    question = {"decision": {"type": "ask_user", "question": "Which?", "reason": "no id"}}
    with OpenAIServer([{**question, "delay_s": 0.4}, THREE[2], {"hang": True}]).running() as server:
        own = planner(server)
        rig = Harness(company, own, budget={**NO_LIMITS, "deadline_s": 0.9})
        await rig.ask("Does this customer need follow-up?")
        await asyncio.sleep(0.7)  # a person thinks
        started = time.monotonic()
        state = await rig.resume("user_123")
        elapsed = time.monotonic() - started
        await own.aclose()
    assert (state["status"], state["stop_reason"]) == ("completed", "deadline")
    assert len(server.requests) == 3
    assert elapsed < 0.8  # what the first leg had left, not all of it again


async def test_a_tool_gets_no_more_than_what_is_left_of_the_run(company: CustomerDatabase) -> None:
    async def run(args: Any, context: Any) -> Any:
        await asyncio.sleep(10)

    slow = replaced("get_open_tickets", run)
    with OpenAIServer([THREE[2], DONE]).running() as server:
        started = time.monotonic()
        state, _ = await ask(
            server, company, harness={"budget": {**NO_LIMITS, "deadline_s": 0.5}, "tools": [slow]}
        )
    assert time.monotonic() - started < 2
    assert state["stop_reason"] == "deadline"
    assert state["tool_history"][0]["failure_kind"] == "timeout"


@pytest.mark.parametrize(
    ("limit", "calls"),
    [({"model_calls": 2}, 2), ({"tokens": 150}, 2), ({"cost": 0.00015}, 2)],
)
async def test_a_spent_budget_ends_the_run_with_partial_results(
    limit: dict[str, Any], calls: int, company: CustomerDatabase
) -> None:
    used = {"prompt_tokens": 90, "completion_tokens": 10}
    replies = [{**reply, "usage": used} for reply in (*THREE, DONE)]
    with OpenAIServer(replies).running() as server:
        state, _ = await ask(
            server,
            company,
            harness={"budget": {**NO_LIMITS, **limit}},
            price=Price(input=1.0, output=1.0),
        )
    assert state["stop_reason"] == "budget"
    assert len(server.requests) == calls
    assert len(state["tool_history"]) == calls  # what was paid for is carried out
    assert state["usage"]["cost"] == pytest.approx(calls * 100 / 1e6)
    assert "Found so far" in state["final_answer"] or "Basis" in state["final_answer"]


async def test_a_repair_is_not_bought_beyond_the_budget(company: CustomerDatabase) -> None:
    with OpenAIServer(then={"text": "no"}).running() as server:
        state, _ = await ask(server, company, harness={"budget": {**NO_LIMITS, "model_calls": 1}})
    assert state["stop_reason"] == "budget"
    assert len(server.requests) == 1


async def test_a_limiter_stands_in_front(company: CustomerDatabase) -> None:
    """And a turn that comes too late is said so, not waited for."""
    limiter = RateLimiter(2, None)
    with OpenAIServer([*THREE, DONE]).running() as server:
        started = time.monotonic()
        state, _ = await ask(server, company, limiter=limiter, timeout_s=5.0)
    assert time.monotonic() - started < 3
    assert len(server.requests) == 2
    assert "FOLLOWUP_MODEL_CALLS_PER_MINUTE" in state["last_error"]["message"]


# --- one client, many loops and runs ---


def test_one_planner_serves_event_loops_one_after_another_and_at_once(
    company: CustomerDatabase,
) -> None:
    """B51: three fresh loops, then four threads."""
    with OpenAIServer(then=lambda body: _by_history(body)).running() as server:
        own = planner(server)
        results: list[bool] = []

        def once() -> None:
            async def run() -> dict[str, Any]:
                try:
                    return await Harness(company, own).ask(EN)
                finally:
                    await own.aclose()

            results.append(judged(asyncio.run(run())))

        for _ in range(3):
            once()
        threads = [threading.Thread(target=once) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [True] * 7
    assert server.connections == 7


async def test_connections_are_as_many_as_runs_at_once(company: CustomerDatabase) -> None:
    with OpenAIServer(then=lambda body: _by_history(body), latency_s=0.01).running() as server:
        own = planner(server)
        rig = Harness(company, own)
        states = await asyncio.gather(*(rig.ask(EN, thread=f"t{n}") for n in range(12)))
        states += await asyncio.gather(*(rig.ask(EN, thread=f"u{n}") for n in range(12)))
        await own.aclose()
    assert all(map(judged, states))
    assert server.connections <= 12


def _by_history(body: dict[str, Any]) -> dict[str, Any]:
    """The next step of a judgement, from how many rounds the prompt shows."""
    rounds = sum(message["role"] == "assistant" for message in body["messages"])
    return [*THREE, DONE][rounds]


# --- steering ---


async def test_narrow_offers_only_what_makes_sense(company: CustomerDatabase) -> None:
    with OpenAIServer([*THREE, DONE], strict=True).running() as server:
        state, _ = await ask(server, company, "user_456 需要跟进吗", guidance="narrow",
                             harness={"max_steps": 8})  # fmt: skip
    assert state["stop_reason"] in ("repeated_failures", "planner_failed")  # user_123 is not open
    with OpenAIServer([*THREE, DONE], strict=True).running() as server:
        state, _ = await ask(server, company, guidance="narrow")
    assert judged(state)
    offered = [_offered(body) for body in server.bodies]
    sources = {"get_user_activity", "get_user_orders", "get_open_tickets"}
    assert offered[0] == sources
    assert offered[1] == sources - {"get_user_activity"}
    assert offered[3] == {"finish"}
    ids = json.dumps(server.bodies[0]["response_format"])
    assert '"user_id": {"type": "string", "enum": ["user_123"]}' in ids


async def test_narrow_asks_only_while_something_is_missing(company: CustomerDatabase) -> None:
    question = {"decision": {"type": "ask_user", "question": "Which?", "reason": "no id"}}
    with OpenAIServer([question, *THREE, DONE], strict=True).running() as server:
        own = planner(server, guidance="narrow")
        rig = Harness(company, own)
        await rig.ask("Does this customer need follow-up?")
        state = await rig.resume("user_123")
        await own.aclose()
    assert judged(state)
    assert _offered(server.bodies[0]) == {"ask_user"}
    assert "ask_user" not in _offered(server.bodies[1])


async def test_narrow_by_prompt_refuses_what_is_not_open(company: CustomerDatabase) -> None:
    with OpenAIServer([DONE, *THREE, DONE]).running() as server:
        state, _ = await ask(server, company, guidance="narrow", method="prompt")
    assert judged(state)
    assert "Open in this round: get_open_tickets" in server.bodies[0]["messages"][-1]["content"]
    assert "is not open in this round" in server.bodies[1]["messages"][-1]["content"]


def _offered(body: dict[str, Any]) -> set[str]:
    forms = body["response_format"]["json_schema"]["schema"]["properties"]["decision"]["anyOf"]
    return {
        (form["properties"].get("tool_name") or form["properties"]["type"])["enum"][0]
        for form in forms
    }


@pytest.mark.parametrize("method", METHODS)
async def test_a_finish_that_comes_too_early_is_handed_back_once(
    method: OutputMethod, company: CustomerDatabase
) -> None:
    with OpenAIServer([THREE[0], DONE, THREE[1], THREE[2], DONE], strict=True).running() as server:
        state, _ = await ask(server, company, method=method)
    assert judged(state)
    assert "get_user_orders, get_open_tickets" in str(server.bodies[2]["messages"][-1]["content"])
    assert state["counters"]["handed_back"] == 1


async def test_a_second_early_finish_ends_the_run_undetermined(company: CustomerDatabase) -> None:
    with OpenAIServer([THREE[0], DONE, DONE]).running() as server:
        state, _ = await ask(server, company)
    assert (state["status"], state["stop_reason"]) == ("failed", "finish")
    assert state["verdict"]["needs_followup"] is None
    assert len(server.requests) == 3


async def test_a_finish_is_not_early_when_the_verdict_is_certain(company: CustomerDatabase) -> None:
    with OpenAIServer([THREE[2], DONE]).running() as server:
        state, _ = await ask(server, company)
    assert judged(state)  # an urgent ticket decides by itself
    assert len(server.requests) == 2


# --- the finish ---


async def test_a_grounded_draft_stands_in_the_answer(company: CustomerDatabase) -> None:
    draft = "user_123 has 1 urgent ticket and was last active 9 days ago, so it needs priority follow-up."
    with OpenAIServer([*THREE, {"decision": finish(draft)}]).running() as server:
        state, _ = await ask(server, company)
    assert draft in state["final_answer"]
    assert state["final_answer"].startswith("Judgement: user_123 needs priority follow-up")
    assert state["model_view"]["used"]


@pytest.mark.parametrize(
    "draft",
    [
        "已为 user_123 创建跟进任务 task_88，客服将在今天联系",
        "user_123 有 5 个紧急工单，需要重点跟进。",
        "user_123 暂不需要重点跟进。",
        "user_456 也需要重点跟进。",
        "user_123 needs priority follow-up.",
    ],
)
async def test_an_ungrounded_draft_is_kept_beside_the_verdict(
    draft: str, own_company: CustomerDatabase
) -> None:
    """B32: the answer is made of the record."""
    with OpenAIServer([*THREE, {"decision": finish(draft)}]).running() as server:
        state, _ = await ask(server, own_company, ZH)
    assert judged(state)
    assert draft not in state["final_answer"]
    assert "task_88" not in state["final_answer"]
    assert "本次没有创建跟进任务" in state["final_answer"]
    assert state["model_view"]["draft"] == draft
    assert state["model_view"]["disagreements"]
    assert not state["model_view"]["used"]


# --- text from tools, and what the model may touch ---


async def test_an_obedient_model_is_stopped_by_code(own_company: CustomerDatabase) -> None:
    """B10: it proposes what a ticket told it to, for a customer nobody asked about."""
    send = {"decision": tool("approved", "send_followup_task", **{**SEND, "assignee": "vip_desk"})}
    replies = [
        {"decision": tool("r", "get_open_tickets", user_id="user_456")},
        send,
        {"decision": tool("r", "get_user_activity", user_id="user_456", days=7)},
        {"decision": tool("r", "get_user_orders", user_id="user_456", days=7)},
        DONE,
    ]
    with OpenAIServer(replies).running() as server:
        state, rig = await ask(server, own_company, "user_456 需要重点跟进吗")
    assert tasks(own_company) == []
    assert state["approval"] is None
    blocked = [e for e in rig.log.events if e["eventName"] == "agent.tool.blocked"]
    assert blocked[0]["error"]["kind"] == "out_of_scope"
    assert state["verdict"]["needs_followup"] is False
    assert state["facts"].keys() == {"user_456"}


async def test_one_customers_facts_never_support_anothers_verdict(
    company: CustomerDatabase,
) -> None:
    replies = [
        {"decision": tool("r", "get_open_tickets", user_id="user_123")},
        {"decision": tool("r", "get_user_activity", user_id="user_456", days=7)},
        {"decision": tool("r", "get_user_orders", user_id="user_456", days=7)},
        {"decision": tool("r", "get_open_tickets", user_id="user_456")},
        DONE,
    ]
    with OpenAIServer(replies).running() as server:
        state, _ = await ask(server, company, "Does user_456 need priority follow-up?")
    assert state["tool_history"][0]["failure_kind"] == "out_of_scope"
    assert state["verdict"]["subject"] == "user_456"
    assert state["verdict"]["needs_followup"] is False


class Notes(ToolArgs):
    """A tool of another company's, that declares no customer."""

    account: str = Field(description="Account.")


class Said(ToolResult):
    """Its answer."""

    text: str


async def test_a_tool_that_declares_no_customer_gets_no_other_one(
    company: CustomerDatabase,
) -> None:
    notes = ToolDefinition(
        name="get_crm_notes", description="Read the notes of an account.", args=Notes, result=Said,
        run=lambda args: {"text": f"notes of {args.account}"}, effect="read", subject_arg=None,
    )  # fmt: skip
    replies = [
        {"decision": tool("r", "get_crm_notes", account="user_456")},
        {"decision": tool("r", "get_crm_notes", account="user_123")},
        *THREE,
        DONE,
    ]
    with OpenAIServer(replies).running() as server:
        state, _ = await ask(server, company, tools=[notes], harness={"tools": [notes]})
    first, second = state["tool_history"][:2]
    assert first["failure_kind"] == "out_of_scope"
    assert second["outcome"] == "found"
    assert judged(state)


# --- what the log says ---


async def test_the_log_names_model_method_prompt_and_cost(company: CustomerDatabase) -> None:
    with OpenAIServer([*THREE, DONE]).running() as server:
        _, rig = await ask(server, company, price=Price(input=1.0, output=2.0))
    made = [e["planner"] for e in rig.log.events if e["eventName"] == "agent.decision.made"]
    assert len(made) == 4
    assert {one["promptHash"] for one in made} == {made[0]["promptHash"]}
    assert made[0]["model"] == "scripted"
    assert made[0]["method"] == "json_schema"
    assert made[0]["modelCalls"] == 1
    assert made[0]["cost"] > 0


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)

"""A web service around the agent, which may be killed at any moment.

    uvicorn --app-dir examples service:app --port 8000

Settings come from the environment, as everywhere (`followup doctor`). Any number of these processes
may serve one PostgreSQL. The client chooses the thread's id: a request that got no answer is sent
again under the same id, and never starts a second run.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from followup_agent import (
    FollowupAgent,
    FollowupError,
    NotWaiting,
    Run,
    ShuttingDown,
    StorageError,
    ThreadBusy,
    ThreadEntry,
    ThreadError,
    UnknownThread,
    UsageError,
)

STATUS: tuple[tuple[type[FollowupError], int], ...] = (
    # the first that fits
    (UnknownThread, 404),
    (ThreadError, 409),
    (UsageError, 422),
    (ShuttingDown, 503),
    (StorageError, 503),
)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the agent, and go on with what a killed process has left. Closing lets each step end."""
    async with FollowupAgent.aopen() as agent:
        app.state.agent = agent
        going_on = asyncio.create_task(go_on_with_the_rest(agent))
        yield
        going_on.cancel()


async def go_on_with_the_rest(agent: FollowupAgent) -> None:
    """Resume every thread that was cut off, unless somebody else has come first."""
    for thread_id in await agent.acut_off():
        with suppress(FollowupError):
            await agent.aresume(thread_id)


app = FastAPI(title="followup-agent", lifespan=lifespan)


@app.exception_handler(FollowupError)
async def refuse(request: Request, error: FollowupError) -> JSONResponse:
    """The error family as HTTP, in one place."""
    status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
    retry = {"Retry-After": "1"} if status == 503 or isinstance(error, ThreadBusy) else None
    document = {"error": type(error).__name__, "message": str(error)}
    return JSONResponse(document, status, headers=retry)


class Goal(BaseModel):
    """What to judge or do, on a thread that the client names."""

    model_config = ConfigDict(extra="forbid")

    thread_id: str
    goal: str


@app.post("/threads")
async def ask(goal: Goal, request: Request) -> Run:
    """Start the run of a new thread; of a known one, go on with it or return it as it stands."""
    agent = agent_of(request)
    try:
        await agent.aget(goal.thread_id)
    except UnknownThread:
        return await agent.aask(goal.goal, thread_id=goal.thread_id)
    with suppress(NotWaiting):  # it was not cut off
        return await agent.aresume(goal.thread_id)
    return await agent.aget(goal.thread_id)


Text = Annotated[str, Body(embed=True)]


@app.post("/threads/{thread_id}/answer")
async def answer(thread_id: str, text: Text, request: Request) -> Run:
    """Answer the pending question."""
    return await agent_of(request).aanswer(thread_id, text)


@app.post("/threads/{thread_id}/approve")
async def approve(
    thread_id: str,
    request: Request,
    edit: Annotated[dict[str, Any] | None, Body(embed=True)] = None,
    approval_id: Annotated[str | None, Body(embed=True)] = None,
) -> Run:
    """Approve the pending write, as shown or as edited."""
    return await agent_of(request).aapprove(thread_id, edit=edit, approval_id=approval_id)


@app.post("/threads/{thread_id}/reject")
async def reject(thread_id: str, request: Request, reason: Text = "") -> Run:
    """Turn the pending write down."""
    return await agent_of(request).areject(thread_id, reason)


@app.post("/threads/{thread_id}/cancel")
async def cancel(thread_id: str, request: Request) -> Run:
    """Drop what is pending."""
    return await agent_of(request).acancel(thread_id)


@app.post("/threads/{thread_id}/resume")
async def resume(thread_id: str, request: Request) -> Run:
    """Go on with a run that was cut off."""
    return await agent_of(request).aresume(thread_id)


@app.get("/threads/{thread_id}")
async def show(thread_id: str, request: Request) -> Run:
    """The last run of a thread."""
    return await agent_of(request).aget(thread_id)


@app.get("/threads")
async def threads(request: Request) -> list[ThreadEntry]:
    """What ran, and what waits."""
    return await agent_of(request).athreads()


@app.get("/health")
async def health() -> dict[str, bool]:
    """Whether the process serves."""
    return {"ok": True}


def agent_of(request: Request) -> FollowupAgent:
    """The one agent of this process."""
    agent: FollowupAgent = request.app.state.agent
    return agent

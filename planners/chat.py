"""The one place that talks to a model: one call, its retries, its time, its connections.

    a call   waits its turn (limiter), is sent, and is sent again while the server is busy or away:
             at most MAX_REQUESTS requests in all, within the call's and the run's time
    busy     no connection, 408, 409, 429, 5xx: retried, with jitter, or after the `Retry-After` that
             the server names, if that is not too long
    method   the server does not know the output method: told apart from every other refusal
    refused  any other status: not sent again

The SDK's own retries are off. The time of a call is its whole time, retries included: a server that
drips its reply byte by byte is cut off when it is up.
"""

import asyncio
import json
import random
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import httpx2
import openai
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict, Field, SecretStr
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt
from typing_extensions import override

from followup_agent.planners.limiter import RateLimiter
from followup_agent.planners.reading import Call, Reply
from followup_agent.planners.usage import Price, usage_of
from followup_agent.service.settings import shown_url
from followup_agent.state import Usage

MAX_REQUESTS = 3
"""Requests of one call, the first included."""
RETRY_AFTER_CAP_S = 20.0
"""The longest wait that a server may ask for; a longer one ends the call, and is told."""
BACK_OFF_S = 0.5
BACK_OFF_CAP_S = 8.0
"""Full jitter: a random wait up to this, doubled with each attempt (AWS, Exponential Backoff and
Jitter). The first and the longest."""
CONNECTIONS = 64
"""Requests in flight at once, and so connections that are kept: about what one core can drive."""
IDLE_S = 30.0
"""How long an idle connection is kept: between two steps of a run lie a tool call or a person."""
BUSY = frozenset({408, 409, 425, 429})

_NAMES_THE_METHOD = re.compile(
    r"response[_ ]?format|json[_ ]?schema|json[_ ]object|structured[ _]output|tool[_ ]choice"
    r"|parallel[_ ]tool|function[ _]call",
    re.IGNORECASE,
)
"""How servers name the parameter that they do not know: OpenAI, vLLM, DeepSeek, llama.cpp, Ollama."""
_MEANS_THE_METHOD = re.compile(
    r"\btools?\b|\bfunctions?\b|guided|grammar|\bstrict\b", re.IGNORECASE
)
"""The same in passing: enough in a refusal, too little in a server's own breakdown (5xx)."""
_NOT_THE_METHOD = re.compile(
    r"context[_ ](?:length|window)|maximum context|too (?:many|long)|content[_ ](?:policy|filter)"
    r"|ResponsibleAI|quota|billing",
    re.IGNORECASE,
)

Trouble = Literal[
    "unavailable",
    "rate_limited",
    "timeout",
    "method",
    "refused",
    "filtered",
    "unreadable",
    "broken",
]


class ChatFailed(Exception):
    """A call that brought no reply."""

    def __init__(
        self,
        trouble: Trouble,
        message: str,
        *,
        requests: int = 0,
        retry_after_s: float | None = None,
        status_code: int | None = None,
    ) -> None:
        """`message` is for the user. `retry_after_s` is what the server asked for."""
        super().__init__(message)
        self.trouble: Trouble = trouble
        self.requests = requests
        self.retry_after_s = retry_after_s
        self.status_code = status_code


class Endpoint(BaseModel):
    """A model on a server, and how it is called."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(min_length=1)
    base_url: str | None = None
    """None: OpenAI itself."""
    api_key: SecretStr = SecretStr("not-needed")
    """Servers of one's own take any."""
    temperature: float | None = 0.0
    """None: not sent; some reasoning models take none."""
    max_output_tokens: int = 1000
    timeout_s: float = 60.0
    """Of one call, retries included."""

    @property
    def shown(self) -> str:
        """For people: the model and where it is, without what is secret in the address."""
        return f"{self.model} at {shown_url(self.base_url)}"


class Answer(NamedTuple):
    """A model's reply and what it cost."""

    reply: Reply
    usage: Usage
    requests: int


class _Chat(ChatOpenAI):
    """`ChatOpenAI` that hands the reply on as it came: LangChain's own reading repairs broken JSON,
    drops calls it cannot read, and raises for some of what we name.

    The request goes through the SDK's client as it is. The SDK's typed method would first walk every
    message by its types, which is two fifths of a call (`make bench`).
    """

    @override
    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        payload = self._get_request_payload(messages, stop=stop, **kwargs)
        extra = payload.pop("extra_body", {})
        response = await self.root_async_client.post(
            "/chat/completions", body={**payload, **extra}, cast_to=httpx2.Response
        )
        reply, reported = _as_sent(response.content)
        counted = usage_of(reported, None)
        message = AIMessage(
            reply.shown,
            response_metadata={"finish_reason": reply.finish_reason, "model_name": self.model_name},
            additional_kwargs={"reply": reply, "usage": reported},
            usage_metadata={  # for callbacks and traces
                "input_tokens": counted["input_tokens"],
                "output_tokens": counted["output_tokens"],
                "total_tokens": counted["input_tokens"] + counted["output_tokens"],
                "input_token_details": {"cache_read": counted["cached_input_tokens"]},
            },
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


class Chat:
    """One model on one endpoint, for any number of runs, threads and event loops at once."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        price: Price | None = None,
        limiter: RateLimiter | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,  # noqa: S311 - spreads load, keeps no secret
        connections: int = CONNECTIONS,
    ) -> None:
        """Nothing is opened yet. `jitter` gives 0 to 1."""
        self.endpoint = endpoint
        self.price = price
        self._limiter = limiter
        self._monotonic = monotonic
        self._jitter = jitter
        self._connections = connections
        # OpenAI's own name; servers that imitate its older form know the other.
        host = urlsplit(endpoint.base_url or "https://api.openai.com").hostname or ""
        own = host.endswith((".openai.com", ".openai.azure.com"))
        self._length_name = "max_completion_tokens" if own else "max_tokens"
        self._lock = threading.Lock()
        # A client lives on the event loop it was first used on, and is gone with it.
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Chat] = (
            weakref.WeakKeyDictionary()
        )

    async def ask(
        self,
        messages: Sequence[BaseMessage],
        form: Mapping[str, Any],
        *,
        tokens: int,
        within_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> Answer:
        """One call; ChatFailed when it brings no reply.

        `form` goes into the request beside the messages; `tokens` is an estimate of the prompt, for
        the limiter; `within_s` is what is left of the run's time; `max_output_tokens` replaces the
        endpoint's.
        """
        limit_s = self.endpoint.timeout_s
        if within_s is not None:
            limit_s = min(limit_s, within_s)
        until = self._monotonic() + limit_s
        sent = 0
        client = await self._client()
        longest = max_output_tokens or self.endpoint.max_output_tokens
        body = {**form, self._length_name: longest}

        async def send() -> AIMessage:
            nonlocal sent
            await self._turn(tokens + longest, until)
            sent += 1
            return await client.ainvoke(list(messages), extra_body=body)

        attempts = AsyncRetrying(
            stop=stop_after_attempt(MAX_REQUESTS),
            wait=self._wait,
            retry=retry_if_exception(lambda error: self._again(error, until)),
            reraise=True,
        )
        try:
            async with asyncio.timeout(limit_s):
                message: AIMessage = await attempts(send)
        except TimeoutError as error:
            text = f"{self.endpoint.shown} gave no answer within {limit_s:.3g} s"
            raise ChatFailed("timeout", text, requests=sent) from error
        except ChatFailed as error:
            error.requests = sent
            raise
        except Exception as error:
            raise self._failed(error, sent) from error
        kept = message.additional_kwargs
        return Answer(kept["reply"], usage_of(kept["usage"], self.price), sent)

    async def _turn(self, tokens: int, until: float) -> None:
        """Wait for the limiter's turn, or refuse at once when it would come too late."""
        if self._limiter is None:
            return
        left_s = max(0.0, until - self._monotonic())
        wait_s = self._limiter.take(tokens, within_s=left_s)
        if wait_s is None:
            raise ChatFailed(
                "rate_limited",
                f"the limit of calls or tokens a minute leaves no turn within {left_s:.0f} s: raise "
                "FOLLOWUP_MODEL_CALLS_PER_MINUTE or FOLLOWUP_MODEL_TOKENS_PER_MINUTE, or run fewer "
                "at once",
            )
        if wait_s:
            await asyncio.sleep(wait_s)

    # --- retries ---

    def _again(self, error: BaseException, until: float) -> bool:
        """Whether sending the same once more may help, in time."""
        if not _is_busy(error):
            return False
        asked_s = _retry_after_s(error)
        left_s = until - self._monotonic()
        return asked_s is None or asked_s <= min(RETRY_AFTER_CAP_S, left_s)

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        asked_s = None if error is None else _retry_after_s(error)
        if asked_s is not None:
            return asked_s
        longest_s: float = min(BACK_OFF_CAP_S, BACK_OFF_S * 2 ** (state.attempt_number - 1))
        return self._jitter() * longest_s

    def _failed(self, error: Exception, sent: int) -> ChatFailed:
        """The error as a named failure with what to do about it."""
        shown, status = self.endpoint.shown, getattr(error, "status_code", None)
        said = _message_of(error)
        asked_s = _retry_after_s(error)
        trouble: Trouble
        if isinstance(error, openai.APIConnectionError):
            trouble = "unavailable"
            text = f"{shown} cannot be reached ({_root(error)}): is the server up, and its address right?"
        elif status == 429:
            trouble = "rate_limited"
            hint = f"; it asks to wait {asked_s:g} s" if asked_s is not None else ""
            text = f"{shown} refused for its rate limit or quota: {said}{hint}"
        elif _is_busy(error):
            trouble = "unavailable"
            text = f"{shown} answered {status}, {sent} times: {said}"
        elif _is_filtered(error):
            trouble = "filtered"
            text = f"{shown}: the content filter refused the prompt: {said}"
        elif is_about_the_method(error):
            trouble = "method"
            text = (
                f"{shown} does not take this output method ({status}): {said}. Set "
                "FOLLOWUP_OUTPUT_METHOD, or look with `followup doctor --probe`"
            )
        elif status is not None:
            trouble = "refused"
            key = " Look at OPENAI_API_KEY." if status in (401, 403) else ""
            key = " Look at FOLLOWUP_MODEL and OPENAI_BASE_URL." if status == 404 else key
            text = f"{shown} refused the request ({status}): {said}.{key}"
        else:
            trouble = "broken"
            text = f"{shown} could not be asked: {type(error).__name__}"
        return ChatFailed(
            trouble,
            text,
            requests=sent,
            retry_after_s=asked_s,
            status_code=status if isinstance(status, int) else None,
        )

    # --- connections ---

    async def _client(self) -> _Chat:
        """The client of this event loop; made in a thread, for it reads certificates."""
        loop = asyncio.get_running_loop()
        with self._lock:
            client = self._clients.get(loop)
        if client is None:
            made = await asyncio.to_thread(self._make)
            with self._lock:
                client = self._clients.setdefault(loop, made)
        return client

    def _make(self) -> _Chat:
        endpoint, n = self.endpoint, self._connections
        limits = httpx2.Limits(
            max_connections=n, max_keepalive_connections=n, keepalive_expiry=IDLE_S
        )
        return _Chat(
            model=endpoint.model,
            base_url=endpoint.base_url,
            api_key=endpoint.api_key,
            temperature=endpoint.temperature,
            max_retries=0,
            timeout=None,  # asyncio.timeout counts the whole of it
            use_responses_api=False,
            http_async_client=openai.DefaultAioHttpClient(limits=limits, timeout=None),
        )

    async def aclose(self) -> None:
        """Close this event loop's connections; those of loops that are gone went with them."""
        with self._lock:
            client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            with suppress(Exception):  # the server may have closed them first
                await client.http_async_client.aclose()  # type: ignore[union-attr] # made above


def _as_sent(content: bytes) -> tuple[Reply, Any]:
    """The first choice as it came, whatever it is, and the usage that is reported.

    ChatFailed when there is none.
    """
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError):
        whole = content.decode("utf-8", "replace")[:200]
    choices = whole.get("choices") if isinstance(whole, dict) else None
    choices = choices if isinstance(choices, list) else []
    choice = choices[0] if choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        said = whole.get("error") if isinstance(whole, dict) else whole
        detail = json.dumps(said, ensure_ascii=False)[:300] if said else ""
        text = f"the server sent what is no chat completion{': ' + detail if detail else ''}"
        raise ChatFailed("unreadable", text)
    calls = message.get("tool_calls")
    reply = Reply(
        content=message.get("content"),
        calls=tuple(_call(one) for one in calls) if isinstance(calls, list) else (),
        finish_reason=choice.get("finish_reason"),
        refusal=message.get("refusal"),
        reasoning=bool(message.get("reasoning_content") or message.get("reasoning")),
        choices=len(choices),
    )
    return reply, whole.get("usage")


def _call(one: Any) -> Call:
    function = one.get("function") if isinstance(one, Mapping) else None
    if not isinstance(function, Mapping):
        return Call(None, None)
    return Call(function.get("name"), function.get("arguments"))


def _is_busy(error: BaseException) -> bool:
    """No connection, or a status that says something of the server's load."""
    if isinstance(error, openai.APIConnectionError):
        return True
    status = getattr(error, "status_code", None)
    if not isinstance(error, openai.APIStatusError) or not isinstance(status, int):
        return False
    if status == 429:
        return getattr(error, "code", None) != "insufficient_quota"
    return status in BUSY or (status >= 500 and not is_about_the_method(error))


def is_about_the_method(error: BaseException) -> bool:
    """Whether a server's refusal names what asks for the output method.

    llama-cpp-python answers 500 for it, DeepSeek and vLLM 400.
    """
    status = getattr(error, "status_code", None)
    if status not in (400, 404, 415, 422, 500, 501):
        return False
    said = f"{_message_of(error)} {getattr(error, 'param', None) or ''}"
    about = _NAMES_THE_METHOD.search(said) or (status < 500 and _MEANS_THE_METHOD.search(said))
    return bool(about) and not _NOT_THE_METHOD.search(said)


def _is_filtered(error: BaseException) -> bool:
    """Azure and its kin refuse the whole request."""
    code = str(getattr(error, "code", "") or "")
    return getattr(error, "status_code", None) == 400 and (
        code in ("content_filter", "content_policy_violation")
        or "ResponsibleAI" in _message_of(error)
    )


def _message_of(error: BaseException) -> str:
    """What the server said, in one line."""
    body = getattr(error, "body", None)
    said = body.get("message") if isinstance(body, Mapping) else None
    text = said if isinstance(said, str) else str(error)
    return " ".join(text.split())[:400]


def _retry_after_s(error: BaseException) -> float | None:
    """Seconds that the server asks to wait; None when it names none in a form that counts."""
    response = getattr(error, "response", None)
    headers = getattr(response, "headers", None) or {}
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with suppress(TypeError, ValueError):
            seconds = float(headers.get(name, "")) * unit
            if 0 <= seconds < float("inf"):
                return seconds
    with suppress(TypeError, ValueError, KeyError):  # as a date, by the server's own clock
        until = parsedate_to_datetime(headers["retry-after"])
        return max(0.0, (until - parsedate_to_datetime(headers["date"])).total_seconds())
    return None


def _root(error: BaseException) -> str:
    cause = error.__cause__
    return type(cause if cause is not None else error).__name__

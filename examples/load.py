"""A load for `service.py`: one client a customer, who wants a follow-up task and approves it.

    python examples/load.py --url http://127.0.0.1:8000 --customers 30

Each client sends a request again when it gets no answer, as a careful client would: after a lost
answer it looks how the thread stands, and does what is left to do. Prints what came of it; exit
code 1 when a thread did not come to its end.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import httpx

PAUSE_S = 0.05


class Client:
    """One customer's client. `counts` is shared by all."""

    def __init__(
        self, http: httpx.AsyncClient, urls: Sequence[str], deadline: float, counts: Counter[str]
    ) -> None:
        """Send to these services by turns, until `deadline` (monotonic seconds)."""
        self._http, self._urls, self._deadline, self._counts = http, urls, deadline, counts
        self._turn = 0

    async def get_a_task(self, customer_id: str) -> bool:
        """Whether the run came to its end."""
        thread_id = f"load-{customer_id}"
        goal = {"thread_id": thread_id, "goal": f"给 {customer_id} 建一个跟进任务"}
        run = await self._send("POST", "/threads", goal)
        while run is not None and run.get("status") != "completed":
            if time.monotonic() > self._deadline or run.get("status") == "failed":
                return False
            verb = "approve" if run.get("status") == "needs_input" else "resume"
            run = await self._send("POST", f"/threads/{thread_id}/{verb}", {})
            if (
                run is None or "error" in run
            ):  # lost, or somebody else was faster: how does it stand?
                await asyncio.sleep(PAUSE_S)
                run = await self._send("POST", "/threads", goal)
        return run is not None

    async def _send(self, method: str, path: str, body: Any) -> dict[str, Any] | None:
        """The answer; None when there was none until the deadline."""
        while time.monotonic() < self._deadline:
            self._turn += 1
            url = self._urls[self._turn % len(self._urls)]
            try:
                answer = await self._http.request(method, url + path, json=body)
            except httpx.TransportError:
                self._counts["lost answers"] += 1
            else:
                if answer.status_code == 503 or answer.headers.get("Retry-After"):
                    self._counts["told to wait"] += 1
                else:
                    return dict(answer.json())
            await asyncio.sleep(PAUSE_S)
        return None


async def load(
    urls: Sequence[str], customers: Sequence[str], *, concurrency: int = 8, within_s: float = 60
) -> dict[str, int]:
    """Serve all customers; what came of it."""
    counts: Counter[str] = Counter(customers=len(customers))
    deadline, turn = time.monotonic() + within_s, asyncio.Semaphore(concurrency)
    async with httpx.AsyncClient(timeout=20, trust_env=False) as http:

        async def serve(number: int, customer_id: str) -> None:
            async with turn:
                client = Client(http, [*urls[number % len(urls) :], *urls], deadline, counts)
                done = await client.get_a_task(customer_id)
                counts["completed" if done else "not completed"] += 1

        await asyncio.gather(*(serve(n, customer) for n, customer in enumerate(customers)))
    return dict(counts)


def main() -> None:
    """Run the load and print its counts."""
    parser = argparse.ArgumentParser(description="A load for examples/service.py.")
    parser.add_argument("--url", action="append", required=True)
    parser.add_argument("--customers", type=int, default=30, help="user_1, user_2, …")
    parser.add_argument("--concurrency", type=int, default=8)
    options = parser.parse_args()
    customers = [f"user_{number + 1}" for number in range(options.customers)]
    counts = asyncio.run(load(options.url, customers, concurrency=options.concurrency))
    sys.stdout.write(json.dumps(counts) + "\n")
    sys.exit(1 if counts.get("not completed") else 0)


if __name__ == "__main__":
    main()

"""Carry out a write once: intent, effect, receipt; and what to do when one of them is missing.

                      ledger says            downstream says (`find`)     so
    intent written    new                    -                            run it
    no receipt        open                   it is there                  write the receipt
                      open                   it is not there              run it, under the same key
                      open                   cannot be asked              outcome_unknown
    receipt           done                   it is there, or not asked    answer from the record
                      done, by another run   it is not there any more     refused: it is not done again

The tool gets the ledger's key. A tool with `find` promises that its downstream takes one effect for
one key, so that running it again under the key, after asking, makes no second effect.
"""

from dataclasses import replace

from followup_agent.runs.ledger import Intent, Ledger, Standing
from followup_agent.tools.definition import ToolContext
from followup_agent.tools.outcome import Failed, Found, Outcome
from followup_agent.tools.runner import Prepared, ToolRun, ToolRunner


async def run_once(
    call: Prepared, context: ToolContext, tools: ToolRunner, ledger: Ledger, intent: Intent
) -> ToolRun:
    """Return the outcome of this action, carried out now or before; never a second effect."""
    standing = await ledger.begin(intent)
    context = replace(context, idempotency_key=intent.identity.key, mine=standing.mine)
    attempts = 1 if standing.mine else 0  # made by this run before it was cut off, or by another
    if standing.state == "done":
        there = await tools.find(call, context)
        return ToolRun(_from_record(there, standing, call), attempts, 0)
    if standing.state == "open":
        there = await tools.find(call, context)
        if isinstance(there, Found):
            await ledger.receipt(intent, there.result, found=True)
            return ToolRun(there, attempts, 0)
        if isinstance(there, Failed):
            return ToolRun(_unknown(standing.thread_id, there.message), attempts, 0)
        await ledger.adopt(intent)
        context = replace(context, mine=True)
    run = await tools.run(call, context)
    outcome = run.outcome
    if isinstance(outcome, Failed):
        return run._replace(
            outcome=await _after_failure(outcome, call, context, tools, ledger, intent)
        )
    await ledger.receipt(intent, outcome.result, found=False)
    return run


def _from_record(there: Outcome, standing: Standing, call: Prepared) -> Outcome:
    """The outcome of an action that has a receipt, given what downstream says of it."""
    if isinstance(there, Found):
        return there
    if standing.mine or call.tool.find is None:
        return Found(standing.result or {})
    why = there.message if isinstance(there, Failed) else "it is no longer there downstream"
    return Failed("refused", f"done before, by thread {standing.thread_id}, and not again; {why}")


async def _after_failure(
    failed: Failed,
    call: Prepared,
    context: ToolContext,
    tools: ToolRunner,
    ledger: Ledger,
    intent: Intent,
) -> Outcome:
    """Ask downstream, where one can. What is not there after a refusal was surely not done; after a
    lost answer or connection it may still come, and the intent stays open."""
    there = await tools.find(call, context)
    if isinstance(there, Found):
        await ledger.receipt(intent, there.result, found=True)
        return there
    in_doubt = {"outcome_unknown"} if call.tool.find is None else {"outcome_unknown", "unavailable"}
    if failed.failure_kind not in in_doubt:
        await ledger.not_done(intent)
    return failed


def _unknown(thread_id: str, why: str) -> Failed:
    return Failed(
        "outcome_unknown",
        f"an earlier attempt (thread {thread_id}) has no receipt and {why}: look downstream by hand",
    )

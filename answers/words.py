"""Every fixed phrase that a user reads, in Chinese and in English, side by side."""

from typing import Final

from followup_agent.tools.outcome import Language

WORDS: Final[dict[str, tuple[str, str]]] = {
    # the judgement line
    "needs": (
        "判断：{subject} 需要重点跟进（优先级：{priority}）。",
        "Judgement: {subject} needs priority follow-up (priority: {priority}).",
    ),
    "needs_not": (
        "判断：{subject} 暂不需要重点跟进（优先级：{priority}）。",
        "Judgement: {subject} does not need priority follow-up now (priority: {priority}).",
    ),
    "undetermined": (
        "判断：目前的信息不足以判断 {subject} 是否需要重点跟进。",
        "Judgement: what was found is not enough to say whether {subject} needs priority follow-up.",
    ),
    "no_subject": (
        "未作判断：没有给出可用的客户编号。",
        "No judgement: no usable customer id was given.",
    ),
    "priority_high": ("高", "high"),
    "priority_medium": ("中", "medium"),
    "priority_low": ("低", "low"),
    "priority_none": ("无", "none"),
    # answers to questions
    "answer": ("回答：{subject} {answer}。", "Answer for {subject}: {answer}."),
    "no_answer": (
        "回答：没有查到 {subject} 的相关数据，无法回答。",
        "Answer: the data on {subject} could not be read, so the question stays open.",
    ),
    "escalate": ("有紧急工单，需要升级处理", "there is an urgent ticket: escalate it"),
    "escalate_not": ("没有紧急工单，不需要升级", "no ticket is urgent: nothing to escalate"),
    # parts
    "basis": ("依据：", "Basis:"),
    "found_so_far": ("已查到：", "Found so far:"),
    "also_found": ("另外查到：", "Also found:"),
    "missing": ("未能核实：{sources}。", "Could not be checked: {sources}."),
    "action": ("建议动作：{action}。", "Advised action: {action}."),
    "default_window": (
        "（未指定时间范围，按默认的近 {days} 天查看。）",
        "(No period was named: the default, the last {days} days, was used.)",
    ),
    "colon": ("：", ": "),
    "comma": ("、", ", "),
    "with": ("{source}（{why}）", "{source} ({why})"),
    # the record of the write
    "task_done": ("{summary}。", "{summary}."),
    "task_none": ("本次没有创建跟进任务。", "No follow-up task was created."),
    "task_rejected": (
        "没有创建跟进任务：审批未通过。",
        "No follow-up task was created: approval was not given.",
    ),
    "task_unknown": (
        "跟进任务的结果未知：既不能确认已创建，也不能确认未创建，请人工核实。",
        "The outcome of the follow-up task is unknown: it may or may not exist. Please check by hand.",
    ),
    "task_failed": ("创建跟进任务失败（{why}）。", "Creating the follow-up task failed ({why})."),
    # sources
    "get_user_activity": ("活跃情况", "activity"),
    "get_user_orders": ("订单与付费", "orders and payments"),
    "get_open_tickets": ("工单", "tickets"),
    "not_checked": ("未查询", "not looked at"),
    # failure kinds
    "unknown_tool": ("没有这个工具", "no such tool"),
    "invalid_args": ("参数不合法", "invalid arguments"),
    "timeout": ("超时", "timed out"),
    "unavailable": ("服务不可用", "unavailable"),
    "refused": ("被拒绝", "refused"),
    "not_found": ("客户不存在", "no such customer"),
    "out_of_scope": ("超出本次问题的范围", "outside this question"),
    "not_approved": ("未获批准", "not approved"),
    "outcome_unknown": ("结果未知", "outcome unknown"),
    "internal": ("内部错误", "internal error"),
    # why a run stopped early
    "stopped_max_steps": ("已达到步数上限。", "The step limit was reached."),
    "stopped_repeated_failures": (
        "工具连续失败，已停止。",
        "Tools failed repeatedly, so the run was stopped.",
    ),
    "stopped_no_progress": (
        "没有新的进展，已停止。",
        "There was no progress, so the run was stopped.",
    ),
    "stopped_planner_failed": (
        "规划器没有给出可用的决定，已停止。",
        "The planner gave no usable decision, so the run was stopped.",
    ),
    "stopped_model_refused": (
        "模型拒绝作答，已停止。",
        "The model refused to answer, so the run was stopped.",
    ),
    "stopped_deadline": (
        "已到运行时限，以下是到此为止查到的内容。",
        "The run's time was up: this is what was found by then.",
    ),
    "stopped_budget": (
        "模型的使用额度已用完，以下是到此为止查到的内容。",
        "The run's budget for the model was spent: this is what was found by then.",
    ),
    "stopped_cancelled": ("已按要求取消。", "The run was cancelled as asked."),
    "stopped_recursion_limit": (
        "运行轮数达到框架上限，已停止。",
        "The framework's loop limit was reached, so the run was stopped.",
    ),
    "stopped_internal": ("发生内部错误，已停止。", "An internal error stopped the run."),
    # why a planner gave no decision
    "planner_unavailable": (
        "模型服务不可用：{detail}",
        "The model's server is not available: {detail}",
    ),
    "planner_timeout": ("模型没有按时回答：{detail}", "The model did not answer in time: {detail}"),
    "planner_refused": ("请求被拒绝：{detail}", "The request was refused: {detail}"),
    "planner_invalid_args": (
        "回复不是可用的决定：{detail}",
        "The reply was no usable decision: {detail}",
    ),
    "planner_unknown_tool": (
        "回复里的工具不存在：{detail}",
        "The reply named a tool that does not exist: {detail}",
    ),
    "planner_internal": ("规划器出错：{detail}", "The planner failed: {detail}"),
    # questions of the rule planner
    "ask_which": (
        "请告诉我要看哪位客户（客户编号，例如 {example}）。",
        "Which customer is this about? Please give the customer id, e.g. {example}.",
    ),
    "ask_which_of": (
        "您提到了多位客户：{ids}。一次只判断一位，先看哪一位？",
        "You named several customers: {ids}. One is judged at a time: which one first?",
    ),
    "ask_unreadable": (
        "“{ids}”不像是这里的客户编号（例如 {example}）。请核对后再告诉我客户编号。",
        "'{ids}' does not look like a customer id here (e.g. {example}). Please check the id.",
    ),
    "ask_unknown": (
        "没有找到客户 {id}。请核对编号，告诉我要看哪位客户。",
        "There is no customer {id}. Please check the id and tell me which customer you mean.",
    ),
    "ask_window": (
        "没有看懂时间范围，或者它不在 1 到 {max_days} 天之间。请告诉我要看最近多少天，例如“近30天”。",
        "The period was not understood, or is not from 1 to {max_days} days. How many days back should "
        "I look? For example: last 30 days.",
    ),
    "ask_what": (
        "我可以判断客户是否需要重点跟进，也可以查询活跃、订单、工单，或创建跟进任务。您想了解{about}什么？",
        "I can judge whether a customer needs priority follow-up, answer questions on activity, orders "
        "and tickets, or create a follow-up task. What would you like to know{about}?",
    ),
    "about": ("客户 {id} 的", " about {id}"),
    "ask_which_why": ("目标里没有客户编号", "no customer id is in the goal"),
    "ask_which_of_why": ("目标里有多个客户编号", "several customer ids are in the goal"),
    "ask_unreadable_why": ("编号的格式不对", "the id has not the form of one"),
    "ask_unknown_why": ("业务数据里没有这位客户", "the business data has no such customer"),
    "ask_window_why": ("时间范围超出可查的范围", "the period is out of range"),
    "ask_what_why": ("目标里没有可以回答的问题", "the goal holds no question that can be answered"),
    "all_asked": ("需要的来源都已查过", "every source that is needed has been asked"),
    "stop_asking": (
        "两次回答都无法使用，不再追问",
        "two answers could not be used: no more questions",
    ),
    # approval
    "approval_title": (
        "请审批：{tool_name}。同意后才会执行，且只按以下参数执行。",
        "Please decide on {tool_name}. It runs only when approved, with exactly these arguments.",
    ),
    "approval_again": ("再次请示，因为：", "Asked again, because:"),
    "approval_reason": ("理由：{reason}", "Reason: {reason}"),
}


def say(language: Language, key: str, **values: object) -> str:
    """The phrase in this language with its fields filled; KeyError for a missing field."""
    return WORDS[key][0 if language == "zh" else 1].format(**values)

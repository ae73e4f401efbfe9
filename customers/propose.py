"""`followup data map`: propose a mapping for an export, from its column names and its values.

A proposal is for a person to read and edit: what could not be told is written down as a remark, and
never decided without a word.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, permutations
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from followup_agent.customers.cells import parse_amount, parse_time
from followup_agent.customers.files import open_table
from followup_agent.customers.lookup import USER_ID_PATTERN
from followup_agent.customers.rows import RELATIONS
from followup_agent.customers.tables import PRIORITIES, STATUSES
from followup_agent.service.errors import CustomerDataError

SAMPLE_ROWS = 2000
MAX_FILES = 8
MOST = 0.95
"""Share of the values that must be readable for a form to be taken."""
MOSTLY = 0.75
"""Share of the rows whose key must be their own."""
_UTC = ZoneInfo("UTC")

# Names of columns, without case and punctuation; the first ones fit best.
_NAMES: Mapping[str, Mapping[str, str]] = {
    "customers": {
        "customer_id": "customerid accountid clientid companyid organizationid organisationid orgid tenantid workspaceid userid memberid custid uid id 客户编号 客户id 客户号 用户id 用户编号 会员编号 会员id 账号",
        "name": "name customername accountname companyname company fullname clientname 客户名称 客户姓名 名称 公司名称 公司 姓名 用户名",
        "segment": "segment tier plantier plan level type industry 客户等级 等级 分层 级别 客户类型 套餐 会员等级",
        "signed_up_at": "signedupat signupdate signupat registeredat registrationdate joinedat joindate createdat created since customersince onboardedat startdate 建档时间 建档日期 注册时间 注册日期 开户日期 创建时间 加入时间",
    },
    "activity_events": {
        "occurred_at": "occurredat eventtime timestamp usagedate usedon loginat logintime logindate visitedat eventdate ts date time 发生时间 登录时间 登录日期 访问时间 使用日期 时间 日期",
        "kind": "kind eventtype event eventname action activity type featurename 事件类型 事件 行为 动作 类型",
    },
    "orders": {
        "order_id": "orderid orderno ordernumber order subscriptionid invoiceid invoiceno invoice paymentid id 订单编号 订单号 订单id 单号",
        "placed_at": "placedat orderdate orderedat ordertime startdate invoicedate createdat date 下单时间 下单日期 订单时间 订单日期 创建时间",
        "paid_at": "paidat paymentdate paymenttime paiddate paidon 支付时间 付款时间 付款日期 支付日期",
        "amount": "amount total totalamount price mrramount revenue value 金额 订单金额 实付金额 支付金额 总价 总金额",
        "currency": "currency currencycode 币种 货币",
        "status": "status orderstatus state 状态 订单状态",
    },
    "tickets": {
        "ticket_id": "ticketid ticketno ticket caseid caseno case issueid issue requestid id 工单编号 工单号 工单id 编号",
        "opened_at": "openedat submittedat opened opendate createdat created reportedat 提交时间 创建时间 打开时间 提交日期 创建日期",
        "closed_at": "closedat resolvedat closed closedate completedat 关闭时间 解决时间 完成时间 关闭日期",
        "priority": "priority severity urgency 优先级 紧急程度 严重程度",
        "kind": "kind category type tickettype 类型 分类 工单类型 类别",
        "subject": "subject title summary 标题 主题",
        "body": "body description content text details 内容 描述 详情 问题描述",
    },
}  # fmt: skip
# What names are made of, where none of the above is there.
_ZH_TIME, _ZH_NUMBER = "(?:时间|日期|日)$", "(?:编号|号码?|id|代码|码)$"
_EN_TIME, _EN_NUMBER = "(?:at|on|time|date|ts)?$", "(?:id|no|nr|number|code|key)$"
_PATTERNS: Mapping[str, Mapping[str, str]] = {
    "customers": {
        "customer_id": f"(?:客户|会员|用户|顾客|买家|账户|学员|患者|卡){_ZH_NUMBER}|(?:customer|account|client|user|member|contact|patient|student|company|organi[sz]ation|org|tenant){_EN_NUMBER}",
        "name": "名称|姓名|名字|昵称|公司|name|company",
        "segment": "等级|级别|分层|客户类型|套餐|segment|tier|plan|level",
        "signed_up_at": f"(?:注册|报名|入会|入学|开户|建档|创建|加入|开卡|签约|首次).*{_ZH_TIME}|(?:sign|regist|join|creat|onboard|enrol).*{_EN_TIME}",
    },
    "activity_events": {
        "occurred_at": f"(?:登录|登陆|访问|到店|发生|使用|事件|操作|行为|浏览|拜访|签到).*{_ZH_TIME}|(?:event|login|visit|usage|used|access|occur|session).*{_EN_TIME}",
        "kind": "事件|行为|动作|类型|方式|event|action|kind|activity|feature",
    },
    "orders": {
        "order_id": f"(?:订单|消费|合同|发票|支付|缴费|付款|充值|账单|销售|交易|流水|单据|收据).*{_ZH_NUMBER}|(?:order|invoice|subscription|transaction|payment|receipt|contract){_EN_NUMBER}",
        "placed_at": f"(?:下单|订单|消费|签订|交易|购买|缴费|充值|账单|销售|创建|开单).*{_ZH_TIME}|(?:order|place|purchase|invoice|start|creat|transaction|bought).*{_EN_TIME}",
        "paid_at": f"(?:支付|付款|回款|到账|收款).*{_ZH_TIME}|(?:paid|payment|captured|settled).*{_EN_TIME}",
        "amount": "金额|总价|价格|实付|费用|amount|total|price|revenue|mrr|fee$",
        "currency": "币种|货币|currency",
        "status": "状态|status|state$",
    },
    "tickets": {
        "ticket_id": f"(?:工单|投诉|问题|服务|案件|反馈|报修|维修|售后|意见).*{_ZH_NUMBER}|(?:ticket|case|issue|request|complaint){_EN_NUMBER}",
        "opened_at": f"(?:提交|创建|登记|打开|受理|发起|投诉|报修|反馈|维修|意见).*{_ZH_TIME}|(?:open|submit|creat|report|receiv).*{_EN_TIME}",
        "closed_at": f"(?:关闭|解决|完成|办结|处理|结案).*{_ZH_TIME}|(?:clos|resolv|complet|solv|answer).*{_EN_TIME}",
        "priority": "优先|紧急|严重|priority|severity|urgency",
        "kind": "类型|分类|类别|category|type|kind",
        "subject": "标题|主题|subject|title|summary",
        "body": "内容|描述|详情|description|body|message|content|details|text$",
    },
}  # fmt: skip
_FILE_NAMES = {
    "customers": r"customer|account|client|compan|organi[sz]ation|tenant|member|user|客户|用户|会员|顾客|学员",
    "activity_events": r"activit|usage|event|login|visit|session|活动|行为|登录|登陆|访问|日志|到店|拜访|签到|浏览",
    "orders": r"order|subscription|invoice|payment|sale|billing|订单|支付|付款|缴费|充值|账单|销售|订阅|消费|合同|交易|流水",
    "tickets": r"ticket|case|support|issue|helpdesk|complaint|工单|客服|投诉|问题|反馈|报修|维修|售后|意见",
}
_KEYS = {"customers": "customer_id", "orders": "order_id", "tickets": "ticket_id"}
_TIMES = ("signed_up_at", "occurred_at", "placed_at", "paid_at", "opened_at", "closed_at")
_FIRST_TIMES = ("signed_up_at", "occurred_at", "placed_at", "opened_at")
_NEEDED = {
    "customers": ("customer_id",),
    "activity_events": ("occurred_at",),
    "orders": ("order_id", "placed_at"),
    "tickets": ("ticket_id", "opened_at"),
}
_TIME_FORMS = tuple(
    f"{day}{clock}"
    for day in ("%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d %b %Y", "%b %d, %Y", "%d/%m/%y")
    for clock in ("", " %H:%M", " %H:%M:%S", " %I:%M %p")
)
_PRIORITY = {
    "low": "low minor trivial 低 较低",
    "normal": "normal medium moderate standard 普通 中 一般 中等 正常",
    "high": "high major 高 较高 重要 严重",
    "urgent": "urgent critical blocker emergency 紧急 特急 加急 非常紧急",
}
_STATUS = {
    "placed": "placed pending unpaid open new processing created draft due overdue 待支付 待付款 未支付 未付款 处理中",
    "paid": "paid completed complete success succeeded fulfilled delivered shipped active 已支付 已付款 已完成 已缴 已缴费 已结清 支付成功 交易成功 已发货",
    "cancelled": "cancelled canceled void voided writtenoff churned expired 已取消 取消 已关闭 交易关闭",
    "refunded": "refunded refund returned credited 已退款 退款 退费 已退费 已退货",
}  # fmt: skip
_LOGIN = ("login", "signin", "logon", "登录", "登陆")
_CURRENCIES = {"€": "EUR", "£": "GBP", "$": "USD", "¥": "CNY", "￥": "CNY", "元": "CNY"}


class Proposal(NamedTuple):
    """A mapping as text, the files of its relations, and what a person should look at."""

    text: str
    relations: dict[str, str]
    open: list[str]


@dataclass
class _File:
    """One file, by its first rows."""

    path: Path
    table: str
    columns: dict[str, list[Any]]
    """Column to its values, without the empty ones."""
    rows: int

    def named(self, relation: str, name: str) -> list[str]:
        """Columns that may be one of ours by their names, the best first."""
        plain = {column: _plain(column) for column in self.columns}
        words, pattern = _NAMES[relation][name].split(), _PATTERNS[relation][name]
        whole = [column for word in words for column, said in plain.items() if said == word]
        like = [column for column, said in plain.items() if re.search(pattern, said)]
        return [*dict.fromkeys([*whole, *like])]


def propose_mapping(paths: Sequence[Path], folder: Path, timezone: str = "UTC") -> Proposal:
    """A mapping for these files, to stand in `folder`; CustomerDataError when it finds no customers.

    `timezone` is proposed for times without a zone.
    """
    if len(paths) > MAX_FILES:
        raise CustomerDataError(f"{len(paths)} files: name up to {MAX_FILES} of one export")
    files: list[_File] = []
    for number, path in enumerate(paths, start=1):
        files.append(_read(path, number, {file.table for file in files}))
    return _Proposer(files, folder, timezone).proposal()


def _read(path: Path, number: int, taken: set[str]) -> _File:
    table = open_table(path)
    rows = [record for record in islice(table.rows, SAMPLE_ROWS) if not record.fault]
    columns = {
        column: [row.cells[index] for row in rows if row.cells[index] is not None]
        for index, column in enumerate(table.columns)
    }
    name = re.sub(r"\W", "_", path.stem)
    if not re.match(r"[^\W\d]", name) or name in taken:
        name = f"file_{number}"
    return _File(path, name, columns, len(rows))


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


@dataclass
class _Proposer:
    files: list[_File]
    folder: Path
    timezone: str
    remarks: list[str] = field(default_factory=list)
    naive: bool = False

    def proposal(self) -> Proposal:
        """Which file is which relation, and the query for each."""
        chosen = self._assign()
        customers = chosen.get("customers")
        if customers is None:
            raise CustomerDataError(
                "none of these files looks like the customers: name the one that has one row for each, "
                "with an id and a time of signing up; or write the mapping by hand (docs/own-data.md)"
            )
        queries = {
            relation: self._query(relation, chosen[relation], customers)
            for relation in RELATIONS
            if relation in chosen
        }
        for relation in RELATIONS:
            if relation not in chosen:
                self.remarks.append(f"no file looks like {relation}: this source is not connected")
        if self.naive:
            self.remarks.append(
                f"timezone: times have no zone of their own; is it {self.timezone}?"
            )
        used = {
            *(file.table for file in chosen.values()),
            *(file.table for file in self.files if any(f'"{file.table}"' in q for q in queries.values())),
        }  # fmt: skip
        self.remarks += [self._unused(file) for file in self.files if file.table not in used]
        return Proposal(
            self._written(queries, used),
            {relation: str(file.path) for relation, file in chosen.items()},
            self.remarks,
        )

    def _unused(self, file: _File) -> str:
        for relation in RELATIONS:
            lacking = [name for name in _NEEDED[relation] if not self._column(file, relation, name)]
            if _is_called(file, relation) and lacking:
                return (
                    f"{file.path.name} is called like {relation}, and which of its columns is "
                    f"{' and '.join(lacking)} cannot be told: it is left out"
                )
        return f"{file.path.name} is left out: nothing tells what it is, or another file is that already"

    def _written(self, queries: Mapping[str, str], used: set[str]) -> str:
        lines = ["# Proposed from the columns and first rows of the files. Read it, and edit it."]
        lines += [f"# To be looked at: {remark}" for remark in self.remarks]
        lines += ["", f'timezone = "{self.timezone}"', "", "[files]"]
        for file in self.files:
            if file.table in used:
                path = (
                    os.path.relpath(file.path, self.folder).replace("\\", "/").replace('"', '\\"')
                )
                lines.append(f'{_toml_key(file.table)} = "{path}"')
        lines += ["", "[relations]"]
        for relation, query in queries.items():
            lines += [f"{relation} = '''", f"{query}'''", ""]
        return "\n".join(lines[:-1]) + "\n"

    # --- which file is what ---

    def _assign(self) -> dict[str, _File]:
        """The assignment of files to relations that fits best."""
        slots: list[_File | None] = [*self.files, *[None] * len(RELATIONS)]
        scores = {
            (id(file), relation): self._fit(file, relation)
            for file in self.files
            for relation in RELATIONS
        }
        best: tuple[float, dict[str, _File]] = (-1.0, {})
        for order in set(permutations(range(len(slots)), len(RELATIONS))) if len(slots) < 9 else (
            _greedy(self.files, scores)
        ):  # fmt: skip
            taken = {r: slots[i] for r, i in zip(RELATIONS, order, strict=True)}
            fits = {r: f for r, f in taken.items() if f is not None and scores[id(f), r] > 0}
            total = sum(scores[id(f), r] for r, f in fits.items())
            total += 1000 * ("customers" in fits)  # nothing can be done without them
            if total > best[0]:
                best = (total, fits)
        return best[1]

    def _fit(self, file: _File, relation: str) -> float:
        """How well the file fits; 0 when it lacks what the relation cannot do without."""
        found = {name: self._column(file, relation, name) for name in _NAMES[relation]}
        if any(found[name] is None for name in _NEEDED[relation]):
            return 0.0
        called = [other for other in RELATIONS if _is_called(file, other)]
        if called and relation not in (*called, "customers"):
            return 0.0  # complaints without an id of their own are not activity
        named = 4.0 if relation in called else 0.0
        key = _KEYS.get(relation)
        own_key = (
            2.0 if key and _plain(found[key] or "") in _NAMES[relation][key].split()[:3] else 0
        )
        links = 0.0
        if relation == "customers":  # companies, and not their users: those whom most files name
            links = 2.0 * sum(_refers(other, file, found[key or ""] or "") for other in self.files)
        return named + own_key + links + sum(column is not None for column in found.values())

    def _column(self, file: _File, relation: str, name: str) -> str | None:
        """The column of a file for one of ours; its values must be of that kind."""
        for column in file.named(relation, name):
            values = file.columns[column]
            if name in _TIMES and values and _time_form(values) is None:
                continue
            if name == "amount" and _amount_form(values) is None:
                continue
            if name == _KEYS.get(relation) and _distinct(values) < MOSTLY * file.rows:
                continue  # a key is there once, but for a slip
            return column
        by_file = relation == "customers" or _is_called(file, relation)
        if name in _FIRST_TIMES and by_file:  # the only time there is says it, whatever its name
            times = [column for column, values in file.columns.items() if _are_times(values)]
            return times[0] if len(times) == 1 else None
        return None

    # --- one relation ---

    def _query(self, relation: str, file: _File, customers: _File) -> str:
        columns = {name: self._column(file, relation, name) for name in _NAMES[relation]}
        join, customer = "", ""
        if relation != "customers":
            customer, join = self._customer_of(relation, file, customers)
        else:
            self._check_ids(file, columns["customer_id"])
        parts = [f"{customer} AS customer_id"] if customer else []
        for name, column in columns.items():
            parts.append(f"{self._expression(relation, file, name, column, columns)} AS {name}")
        parts.append(f'"{file.table}"._at')
        return f'SELECT {("," + chr(10) + "       ").join(parts)}\nFROM "{file.table}"{join}'

    def _customer_of(self, relation: str, file: _File, customers: _File) -> tuple[str, str]:
        """Whose a row is: a column of the file, or of another that it can be joined with."""
        key = self._column(customers, "customers", "customer_id") or ""
        # A column of the key's own name says more than one with ids that are there too: users and
        # companies are both numbered from 1.
        for linked in (_of_that_name, _with_such_ids):
            own = linked(file, customers, key)
            if own is not None:
                return f'"{file.table}".{_quoted(own)}', ""
            for other in self.files:
                if other is file or other is customers:
                    continue
                theirs, shared = linked(other, customers, key), _row_of(other, file)
                if theirs is not None and shared not in (None, theirs):
                    join = f'\nLEFT JOIN "{other.table}" USING ({_quoted(str(shared))})'
                    return f'"{other.table}".{_quoted(theirs)}', join
        self.remarks.append(f"{relation}: no column of {file.path.name} says whose a row is")
        return "NULL", ""

    def _check_ids(self, file: _File, column: str | None) -> None:
        values = file.columns.get(column or "", [])
        bad = [str(value) for value in values if not re.match(USER_ID_PATTERN, str(value))]
        if bad:
            self.remarks.append(f"customers: {bad[0]!r} cannot be an id (blanks, quotes, too long)")

    def _expression(
        self,
        relation: str,
        file: _File,
        name: str,
        column: str | None,
        all_: Mapping[str, str | None],
    ) -> str:
        """What stands for one of our columns."""
        if column is None:
            return self._without(relation, file, name, all_)
        shown, values = f'"{file.table}".{_quoted(column)}', file.columns[column]
        if name in _TIMES:
            return self._time(shown, values, f"{relation}.{name}")
        if name == "amount":
            form = _amount_form(values)
            return f"parse_amount({shown}, '{form}')" if form else shown
        if (relation, name) == ("tickets", "priority"):
            return self._words(shown, values, _PRIORITY, PRIORITIES, "tickets.priority")
        if (relation, name) == ("orders", "status"):
            return self._words(shown, values, _STATUS, STATUSES, "orders.status")
        if (relation, name) == ("activity_events", "kind"):
            logins = {v for v in map(str, values) if _plain(v) in _LOGIN and v != "login"}
            return _case(shown, dict.fromkeys(sorted(logins), "login")) if logins else shown
        return shown

    def _time(self, shown: str, values: Sequence[Any], where: str) -> str:
        form = _time_form(values) or ""
        self.naive |= any(_is_naive(value, form) for value in values[:50])
        if not form:
            return shown
        other = next((f for f in _TIME_FORMS if f != form and _reads(values, f)), None)
        if other is not None:
            self.remarks.append(f"{where}: {values[0]} may be {form} or {other}")
        return f"parse_time({shown}, '{form}')"

    def _words(
        self,
        shown: str,
        values: Sequence[Any],
        known: Mapping[str, str],
        ours: Sequence[str],
        where: str,
    ) -> str:
        """A value table, where the words are not ours."""
        words = sorted({*map(str, values)})
        levels = _levels(words) if ours is PRIORITIES else {}
        if levels:
            taken = ", ".join(f"{word} as {mine}" for word, mine in levels.items())
            self.remarks.append(f"{where}: {taken}; is that so?")
        table: dict[str, str] = {}
        for word in words:
            mine = levels.get(word) or next(
                (m for m, said in known.items() if _plain(word) in said.split()), None
            )
            if mine is None:
                self.remarks.append(
                    f"{where}: what is {word!r}? It has to be one of {', '.join(ours)}"
                )
            elif word != mine:
                table[word] = mine
        return _case(shown, table) if table else shown

    def _without(
        self, relation: str, file: _File, name: str, columns: Mapping[str, str | None]
    ) -> str:
        """What stands for a column that the file does not have."""
        if name in ("name", "subject", "body"):
            return "''"
        if name == "segment":
            return "'general'"
        if name == "closed_at":
            self.remarks.append("tickets.closed_at: no column says it, so every ticket is open")
            return "NULL"
        if name == "kind":
            login = re.search(
                "login|登录|登陆", f"{file.path.stem} {' '.join(file.columns)}", re.IGNORECASE
            )
            return "'question'" if relation == "tickets" else "'login'" if login else "'feature'"
        if name == "priority":
            self.remarks.append("tickets.priority: no column says it, so none is urgent")
            return "'normal'"
        if name == "status":
            self.remarks.append("orders.status: no column says it, so every order is taken as paid")
            return "'paid'"
        if name == "paid_at":
            self.remarks.append("orders.paid_at: no column says it, so it is when it was placed")
            placed = self._expression(relation, file, "placed_at", columns["placed_at"], columns)
            if columns["status"] is None:
                return placed
            status = self._expression(relation, file, "status", columns["status"], columns)
            return f"CASE ({status}) WHEN 'paid' THEN {placed} WHEN 'refunded' THEN {placed} END"
        if name == "currency":
            return f"'{self._currency(file, columns['amount'])}'"
        if name == "amount":
            self.remarks.append("orders.amount: no column says it")
            return "0"
        self.remarks.append(f"{relation}.{name}: no column says it, and it is needed")
        return "NULL"

    def _currency(self, file: _File, amount: str | None) -> str:
        written = " ".join(str(value) for value in file.columns.get(amount or "", [])[:50])
        for sign, code in _CURRENCIES.items():
            if sign in written:
                self.remarks.append(f"orders.currency: {code}, by the sign {sign}")
                return code
        self.remarks.append("orders.currency: no column says it; XXX stands for an unknown one")
        return "XXX"


def _greedy(
    files: Sequence[_File], scores: Mapping[tuple[int, str], float]
) -> Iterator[tuple[int, ...]]:
    """For many files: each relation takes the best that is left, the surest first."""
    taken: dict[str, int] = {}
    for (file_id, relation), score in sorted(scores.items(), key=lambda item: -item[1]):
        index = next(i for i, file in enumerate(files) if id(file) == file_id)
        if score > 0 and relation not in taken and index not in taken.values():
            taken[relation] = index
    spare = iter(range(len(files), len(files) + len(RELATIONS)))
    yield tuple(taken[r] if r in taken else next(spare) for r in RELATIONS)


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _case(shown: str, table: Mapping[str, str]) -> str:
    whens = " ".join(f"WHEN {_literal(word)} THEN {_literal(mine)}" for word, mine in table.items())
    return f"CASE {shown} {whens} ELSE {shown} END"


def _levels(words: Sequence[str]) -> dict[str, str]:
    """P1, S2, Sev 3: a letter and a level, of which the first is the most urgent."""
    level = {w: int(_plain(w)[-1]) for w in words if re.fullmatch(r"(?:p|s|sev|prio)\d", _plain(w))}
    first = min(1, *level.values()) if level else 0
    order = ("urgent", "high", "normal")
    return {w: order[n - first] if n - first < len(order) else "low" for w, n in level.items()}


def _of_that_name(file: _File, _: _File, key: str) -> str | None:
    """The column with customers' ids, where it is called as theirs is."""
    if _plain(key) == "id":
        return None
    return next((column for column in file.columns if _plain(column) == _plain(key)), None)


def _with_such_ids(file: _File, customers: _File, key: str) -> str | None:
    """The column that is called like an id of a customer, and holds some of theirs."""
    named, ids = file.named("customers", "customer_id"), customers.columns.get(key, [])
    return next((column for column in named if _overlap(file.columns[column], ids)), None)


def _refers(file: _File, customers: _File, key: str) -> bool:
    """Whether the rows of a file are of these customers."""
    if file is customers:
        return False
    return any(linked(file, customers, key) for linked in (_of_that_name, _with_such_ids))


def _row_of(other: _File, file: _File) -> str | None:
    """A column of both that finds one row of the other file."""
    shared = [c for c in other.columns if c in file.columns]
    shared = [c for c in shared if _overlap(file.columns[c], other.columns[c])]
    return next((c for c in shared if _distinct(other.columns[c]) == other.rows), None)


def _overlap(some: Sequence[Any], others: Sequence[Any]) -> int:
    return len({*map(str, some)} & {*map(str, others)})


def _is_called(file: _File, relation: str) -> bool:
    return bool(re.search(_FILE_NAMES[relation], file.path.stem, re.IGNORECASE))


def _distinct(values: Sequence[Any]) -> int:
    return len({*map(str, values)})


def _share(values: Sequence[Any], read: Callable[[Any], object]) -> float:
    good = 0
    for value in values:
        try:
            read(value)
        except ValueError:
            continue
        good += 1
    return good / len(values) if values else 0.0


def _reads(values: Sequence[Any], form: str) -> bool:
    return _share(values, lambda value: parse_time(value, _UTC, (form,))) == 1.0


def _time_form(values: Sequence[Any]) -> str | None:
    """'' for a form that is known anyway, else what `strptime` needs; None when these are no times."""
    if _share(values, lambda value: parse_time(value, _UTC)) >= MOST:
        return ""
    return next((form for form in _TIME_FORMS if _reads(values, form)), None)


def _are_times(values: Sequence[Any]) -> bool:
    """Whether they are times beyond doubt: a number alone may be anything."""
    if not values or any(re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", str(value)) for value in values):
        return False
    return _time_form(values) is not None


def _amount_form(values: Sequence[Any]) -> str | None:
    """'' for amounts that are read as they are, or the mark they need; None when these are none."""
    if _share(values, parse_amount) >= MOST:
        return ""
    for mark in (",", "."):
        if _share(values, lambda value, mark=mark: parse_amount(value, mark)) >= MOST:  # type: ignore[misc] # a default binds it now
            return mark
    return None


def _is_naive(value: Any, form: str) -> bool:
    """Whether a time means another instant in another zone."""
    forms = (form,) if form else ()
    try:
        there = parse_time(value, ZoneInfo("Asia/Tokyo"), forms)
        return there != parse_time(value, _UTC, forms)
    except ValueError:
        return False

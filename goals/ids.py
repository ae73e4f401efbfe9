"""Find customer ids in a sentence, whole or not at all.

Which words are ids is a regular expression, by default learned from the ids in the customer
database: a fixed part is kept (`user_`, `C`), the rest becomes a class of characters.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

DEFAULT_PATTERN = r"user_[0-9]+"
"""What ids look like when there is no customer to learn from (the seed document's form)."""

_BEFORE = r"(?<![A-Za-z0-9_])(?<![A-Za-z0-9_][\-.])"
_AFTER = r"(?![A-Za-z0-9_])(?![\-.@][A-Za-z0-9_])"
"""An id ends where no letter, digit or `_` goes on. Chinese characters end it: `\\b` would not."""

_LOOKS_LIKE_ID = re.compile(
    rf"{_BEFORE}(?![0-9]+[\-_]?(?:d|days?|weeks?|months?|quarters?|years?|h|hours?|st|nd|rd|th)\b)"
    rf"(?=[A-Za-z0-9_\-]*[0-9])(?=[A-Za-z0-9_\-]*[A-Za-z_])(?=[A-Za-z0-9]*[_\-]|[A-Za-z0-9]{{5}})"
    rf"[A-Za-z0-9]+(?:[_\-]+[A-Za-z0-9]+)*{_AFTER}",
    re.IGNORECASE,
)
"""Letters and digits with a separator, or five and more of them: P1, B2B, Q4, 24h and 14-day are
everyday words."""
_COUNTED = re.compile(
    r"\s*(?:个\s*)?(?:天|日|周|星期|礼拜|月|年|季度|小时|笔|单|次|元|块|%|个"
    r"|(?:days?|weeks?|months?|quarters?|years?|hours?|times|orders?|tickets?|logins?)\b)",
    re.IGNORECASE,
)
"""What follows a number that counts something: such a number is no id."""


class Reading(NamedTuple):
    """What a sentence holds of ids."""

    found: list[str]
    """Ids in order, each once, spelled as the pattern has them."""
    unreadable: list[str]
    """Words that look like an id but have not its form here, each once."""
    words: str
    """The text without both, so that their digits are not read as windows."""


@dataclass(frozen=True)
class IdPattern:
    """The form of customer ids, and how to spell one that was typed in another case."""

    pattern: str = DEFAULT_PATTERN
    example: str = "user_123"
    _regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compile; `re.error` for a pattern that is none."""
        regex = re.compile(f"{_BEFORE}(?:{self.pattern}){_AFTER}", re.IGNORECASE)
        object.__setattr__(self, "_regex", regex)

    def read(self, normal_text: str) -> "Reading":
        """The ids in the text, the words that only look like one, and the text without either."""
        matches = list(self._matches(normal_text))
        rest = normal_text
        for match in reversed(matches):
            rest = f"{rest[: match.start()]} {rest[match.end() :]}"
        return Reading(
            found=list(dict.fromkeys(self._spell(match.group()) for match in matches)),
            unreadable=list(dict.fromkeys(m.group() for m in _LOOKS_LIKE_ID.finditer(rest))),
            words=_LOOKS_LIKE_ID.sub(" ", rest),
        )

    def find(self, normal_text: str) -> list[str]:
        """Ids in the text in order, each once. `user_123abc` and `xuser_123` hold none."""
        return self.read(normal_text).found

    def _matches(self, normal_text: str) -> Iterator[re.Match[str]]:
        for match in self._regex.finditer(normal_text):
            counts = match.group().isdigit() and _COUNTED.match(normal_text, match.end())
            if not counts:
                yield match

    def _spell(self, typed: str) -> str:
        """Upper and lower case as the pattern has them: USER_123 is user_123, c00017 is C00017."""
        if re.fullmatch(self.pattern, typed):
            return typed
        for spelling in (typed.lower(), typed.upper(), typed[:1].upper() + typed[1:].lower()):
            if re.fullmatch(self.pattern, spelling):
                return spelling
        return typed


def learn_pattern(ids: Iterable[str]) -> IdPattern:
    """The pattern of these ids; the default when there are none.

    Deterministic: ids are grouped by fixed letters and separators; digits may be of any number in
    a later id (`user_9` teaches `user_1234`), mixed characters are at least as many as seen.
    """
    shapes: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for customer_id in sorted(set(ids)):
        shapes[_shape(customer_id)].append(customer_id)
    if not shapes:
        return IdPattern()
    patterns = sorted({_generalise(group) for group in shapes.values()}, key=lambda p: (-len(p), p))
    return IdPattern("|".join(patterns), min(shapes.values(), key=lambda g: (-len(g), g))[0])


def _parts(customer_id: str) -> list[str]:
    """'A-2e4581' -> ['A', '-', '2e4581']; 'C00017' -> ['C', '00017']."""
    parts: list[str] = []
    for chunk in re.findall(r"[A-Za-z0-9]+|[^A-Za-z0-9]+", customer_id):
        lead = re.fullmatch(r"([A-Za-z]+)([0-9]+)", chunk)
        parts.extend(lead.groups() if lead else [chunk])
    return parts


def _shape(customer_id: str) -> tuple[str, ...]:
    """The fixed parts as they are, the variable ones as one mark."""
    return tuple("*" if re.search(r"[0-9]", part) else part for part in _parts(customer_id))


def _generalise(group: list[str]) -> str:
    pattern = ""
    for column in zip(*(_parts(customer_id) for customer_id in group), strict=True):
        text = "".join(column)
        if not re.search(r"[0-9]", text):
            pattern += re.escape(column[0])
            continue
        shortest = min(map(len, column))
        if text.isdigit():
            # A bare number must be as long as the ids are: "7" in "7 days" is none.
            pattern += "[0-9]+" if pattern else f"[0-9]{{{shortest},}}"
        else:
            letters = "a-f" if re.fullmatch(r"[0-9a-f]+", text) else "a-z" * (text.lower() == text)
            letters = letters or ("A-Z" if text.upper() == text else "A-Za-z")
            # Without a fixed part in front only a digit tells an id from a plain word.
            digit = "" if pattern else f"(?=[{letters}]*[0-9])"
            pattern += f"{digit}[0-9{letters}]{{{shortest},}}"
    return pattern

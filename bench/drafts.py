"""Tokens that a server guessed ahead and had its model check, as its own counters tell."""

import http.client
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

_PREFIX = "vllm:spec_decode_num_"
_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class Drafts:
    """Counts from one moment to another. Names are vLLM's; our replicas use the same."""

    drafts: int
    """Steps of a sequence that had tokens guessed."""
    draft_tokens: int
    accepted_tokens: int

    @classmethod
    def parse(cls, exposition: str) -> Self | None:
        """From a page of metrics, all label sets together; None when it has none of the counters: nobody guesses."""
        names = [f"{_PREFIX}{name}_total" for name in ("drafts", "draft_tokens", "accepted_tokens")]
        found: dict[str, float] = {}
        for line in exposition.splitlines():
            name = line.partition("{")[0].partition(" ")[0]
            if name in names:
                found[name] = found.get(name, 0.0) + float(line.rsplit(" ", 1)[1])
        return cls(*(int(found[name]) for name in names)) if found.keys() == set(names) else None

    def since(self, earlier: Self) -> "Drafts":
        return Drafts(
            self.drafts - earlier.drafts, self.draft_tokens - earlier.draft_tokens, self.accepted_tokens - earlier.accepted_tokens
        )


def accepted_share(drafts: Drafts | None) -> float | None:
    """Of all tokens guessed, those that were right; None where none was guessed."""
    return round(drafts.accepted_tokens / drafts.draft_tokens, 3) if drafts and drafts.draft_tokens else None


def tokens_per_step(drafts: Drafts | None, output_tokens: int) -> float | None:
    """Output tokens of a sequence per step that it took part in: one of its own, and those guessed right. None where nothing is known."""
    return round(output_tokens / max(1, output_tokens - drafts.accepted_tokens), 2) if drafts and output_tokens else None


def read(metrics_url: str) -> Drafts | None:
    """Of a server's page of metrics; None also where there is no such page."""
    url = urlsplit(metrics_url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", url.path)
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return Drafts.parse(content.decode(errors="replace")) if answer.status == 200 else None

"""One attempt while it runs, as the event loop sees it: its text, its counts, its times."""

from services.engine.attempts import AttemptRequest
from services.engine.outcome import AttemptEnd, Counts, Failed, Finished, outcome_of
from services.engine.sequence import EndReason, Sequence
from services.engine.session import Session
from services.engine.text import TextStream
from services.engine.token_bytes import TokenBytes
from services.kit.clock import Clock


class Attempt:
    """Made when a request was accepted; `take` gets each sampled token once, in order."""

    def __init__(
        self,
        sequence_id: int,
        request: AttemptRequest,
        session: Session,
        vocabulary: TokenBytes,
        clock: Clock,
        is_probe: bool = False,
    ) -> None:
        self.sequence_id = sequence_id
        self.is_probe = is_probe
        """Made by the replica itself: neither counted nor recorded."""
        self.is_counted = False
        """Whether its prompt is in the counters."""
        self.request = request
        self.session = session
        self.num_output = 0
        """Tokens of this attempt that count: none past a complete stop string, never an end-of-sequence token."""
        self.started_s = clock.monotonic()
        self.num_cached = 0
        """Prompt tokens read from the prefix cache."""
        self.begun_s: float | None = None
        """When the first step with it began."""
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None
        self._clock = clock
        self._started_unix_ms = clock.unix_ms()
        self._num_past_stop = 0
        self._text = TextStream(vocabulary, request.stop, request.delivered_text_bytes, request.min_output_tokens, request.include_stop)

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string is complete."""
        return self._text.matched_stop is not None

    def replay(self) -> tuple[str, EndReason | None]:
        """Run the delivered tokens through the text. Returns text that is still owed, and why the answer is complete already, if it is."""
        delivered = self.request.delivered_token_ids
        text = "".join(self._text.push(token_id) for token_id in delivered)
        if self.is_stopped:
            return text, EndReason.STOP
        return text, EndReason.LENGTH if len(delivered) >= self.request.max_output_tokens else None

    def sequence(self) -> Sequence:
        """What the batcher has to do."""
        request = self.request
        deadline_s = None
        if request.deadline_unix_ms:
            deadline_s = self.started_s + (request.deadline_unix_ms - self._started_unix_ms) / 1000
        return Sequence(
            sequence_id=self.sequence_id,
            token_ids=[*request.prompt_token_ids, *request.delivered_token_ids],
            num_prompt=len(request.prompt_token_ids),
            max_output_tokens=request.max_output_tokens,
            sampling=request.sampling,
            num_delivered=len(request.delivered_token_ids),
            choice=request.choice,
            priority=request.priority,
            arrived_s=self.started_s,
            deadline_s=deadline_s,
            ignore_eos=request.ignore_eos,
            min_output_tokens=request.min_output_tokens,
            stop_token_ids=frozenset(request.stop_token_ids),
            num_logprobs=request.num_logprobs,
            num_prompt_logprobs=None if request.delivered_token_ids else request.num_prompt_logprobs,
            cache_salt=request.cache_salt,
        )

    def take(self, token_ids: list[int]) -> tuple[int, str]:
        """Take tokens in: how many of them count, as those past a stop string do not, and the text that became certain."""
        texts: list[str] = []
        for token_id in token_ids:
            if self.is_stopped:
                break
            texts.append(self._text.push(token_id))
        self.num_output += len(texts)
        self._num_past_stop += len(token_ids) - len(texts)
        return len(texts), "".join(texts)

    def rest_of_text(self, reason: EndReason, stop_token_id: int | None = None) -> str:
        """Text held back that is now certain, then that of the token that ended it, if wanted; none when another attempt may go on."""
        if isinstance(self.outcome(reason, 0), Failed):
            return ""
        return self._text.finish(stop_token_id if self.request.include_stop and not self.is_stopped else None)

    def outcome(self, reason: EndReason, num_recomputed: int, stop_token_id: int | None = None) -> Finished | Failed:
        """How the attempt ended, with its final counts."""
        counts = Counts(
            prompt_tokens=len(self.request.prompt_token_ids),
            output_tokens=self.num_output,
            cached_prompt_tokens=self.num_cached,
            discarded_tokens=self._num_past_stop + num_recomputed,
            resumed_tokens=len(self.request.delivered_token_ids),
        )
        named = stop_token_id if stop_token_id in self.request.stop_token_ids else None
        return outcome_of(reason, counts, self._text.matched_stop, named)

    def end(self, outcome: Finished | Failed) -> AttemptEnd:
        """What is to be recorded."""
        return AttemptEnd(
            attempt_id=self.request.attempt_id,
            charge_id=self.request.charge_id,
            request_id=self.request.request_id,
            tenant_id=self.request.tenant_id,
            outcome=outcome,
            started_unix_ms=self._started_unix_ms,
            ended_unix_ms=self._clock.unix_ms(),
        )

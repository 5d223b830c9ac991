"""The life of a request, from the call to the settled charge, whatever surface it came in by."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from services.gateway.admission import Admission
from services.gateway.answer import Answer, Echo, Ending
from services.gateway.call import Call
from services.gateway.charge import Charge
from services.gateway.generation import Generation
from services.gateway.keys import Identity, Keys
from services.gateway.models import ServedModel
from services.gateway.records import Outcome, RecordSink
from services.gateway.request import MAX_LOGPROBS, GenerationRequest
from services.gateway.request_tasks import RequestTasks
from services.gateway.vocabulary import check_token_ids
from services.kit import tracing
from services.kit.clock import Clock
from services.kit.errors import Cancelled, ContextLengthExceeded, DeadlineExceeded, FieldError, InferwayError, Unavailable

_DEADLINE_SLACK_MS = 50
_FAREWELL_S = 0.1


class ModelDirectory(Protocol):
    """Where models are found."""

    def resolve(self, name: str, identity: Identity) -> ServedModel:
        """The model for this key, or MODEL_NOT_FOUND."""


class Meter(Protocol):
    """Who is told how requests fare."""

    def refused(self, surface: str, error: InferwayError) -> None:
        """A request ended before it became a charge."""

    def settled(self, charge: Charge, duration_s: float) -> None:
        """A charge was settled, `duration_s` after it was opened."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Serves requests; every part is given from outside and shared by all requests."""

    keys: Keys
    models: ModelDirectory
    admission: Admission
    generation: Generation
    records: RecordSink
    meter: Meter
    tokenizer_threads: Executor
    tasks: RequestTasks
    clock: Clock
    request_deadline_s: float

    def start(self, call: Call) -> Answer:
        """Begins to serve the call. All news of it, a refusal too, comes through the answer; a reader that leaves owes it `cancel`."""
        answer = Answer()
        self.tasks.spawn(self._traced(call, answer), answer)
        return answer

    async def _traced(self, call: Call, answer: Answer) -> None:
        """The span of the request lasts until it is settled, which may be after its call has ended."""
        with tracing.span("chat", {"gen_ai.operation.name": "chat", "inferway.request": call.request_id}):
            await self._serve(call, answer)

    async def _serve(self, call: Call, answer: Answer) -> None:
        """Authenticate, validate, admit; then generate, and settle on every path. Raises what the client is to be told."""
        try:
            identity = self.keys.authenticate_tenant(call.authorization)
            request = call.read()
            model = self.models.resolve(request.model, identity)
            with self.admission.enter():
                prompt = await self._encode(model, request)
                echo = await self._echo(model, request, prompt)
                charge = self._open(call, identity, request, model, prompt)
                charge.echo = echo
                try:
                    await self._generate(charge, answer)
                finally:
                    await self._settle(charge)
        except InferwayError as error:
            self.meter.refused(call.surface, error)
            raise
        self._conclude(charge, answer)

    async def _encode(self, model: ServedModel, request: GenerationRequest) -> tuple[int, ...]:
        """Token ids of the prompt, of which there is at least one; those of a text are made away from the event loop."""
        check_token_ids(request, model.vocab_size)
        if isinstance(request.prompt, tuple):
            prompt = request.prompt
        else:
            loop, template = asyncio.get_running_loop(), model.template
            encode: Callable[[int], list[int]] = (
                partial(template.encode, request.messages) if request.prompt is None else partial(template.encode_text, request.prompt)
            )
            prompt = tuple(await loop.run_in_executor(self.tokenizer_threads, encode, model.max_context_tokens))
        if not prompt:
            raise FieldError(request.names.input, f"the {request.names.input} of this request have no tokens at all")
        return prompt

    async def _echo(self, model: ServedModel, request: GenerationRequest, prompt: tuple[int, ...]) -> Echo | None:
        """The prompt as part of the answer, when that is asked for; tokens become text away from the event loop."""
        if not request.echo:
            return None
        loop, decode = asyncio.get_running_loop(), model.template.decode
        first = await loop.run_in_executor(self.tokenizer_threads, decode, prompt[:1])
        if isinstance(request.prompt, str):
            return Echo(request.prompt, first.encode())
        return Echo(await loop.run_in_executor(self.tokenizer_threads, decode, prompt), first.encode())

    def _open(self, call: Call, identity: Identity, request: GenerationRequest, model: ServedModel, prompt: tuple[int, ...]) -> Charge:
        """The charge of an accepted request; CONTEXT_LENGTH_EXCEEDED or a FieldError when it asks for more than there can be."""
        max_output_tokens = _fit(len(prompt), request, model.max_context_tokens)
        if request.num_most_logprobs(len(prompt), max_output_tokens) > MAX_LOGPROBS:
            message = f"an answer may hold {MAX_LOGPROBS} log-probabilities; ask for fewer likeliest tokens, choices or output tokens"
            raise FieldError(request.names.logprobs, message)
        now = self.clock.unix_ms()
        timeout_s = min(self.request_deadline_s, _own_share(call.timeout_s) if call.timeout_s is not None else self.request_deadline_s)
        return Charge(
            call=call,
            identity=identity,
            request=request,
            model=model,
            prompt_token_ids=prompt,
            max_output_tokens=max_output_tokens,
            accepted_unix_ms=now,
            deadline_unix_ms=now + round(timeout_s * 1000),
        )

    async def _generate(self, charge: Charge, answer: Answer) -> None:
        """Generates until the end, the deadline or the client's cancel, whichever is first; the charge knows which it was."""
        loop = asyncio.get_running_loop()
        timeout_s = (charge.deadline_unix_ms - charge.accepted_unix_ms) / 1000
        try:
            async with asyncio.timeout(timeout_s) as bounds:
                # Once the deadline has passed there is nothing left to bring forward.
                answer.on_cancel(lambda: None if bounds.expired() else bounds.reschedule(loop.time()))
                try:
                    await self.generation.run(charge, answer)
                finally:
                    answer.on_cancel(None)
        except TimeoutError:
            charge.fail(self._end_of_time(charge, answer))
        except asyncio.CancelledError:
            charge.fail(Unavailable("the service is shutting down", reason="DRAINING", retry_after_s=1.0))
            raise
        except InferwayError as error:
            charge.fail(error)

    def _end_of_time(self, charge: Charge, answer: Answer) -> InferwayError:
        """What ran out. A client's own deadline makes it hang up in the same moment: that is a deadline, not a change of mind."""
        passed = self.clock.unix_ms() >= charge.deadline_unix_ms - _DEADLINE_SLACK_MS
        if answer.cancelled and not passed:
            return Cancelled("the client cancelled the request")
        return DeadlineExceeded("the deadline passed while the answer was made")

    async def _settle(self, charge: Charge) -> None:
        """The one place where a charge ends: its record is durable before the client learns of the end."""
        now = self.clock.unix_ms()
        appending = asyncio.ensure_future(self.records.append(charge.seal(now)))
        try:
            await asyncio.shield(appending)
        except asyncio.CancelledError:
            # Too late to stop: the bill is on its way to the disk, and the client is to be told what it says.
            await appending
        self.meter.settled(charge, (now - charge.accepted_unix_ms) / 1000)

    def _conclude(self, charge: Charge, answer: Answer) -> None:
        """Tells the reader: a good end with its usage, or the error. A cancelled answer ends well: its reader asked for it."""
        if charge.error is None or (charge.outcome is Outcome.CANCELLED and charge.ttft_s is not None):
            answer.finish(Ending(charge.finish_reasons, charge.usage))
        else:
            raise charge.error


def _own_share(timeout_s: float) -> float:
    """What of a client's time the answer may take: the rest is for telling it that the time is up, before its call is cut off unsaid."""
    return timeout_s - min(_FAREWELL_S, timeout_s / 10)


def _fit(num_prompt_tokens: int, request: GenerationRequest, max_context_tokens: int) -> int:
    """Most output tokens: what was asked for, else all that the context has left."""
    asked = request.max_output_tokens
    needed = asked or request.min_output_tokens
    room = max_context_tokens - num_prompt_tokens
    if room >= max(1, needed):
        return asked or room
    wish = f"{num_prompt_tokens} prompt tokens" + (f" and {needed} asked output tokens" if needed else "")
    facts = {
        "prompt_tokens": str(num_prompt_tokens),
        "max_output_tokens": str(needed),
        "max_context_tokens": str(max_context_tokens),
        "param": request.names.input if room < 1 else request.names.limit if asked else "min_tokens",
    }
    raise ContextLengthExceeded(f"the model's context holds {max_context_tokens} tokens; the request needs {wish}", metadata=facts)

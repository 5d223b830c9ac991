"""Tells metrics, logs and traces how requests fare: facts about them, never what was said."""

import logging

from services.gateway.charge import Charge
from services.gateway.metrics import GatewayMetrics
from services.kit import tracing
from services.kit.errors import InferwayError

log = logging.getLogger(__name__)


class RequestLog:
    """A Meter. The request id is in every line already, put there by the interceptors."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics

    def refused(self, surface: str, error: InferwayError) -> None:
        """See Meter."""
        self._metrics.refused(surface, error)
        log.info("request refused", extra={"fields": {"surface": surface, "reason": error.reason}})

    def settled(self, charge: Charge, duration_s: float) -> None:
        """See Meter."""
        self._metrics.settled(charge, duration_s)
        usage = charge.usage
        facts: dict[str, str | int | float] = {
            "charge": charge.charge_id,
            "completion": charge.completion_id,
            "tenant": charge.identity.tenant_id,
            "model": charge.model.name,
            "surface": charge.surface,
            "outcome": charge.outcome.value,
            "reason": charge.error.reason if charge.error is not None else charge.finish_reason,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "attempts": charge.num_attempts,
            "ttft_ms": round((charge.ttft_s or 0) * 1000),
            "duration_ms": round(duration_s * 1000),
        }
        log.info("request settled", extra={"fields": facts})
        tracing.current().set(
            {
                "gen_ai.request.model": charge.model.name,
                "gen_ai.response.id": charge.completion_id,
                "gen_ai.response.finish_reasons": list(charge.finish_reasons) if charge.error is None else [charge.outcome.value],
                "gen_ai.usage.input_tokens": usage.prompt_tokens,
                "gen_ai.usage.output_tokens": usage.completion_tokens,
                "inferway.tenant": charge.identity.tenant_id,
                "inferway.charge": charge.charge_id,
                "inferway.surface": charge.surface,
                "inferway.attempts": charge.num_attempts,
            }
        )

"""A step that has begun and takes nobody else in: how tests say who computes with whom."""

from __future__ import annotations

from typing import Any

from tests.harness.engine import EngineUnderTest, GatewayStub
from tests.harness.eventually import eventually


async def start_at_gate(engine: EngineUnderTest, gateway: GatewayStub, attempt_id: str, **fields: Any) -> None:
    """Shuts the gate and starts an attempt, alone; returns when its first step waits at the gate: what comes now comes after that step."""
    engine.gate.shut()
    num_begun = engine.gate.num_begun
    await gateway.start(attempt_id, **fields)
    await eventually(lambda: engine.gate.num_begun > num_begun)

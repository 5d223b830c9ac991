"""`inferway usage`: what the ledger holds, summed or request by request."""

import asyncio
import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer
from google.protobuf.message import Message
from rich.table import Table

from cli.clients import ledger
from cli.console import console
from cli.settings import current
from cli.tables import table
from cli.times import moment_of
from inferway.metering.v1 import metering_pb2


class Dimension(StrEnum):
    """What the sums are split by; `request` lists single requests."""

    TENANT = "tenant"
    MODEL = "model"
    DAY = "day"
    REQUEST = "request"


_DIMENSIONS = {
    Dimension.TENANT: metering_pb2.USAGE_DIMENSION_TENANT,
    Dimension.MODEL: metering_pb2.USAGE_DIMENSION_MODEL,
    Dimension.DAY: metering_pb2.USAGE_DIMENSION_DAY,
}
_DEFAULT = [Dimension.TENANT, Dimension.MODEL, Dimension.DAY]


def usage(
    by: Annotated[list[Dimension] | None, typer.Option(help="May be repeated; `request` lists single requests.")] = None,
    tenant: Annotated[str, typer.Option(help="Only this tenant.")] = "",
    model: Annotated[str, typer.Option(help="Only this model; not with --by request.")] = "",
    from_day: Annotated[str, typer.Option("--from", help="First day, YYYY-MM-DD in UTC; not with --by request.")] = "",
    to_day: Annotated[str, typer.Option("--to", help="Last day, included; not with --by request.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Most requests to list, newest first.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show requests and tokens from the ledger, the same figures that are billed."""
    dimensions = by or _DEFAULT
    if Dimension.REQUEST in dimensions:
        if model or from_day or to_day or len(dimensions) > 1:
            raise typer.BadParameter("--by request goes with --tenant and --limit only")
        _show_requests(asyncio.run(_requests(tenant, limit)), as_json=as_json)
        return
    request = metering_pb2.QueryUsageRequest(
        group_by=[_DIMENSIONS[one] for one in dimensions], tenant_id=tenant, model=model, from_day=from_day, to_day=to_day
    )
    _show_rows(asyncio.run(_rows(request)), dimensions, as_json=as_json)


async def _rows(request: metering_pb2.QueryUsageRequest) -> list[metering_pb2.UsageRow]:
    async with ledger(current()) as client:
        return await client.usage(request)


async def _requests(tenant: str, limit: int) -> list[metering_pb2.LedgerRequest]:
    async with ledger(current()) as client:
        return await client.requests(metering_pb2.ListRequestsRequest(tenant_id=tenant, page_size=limit))


def _show_rows(rows: list[metering_pb2.UsageRow], dimensions: list[Dimension], *, as_json: bool) -> None:
    if as_json:
        _print_json(rows)
        return
    fields = {Dimension.TENANT: "tenant_id", Dimension.MODEL: "model", Dimension.DAY: "day"}
    shown = table([one.value for one in dimensions], ("requests", "prompt tokens", "of them cached", "output tokens"))
    for row in rows:
        labels = [str(getattr(row, fields[one])) for one in dimensions]
        figures = (row.num_requests, row.prompt_tokens, row.cached_prompt_tokens, row.completion_tokens)
        shown.add_row(*labels, *(f"{figure:,}" for figure in figures))
    _show(shown)


def _show_requests(requests: list[metering_pb2.LedgerRequest], *, as_json: bool) -> None:
    if as_json:
        _print_json(requests)
        return
    texts = ("sealed (UTC)", "completion", "tenant", "model", "surface", "outcome")
    shown = table(texts, ("prompt", "cached", "output", "attempts"))
    for one in requests:
        figures = (one.prompt_tokens, one.cached_prompt_tokens, one.completion_tokens, len(one.attempts))
        labels = (moment_of(one.sealed_unix_ms), one.completion_id, one.tenant_id, one.model, one.surface, one.outcome)
        shown.add_row(*labels, *(f"{figure:,}" for figure in figures))
    _show(shown)


def _show(rows: Table) -> None:
    if rows.row_count:
        console().print(rows)
    else:
        console().print("The ledger holds nothing that matches.")


def _print_json(messages: Sequence[Message]) -> None:
    console().print(json.dumps([plain(one) for one in messages]), highlight=False, markup=False, soft_wrap=True)


def plain(message: Message) -> dict[str, object]:
    """Every field by its name in the contract; 64-bit numbers stay numbers, which protobuf's own JSON would quote."""
    fields = dict[str, object]()
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        fields[field.name] = [plain(one) for one in value] if field.message_type else value
    return fields

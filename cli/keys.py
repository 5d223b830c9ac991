"""`inferway keys`: API keys of tenants."""

import asyncio
import os
import time
from typing import Annotated

import typer

from cli.clients import admin
from cli.console import console, errors_console
from cli.settings import current, operator_key
from cli.tables import table
from cli.times import day_of
from deploy.local.local_keys import DEMO_TENANT
from inferway.common.v1 import registry_pb2
from inferway.edge.v1 import admin_pb2

app = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True)
_DAY_MS = 24 * 3600 * 1000


@app.command("create")
def create(
    tenant: Annotated[str, typer.Option(help="Tenant that pays.")] = DEMO_TENANT,
    name: Annotated[str, typer.Option(help="Name for people.")] = "",
    model: Annotated[list[str] | None, typer.Option(help="Model that the key may use; may be repeated; all when not given.")] = None,
    days: Annotated[int | None, typer.Option(min=1, help="Days until it stops to work; never when not given.")] = None,
    operator: Annotated[bool, typer.Option(help="Make an operator's key, which may call Admin.")] = False,
    new_tenant: Annotated[bool, typer.Option(help="Create the tenant too.")] = False,
) -> None:
    """Make a key. Its secret is printed once, alone on standard output, and stored nowhere."""
    request = admin_pb2.CreateApiKeyRequest(tenant_id=tenant, display_name=name, models=model or [], admin=operator)
    if days is not None:
        request.expires_unix_ms = time.time_ns() // 1_000_000 + days * _DAY_MS
    answer = asyncio.run(_create(request, new_tenant=new_tenant))
    errors_console().print(f"Key {answer.key.key_id} of {answer.key.tenant_id}; keep the secret, it is not shown again:", highlight=False)
    console().print(answer.secret, highlight=False, markup=False, soft_wrap=True)


@app.command("list")
def list_(tenant: Annotated[str, typer.Option(help="Only this tenant's.")] = "") -> None:
    """Show keys, without their secrets."""
    rows = table(("key", "tenant", "name", "models", "created", "expires", "operator"))
    for key in asyncio.run(_keys(tenant)):
        expires = day_of(key.expires_unix_ms) if key.expires_unix_ms else "never"
        models = ", ".join(key.models) or "all"
        row = (key.key_id, key.tenant_id, key.display_name, models, day_of(key.created_unix_ms), expires, "yes" if key.admin else "")
        rows.add_row(*row)
    console().print(rows)


@app.command("revoke")
def revoke(key_id: Annotated[str, typer.Argument(help="Id of the key, as `inferway keys list` shows it.")]) -> None:
    """Stop a key. It is refused everywhere within 2 seconds."""
    asyncio.run(_revoke(key_id))
    console().print(f"{key_id} is revoked.", highlight=False)


async def _create(request: admin_pb2.CreateApiKeyRequest, *, new_tenant: bool) -> admin_pb2.CreateApiKeyResponse:
    settings = current()
    async with admin(settings, operator_key(settings, os.environ)) as client:
        if new_tenant:
            await client.create_tenant(request.tenant_id)
        return await client.create_key(request)


async def _keys(tenant: str) -> list[registry_pb2.ApiKey]:
    settings = current()
    async with admin(settings, operator_key(settings, os.environ)) as client:
        return await client.keys(tenant)


async def _revoke(key_id: str) -> None:
    settings = current()
    async with admin(settings, operator_key(settings, os.environ)) as client:
        await client.revoke_key(key_id)

"""Services of the contract that metering does not serve yet: each method says so in one sentence."""

from typing import NoReturn

from inferway.metering.v1 import metering_pb2_grpc
from services.kit.errors import Unimplemented


class QuotaServicer(metering_pb2_grpc.QuotaServicer):
    """Limits are not enforced yet."""

    async def Reserve(self, request: object, context: object) -> NoReturn:
        """See the contract."""
        raise Unimplemented("quotas are not enforced yet: requests run without a reservation")

    async def Settle(self, request: object, context: object) -> NoReturn:
        """See the contract."""
        raise Unimplemented("quotas are not enforced yet: there is nothing to settle")

    async def Release(self, request: object, context: object) -> NoReturn:
        """See the contract."""
        raise Unimplemented("quotas are not enforced yet: there is nothing to release")


class BillingServicer(metering_pb2_grpc.BillingServicer):
    """Prices and invoices are not made yet."""

    async def SetPrice(self, request: object, context: object) -> NoReturn:
        """See the contract."""
        raise Unimplemented("prices are not served yet: read token counts from Usage.QueryUsage")

    async def CreateInvoice(self, request: object, context: object) -> NoReturn:
        """See the contract."""
        raise Unimplemented("invoices are not served yet: read token counts from Usage.QueryUsage")

    async def ExplainLine(self, request: object, context: object) -> NoReturn:
        """See the contract."""
        raise Unimplemented("invoices are not served yet: read single requests from Usage.ListRequests")

    async def Reconcile(self, request: object, context: object) -> NoReturn:
        """See the contract."""
        raise Unimplemented("reconciliation is not served yet: Usage.ListRequests shows each request beside its attempts")

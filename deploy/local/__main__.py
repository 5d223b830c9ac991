"""`python -m deploy.local`: the supervisor process that `inferway up` leaves behind."""

import asyncio
import os
import sys

from deploy.local import supervise
from deploy.local.errors import LocalError

try:
    asyncio.run(supervise.main(os.environ))
except LocalError as error:
    sys.exit(str(error))

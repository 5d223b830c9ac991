"""Settings of the scheduler."""

import pytest

from services.kit.config import load
from services.kit.errors import ConfigError
from services.scheduler.config import PREFIX, SchedulerConfig


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RESYNC_S", "0"),
        ("LEADER_TTL_S", "0"),
        ("DEFAULT_DRAIN_TIMEOUT_S", "0"),
        ("NODE_GRACE_S", "-1"),
        ("PORT", "70000"),
        ("ETCD_ENDPOINTS", ","),
        ("NO_SUCH", "1"),
    ],
)
def test_config_bad_value_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError):
        load(SchedulerConfig, PREFIX, {PREFIX + name: value})


def test_config_each_process_has_a_name_of_its_own() -> None:
    assert load(SchedulerConfig, PREFIX, {}).scheduler_id.startswith("scheduler-")

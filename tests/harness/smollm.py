"""The real small model for tests, imported once per checkout and verified at every use."""

from functools import cache
from pathlib import Path

from services.engine.model.card import ModelCard, load_card
from services.engine.model.importer import import_card
from services.kit.model_store import ModelVersion
from tests.harness.cpu_kernels import share_kernels

_ROOT = Path(__file__).resolve().parents[2]
CARD = _ROOT / "models" / "smollm2-135m-instruct.yaml"
HOME = _ROOT / ".inferway" / "test-models"


def smollm_card() -> ModelCard:
    return load_card(CARD)


@cache
def smollm() -> ModelVersion:
    """The version in the tests' own model store, below `HOME`; safe beside other test processes."""
    return import_card(smollm_card(), share_kernels(HOME))

"""Why a model could not be imported."""

from services.kit.model_store import ModelStoreError


class ModelImportError(ModelStoreError):
    """The source cannot become a version: missing, damaged, of an unknown kind, or there is no room for it."""

"""Why a model could not be imported."""

from services.kit.errors import FailedPrecondition


class ModelImportError(FailedPrecondition):
    """The source cannot become a version: missing, damaged, of an unknown kind, or there is no room for it."""

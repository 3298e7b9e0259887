"""The tags of one MLflow run, by which `specops lineage trace` finds the release that a run is about.

Tags can be changed by anyone; the caller looks up what they name and believes nothing else.
"""

import re

from specops.adapters.mlflow_tracking import open_client, reaching
from specops.errors import InvalidInput

_RUN_ID = re.compile(r"[0-9a-f]{32}")


def run_tags(tracking_uri: str, run_id: str) -> dict[str, str] | None:
    """Return the tags of a run; None when this is no run id, or there is no such run.

    Raises:
        MissingExtra: mlflow is not installed.
        Unavailable: MLflow does not answer.
    """
    if not _RUN_ID.fullmatch(run_id):
        return None
    try:
        with reaching(tracking_uri):
            return dict(open_client(tracking_uri).get_run(run_id).data.tags)
    except InvalidInput:
        return None

"""Jobs of the API: what it refuses."""

import pytest

import podium
from podium.errors import InvalidInput


def test_a_missing_file_of_a_job_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"there is no file nosuch\.yaml"):
        podium.run_job("nosuch.yaml")

"""What the whole suite shares: the command line in-process, and one hypothesis profile.

The profile has no deadlines, because time is measured in benchmarks/, not here.
"""

import json

import pytest
from hypothesis import HealthCheck, settings

from rankatlas.cli.main import main

pytest.register_assert_rewrite("refusals")

settings.register_profile("suite", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("suite")


class Answer:
    """What a run of the command came to."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        assert self.code in (0, 1), self.err
        return json.loads(self.out)


@pytest.fixture
def run(capsys):
    """`rankatlas` with these arguments, in this process."""

    def call(*arguments: str) -> Answer:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        captured = capsys.readouterr()
        return Answer(ended.value.code, captured.out, captured.err)

    return call

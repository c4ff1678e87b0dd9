"""The roll of a job, its ranks threads of this process: who is lost, one verdict for all, told once."""

import threading
import time

import pytest

from rankatlas.errors import RankSilent
from rankatlas.live import roll as module
from rankatlas.live.roll import Roll


class Board:
    """A store of this process, whose keeper can go or stop."""

    def __init__(self, at_once=True):
        self.at_once = at_once
        self.held = {}
        self.lock = threading.Lock()
        self.gone = False
        self.stopped = threading.Event()

    def _reached(self):
        if self.gone:
            raise ConnectionError("broken pipe")
        if self.stopped.is_set():
            time.sleep(60)

    def set(self, key, value):
        self._reached()
        self.held[key] = value

    def get(self, key):
        self._reached()
        return self.held[key]

    def has(self, key):
        self._reached()
        return key in self.held

    def count(self, key):
        self._reached()
        with self.lock:
            self.held[key] = self.held.get(key, 0) + 1
            return self.held[key]


@pytest.fixture
def quick(monkeypatch):
    """Windows a tenth as long: all ranks are threads of one process."""
    for name in ("_TICK", "_LOOK", "_ANSWER", "_STORE"):
        monkeypatch.setattr(module, name, getattr(module, name) / 10)


def job(board, world, *, introduced=None, keeper=None):
    rolls = [Roll(board, "p", rank, world, keeper=keeper) for rank in range(world)]
    for rank in range(world) if introduced is None else introduced:
        rolls[rank].introduce(f"host {rank}")
    return rolls


def dead(board, rank, world):
    """A rank that has said who it is, and listens no more."""
    board.set(f"p/who/{rank}", f"host {rank}".encode())


def heard(rolls, ranks, seconds=3):
    deadline = time.monotonic() + seconds
    while any(rolls[rank].verdict is None for rank in ranks) and time.monotonic() < deadline:
        time.sleep(0.01)
    return [rolls[rank].verdict for rank in ranks]


def told(rolls, verdict, ranks):
    """Who says it, every rank having ended by the verdict at its own time."""
    said = []
    threads = [
        threading.Thread(target=rolls[rank].tell, args=(verdict, lambda rank=rank: said.append(rank))) for rank in ranks
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    return said


def test_a_rank_that_does_not_answer_is_named_and_all_hear_the_same(quick):
    board = Board()
    rolls = job(board, 4, introduced=(0, 1, 3))
    dead(board, 2, 4)
    verdict = rolls[3].ask("all-reduce", "took longer than 6 s")
    assert verdict.text == "rank 2 (host 2) died or hangs: all-reduce ended without it (took longer than 6 s)"
    assert (verdict.ranks, verdict.during, verdict.speaker, verdict.left) == ([2], "all-reduce", 0, 3)
    assert heard(rolls, (0, 1, 3)) == [verdict] * 3
    assert told(rolls, verdict, (0, 1, 3)) == [0]


def test_ranks_that_ask_at_the_same_time_get_one_verdict(quick):
    board = Board()
    rolls = job(board, 6, introduced=(0, 1, 3, 4, 5))
    dead(board, 2, 6)
    found = []
    threads = [
        threading.Thread(target=lambda rank=rank: found.append(rolls[rank].ask(f"step of {rank}", "no answer")))
        for rank in (1, 3, 5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert len(found) == 3
    assert len(set(map(str, found))) == 1
    assert found[0].ranks == [2]


def test_whoever_comes_late_gets_the_verdict_that_is_there_and_blames_nobody_who_has_left_meanwhile(quick):
    board = Board()
    rolls = job(board, 3, introduced=(0, 1))
    dead(board, 2, 3)
    verdict = rolls[0].ask("all-reduce", "reset")
    late = Roll(board, "p", 1, 3, keeper=None)
    assert late.ask("another step", "the launcher ended this process") == verdict


def test_a_rank_that_has_never_spoken_is_absent_and_the_keeper_of_a_store_that_answers_is_not(quick):
    board = Board()
    rolls = job(board, 4, introduced=(1, 2), keeper=0)
    verdict = rolls[1].ask("the start of the job", "took longer than 5 s")
    assert verdict.text == "rank 3 has not come: the start of the job ended without it (took longer than 5 s)"
    assert (verdict.ranks, verdict.speaker) == ([3], 1)


def test_a_rank_that_is_still_starting_has_time_to_come(quick):
    board = Board()
    rolls = job(board, 3, introduced=(0,))
    threading.Timer(0.6, rolls[1].introduce, ("host 1",)).start()
    verdict = rolls[0].ask("the start of the job", "the launcher ended this process", patience=1.5)
    assert verdict.ranks == [2]


def test_nobody_is_blamed_where_all_answer_and_the_first_failure_is_told(quick):
    board = Board()
    rolls = job(board, 3)
    rolls[1].leave()
    verdict = rolls[2].ask("all-reduce", "no room")
    assert verdict.text == "all-reduce failed on rank 2: no room; all 3 ranks still answer"
    assert verdict.ranks == []
    assert rolls[0].ask("all-reduce", "connection closed").text == verdict.text


def test_a_rank_that_left_in_order_is_not_expected_to_tell(quick):
    board = Board()
    rolls = job(board, 3)
    rolls[0].leave()
    assert rolls[2].ask("all-reduce", "no room").speaker == 1
    board.gone = True
    rolls[1].leave()  # after whoever kept the store


def test_where_the_judge_ends_another_rank_judges(quick):
    board = Board()
    rolls = job(board, 3, introduced=(1, 2))
    dead(board, 0, 3)
    board.count("p/judge/0")  # rank 0 began to, and was ended
    verdict = rolls[1].ask("all-reduce", "reset")
    assert verdict.text == "rank 0 (host 0) died or hangs: all-reduce ended without it (reset)"


def test_where_the_speaker_ends_whoever_judged_tells(quick):
    board = Board()
    rolls = job(board, 3, introduced=(0, 1))
    dead(board, 2, 3)
    verdict = rolls[1].ask("all-reduce", "reset")
    assert verdict.speaker == 0
    assert told(rolls, verdict, (1,)) == [1]


def test_who_keeps_the_store_stays_until_the_others_know_that_it_is_told(quick):
    board = Board()
    rolls = job(board, 3, introduced=(0, 1), keeper=0)
    dead(board, 2, 3)
    verdict = rolls[1].ask("all-reduce", "reset")
    said = []

    def keeper_leaves():
        rolls[0].tell(verdict, lambda: said.append(0))
        board.gone = True

    thread = threading.Thread(target=keeper_leaves)
    thread.start()
    time.sleep(0.1)
    rolls[1].tell(verdict, lambda: said.append(1))
    thread.join(5)
    assert said == [0]


def test_a_store_that_is_gone_or_hangs_ends_the_asking(quick):
    for name in ("gone", "stopped"):
        board = Board()
        rolls = job(board, 2)
        if name == "gone":
            board.gone = True
        else:
            board.stopped.set()
        started = time.monotonic()
        with pytest.raises((ConnectionError, RankSilent)):
            rolls[1].ask("all-reduce", "reset")
        assert time.monotonic() - started < 5


@pytest.mark.parametrize(("at_once", "most"), [(True, 2_000), (False, 300)])
@pytest.mark.parametrize("world", [4, 1_024, 65_536])
def test_all_ranks_together_look_no_more_often_than_the_store_answers(world, at_once, most):
    one = Roll(Board(at_once), "p", 0, world, keeper=None)
    assert world / one.pause <= most
    assert one.pause >= 0.5

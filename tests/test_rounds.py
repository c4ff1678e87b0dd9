"""Rounds through a real store: ranks are threads, each with a client of its own."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from rankatlas.errors import JobError, RankSilent
from rankatlas.live import rounds
from rankatlas.live.rounds import Round

dist = pytest.importorskip("torch.distributed")


@pytest.fixture(params=["tcp", "file"])
def clients(request, tmp_path):
    """A function that makes one more client of one store: TCP reads many keys at once, a file one at a time."""
    from rankatlas.adapters.torch_job import TorchStore

    if request.param == "file":
        return lambda: TorchStore(dist.FileStore(str(tmp_path / "store")))
    server = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    return lambda: TorchStore(dist.TCPStore("127.0.0.1", server.port, None, is_master=False))


def in_threads(world, work):
    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(work, range(world)))


def told(work):
    try:
        return work()
    except RankSilent as error:
        return error.ranks


@pytest.mark.parametrize("world", [1, 2, 16, 17, 23])
def test_everybody_is_read_in_order_and_hears_the_answer(clients, world):
    def work(rank):
        round_ = Round(clients(), "topic", rank, world, me=f"process {rank}")
        round_.say(f"I am {rank}\n\xff".encode("latin-1"))
        if rank:
            return round_.hear(20)
        assert round_.full(20)
        said = round_.said(time.monotonic() + 20)
        round_.answer(b"|".join(said), world - 1)
        return b"|".join(said)

    expected = b"|".join(f"I am {rank}\n\xff".encode("latin-1") for rank in range(world))
    assert in_threads(world, work) == [expected] * world


def test_a_leader_that_has_gone_is_read_around(clients):
    world = 17  # blocks of 5; rank 5 leads one of them

    def work(rank):
        round_ = Round(clients(), "topic", rank, world, me=f"process {rank}")
        round_.say(str(rank).encode())
        if rank == 5:
            return None
        if rank:
            return round_.hear(20)
        assert round_.full(20)
        said = round_.said(time.monotonic() + 20)
        round_.answer(b" ".join(said), 0)
        return b" ".join(said)

    assert in_threads(world, work)[0] == b" ".join(str(rank).encode() for rank in range(world))


def test_ranks_that_try_again_meet_again(clients):
    """The others give up twice before rank 0 comes for the first time."""
    world, gone = 3, threading.Barrier(3)

    def other(rank):
        store = clients()
        for _ in range(2):
            round_ = Round(store, "topic", rank, world, me=f"process {rank}")
            round_.say(b"here")
            assert told(partial(round_.hear, 0.1)) == [0]
            round_.end()
        gone.wait()
        round_ = Round(store, "topic", rank, world, me=f"process {rank}")
        round_.say(b"here")
        return round_.hear(20)

    def work(rank):
        if rank:
            return other(rank)
        store = clients()
        gone.wait()
        while not store.has("topic/3/rank/1"):  # rank 1 is in the third round
            time.sleep(0.01)
        store.wait(["topic/2/closed"], 5)
        round_ = Round(store, "topic", 0, world, me="process 0")
        round_.say(b"here")
        assert round_.full(20)
        round_.answer(b"fine", world - 1)
        return b"fine"

    assert in_threads(world, work) == [b"fine"] * world


def test_a_round_that_is_over_is_joined_where_nobody_has_gone_on(clients):
    early, late = (Round(clients(), "topic", 0, 2, me="process 0"), clients())
    early.say(b"here")
    early.answer(b"you are missing", 0)
    round_ = Round(late, "topic", 1, 2, me="process 1")
    round_.say(b"here")
    assert round_.hear(5) == b"you are missing"


def test_a_call_that_was_interrupted_is_taken_up_again(clients):
    """Ctrl-C on rank 1 after its word: the others agree with it, and its second call hears what they heard."""
    store = clients()
    stop = threading.Event()
    first = Round(clients(), "topic", 1, 2, me="process 1", stop=stop)
    first.say(b"same")
    stop.set()
    assert told(lambda: first.hear(5)) == []
    first.end()
    zero = Round(store, "topic", 0, 2, me="process 0")
    zero.say(b"same")
    assert zero.full(5)
    zero.answer(b"fine", 0)
    zero.end()
    Round(store, "topic", 0, 2, me="process 0").say(b"the next question")  # rank 0 has gone on meanwhile
    again = Round(clients(), "topic", 1, 2, me="process 1")
    again.say(b"same")
    assert again.hear(5) == b"fine"
    again.end()
    after = Round(clients(), "topic", 1, 2, me="process 1")
    after.say(b"the next question")
    assert after.full(5)


def test_an_interrupted_call_that_is_made_otherwise(clients):
    stop = threading.Event()
    first = Round(clients(), "topic", 1, 2, me="process 1", stop=stop)
    first.say(b"one thing")
    stop.set()
    second = Round(clients(), "topic", 1, 2, me="process 1")
    second.say(b"another")
    zero = Round(clients(), "topic", 0, 2, me="process 0")
    zero.say(b"another")
    assert zero.full(5)
    assert zero.said(time.monotonic() + 5) == [b"another"] * 2


def test_nothing_is_answered_after_an_interruption(clients):
    stop = threading.Event()
    zero = Round(clients(), "topic", 0, 1, me="process 0", stop=stop)
    zero.say(b"")
    stop.set()
    with pytest.raises(RankSilent):
        zero.answer(b"fine", 0)
    assert not clients().has("topic/1/answer")


def test_whoever_is_counted_among_all_is_counted_among_the_same(clients):
    """Rank 0 asks as soon as all have come; a slow counter must not look like another word."""

    class Slow:
        def __init__(self, store):
            self.store, self.at_once = store, store.at_once

        def count(self, key):
            time.sleep(0.2)
            return self.store.count(key)

        def __getattr__(self, name):
            return getattr(self.store, name)

    def work(rank):
        round_ = Round(Slow(clients()) if rank else clients(), "topic", rank, 3, me=f"process {rank}")
        round_.say(b"same", "mark")
        return rank or (round_.full(20) and round_.how_many("mark"))

    assert in_threads(3, work)[0] == 3


def test_a_process_with_another_rank_goes_on_to_a_new_round(clients):
    """After a second initialisation on one store the ranks may be others; nobody reads what was said before."""
    for turn, ranks in enumerate(({"a": 0, "b": 1}, {"a": 1, "b": 0})):
        rounds = {me: Round(clients(), "topic", rank, 2, me=me) for me, rank in ranks.items()}
        for me, round_ in rounds.items():
            round_.say(f"{me} {turn}".encode())
        first = next(rounds[me] for me, rank in ranks.items() if rank == 0)
        by_rank = sorted(ranks, key=ranks.__getitem__)
        assert first.said(time.monotonic() + 5) == [f"{me} {turn}".encode() for me in by_rank]
        for round_ in rounds.values():
            round_.end()


def test_two_processes_of_one_rank(clients):
    Round(clients(), "topic", 1, 2, me="one").say(b"")
    first = Round(clients(), "topic", 0, 2, me="zero")
    first.say(b"")
    with pytest.raises(JobError, match="by one, and now by two"):
        Round(clients(), "topic", 1, 2, me="two").say(b"")
    assert "by one, and now by two" in first.conflict()


class Counting:
    """A store that counts what it is asked."""

    def __init__(self, store):
        self.store, self.at_once, self.asked = store, store.at_once, []

    def __getattr__(self, name):
        def ask(*given):
            self.asked.append(name)
            return getattr(self.store, name)(*given)

        return ask


def answered_after(clients, seconds):
    """What rank 1, whose store counts from its wait on, was asked; how long after the answer it had heard it."""
    store = Counting(clients())
    late = Round(store, "topic", 1, 2, me="process 1")
    late.say(b"here")
    store.asked.clear()
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(late.hear, 20)
        time.sleep(seconds)
        zero = Round(clients(), "topic", 0, 2, me="process 0")
        zero.say(b"here")
        zero.answer(b"fine", 0)
        answered = time.monotonic()
        assert heard.result(20) == b"fine"
        return store.asked, time.monotonic() - answered


def test_whoever_waits_long_looks_and_makes_torch_print_nothing_more(clients, monkeypatch, capfd):
    """torch prints a trace of its stack for every wait that ends without the key."""
    monkeypatch.setattr(rounds, "_SLICE", 0.1)
    asked, later = answered_after(clients, 2)
    assert later < 2 * rounds._LONGEST_PAUSE
    assert asked.count("wait") == 1
    assert 3 <= asked.count("has") < 15
    assert capfd.readouterr().err.count("timed out") <= 1


def test_a_key_that_is_there_soon_is_told_by_the_store(clients):
    asked, _ = answered_after(clients, 0.3)
    assert asked == ["wait", "get"]


@pytest.mark.parametrize("seconds", [0, 0.05, 0.5])
def test_a_wait_ends_in_time_whatever_is_left(clients, monkeypatch, seconds):
    monkeypatch.setattr(rounds, "_SLICE", 0.1)
    round_ = Round(clients(), "topic", 0, 2, me="process 0")
    round_.say(b"here")
    started = time.monotonic()
    assert not round_.full(seconds)
    assert seconds <= time.monotonic() - started < seconds + 1.4  # a file store waits in whole seconds


def test_a_wait_that_was_given_up_while_looking_ends_at_once(clients, monkeypatch):
    monkeypatch.setattr(rounds, "_SLICE", 0.05)
    monkeypatch.setattr(rounds, "_FIRST_PAUSE", 30.0)
    monkeypatch.setattr(rounds, "_LONGEST_PAUSE", 30.0)
    stop = threading.Event()
    round_ = Round(clients(), "topic", 1, 2, me="process 1", stop=stop)
    round_.say(b"")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(told, lambda: round_.hear(60))
        time.sleep(0.4)
        stop.set()
        given_up = time.monotonic()
        assert waiting.result(10) == []
        assert time.monotonic() - given_up < 5


def test_a_wait_that_was_given_up_ends_and_leaves_the_store_free(clients):
    stop = threading.Event()
    store = clients()
    round_ = Round(store, "topic", 1, 2, me="process 1", stop=stop)
    round_.say(b"")
    waiting = threading.Thread(target=lambda: told(lambda: round_.hear(60)))
    waiting.start()
    stop.set()
    waiting.join(10)
    assert not waiting.is_alive()
    store.set("free", b"yes")
    assert store.get("free") == b"yes"

"""Named random states that a program switches between, as Paddle's and Megatron's trackers keep them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy

from rankatlas.errors import InputError, RankatlasError, SeedError, shown
from rankatlas.seeding.backends import KeepsRandomState, states
from rankatlas.seeding.integers import as_seed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class RngStateTracker:
    """Named streams of the global random state of some frameworks.

    `add` starts a stream with a seed; inside `rng_state(name)` draws come from it, and outside draws go on as if
    nothing had happened.  Entering the same name again, also while inside it, continues its stream.

    `backends` are names such as "numpy" and "torch", or keepers of one's own; None means Python's `random` and those
    of numpy, torch and paddle that the program has imported when the tracker is first used, and the same from then on.
    The reference is the tracker of Paddle 3.3.1; `fork`, `get_states` and `set_states` serve programs for Megatron's.

    Cost: O(size of the states) per entry and exit, about 20 kB for Python, numpy and torch together.

    >>> import random
    >>> tracker = RngStateTracker(backends=["python"])
    >>> tracker.add("dropout", 50)
    >>> with tracker.rng_state("dropout"):
    ...     first = random.random()
    >>> first == random.Random(50).random()
    True
    """

    def __init__(self, backends: Iterable[str | KeepsRandomState] | None = None) -> None:
        self._wanted = None if backends is None else tuple([backends] if isinstance(backends, str) else backends)
        self._keepers: tuple[KeepsRandomState, ...] | None = None
        self._seeds: dict[str, int] = {}
        self._states: dict[str, tuple[Any, ...]] = {}
        # The names entered and not yet left, outermost first; what was current outside them waits in _outside.
        self._entered: list[str] = []
        self._outside: tuple[Any, ...] = ()
        self._loaded: str | None = None  # the stream whose state is current, None outside and while one is loading

    @property
    def keepers(self) -> tuple[KeepsRandomState, ...]:
        """The keepers of the frameworks whose state is kept; the first use of the tracker settles them."""
        if self._keepers is None:
            self._keepers = states(self._wanted)
        return self._keepers

    @property
    def backends(self) -> tuple[str, ...]:
        """The names of `keepers`."""
        return tuple(keeper.name for keeper in self.keepers)

    @property
    def states_(self) -> dict[str, Any]:
        """Name → state of every stream, one entry per backend (a copy)."""
        return self.get_states_tracker()

    @property
    def seeds_(self) -> set[int]:
        """The seeds in use (a copy)."""
        return set(self._seeds.values())

    def add(self, name: str, seed: int) -> None:
        """Start the stream `name` with `seed`.  A failed `add` changes nothing.

        Raises SeedError naming the earlier seed or name when one of them is taken, IntegerError, SeedError.
        """
        self._start(name, self._free(name, seed))

    def restart(self, seeds: Mapping[str, int]) -> None:
        """Start these streams anew, those that exist as well as new ones; no other stream is touched.

        Raises SeedError when a seed is used twice or by another stream; then nothing changes.

        >>> tracker = RngStateTracker(backends=["python"])
        >>> tracker.restart({"global_seed": 42, "local_seed": 50})
        >>> tracker.restart({"global_seed": 50, "local_seed": 58})
        >>> sorted(tracker.seeds_)
        [50, 58]
        """
        before = dict(self._seeds)
        for name in seeds:
            self._seeds.pop(name, None)
        try:
            for name, seed in seeds.items():
                self._seeds[name] = self._free(name, seed)
        except InputError:
            self._seeds = before
            raise
        for name in seeds:
            self._start(name, self._seeds[name])

    def reset(self) -> None:
        """Forget every stream.  Inside `rng_state` draws go on, and leaving restores what was current outside."""
        self._seeds.clear()
        self._states.clear()

    @contextmanager
    def rng_state(self, name: str = "model_parallel_rng") -> Iterator[None]:
        """Draw from the stream `name` inside the block; an exception leaves it as well.

        Raises SeedError when there is no such stream.
        """
        self._known(name)
        self._park()
        self._entered.append(name)
        self._loaded = None
        try:
            self._load(self._states[name])
            self._loaded = name
            yield
        finally:
            # Also where loading failed half-way: then what is current is nobody's, and is not kept.
            self._leave()

    def fork(self, name: str = "model-parallel-rng") -> Any:
        """`rng_state` under the name Megatron's programs use."""
        return self.rng_state(name)

    def get_states_tracker(self) -> dict[str, Any]:
        """Name → state of every stream (a copy), for `set_states_tracker` in this process.  For disk: `state_dict`."""
        self._park()
        return _copied(self._states)

    def set_states_tracker(self, states: dict[str, Any]) -> None:
        """Set the state of streams that exist.  Raises SeedError for an unknown name, changing nothing."""
        if not isinstance(states, Mapping):
            raise SeedError(f"states are a dict, name of a stream → its state, not {shown(states)}")
        for name in states:
            self._known(name)
        self._resume(self._tried(lambda: _copied(states)))

    def get_states(self) -> dict[str, Any]:
        """`get_states_tracker` under Megatron's name."""
        return self.get_states_tracker()

    def set_states(self, states: dict[str, Any]) -> None:
        """`set_states_tracker` under Megatron's name."""
        self.set_states_tracker(states)

    def state_dict(self) -> dict[str, Any]:
        """Every stream as plain data: numbers, text, lists and dicts.

        Raises RandomStateError where a backend cannot give its state out (Paddle).

        >>> tracker = RngStateTracker(backends=["python"])
        >>> tracker.add("dropout", 50)
        >>> sorted(tracker.state_dict())
        ['backends', 'format', 'streams', 'version']
        """
        self._park()
        streams = {
            name: {"seed": self._seeds[name], "states": [k.pack(state) for k, state in zip(self.keepers, kept)]}
            for name, kept in self._states.items()
        }
        return {"format": "rankatlas.rng", "version": 1, "backends": list(self.backends), "streams": streams}

    def load_state_dict(self, data: dict[str, Any]) -> None:
        """Replace every stream by those of `state_dict`.  Changes nothing when it fails.

        Raises SeedError when the data is not of this format or of other backends.
        """
        fields = data if isinstance(data, dict) else {}
        version = fields.get("version")
        if fields.get("format") != "rankatlas.rng" or type(version) is not int or version != 1:
            raise SeedError("this is no state of an RngStateTracker, or of another version")
        try:
            packed = {name: stream["states"] for name, stream in fields["streams"].items()}
            seeds = {name: as_seed(stream["seed"]) for name, stream in fields["streams"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise SeedError(f"these states are damaged: {error!r}") from None
        if len(set(seeds.values())) < len(seeds) or not all(isinstance(name, str) and name for name in seeds):
            raise SeedError("these states are damaged: two streams have one seed, or a stream has no name")
        loaded = self._unpacked(packed, fields.get("backends"))
        self._seeds, self._states = seeds, {}
        self._resume(loaded)

    def load_packed(self, packed: Mapping[str, list[Any]], backends: list[str]) -> None:
        """Set streams that exist to packed states, as `state_dict` holds them, of exactly these backends.

        Raises SeedError when they do not fit; then nothing changes.
        """
        for name in packed:
            self._known(name)
        self._resume(self._unpacked(packed, backends))

    def _unpacked(self, packed: Mapping[str, list[Any]], backends: object) -> dict[str, tuple[Any, ...]]:
        if not isinstance(backends, (list, tuple)) or sorted(map(str, backends)) != sorted(self.backends):
            raise SeedError(f"these states are of {shown(backends)}; this tracker keeps {', '.join(self.backends)}")
        places = [list(backends).index(name) for name in self.backends]
        return self._tried(
            lambda: {
                name: tuple(keeper.unpack(part) for keeper, part in zip(self.keepers, _picked(name, parts, places)))
                for name, parts in packed.items()
            }
        )

    def _tried(self, make: Callable[[], dict[str, tuple[Any, ...]]]) -> dict[str, tuple[Any, ...]]:
        """The states that `make` gives, once every keeper has taken each; what is current stays current."""
        current = self._save()
        try:
            made = make()
            for state in made.values():
                for keeper, part in zip(self.keepers, state, strict=True):
                    keeper.set_state(part)
        except RankatlasError:
            raise
        except Exception as error:
            raise SeedError(f"these states are damaged, or of other backends: {error!r}") from None
        finally:
            self._load(current)
        return made

    def _resume(self, loaded: Mapping[str, tuple[Any, ...]]) -> None:
        self._states.update(loaded)
        if self._entered and self._entered[-1] in loaded:
            self._load(loaded[self._entered[-1]])

    def _leave(self) -> None:
        name = self._entered.pop()
        if name in self._states and self._loaded == name:
            self._states[name] = self._save()
        outer = self._entered[-1] if self._entered else None
        # A stream that was reset meanwhile has no state to go back to: draws go on from where they are.
        if outer is None:
            self._load(self._outside)
        elif outer in self._states:
            self._load(self._states[outer])
        self._loaded = outer

    def _known(self, name: str) -> None:
        if name not in self._states:
            raise SeedError(
                f"no stream {shown(name)}; the streams are {', '.join(self._states) or 'none yet'}", name=name
            )

    def _free(self, name: str, seed: int) -> int:
        """`seed` as an int, once neither it nor the name is taken."""
        if not isinstance(name, str) or not name:
            raise SeedError(f"a stream is named by text, not {shown(name)}")
        seed = as_seed(seed)
        if name in self._seeds:
            taken = self._seeds[name]
            raise SeedError(
                f"name {shown(name)} already bound to {taken}; reset() forgets it",
                name=name,
                seed=seed,
                earlier_seed=taken,
                earlier_name=name,
            )
        holder = next((other for other, used in self._seeds.items() if used == seed), None)
        if holder is not None:
            raise SeedError(
                f"seed {seed} already used by {shown(holder)}: two streams with one seed draw the same numbers",
                name=name,
                seed=seed,
                earlier_name=holder,
                earlier_seed=seed,
            )
        return seed

    def _start(self, name: str, seed: int) -> None:
        current = self._save()
        try:
            for keeper in self.keepers:
                keeper.seed(seed)
            started = self._save()
        finally:
            self._load(current)
        self._seeds[name] = seed
        self._states[name] = started
        if self._entered and self._entered[-1] == name:
            self._load(started)

    def _save(self) -> tuple[Any, ...]:
        return tuple(keeper.get_state() for keeper in self.keepers)

    def _load(self, kept: tuple[Any, ...]) -> None:
        for keeper, state in zip(self.keepers, kept):
            keeper.set_state(state)

    def _park(self) -> None:
        """Put the current state where it belongs: to the innermost stream, or outside all of them."""
        if not self._entered:
            self._outside = self._save()
        elif self._entered[-1] in self._states:
            self._states[self._entered[-1]] = self._save()

    def __repr__(self) -> str:
        return f"RngStateTracker({', '.join(f'{name}={seed}' for name, seed in self._seeds.items())})"


def _picked(name: str, parts: Sequence[Any], places: Sequence[int]) -> list[Any]:
    """The states of a stream in another order of backends."""
    if len(parts) != len(places):
        raise SeedError(f"stream {shown(name)} has {len(parts)} states, for {len(places)} backends")
    return [parts[place] for place in places]


def _copied(states: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """The states with their arrays copied, so that nobody's changes reach a stream."""
    return {name: tuple(map(_copy, state)) for name, state in states.items()}


def _copy(state: Any) -> Any:
    try:
        return deepcopy(state)
    except TypeError:  # Paddle's handles cannot be copied, nor changed
        return state

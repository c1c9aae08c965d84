"""One seed: programs, a schedule, a run, and the shortest beginning of a schedule that fails.

Room    tests.simulation.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from omnigraph import Graph
from omnigraph.storage.store import GraphStore
from tests.simulation import schedule
from tests.simulation.judge import Call, judge, judge_end, judge_future, judge_health
from tests.simulation.operations import Vocabulary
from tests.simulation.schedule import Actor, Decision
from tests.simulation.truth import Beginning, Truth, Violation
from tests.simulation.world import World, acting, make_template, simulated

EXAMINED = 50  # every so many seeds doctor looks at the graph
LENGTH = 160  # of a usual schedule
GOES_ON = 5  # every so many seeds the graph is cleaned and written at the end


class Ground:
    """The graph that every seed starts from, and a folder for its copies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        self.template = make_template(folder)
        with GraphStore.open(self.template) as store:
            self.beginning = Beginning.of(store)

    def new_folder(self) -> Path:
        """Return where no copy is."""
        return self._folder / f"copy{next(self._numbers)}"


@dataclass
class Outcome:
    """What came of a seed; `wrong` is None if nothing was."""

    seed: int
    wrong: str | None = None
    decisions: list[Decision] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    @property
    def log(self) -> list[str]:
        """What happened, in words that are the same when the seed is run again."""
        return [*map(str, self.decisions), *map(str, self.calls)]


class Chooser:
    """Chooses who goes on: as the seed says for so many steps, then one actor after the other.

    Some seeds let anybody go on at each step, some keep to one actor for a while. Others have an order, and
    the first who can go on does; at a few steps whoever is first becomes last. That parks an actor for long.
    """

    def __init__(self, seed: int, actors: int, steps: int | None) -> None:
        draw = self._draw = random.Random(f"{seed}/schedule")
        self._steps = steps
        self._stay = draw.choice((0.0, 0.8, 0.95, None, None, None))  # how likely the same actor goes on
        self._order = draw.sample(range(actors), actors)
        self._turns = {draw.randrange(LENGTH) for _ in range(draw.randint(1, 5))}
        self._kill_at = draw.randrange(LENGTH) if draw.random() < 0.3 else None
        self._number = 0

    def __call__(self, alive: Sequence[Actor]) -> Decision:
        number, self._number = self._number, self._number + 1
        if self._steps is not None and number >= self._steps:
            return Decision(alive[0].number, alive[0].point)
        by_number = {actor.number: actor for actor in alive}
        self._reorder(number, sorted(by_number))
        actor = next(by_number[one] for one in self._order if one in by_number)
        return Decision(actor.number, actor.point, kill=number == self._kill_at)

    def _reorder(self, number: int, alive: Sequence[int]) -> None:
        if self._stay is None:
            first = next(one for one in self._order if one in alive)
            to_end = [first] if number in self._turns else []
            self._order = [one for one in self._order if one not in to_end] + to_end
        elif self._draw.random() >= self._stay:
            chosen = self._draw.choice(alive)
            self._order = [chosen, *(one for one in self._order if one != chosen)]


class Simulation:
    """The run of one seed on a copy of its own."""

    def __init__(self, seed: int, ground: Ground) -> None:
        self._seed = seed
        self._beginning = ground.beginning
        draw = random.Random(f"{seed}/programs")
        self._world = World(ground.template, ground.new_folder(), patient=draw.random() < 0.5)
        vocabulary = Vocabulary(draw)
        self._programs = [vocabulary.program(actor, draw.randint(2, 4)) for actor in range(3)]
        self._handles: dict[int, Graph] = {}
        self._under_way: dict[int, Call] = {}

    def run(self, steps: int | None) -> Outcome:
        """Run to the end, and judge."""
        outcome = Outcome(self._seed)
        graphs = [self._world.open() for _ in range(2)]
        try:
            truth = Truth(
                graphs[0].store, self._beginning, [one for program in self._programs for one in program]
            )
            try:
                self._act(truth, outcome, steps)
                for call in outcome.calls:
                    judge(call, truth)
                judge_end(truth, graphs[1], list(self._handles.values()))
                if self._seed % EXAMINED == 0:
                    judge_health(graphs[1])
                if self._seed % GOES_ON == 0:
                    judge_future(truth, graphs[1])
            except schedule.Stuck:
                raise
            except Exception as error:  # noqa: BLE001 (it is what the seed has found)
                outcome.wrong = "".join(traceback.format_exception(error, limit=None if _odd(error) else 0))
        finally:
            for graph in (*graphs, *self._handles.values()):
                graph.close()
            self._world.remove()
        return outcome

    def _act(self, truth: Truth, outcome: Outcome, steps: int | None) -> None:
        actors = [
            Actor(number, lambda actor: self._work(actor, truth, outcome))
            for number in range(len(self._programs))
        ]

        def after_step(decision: Decision) -> None:
            outcome.decisions.append(decision)
            call = self._under_way.get(decision.actor)
            truth.look(None if call is None else call.operation)

        schedule.run(actors, Chooser(self._seed, len(actors), steps), after_step)
        for actor in actors:
            if actor.killed:
                self._handles.pop(actor.number, None)

    def _work(self, actor: Actor, truth: Truth, outcome: Outcome) -> None:
        bits = random.Random(f"{self._seed}/{actor.number}")
        with acting(actor, bits, self._world.clock):
            graph = self._handles[actor.number] = self._world.open()
            for operation in self._programs[actor.number]:
                actor.pause("the next operation")
                call = Call(operation, truth.step)
                actor.lifetimes = call.lifetimes
                self._under_way[actor.number] = call
                outcome.calls.append(call)
                try:
                    call.answer = operation.act(graph)
                except Exception as error:  # noqa: BLE001 (the judge says whether it may be)
                    call.error = error
                call.end = truth.step


def _odd(error: Exception) -> bool:
    return not isinstance(error, Violation) or error.__cause__ is not None


def run_seed(seed: int, ground: Ground, steps: int | None = None) -> Outcome:
    """Run a seed, with its own schedule for so many steps, or to the end."""
    with simulated():
        return Simulation(seed, ground).run(steps)


def shortest(seed: int, ground: Ground) -> tuple[int, Outcome]:
    """Return the smallest number of steps after which the seed fails, whoever goes on then, and how."""
    whole = run_seed(seed, ground)
    for steps in range(len(whole.decisions)):
        outcome = run_seed(seed, ground, steps)
        if outcome.wrong is not None:
            return steps, outcome
    return len(whole.decisions), whole


def report(seed: int, steps: int, outcome: Outcome) -> str:
    """Return what a failing seed does in so many steps, and how to see it again."""
    lines = [f"seed {seed} fails after {steps} steps:", *(f"  {one}" for one in outcome.decisions[:steps])]
    lines += ["calls:", *(f"  {call}" for call in outcome.calls), outcome.wrong or "it did not fail again"]
    lines.append(f"again: python -m tests.simulation.run --seed {seed} --steps {steps}")
    return "\n".join(lines)

"""No DataLoader anywhere: worker processes behind queues, or behind a socket pair each; or the loading inline."""

from __future__ import annotations

import multiprocessing
import queue
from typing import Any

import torch
from models import perceptron
from planted import begin
from samples import SampleFaults, make_batch
from torch.nn import functional
from truth_clock import now

AHEAD = 2


def produce(plan: dict[str, Any], faults: SampleFaults, wanted: Any, results: Any) -> None:
    """A worker: makes the batches it is asked for until it is told None."""
    torch.set_num_threads(1)
    while (number := wanted.get()) is not None:
        faults.batch(number)
        results.put((number, *make_batch(plan["seed"], number, plan["batch"])))


class Workers:
    """Batches in order from processes that run ahead."""

    def __init__(self, plan: dict[str, Any], faults: SampleFaults, count: int) -> None:
        context = multiprocessing.get_context(plan.get("context") or "fork")
        self._results = context.Queue()
        self._wanted = [context.Queue() for _ in range(count)]
        self._processes = [
            context.Process(target=produce, args=(plan, faults, wanted, self._results), daemon=True)
            for wanted in self._wanted
        ]
        for process in self._processes:
            process.start()
        self._asked = 0
        self._ready: dict[int, Any] = {}
        for _ in range(AHEAD * count):
            self._ask()

    def _ask(self) -> None:
        self._wanted[self._asked % len(self._wanted)].put(self._asked)
        self._asked += 1

    def get(self, number: int) -> Any:
        self._ask()
        while number not in self._ready:
            try:
                got, values, labels = self._results.get(timeout=1.0)
                self._ready[got] = (values, labels)
            except queue.Empty:
                if not all(process.is_alive() for process in self._processes):
                    raise RuntimeError("a loader process has died") from None
        return self._ready.pop(number)

    def close(self) -> None:
        for wanted in self._wanted:
            wanted.put(None)
        for process in self._processes:
            process.terminate()
            process.join()


def answer(plan: dict[str, Any], faults: SampleFaults, end: Any) -> None:
    """A worker behind a pair of sockets, as environments of reinforcement learning are."""
    torch.set_num_threads(1)
    while (number := end.recv()) is not None:
        faults.batch(number)
        end.send(make_batch(plan["seed"], number, plan["batch"]))


class Paired:
    """Batches in turn from processes that are asked ahead."""

    def __init__(self, plan: dict[str, Any], faults: SampleFaults, count: int) -> None:
        context = multiprocessing.get_context(plan.get("context") or "fork")
        self._ends, self._processes = [], []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=answer, args=(plan, faults, theirs), daemon=True)
            process.start()
            theirs.close()  # or its death would go unnoticed
            self._ends.append(ours)
            self._processes.append(process)
        for number in range(AHEAD * count):
            self._end(number).send(number)

    def _end(self, number: int) -> Any:
        return self._ends[number % len(self._ends)]

    def get(self, number: int) -> Any:
        self._end(number).send(number + AHEAD * len(self._ends))
        try:
            return self._end(number).recv()
        except EOFError:
            raise RuntimeError("a loader process has died") from None

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
            process.join()


class Inline:
    """The same batches, made by the training itself."""

    def __init__(self, plan: dict[str, Any], faults: SampleFaults) -> None:
        self._plan, self._faults = plan, faults

    def get(self, number: int) -> Any:
        self._faults.batch(number)
        return make_batch(self._plan["seed"], number, self._plan["batch"])

    def close(self) -> None:
        """Nothing to end."""


def main() -> None:
    plan, truth, faults = begin()
    sample_faults = SampleFaults(plan, truth.path)
    parallel = Paired if plan["seed"] % 2 else Workers
    source = parallel(plan, sample_faults, plan["workers"]) if plan["workers"] else Inline(plan, sample_faults)
    model = perceptron(plan["width"])
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    mark = now()
    for step in range(plan["steps"]):
        values, labels = (torch.from_numpy(array) for array in source.get(step))
        fetch = now() - mark
        faults.at("before", step, model)
        output = model(values)
        optimizer.zero_grad()
        functional.cross_entropy(output, labels).backward()
        stepping = now()
        optimizer.step()
        faults.at("after", step, model)
        end = now()
        truth.iteration(step, mark, stepping, end, fetch)
        mark = end
    truth.count(optimizer_steps=plan["steps"])
    source.close()
    faults.close()


if __name__ == "__main__":
    main()

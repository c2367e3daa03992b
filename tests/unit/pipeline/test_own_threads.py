"""A driver that waits at a lock: for a thread of its own process, for a pool of processes, or nobody knows for whom."""

from __future__ import annotations

import random

import pytest

from tests.builders.driver import START, Driver, moment, played
from tests.unit.pipeline.test_pipeline import rank_of
from trainprobe.derive.python.code_lines import Feeders
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.event import FileEventKind, PythonThread, RankSeen, StackSeen
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS
from trainprobe.model.report import Rank
from trainprobe.model.sample import Inspection, ProcessSample, SentBytes, ThreadLook
from trainprobe.pipeline import Pipeline

LOADER, MONITOR = 77, 78
LINE = "decode (loader.py:31)"


def steps(driver: Driver, count: int, *, fetches: bool = False) -> None:
    """With a DataLoader, or with batches from somewhere else."""
    for _ in range(count):
        if fetches:
            driver.fetch()
        driver.spend(0.024)
        driver.backward()
        driver.optimizer()


def as_rank(driver: Driver, ranks: int) -> None:
    """Of so many."""
    driver.events[-1] = RankSeen("train.py-0123abcd", START, driver.pid, None, START, rank=0, world_size=ranks)


def started() -> tuple[Driver, Pipeline]:
    driver = Driver()
    driver.begin()
    steps(driver, 40)
    return driver, played(driver)


def locked(
    driver: Driver, pipeline: Pipeline, *others: str, share: float = 0.0, python: bool = True, called: str = ""
) -> Rank:
    """A second at a lock. ``others``: states of the loader in so many looks; ``share``: of a CPU that it uses."""
    inside = called or "get (queue.py:9)"
    for state in others:
        driver.spend(1.0 / len(others), Leaf.LOCK)
        loader = ThreadLook(LOADER, 5, state, "", round(share * driver.now), "/data/a.bin" if state == "D" else "")
        monitor = ThreadLook(MONITOR, 6, "S", "hrtimer_nanosleep", 0)
        seen = Inspection(driver.pid, driver.tid, "S", "futex_wait_queue", threads=(loader, monitor))
        threads = (PythonThread(6, "watch (tqdm/monitor.py:60)"), *((PythonThread(5, LINE),) if python else ()))
        stack = StackSeen(driver.now, driver.pid, driver.tid, ("main (a.py:1)", inside), others=threads)
        pipeline.step(Frame(moment(driver.now), (stack,), threads=(driver.sample(Leaf.LOCK),), inspections=(seen,)))
    steps(driver, 20)
    return rank_of(played(driver, pipeline), driver)


def test_a_loader_thread_on_the_cpu_is_told_with_its_line() -> None:
    (stall,) = locked(*started(), "R", "S", "R", share=random.uniform(0.6, 1)).stalls
    assert stall.cause == "data_cpu"
    assert stall.summary == f"the training thread waited for thread {LOADER} of the training on the CPU in {LINE}"
    assert stall.seconds == pytest.approx(1.0, abs=0.02)
    assert stall.chain[0] == f"training thread waits for thread {LOADER}"
    assert "prefetch_factor" not in " ".join(stall.advice)


@pytest.mark.parametrize(
    ("called", "cause"),
    [
        ("", "data_cpu"),
        ("barrier (distributed_c10d.py:4)", "collective_wait"),
        ("foreach_all_gather_copy_out (torch/_fsdp_collectives.py:9)", "collective_wait"),
        ("FullyShardedDataParallel.forward (torch/fully_sharded_data_parallel.py:9)", "collective_wait"),
        ("wait_tensor (torch/_functional_collectives.py:9)", "collective_wait"),
    ],
)
def test_a_rank_that_waits_for_a_thread_of_its_own_waits_for_no_other_rank(called: str, cause: str) -> None:
    """Unless its stacks show that it asks others."""
    driver = Driver()
    driver.begin()
    as_rank(driver, 2)
    steps(driver, 40)
    pipeline = played(driver)
    (stall,) = locked(driver, pipeline, "R", "S", "R", share=0.8, called=called).stalls
    assert stall.cause == cause


@pytest.mark.parametrize("running", [False, True])
def test_a_stack_of_computing_does_not_show_what_a_rank_waits_for_later(running: bool) -> None:
    """It computes, and then it waits for the others, while its loader's thread computes."""
    driver = Driver()
    driver.begin()
    as_rank(driver, 2)
    steps(driver, 40)
    pipeline = played(driver)
    driver.spend(1.0)
    others = (PythonThread(5, LINE),)
    stack = StackSeen(
        driver.now, driver.pid, driver.tid, ("main (a.py:1)", "f (a.py:5)"), running=running, others=others
    )
    pipeline.step(Frame(moment(driver.now), (stack,), threads=(driver.sample(),)))
    for _ in range(3):
        driver.spend(0.5, Leaf.LOCK)
        loader = ThreadLook(LOADER, 5, "R", "", round(0.8 * driver.now))
        seen = Inspection(driver.pid, driver.tid, "S", "futex_wait_queue", threads=(loader,))
        pipeline.step(Frame(moment(driver.now), threads=(driver.sample(Leaf.LOCK),), inspections=(seen,)))
    steps(driver, 20)
    lost = rank_of(played(driver, pipeline), driver).lost
    assert lost == {"cpu_bound": pytest.approx(1.0, abs=0.1), "collective_wait" if running else "data_cpu": 1.5}


def test_a_loader_thread_that_has_to_share_its_cpu_is_told_too() -> None:
    """Others have most of it: each look finds the thread ready to compute."""
    (stall,) = locked(*started(), *"R" * random.randint(2, 4), share=random.uniform(0.27, 0.45)).stalls
    assert stall.cause == "data_cpu"


@pytest.mark.parametrize(("states", "share"), [("RSRR", 0.4), ("RRRR", 0.2), ("RS", 0.4)])
def test_a_thread_that_computes_now_and_then_is_no_evidence(states: str, share: float) -> None:
    (stall,) = locked(*started(), *states, share=share).stalls
    assert stall.cause == "unknown"


def test_a_loader_thread_blocked_on_a_device_is_told_with_its_file() -> None:
    (stall,) = locked(*started(), "D", "D", "R", share=0.1).stalls
    assert stall.cause == "data_storage"
    assert "/data/a.bin" in stall.summary


def test_a_librarys_own_threads_are_no_evidence() -> None:
    """OpenMP's are on the CPU because the driver has given them work."""
    (stall,) = locked(*started(), "R", "R", "R", share=1.0, python=False).stalls
    assert stall.cause == "unknown"


@pytest.mark.parametrize(
    ("sends", "share", "cause"), [(True, 0.0, "network"), (False, 0.01, "network"), (False, 0.0, "unknown")]
)
def test_a_thread_that_sends_is_told_with_its_peer(sends: bool, share: float, cause: str) -> None:
    """Or that did something between the looks at its socket; who waits for what may come is no evidence."""
    driver, pipeline = started()
    for _ in range(3):
        driver.spend(0.3, Leaf.LOCK)
        thread = ThreadLook(LOADER, 5, "S", "wait_woken", round(share * driver.now), "", "10.0.0.7:443", sends)
        seen = Inspection(driver.pid, driver.tid, "S", "futex_wait_queue", threads=(thread,))
        stack = StackSeen(driver.now, driver.pid, driver.tid, ("main (a.py:1)",), others=(PythonThread(5, LINE),))
        pipeline.step(Frame(moment(driver.now), (stack,), threads=(driver.sample(Leaf.LOCK),), inspections=(seen,)))
    steps(driver, 20)
    (stall,) = rank_of(played(driver, pipeline), driver).stalls
    assert stall.cause == cause
    if cause == "network":
        assert stall.summary.startswith(f"waiting for thread {LOADER}, which sends to 10.0.0.7:443: 900 ms")
        assert stall.advice[-1].startswith("send while the training steps")


def test_a_child_process_that_sends_is_told_with_its_peer_and_bytes() -> None:
    """10 MB and then 20 over a connection that is new, 10 more over the next one."""
    driver, pipeline = started()
    for taken, busy in ((10_000_000, 580_000_000), (20_000_000, 1_080_000_000), (10_000_000, 400_000_000)):
        driver.spend(0.5, Leaf.CHILD)
        sent = SentBytes(taken, busy, driver.now + 100_000_000)  # read later in the pass
        look = ThreadLook(90, 90, "S", "sk_stream_wait", 0, "", "10.0.0.7:443", True, sent, pid=90)
        seen = Inspection(driver.pid, driver.tid, "S", "do_wait", children=(look,))
        pipeline.step(Frame(moment(driver.now), threads=(driver.sample(Leaf.CHILD),), inspections=(seen,)))
    steps(driver, 20)
    (stall,) = rank_of(played(driver, pipeline), driver).stalls
    assert stall.cause == "network"
    assert stall.summary.startswith("waiting for process 90, which sends to 10.0.0.7:443: 1.5")
    assert stall.summary.endswith(", at least 30 MB sent")
    assert [one.value for one in stall.evidence if one.unit == "bytes"] == [30_000_000]


def test_who_has_sent_before_the_step_is_told_with_what_was_seen() -> None:
    driver, pipeline = started()
    for taken, busy in ((10_000_000, 9_000_000_000), (20_000_000, 9_500_000_000)):
        driver.spend(0.5, Leaf.SOCKET)
        sent = SentBytes(taken, busy, driver.now)
        seen = Inspection(driver.pid, driver.tid, "S", "sk_stream_wait", peer="10.0.0.7:443", sent=sent)
        pipeline.step(Frame(moment(driver.now), threads=(driver.sample(Leaf.SOCKET),), inspections=(seen,)))
    gone = Inspection(driver.pid, driver.tid, "R")  # on the CPU again: nothing of the socket is to be seen
    pipeline.step(Frame(moment(driver.now), threads=(driver.sample(),), inspections=(gone,)))
    steps(driver, 20)
    (stall,) = rank_of(played(driver, pipeline), driver).stalls
    assert stall.summary == "waiting on a socket to 10.0.0.7:443 for 1.00 s, at least 10 MB sent"
    assert "does not answer" not in " ".join(stall.chain)


def test_who_sleeps_is_no_evidence() -> None:
    (stall,) = locked(*started(), "S", "S", "S", share=0.05).stalls
    assert stall.cause == "unknown"
    assert stall.summary.endswith(f" s lock (its other thread was in {LINE})"), "and where it was is told"
    (stall,) = locked(*started(), "S", "S", "S", python=False).stalls
    assert stall.summary.endswith(" s lock"), "a library's monitor is not what it waits for"


@pytest.mark.parametrize(
    ("fetches", "worked", "cause"), [(False, 0.9, "data_cpu"), (False, 0.3, "unknown"), (True, 0.9, "unknown")]
)
def test_a_pool_of_processes_answers_behind_a_lock(fetches: bool, worked: float, cause: str) -> None:
    """What workers did meanwhile is the cause where they did as much, and where no DataLoader has waits of its own."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    steps(driver, 40, fetches=fetches)
    pipeline = played(driver)
    driver.spend(1.0, Leaf.LOCK)
    driver.work(worked, Leaf.CPU)
    steps(driver, 20, fetches=fetches)
    (stall,) = rank_of(played(driver, pipeline), driver).stalls
    assert stall.cause == cause


def test_a_wait_for_the_thread_that_wrote_a_checkpoint_is_the_saves() -> None:
    """It sleeps, or uploads, when its file is closed."""
    driver, pipeline = started()
    driver.file(FileEventKind.OPENED, "/run/a.pt", opened=driver.now, tid=LOADER)
    driver.file(FileEventKind.CLOSED, "/run/a.pt", opened=driver.now, size=184_000_000, write=1, tid=LOADER)
    steps(driver, 10)
    (stall,) = locked(driver, played(driver, pipeline), "S", "S", "S").stalls
    assert stall.cause == "checkpoint"
    assert stall.summary == (
        f"waiting for thread {LOADER} of the training, which wrote checkpoint /run/a.pt and goes on in {LINE}"
    )
    assert stall.seconds == pytest.approx(1.0, abs=0.02)
    assert any(line.startswith("the save runs beside the steps already") for line in stall.advice)


def two_locks(seconds: float, *, watcher: str = "", frame: str = "ema (train.py:8)", end: bool = False) -> Rank:
    """The driver and a thread of the user's wait at a lock; ``watcher``: the state of one that may end it all."""
    driver, pipeline = started()
    for _ in range(round(2 * seconds)):
        driver.spend(0.5, Leaf.LOCK)
        beside = (ThreadLook(LOADER, 6, watcher, "hrtimer_nanosleep", 0),) if watcher else ()
        seen = Inspection(driver.pid, driver.tid, "S", "futex_wait_queue", threads=beside)
        threads = (PythonThread(5, frame), *((PythonThread(6, "watch (train.py:21)"),) if watcher else ()))
        stack = StackSeen(driver.now, driver.pid, driver.tid, ("<module> (train.py:17)",), others=threads)
        pipeline.step(Frame(moment(driver.now), (stack,), threads=(driver.sample(Leaf.LOCK),), inspections=(seen,)))
    if end:
        driver.exit(42)
    else:
        steps(driver, 20)
    return rank_of(played(driver, pipeline), driver)


@pytest.mark.parametrize("watcher", ["", "S"])
def test_two_threads_that_wait_for_each_others_locks_are_a_deadlock(watcher: str) -> None:
    rank = two_locks(12.0, watcher=watcher, end=True)
    (stall,) = rank.stalls
    assert stall.cause == "deadlock"
    assert stall.summary.startswith(
        "training thread and another thread of it wait for locks, in <module> (train.py:17) and in ema (train.py:8), "
    )
    assert stall.seconds == pytest.approx(12.3, abs=0.35), "also where the process ends itself, from another thread"
    assert "in the same order" in stall.advice[0]


@pytest.mark.parametrize(
    ("seconds", "watcher", "frame"),
    [(3.0, "", "ema (train.py:8)"), (12.0, "R", "ema (train.py:8)"), (12.0, "", "Queue.get (python3.11/queue.py:171)")],
)
def test_a_short_wait_a_thread_that_runs_and_an_idle_one_are_no_deadlock(
    seconds: float, watcher: str, frame: str
) -> None:
    assert two_locks(seconds, watcher=watcher, frame=frame).stalls[0].cause != "deadlock"


@pytest.mark.parametrize(("state", "share", "cause"), [("R", 0.9, "data_cpu"), ("S", 0.0, "unknown")])
def test_a_child_that_computes_what_it_writes_to_a_pipe(state: str, share: float, cause: str) -> None:
    """A decoder that is a process of its own, without a loader."""
    driver, pipeline = started()
    for _ in range(4):
        driver.spend(0.25, Leaf.PIPE_READ)
        decoder = ThreadLook(4000, 4000, state, "", round(share * driver.now), pid=4000)
        seen = Inspection(driver.pid, driver.tid, "S", "anon_pipe_read", children=(decoder,))
        pipeline.step(Frame(moment(driver.now), threads=(driver.sample(Leaf.PIPE_READ),), inspections=(seen,)))
    steps(driver, 20)
    (stall,) = rank_of(played(driver, pipeline), driver).stalls
    assert stall.cause == cause
    if cause == "data_cpu":
        assert stall.summary == "the training thread waited for what process 4000 of the training writes to a pipe"
        assert stall.seconds == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("heavier", [False, True])
@pytest.mark.parametrize("pool", [(), (PythonThread(7, "decode (loader.py:35)"), PythonThread(8, LINE))])
@pytest.mark.parametrize(
    ("busy", "fetches", "told"), [(1.0, False, "data_cpu"), (0.1, False, "unknown"), (1.0, True, "unknown")]
)
def test_a_thread_that_fills_the_queue_too_slowly_in_each_step(
    busy: float, fetches: bool, told: str, pool: tuple[PythonThread, ...], ranks: int, heavier: bool
) -> None:
    """A prefetcher of the training's own; one that waits for something itself is no riddle's answer. A rank of a
    distributed training waits there for no other one. ``heavier``: the steps compute more from some step on."""
    driver = Driver()
    driver.begin()
    as_rank(driver, ranks)
    pipeline = Pipeline()
    computed = 0.0
    for at in range(120):
        if ranks > 1:
            driver.spend(0.02, Leaf.LOCK, Region.NO_GRAD)  # FSDP waits for the others' parameters
        times = 5.0 if heavier and at >= 40 else 1.0
        if fetches:
            driver.fetch()
        driver.spend(0.01 * times)
        driver.spend(0.03, Leaf.LOCK)
        driver.backward(0.01 * times)
        driver.optimizer()
        computed += 0.005 + 0.02 * times
        if at % 30 == 20:
            rank = played(driver, pipeline).runs[next(iter(pipeline.runs))].ranks.by_pid[driver.pid][0]
            rank.ordinary.lines_ns = driver.now
            others = (PythonThread(6, "watch (tqdm/monitor.py:60)"), PythonThread(5, LINE), *pool)
            frames = (
                "main (a.py:1)",
                "Queue.get (python3.11/queue.py:171)",
                "Condition.wait (python3.11/threading.py:320)",
            )
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames, others=others))
        if at % 10 == 9:
            spent = round((computed + 0.06 * busy * (at + 1)) * NS)
            process = ProcessSample(driver.pid, 1, "driver", 0, cpu_ns=spent)
            pipeline.step(Frame(moment(driver.now), tuple(driver.events), processes=(process,)))
            driver.events.clear()
    (found,) = rank_of(played(driver, pipeline), driver).bottlenecks
    assert found.cause == told
    assert found.seconds == pytest.approx(120 * 0.03, rel=0.1)
    if told == "data_cpu":
        assert found.summary.endswith(f"waits in a queue for thread 5 of the training, which fills it in {LINE}")


REPLICAS = ("DataParallel.forward (torch/data_parallel.py:194)", "parallel_apply (torch/parallel_apply.py:119)")
JOIN = "join (python3.12/threading.py:1119)"


@pytest.mark.parametrize("replicas", [True, False])
def test_threads_that_run_the_models_replicas_do_the_trainings_work(replicas: bool) -> None:
    """torch.nn.DataParallel, in ordinary steps and in heavier ones. Another wait at a lock in each step is lost."""
    driver = Driver()
    driver.begin()
    frames = ("<module> (train.py:60)", *(REPLICAS if replicas else ("prepare (train.py:20)",)), JOIN)
    for number in range(400):
        times = 3.0 if number % 17 == 16 else 1.0
        driver.fetch()
        driver.spend(0.004)
        driver.spend(0.04 * times, Leaf.LOCK)
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
        driver.backward(0.002)
        driver.spend(0.05 * times, Leaf.LOCK, Region.BACKWARD)
        driver.optimizer()
        driver.spend(0.02, Leaf.GPU)
    driver.exit()
    rank = rank_of(played(driver), driver)
    if replicas:
        assert (rank.lost, rank.verdict.kind) == ({}, "none")
    else:
        assert rank.lost["unknown"] > 400 * 0.035


@pytest.mark.parametrize("late", [REPLICAS, ("wait_for_upload (train.py:20)",)])
def test_another_wait_at_a_lock_where_replicas_run_in_threads_is_lost(late: tuple[str, ...]) -> None:
    driver = Driver()
    driver.begin()

    def step(seconds: float, called: tuple[str, ...]) -> None:
        driver.fetch()
        driver.spend(0.004)
        driver.spend(seconds, Leaf.LOCK)
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, ("<module> (train.py:60)", *called, JOIN)))
        driver.backward(0.002)
        driver.spend(0.05, Leaf.LOCK, Region.BACKWARD)
        driver.optimizer()
        driver.spend(0.02, Leaf.GPU)

    for number in range(120):
        step(2.0 if number == 80 else 0.04, late if number == 80 else REPLICAS)
    rank = rank_of(played(driver), driver)
    assert rank.lost == ({} if late is REPLICAS else {"unknown": pytest.approx(1.96, abs=0.05)})


def test_replicas_of_an_evaluation_do_no_work_of_the_trainings_own() -> None:
    """Its own steps wait at a lock for something else."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    frames = ("validate (train.py:20)", *REPLICAS, JOIN)
    for number in range(200):
        driver.fetch()
        driver.spend(0.01)
        driver.spend(0.03, Leaf.LOCK)
        driver.backward()
        driver.optimizer()
        if number % 50 == 40:
            driver.spend(0.8, Leaf.LOCK, Region.NO_GRAD)
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, ("<module> (train.py:60)", *frames)))
            driver.spend(0.2, Leaf.LOCK, Region.NO_GRAD)
        played(driver, pipeline)
    driver.exit()
    assert rank_of(played(driver, pipeline), driver).lost["unknown"] > 200 * 0.025


WAITS = ("main (a.py:1)", "Queue.get (python3.11/queue.py:171)", "Condition.wait (python3.11/threading.py:320)")


@pytest.mark.parametrize(
    ("others", "most"),
    [
        (("decode (loader.py:31)",), 5),
        (("decode (loader.py:31)", "decode (loader.py:35)", "watch (tqdm/monitor.py:60)"), 5),
        (("decode (loader.py:31)", "serve (rpc.py:9)"), None),
        (("run (ffcv/epoch_iterator.py:163)", "watch (tqdm/monitor.py:60)"), 5),
    ],
)
def test_of_threads_that_do_different_things_nobody_knows_who_fills_the_queue(
    others: tuple[str, ...], most: int | None
) -> None:
    feeders = Feeders()
    threads = [PythonThread(5 + place, frame) for place, frame in enumerate(others)]
    for turn in range(4):
        feeders.add(WAITS, threads if turn % 2 else threads[::-1])
    found = feeders.most()
    assert (found.own_tid if found is not None else None) == most


def test_a_thread_that_saves_reads_no_data() -> None:
    """It is blocked on a device as well, while another one makes the batch."""
    driver, pipeline = started()
    opened = driver.now
    driver.file(FileEventKind.OPENED, "/run/model.pt", opened=opened, tid=MONITOR)
    for look in range(3):
        driver.spend(0.4, Leaf.LOCK)
        saver = ThreadLook(MONITOR, 6, "D", "folio_wait_writeback", 0, "/run/model.pt")
        loader = ThreadLook(LOADER, 5, "R", "", round(0.4 * look * NS))
        seen = Inspection(driver.pid, driver.tid, "S", "futex_wait_queue", threads=(loader, saver))
        stack = StackSeen(driver.now, driver.pid, driver.tid, WAITS, others=(PythonThread(5, LINE),))
        pipeline.step(
            Frame(moment(driver.now), (*driver.events, stack), threads=(driver.sample(Leaf.LOCK),), inspections=(seen,))
        )
        driver.events.clear()
    steps(driver, 20)
    (stall,) = rank_of(played(driver, pipeline), driver).stalls
    assert stall.cause == "data_cpu"
    assert stall.summary == f"the training thread waited for thread {LOADER} of the training on the CPU in {LINE}"


SOCKET = "SocketIO.readinto (python3.11/socket.py:706)"
RESULT = ("main (a.py:1)", "Future.result (python3.11/_base.py:451)", "Condition.wait (python3.11/threading.py:327)")
FETCHES = PythonThread(5, SOCKET, "produce (train.py:20)")
ROUTER = PythonThread(9, SOCKET)  # a tracker's, in no code of the user's
"""A thread of the user's that reads from a network, and one that always waits at a socket."""


@pytest.mark.parametrize("share", [0.0, 0.01])
@pytest.mark.parametrize(
    ("frames", "others", "cause"),
    [
        (WAITS, (FETCHES,), "data_storage"),
        (WAITS, (FETCHES, PythonThread(7, "recv (python3.11/ssl.py:9)", "produce (train.py:22)")), "data_storage"),
        (WAITS, (ROUTER,), None),
        (WAITS, (FETCHES, PythonThread(7, "serve (train.py:90)")), None),
        (("main (a.py:1)",), (FETCHES,), None),
        (RESULT, (FETCHES,), "network"),
        (RESULT, (PythonThread(5, SOCKET, "upload (train.py:20)"),), None),
    ],
)
def test_a_thread_that_fills_the_queue_from_a_network(
    frames: tuple[str, ...], others: tuple[PythonThread, ...], cause: str | None, share: float
) -> None:
    """The driver takes from a queue, and the one function of the user's beside it waits at a socket: a server may be
    slow to answer, or send a little at a time."""
    driver, pipeline = started()
    for _ in range(3):
        driver.spend(0.3, Leaf.LOCK)
        at = others[0].own_tid
        thread = ThreadLook(LOADER, at, "S", "wait_woken", round(share * driver.now), "", "10.0.0.7:6379")
        seen = Inspection(driver.pid, driver.tid, "S", "futex_wait_queue", threads=(thread,))
        stack = StackSeen(driver.now, driver.pid, driver.tid, frames, others=others)
        pipeline.step(Frame(moment(driver.now), (stack,), threads=(driver.sample(Leaf.LOCK),), inspections=(seen,)))
    steps(driver, 20)
    (stall,) = rank_of(played(driver, pipeline), driver).stalls
    assert stall.cause == (cause or ("network" if share else "unknown"))
    if cause == "network":
        asked = f"waiting for an answer of 10.0.0.7:6379 to thread {LOADER} of the training, in produce (train.py:20)"
        assert stall.summary == asked
    elif cause is not None:
        assert stall.summary == (
            f"reading data over the network from 10.0.0.7:6379 in thread {LOADER} of the training, "
            "in produce (train.py:20)"
        )


@pytest.mark.parametrize(
    ("thread", "cause"),
    [(FETCHES, "data_storage"), (PythonThread(5, "decode (PIL/Image.py:9)", "produce (train.py:22)"), "unknown")],
)
def test_a_thread_that_fills_the_queue_from_a_network_in_each_step(thread: PythonThread, cause: str) -> None:
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    for at in range(120):
        driver.spend(0.01)
        driver.spend(0.03, Leaf.LOCK)
        driver.backward(0.01)
        driver.optimizer()
        if at % 30 == 20:
            rank = played(driver, pipeline).runs[next(iter(pipeline.runs))].ranks.by_pid[driver.pid][0]
            rank.ordinary.lines_ns = driver.now
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, WAITS, others=(thread, ROUTER)))
    (found,) = rank_of(played(driver, pipeline), driver).bottlenecks
    assert found.cause == cause
    assert found.seconds == pytest.approx(120 * 0.03, rel=0.1)


PRODUCES = ("<module> (a.py:9)", "BaseProcess._bootstrap (python3.11/multiprocessing/process.py:314)", "run (a.py:20)")
GETS = ("main (a.py:1)", "Queue.get (python3.11/multiprocessing/queues.py:103)", "_recv (python3.11/connection.py:9)")
OVER_S3 = ("sync (fsspec/asyn.py:103)", "Event.wait (python3.11/threading.py:629)")


@pytest.mark.parametrize(
    ("inside", "cause"),
    [
        ((SOCKET,), "data_storage"),
        (OVER_S3, "data_storage"),
        (("Queue.get (python3.11/queue.py:171)",), "unknown"),
        (("socket.accept (python3.11/socket.py:294)",), "unknown"),
        (("step (gymnasium/core.py:9)", SOCKET), "unknown"),
    ],
)
@pytest.mark.parametrize("leaf", [Leaf.PIPE_READ, Leaf.LOCK])
@pytest.mark.parametrize("late", [False, True])
def test_processes_that_fill_a_queue_from_a_network(
    late: bool, leaf: Leaf, inside: tuple[str, ...], cause: str
) -> None:
    """No DataLoader's, as batchgenerators has them. What they do when nobody asks them for a batch is not this."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    for pid in range(2000, 2004):
        driver.fork(pid)
    for at in range(1200):
        if late and at % 20 == 19:
            driver.spend(0.3, leaf)
            frames = GETS if leaf is Leaf.PIPE_READ else WAITS
            pipeline.step(Frame(moment(driver.now), tuple(driver.events), threads=(driver.sample(leaf),)))
            driver.events.clear()
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
            driver.events.append(StackSeen(driver.now, 2000, 2000, (*PRODUCES, *inside)))
            driver.spend(0.3, leaf)
        elif not late:
            driver.spend(0.08, leaf)
            pipeline.step(Frame(moment(driver.now), tuple(driver.events), threads=(driver.sample(leaf),)))
            driver.events.clear()
            for pid, tid in pipeline.wants().stacks:
                frames = (GETS if leaf is Leaf.PIPE_READ else WAITS) if pid == driver.pid else (*PRODUCES, *inside)
                driver.events.append(StackSeen(driver.now, pid, tid, frames))
        steps(driver, 1)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.verdict.cause == cause
    assert rank.lost[cause] == pytest.approx(60 * 0.6 if late else 1200 * 0.08, rel=0.1)

from __future__ import annotations

import time

import pytest

from trainprobe.collect.command import (
    ARGUMENT_LIMIT,
    REDACTED,
    ProgramKind,
    mentioned_script,
    python_like,
    redact,
    torchrun_id,
    torchrun_meeting,
    understand,
)

SPAWN = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)"
FORKSERVER = "from multiprocessing.forkserver import main; main(8, 9, ['__main__'], **{})"
TRACKER = "from multiprocessing.resource_tracker import main;main(4)"

LINES = [
    ("python train.py --lr 1", ProgramKind.SCRIPT, "train.py"),
    ("/opt/conda/bin/python3.11 -u /home/a/train.py", ProgramKind.SCRIPT, "train.py"),
    ("python -X dev -W ignore -O train.py -m x", ProgramKind.SCRIPT, "train.py"),
    ("python -Wignore -Xfaulthandler train.py", ProgramKind.SCRIPT, "train.py"),
    ("python --check-hash-based-pycs always train.py", ProgramKind.SCRIPT, "train.py"),
    ("python -m pkg.train --epochs 3", ProgramKind.SCRIPT, "pkg.train"),
    ("python -um pkg.train", ProgramKind.SCRIPT, "pkg.train"),
    ("python -m torch.distributed.run --nproc_per_node 2 train.py", ProgramKind.LAUNCHER, "train.py"),
    ("python -m torch.distributed.launch train.py", ProgramKind.LAUNCHER, "train.py"),
    (
        "/usr/bin/python3 /usr/local/bin/torchrun --nproc-per-node=2 train.py --torchrun x.py",
        ProgramKind.LAUNCHER,
        "train.py",
    ),
    ("torchrun --standalone -m pkg.train", ProgramKind.LAUNCHER, "pkg.train"),
    ("accelerate launch --multi_gpu train.py", ProgramKind.LAUNCHER, "train.py"),
    ("mpirun -np 2 python train.py", ProgramKind.LAUNCHER, "train.py"),
    ("torchrun --no-python ./run", ProgramKind.LAUNCHER, ""),
    ("python", ProgramKind.SCRIPT, ""),
    ("bash train.sh", ProgramKind.OTHER, "bash"),
    ("pythonista train.py", ProgramKind.OTHER, "pythonista"),
]


@pytest.mark.parametrize(("line", "kind", "script"), LINES, ids=[line for line, _, _ in LINES])
def test_which_script_a_command_line_runs(line: str, kind: ProgramKind, script: str) -> None:
    found = understand(line.split())
    assert (found.kind, found.script) == (kind, script)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (SPAWN, ProgramKind.SPAWNED),
        (FORKSERVER, ProgramKind.FORKSERVER),
        (TRACKER, ProgramKind.TRACKER),
        ("print(1)", ProgramKind.SCRIPT),
    ],
)
def test_multiprocessing_children_are_told_by_their_code(code: str, kind: ProgramKind) -> None:
    assert understand(["/usr/bin/python3", "-s", "-c", code, "--multiprocessing-fork"]).kind is kind


def test_nothing_is_understood_of_nothing() -> None:
    assert understand([]).kind is ProgramKind.OTHER
    assert understand(["python", "-m"]).script == ""
    assert understand(["python", "-c"]).script == ""


def test_a_wrapper_mentions_the_script() -> None:
    assert mentioned_script(["bash", "-c", "cd /x && exec python 'train.py' --a"]) == "train.py"
    assert mentioned_script(["env", "A=b", "nice", "python", "/a/b/train.py"]) == "train.py"
    assert mentioned_script(["sleep", "5"]) == ""


def test_torchrun_ids() -> None:
    assert torchrun_id(["torchrun", "--rdzv-id=exp1", "train.py"]) == "exp1"
    assert torchrun_id(["torchrun", "--rdzv_id", "exp1", "train.py"]) == "exp1"
    assert torchrun_id(["torchrun", "--rdzv-id"]) == ""
    assert torchrun_id(["torchrun", "train.py"]) == ""


def test_a_static_rendezvous_by_torchruns_command_line() -> None:
    def of(*options: str) -> tuple[str, str, str]:
        return torchrun_meeting(["python", "/x/torch/distributed/run.py", *options, "train.py", "--nnodes", "9"])

    assert of("--nnodes=2", "--nproc_per_node", "4", "--master-addr", "h0", "--node-rank=1") == ("h0", "29500", "8")
    assert of("--nnodes", "2", "--master_addr=h0", "--master_port=7") == ("h0", "7", "2")
    assert of("--nnodes", "2", "--rdzv-backend", "static", "--rdzv-endpoint", "h0:7") == ("h0", "7", "2")
    assert of("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "h0:7") == ("", "", "")
    assert of("--nnodes", "2", "--nproc-per-node", "auto", "--master-addr", "h0")[2] == ""
    assert of("--nproc-per-node", "4", "--master-addr", "h0")[2] == "", "one host"
    assert of("--nnodes", "1:4")[2] == ""


def test_python_like_names() -> None:
    assert python_like("python3.11")
    assert python_like("pt_main_thread")
    assert python_like("ray::train")
    assert not python_like("bash")


SECRETS = [
    (["--api-key=abcd1234"], [f"--api-key={REDACTED}"]),
    (["--api_key", "abcd1234", "x"], ["--api_key", REDACTED, "x"]),
    (["--hubToken", "abcdefg"], ["--hubToken", REDACTED]),
    (["WANDB_API_KEY=abcdef"], [f"WANDB_API_KEY={REDACTED}"]),
    (["wandb.api_key=abcdef"], [f"wandb.api_key={REDACTED}"]),
    (["++trainer.logger.password=x1y2"], [f"++trainer.logger.password={REDACTED}"]),
    (["--password", "p", "--lr", "1"], ["--password", REDACTED, "--lr", "1"]),
    (["--secret", "--verbose"], ["--secret", "--verbose"]),
    (["s3://key:secret@host/path"], [f"s3://{REDACTED}@host/path"]),
    (["--init", "https://user:pw@host/x"], ["--init", f"https://{REDACTED}@host/x"]),
    (["hf_abcdefghijklmnopqrstuv"], [REDACTED]),
    (["--header", "Authorization: Bearer abc.def-123"], ["--header", f"Authorization: Bearer {REDACTED}"]),
    (["-H", "authorization: basic dXNlcjpwdw=="], ["-H", f"authorization: basic {REDACTED}"]),
    (["https://x.blob/d?sv=1&sig=a%2Fb&se=2"], [f"https://x.blob/d?sv=1&sig={REDACTED}&se=2"]),
    (["https://x/d?X-Amz-Signature=ab12"], [f"https://x/d?X-Amz-Signature={REDACTED}"]),
    (["--pw", "hunter2"], ["--pw", REDACTED]),
    (["-p", "hunter2", "-p", "8080"], ["-p", REDACTED, "-p", "8080"]),
    (["--note=uses sk-abcdefghijklmnopqrstuvwxyz now"], [f"--note=uses {REDACTED} now"]),
    (["-H", "X-Api-Key: 0123abcd"], ["-H", f"X-Api-Key: {REDACTED}"]),
    (["-H", "Authorization: Token 0123abcd"], ["-H", f"Authorization: Token {REDACTED}"]),
    (["-H", "authorization: 0123abcd"], ["-H", f"authorization: {REDACTED}"]),
    (["-H", "Cookie: session=0123abcd"], ["-H", f"Cookie: {REDACTED}"]),
    (["--export=ALL,DB_PASS=hunter22,N=1"], [f"--export=ALL,DB_PASS={REDACTED},N=1"]),
    (["+db={user:me,pass:hunter22}"], [f"+db={{user:me,pass:{REDACTED}"]),
    (['{"logger": {"auth-key": "hunter22"}}'], [f'{{"logger": {{"auth-key": "{REDACTED}"}}}}']),
    (["postgres://me:p@ss@host/db"], [f"postgres://{REDACTED}@host/db"]),
    (
        ["--notify", "https://hooks.slack.com/services/T0/B0/abcdEFGH"],
        ["--notify", f"https://hooks.slack.com/services/{REDACTED}"],
    ),
    (["https://discord.com/api/webhooks/123/abc-def"], [f"https://discord.com/api/webhooks/{REDACTED}"]),
    (["--slack-webhook", "https://example.org/abcdef"], ["--slack-webhook", REDACTED]),
    (["nvapi-abcdefghijklmnop_0123"], [REDACTED]),
    (["ASIAABCDEFGHIJKLMNOP"], [REDACTED]),
    (["-c", "login(token='abcdefgh'); train()"], ["-c", f"login(token='{REDACTED}'); train()"]),
]


@pytest.mark.parametrize(("before", "after"), SECRETS, ids=[" ".join(before) for before, _ in SECRETS])
def test_secrets_do_not_leave(before: list[str], after: list[str]) -> None:
    assert list(redact(before)) == after


@pytest.mark.parametrize(
    "line",
    [
        "--tokenizer bert --max-tokens 512 --monkey=abc",
        "--num-keys 8 --key 3 --auth true",
        "--keyframes x --passes 4 --compass=north",
        "train.py --data /data/tokens.bin --lr=1e-3",
        "--design basic layout --url https://x/d?page=2&sort=key",
        "--export=ALL,PASSES=4,KEY=none torchrun --rdzv-endpoint=h0:29500 --log hooks.py",
        "trainer.max_epochs=3 data.path=s3://bucket/train@v2/x optimizer.lr=1e-4 model.keypoints=17",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert " ".join(redact(line.split())) == line


def test_command_lines_are_bounded() -> None:
    shown = redact(["python", "-c", "x" * 10_000_000, *(["y"] * 10_000)])
    assert len(shown) <= 65
    assert max(map(len, shown)) <= ARGUMENT_LIMIT + 1


@pytest.mark.parametrize(
    "text",
    ["api_key", "token", "a", "a.", "1", "?", "?a", "a=", "key=", "key:", "authorization: ", "://", "://a@", "a://",
     "hooks.slack.com/", "sk-", "basic ", "api_key ", "secret" + 300 * " " + "="],
)  # fmt: skip
def test_hostile_text_costs_no_time(text: str) -> None:
    """The loop does it, for each exec(2) of a watched process."""
    many = [(text * 1024)[:1024]] * 64
    began = time.thread_time()
    redact(many)
    assert time.thread_time() - began < 0.1

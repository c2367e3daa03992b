"""A Slurm cluster of two nodes and a controller on one machine, each with a root file system and a network of its own.

The machine's processes are in one pid namespace, as the probes need it. So that each node's daemon sees its own node's
processes only, as on two machines, a node has a cgroup and the other node's is excluded in its configuration.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from deb import build
from tests.systemd.booted import CACHE, PATH, _have_tracefs, _own_cgroups, _removed, _until, tree

TRAINING = Path(__file__).with_name("slurm_training.py")
SLURM = ("slurmctld", "slurmd", "slurmdbd", "slurm-client", "mariadb-server", "munge", "iproute2")
OWNER, STRANGER = 61190, 61191
USERS = {OWNER: "alice", STRANGER: "bob"}
NODES = ("n1", "n2")
BRIDGE = f"tpb{secrets.token_hex(3)}"
ADDRESSES = {"ctl": "10.77.41.3", "n1": "10.77.41.1", "n2": "10.77.41.2"}
HOSTS = "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in ADDRESSES.items())
CONFIGURATION = """ClusterName=toy
SlurmctldHost=ctl
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm-state
SlurmdSpoolDir=/var/lib/slurm-spool
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SwitchType=switch/none
GresTypes=gpu
Prolog=/etc/slurm/prolog
Epilog=/etc/slurm/epilog
PrologFlags=Alloc
EpilogSlurmctld=/etc/slurm/epilog-slurmctld
NodeName=n[1-2] CPUs=2 RealMemory=2000 Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=10 State=UP OverSubscribe=FORCE:4
"""
DATABASE = """AuthType=auth/munge
DbdHost=ctl
SlurmUser=root
LogFile=/var/log/slurmdbd.log
PidFile=/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct
"""


def layer(depends: tuple[str, ...]) -> tuple[Path, Path]:
    """A layer with Slurm, MariaDB and ``depends`` installed, and the bare tree below it; both are kept in build/."""
    base = tree(depends)
    made = CACHE / "slurm"
    if not (made / "complete").exists():
        shutil.rmtree(made, ignore_errors=True)
        for part in ("upper", "work", "root"):
            (made / part).mkdir(parents=True)
        with overlay(made / "root", [base], made / "upper", made / "work"):
            policy = made / "root/usr/sbin/policy-rc.d"
            policy.write_text("#!/bin/sh\nexit 101\n")  # nothing is started
            policy.chmod(0o755)
            environment = {"DEBIAN_FRONTEND": "noninteractive", "PATH": PATH}
            names = " ".join((*depends, *SLURM))
            for command in ("apt-get update", f"apt-get install -y --no-install-recommends {names}"):
                subprocess.run(
                    ["chroot", made / "root", *command.split()], check=True, stdout=subprocess.DEVNULL, env=environment
                )
        (made / "complete").touch()
    return made / "upper", base


@contextlib.contextmanager
def overlay(root: Path, lower: list[Path], upper: Path, work: Path) -> Iterator[None]:
    options = f"lowerdir={':'.join(map(str, lower))},upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(root)], check=True)
    try:
        yield
    finally:
        _until(lambda: subprocess.run(["umount", root], capture_output=True).returncode == 0)


class Machine:
    """One of the cluster's machines: its root file system, host name and network; processes are this machine's."""

    def __init__(self, name: str, place: Path, lower: list[Path], shown: tuple[Path, ...]) -> None:
        self.name = name
        self.root = place / "root"
        self._cgroup = f"trainprobe-{name}-{secrets.token_hex(3)}"
        self._lower, self._place, self._shown = lower, place, shown
        self._cgroups: list[Path] = []
        self._holder: subprocess.Popen[bytes] | None = None

    @property
    def cgroup(self) -> str:
        return f"/{self._cgroup}"

    def start(self) -> None:
        for part in ("root", "upper", "work"):
            (self._place / part).mkdir(parents=True)
        self._cgroups = _own_cgroups(self._cgroup)
        options = f"lowerdir={':'.join(map(str, self._lower))},upperdir={self._place / 'upper'}"
        subprocess.run(
            ["mount", "-t", "overlay", "overlay", "-o", f"{options},workdir={self._place / 'work'}", str(self.root)],
            check=True,
        )
        binds = [f"mount --rbind {part} {self.root}{part}" for part in ("/proc", "/sys", "/dev")]
        binds += [f"mkdir -p {self.root}{path} && mount --bind {path} {self.root}{path}" for path in self._shown]
        setup = [
            f"hostname {self.name}",
            *binds,
            f"mount -t tmpfs tmpfs {self.root}/run",
            "echo ready",
            "exec sleep inf",
        ]
        joined = " && ".join(f"echo $$ >{cgroup}/cgroup.procs" for cgroup in self._cgroups)
        self._holder = subprocess.Popen(
            ["sh", "-c", f"{joined} && exec unshare --mount --uts --net sh -c {shlex.quote(' && '.join(setup))}"],
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"
        link = f"tp{self._cgroup[-6:]}{self.name[-1]}"
        for command in (
            f"link add {link} type veth peer name eth0 netns {self._holder.pid}",
            f"link set {link} master {BRIDGE} up",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        self.told(f"ip addr add {ADDRESSES[self.name]}/24 dev eth0 && ip link set eth0 up && ip link set lo up")

    def kill(self) -> None:
        """Its processes, without waiting: the last close of a daemon's probes takes seconds."""
        for cgroup in self._cgroups:
            for pid in (cgroup / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)

    def stop(self) -> None:
        """After ``kill``; nothing of it is left."""
        if self._holder is not None:
            self._holder.wait()
        for cgroup in self._cgroups:
            _until(lambda cgroup=cgroup: _removed(cgroup))  # type: ignore[misc]
        _until(lambda: subprocess.run(["umount", self.root], capture_output=True).returncode == 0)

    def run(self, command: str, *, user: str = "", timeout: float = 60) -> subprocess.CompletedProcess[str]:
        assert self._holder is not None
        entered = ["nsenter", f"--target={self._holder.pid}", "-m", "-u", "-n", "chroot", str(self.root)]
        clean = ["env", "-i", f"PATH={PATH}", "HOME=/", "LANG=C.UTF-8"]
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        joined = " && ".join(f"echo $$ >{cgroup}/cgroup.procs" for cgroup in self._cgroups)
        shell = ["sh", "-c", f'{joined} && exec "$@"', "sh", *entered, *clean, *as_user, "bash", "-c", command]
        return subprocess.run(shell, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)

    def told(self, command: str, *, user: str = "", timeout: float = 60) -> str:
        """The output of a command that must succeed."""
        done = self.run(command, user=user, timeout=timeout)
        assert done.returncode == 0, f"{self.name}: {command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def begin(self, command: str) -> None:
        """A program that stays; it ends with the machine."""
        self.told(f"mkdir -p /var/log; setsid {command} >>/var/log/{command.split()[0]}.out 2>&1 &")

    def wait_for(self, command: str, seconds: float) -> str:
        until = time.monotonic() + seconds
        while (done := self.run(command)).returncode != 0:
            assert time.monotonic() < until, f"{self.name}: {command}\n{done.stdout}{done.stderr}\n{self.logs()}"
            time.sleep(0.2)
        return done.stdout.strip()

    def logs(self) -> str:
        return self.run("tail -n 12 /var/log/*.out /var/log/slurm*.log").stdout


class Cluster:
    """A controller with its database, and two nodes with slurmd, daemon, exporter. Nothing of it is left at the end."""

    def __init__(self, depends: tuple[str, ...], shown: tuple[Path, ...]) -> None:
        self._lower = list(layer(depends))
        self._place = Path(tempfile.mkdtemp(prefix="cluster-", dir=CACHE))
        self.machines = {
            name: Machine(name, self._place / name, [self._place / "common", *self._lower], shown) for name in ADDRESSES
        }
        self.controller = self.machines["ctl"]
        self.nodes = [self.machines[name] for name in NODES]

    def __enter__(self) -> Cluster:
        try:
            _have_tracefs()
            self._common()
            subprocess.run(["ip", "link", "add", BRIDGE, "type", "bridge"], check=True)
            subprocess.run(["ip", "link", "set", BRIDGE, "up"], check=True)
            for machine in self.machines.values():
                machine.start()
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for machine in self.machines.values():
            machine.kill()
        for machine in self.machines.values():
            machine.stop()
        subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)
        shutil.rmtree(self._place)

    def _common(self) -> None:
        """What all machines have: our package, Slurm's configuration with our programs, two users."""
        parts = {part: self._place / part for part in ("common", "common-work", "common-root")}
        for path in parts.values():
            path.mkdir()
        root = parts["common-root"]
        with overlay(root, self._lower, parts["common"], parts["common-work"]):
            package = build.build(root / "root", "1.0", build.source_date())
            commands = [f"dpkg -i /root/{package.name}"]
            commands += [f"useradd --uid {uid} --create-home {name}" for uid, name in USERS.items()]
            for command in commands:
                subprocess.run(["chroot", root, *command.split()], check=True, stdout=subprocess.DEVNULL)
            (root / "etc/slurm/slurm.conf").write_text(CONFIGURATION)
            (root / "etc/slurm/gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
            (root / "etc/slurm/slurmdbd.conf").write_text(DATABASE)
            (root / "etc/slurm/slurmdbd.conf").chmod(0o600)
            for path in (root / "usr/share/doc/trainprobe/examples/slurm").iterdir():
                shutil.copy(path, root / "etc/slurm" / path.name)
                (root / "etc/slurm" / path.name).chmod(0o755)
            (root / "etc/hosts").write_text(HOSTS)
            (root / "etc/trainprobe/exporter.yaml").write_text("listen: 0.0.0.0:19752\n")
            (root / "opt").mkdir(exist_ok=True)
            shutil.copy(TRAINING, root / "opt/train.py")

    def _start(self) -> None:
        for machine in self.machines.values():
            machine.told("mkdir -p /run/munge /var/lib/slurm-state /var/lib/slurm-spool && chown munge: /run/munge")
            machine.told("setpriv --reuid=munge --regid=munge --clear-groups munged --force")
        self.controller.told("mkdir -p /run/mysqld && chown mysql /run/mysqld")
        self.controller.begin("mariadbd --user=mysql --skip-networking --innodb-flush-log-at-trx-commit=0")
        self.controller.wait_for("mariadb-admin ping", 20)
        self.controller.begin("slurmdbd -D")
        self.controller.wait_for("sacctmgr -n list cluster", 20)
        self.controller.told(
            "sacctmgr -i add cluster toy; sacctmgr -i add account lab; sacctmgr -i add user alice account=lab"
        )
        self.controller.begin("slurmctld -D")
        for node, other in zip(self.nodes, reversed(self.nodes), strict=True):
            excluded = f'targets: {{exclude: {{cgroups: ["{other.cgroup}", "{other.cgroup}/*"]}}}}\n'
            node.told(f"echo {shlex.quote(excluded)} >/etc/trainprobe/trainprobe.yaml")
            node.told(
                "mkdir -p /run/trainprobe && chgrp trainprobe /run/trainprobe && mkdir -m 755 /run/trainprobe-exporter"
            )
            node.begin("trainprobe daemon")
            node.begin("trainprobe-exporter")
            node.begin("slurmd -D")
        for node in self.nodes:
            node.wait_for("test -e /run/trainprobe/report.json", 30)
        self.controller.wait_for("test $(sinfo -h -t idle -o %D) = 2", 30)

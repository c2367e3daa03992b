"""When an alert fires: every limit of the rules, once, with its unit and its reason. Rules and texts quote these."""

from __future__ import annotations

# Windows, as Prometheus writes them. All hold at a scrape interval of 60 s: three samples in the shortest.
LATE_WINDOW = "3m"  # as short as that allows: a rank that is late is named within a minute
STALL_WINDOW = "5m"
LOST_WINDOW = "10m"
BUDGET_WINDOW = "1h"
GOODPUT_WINDOW = "6h"  # beside BUDGET_WINDOW: a start or a single restart is no trend
EVENT_WINDOW = "10m"  # an event is told for this long; longer than a run's series outlive it, so that none is missed
PRESSURE_WINDOW = "5m"
HOURS_WINDOW = "5m"  # hours are added up of windows as long as their rules' interval, so that each second counts once
ACCOUNT_WINDOW = "1h"  # and of these again, for questions over weeks

STALLED_SHARE = 0.5  # of STALL_WINDOW: more of it was lost to stalls than not
LOST_BUDGET_SHARE = 0.10  # a tenth of a run's time is worth somebody's time
BUDGET_WALL_SECONDS = 1800  # a run younger than this has no hour to judge by
BUDGET_FOR = "10m"
RESTARTS = 3  # attempts of a job, each shorter than BUDGET_WALL_SECONDS on average, so that no window shows them
BADPUT_BUDGET_SHARE = 0.30  # of a job's wall time, restarts included; large jobs reach less

NO_PROGRESS_SECONDS = 600
NO_PROGRESS_AT_FIRST = "30m"  # of the first steps nobody knows how long they should take
NO_PROGRESS_BASELINES = 20  # a run whose step takes a minute may be silent for twenty of them

SLOWER_SHARE = 0.10  # the baseline against that of SLOWER_AGO before
SLOWER_AGO = "1h"
SLOWER_FOR = "10m"

MEMORY_EXHAUSTION_SECONDS = 900  # time to save and stop
CGROUP_FILL_SHARE = 0.90  # page cache that goes first is not counted
SWAP_FILL_SHARE = 0.90
SHM_FILL_SHARE = 0.85  # one batch more may be large
FD_FILL_SHARE = 0.85
FILL_FOR = "2m"
FD_EXHAUSTION_SECONDS = 3600
CHECKPOINT_ROOM_FACTOR = 1.1  # the next checkpoint is about as large as the latest
FREE_INODES = 16

SWAP_IN_PAGES_PER_SECOND = 100  # of the host: swap that is only full moves nothing
MAJOR_FAULTS_PER_SECOND = 10  # of the run: it is this one that waits for them
SWAP_IN_FOR = "1m"
PRESSURE_SHARE = 0.10  # of the time, everything that wanted to run waited for memory
PRESSURE_FOR = "2m"

THROTTLED_SHARE = 0.10
THROTTLED_FOR = "5m"
PROGRAM_XIDS = "13|31|43|45"  # NVIDIA's list: errors of the program, and channels of one that ended
# Not a fault: the power limit at high load, clocks set on purpose, an idle GPU.
THROTTLE_IS_NORMAL = "sw_power_cap|gpu_idle|applications_clocks_setting|display_clock_setting|sync_boost"

LATE_SHARE = 0.05  # of the time: from here on the late rank is recorded; 30 s of lateness are more of LATE_WINDOW
OWN_LOSS_SHARE = 0.02  # what a rank itself loses less of its time to is no cause of its being late
STRAGGLER_SHARE = 0.15  # of the time: so much more do the other ranks wait on average
STRAGGLER_TIE_SHARE = 0.02  # ranks this close to the one that waits least share the blame
STRAGGLER_FOR = "5m"  # longer than one long checkpoint of one rank stays in LATE_WINDOW

DOWN_FOR = "3m"
DEGRADED_FOR = "10m"

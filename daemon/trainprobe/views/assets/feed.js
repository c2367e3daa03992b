// Where the data comes from: the server that the page came from, or the file that the page is.

const REFRESH_MS = 2000;
const RELOAD_STEPS_MS = 5 * 60 * 1000; // the server thins out old steps; so does the page, by asking for all again
const FINE_SECONDS = 900;
const ROUNDING = 0.001; // seconds: an end is a sum
const MOST_ROWS = 60000;
const MOST_SAMPLES = 20000;
const TOKEN = "trainprobe-token";
const READER = document.documentElement.lang;
const IN_LANGUAGE = READER === "en" ? {} : { lang: READER }; // what has no translation comes in English
// Below a proxy's path too, and without the name and password that an address may hold: fetch refuses those.
const HERE = `${location.origin}${location.pathname.replace(/[^/]*$/, "")}`;

const embedded = JSON.parse(byId("data").textContent);

// The token leaves the address bar (and with it the history, screenshots and the address that is sent to a colleague).
function takeToken() {
  const query = new URLSearchParams(location.search);
  const given = query.get("token");
  if (given === null) {
    try { return sessionStorage.getItem(TOKEN); } catch { return null; }
  }
  try { sessionStorage.setItem(TOKEN, given); } catch { /* storage is switched off: the token lives as long as the page */ }
  query.delete("token");
  history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}${location.hash}`);
  return given;
}

class Refused extends Error {}

class Feed {
  constructor() {
    this.isLive = embedded === null;
    this.token = this.isLive ? takeToken() : null;
    this.report = embedded ? keyed(embedded.report) : null;
    this.rows = new Map(); // "run\nrank" -> step rows in the order of time
    this.samples = new Map(); // the same -> what reports said while this page was open
    this.stalls = new Map(); // the same -> stalls that are kept beyond the report's
    this.loaded = new Map(); // the same -> when all of it was asked for
    this.refined = new Map(); // the same -> since when steps were asked for once more, finer
    this.sent = this.received = NaN; // the host's clock in the latest answer, and this page's when it came: seconds, milliseconds
    this.keepsSteps = true; // false: this server has no history to ask for
    for (const one of embedded?.steps ?? []) this.rows.set(`${one.run}\n${one.rank}`, one.rows);
  }

  // The latest report. Throws Refused when the token is not (any more) good, Error when there is no answer.
  async refresh() {
    if (!this.isLive) return this.report;
    const report = keyed(await this.ask("api/v1/report", IN_LANGUAGE));
    if (report.generated !== this.report?.generated) this.remember(this.report, report);
    this.report = report;
    return report;
  }

  async ask(path, fields = {}) {
    const query = new URLSearchParams(fields);
    const headers = this.token ? { "X-Trainprobe-Token": this.token } : {};
    const response = await fetch(`${HERE}${path}${query.size ? `?${query}` : ""}`, { headers, cache: "no-store", credentials: "same-origin" });
    if (response.status === 401) throw new Refused();
    if (!response.ok) throw Object.assign(new Error((await response.text()).trim()), { status: response.status });
    const sent = response.headers.get("X-Trainprobe-Monotonic");
    if (sent !== null) Object.assign(this, { sent: Number(sent), received: performance.now() });
    return response.json();
  }

  // Seconds since the report was made. Neither the host's time of day counts, which may be set, nor this machine's.
  age() {
    const age = this.sent - (this.report.generated_monotonic ?? NaN) + (performance.now() - this.received) / 1000;
    return age >= 0 ? age : Date.now() / 1000 - this.report.generated; // of an earlier boot, or without that clock
  }

  // What is kept of a rank beyond the report: step rows and older stalls. All of it now and then, else what is new.
  async history(run, rank, total, told) {
    if (!this.isLive) return;
    const key = `${run}\n${rank}`;
    const all = Date.now() - (this.loaded.get(key) ?? 0) > RELOAD_STEPS_MS;
    const whose = { run, rank };
    try {
      if (this.keepsSteps) await (all ? this.loadSteps(key, whose) : this.addSteps(key, whose));
      if (all && total > told) this.stalls.set(key, (await this.ask("api/v1/stalls", { ...whose, ...IN_LANGUAGE })).stalls);
      if (all) this.loaded.set(key, Date.now());
    } catch (error) {
      if (error.status !== 404) throw error;
      this.keepsSteps = false;
    }
  }

  // The whole run, as finely as one answer holds.
  async loadSteps(key, whose) {
    const whole = (await this.ask("api/v1/steps", whose)).rows;
    this.refined.delete(key);
    if (whole.length) this.rows.set(key, whole);
  }

  // Step by step where that is still kept, from the left end of what is looked at: one answer holds only so many rows.
  async refine(run, rank, from) {
    const key = `${run}\n${rank}`;
    const known = this.rows.get(key) ?? [];
    const end = known.at(-1)?.start ?? 0;
    const since = Math.max(from, end - FINE_SECONDS);
    const before = this.refined.get(key) ?? -Infinity;
    if (!this.isLive || since < before + (end - before) / 10) return false; // no finer than what the last one brought
    const first = known.findIndex((row) => row.start + row.seconds > since);
    if (first < 0 || !known.slice(first).some((row) => row.count > 1 && !row.reckoned)) return false;
    this.refined.set(key, since);
    const begin = known[first].start;
    const fine = (await this.ask("api/v1/steps", { run, rank, since: begin })).rows.filter((row) => row.start >= begin - ROUNDING);
    this.rows.set(key, joined(known, fine));
    return true;
  }

  async addSteps(key, whose) {
    const known = this.rows.get(key) ?? [];
    const since = known.at(-1)?.start ?? 0;
    const news = (await this.ask("api/v1/steps", { ...whose, since })).rows;
    this.rows.set(key, joined(known, news).slice(-MOST_ROWS));
  }

  stallsOf(run, rank) {
    const kept = new Map((this.stalls.get(`${run}\n${rank.name}`) ?? []).map((stall) => [stall.id, stall]));
    for (const stall of rank.stalls) kept.set(stall.id, stall);
    return [...kept.values()];
  }

  rowsOf(run, rank) {
    return this.rows.get(`${run}\n${rank}`) ?? [];
  }

  // The report's points over the whole run, and those that this page has seen itself, which are finer.
  samplesOf(run, rank) {
    const own = this.samples.get(`${run}\n${rank.name}`) ?? [];
    const { time = [], pss_bytes: pss, swap_bytes: swap, workers, gpu_utilization: used = [] } = rank.samples ?? {};
    const told = time.map((at, place) => ({ time: at, pss: pss[place], swap: swap[place], workers: workers[place], used: used[place] ?? null, gpus: [] }));
    return [...told.filter((sample) => !own.length || sample.time < own[0].time), ...own];
  }

  // What only the latest report tells becomes a line over time while the page is open.
  remember(before, report) {
    for (const run of report.runs) {
      for (const rank of run.ranks) {
        const key = `${run.key}\n${rank.name}`;
        const samples = this.samples.get(key) ?? [];
        samples.push(sampleOf(report, rank));
        if (samples.length > MOST_SAMPLES) samples.splice(0, MOST_SAMPLES / 4);
        this.samples.set(key, samples);
        if (!this.rowsOf(run.key, rank.name).some((row) => !row.reckoned)) this.addDifference(key, before, report, run.key, rank);
      }
    }
  }

  // Without a history of steps: the steps between two reports are one row.
  addDifference(key, before, report, run, rank) {
    const former = before?.runs.find((r) => r.key === run)?.ranks.find((r) => r.name === rank.name);
    const count = rank.steps.count - (former?.steps.count ?? rank.steps.count);
    if (!former || count <= 0) return;
    const spent = rank.counters.step_duration_sum - former.counters.step_duration_sum;
    const states = {};
    for (const [state, value] of Object.entries(rank.ledger)) states[state] = value - (former.ledger[state] ?? 0);
    const rows = this.rows.get(key) ?? [];
    rows.push({ start: before.generated, seconds: report.generated - before.generated, count, min: spent / count, max: spent / count, states, reckoned: true });
    this.rows.set(key, rows);
  }
}

// A run's name may have several launches on a host; each has a key of its own, by which rows and stalls are kept.
function keyed(report) {
  for (const run of report.runs) run.key = run.attempt > 1 ? `${run.run}.${run.attempt}` : run.run;
  return report;
}

// Rows in the order of time; the later ones replace those that begin with them or after.
function joined(rows, later) {
  const from = later[0]?.start ?? Infinity;
  return [...rows.filter((row) => row.start < from - ROUNDING), ...later];
}

function sampleOf(report, rank) {
  const gpus = gpuStates(report, rank).map((gpu) => ({ index: gpu.index, used: gpu.utilization }));
  const known = gpus.map((gpu) => gpu.used).filter(isKnown);
  return {
    time: report.generated, pss: rank.memory.pss_bytes, swap: rank.memory.swap_bytes, workers: rank.workers.live,
    used: known.length ? sum(known) / known.length : null, gpus,
  };
}

// The rank's GPUs as they are now.
function gpuStates(report, rank) {
  const own = new Set(rank.gpus.map((gpu) => gpu.uuid));
  return (report.gpus ?? []).filter((gpu) => own.has(gpu.uuid));
}

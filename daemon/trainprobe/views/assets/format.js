// Numbers, times and names as people read them.

const NOTHING = "–";

function isKnown(value) {
  return value !== null && value !== undefined && Number.isFinite(value);
}

// Durations, sizes and shares are rounded as model/amounts.py does it: one figure looks the same everywhere.
function seconds(value) {
  if (!isKnown(value)) return NOTHING;
  const s = Math.abs(value);
  if (s === 0) return "0 ms";
  if (s < 0.0009995) return `${Math.round(value * 1e6)} us`;
  if (s < 0.00995) return `${(value * 1e3).toFixed(1)} ms`;
  if (s < 0.9995) return `${Math.round(value * 1e3)} ms`;
  if (s < 9.995) return `${value.toFixed(2)} s`;
  if (s < 120) return `${value.toFixed(1)} s`;
  const minutes = Math.floor(Math.round(s) / 60);
  if (minutes < 120) return `${minutes} min ${two(Math.round(s) % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
}

function bytes(value) {
  if (!isKnown(value)) return NOTHING;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  for (; Math.abs(value) >= 999.5 && place < units.length - 1; place++) value /= 1000;
  return `${value.toFixed(place === 0 || Math.abs(value) >= 99.5 ? 0 : 1)} ${units[place]}`;
}

function number(value) {
  if (!isKnown(value)) return NOTHING;
  if (Number.isInteger(value)) return value.toLocaleString("en-GB").replaceAll(",", " ");
  return String(Number(value.toPrecision(4)));
}

function percent(share) {
  if (!isKnown(share)) return NOTHING;
  return `${(100 * share).toFixed(share !== 0 && share < 0.9995 ? 1 : 0)} %`;
}

function measured(value, unit) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return `${clean(value)}${unit ? ` ${clean(unit)}` : ""}`;
  if (unit === "s") return seconds(value);
  if (unit === "bytes" || unit === "B") return bytes(value);
  if (unit === "ratio") return percent(value);
  return `${number(value)}${unit ? ` ${clean(unit)}` : ""}`;
}

const two = (n) => String(n).padStart(2, "0");

// The second that has begun, as the text report has it; a tick of the axis may lie just below its second.
function clock(time, digits = 0) {
  const at = new Date(digits ? time * 1000 : Math.floor(time + 0.0005) * 1000);
  const fraction = digits ? `.${String(Math.floor((time % 1) * 1000)).padStart(3, "0").slice(0, digits)}` : "";
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}${fraction}`;
}

function date(time) {
  const at = new Date(time * 1000);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

// Names come from strangers: what steers a display (controls, reading directions, invisible letters) is spelt out.
// eslint-disable-next-line no-control-regex
const STEERING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
const LONGEST = 4000;

function clean(text) {
  const whole = String(text);
  const cut = whole.length > LONGEST ? `${whole.slice(0, LONGEST)} …` : whole;
  return cut.replace(STEERING, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function scheduledAs(labels) {
  const job = labels?.slurm_array_task || labels?.slurm_job;
  if (job) return [say("Slurm job"), job, labels.slurm_job_name].filter(Boolean).join(" ");
  return labels?.pod ? `pod ${[labels.namespace, labels.pod, labels.container_name].filter(Boolean).join("/")}` : "";
}

function fileName(path) {
  return path.replace(/\/+$/, "").split("/").pop() || path;
}

// The one time axis that all lanes share.

const TICKS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
const NARROWEST = 0.02; // seconds
const TICK_PIXELS = 96;

class Axis {
  constructor() {
    this.all = { from: 0, to: 1 }; // the whole run
    this.from = 0;
    this.to = 1;
    this.width = 1;
    this.follows = true; // the right end is now
  }

  x(time) {
    return ((time - this.from) / (this.to - this.from)) * this.width;
  }

  time(x) {
    return this.from + (x / this.width) * (this.to - this.from);
  }

  get span() {
    return this.to - this.from;
  }

  // More of the run is known; a view that follows moves on with it.
  grow(all) {
    const showedAll = this.showsAll();
    this.all = all;
    if (!this.follows) return;
    if (showedAll) this.set(all.from, all.to);
    else this.set(all.to - this.span, all.to);
  }

  showsAll() {
    return this.from <= this.all.from + 1e-6 && this.to >= this.all.to - 1e-6;
  }

  set(from, to) {
    const whole = this.all.to - this.all.from;
    const span = Math.min(Math.max(to - from, NARROWEST), whole);
    this.from = Math.min(Math.max((from + to) / 2 - span / 2, this.all.from), this.all.to - span);
    this.to = this.from + span;
    this.follows = this.to >= this.all.to - 1e-6;
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    const from = around - (around - this.from) * factor;
    this.set(from, from + this.span * factor);
  }

  move(by) {
    this.set(this.from + by, this.to + by);
  }

  ticks() {
    const wanted = (this.span / this.width) * TICK_PIXELS;
    const step = TICKS.find((tick) => tick >= wanted) ?? TICKS.at(-1);
    const offset = new Date(this.from * 1000).getTimezoneOffset() * 60;
    const first = Math.ceil((this.from - offset) / step) * step + offset;
    const digits = step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : 3;
    const out = [];
    for (let place = 0; first + place * step < this.to; place++) {
      const time = first + place * step;
      const midnight = step >= 3600 && clock(time) === "00:00:00";
      const label = midnight ? date(time).slice(5) : clock(time, digits).slice(0, step >= 60 ? 5 : undefined);
      out.push({ time, label });
    }
    return out;
  }
}

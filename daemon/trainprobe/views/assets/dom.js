// Elements. Text becomes text nodes only: nothing that a training calls itself is ever parsed as HTML.

const byId = (id) => document.getElementById(id);

function h(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "tone") element.style.setProperty("--tone", value);
    else if (name === "width") element.style.width = value;
    else if (name === "grow") element.style.flexGrow = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : clean(value));
  }
  element.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false).map(node));
  return element;
}

function node(child) {
  return child instanceof Node ? child : document.createTextNode(clean(child));
}

function swatch(tone) {
  return h("span", { class: "swatch", tone, "aria-hidden": "true" });
}

// Builds a part of the page again only when what it tells has changed, and keeps the focus and the scrolling in it.
function fill(element, told, build) {
  const signature = JSON.stringify(told);
  if (element.told === signature) return;
  element.told = signature;
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset?.id : null;
  const scrolled = element.querySelector(".scroll")?.scrollTop;
  element.replaceChildren(...[build()].flat().filter(Boolean));
  if (focused) element.querySelector(`[data-id="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  const scroller = element.querySelector(".scroll");
  if (scroller && scrolled) scroller.scrollTop = scrolled;
}

const LOOK = JSON.parse(byId("look").textContent);

function titleOf(kind, key) {
  return LOOK[kind][key] ?? String(key);
}

const causeTone = (cause) => tone("cause", "causes", cause, "unknown");
const stateTone = (state) => tone("state", "states", state, "other");
const phaseTone = (phase) => tone("phase", "phases", phase, "startup");

function tone(prefix, kind, key, otherwise) {
  return `var(--${prefix}-${Object.hasOwn(LOOK[kind], key) ? key : otherwise})`;
}

// Colours for canvases: what a CSS colour is right now, in this theme.
const palette = new Map();

function colour(css) {
  let known = palette.get(css);
  if (known === undefined) {
    const probe = byId("foot");
    probe.style.color = css;
    known = getComputedStyle(probe).color;
    probe.style.color = "";
    palette.set(css, known);
  }
  return known;
}

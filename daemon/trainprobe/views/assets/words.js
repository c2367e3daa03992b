// What the page says, in the reader's language: the English text is the key, and what has no translation stays English.

const WORDS = JSON.parse(document.getElementById("words").textContent);

function say(text, values = {}) {
  return (WORDS[text] ?? text).replace(/\{(\w+)\}/g, (place, name) => values[name] ?? place);
}

function many(count, one, more) {
  return say(count === 1 ? one : more, { number: number(count) });
}

// A text that goes through `say` elsewhere: translators find it here.
function word(text) {
  return text;
}

// The closed sets of a report that are shown as they are.
[
  word("input"), word("compute"), word("mixed"), word("unknown"), word("complete"), word("error"), word("unsafe"), word("open"),
  word("finished"), word("oom_kill"), word("killed"), word("crashed"), word("exited"), word("up"), word("unavailable"), word("lost"),
  word("cgroup"), word("host"), word("longest"), word("latest"),
].forEach(word);

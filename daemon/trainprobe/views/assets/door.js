(() => {
  "use strict";
  // A reload of the page comes here without the token that the tab was opened with; the tab remembers it.
  let kept = null;
  try { kept = sessionStorage.getItem("trainprobe-token"); } catch { /* storage is switched off */ }
  const given = new URLSearchParams(location.search).get("token");
  if (given !== null) {
    const why = document.getElementById("why");
    why.textContent = why.dataset.wrong;
    try { sessionStorage.removeItem("trainprobe-token"); } catch { /* storage is switched off */ }
  } else if (kept) {
    location.replace(`?token=${encodeURIComponent(kept)}${location.hash}`);
  }
})();

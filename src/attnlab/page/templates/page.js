"use strict";
// Sorting, filtering and hover; the page is complete without.
const value = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.order !== undefined ? Number(cell.dataset.order) : cell.textContent.trim();
};
const order = (a, b) =>
  typeof a === typeof b
    ? typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true })
    : typeof a === "number" ? -1 : 1;
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.dataset.sort = "";
    head.tabIndex = 0;
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "ascending" : "descending");
      const rows = [...body.rows].sort((a, b) => order(value(a, column), value(b, column)));
      if (!down) rows.reverse();
      body.append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  });
  if (body.rows.length > 8) {
    const filter = document.createElement("input");
    filter.className = "filter";
    filter.type = "search";
    filter.placeholder = "filter rows";
    filter.setAttribute("aria-label", "filter rows");
    filter.addEventListener("input", () => {
      const wanted = filter.value.toLowerCase();
      for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
    table.parentElement.before(filter);
  }
}
// What is folded shut on the screen belongs on paper.
addEventListener("beforeprint", () => {
  for (const closed of document.querySelectorAll("details:not([open])")) {
    closed.open = true;
    addEventListener("afterprint", () => { closed.open = false; }, { once: true });
  }
});
const tip = document.getElementById("tip");
document.addEventListener("pointermove", (event) => {
  const mark = event.target.closest ? event.target.closest(".frame [aria-label]") : null;
  tip.hidden = !mark || mark.classList.contains("role-axis");
  if (tip.hidden) return;
  tip.textContent = mark.getAttribute("aria-label");
  const left = Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8);
  tip.style.left = `${Math.max(left, 8)}px`;
  tip.style.top = `${Math.max(event.clientY - tip.offsetHeight - 10, 4)}px`;
});

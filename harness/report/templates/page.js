"use strict";
// Sort a table by the clicked column: numbers by their exact value, text by the alphabet.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, table = head.closest("table"), body = table.tBodies[0];
    const column = head.cellIndex, up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = (row) => {
      const data = row.cells[column].querySelector("data");
      return data ? Number(data.value) : row.cells[column].textContent.trim();
    };
    const order = (a, b) => {
      const x = value(a), y = value(b), numbers = typeof x === "number" && typeof y === "number";
      if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
      return (up ? 1 : -1) * (numbers ? x - y : x.localeCompare(y));
    };
    for (const row of [...body.rows].sort(order)) body.append(row);
  });
}
// Paper has no "open": print what is folded away.
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
});

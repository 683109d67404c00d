"""The script of a report: a click on a heading sorts the overview. Without it the report reads as well."""

from __future__ import annotations

import base64
import hashlib

SCRIPT = """
for (const button of document.querySelectorAll("th button")) button.onclick = () => {
  const head = button.closest("th"), body = head.closest("table").tBodies[0], column = head.cellIndex;
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const value = row => row.cells[column].dataset.v ?? row.cells[column].textContent;
  const order = (a, b) => isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
  const rows = [...body.rows].sort((a, b) => order(value(a), value(b)));
  body.append(...(up ? rows : rows.reverse()));
};
"""


def policy() -> str:
    """A content security policy under which this script runs and no other, and nothing is fetched."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"

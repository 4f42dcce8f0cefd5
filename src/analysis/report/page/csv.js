"use strict";

// CSV (RFC 4180) of the rows that a table shows. Columns are {name, value(row)}, or {name, show(row)} for text.

// Spreadsheets run a cell that begins with one of these characters as a formula, also within quotes.
const kFormulaStart = /^[\s\u0000]*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]/;

// Formats a cell. Numbers have nine digits, which identify a float32; text is quoted, and a leading
// apostrophe turns a formula into plain text.
function csvCell(value) {
  if (typeof value === "number") return Number.isFinite(value) ? String(Number(value.toPrecision(9))) : "";
  const text = kFormulaStart.test(value) ? `'${value}` : value;
  return `"${text.replaceAll('"', '""')}"`;
}

function csvOf(columns, rows) {
  const lines = [columns.map((column) => csvCell(column.name))];
  for (const head of rows) lines.push(columns.map((column) => csvCell(column.show ? column.show(head) : column.value(head))));
  return lines.map((cells) => `${cells.join(",")}\r\n`).join("");
}

function downloadCsv(name, text) {
  downloadFile(name, new Blob([text], { type: "text/csv" }));
}

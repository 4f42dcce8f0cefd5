"use strict";

// Helpers shared by the pages of the report and the viewer.

function bytesOf(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; ++i) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

function unpack(text, Type) {
  return new Type(bytesOf(text).buffer);
}

// Decodes bytes [first, last) of a long base64 text without decoding the rest.
function sliceOf(text, first, last) {
  const group = Math.floor(first / 3);
  const bytes = bytesOf(text.slice(4 * group, 4 * Math.ceil(last / 3)));
  return bytes.subarray(first - 3 * group, last - 3 * group);
}

// Formats a number with about four significant digits; "" for a missing number.
function shown(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (Number.isInteger(value)) return String(value);
  if (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5) return value.toExponential(2);
  if (Math.abs(value) < 1e-2) return value.toPrecision(3);
  return Math.abs(value) < 10 ? value.toFixed(4) : value.toPrecision(5);
}

// Creates an element with text. The page never parses text as HTML.
function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function downloadFile(name, blob) {
  const link = element("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

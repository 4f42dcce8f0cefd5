"use strict";

// Colours that people with any kind of colour vision can tell apart.
const colours = (() => {
  const heads = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];  // Okabe and Ito
  const inDarkMode = ["#7cc4f4", "#ff9a5c", "#4fd6b0", "#eeb0d0"];
  const viridis = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37]];
  const darkMode = window.matchMedia("(prefers-color-scheme: dark)");

  // Returns [red, green, blue] of a share between 0 and 1. In light mode the scale runs from yellow
  // to violet, so that large values are dark.
  function scale(share) {
    const part = Math.min(1, Math.max(0, darkMode.matches ? share : 1 - share)) * (viridis.length - 1);
    const below = Math.min(viridis.length - 2, Math.floor(part));
    return viridis[below].map((value, i) => Math.round(value + (part - below) * (viridis[below + 1][i] - value)));
  }

  // Background of a token in 100 steps. The opacity is bounded, so that text on it stays readable.
  const shades = heads.map(() => []);
  darkMode.addEventListener("change", () => shades.forEach((steps) => { steps.length = 0; }));
  function shade(head, share) {
    if (!(share > 0)) return "";
    const step = Math.ceil(100 * share);
    if (!shades[head][step]) {
      const [red, green, blue] = [1, 3, 5].map((i) => parseInt(heads[head].slice(i, i + 2), 16));
      shades[head][step] = `rgba(${red}, ${green}, ${blue}, ${(step / 100 * (darkMode.matches ? 0.75 : 0.55)).toFixed(3)})`;
    }
    return shades[head][step];
  }

  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const line = (head) => (darkMode.matches ? inDarkMode : heads)[head];  // colour of arrows
  return { heads, line, scale, shade, variable, isDark: () => darkMode.matches, onChange: (handler) => darkMode.addEventListener("change", handler) };
})();

"use strict";

// The tooltip, shared by the whole page. Escape hides it.
const hint = (() => {
  const box = element("div", undefined, "hint");
  box.id = "hint";
  box.setAttribute("role", "tooltip");
  box.hidden = true;
  document.body.append(box);
  const hide = () => { box.hidden = true; };
  // Shows the text near a point of the window, in pixels.
  function show(x, y, text) {
    box.textContent = text;
    box.hidden = false;
    const left = Math.min(x + 14, window.innerWidth - box.offsetWidth - 6);
    const below = y + 18 + box.offsetHeight < window.innerHeight;
    box.style.left = `${Math.max(4, left)}px`;
    box.style.top = `${below ? y + 18 : Math.max(4, y - box.offsetHeight - 10)}px`;
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  return { show, hide };
})();

// Shows a sentence while the mouse is over an element or the keyboard focus is on it.
function explain(target, text) {
  target.setAttribute("aria-describedby", "hint");
  target.addEventListener("mousemove", (event) => hint.show(event.clientX, event.clientY, text));
  target.addEventListener("focus", () => {
    if (!target.matches(":focus-visible")) return;
    const box = target.getBoundingClientRect();
    hint.show(box.left, box.bottom - 10, text);
  });
  for (const end of ["mouseleave", "blur"]) target.addEventListener(end, hint.hide);
}

const kDirections = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// Returns the nearest place in the direction of an arrow key, within 45 degrees of it.
function nextPlace(places, from, [stepX, stepY]) {
  let best = null, nearest = Infinity;
  for (const place of places) {
    const x = place.x - from.x, y = place.y - from.y;
    const ahead = x * stepX + y * stepY, aside = Math.abs(x * stepY) + Math.abs(y * stepX);
    if (ahead <= 0.5 || aside > ahead) continue;
    const distance = ahead + 2 * aside;
    if (distance < nearest) [best, nearest] = [place, distance];
  }
  return best;
}

// Adds tooltips to places of a picture. `placesOf` returns [{x, y, text}] with pixels from the
// upper left corner of the picture; `find(x, y, places)` returns the place under the mouse. Arrow
// keys move between places; Enter or a click calls `open(place)`; `mark(place)` shows the current
// one.
function explainPlaces(target, placesOf, { find, open = () => {}, mark = () => {}, opens = () => false }) {
  let current = null;
  const underMouse = (event) => {
    const box = target.getBoundingClientRect();
    return find(event.clientX - box.left, event.clientY - box.top, placesOf());
  };
  const walkTo = (place) => {
    current = place;
    const box = target.getBoundingClientRect();
    hint.show(box.left + place.x, box.top + place.y, place.text);
    mark(place);
  };
  target.tabIndex = 0;
  target.addEventListener("mousemove", (event) => {
    const place = underMouse(event);
    target.style.cursor = place && opens(place) ? "pointer" : "";
    if (place) hint.show(event.clientX, event.clientY, place.text);
    else hint.hide();
  });
  target.addEventListener("click", (event) => {
    const place = underMouse(event);
    if (place) open(place);
  });
  target.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && current) open(current);
    const direction = kDirections[event.key];
    if (!direction) return;
    event.preventDefault();
    const places = placesOf();
    const place = current ? nextPlace(places, current, direction) : places[0];
    if (place) walkTo(place);
  });
  for (const end of ["mouseleave", "blur"]) target.addEventListener(end, hint.hide);
  target.addEventListener("blur", () => mark(null));
}

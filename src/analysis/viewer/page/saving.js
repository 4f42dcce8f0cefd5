"use strict";

// Creates SVG elements and saves them to files.
function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const saving = (() => {
  function svgText(picture) {
    const copy = picture.cloneNode(true);
    const { width, height } = picture.viewBox.baseVal;
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    copy.insertBefore(svg("rect", { width, height, fill: colours.variable("back") }), copy.firstChild);
    return new XMLSerializer().serializeToString(copy);
  }

  function saveSvg(name, picture) {
    downloadFile(`${name}.svg`, new Blob([svgText(picture)], { type: "image/svg+xml" }));
  }

  function savePng(name, picture) {
    const image = new Image();
    image.addEventListener("load", () => {
      const canvas = element("canvas");
      canvas.width = 2 * picture.viewBox.baseVal.width;
      canvas.height = 2 * picture.viewBox.baseVal.height;
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => downloadFile(`${name}.png`, blob), "image/png");
    });
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(picture))}`;
  }

  // Connects the buttons #save-PART-svg and #save-PART-png; `picture()` returns an SVG element.
  function connect(part, nameOf, picture) {
    for (const [kind, save] of [["svg", saveSvg], ["png", savePng]])
      document.getElementById(`save-${part}-${kind}`).addEventListener("click", () => {
        const drawn = picture();
        if (drawn) save(`${nameOf()}-${part}`, drawn);
      });
    for (const kind of ["svg", "png"]) document.getElementById(`save-${part}-${kind}`).setAttribute("aria-label", `Save ${part} as ${kind.toUpperCase()}`);
  }

  return { connect };
})();

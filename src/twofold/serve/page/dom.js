/** Builders of elements. All text enters through textContent. */

const SVG = "http://www.w3.org/2000/svg";

/** Builds an HTML element: h("button", {class: "quiet", onclick: run, vars: {"--w": 0.5}}, "Run"). */
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Builds an SVG element. */
export function s(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, given] of Object.entries(value)) element.style.setProperty(key, given);
    else if (name === "value" && element.localName !== "data" && element.localName !== "option") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Resolves a CSS variable to [red, green, blue] in the theme that is shown. */
export function rgb(variable) {
  const probe = h("span", { vars: { color: `var(${variable})` } });
  document.body.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color.match(/[\d.]+/g).slice(0, 3).map(Number);
}

/** Redraws canvases, whose colors do not follow the theme by themselves. */
export function redrawCanvases() {
  for (const canvas of document.querySelectorAll("canvas")) canvas.redraw?.();
}

let last = 0;

/** Makes an id that no other element has. */
export const unique = (name) => `${name}-${++last}`;

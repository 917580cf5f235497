/** A mask over its image: classes as colors, a pointer that reads them, one class alone if wanted. */

import { h } from "../dom.js";
import { percent } from "../format.js";
import { t } from "../i18n/index.js";
import { imageUrl } from "../widgets.js";

/** Reads a gray image in base64 as rows of numbers from 0 to 255. */
export async function grays(content) {
  const image = new Image();
  image.src = imageUrl(content);
  await image.decode();
  const canvas = h("canvas", { width: image.naturalWidth, height: image.naturalHeight });
  const painter = canvas.getContext("2d", { willReadFrequently: true });
  painter.drawImage(image, 0, 0);
  const bytes = painter.getImageData(0, 0, canvas.width, canvas.height).data;
  return { width: canvas.width, height: canvas.height, values: bytes.filter((_, place) => place % 4 === 0) };
}

const channels = (color) => [1, 3, 5].map((place) => parseInt(color.slice(place, place + 2), 16));

/**
 * image: base64; mask, confidence: from `grays`; classes: [{name, color}]
 * Returns the element, `only(class or null)` and `point(x, y)` in parts of its sides.
 */
export function masked(image, mask, confidence, classes) {
  const canvas = h("canvas", { width: mask.width, height: mask.height, class: "mask" });
  const colors = classes.map((each) => channels(each.color));
  const cross = h("span", { class: "cross", hidden: true });
  const readout = h("output", { class: "readout" }, t("look.hover"));
  const stack = h(
    "div", { class: "stack", tabindex: "0", role: "application", "aria-roledescription": t("look.mask"), "aria-label": t("look.alt", { classes: classes.map((each) => each.name).join(", ") }) },
    h("img", { src: imageUrl(image), alt: "" }), canvas, cross,
  );
  function only(chosen, shaded) {
    const painted = new ImageData(mask.width, mask.height);
    mask.values.forEach((number, place) => {
      const seen = chosen === null || chosen === number;
      const sure = shaded && confidence ? confidence.values[place] : 255;
      painted.data.set([...(colors[number] ?? [0, 0, 0]), seen ? sure : 0], 4 * place);
    });
    canvas.getContext("2d").putImageData(painted, 0, 0);
  }
  function point(x, y) {
    const [column, row] = [Math.floor(x * mask.width), Math.floor(y * mask.height)];
    const place = row * mask.width + column;
    cross.hidden = false;
    cross.style.setProperty("--x", x);
    cross.style.setProperty("--y", y);
    const sure = confidence ? ` · ${percent(confidence.values[place] / 255)}` : "";
    readout.textContent = `${classes[mask.values[place]]?.name ?? "–"}${sure}`;
  }
  only(null, false);
  return { element: h("div", { class: "masked" }, stack, readout), stack, only, point, size: mask };
}

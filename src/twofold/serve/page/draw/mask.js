/** A mask over its image: classes as colors, a pointer that reads them, one class alone if wanted. */

import { h } from "../dom.js";
import { data, percent } from "../format.js";
import { t } from "../i18n/index.js";
import { imageUrl } from "../widgets.js";

const channels = (color) => [1, 3, 5].map((place) => parseInt(color.slice(place, place + 2), 16));

/**
 * image: base64; pixels, confidence: rows of class numbers and of probabilities; classes: [{name, color}]
 * Returns the element, `only(class or null, shaded)` and `point(x, y)` in parts of its sides.
 */
export function masked(image, pixels, confidence, classes) {
  const [height, width] = [pixels.length, pixels[0].length];
  const canvas = h("canvas", { width, height, class: "mask" });
  const colors = classes.map((each) => channels(each.color));
  const cross = h("span", { class: "cross", hidden: true });
  const readout = h("output", { class: "readout" }, t("look.hover"));
  const stack = h(
    "div", { class: "stack", tabindex: "0", role: "application", "aria-roledescription": t("look.mask"), "aria-label": t("look.alt", { classes: classes.map((each) => each.name).join(", ") }) },
    h("img", { src: imageUrl(image), alt: "" }), canvas, cross,
  );
  function only(chosen, shaded) {
    const painted = new ImageData(width, height);
    pixels.forEach((row, y) =>
      row.forEach((number, x) => {
        const seen = chosen === null || chosen === number;
        const alpha = shaded && confidence ? 255 * confidence[y][x] : 255;
        painted.data.set([...(colors[number] ?? [0, 0, 0]), seen ? alpha : 0], 4 * (y * width + x));
      }),
    );
    canvas.getContext("2d").putImageData(painted, 0, 0);
  }
  function point(x, y) {
    const [column, row] = [Math.floor(x * width), Math.floor(y * height)];
    cross.hidden = false;
    cross.style.setProperty("--x", x);
    cross.style.setProperty("--y", y);
    const sure = confidence ? data(confidence[row][column], percent(confidence[row][column])) : "";
    readout.replaceChildren(h("span", {}, classes[pixels[row][column]]?.name ?? "–"), " ", sure);
  }
  only(null, false);
  return { element: h("div", { class: "masked" }, stack, readout), stack, only, point, width, height };
}

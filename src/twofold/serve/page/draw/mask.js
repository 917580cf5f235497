/** A mask over its image: classes as colors, a pointer that reads them, one class alone if wanted. */

import { h } from "../dom.js";
import { data, percent } from "../format.js";
import { t } from "../i18n/index.js";
import { imageUrl } from "../widgets.js";

/** Reads an image in base64 as rows of [red, green, blue]. */
export async function read(content) {
  const image = new Image();
  image.src = imageUrl(content);
  await image.decode();
  const [width, height] = [image.naturalWidth, image.naturalHeight];
  const painter = h("canvas", { width, height }).getContext("2d", { willReadFrequently: true });
  painter.drawImage(image, 0, 0);
  return { width, height, bytes: painter.getImageData(0, 0, width, height).data };
}

/** Class of each pixel, by the color that stands for it. */
export function classNumbers({ width, height, bytes }, classes) {
  const number = ([red, green, blue]) => (red << 16) | (green << 8) | blue;
  const known = new Map(classes.map((each, place) => [number(channels(each.color)), place]));
  const values = new Array(width * height);
  for (let at = 0; at < values.length; at++) values[at] = known.get(number([bytes[4 * at], bytes[4 * at + 1], bytes[4 * at + 2]]));
  return { width, height, values };
}

/** Colors that people of every color vision tell apart (Okabe and Ito), for as many classes as there are of them. */
const PALETTE = ["#56b4e9", "#009e73", "#e69f00", "#d55e00", "#f0e442", "#0072b2", "#cc79a7", "#8c8c8c"];

/** Classes with the colors in which they are drawn. */
export function colored(classes) {
  return classes.length > PALETTE.length ? classes : classes.map((each, place) => ({ ...each, color: PALETTE[place] }));
}

const channels = (color) => [1, 3, 5].map((place) => parseInt(color.slice(place, place + 2), 16));

/**
 * image: base64; mask: from `classNumbers`; confidence: from `read`, 255 where the model is certain; classes: [{name, color}]
 * Returns the element, `only(class or null, shaded)` and `point(x, y)` in parts of its sides.
 */
export function masked(image, mask, confidence, classes) {
  const { width, height } = mask;
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
    mask.values.forEach((number, place) => {
      const seen = chosen === null || chosen === number;
      const alpha = shaded && confidence ? confidence.bytes[4 * place] : 255;
      painted.data.set([...(colors[number] ?? [0, 0, 0]), seen ? alpha : 0], 4 * place);
    });
    canvas.getContext("2d").putImageData(painted, 0, 0);
  }
  function point(x, y) {
    const place = Math.floor(y * height) * width + Math.floor(x * width);
    cross.hidden = false;
    cross.style.setProperty("--x", x);
    cross.style.setProperty("--y", y);
    const sure = confidence ? confidence.bytes[4 * place] / 255 : null;
    readout.replaceChildren(h("span", {}, classes[mask.values[place]]?.name ?? "–"), " ", sure === null ? "" : data(sure, percent(sure)));
  }
  only(null, false);
  return { element: h("div", { class: "masked" }, stack, readout), stack, only, point, width, height };
}

// Names what cannot be read on the page as it is drawn: text without contrast, and texts over each other.
() => {
  const numbers = color => { const parts = color.match(/[\d.]+/g).map(Number); return parts.length > 3 ? parts : [...parts, 1]; };
  const over = (top, below) => [0, 1, 2].map(at => top[3] * top[at] + (1 - top[3]) * below[at]).concat(1);
  const ground = element => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) layers.unshift(numbers(getComputedStyle(each).backgroundColor));
    return layers.reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const luminance = color => color.slice(0, 3).map(part => part / 255).map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const contrast = (one, other) => { const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b); return (light + 0.05) / (dark + 0.05); };
  // A rectangle as far as no scrolling ancestor hides it.
  const seen = (box, element) => {
    let {left, top, right, bottom} = box;
    for (let each = element; each; each = each.parentElement) {
      if (getComputedStyle(each).overflowX === "visible" && getComputedStyle(each).overflowY === "visible") continue;
      const frame = each.getBoundingClientRect();
      [left, top, right, bottom] = [Math.max(left, frame.left), Math.max(top, frame.top), Math.min(right, frame.right), Math.min(bottom, frame.bottom)];
    }
    return {left, top, right, bottom};
  };
  const texts = [], troubles = [];
  const walker = document.createTreeWalker(document.querySelector("dialog[open]") ?? document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    const element = node.parentElement, said = node.data.trim().slice(0, 40);
    if (!said || element.closest("svg, script, style, option, datalist, [hidden], dialog:not([open]), details:not([open]) > :not(summary)")) continue;
    if (!element.checkVisibility({visibilityProperty: true, opacityProperty: true})) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const boxes = [...range.getClientRects()].map(box => seen(box, element)).filter(box => box.right - box.left > 1 && box.bottom - box.top > 1);
    if (!boxes.length) continue;
    const shown = contrast(over(numbers(getComputedStyle(element).color), ground(element)), ground(element));
    if (shown < 4.5) troubles.push(`${said}: contrast ${shown.toFixed(1)}`);
    for (const box of boxes) {
      for (const other of texts) {
        const wide = Math.min(box.right, other.right) - Math.max(box.left, other.left);
        const high = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
        if (wide > 2 && high > 0.3 * Math.min(box.bottom - box.top, other.bottom - other.top)) troubles.push(`${said} lies over ${other.said}`);
      }
    }
    texts.push(...boxes.map(box => ({...box, said})));
  }
  return troubles;
}

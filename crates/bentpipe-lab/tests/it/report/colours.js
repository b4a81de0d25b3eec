// What in the report that is open has too little contrast, by WCAG 2: below 4.5 for a text and below 3 for a
// colour of figures.
(() => {
  const channel = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const parse = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = ([red, green, blue]) =>
    0.2126 * channel(red / 255) + 0.7152 * channel(green / 255) + 0.0722 * channel(blue / 255);
  const contrast = (one, two) => {
    const [dark, light] = [luminance(one), luminance(two)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const behind = (element) => {
    for (let up = element; up; up = up.parentElement) {
      const colour = parse(getComputedStyle(up).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const faint = new Set();
  const check = (what, colour, under, least) => {
    const found = contrast(parse(colour), under);
    if (found < least) faint.add(`${what}: ${colour} on ${under}: ${found.toFixed(2)}`);
  };
  for (const article of document.querySelectorAll("main > article")) article.hidden = false;
  for (const element of document.querySelectorAll("body *:not(script, .run *)")) {
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (own && element.checkVisibility()) {
      const style = getComputedStyle(element);
      const colour = element instanceof SVGElement ? style.fill : style.color;
      check(`text in ${element.tagName}.${element.getAttribute("class")}`, colour, behind(element), 4.5);
    }
    if (element.matches(".swatch")) {
      check(`mark ${element.className}`, getComputedStyle(element).backgroundColor, behind(element.parentElement), 3);
    }
  }
  return { faint: [...faint], paper: getComputedStyle(document.body).backgroundColor };
})()

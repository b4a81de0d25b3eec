// Walks through the report that is open and returns what is wrong with it, a text for each fault, and how
// many figures it has seen. WIDTH is how wide the screen is.
(async () => {
  const faults = [];
  const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
  const until = async (is) => {
    for (let tries = 0; tries < 1200 && !is(); tries++) await sleep(25);
    return is();
  };

  const checkWidth = (where) => {
    const wide = document.documentElement.scrollWidth;
    if (wide > WIDTH) faults.push(`${where}: ${wide} px wide`);
  };

  const isSeen = (text) => text.getAttribute("opacity") !== "0" && text.textContent.trim() !== "";
  const isTurned = (text) => /rotate\((?!0\))/.test(text.getAttribute("transform") ?? "");
  const meet = (one, two) =>
    one.left < two.right - 1 && two.left < one.right - 1 && one.top < two.bottom - 1 && two.top < one.bottom - 1;

  const checkPanel = (name, panel) => {
    const svg = panel.querySelector("svg");
    if (!svg) return faults.push(`${name}: a panel without a drawing`);
    const frame = svg.getBoundingClientRect();
    if (frame.right > WIDTH + 1) faults.push(`${name}: a drawing up to ${frame.right} px`);
    const marks = [...svg.querySelectorAll(".role-mark:is(.mark-rect, .mark-line, .mark-symbol, .mark-rule) > *")];
    const drawn = marks.filter((mark) => {
      const box = mark.getBoundingClientRect();
      return box.width + box.height > 0.5;
    });
    if (drawn.length === 0) faults.push(`${name}: a panel without a mark: ${panel.textContent}`);
    const texts = [...svg.querySelectorAll("text")].filter(isSeen);
    for (const text of texts) {
      const box = text.getBoundingClientRect();
      const within = box.left >= frame.left - 1 && box.right <= frame.right + 1
        && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1;
      if (!within) faults.push(`${name}: ${text.textContent} is cut off`);
    }
    const labels = texts.filter((text) => !isTurned(text)).map((text) => [text, text.getBoundingClientRect()]);
    labels.forEach(([one, box], place) => {
      for (const [two, other] of labels.slice(place + 1)) {
        if (meet(box, other)) faults.push(`${name}: ${one.textContent} lies over ${two.textContent}`);
      }
    });
  };

  let figures = 0;
  for (const tab of document.querySelectorAll("header.top nav a")) {
    tab.click();
    const article = document.querySelector(tab.hash);
    if (!await until(() => !article.hidden)) faults.push(`${tab.hash} is not shown`);
    const name = article.id;
    for (const figure of article.querySelectorAll("figure.chart")) {
      figures++;
      const title = figure.closest("section").id;
      figure.scrollIntoView();
      if (!await until(() => figure.dataset.drawn === "yes")) {
        faults.push(`${title}: not drawn`);
        continue;
      }
      const panels = [...figure.querySelectorAll(".panel")].filter((panel) => !panel.querySelector(".none"));
      if (panels.length === 0) faults.push(`${title}: nothing drawn`);
      for (const panel of panels) checkPanel(title, panel);
    }
    checkWidth(name);
    for (const one of article.querySelectorAll("details")) one.open = true;
    await sleep(100);
    checkWidth(`${name}, all opened`);
    for (const one of article.querySelectorAll("details")) one.open = false;
  }
  return { faults, figures, said: globalThis.said };
})()

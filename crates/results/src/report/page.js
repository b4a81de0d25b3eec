// Shows one paper at a time, leads from a number to its runs, and draws figures once they are seen.

const articles = [...document.querySelectorAll("main > article")];
const tabs = [...document.querySelectorAll("header.top nav a")];

function show() {
  const id = decodeURIComponent(location.hash.slice(1)) || articles[0].id;
  const target = document.getElementById(id) ?? articles[0];
  const article = target.closest("main > article") ?? articles[0];
  for (const one of articles) one.hidden = one !== article;
  for (const tab of tabs) {
    const here = tab.hash === "#" + article.id;
    if (here) {
      tab.setAttribute("aria-current", "page");
      tab.scrollIntoView({ block: "nearest", inline: "center" });
    }
    else tab.removeAttribute("aria-current");
  }
  for (let up = target.parentElement; up; up = up.parentElement) {
    if (up instanceof HTMLDetailsElement) up.open = true;
  }
  if (target === article) scrollTo(0, 0);
  else target.scrollIntoView();
  if (target.matches(".run")) target.focus({ preventScroll: true });
}

addEventListener("hashchange", show);
show();

const config = {
  background: null,
  font: "inherit",
  view: { stroke: null },
  axis: {
    labelColor: "var(--muted)", titleColor: "var(--muted)", titleFontWeight: "normal",
    domainColor: "var(--line)", tickColor: "var(--line)", gridColor: "var(--grid)",
    labelFontSize: 11, titleFontSize: 11, labelLimit: 110,
  },
  axisX: { grid: false, labelOverlap: true },
};

// The largest value that any panel with the same facet shows: they share an axis. A waterfall grows
// along the other one.
function top(rows) {
  let most = 0;
  for (const row of rows) most = Math.max(most, row.x2 ?? row.high ?? row.y ?? 0, row.q95 ?? 0);
  return most;
}

function withTop(spec, most) {
  const copy = structuredClone(spec);
  for (const part of [copy, ...(copy.layer ?? [])]) {
    const along = part.encoding?.x2 ? part.encoding.x : part.encoding?.y;
    if (along?.scale && most > 0) along.scale = { ...along.scale, domainMax: most * 1.05, nice: false };
  }
  return copy;
}

function panel(holder, title) {
  const box = document.createElement("div");
  box.className = "panel";
  if (title) {
    const heading = document.createElement("p");
    heading.textContent = title;
    box.append(heading);
  }
  holder.append(box);
  return box;
}

async function draw(figure, data, picked) {
  const holder = figure.querySelector(".panels");
  for (const view of figure.views ?? []) view.finalize();
  figure.views = [];
  holder.replaceChildren();
  holder.classList.toggle("single", data.facets.length * data.contenders.length === 1);
  const rows = data.rows.filter((row) => picked.every((value, place) => row["p" + place] === value));
  const waterfall = data.spec.encoding?.x2 !== undefined;
  for (const facet of data.facets) {
    const beside = rows.filter((row) => row.f === facet);
    const spec = data.shared ? withTop(data.spec, top(beside)) : data.spec;
    for (const contender of data.contenders) {
      const values = beside.filter((row) => (row.w ?? "") === contender.value);
      const box = panel(holder, [facet, contender.title].filter(Boolean).join(" · "));
      if (values.length === 0) {
        const none = document.createElement("p");
        none.className = "none";
        none.textContent = "not measured";
        box.append(none);
        continue;
      }
      const place = document.createElement("div");
      box.append(place);
      const height = waterfall ? Math.min(360, 40 + 6 * values.length) : 200;
      const full = {
        ...spec, width: "container", height, data: { values }, config,
        autosize: { type: "fit", contains: "padding" },
      };
      const drawn = await vegaEmbed(place, full, { mode: "vega-lite", actions: false, renderer: "svg" });
      figure.views.push(drawn);
    }
  }
  figure.dataset.drawn = "yes";
}

function prepare(figure) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const picked = [...data.start];
  const picks = figure.querySelector(".picks");
  data.picks.forEach((pick, place) => {
    const label = document.createElement("label");
    const select = document.createElement("select");
    for (const value of pick.options) select.add(new Option(value, value, false, value === picked[place]));
    select.addEventListener("change", () => {
      picked[place] = select.value;
      draw(figure, data, picked);
    });
    label.append(pick.label + " ", select);
    picks.append(label);
  });
  draw(figure, data, picked);
}

const figures = document.querySelectorAll("figure.chart");
if (globalThis.vegaEmbed) {
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      seen.unobserve(entry.target);
      prepare(entry.target);
    }
  }, { rootMargin: "400px" });
  for (const figure of figures) seen.observe(figure);
} else {
  for (const figure of figures) figure.hidden = true;
}

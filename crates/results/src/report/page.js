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
  // Vega measures texts by it, so it must be a real one.
  font: getComputedStyle(document.body).fontFamily,
  view: { stroke: null },
  axis: {
    labelColor: "var(--muted)", titleColor: "var(--muted)", titleFontWeight: "normal",
    domainColor: "var(--line)", tickColor: "var(--line)", gridColor: "var(--grid)",
    labelFontSize: 11, titleFontSize: 11, labelLimit: 120, titlePadding: 8,
  },
  axisX: { grid: false, labelOverlap: "greedy", labelSeparation: 8 },
};

// The largest value that `rows` show. A waterfall grows along the other axis.
function top(rows) {
  let most = 0;
  for (const row of rows) most = Math.max(most, row.x2 ?? row.high ?? row.y ?? 0, row.q95 ?? 0);
  return most;
}

// The specification for panels that are read beside each other: axes of one length, the same names along
// them, and a place for each colour, whichever of `rows` a panel has.
function shared(spec, rows) {
  const copy = structuredClone(spec);
  const most = top(rows) * 1.05 || 1;
  for (const { encoding } of [copy, ...(copy.layer ?? [])]) {
    if (!encoding) continue;
    const along = encoding.x2 ? encoding.x : encoding.y;
    if (along?.scale && !along.scale.domain) along.scale = { ...along.scale, domainMax: most, nice: false };
    const { x, xOffset } = encoding;
    const has = (field) => (value) => rows.some((row) => row[field] === value);
    if (x?.scale?.type === "symlog") x.scale = { ...x.scale, domain: [0, Math.max(...rows.map((row) => row.x))] };
    else if (Array.isArray(x?.sort)) x.scale = { domain: x.sort.filter(has("x")) };
    else if (x?.sort) x.scale = { domain: [...new Set(rows.map((row) => row.x))].sort((one, two) => one - two) };
    if (xOffset) xOffset.scale = { domain: xOffset.sort.filter(has("c")) };
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
    const spec = data.shared ? shared(data.spec, data.together ? rows : beside) : data.spec;
    const turned = spec.encoding?.x?.axis?.labelAngle;
    for (const contender of data.contenders) {
      const isIts = (row) => row.f === facet && (row.w ?? "") === contender.value;
      const values = rows.filter(isIts);
      const box = panel(holder, [facet, contender.title].filter(Boolean).join(" · "));
      if (values.length === 0) {
        const none = document.createElement("p");
        none.className = "none";
        none.textContent = data.rows.some(isIts) ? "not for what is picked" : "not in this run";
        box.append(none);
        continue;
      }
      const place = document.createElement("div");
      box.append(place);
      const height = waterfall ? Math.min(360, 40 + 6 * values.length) : turned ? 240 : 200;
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

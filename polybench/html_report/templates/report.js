"use strict";
(() => {
  const root = document.documentElement;
  const figureData = JSON.parse(document.getElementById("figure-data").textContent);
  const darkMode = matchMedia("(prefers-color-scheme: dark)");
  const themeButton = document.getElementById("theme");

  // Tables: sorting, filtering, choice of columns.

  const ORDER = { ranked: 0, unranked: 1, "not-measured": 2 };

  function sortKey(row, column) {
    const cell = [...row.children].find((one) => one.dataset.column === column);
    return cell ? cell.dataset.key : "";
  }

  function compare(one, two, sign) {
    if (one === "" || two === "") return (one === "") - (two === ""); // empty values stay last
    const numbers = [Number(one), Number(two)];
    const both = numbers.every((number) => !Number.isNaN(number));
    return sign * (both ? numbers[0] - numbers[1] : one.localeCompare(two));
  }

  function sort(table, header) {
    const column = header.dataset.column;
    const previous = header.getAttribute("aria-sort");
    const first = header.dataset.better === "higher" ? "descending" : "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    const direction = previous === first ? other : first;
    for (const one of table.tHead.rows[0].cells) one.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const rows = [...table.tBodies[0].rows];
    rows.sort(
      (one, two) =>
        ORDER[one.className] - ORDER[two.className] || compare(sortKey(one, column), sortKey(two, column), sign),
    );
    table.tBodies[0].append(...rows);
  }

  function makeSortable(table) {
    for (const header of table.tHead.rows[0].cells) {
      const sorter = document.createElement("button");
      sorter.type = "button";
      sorter.textContent = header.textContent;
      sorter.addEventListener("click", () => sort(table, header));
      header.replaceChildren(sorter);
      header.setAttribute("aria-sort", "none");
    }
  }

  function matches(row, { name, type, value }) {
    if (!value) return true;
    if (type === "date") return name === "since" ? row.dataset.date >= value : row.dataset.date <= value;
    // A section's notes name other configurations.
    const shown = row.querySelector("h2") ?? row;
    const text = `${shown.textContent} ${row.dataset.words ?? ""}`.toLowerCase();
    return value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
  }

  // Hides the rows of a table, or the children of another element, that do not match all of its inputs.
  function filter(name) {
    const filtered = document.getElementById(name);
    const inputs = [...document.querySelectorAll(`[data-filter="${name}"]`)];
    const rows = [...(filtered.tBodies ? filtered.tBodies[0].rows : filtered.children)];
    for (const row of rows) row.hidden = !inputs.every((input) => matches(row, input));
    const visible = rows.filter((row) => !row.hidden).length;
    const status = document.querySelector(`[data-count="${name}"]`);
    status.textContent = inputs.some(({ value }) => value) ? `${visible} of ${rows.length} ${status.dataset.noun}` : "";
    redraw(elements.filter((element) => element.closest("article") === filtered.closest("article")));
  }

  function toggleColumn(box) {
    const table = document.getElementById(box.dataset.table);
    for (const cell of table.querySelectorAll(`[data-column="${box.dataset.column}"]`)) cell.hidden = !box.checked;
  }

  document.querySelectorAll("table.results").forEach(makeSortable);
  document.querySelectorAll(".tools").forEach((tools) => { tools.hidden = false; });
  for (const input of document.querySelectorAll("[data-filter]")) {
    input.addEventListener("input", () => filter(input.dataset.filter));
  }
  for (const box of document.querySelectorAll("[data-table]")) box.addEventListener("change", () => toggleColumn(box));

  // Figures.

  let isPrinting = false;
  let Plotly = null;
  const PAPER_WIDTH = 680; // pixels

  function isDark() {
    const theme = root.dataset.theme;
    return !isPrinting && (theme ? theme === "dark" : darkMode.matches);
  }

  // Returns data and layout in the colours of the theme, without the configurations whose rows are all hidden.
  function contents(element) {
    const json = JSON.stringify(figureData.figures[element.dataset.figure]);
    const { darkColours } = figureData;
    const figure = JSON.parse(isDark() ? json.replace(/#[0-9a-f]{6}/g, (one) => darkColours[one] ?? one) : json);
    const hidden = hiddenConfigurations(element);
    const isShown = (name) => !hidden.has(name);
    figure.data = figure.data.filter(({ meta }) => Array.isArray(meta) || isShown(meta));
    for (const trace of figure.data) {
      const { meta } = trace;
      if (!Array.isArray(meta)) continue;
      const pick = (values) => (Array.isArray(values[0]) ? values.map(pick) : values.filter((_, i) => isShown(meta[i])));
      for (const name of ["x", "y", "text", "hovertext", "meta"]) if (trace[name]) trace[name] = pick(trace[name]);
    }
    figure.layout.annotations = figure.layout.annotations?.filter(({ name }) => isShown(name));
    return figure;
  }

  function hiddenConfigurations(element) {
    const rows = [...(element.closest("article")?.querySelectorAll("[data-configuration]") ?? [])];
    const visible = new Set(rows.filter((row) => !row.hidden).map((row) => row.dataset.configuration));
    return new Set(rows.map((row) => row.dataset.configuration).filter((name) => !visible.has(name)));
  }

  function layoutFor(element, layout) {
    layout.template = isDark() ? figureData.dark : figureData.light;
    const width = isPrinting ? PAPER_WIDTH : element.clientWidth;
    layout.width = width;
    if (width < 560) {
      // Phones: the table repeats the texts beside the rows.
      layout.annotations = [];
      layout.margin.r = 12;
      layout.margin.l = Math.min(Math.round(layout.margin.l * 0.8), Math.round(width * 0.42));
      layout.font = { size: 10 };
      for (const name of Object.keys(layout)) {
        if (/^[xy]axis/.test(name)) layout[name].tickfont = { size: 10 };
      }
    }
    layout.height += 22 * legendLines(element, width - layout.margin.l - layout.margin.r);
    return layout;
  }

  function legendLines(element, width) {
    const { data, layout } = figureData.figures[element.dataset.figure];
    if (layout.showlegend === false) return 0;
    const listed = data.filter((one) => one.showlegend !== false && one.name);
    const names = new Set(listed.map((one) => one.name));
    const totalWidth = [...names].reduce((sum, name) => sum + 50 + 6.5 * name.length, 0);
    return Math.ceil(totalWidth / width);
  }

  function drawFigure(element) {
    const { data, layout } = contents(element);
    const config = { displayModeBar: false, responsive: false, scrollZoom: false };
    if (!element.classList.contains("drawn")) {
      element.replaceChildren();
      element.classList.add("drawn");
    }
    return Plotly.react(element, data, layoutFor(element, layout), config);
  }

  const elements = [...document.querySelectorAll(".plot")];
  const pending = new Set(); // near the visible part of the page and not drawn yet, or outdated
  let isDrawing = false;

  // Reserves the height of each figure, so that drawing does not move the page.
  function reserveHeight() {
    for (const element of elements) {
      const layout = structuredClone(figureData.figures[element.dataset.figure].layout);
      element.style.minHeight = `${layoutFor(element, layout).height}px`;
    }
  }

  // Draws one figure at a time, so that the page stays responsive.
  async function drawPending() {
    if (!Plotly || isDrawing) return;
    isDrawing = true;
    for (const element of pending) {
      pending.delete(element);
      drawFigure(element);
      await yieldToBrowser();
    }
    isDrawing = false;
    root.dataset.drawn = "yes";
  }

  function observeFigures() {
    const observer = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) {
          if (target.classList.contains("drawn")) continue; // may be outdated
          if (isIntersecting) pending.add(target);
          else pending.delete(target);
        }
        drawPending();
      },
      { rootMargin: "100% 0px" },
    );
    for (const element of elements) observer.observe(element);
  }

  function redraw(outdated = elements) {
    reserveHeight();
    for (const element of outdated) {
      if (element.classList.contains("drawn") && element.clientWidth) pending.add(element); // not if it is hidden
    }
    drawPending();
  }

  function drawAll() {
    if (Plotly) elements.forEach(drawFigure);
  }

  async function decompress(text) {
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length); // a loop is faster than a callback for two million bytes
    for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  function yieldToBrowser() {
    return new Promise((done) => setTimeout(done, 0));
  }

  async function load() {
    const compressed = document.getElementById("plotly");
    const script = document.createElement("script");
    script.textContent = await decompress(compressed.textContent);
    compressed.remove();
    document.head.append(script);
    Plotly = window.Plotly;
    await drawPending();
  }

  // Light and dark theme.

  function updateThemeButton() {
    themeButton.textContent = isDark() ? "light" : "dark";
    themeButton.setAttribute("aria-label", `Switch to ${themeButton.textContent} colours`);
  }

  themeButton.hidden = false;
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    updateThemeButton();
    redraw();
  });
  darkMode.addEventListener("change", () => { updateThemeButton(); redraw(); });
  addEventListener("beforeprint", () => { isPrinting = true; reserveHeight(); drawAll(); });
  addEventListener("afterprint", () => { isPrinting = false; redraw(); });
  let lastWidth = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === lastWidth || isPrinting) return; // the address bar of phones changes only the height
    lastWidth = innerWidth;
    redraw();
  });
  updateThemeButton();

  function showError(error) {
    for (const element of elements) element.textContent = `Cannot draw the figures: ${error.message}`;
    throw error;
  }

  if (elements.length) {
    for (const element of elements) element.replaceChildren();
    reserveHeight();
    observeFigures();
    // Loads plotly.js after the browser has shown the page.
    requestAnimationFrame(() => setTimeout(() => load().catch(showError)));
  }
})();

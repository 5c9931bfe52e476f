"use strict";
(() => {
  const root = document.documentElement;
  const drawings = JSON.parse(document.getElementById("drawings").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");

  // Tables: sort, filter, choose columns.

  const order = { ranked: 0, unranked: 1, absent: 2 };

  function key(row, column) {
    const cell = [...row.children].find((one) => one.dataset.column === column);
    return cell ? cell.dataset.key : "";
  }

  function compare(one, two, sign) {
    if (one === "" || two === "") return (one === "") - (two === ""); // what has no value is last, either way
    const numbers = [Number(one), Number(two)];
    const both = numbers.every((number) => !Number.isNaN(number));
    return sign * (both ? numbers[0] - numbers[1] : one.localeCompare(two));
  }

  function sort(table, header) {
    const column = header.dataset.column;
    const before = header.getAttribute("aria-sort");
    const first = header.dataset.better === "higher" ? "descending" : "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    const now = before === first ? other : first;
    for (const one of table.tHead.rows[0].cells) one.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", now);
    const sign = now === "ascending" ? 1 : -1;
    const rows = [...table.tBodies[0].rows];
    rows.sort(
      (one, two) =>
        order[one.className] - order[two.className] || compare(key(one, column), key(two, column), sign),
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

  function filter(input) {
    const table = document.getElementById(input.dataset.filter);
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    const left = rows.filter((row) => !row.hidden).length;
    const found = document.querySelector(`[data-found="${input.dataset.filter}"]`);
    found.textContent = words.length ? `${left} of ${rows.length} cells` : "";
  }

  function choose(box) {
    const table = document.getElementById(box.dataset.table);
    for (const cell of table.querySelectorAll(`[data-column="${box.dataset.column}"]`)) cell.hidden = !box.checked;
  }

  document.querySelectorAll("table.results").forEach(makeSortable);
  document.querySelectorAll(".tools").forEach((tools) => { tools.hidden = false; });
  for (const input of document.querySelectorAll("[data-filter]")) input.addEventListener("input", () => filter(input));
  for (const box of document.querySelectorAll("[data-table]")) box.addEventListener("change", () => choose(box));

  // Figures.

  let printing = false;
  let Plotly = null;
  const PAPER = 680; // px that a sheet is wide

  function isDark() {
    const chosen = root.dataset.theme;
    return !printing && (chosen ? chosen === "dark" : dark.matches);
  }

  function layoutFor(place) {
    const layout = structuredClone(drawings.figures[place.dataset.figure].layout);
    layout.template = isDark() ? drawings.dark : drawings.light;
    const width = printing ? PAPER : place.clientWidth;
    layout.width = width;
    if (width < 560) {
      // A phone: what is written beside the rows is in the table, too.
      layout.annotations = [];
      layout.margin.r = 12;
      layout.margin.l = Math.min(Math.round(layout.margin.l * 0.8), Math.round(width * 0.42));
      layout.font = { size: 10 };
      for (const name of Object.keys(layout)) {
        if (/^[xy]axis/.test(name)) layout[name].tickfont = { size: 10 };
      }
    }
    const room = width - layout.margin.l - layout.margin.r;
    layout.height += 22 * legendLines(place, room);
    if (layout.legend2 && width < 560) {
      const below = 22 * legendLines(place, room, "legend2");
      Object.assign(layout.legend2, { yref: "container", y: 0, yanchor: "bottom" });
      layout.margin.b += below;
      layout.height += below;
    }
    return layout;
  }

  function legendLines(place, width, legend) {
    const { data, layout } = drawings.figures[place.dataset.figure];
    if (layout.showlegend === false) return 0;
    const listed = data.filter((one) => one.showlegend !== false && one.name && one.legend === legend);
    const names = new Set(listed.map((one) => one.name));
    const taken = [...names].reduce((sum, name) => sum + 50 + 6.5 * name.length, 0);
    return Math.ceil(taken / width);
  }

  function drawOne(place) {
    const { data } = drawings.figures[place.dataset.figure];
    const config = { displayModeBar: false, responsive: false, scrollZoom: false };
    if (!place.classList.contains("drawn")) {
      place.replaceChildren();
      place.classList.add("drawn");
    }
    return Plotly.react(place, data, layoutFor(place), config);
  }

  const places = [...document.querySelectorAll(".plot")];
  const wanted = new Set(); // near what is seen, and not drawn yet
  let drawing = false;

  // A figure has its room before it is drawn, so that nothing moves when it is.
  function keepRoom() {
    for (const place of places) place.style.minHeight = `${layoutFor(place).height}px`;
  }

  // One at a time, so that the page can be read and scrolled meanwhile.
  async function drawWanted() {
    if (!Plotly || drawing) return;
    drawing = true;
    for (const place of wanted) {
      wanted.delete(place);
      drawOne(place);
      await pause();
    }
    drawing = false;
    root.dataset.drawn = "yes";
  }

  function watch() {
    const observer = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) {
          const drawn = target.classList.contains("drawn");
          if (isIntersecting && !drawn) wanted.add(target);
          else wanted.delete(target);
        }
        drawWanted();
      },
      { rootMargin: "50% 0px" },
    );
    for (const place of places) observer.observe(place);
  }

  function redraw() {
    keepRoom();
    if (Plotly) places.filter((place) => place.classList.contains("drawn")).forEach(drawOne);
  }

  function drawAll() {
    if (Plotly) places.forEach(drawOne);
  }

  async function unpack(text) {
    const letters = atob(text);
    const bytes = new Uint8Array(letters.length); // in a loop: a function for each of two million takes longer
    for (let at = 0; at < letters.length; at += 1) bytes[at] = letters.charCodeAt(at);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  function pause() {
    return new Promise((done) => setTimeout(done, 0));
  }

  async function load() {
    const packed = document.getElementById("plotly");
    const program = document.createElement("script");
    program.textContent = await unpack(packed.textContent);
    packed.remove();
    document.head.append(program);
    Plotly = window.Plotly;
    await drawWanted();
  }

  // Light and dark.

  function label() {
    button.textContent = isDark() ? "light" : "dark";
    button.setAttribute("aria-label", `Switch to ${button.textContent} colours`);
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    label();
    redraw();
  });
  dark.addEventListener("change", () => { label(); redraw(); });
  addEventListener("beforeprint", () => { printing = true; keepRoom(); drawAll(); });
  addEventListener("afterprint", () => { printing = false; redraw(); });
  let last = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === last || printing) return; // a phone's bar that comes and goes changes the height only
    last = innerWidth;
    redraw();
  });
  label();

  function fail(error) {
    for (const place of places) place.textContent = `The figures cannot be drawn here: ${error.message}`;
    throw error;
  }

  if (places.length) {
    for (const place of places) place.replaceChildren();
    keepRoom();
    watch();
    // First what can be read, then what draws.
    requestAnimationFrame(() => setTimeout(() => load().catch(fail)));
  }
})();

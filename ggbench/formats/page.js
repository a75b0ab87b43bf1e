"use strict";
// Tables that sort, and charts with values under the pointer, zoom, and runs that switch on and off.
// Names come from the data alone and reach the page as textContent.
(() => {
  const tip = document.getElementById("tip");
  const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

  function show(event, lines) {
    tip.replaceChildren(...lines.map((line, index) => {
      const row = document.createElement(index || lines.length === 1 ? "div" : "b");
      row.textContent = line.text;
      if (line.color) row.style.color = line.color;
      return row;
    }));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = event.clientX + 14 + width > innerWidth ? event.clientX - 14 - width : event.clientX + 14;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - height - 4))}px`;
  }

  const hide = () => { tip.hidden = true; };

  function sortBy(header) {
    const column = [...header.parentNode.children].indexOf(header);
    const body = header.closest("table").tBodies[0];
    const value = (row) => row.cells[column].dataset.value ?? "";
    const sign = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const rows = [...body.rows].sort((one, other) => {
      const [a, b] = [value(one), value(other)];
      if (a === "" || b === "") return (a === "") - (b === "");
      const difference = Number(a) - Number(b);
      return sign * (Number.isNaN(difference) ? a.localeCompare(b, "en", { numeric: true }) : difference);
    });
    for (const other of header.parentNode.children) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    body.append(...rows);
  }

  for (const header of document.querySelectorAll("table.sortable th")) {
    header.querySelector("button").addEventListener("click", () => sortBy(header));
  }

  // How many columns lie beyond the right edge; most browsers hide the scroll bar until a table is scrolled.
  function hint(table) {
    const scroll = table.querySelector(".scroll");
    const edge = scroll.getBoundingClientRect().right;
    const headers = [...scroll.querySelectorAll("th")];
    const hidden = headers.filter((header) => header.getBoundingClientRect().right > edge + 1).length;
    const line = table.querySelector(".hint");
    table.classList.toggle("more", hidden > 0);
    line.hidden = scroll.scrollWidth <= scroll.clientWidth + 1;
    line.textContent = hidden ? `${hidden} more column${hidden === 1 ? "" : "s"}: scroll the table to the right →`
      : "← scroll the table to the left";
  }

  for (const table of document.querySelectorAll(".table")) {
    table.querySelector(".scroll").addEventListener("scroll", () => hint(table), { passive: true });
    addEventListener("resize", () => hint(table));
    hint(table);
  }

  function nearest(rows, x) {
    let low = 0;
    let high = rows.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle].x < x) low = middle + 1; else high = middle;
    }
    return low && x - rows[low - 1].x < rows[low].x - x ? rows[low - 1] : rows[low];
  }

  function follow(figure, view, names, colors) {
    const plot = figure.querySelector(".plot");
    const cursor = plot.appendChild(document.createElement("div"));
    cursor.className = "cursor";
    cursor.hidden = true;
    const byRun = new Map();
    for (const row of view.data("bins")) {
      if (!byRun.has(row.s)) byRun.set(row.s, []);
      byRun.get(row.s).push(row);
    }
    for (const rows of byRun.values()) rows.sort((one, other) => one.x - other.x);
    const leave = () => { hide(); cursor.hidden = true; };
    plot.addEventListener("pointerleave", leave);
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      const { left, top } = view.padding();
      const [right, down] = view.origin();
      const at = event.clientX - box.left - left - right;
      const scale = view.scale("x");
      const [low, high] = scale.domain();
      const x = scale.invert(at);
      if (x < low || x > high) return leave();
      const hidden = view.signal("hidden");
      const near = (high - low) / 25;
      const lines = [];
      for (const [run, rows] of byRun) {
        const row = nearest(rows, x);
        if (hidden.includes(run) || Math.abs(row.x - x) > near) continue;
        const range = row.hi > row.lo ? ` (${number.format(row.lo)} – ${number.format(row.hi)})` : "";
        lines.push({ y: row.y, text: `${names.get(run)}: ${number.format(row.y)}${range}`, color: colors.get(run) });
      }
      if (!lines.length) return leave();
      lines.sort((one, other) => other.y - one.y);
      show(event, [{ text: `${figure.dataset.x}: ${whole.format(x)}` }, ...lines]);
      Object.assign(cursor.style, { left: `${left + right + at}px`, top: `${top + down}px`, height: `${view.height()}px` });
      cursor.hidden = false;
    });
  }

  function zoom(view, factor, whole) {
    for (const axis of ["x", "y"]) {
      const [low, high] = view.scale(axis).domain();
      const middle = (low + high) / 2;
      const half = ((high - low) / 2) * factor;
      view.signal(`zoom_${axis}`, factor ? [middle - half, middle + half] : whole[axis]);
    }
    view.runAsync();
  }

  const specs = JSON.parse(document.getElementById("charts").textContent);
  const loader = { load: () => Promise.reject(new Error("a report loads nothing")) };
  async function draw(figure) {
    const options = { mode: "vega", renderer: "svg", actions: false, defaultStyle: false, hover: false, loader };
    const { view } = await vegaEmbed(figure.querySelector(".plot"), specs[figure.dataset.spec], options);
    const keys = [...figure.querySelectorAll(".key")];
    const names = new Map(keys.map((key) => [Number(key.dataset.run), key.textContent.trim().split("   ")[0]]));
    const colors = new Map(keys.map((key) => [Number(key.dataset.run), key.querySelector("i").style.background]));
    follow(figure, view, names, colors);
    const hidden = new Set();
    for (const key of keys) {
      key.addEventListener("click", () => {
        const run = Number(key.dataset.run);
        hidden.has(run) ? hidden.delete(run) : hidden.add(run);
        key.setAttribute("aria-pressed", String(!hidden.has(run)));
        view.signal("hidden", [...hidden]).runAsync();
      });
    }
    const buttons = [...figure.querySelectorAll("[data-zoom]")];
    const whole = { x: view.scale("x").domain(), y: view.scale("y").domain() };
    for (const button of buttons) {
      button.addEventListener("click", () => zoom(view, Number(button.dataset.zoom), whole));
    }
    figure.dataset.ready = "";
  }

  document.querySelectorAll(".chart").forEach(draw);

  function open() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "DETAILS") target.open = true;
  }
  addEventListener("hashchange", open);
  open();
  addEventListener("beforeprint", () => document.querySelectorAll(".details").forEach((each) => { each.open = true; }));
})();

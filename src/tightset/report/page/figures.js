"use strict";
// The figures of the page and the tables below them, at a stop of its slider; text is only ever set as text.
const figuresOf = (data, make, nameOf) => {
  const one = (id) => document.getElementById(id);
  const each = (selector, act) => document.querySelectorAll(selector).forEach(act);
  const draw = (tag, attributes, text) => {
    const element = document.createElementNS(document.querySelector("svg").namespaceURI, tag);
    set(element, attributes);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const set = (element, attributes) => {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  };
  const TAIL = 8; // characters at the end of a label that stay if it is shortened and begins like another
  const twins = new Set(data.twins);
  const name = (text) => {
    const element = make("span", "name");
    element.dir = "auto";
    element.title = text;
    const cut = Array.from(text); // not within a character
    const alike = cut.length > 2 * TAIL && twins.has(cut.slice(0, 2 * TAIL - 4).join(""));
    const parts = alike ? [cut.slice(0, -TAIL), cut.slice(-TAIL)] : [cut];
    element.append(...parts.map((part) => make("span", "", part.join(""))));
    return element;
  };
  const cells = (...made) => {
    const row = make("tr");
    row.append(...made);
    return row;
  };

  const showSizes = (k) => {
    const { names, shares, texts } = data.sizes[k];
    each("[data-bar]", (row) => {
      const at = Number(row.dataset.bar);
      const there = at < names.length;
      const [size, svg, value] = row.children;
      row.classList.toggle("absent", !there);
      size.textContent = there ? names[at] : "";
      value.textContent = there ? texts[at] : "";
      set(svg.querySelector(".bar"), { width: `${there ? shares[at] : 0}%` });
    });
    one("size-table").tBodies[0].replaceChildren(
      ...names.map((size, at) => {
        const head = make("th", "", size);
        head.scope = "row";
        return cells(head, make("td", "num", texts[at]));
      }),
    );
  };

  const showMarks = (k) => {
    each("[data-mark]", (mark) => {
      const at = data.marks[mark.dataset.mark];
      set(mark, mark.tagName === "line" ? { x1: at.x[k], x2: at.x[k] } : { cx: at.x[k], cy: at.y[k] });
    });
    each("[data-level-row]", (row) => {
      if (Number(row.dataset.levelRow) === k) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    });
  };

  const showByLabel = (k) => {
    if (!data.ofLabels) return;
    const falls = new Set(data.ofLabels.short[k]);
    const stop = data.labelStops[k];
    each("[data-label-tick]", (tick) => (tick.textContent = stop.ticks[tick.dataset.labelTick]));
    each("[data-label-bar]", (row) => {
      const [at, x, from, to, width] = stop.bars[row.dataset.labelBar];
      const [before, share, size] = row.children;
      row.classList.toggle("falls-short", falls.has(at));
      before.replaceWith(name(nameOf(data.ofLabels.of[at])));
      set(share.querySelector(".asked"), { x1: `${stop.asked}%`, x2: `${stop.asked}%` });
      set(share.querySelector(".whisker"), { x1: `${from}%`, x2: `${to}%` });
      set(share.querySelector("circle"), { cx: `${x}%` });
      set(size.querySelector("rect"), { width: `${width}%` });
      set(size.querySelector("text"), { x: `${width}%` });
      size.querySelector("text").textContent = data.ofLabels.size[k][at];
    });
    [...one("label-table").tBodies[0].rows].forEach((row, at) => {
      const [share, interval] = data.ofLabels.shares[data.ofLabels.share[k][at]];
      const texts = [falls.has(at) ? `${share} *` : share, interval, data.ofLabels.size[k][at]];
      texts.forEach((text, place) => (row.cells[place + 2].textContent = text));
      row.cells[2].classList.toggle("miss", falls.has(at));
    });
  };

  const showPairs = (k) => {
    if (!data.pairs || !data.pairs.stops) return; // too many labels, and the page says so
    const stop = data.pairs.stops[k];
    one("pairs").hidden = !stop;
    one("pair-details").hidden = !stop;
    const step = data.pairs.step;
    const shown = stop ? stop.labels : [];
    const S = shown.length;
    const square = (j, i) => ({ x: `${(100 * j) / S}%`, y: step * i, width: `${100 / S}%`, height: step });
    const drawn = shown.map((_, i) => draw("rect", { class: "own", ...square(i, i) }));
    let at = 0; // pairs of i < j, row by row; each has two squares
    shown.forEach((a, i) =>
      shown.forEach((b, j) => {
        if (j <= i) return;
        for (const [first, second, x, y] of [[a, b, j, i], [b, a, i, j]]) {
          const count = `${stop.counts[at].toLocaleString("en")} of ${data.n.toLocaleString("en")} sets`;
          const cell = draw("g", {});
          const middle = { x: `${(100 * (x + 0.5)) / S}%`, y: step * y + 17, "text-anchor": "middle" };
          cell.append(
            draw("title", {}, `${nameOf(first)} and ${nameOf(second)}: ${count}`),
            draw("rect", { class: "cell", ...square(x, y), "fill-opacity": stop.shades[at] }),
            draw("text", middle, stop.texts[at]),
          );
          drawn.push(cell);
        }
        at += 1;
      }),
    );
    one("pairs").className = `heat n${S}`;
    one("pair-cells").setAttribute("height", step * S);
    one("pair-cells").replaceChildren(...drawn);
    for (const id of ["pair-rows", "pair-columns"]) one(id).replaceChildren(...shown.map((c) => name(nameOf(c))));
    one("pair-table").tBodies[0].replaceChildren(
      ...(stop ? stop.pairs : []).map(([a, b, text]) =>
        cells(make("td", "", nameOf(a)), make("td", "", nameOf(b)), make("td", "num", text)),
      ),
    );
  };

  return (k) => {
    for (const show of [showSizes, showMarks, showByLabel, showPairs]) show(k);
  };
};

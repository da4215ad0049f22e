// Shows what the page was made with; text is only ever set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const one = (id) => document.getElementById(id);
  const each = (selector, act) => document.querySelectorAll(selector).forEach(act);
  const make = (tag, name, text) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  // A text with places where a line may end: after "_" and "/".
  const broken = (text) => text.split(/(?<=[_/])(?=[^_/])/).flatMap((part, at) => (at ? [make("wbr"), part] : [part]));
  const nameOf = (c) => (c < 0 ? data.unseen : data.labels[c]);
  const label = (c, before = "") => {
    const element = make("span", "label");
    element.append(...broken(before + nameOf(c)));
    element.title = nameOf(c); // the style cuts what is long
    return element;
  };
  const SHOWN = 6; // labels of a set before "and more"
  const places = new Map();
  for (const c of "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_") places.set(c, places.size);

  let k = data.start; // the stop of the slider
  let sort = { by: "size", down: true };
  let page = 0;

  // ---- sets ---------------------------------------------------------------------------------------------------
  const C = data.labels.length;
  const codes = new Int32Array(data.codes.length * C);
  data.codes.forEach((text, r) => {
    for (let c = 0; c < C; c++) {
      let code = 0;
      for (let i = 0; i < data.width; i++) code = code * 64 + places.get(text[c * data.width + i]);
      codes[r * C + c] = code;
    }
  });
  let inside = []; // of each pattern, whether it is in at this stop
  const has = (r, c) => inside[codes[r * C + c]];
  let sizes = [];
  const count = () => {
    inside = data.patterns.map((pattern) => pattern[k] === "1");
    sizes = data.codes.map((_, r) => {
      let size = 0;
      for (let c = 0; c < C; c++) size += has(r, c);
      return size;
    });
  };
  const top = (r) => data.top[data.measure[k]][r];
  const topP = (r) => data.topP[data.measure[k]][r];
  const best = (r) => topP(r)[0];
  const own = (r) => data.ownP[data.measure[k]][r];
  const missed = (r) => data.truth !== null && !has(r, data.truth[r]);
  const asP = (thousandths) => (thousandths ? (thousandths / 1000).toFixed(3) : "<0.001");
  const members = (r) => {
    const first = top(r).filter((c) => has(r, c));
    const known = new Set(first);
    for (let c = 0; c < C; c++) if (!known.has(c) && has(r, c)) first.push(c);
    if (data.rank) first.sort((a, b) => data.rank[a] - data.rank[b]);
    return first;
  };
  const showSet = (r, whole) => {
    if (sizes[r] === 0) return [make("span", "none", "empty set")];
    const kept = members(r);
    const list = make("ul", "set");
    for (const c of whole ? kept : kept.slice(0, SHOWN)) {
      const item = make("li");
      item.append(label(c));
      const place = top(r).indexOf(c);
      if (place >= 0) item.append(" ", make("span", "p", asP(topP(r)[place])));
      list.append(item);
    }
    if (kept.length <= SHOWN) return [list];
    const more = make("button", "more", whole ? "fewer" : `and ${(kept.length - SHOWN).toLocaleString("en")} more`);
    more.type = "button";
    more.setAttribute("aria-expanded", String(Boolean(whole)));
    more.addEventListener("click", () => {
      const holder = more.parentElement;
      holder.replaceChildren(...showSet(r, !whole));
      holder.querySelector(".more").focus();
    });
    return [list, " ", more];
  };

  // ---- what the slider moves ----------------------------------------------------------------------------------
  const slider = one("slider");
  const showFigures = figuresOf(data, make, nameOf);
  const showLevel = () => {
    const said = data.say[k];
    slider.value = k;
    slider.setAttribute("aria-valuetext", said.value);
    one("told").textContent = said.told;
    each("[data-say]", (element) => (element.textContent = said[element.dataset.say]));
    showShort();
    showFigures(k);
    count();
    showExamples();
    showRows();
  };

  // The labels that fall short, by their place among the labels that have rows.
  const shareOf = (at) => data.ofLabels.shares[data.ofLabels.share[k][at]];
  const showShort = () => {
    if (!data.ofLabels) return;
    const places = data.ofLabels.short[k];
    const item = (at) => {
      const rows = data.ofLabels.rows[at];
      const found = make("li");
      found.append(label(data.ofLabels.of[at], data.plain), " ");
      found.append(make("span", "share", `${shareOf(at)[0]} of ${rows} row${rows === "1" ? "" : "s"}`));
      return found;
    };
    one("short").hidden = places.length === 0;
    one("short-first").replaceChildren(...places.slice(0, data.named).map(item));
    one("short-rest").hidden = places.length <= data.named;
    one("short-count").textContent = Math.max(places.length - data.named, 0).toLocaleString("en");
    one("short-rest").querySelector("ul").replaceChildren(...places.slice(data.named).map(item));
  };
  const showExamples = () => {
    one("examples").replaceChildren(
      ...data.at.slice(data.listed).map((at, i) => {
        const r = data.listed + i;
        const item = make("li");
        const which = make("p", "which");
        which.append(make("b", "", `Row ${at + 1}`));
        const text = data.columns.slice(0, 4).map((name, j) => `${name} = ${data.cells[r][j] || data.missing}`).join(", ");
        if (text) which.append(`: ${text}`);
        const answer = make("div", "answer");
        const set = make("div", "inline");
        set.append(...showSet(r, false));
        answer.append(set);
        if (data.truth !== null) {
          const truth = make("span", "truth", missed(r) ? "true label not in it: " : "true label: ");
          truth.append(label(data.truth[r]));
          answer.append(" ", truth);
        }
        item.append(which, answer);
        return item;
      }),
    );
  };

  // ---- the table ----------------------------------------------------------------------------------------------
  const hardness = (r) => (sizes[r] === 0 ? 1.5 : sizes[r]);
  const words = new Intl.Collator("en", { numeric: true });
  const compareText = (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? words.compare(a, b) : x - y;
  };
  const compare = (a, b) => {
    switch (sort.by) {
      case "at": return data.at[a] - data.at[b];
      case "size": return hardness(a) - hardness(b) || best(b) - best(a);
      case "best": return best(a) - best(b);
      case "own": return own(a) - own(b);
      case "truth": return data.truth[a] - data.truth[b];
      default: return compareText(data.cells[a][sort.by], data.cells[b][sort.by]);
    }
  };
  const FILTERS = {
    all: () => true,
    missed,
    empty: (r) => sizes[r] === 0,
    single: (r) => sizes[r] === 1,
    several: (r) => sizes[r] > 1,
  };
  const wanted = () => {
    const filter = FILTERS[one("filter").value];
    const text = one("search").value.trim().toLowerCase();
    const named = data.labels.map((_, c) => c).filter((c) => data.labels[c].toLowerCase().includes(text));
    const matches = (r) =>
      text === "" ||
      String(data.at[r] + 1) === text ||
      data.cells[r].some((cell) => cell.toLowerCase().includes(text)) ||
      named.some((c) => (data.truth !== null && data.truth[r] === c) || has(r, c));
    const rows = [];
    for (let r = 0; r < data.listed; r++) if (filter(r) && matches(r)) rows.push(r);
    const sign = sort.down ? -1 : 1;
    // Rows are embedded hardest first, at the level of the page; that order settles ties.
    return rows.sort((a, b) => sign * compare(a, b) || a - b);
  };
  const showRow = (r) => {
    const row = make("tr");
    const name = make("th", "num", String(data.at[r] + 1));
    name.scope = "row";
    const set = make("td", "wide");
    set.append(...showSet(r, false));
    row.append(name, make("td", "num", String(sizes[r])), set);
    if (data.truth !== null) {
      const truth = make("td", missed(r) ? "true missed" : "true");
      truth.append(label(data.truth[r]));
      if (missed(r)) truth.append(" ", make("span", "miss", "missed"));
      row.append(truth, make("td", "num", asP(own(r))));
    }
    const kind = (j) => (data.numeric[j] ? "num" : "cell-text") + (j > 2 ? " extra" : ""); // extra is not printed
    row.append(make("td", "num", asP(best(r))));
    data.cells[r].forEach((cell, j) => {
      const made = make("td", kind(j));
      made.append(...broken(cell));
      row.append(made);
    });
    return row;
  };
  const showRows = () => {
    const rows = wanted();
    const pages = Math.max(1, Math.ceil(rows.length / data.page));
    page = Math.min(page, pages - 1);
    const start = page * data.page;
    const some = rows.slice(start, start + data.page);
    const body = document.querySelector("#table tbody");
    body.replaceChildren(...some.map(showRow));
    if (some.length === 0) {
      const cell = make("td", "nothing", "No row is like that.");
      cell.colSpan = document.querySelectorAll("#table thead th").length;
      const row = make("tr");
      row.append(cell);
      body.append(row);
    }
    const say = (number) => number.toLocaleString("en");
    one("count").textContent = rows.length
      ? `${say(start + 1)} to ${say(start + some.length)} of ${say(rows.length)} row${rows.length > 1 ? "s" : ""}` +
        (rows.length < data.listed ? `, out of ${say(data.listed)}` : "")
      : `none of ${say(data.listed)} rows`;
    hint();
    one("before").setAttribute("aria-disabled", String(page === 0));
    one("after").setAttribute("aria-disabled", String(page >= pages - 1));
  };
  const box = one("table").parentElement;
  const hint = () => {
    const more = box.scrollWidth - box.clientWidth - box.scrollLeft > 4;
    if (one("swipe")) one("swipe").hidden = !more;
  };
  const anew = () => {
    page = 0;
    box.style.minHeight = "";
    showRows();
  };
  const turn = (button, step) => {
    if (button.getAttribute("aria-disabled") === "true") return;
    page += step;
    box.style.minHeight = `${box.offsetHeight}px`; // a shorter last page must not move the buttons away
    showRows();
  };

  // ---- start --------------------------------------------------------------------------------------------------
  each("#table th[data-sort]", (head) => {
    const by = /^\d+$/.test(head.dataset.sort) ? Number(head.dataset.sort) : head.dataset.sort;
    const button = make("button", "sort");
    button.append(...head.childNodes);
    button.type = "button";
    button.addEventListener("click", () => {
      sort = { by, down: sort.by === by ? !sort.down : by === "size" };
      each("#table th[aria-sort]", (other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
      anew();
    });
    head.replaceChildren(button);
  });
  slider.addEventListener("input", () => {
    k = Number(slider.value);
    showLevel();
  });
  box.addEventListener("scroll", hint, { passive: true });
  addEventListener("resize", hint);
  one("search").addEventListener("input", anew);
  one("filter").addEventListener("change", anew);
  one("before").addEventListener("click", () => turn(one("before"), -1));
  one("after").addEventListener("click", () => turn(one("after"), 1));
  for (const id of ["level", "tools", "pager"]) one(id).hidden = false;
  document.documentElement.classList.add("scripted");
  showLevel();
})();

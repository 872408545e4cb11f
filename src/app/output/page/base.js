// SPDX-License-Identifier: Apache-2.0
// Functions that draw on all pages: text, curves, timelines, bars, tables, meshes. Texts of a report
// are only ever set as text (textContent), so that nothing in them is read as HTML.
"use strict";
const page = (() => {
  const COLOURS = 8;
  const colour = i => `var(--c${i % COLOURS})`;

  // ---- elements ----
  const fill = (node, attributes, children) => {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
      else if (name === "mark") node.style.setProperty("--mark", value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat()) {
      if (child !== null && child !== undefined) node.append(child.nodeType ? child : String(child));
    }
    return node;
  };
  const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const draw = (tag, attributes, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

  // ---- numbers ----
  const known = x => typeof x === "number" && isFinite(x);
  const digits = (x, n) => {
    if (!known(x)) return "\u2013";
    const size = Math.abs(x);
    if (size !== 0 && (size < 1e-4 || size >= 1e15)) return x.toExponential(Math.max(n - 1, 0)).replace(/\.?0+e/, "e").replace("e+", "e");
    return Number(x.toPrecision(n)).toLocaleString("en-US", {maximumSignificantDigits: n, useGrouping: size >= 10000});
  };
  // Formats of scales take how many digits to show; callers without a number of digits get 3.
  const some = n => typeof n === "number" ? n : 3;
  const scaled = (x, units, base, n) => {
    if (!known(x)) return "\u2013";
    let u = 0;
    while (u < units.length - 1 && Math.abs(x) >= base * 0.9995) { x /= base; u++; }
    return `${digits(x, some(n))}${units[u] ? "\u00a0" + units[u] : ""}`;
  };
  const format = {
    number: (x, n) => digits(x, Math.max(4, some(n))),
    exact: x => digits(x, 6),
    whole: x => known(x) ? Math.round(x).toLocaleString("en-US") : "\u2013",
    count: x => scaled(x, ["", "thousand", "million", "billion", "trillion"], 1000),
    short: (x, n) => known(x) && Math.abs(x) < 10000 ? digits(x, Math.max(4, some(n))) : scaled(x, ["", "k", "M", "G", "T", "P", "E"], 1000, n),
    bytes: (x, n) => scaled(x, ["B", "KB", "MB", "GB", "TB", "PB"], 1000, n),
    flops: x => scaled(x, ["FLOP", "KFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"], 1000),
    percent: (x, n) => known(x) ? `${digits(100 * x, some(n))}\u00a0%` : "\u2013",
    seconds: (x, n) => {
      if (!known(x)) return "\u2013";
      const size = Math.abs(x);
      if (size === 0) return "0\u00a0s";
      if (size < 1e-3) return `${digits(x * 1e6, some(n))}\u00a0\u00b5s`;
      if (size < 1) return `${digits(x * 1e3, some(n))}\u00a0ms`;
      if (size < 120) return `${digits(x, some(n))}\u00a0s`;
      const whole = Math.round(size), two = v => String(v).padStart(2, "0");
      const text = whole < 3600 ? `${Math.floor(whole / 60)}:${two(whole % 60)}\u00a0min`
        : `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}\u00a0h`;
      return (x < 0 ? "-" : "") + text;
    },
    date: x => known(x) ? new Date(x * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "\u2013",
    text: x => x === null || x === undefined ? "\u2013" : typeof x === "object" ? JSON.stringify(x) : String(x)
  };

  // Round steps between `low` and `high`, about `count` of them; of seconds and bytes in their units.
  const ticks = (low, high, count) => {
    const raw = (high - low) / Math.max(count, 1), power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = [1, 2, 2.5, 5, 10].map(f => f * power).find(s => s >= raw * 0.999) || raw;
    const list = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) list.push(k * step);
    return list;
  };

  // The texts of ticks, with as many digits as tell them apart.
  const texts = (list, show) => {
    for (let n = 3; ; n++) {
      const result = list.map(x => show(x, n));
      if (n === 9 || new Set(result).size === result.length) return result;
    }
  };

  // ---- plots: a drawing that follows the width of its card ----
  const tip = plot => {
    const box = el("div", {class: "tip", hidden: true});
    plot.append(box);
    return {
      show(x, y, title, rows) {
        box.replaceChildren(el("div", {}, el("span", {}, title)),
          ...rows.map(r => el("div", {}, r.colour ? el("i", {mark: r.colour}) : null, el("span", {}, r.name), el("b", {}, r.value))));
        box.hidden = false;
        const width = plot.clientWidth, left = x + 14 + box.offsetWidth > width ? x - 14 - box.offsetWidth : x + 14;
        box.style.left = `${Math.max(0, Math.min(left, width - box.offsetWidth))}px`;
        box.style.top = `${Math.max(0, y - box.offsetHeight - 8)}px`;
      },
      hide() { box.hidden = true; }
    };
  };
  // A card with a title, a legend and a plot that `paint(svg, width, tip)` fills and gives its height.
  const figure = (name, title, note, legend, paint) => {
    const plot = el("div", {class: "plot"}), svg = draw("svg", {role: "img", "aria-label": title}), hint = tip(plot);
    plot.prepend(svg);
    const card = el("figure", {class: "card", "data-figure": name, style: "margin:0"},
      el("h3", {}, title), note ? el("p", {class: "soft", style: "font-size:13px;margin:2px 0 0"}, note) : null, legend, plot);
    let last = 0;
    const redraw = () => {
      const width = Math.floor(plot.clientWidth);
      if (width < 40) return;
      last = width;
      svg.replaceChildren();
      hint.hide();
      const height = paint(svg, width, hint);
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("height", height);
    };
    // in the next frame: a drawing inside the observer's own turn would change sizes that it has reported
    new ResizeObserver(() => requestAnimationFrame(() => { if (Math.floor(plot.clientWidth) !== last) redraw(); })).observe(plot);
    card.redraw = redraw;
    return card;
  };
  const key = (name, mark, value, raw) => [el("i", {mark}), el("span", {class: "name"}, name),
    value === undefined ? null : el("b", {"data-raw": known(raw) ? raw : null}, value)];

  // The x axis: rules, numbers and a label; returns the scale.
  const xAxis = (svg, box, range, show, label) => {
    const at = x => box.left + (x - range[0]) / (range[1] - range[0]) * (box.right - box.left);
    const list = ticks(range[0], range[1], Math.max(2, Math.floor((box.right - box.left) / 90)));
    const shown = texts(list, show);
    list.forEach((x, i) => {
      svg.append(draw("line", {class: "rule", x1: at(x), x2: at(x), y1: box.top, y2: box.bottom}),
        draw("text", {x: at(x), y: box.bottom + 16, "text-anchor": at(x) > box.right - 20 ? "end" : at(x) < box.left + 12 ? "start" : "middle"}, shown[i]));
    });
    svg.append(draw("text", {x: (box.left + box.right) / 2, y: box.bottom + 33, "text-anchor": "middle"}, label));
    return at;
  };

  // ---- curves ----
  // series: [{name, points: [[x, y], ...], colour, value}]; marks: [{x, label}] are vertical lines.
  // smooth: long curves are drawn thin, with their running mean on top.
  const curves = o => {
    const hidden = new Set(), list = o.series.filter(s => s.points.some(p => known(p[1])));
    const value = s => { const p = s.points.filter(q => known(q[1])); return p.length ? p[p.length - 1][1] : null; };
    const legend = el("div", {class: "legend"});
    list.forEach((s, i) => {
      s.colour = s.colour || colour(i);
      const button = el("button", {type: "button", "aria-pressed": "true", title: "show or hide", "data-series": s.name, "data-points": s.points.length},
        key(s.name, s.colour, o.yShow(value(s)), value(s)));
      button.addEventListener("click", () => {
        if (hidden.has(s)) hidden.delete(s); else hidden.add(s);
        button.classList.toggle("off", hidden.has(s));
        button.setAttribute("aria-pressed", String(!hidden.has(s)));
        card.redraw();
      });
      legend.append(button);
    });
    const mean = points => {
      const span = Math.max(2, points.length / 40), keep = 1 - 1 / span;
      let sum = 0, weight = 0;
      return points.map(([x, y]) => {
        if (known(y)) { sum = sum * keep + y; weight = weight * keep + 1; }
        return [x, weight ? sum / weight : null];
      });
    };
    const paint = (svg, width, hint) => {
      const shown = list.filter(s => !hidden.has(s));
      const xs = shown.flatMap(s => s.points.filter(p => known(p[1])).map(p => p[0]));
      const ys = shown.flatMap(s => s.points.map(p => p[1])).filter(known);
      if (!ys.length) {
        svg.append(draw("text", {x: 4, y: 20}, "nothing to draw"));
        return 30;
      }
      const reduce = (values, pick) => values.reduce((a, b) => pick(a, b));
      let low = reduce(ys, Math.min), high = reduce(ys, Math.max);
      if (o.zero) low = Math.min(0, low);
      if (shown.some(s => s.points.length > 60) && o.smooth && !o.zero) { // a first loss far above all others must not press the rest flat
        const sorted = ys.slice().sort((a, b) => a - b), cap = sorted[Math.floor(sorted.length * 0.995)];
        if (high - low > 6 * (cap - low) && cap > low) high = cap + (cap - low) * 0.1;
      }
      if (high === low) { high += Math.abs(high) * 0.1 || 1; low -= o.zero ? 0 : Math.abs(low) * 0.1; }
      const range = o.xRange ? o.xRange.slice() : [reduce(xs, Math.min), reduce(xs, Math.max)];
      if (range[0] === range[1]) range[1] += 1;
      const pad = (high - low) * 0.05;
      low = o.zero && low === 0 ? 0 : low - pad;
      high += pad;
      const yTicks = ticks(low, high, 5), yTexts = texts(yTicks, o.yShow);
      const box = {left: Math.min(90, 10 + 7 * Math.max(...yTexts.map(t => t.length))), right: width - 8, top: 20, bottom: 20 + (width < 500 ? 170 : 210)};
      const y = v => box.bottom - (v - low) / (high - low) * (box.bottom - box.top);
      const x = xAxis(svg, box, range, o.xShow, o.xLabel);
      yTicks.forEach((t, i) => svg.append(draw("line", {class: "rule", x1: box.left, x2: box.right, y1: y(t), y2: y(t)}),
        draw("text", {x: box.left - 6, y: y(t) + 4, "text-anchor": "end"}, yTexts[i])));
      svg.append(draw("text", {x: 0, y: 10}, o.yLabel));
      svg.append(draw("line", {class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom}));
      for (const m of o.marks || []) {
        if (m.x < range[0] || m.x > range[1]) continue;
        svg.append(draw("line", {class: "event", x1: x(m.x), x2: x(m.x), y1: box.top, y2: box.bottom}, draw("title", {}, m.label)));
      }
      const clip = `clip-${Math.random().toString(36).slice(2)}`;
      svg.append(draw("clipPath", {id: clip}, draw("rect", {x: box.left, y: box.top - 4, width: box.right - box.left, height: box.bottom - box.top + 8})));
      const line = (points, s, extra) => {
        let path = "", open = false;
        for (const [px, py] of points) {
          if (!known(py)) { open = false; continue; }
          path += `${open ? (o.steps ? `H${x(px).toFixed(1)}V` : "L" + x(px).toFixed(1) + " ") : `M${x(px).toFixed(1)} `}${y(py).toFixed(1)}`;
          open = true;
        }
        svg.append(draw("path", {d: path, fill: "none", stroke: s.colour, "stroke-width": 2, "stroke-linejoin": "round", "stroke-linecap": "round",
          "stroke-dasharray": s.dash, "clip-path": `url(#${clip})`, ...extra}));
      };
      for (const s of shown) {
        const long = o.smooth && s.points.length > 60;
        line(s.points, s, long ? {"stroke-width": 1, opacity: 0.35} : {});
        if (long) line(mean(s.points), s, {});
        if (s.points.length <= 40 || o.dots) {
          for (const [px, py] of s.points) if (known(py)) svg.append(draw("circle", {cx: x(px), cy: y(py), r: o.dots && s.points.length > 40 ? 2 : 3, fill: s.colour, "clip-path": `url(#${clip})`}));
        }
      }
      const cross = draw("g", {});
      const near = event => {
        const at = svg.getBoundingClientRect(), mouse = event.clientX - at.left, rows = [];
        cross.replaceChildren();
        let best = null;
        const find = s => s.points.reduce((a, p) => known(p[1]) && (a === null || Math.abs(x(p[0]) - mouse) < Math.abs(x(a[0]) - mouse)) ? p : a, null);
        for (const s of shown) {
          const p = find(s);
          if (p && (best === null || Math.abs(x(p[0]) - mouse) < Math.abs(x(best) - mouse))) best = p[0];
        }
        if (best === null) return;
        cross.append(draw("line", {class: "cross", x1: x(best), x2: x(best), y1: box.top, y2: box.bottom}));
        for (const s of shown) {
          const p = find(s);
          if (!p || Math.abs(x(p[0]) - x(best)) > 24) continue;
          cross.append(draw("circle", {cx: x(p[0]), cy: Math.max(box.top, Math.min(box.bottom, y(p[1]))), r: 4, fill: s.colour}));
          rows.push({name: s.name, value: (o.yExact || o.yShow)(p[1]), colour: s.colour});
        }
        const mark = (o.marks || []).find(m => Math.abs(x(m.x) - x(best)) < 4);
        if (mark) rows.push({name: mark.label, value: ""});
        hint.show(x(best), event.clientY - at.top, `${o.xName || o.xLabel} ${o.xShow(best)}`, rows);
      };
      svg.append(cross);
      svg.onpointermove = near;
      svg.onpointerdown = near;
      svg.onpointerleave = () => { cross.replaceChildren(); hint.hide(); };
      return box.bottom + 40;
    };
    const card = figure(o.name, o.title, o.note, legend, paint);
    return card;
  };

  // ---- timeline ----
  // rows: [{name, spans: [{from, to, kind, label}]}]; kinds: [{kind, name, colour}]
  const timeline = o => {
    const kinds = new Map(o.kinds.map(k => [k.kind, k]));
    const legend = el("div", {class: "legend"}, o.kinds.map(k => el("span", {class: "key"}, key(k.name, k.colour, k.value))));
    const end = o.end || Math.max(...o.rows.flatMap(r => r.spans.map(s => s.to)));
    return figure(o.name, o.title, o.note, legend, (svg, width, hint) => {
      const narrow = width < 560, longest = Math.max(...o.rows.map(r => r.name.length));
      const height = narrow ? 40 : 26, box = {left: narrow ? 0 : Math.min(220, 14 + 7 * longest), right: width - 2, top: 6};
      box.bottom = box.top + o.rows.length * height;
      const x = xAxis(svg, box, [0, end], format.seconds, o.xLabel || "time of the step");
      o.rows.forEach((row, i) => {
        const top = box.top + i * height + (narrow ? 16 : 3), bar = 20;
        svg.append(draw("text", {class: "strong", x: narrow ? 0 : box.left - 8, y: narrow ? top - 4 : top + 14, "text-anchor": narrow ? "start" : "end"}, row.name));
        svg.append(draw("rect", {x: box.left, y: top, width: box.right - box.left, height: bar, fill: "var(--idle)", opacity: 0.35, rx: 2}));
        for (const s of row.spans) {
          const k = kinds.get(s.kind) || {colour: "var(--c7)", name: s.kind}, w = x(s.to) - x(s.from);
          const rect = draw("rect", {x: x(s.from), y: top, width: Math.max(w, 0.4), height: bar, fill: k.colour, rx: Math.min(2, w / 4), "data-kind": s.kind,
            "stroke": w > 4 ? "var(--card)" : null, "stroke-width": w > 4 ? 0.7 : null});
          if (w > 18 && s.mark) svg.append(rect, draw("text", {x: x(s.from) + w / 2, y: top + 14, "text-anchor": "middle", style: "fill:var(--card);font-size:11px;pointer-events:none"}, s.mark));
          else svg.append(rect);
          const show = event => {
            const at = svg.getBoundingClientRect();
            hint.show(event.clientX - at.left, top, s.label || k.name, [{name: k.name, value: format.seconds(s.to - s.from), colour: k.colour},
              {name: "from", value: format.seconds(s.from)}]);
          };
          rect.addEventListener("pointermove", show);
          rect.addEventListener("pointerdown", show);
          rect.addEventListener("pointerleave", () => hint.hide());
        }
      });
      return box.bottom + 40;
    });
  };

  // ---- bars ----
  // rows: [{name, parts: [{kind, value}], note}]; kinds: [{kind, name, colour}]; limit: a line.
  const bars = o => {
    const kinds = o.kinds.filter(k => o.rows.some(r => r.parts.some(p => p.kind === k.kind && p.value > 0)));
    const single = o.rows.length === 1;
    const legend = el("div", {class: "legend"}, kinds.map(k => {
      const part = single ? o.rows[0].parts.find(p => p.kind === k.kind) : null;
      return el("span", {class: "key", "data-series": k.kind}, key(k.name, k.colour, part ? o.show(part.value) : undefined, part ? part.value : undefined));
    }));
    const total = r => r.parts.reduce((a, p) => a + (p.value || 0), 0);
    const most = Math.max(...o.rows.map(total), o.limit || 0) || 1;
    return figure(o.name, o.title, o.note, legend, (svg, width, hint) => {
      const narrow = width < 560, longest = Math.max(...o.rows.map(r => r.name.length));
      const height = narrow ? 42 : 28, box = {left: narrow ? 0 : Math.min(240, 14 + 7 * longest), right: width - 96, top: 6};
      box.bottom = box.top + o.rows.length * height;
      const x = xAxis(svg, box, [0, most], o.show, o.xLabel);
      o.rows.forEach((row, i) => {
        const top = box.top + i * height + (narrow ? 18 : 4);
        let sum = 0;
        svg.append(draw("text", {class: "strong", x: narrow ? 0 : box.left - 8, y: narrow ? top - 5 : top + 15, "text-anchor": narrow ? "start" : "end"}, row.name));
        for (const k of kinds) {
          const part = row.parts.find(p => p.kind === k.kind);
          if (!part || !(part.value > 0)) continue;
          const rect = draw("rect", {x: x(sum), y: top, width: Math.max(x(sum + part.value) - x(sum), 0.5), height: 20, fill: k.colour, "data-kind": k.kind});
          const show = event => {
            const at = svg.getBoundingClientRect();
            hint.show(event.clientX - at.left, top, row.name, [{name: k.name, value: o.show(part.value), colour: k.colour}, {name: "together", value: o.show(total(row))}]);
          };
          rect.addEventListener("pointermove", show);
          rect.addEventListener("pointerdown", show);
          rect.addEventListener("pointerleave", () => hint.hide());
          svg.append(rect);
          sum += part.value;
        }
        svg.append(draw("text", {class: "strong", x: x(sum) + 6, y: top + 15}, o.show(total(row)) + (row.note ? " " + row.note : "")));
      });
      if (o.limit) {
        svg.append(draw("line", {x1: x(o.limit), x2: x(o.limit), y1: box.top - 4, y2: box.bottom, stroke: "var(--bad)", "stroke-width": 2, "stroke-dasharray": "4 3"},
          draw("title", {}, `limit ${o.show(o.limit)}`)));
      }
      return box.bottom + 40;
    });
  };

  // ---- tables ----
  // columns: [{key, name, show, number, long}]; rows: objects. A click on a head sorts.
  const table = o => {
    const FEW = o.few || 25;
    let by = o.by === undefined ? null : o.by, down = o.down || false, all = o.rows.length <= FEW, words = "";
    const body = el("tbody"), heads = o.columns.map(c => {
      const th = el("th", {class: c.number ? "number" : null, scope: "col"}, el("button", {type: "button", on: {click: () => {
        down = by === c.key ? !down : Boolean(c.number);
        by = c.key;
        refresh();
      }}}, c.name));
      return th;
    });
    const more = el("button", {class: "press", type: "button", on: {click: () => { all = true; refresh(); }}});
    const show = (c, row) => (c.show || format.text)(row[c.key], row);
    const refresh = () => {
      const rows = o.rows.filter(r => !words || o.columns.some(c => String(show(c, r)).toLowerCase().includes(words)));
      if (by !== null) {
        const sign = down ? -1 : 1, empty = v => v === null || v === undefined || v === "";
        rows.sort((a, b) => {
          const u = a[by], v = b[by];
          if (empty(u) || empty(v)) return empty(u) - empty(v);
          return sign * (typeof u === "number" && typeof v === "number" ? u - v : String(u).localeCompare(String(v), "en", {numeric: true}));
        });
      }
      o.columns.forEach((c, i) => heads[i].setAttribute("aria-sort", by === c.key ? (down ? "descending" : "ascending") : "none"));
      const part = all || words ? rows : rows.slice(0, FEW);
      body.replaceChildren(...part.map(r => el("tr", {}, o.columns.map(c => {
        const raw = r[c.key];
        return el("td", {class: c.number ? "number" : c.long ? "long" : null, "data-raw": known(raw) ? raw : null}, show(c, r));
      }))));
      more.hidden = part.length === rows.length;
      more.textContent = `show all ${rows.length}`;
    };
    refresh();
    const find = o.rows.length > FEW ? el("input", {type: "search", placeholder: "find", "aria-label": `find in ${o.title}`, on: {input: e => { words = e.target.value.trim().toLowerCase(); refresh(); }}}) : null;
    return el("section", {class: "card wide", "data-table": o.name, "data-rows": o.rows.length},
      el("div", {class: "tools"}, el("h3", {}, o.title), find), o.note ? el("p", {class: "soft", style: "font-size:13px;margin:2px 0 0"}, o.note) : null,
      el("div", {class: "scroll"}, el("table", {}, el("thead", {}, el("tr", {}, heads)), body)), more);
  };

  // ---- small parts ----
  // list: [{name, label, value, raw, note}]
  const tiles = list => el("div", {class: "tiles"}, list.filter(t => t && t.value !== "\u2013").map(t =>
    el("div", {class: "tile"}, el("div", {class: "label"}, t.label), el("div", {class: "value", "data-value": t.name, "data-raw": known(t.raw) ? t.raw : null}, t.value),
      t.note ? el("div", {class: "note"}, t.note) : null)));
  const grid = (...cards) => el("div", {class: "grid"}, ...cards);
  const card = (...children) => el("section", {class: "card"}, ...children);
  // One of several buttons; act(value) is called on a choice.
  const choice = (list, chosen, act) => {
    const buttons = list.map(([value, name]) => el("button", {class: "press", type: "button", "aria-pressed": String(value === chosen), on: {click: () => {
      buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(list[i][0] === value)));
      act(value);
    }}}, name));
    return el("span", {class: "choice"}, buttons);
  };

  // The scheme: the system's, until the button or the address (#dark, #light) says otherwise.
  const scheme = () => {
    const asked = location.hash === "#dark" || location.hash === "#light" ? location.hash.slice(1) : null;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    let own = asked;
    const set = () => { document.documentElement.dataset.scheme = own || (dark.matches ? "dark" : "light"); };
    dark.addEventListener("change", set);
    set();
    return el("button", {class: "press", type: "button", "aria-label": "light or dark", on: {click: () => {
      own = document.documentElement.dataset.scheme === "dark" ? "light" : "dark";
      set();
    }}}, "light / dark");
  };
  const head = (title, ...below) => el("header", {class: "head"}, el("div", {style: "min-width:0"}, el("h1", {}, title), ...below), scheme());
  const report = () => JSON.parse(document.getElementById("report").textContent);
  // Figures know their width once they are in the page.
  const put = (place, ...parts) => {
    place.replaceChildren(...parts.flat().filter(Boolean));
    if (place.isConnected) place.querySelectorAll("figure").forEach(f => f.redraw());
  };
  const show = (...parts) => put(document.getElementById("page"), ...parts);

  return {el, put, format, known, colour, curves, timeline, bars, table, tiles, grid, card, choice, head, report, show};
})();

// SPDX-License-Identifier: Apache-2.0
// The page of `trireme plan --hardware FILE --html`: a plan for a cluster that is not here, as its --json prints it.
"use strict";
(() => {
  const {el, format, known, colour, curves, timeline, bars, table, tiles, grid, card, head, report, show} = page;
  const d = report(), p = d.plan, certificate = d.certificate, ms = format.seconds;
  const words = key => key.replace(/_/g, " ");

  const figures = tiles([
    {name: "step_seconds", label: "time of a step", value: ms(d.step_seconds), raw: d.step_seconds, note: `batch of ${format.whole(d.global_batch)} samples`},
    {name: "tokens_per_second_per_device", label: "tokens a second, a device", value: format.whole(d.tokens_per_second_per_device), raw: d.tokens_per_second_per_device},
    {name: "mfu", label: "model FLOP utilisation", value: format.percent(d.mfu), raw: d.mfu, note: `of ${format.flops(d.hardware.peak_flops)}/s, ${d.hardware.products}`},
    {name: "memory_bytes", label: "memory of a device", value: format.bytes(d.memory_bytes), raw: d.memory_bytes, note: `of ${format.bytes(d.memory_limit_bytes)}`},
    {name: "parameters", label: "parameters", value: format.count(d.model.parameters), raw: d.model.parameters,
      note: d.model.active_parameters < 0.9 * d.model.parameters ? `${format.count(d.model.active_parameters)} for a token` : null},
    {name: "devices", label: "devices", value: format.whole(d.devices), raw: d.devices, note: `${d.hardware.devices_per_node} in a node`}
  ]);

  const proof = card(el("h3", {}, "The certificate"), el("p", {"data-proof": ""},
    (d.infeasible ? "No plan fits the memory of a device; this one takes the least. " : "") +
    `The plan takes ${ms(certificate.objective)} a step in the costs of the hardware file. ${d.infeasible ? "" : `No plan of the space takes less than ${ms(certificate.lower_bound)}. `}The search has priced ` +
    `${format.whole(certificate.plans)} plans in ${ms(certificate.solve_seconds)}, and left out ${format.whole(certificate.plans_over_memory)} that do not fit.` +
    (!certificate.gap_reason ? "" : d.infeasible ? ` Proven is: ${certificate.gap_reason}.` : ` The plan is at most ${format.percent(certificate.gap)} from the best one: ${certificate.gap_reason}.`)),
    el("p", {class: "soft"}, "What is assumed:"), el("ul", {class: "plain"}, certificate.assumptions.map(a => el("li", {}, a))),
    d.model.differs ? el("p", {class: "problem"}, `The model differs from the published one: ${d.model.differs}`) : null);

  // A row for each stage, a cell for each copy of it; the devices of a cell share its tensors.
  const layout = () => {
    const group = p.tp * p.cp, copies = Math.min(p.dp, 8), rows = Math.min(p.pp, 16), cells = [];
    for (let s = 0; s < rows; s++) for (let c = 0; c < copies; c++) {
      cells.push(el("div", {mark: colour(s), title: `stage ${s}, copy ${c}: ${group} devices`}, copies > 4 ? `${group}` : `${group} device${group > 1 ? "s" : ""}`));
    }
    return card(el("h3", {}, d.described), el("p", {class: "soft", style: "font-size:13px"},
      `a row is one of ${p.pp} stage${p.pp > 1 ? "s" : ""}, a column one of ${p.dp} copies (data parallel); a cell has TP ${p.tp} \u00d7 CP ${p.cp} devices${p.ep > 1 ? `, experts over ${p.ep}` : ""}`),
      el("div", {class: "mesh", style: `grid-template-columns: repeat(${copies}, minmax(0, 1fr))`, "data-ranks": d.devices}, cells),
      copies < p.dp || rows < p.pp ? el("p", {class: "soft", style: "font-size:13px"}, `${rows} of ${p.pp} stages, ${copies} of ${p.dp} copies are shown`) : null,
      el("p", {class: "soft", style: "font-size:13px;overflow-wrap:anywhere"}, p.words));
  };

  // ---- the step: the schedule is played with the times of a micro-batch ----
  const orderOf = (s, S, M, V) => {
    const total = M * V, forward = k => ({back: false, chunk: Math.floor(k % (S * V) / S), micro: Math.floor(k / (S * V)) * S + k % S});
    const backward = k => ({back: true, chunk: V - 1 - Math.floor(k % (S * V) / S), micro: Math.floor(k / (S * V)) * S + k % S});
    const plain = V === 1 ? {f: k => ({back: false, chunk: 0, micro: k}), b: k => ({back: true, chunk: 0, micro: k})} : {f: forward, b: backward};
    const warm = Math.min(total, p.schedule === "gpipe" ? total : V === 1 ? S - s - 1 : (S - s - 1) * 2 + (V - 1) * S), order = [];
    for (let k = 0; k < warm; k++) order.push(plain.f(k));
    for (let k = warm; k < total; k++) order.push(plain.f(k), plain.b(k - warm));
    for (let k = total - warm; k < total; k++) order.push(plain.b(k));
    return order;
  };
  const MOST_PLAYED = 100000, MOST_DRAWN = 6000;
  const play = () => {
    const S = p.pp, M = p.micro_batches, V = p.vp, t = d.micro_batch_seconds;
    if (S * M * V * 2 > MOST_PLAYED || S > 64 || (V > 1 && M % S)) return null;
    const orders = Array.from({length: S}, (_, s) => orderOf(s, S, M, V)), at = new Array(S).fill(0), free = new Array(S).fill(0), ends = new Map(), rows = orders.map((_, s) => ({name: `stage ${s}`, spans: []}));
    const name = (s, a) => `${a.back}/${s}/${a.chunk}/${a.micro}`;
    // what an action waits for: the same stage's forward, and the neighbour's action
    const before = (s, a) => {
      if (!a.back) return s > 0 ? [name(s - 1, a)] : a.chunk > 0 ? [name(S - 1, {...a, chunk: a.chunk - 1})] : [];
      const own = name(s, {...a, back: false});
      return s < S - 1 ? [own, name(s + 1, a)] : a.chunk < V - 1 ? [own, name(0, {...a, chunk: a.chunk + 1})] : [own];
    };
    for (let moved = true; moved;) {
      moved = false;
      for (let s = 0; s < S; s++) {
        for (; at[s] < orders[s].length; at[s]++) {
          const a = orders[s][at[s]], needs = before(s, a);
          if (!needs.every(n => ends.has(n))) break;
          const arrives = Math.max(0, ...needs.map(n => ends.get(n) + (n.split("/")[1] === String(s) ? 0 : t.message)));
          const from = Math.max(free[s], arrives), to = from + p.stage_seconds[s][a.back ? 1 : 0] / V;
          free[s] = to;
          ends.set(name(s, a), to);
          rows[s].spans.push({from, to, kind: a.back ? "backward" : "forward", mark: V === 1 ? String(a.micro) : "", label: `${a.back ? "backward" : "forward"} of micro-batch ${a.micro}${V > 1 ? `, run ${a.chunk}` : ""}`});
          moved = true;
        }
      }
    }
    if (at.some((x, s) => x < orders[s].length)) return null;
    const end = Math.max(...free), rest = [["data", "data_messages"], ["update", "update"]];
    for (const row of rows) {
      let from = end;
      for (const [kind, key] of rest) if (d.seconds[key] > 0) { row.spans.push({from, to: from + d.seconds[key], kind, label: words(key)}); from += d.seconds[key]; }
    }
    return {rows, end: end + rest.reduce((a, [, k]) => a + (d.seconds[k] || 0), 0)};
  };
  const step = () => {
    const played = play();
    if (!played) return null;
    // of a long schedule as much of its beginning as can be drawn
    const begins = played.rows.flatMap(r => r.spans.map(s => s.from)).sort((a, b) => a - b), long = begins.length > MOST_DRAWN, end = long ? begins[MOST_DRAWN] : played.end;
    const rows = long ? played.rows.map(r => ({...r, spans: r.spans.filter(s => s.from < end).map(s => ({...s, to: Math.min(s.to, end)}))})) : played.rows;
    const one = timeline({name: "step", title: `One step, stage by stage: ${p.schedule}`, note: `${long ? `the first ${ms(end)} of ${ms(played.end)}: ` : ""}the schedule, played with the report's times of a micro-batch; grey is waiting (bubbles)`, rows, end,
      kinds: [["forward", "forward", 0], ["backward", "backward", 1], ["data", "messages of data parallel", 4], ["update", "update", 2]].map(([kind, name, c]) => ({kind, name, colour: colour(c)}))});
    one.dataset.end = played.end;
    return el("div", {class: "grid", style: "margin-top:16px;grid-template-columns:minmax(0,1fr)"}, one);
  };

  // ---- bars and tables ----
  const partsOf = (name, title, values, showValue, limit) => {
    const keys = Object.keys(values).filter(k => k !== "step");
    return bars({name, title, xLabel: name === "memory" ? "bytes" : "time of the step", show: showValue, limit, note: limit ? "dashed: the limit" : null,
      kinds: keys.map((k, i) => ({kind: k, name: words(k), colour: k === "bubble" ? "var(--idle)" : colour(i)})), rows: [{name: name === "memory" ? "device" : "step", parts: keys.map(k => ({kind: k, value: values[k]}))}]});
  };
  const plans = [{name: "this plan", ...d}, ...(d.given ? [{name: "the given plan", ...d.given}] : []), ...d.runners_up.map(r => ({name: `other ${r.kind}`, ...r.found})),
    ...(d.without_memory_limit ? [{name: "without a memory limit", ...d.without_memory_limit}] : []), ...(d.least_memory ? [{name: "least memory", ...d.least_memory}] : [])];
  const others = bars({name: "others", title: "Other plans", xLabel: "time of a step", show: ms, note: "the best plan that has another value of one choice",
    kinds: [{kind: "this", name: "this plan", colour: colour(0)}, {kind: "other", name: "other plans", colour: colour(7)}],
    rows: plans.filter(x => x.name !== "least memory").map((x, i) => ({name: x.name, parts: [{kind: i ? "other" : "this", value: x.step_seconds}]}))});
  const runners = table({name: "plans", title: "Plans", rows: plans.map(x => ({slower: x.step_seconds / d.step_seconds - 1, ...x})), columns: [{key: "name", name: "which"}, {key: "described", name: "plan", long: true},
    {key: "step_seconds", name: "step", show: ms, number: true}, {key: "slower", name: "slower", show: format.percent, number: true}, {key: "tokens_per_second_per_device", name: "tokens/s, a device", show: format.whole, number: true},
    {key: "mfu", name: "MFU", show: format.percent, number: true}, {key: "memory_bytes", name: "memory", show: format.bytes, number: true}]});
  const facts = (name, title, object) => table({name, title, rows: Object.entries(object).filter(([, v]) => v !== null && v !== 0).map(([k, v]) => ({what: words(k), value: v})),
    columns: [{key: "what", name: "what"}, {key: "value", name: "value", show: v => known(v) ? format.short(v, 6) : format.text(v), long: true}]});

  // ---- memory against time; other numbers of devices ----
  const frontier = () => {
    const points = [...(d.without_memory_limit && d.without_memory_limit.step_seconds < d.step_seconds && d.without_memory_limit.memory_bytes < 2 * d.memory_limit_bytes ? [d.without_memory_limit] : []), ...(d.frontier || [])]
      .map(f => [f.step_seconds, f.memory_bytes]).sort((a, b) => a[0] - b[0]);
    return points.length > 1 ? curves({name: "frontier", title: "Memory against time", note: "each point is the fastest plan within its memory; the first may be over the limit", xLabel: "time of a step", xShow: ms,
      yLabel: "memory of a device", yShow: format.bytes, dots: true, steps: true, series: [{name: "best plans", points}], marks: [{x: d.step_seconds, label: "this plan"}]}) : null;
  };
  const scaling = () => (d.scaling || []).length > 1 ? [el("h2", {}, "Other numbers of devices"),
    curves({name: "scaling", title: "The same batch on fewer and more devices", xLabel: "devices", xName: "devices:", xShow: v => Number.isInteger(v) ? format.whole(2 ** v) : "", yLabel: "tokens a second, a device", yShow: format.short,
      dots: true, series: [{name: "best plan", points: d.scaling.map(x => [Math.log2(x.devices), x.fits ? x.tokens_per_second_per_device : null])}]}),
    table({name: "scaling", title: "Scaling", rows: d.scaling, columns: [{key: "devices", name: "devices", show: format.whole, number: true}, {key: "step_seconds", name: "step", show: ms, number: true},
      {key: "tokens_per_second_per_device", name: "tokens/s, a device", show: format.whole, number: true}, {key: "mfu", name: "MFU", show: format.percent, number: true},
      {key: "memory_bytes", name: "memory", show: format.bytes, number: true}, {key: "fits", name: "fits", show: f => f ? "yes" : "no"}]})] : [];

  show(head(`${d.model.name} on ${format.whole(d.devices)} devices`, el("p", {class: "soft"}, d.hardware.name)), figures, grid(layout(), proof), step(),
    el("div", {class: "grid two", style: "margin-top:16px"}, partsOf("parts", "Where the time of the step goes", d.seconds, ms), partsOf("memory", "Memory of a device", d.memory, format.bytes, d.memory_limit_bytes), ...[frontier(), others].filter(Boolean)), scaling(),
    el("h2", {}, "Details"), runners, facts("model", "Model", d.model), facts("hardware", "Hardware", d.hardware), el("footer", {}, (d.scaling || []).length ? "trireme simulate --hardware" : "trireme plan --hardware"));
})();

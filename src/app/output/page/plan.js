// SPDX-License-Identifier: Apache-2.0
// The page of `trireme plan --html` and `simulate --html`: the reports that --json prints.
"use strict";
(() => {
  const {el, format, known, colour, curves, timeline, bars, table, tiles, grid, card, head, report, show} = page;
  const all = report(), d = all.plan, sim = all.simulation, pipe = d.pipeline || null, certificate = d.certificate || {};
  const ms = format.seconds, step = pipe ? pipe.step_seconds : d.step_seconds;

  // ---- figures ----
  const figures = tiles([
    {name: "step_seconds", label: "time of a step", value: ms(step), raw: step, note: known(certificate.lower_bound) ? `no plan below ${ms(certificate.lower_bound)}` : null},
    {name: "samples_per_second", label: "samples a second", value: format.short(d.samples_per_second), raw: d.samples_per_second, note: `batch of ${format.whole(d.global_batch)}`},
    {name: "gap", label: "gap of the proof", value: format.percent(certificate.gap), raw: certificate.gap},
    {name: "memory_bytes", label: "memory of a rank", value: format.bytes(pipe ? pipe.memory_bytes : d.memory_bytes), raw: pipe ? pipe.memory_bytes : d.memory_bytes,
      note: d.compiled_bytes > 0 ? `program ${format.bytes(d.compiled_bytes)}` : null},
    {name: "exposed_seconds", label: "exposed communication", value: ms(exposed()), raw: exposed(), note: `${format.percent(exposed() / d.step_seconds)} of the step${pipe ? " without stages" : ""}`},
    pipe ? {name: "bubble", label: "bubbles", value: format.percent(pipe.bubble), raw: pipe.bubble, note: "of the ranks' time"} : null,
    d.utilisation > 0 ? {name: "utilisation", label: "utilisation", value: format.percent(d.utilisation), raw: d.utilisation, note: `of ${format.flops(d.peak_flops)}/s`} : null,
    {name: "data_parallel_seconds", label: "data parallel", value: ms(d.data_parallel_seconds), raw: d.data_parallel_seconds,
      note: d.data_parallel_seconds > 0 ? `${format.number(d.data_parallel_seconds / step)} times the plan` : null}
  ]);
  function exposed() { return ["redistribution_seconds", "exchange_seconds", "gather_seconds", "exposed_seconds"].reduce((a, k) => a + (d[k] || 0), 0); }

  // ---- the proof, in words ----
  const proof = () => {
    const words = [];
    if (d.infeasible) words.push("No plan fits the memory limit; this one takes the least.");
    if (known(certificate.lower_bound)) {
      words.push(`The plan takes ${ms(certificate.objective)} a step in the costs of this report. The search proves that no plan of its space takes less than ${ms(certificate.lower_bound)}` +
        (certificate.gap > 1e-9 ? `: the plan is at most ${format.percent(certificate.gap)} from the best one.` : ": the plan is the best one."));
    } else {
      words.push(`This search (${d.search}) gives no bound: other plans may be better.`);
    }
    if (certificate.gap_reason) words.push(`The gap remains because ${certificate.gap_reason}.`);
    words.push(certificate.chosen_by === "measurement" ? `Plans with nearly equal predictions were run in ${certificate.tried_turns} turns, and the fastest was chosen.` : "It was chosen by its prediction.");
    words.push(`The search took ${ms(certificate.search_seconds)}.`);
    if (known(certificate.limit_bytes)) words.push(`The memory limit of a rank is ${format.bytes(certificate.limit_bytes)}.`);
    return card(el("h3", {}, "The certificate"), el("p", {"data-proof": ""}, words.join(" ")),
      (certificate.assumptions || []).length ? [el("p", {class: "soft"}, "What is assumed:"), el("ul", {class: "plain"}, certificate.assumptions.map(a => el("li", {}, a)))] : null,
      (d.warnings || []).length ? [el("p", {class: "soft"}, "Operators that no plan can cut:"),
        el("ul", {class: "plain"}, d.warnings.slice(0, 12).map(w => el("li", {}, `${w.operator}: ${w.reason} (${ms(w.seconds)})`)))] : null);
  };

  // ---- the mesh: a cell for each rank; stages are rows ----
  const mesh = () => {
    const MOST = 64, parts = String(pipe ? pipe.mesh : d.mesh).split("x").map(Number), inner = parts.reduce((a, b) => a * b, 1);
    const stages = pipe ? pipe.stages : 1, cells = [], names = "abcdefgh";
    const columns = pipe ? inner : parts.length ? parts[parts.length - 1] : 1, rows = pipe ? stages : inner / columns;
    const shownColumns = Math.min(columns, 8), shownRows = Math.min(rows, Math.floor(MOST / shownColumns));
    for (let r = 0; r < shownRows; r++) {
      for (let c = 0; c < shownColumns; c++) {
        const rank = r * columns + c;
        cells.push(el("div", {mark: colour(pipe ? r : 0), title: pipe ? `stage ${r}, rank ${rank}` : `rank ${rank}`}, shownColumns > 4 ? String(rank) : `rank ${rank}`));
      }
    }
    const cut = shownColumns < columns || shownRows < rows;
    const axes = parts.map((p, i) => `${names[i]} (${p})`).join(" \u00d7 ");
    return card(el("h3", {}, pipe ? `${stages} stages, each on mesh ${pipe.mesh}` : `Mesh ${d.mesh}`),
      el("p", {class: "soft", style: "font-size:13px"}, pipe ? `a row is a stage: ${pipe.micro_batches} micro-batches of ${pipe.micro_batch}, ${pipe.schedule}${pipe.chunks > 1 ? `, ${pipe.chunks} runs a stage` : ""}, recompute ${pipe.recompute}`
        : `axes ${axes}; cuts of the plan: ${d.cuts || "none"}`),
      el("div", {class: "mesh", style: `grid-template-columns: repeat(${shownColumns}, minmax(0, 1fr))`, "data-ranks": d.ranks}, cells),
      cut ? el("p", {class: "soft", style: "font-size:13px"}, `the first ${shownRows * shownColumns} of ${format.whole(stages * inner)} ranks`) : null);
  };

  // ---- one step ----
  const stepOfStages = () => timeline({name: "step", title: "One step, stage by stage", note: "numbers are micro-batches; grey is waiting (bubbles)",
    kinds: [{kind: "forward", name: "forward", colour: colour(0)}, {kind: "backward", name: "backward", colour: colour(1)}, {kind: "update", name: "update", colour: colour(2)},
      ...(pipe.meetings.length ? [{kind: "meeting", name: "meetings of all stages", colour: colour(4)}] : [])],
    end: pipe.step_seconds,
    rows: pipe.actions.map((list, s) => {
      const stage = pipe.stage_list[s], spans = list.map(a => ({from: a.begin, to: a.end, kind: a.backward ? "backward" : "forward", mark: String(a.micro_batch),
        label: `${a.backward ? "backward" : "forward"} of micro-batch ${a.micro_batch}${pipe.chunks > 1 ? `, run ${a.chunk}` : ""}`}));
      if (stage && stage.update_seconds > 0) spans.push({from: stage.update_begins_seconds, to: stage.update_begins_seconds + stage.update_seconds, kind: "update", label: "update and gradients"});
      pipe.meetings.forEach((m, i) => spans.push({from: m.begin, to: m.end, kind: "meeting", label: `all stages meet ${i ? "after" : "before"} their updates`}));
      return {name: `stage ${s}`, spans};
    })});
  const stepOfRank = (list, n) => {
    const kind = e => e.kind === "operator" ? e.phase : e.kind === "message" ? "message" : "optimiser";
    const spans = list.filter(e => e.end > e.begin).map(e => ({from: e.begin, to: e.end, kind: kind(e), label: e.name, row: e.hidden ? 2 : e.kind === "message" ? 1 : 0}));
    const sum = k => ms(spans.filter(s => s.kind === k).reduce((a, s) => a + s.to - s.from, 0));
    return timeline({name: "step", title: `One step of ${n === 1 ? "the rank" : `one of ${format.whole(n)} equal ranks`}`, note: "simulated; gradients, and parameters that are gathered ahead, travel beside operators",
      kinds: [["forward", 0], ["backward", 1], ["optimiser", 2], ["message", 4]].map(([k, c]) => ({kind: k, name: k === "message" ? "communication" : k, colour: colour(c), value: sum(k)})),
      rows: ["computes", "waits for messages", "messages beside"].map((name, i) => ({name, spans: spans.filter(s => s.row === i)})).filter((r, i) => i === 0 || r.spans.length)});
  };

  // ---- bars ----
  const PARTS = [["operator_seconds", "operators", 0], ["again_seconds", "recomputed operators", 3], ["update_seconds", "optimiser", 2], ["redistribution_seconds", "redistribution", 1],
    ["exchange_seconds", "halos and statistics", 5], ["gather_seconds", "gathering parameters", 6], ["exposed_seconds", "gradients that are waited for", 4]];
  const parts = () => pipe ? bars({name: "parts", title: "Where the time of a stage goes", xLabel: "time of the step", show: ms,
    kinds: [{kind: "busy_seconds", name: "forward and backward", colour: colour(0)}, {kind: "update_seconds", name: "update", colour: colour(2)}, {kind: "meeting_seconds", name: "meetings of all stages", colour: colour(4)}, {kind: "bubble_seconds", name: "bubbles", colour: "var(--idle)"}],
    rows: pipe.stage_list.map(s => ({name: `stage ${s.stage}`, parts: ["busy_seconds", "update_seconds", "meeting_seconds", "bubble_seconds"].map(k => ({kind: k, value: s[k]}))}))})
    : bars({name: "parts", title: "Where the time of the step goes", xLabel: "time of the step", show: ms, kinds: PARTS.map(([kind, name, c]) => ({kind, name, colour: colour(c)})),
      rows: [{name: "step", parts: PARTS.map(([kind]) => ({kind, value: d[kind]}))}]});
  const KINDS = [["parameter_bytes", "parameters", 0], ["gradient_bytes", "gradients", 1], ["slot_bytes", "optimiser state", 2], ["kept_bytes", "kept for backward", 3], ["staging_bytes", "messages of stages", 4]];
  const memory = () => bars({name: "memory", title: pipe ? "Memory of a rank, by stage" : "Memory of a rank", xLabel: "bytes", show: format.bytes, limit: certificate.limit_bytes,
    note: known(certificate.limit_bytes) ? "dashed: the limit" : null, kinds: KINDS.map(([kind, name, c]) => ({kind, name, colour: colour(c)})),
    rows: pipe ? pipe.stage_list.map(s => ({name: `stage ${s.stage}`, parts: KINDS.map(([kind]) => ({kind, value: s.memory[kind]}))}))
      : [{name: "rank", parts: KINDS.map(([kind]) => ({kind, value: d.memory[kind]}))}]});

  // ---- memory against time ----
  const frontier = () => {
    const points = (d.frontier || []).map(f => [f.step_seconds, f.memory_bytes]).sort((a, b) => a[0] - b[0]);
    return points.length > 1 ? curves({name: "frontier", title: "Memory against time", note: d.frontier_exact ? "no plan lies below this curve" : "plans that the search found",
      xLabel: "time of a step", xShow: ms, yLabel: "memory of a rank", yShow: format.bytes, dots: true, steps: true, series: [{name: "best plans", points}],
      marks: pipe ? [] : [{x: d.step_seconds, label: "the chosen plan"}]}) : null;
  };
  const others = () => {
    const rows = [{name: "this plan", step_seconds: step}, ...(pipe && d.without_stages && d.without_stages.fits ? [{name: "best plan without stages", step_seconds: d.without_stages.step_seconds}] : []),
      ...(d.baselines || []), ...((d.meshes || []).length > 1 ? d.meshes.map(m => ({...m, name: `best of mesh ${m.name}`})) : [])];
    return rows.length > 1 ? bars({name: "others", title: "Other plans", xLabel: "time of a step", show: ms, kinds: [{kind: "this", name: "this plan", colour: colour(0)}, {kind: "other", name: "other plans", colour: colour(7)}],
      rows: rows.slice(0, 14).map((r, i) => ({name: r.name, note: r.fits === false ? "(does not fit)" : "", parts: [{kind: i ? "other" : "this", value: r.step_seconds}]}))}) : null;
  };

  // ---- scaling ----
  const scaling = (list, name, title) => {
    const at = key => list.map(p => [Math.log2(p.ranks), p[key]]);
    return curves({name, title, xLabel: "ranks", xName: "ranks:", xShow: v => Number.isInteger(v) ? format.whole(2 ** v) : "", yLabel: "samples a second", yShow: format.short, yExact: format.exact,
      dots: true, series: [{name: "best plan", points: at("samples_per_second")},
        {name: "data parallel", points: list.map(p => [Math.log2(p.ranks), p.data_parallel_seconds > 0 ? p.global_batch / p.data_parallel_seconds : null])}]});
  };
  const simulation = () => sim ? [el("h2", {}, "More ranks, other machines"), grid(scaling(sim.weak, "weak", "Weak scaling: the same samples a rank"), scaling(sim.strong, "strong", "Strong scaling: the same global batch")),
    table({name: "what_if", title: "What if", rows: [...sim.what_if, {what: `one rank ${format.number(sim.straggler.times)} times as slow`, step_seconds: sim.straggler.step_seconds, best_plan_seconds: null}],
      columns: [{key: "what", name: "change"}, {key: "step_seconds", name: "this plan", show: ms, number: true}, {key: "best_plan_seconds", name: "best plan there", show: ms, number: true}]}),
    table({name: "scaling", title: "Scaling", rows: [...sim.weak.map(p => ({kind: "weak", ...p})), ...sim.strong.map(p => ({kind: "strong", ...p}))],
      columns: [{key: "kind", name: "scaling"}, {key: "ranks", name: "ranks", show: format.whole, number: true}, {key: "mesh", name: "mesh"}, {key: "global_batch", name: "batch", show: format.whole, number: true},
        {key: "step_seconds", name: "step", show: ms, number: true}, {key: "samples_per_second", name: "samples/s", show: format.short, number: true},
        {key: "exposed_seconds", name: "exposed", show: ms, number: true}, {key: "memory_bytes", name: "memory", show: format.bytes, number: true}]})] : [];

  // ---- tables ----
  const operators = () => table({name: "operators", title: "Operators", note: "cut: a letter for each axis of the mesh; the next best cut would make the step longer by its price",
    rows: d.operators.map((o, i) => ({number: i, seconds: o.forward_seconds + o.backward_seconds, ...o})), columns: [{key: "number", name: "#", number: true, show: format.whole}, {key: "name", name: "operator"},
      {key: "kind", name: "kind"}, {key: "output", name: "output"}, {key: "strategy", name: "cut"}, {key: "forward_seconds", name: "forward", show: ms, number: true},
      {key: "backward_seconds", name: "backward", show: ms, number: true}, {key: "message_seconds", name: "messages", show: ms, number: true}, {key: "runner_up", name: "next best"},
      {key: "runner_up_price_seconds", name: "its price", show: ms, number: true}]});
  const messages = () => (d.communication || []).length ? table({name: "communication", title: "Communication", rows: d.communication, by: "exposed_seconds", down: true, columns: [{key: "kind", name: "message"},
    {key: "axes", name: "ranks along"}, {key: "count", name: "count", show: format.whole, number: true}, {key: "bytes", name: "bytes", show: format.bytes, number: true},
    {key: "seconds", name: "time", show: ms, number: true}, {key: "exposed_seconds", name: "exposed", show: ms, number: true}, {key: "gradients", name: "gradients", show: g => g ? "yes" : ""}]}) : null;
  const flips = () => (d.flips || []).length ? table({name: "flips", title: "What would change the choice", rows: d.flips, columns: [{key: "what", name: "of"},
    {key: "factor", name: "another plan from", show: (f, r) => r && r.changes ? `${format.number(f)} times` : r ? `none up to ${format.number(r.looked_to)} times` : "", number: true}, {key: "to", name: "which", long: true}]}) : null;
  const pipelines = () => (d.pipelines || []).length ? table({name: "pipelines", title: "Plans with stages", rows: d.pipelines, by: "step_seconds", columns: [{key: "stages", name: "stages", number: true, show: format.whole},
    {key: "mesh", name: "mesh of a stage"}, {key: "micro_batches", name: "micro-batches", number: true, show: format.whole}, {key: "schedule", name: "schedule"}, {key: "chunks", name: "runs a stage", number: true, show: format.whole},
    {key: "recompute", name: "recompute"}, {key: "step_seconds", name: "step", show: ms, number: true}, {key: "lower_bound", name: "at least", show: ms, number: true}, {key: "memory_bytes", name: "memory", show: format.bytes, number: true},
    {key: "fits", name: "fits", show: f => f ? "yes" : "no"}]}) : null;

  const one = pipe && (pipe.actions || []).length ? stepOfStages() : (d.timeline || []).length ? stepOfRank(d.timeline, d.ranks) : null;
  show(
    head(`${all.model}: ${sim ? "simulation" : "plan"} for ${format.whole(d.ranks)} rank${d.ranks === 1 ? "" : "s"}`,
      el("p", {class: "soft"}, pipe ? `${pipe.stages} stages on meshes of ${pipe.mesh}` : `mesh ${d.mesh}`, `, global batch ${format.whole(d.global_batch)}`)),
    figures, grid(mesh(), proof()), one ? el("div", {class: "grid", style: "margin-top:16px;grid-template-columns:minmax(0,1fr)"}, one) : null,
    el("div", {class: "grid two", style: "margin-top:16px"}, parts(), memory(), ...[frontier(), others()].filter(Boolean)), simulation(), el("h2", {}, "Details"), operators(), messages(), pipelines(), flips(),
    el("footer", {}, "trireme ", sim ? "simulate" : "plan"));
})();

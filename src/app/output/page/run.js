// SPDX-License-Identifier: Apache-2.0
// The page of `trireme report`: runs as src/app/output/run_report.c describes them.
"use strict";
(() => {
  const {el, format, known, colour, curves, table, tiles, grid, choice, head, report, put, show} = page;
  const r = report(), runs = r.runs, many = runs.length > 1;
  runs.forEach((run, i) => { run.colour = colour(i); });
  const unit = runs.length && runs.every(run => run.unit === runs[0].unit) ? runs[0].unit : "samples";
  let axis = "step";

  const STATES = {empty: "nothing recorded", training: "training", silent: "no news: killed, or a step that takes long", stopped: "stopped by a signal",
    failed: "failed", done: "done"};

  const figures = run => tiles([
    {name: "global_step", label: "step", value: format.whole(run.global_step), raw: run.global_step,
      note: known(run.goal_steps) ? `of ${format.whole(run.goal_steps)}` : null},
    {name: "loss", label: "loss", value: format.number(run.loss), raw: run.loss,
      note: known(run.least_loss) ? `least ${format.number(run.least_loss)} at step ${format.whole(run.least_loss_step)}` : null},
    {name: "rate", label: `${run.unit} a second`, value: format.short(run.rate), raw: run.rate, note: known(run.step_seconds) ? `${format.seconds(run.step_seconds)} a step` : null},
    {name: "learning_rate", label: "learning rate", value: format.number(run.learning_rate), raw: run.learning_rate},
    {name: "peak_bytes", label: "peak memory", value: format.bytes(run.peak_bytes), raw: run.peak_bytes,
      note: known(run.predicted_bytes) ? `program ${format.bytes(run.predicted_bytes)}` : null},
    {name: "data_wait_fraction", label: "waiting for data", value: format.percent(run.data_wait_fraction), raw: run.data_wait_fraction, note: "of the time"},
    run.rank_wait_fraction > 0 ? {name: "rank_wait_fraction", label: "waiting for ranks", value: format.percent(run.rank_wait_fraction), raw: run.rank_wait_fraction,
      note: known(run.exposed_comm_fraction) ? `${format.percent(run.exposed_comm_fraction)} communication` : "of the time"} : null,
    {name: "parameters", label: "parameters", value: format.count(run.parameters), raw: run.parameters},
    {name: "seconds", label: "time", value: format.seconds(run.seconds), raw: run.seconds}
  ]);
  const summary = run => el("section", {class: "card run", mark: run.colour, "data-run": run.name},
    el("div", {class: "tools"}, el("h3", {}, run.name), el("span", {class: `badge ${run.state}`}, STATES[run.state] || run.state)),
    el("p", {class: "soft", style: "font-size:13px;overflow-wrap:anywhere"},
      [run.model, run.ranks > 1 ? `${run.ranks} ranks` : null, run.host, known(run.begin) ? format.date(run.begin) : null, run.path].filter(Boolean).join(" \u00b7 ")),
    run.problems.map(p => el("p", {class: "problem"}, p)), figures(run));

  // ---- curves ----
  const xOf = (run, i) => axis === "step" ? run.curves.step[i] : run.curves.seconds[i];
  const points = (run, name) => (run.curves[name] || []).map((y, i) => [xOf(run, i), y]);
  const common = () => ({xLabel: axis === "step" ? "step" : "time since the run began", xName: axis === "step" ? "step" : "after",
    xShow: axis === "step" ? format.short : format.seconds, xRange: [0, Math.max(...runs.flatMap(run => (axis === "step" ? run.curves.step : run.curves.seconds) || [0]))]});
  const marks = () => many ? [] : runs.flatMap(run => run.checkpoints.map(c => ({x: axis === "step" ? c.global_step : c.seconds, label: "checkpoint"})))
    .concat(runs.flatMap(run => run.events.filter(e => e.level === "event" && axis === "step").map(e => ({x: e.global_step, label: e.text})))).filter(mark => known(mark.x));
  const ofRuns = (name, extra) => runs.map(run => ({name: run.name, points: points(run, name), colour: run.colour, ...extra}));
  const chart = (name, title, yLabel, yShow, more) => {
    const o = {name, title, yLabel, yShow, series: ofRuns(name), ...common(), ...more};
    return o.series.some(s => s.points.some(p => known(p[1]))) ? curves(o) : null;
  };
  const charts = () => [
    chart("loss", "Training loss", "loss", format.number, {smooth: true, yExact: format.exact, marks: marks(),
      note: many ? null : runs.some(run => run.checkpoints.length) ? "dashed lines: checkpoints, changes of members, resumes" : null}),
    ...metrics(),
    chart("learning_rate", "Learning rate", "learning rate", format.number, {zero: true, yExact: format.exact}),
    chart("rate", "Throughput", `${unit} a second`, format.short, {zero: true, smooth: true}),
    waiting(),
    chart("step_seconds", "Time of a step", "time", format.seconds, {zero: true, smooth: true}),
    chart("peak_bytes", "Peak memory", "bytes of this process", format.bytes, {zero: true, steps: true})
  ].filter(Boolean);

  // Waiting beside the step: of one run its kinds, of several runs their sum.
  const waiting = () => {
    const kinds = [["data_wait_seconds", "waiting for data"], ["rank_wait_seconds", "waiting for other ranks"]];
    const share = (run, name) => (run.curves[name] || []).map((w, i) => {
      const step = run.curves.step_seconds ? run.curves.step_seconds[i] : null, data = run.curves.data_wait_seconds ? run.curves.data_wait_seconds[i] : 0;
      return [xOf(run, i), known(w) && known(step) && step + data > 0 ? w / (step + data) : null];
    });
    const series = runs.flatMap(run => kinds.map(([name, text], k) => ({name: many ? `${run.name}: ${text}` : text, points: share(run, name),
      colour: many ? run.colour : colour(k), dash: many && k ? "5 4" : null}))).filter(s => s.points.length);
    return series.length ? curves({name: "waiting", title: "Waiting and communication", yLabel: "share of the time", yShow: format.percent, zero: true, smooth: true, series, ...common(),
      note: "other ranks: after backward, communication and ranks that come later"}) : null;
  };

  // One chart for each figure of evaluations.
  const metrics = () => {
    const skip = new Set(["seconds", "global_step", "epoch", "samples", "tokens", "bayes_auc", "bayes_logloss"]), names = [];
    for (const run of runs) for (const e of run.evaluations) for (const k of Object.keys(e)) if (!skip.has(k) && known(e[k]) && !names.includes(k)) names.push(k);
    return names.map(k => {
      const series = runs.map(run => ({name: run.name, colour: run.colour,
        points: run.evaluations.filter(e => known(e[k])).map(e => [axis === "step" ? e.global_step : e.seconds, e[k]])})).filter(s => s.points.length && s.points.every(p => known(p[0])));
      return series.length ? curves({name: `eval_${k}`, title: `Evaluation: ${k.replace(/_/g, " ")}`, yLabel: k.replace(/_/g, " "), yShow: format.number, yExact: format.exact,
        series, dots: true, ...common()}) : null;
    });
  };

  // ---- tables ----
  const withRun = list => runs.flatMap(run => list(run).map(x => ({run: run.name, ...x})));
  const runColumn = many ? [{key: "run", name: "run"}] : [];
  const evaluations = () => {
    const rows = withRun(run => run.evaluations), keys = [];
    for (const row of rows) for (const k of Object.keys(row)) if (!["run", "seconds", "global_step", "epoch"].includes(k) && !keys.includes(k)) keys.push(k);
    return rows.length ? table({name: "evaluations", title: "Evaluations", rows, columns: [...runColumn, {key: "global_step", name: "step", show: format.whole, number: true},
      {key: "epoch", name: "epoch", show: format.whole, number: true}, ...keys.map(k => ({key: k, name: k.replace(/_/g, " "),
        show: k === "samples" || k === "tokens" ? format.whole : format.exact, number: true}))]}) : null;
  };
  const checkpoints = () => {
    const rows = withRun(run => run.checkpoints);
    return rows.length ? table({name: "checkpoints", title: "Checkpoints", rows, by: "global_step", down: true, columns: [...runColumn,
      {key: "global_step", name: "step", show: format.whole, number: true}, {key: "seconds", name: "after", show: format.seconds, number: true},
      {key: "bytes", name: "size", show: (b, c) => known(b) ? format.bytes(b) : c ? "deleted" : "", number: true}, {key: "path", name: "path", long: true}]}) : null;
  };
  const events = () => {
    const rows = withRun(run => run.events).map(e => ({...e, who: e.who || "rank 0"}));
    return rows.length ? table({name: "events", title: "Events: members, servers, log", rows, columns: [...runColumn,
      {key: "seconds", name: "after", show: format.seconds, number: true}, {key: "who", name: "process"}, {key: "level", name: "kind"}, {key: "text", name: "what", long: true}]}) : null;
  };
  const roles = () => {
    const rows = withRun(run => run.roles.length > 1 ? run.roles : []);
    return rows.length ? table({name: "roles", title: "Processes", rows, columns: [...runColumn, {key: "who", name: "process"}, {key: "state", name: "state"},
      {key: "host", name: "host"}, {key: "global_step", name: "step", show: format.whole, number: true},
      {key: "data_wait_fraction", name: "waiting for data", show: format.percent, number: true},
      {key: "rank_wait_fraction", name: "waiting for ranks", show: format.percent, number: true},
      {key: "peak_bytes", name: "peak memory", show: format.bytes, number: true}, {key: "last_seconds", name: "last line after", show: format.seconds, number: true}]}) : null;
  };
  const differences = () => many ? (r.differences.length ? table({name: "differences", title: "Options that differ",
    rows: r.differences.map(d => Object.fromEntries([["option", d.option], ...d.values.map((v, i) => [`v${i}`, v])])),
    columns: [{key: "option", name: "option"}, ...runs.map((run, i) => ({key: `v${i}`, name: run.name}))]})
    : el("section", {class: "card", "data-table": "differences", "data-rows": 0}, "The runs have the same options.")) : null;
  const configuration = () => runs.map(run => {
    const rows = Object.keys(run.options).filter(k => run.options[k] !== null).map(k => ({option: k, value: run.options[k], given: k in run.given ? "given" : ""}));
    return rows.length ? table({name: "configuration", title: many ? `Configuration of ${run.name}` : "Configuration", rows, by: "given", down: true, few: 12,
      note: "0, or an option that is not listed, is the program's own choice",
      columns: [{key: "option", name: "option"}, {key: "value", name: "value", long: true}, {key: "given", name: "command line"}]}) : null;
  }).filter(Boolean);

  const plots = grid();
  const redraw = () => put(plots, charts());
  redraw();
  const wide = (...list) => list.flat().filter(Boolean);
  const any = plots.childElementCount > 0;
  show(
    head(many ? `${runs.length} runs` : runs[0].name, el("p", {class: "soft"}, many ? runs.map(run => run.name).join(", ") : `${runs[0].model || "unknown model"}, a training of trireme ${runs[0].version || ""}`)),
    many ? grid(...runs.map(summary)) : summary(runs[0]),
    many ? el("h2", {}, "Differences") : null, differences(),
    any ? el("div", {class: "tools"}, el("h2", {}, "Curves"), choice([["step", "by step"], ["time", "by time"]], axis, v => { axis = v; redraw(); })) : null, plots,
    el("h2", {}, "Details"), wide(evaluations(), checkpoints(), roles(), events(), configuration()),
    el("footer", {}, `trireme ${r.version} report`));
})();

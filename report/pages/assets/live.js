"use strict";
// The live page: asks for state.json every second until the run has ended, and shows it. Text is set as text only.
(() => {
  const $ = id => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const bytes = n => { for (const u of ["B", "kB", "MB"]) { if (n < 1000) return (u === "B" ? n : n.toFixed(1)) + " " + u; n /= 1000; } return n.toFixed(1) + " GB"; };
  const seconds = s => s < 100 ? s.toFixed(0) + " s" : Math.floor(s / 60) + " min " + Math.round(s % 60) + " s";
  const cell = (tag, text) => { const e = document.createElement(tag); e.textContent = text; return e; };
  const fill = (id, nodes) => $(id).replaceChildren(...nodes);
  const charts = {};

  function draw(id, name, x, series) {
    const chart = charts[id] || (charts[id] = echarts.init($(id), null, { renderer: "svg" }));
    const ink = colour("--ink"), line = colour("--line");
    chart.setOption({
      animation: false, color: [colour("--c0"), colour("--c1")], textStyle: { color: ink },
      grid: { left: 60, right: 20, top: 30, bottom: 40 }, tooltip: { trigger: "axis" },
      legend: series.length > 1 ? { top: 0, textStyle: { color: ink } } : undefined,
      xAxis: { type: "category", data: x, name: "round", nameLocation: "middle", nameGap: 24, axisLabel: { color: ink } },
      yAxis: { type: "value", name, scale: false, axisLabel: { color: ink, formatter: id === "bytes" ? bytes : undefined },
        splitLine: { lineStyle: { color: line } } },
      series,
    });
  }

  const ends = {
    finished: "The run ended: it is finished.", interrupted: "The run ended: it was interrupted.",
    failed: "The run ended: it failed.", gone: "The run ended: its processes are gone.",
  };

  function show(s) {
    const rows = s.done, last = rows[rows.length - 1];
    let said = ends[s.status] || (s.status === "starting" ? "The silos are being started." :
      rows.length >= s.rounds ? "All rounds are done; the model is being scored on the test split." :
      `Round ${s.now.round} of ${s.rounds} goes on${s.now.exchange ? " (" + s.now.exchange + ")" : ""}.`);
    if (s.waiting) {
      said = `Waiting for ${s.waiting.for.join(", ")}: ${s.waiting.here} silos are here and ${s.waiting.needed} are needed` +
        (s.waiting.why ? ` (${s.waiting.why})` : "") +
        (s.waiting.until ? `, until ${s.waiting.until}.` : ", until the coordinator's operator ends it.");
    }
    if (s.why) said += " " + s.why;
    if (s.test) said += ` Test ${s.metric} ${s.test.value.toFixed(4)}.`;
    if (!s.masked) said += " NOTHING IS MASKED.";
    $("status").textContent = said;
    $("done").textContent = `${rows.length} of ${s.rounds}`;
    const scored = rows.filter(r => r.dev !== null);
    $("dev").textContent = scored.length ? scored[scored.length - 1].dev.toFixed(4) : "–";
    $("up").textContent = bytes(s.up);
    $("down").textContent = bytes(s.down);
    $("left").textContent = s.seconds_left === null ? "–" : seconds(s.seconds_left);
    fill("silos", s.silos.map(x => { const e = cell("li", `${x.name} ${x.state}`); e.dataset.state = x.state; return e; }));
    fill("rounds", rows.slice().reverse().map(r => {
      const tr = document.createElement("tr");
      const head = cell("th", r.round); head.scope = "row";
      tr.append(head, ...[r.dev === null ? "–" : r.dev.toFixed(4), `${r.survivors} of ${r.asked}`, bytes(r.up), bytes(r.down), r.seconds.toFixed(1)].map(t => cell("td", t)));
      return tr;
    }));
    fill("notes", s.notes.slice().reverse().map(n => cell("li", `${new Date(n.time * 1000).toLocaleTimeString()}  ${n.text}`)));
    const x = rows.map(r => String(r.round));
    draw("metric", `dev ${s.metric}`, x, [{ name: `dev ${s.metric}`, type: "line", data: rows.map(r => r.dev) }]);
    draw("bytes", "bytes", x, [
      { name: "up", type: "bar", data: rows.map(r => r.up) }, { name: "down", type: "bar", data: rows.map(r => r.down) }]);
    document.documentElement.dataset.status = s.status;
    document.documentElement.dataset.rounds = rows.length;
  }

  let latest = null;
  async function follow() {
    try {
      const answer = await fetch("state.json", { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      latest = await answer.json();
      $("missing").hidden = true;
      show(latest);
      if (latest.ended) return;  // nothing more will come; the page stays as it is
    } catch (e) {
      $("missing").textContent = "The watcher does not answer any more; this is the last that it saw.";
      $("missing").hidden = false;
    }
    setTimeout(follow, 1000);
  }
  dark.addEventListener("change", () => latest && show(latest));
  addEventListener("resize", () => Object.values(charts).forEach(c => c.resize()));
  follow();
})();

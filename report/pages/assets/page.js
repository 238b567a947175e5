// Turns the JSON in each figure into an Apache ECharts chart, in the page's own colours.
"use strict";
(() => {
  const UNITS = ["B", "kB", "MB", "GB", "TB"];
  const bytes = (n) => {
    let i = 0;
    while (Math.abs(n) >= 1000 && i < UNITS.length - 1) { n /= 1000; i += 1; }
    return (i ? n.toFixed(n < 10 ? 2 : 1).replace(/\.?0+$/, "") : String(Math.round(n))) + " " + UNITS[i];
  };
  const format = (unit, n) => {
    if (n === null || n === undefined || Number.isNaN(n)) return "–";
    if (unit === "bytes") return bytes(n);
    if (unit === "seconds") return Number(n.toFixed(n < 10 ? 2 : 1)) + " s";
    if (unit === "count") return n.toLocaleString("en");
    return Number(n.toFixed(4)).toString();
  };
  const escape = (t) => t.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const axis = (name, unit, c, more) => ({
    name, nameLocation: "middle", nameTextStyle: { color: c.dim },
    axisLabel: { color: c.dim, formatter: unit ? (n) => format(unit, n) : undefined, hideOverlap: true },
    axisLine: { lineStyle: { color: c.line } }, splitLine: { lineStyle: { color: c.line } }, ...more,
  });

  const series = (spec, s, k, c) => {
    const hue = s.dashed ? c.ink : c.series[(k + spec.first_colour) % c.series.length];
    return {
      name: s.name, type: s.kind, data: s.values, stack: s.stack ? "all" : undefined,
      color: hue, itemStyle: { color: hue }, symbolSize: s.kind === "scatter" ? 10 : 5,
      showSymbol: s.marks && s.values.length <= 60, barMaxWidth: 36,
      lineStyle: { width: 2, color: hue, type: s.dashed ? "dashed" : "solid" },
      label: s.kind === "bar" && spec.lying
        ? { show: true, position: "right", color: c.dim, formatter: (p) => format(spec.y_unit, p.value) }
        : undefined,
      emphasis: { focus: spec.series.length > 1 ? "series" : "none" },
    };
  };

  // The rows that a legend's names need at this width: all of them are shown, whatever the screen.
  const font = getComputedStyle(document.body).fontFamily;
  const pen = document.createElement("canvas").getContext("2d");
  const rows = (names, width) => {
    pen.font = `12px ${font}`;
    let at = 0, count = 1;
    for (const name of names) {
      const wide = 35 + pen.measureText(name).width;  // a sign, two gaps, the name
      if (at > 0 && at + wide > width) { count += 1; at = 0; }
      at += wide;
    }
    return count;
  };

  const option = (spec, width) => {
    const c = {
      ink: colour("--ink"), dim: colour("--dim"), line: colour("--line"), card: colour("--card"),
      series: [0, 1, 2, 3, 4, 5, 6, 7].map((i) => colour("--c" + i)),
    };
    const points = spec.x === null;
    const x = points
      ? axis(spec.x_name, spec.x_unit, c, { type: spec.x_log ? "log" : "value", max: spec.x_max ?? undefined, nameGap: 28, scale: spec.x_log })
      : axis(spec.x_name, "", c, { type: "category", data: spec.x, nameGap: 28, splitLine: { show: false }, inverse: spec.lying });
    const y = axis(spec.y_name, spec.y_unit, c, { type: "value", max: spec.y_max ?? undefined, nameGap: 10, min: 0 });
    if (spec.lying) { x.name = ""; y.nameGap = 28; x.axisLabel.hideOverlap = false; x.axisLabel.interval = 0; }
    const many = spec.series.length > 1;
    const lines = many ? rows(spec.series.map((s) => s.name), width) : 0;
    return {
      animation: false, aria: { enabled: false }, textStyle: { fontFamily: font },
      grid: { left: 8, right: spec.lying ? 52 : 18, top: 38 + 23 * lines, bottom: 8, outerBoundsMode: "same", outerBoundsContain: "all" },
      legend: many ? { top: 32, left: 0, width: width - 10, itemGap: 12, itemWidth: 18, itemHeight: 11, textStyle: { color: c.ink }, inactiveColor: c.dim } : undefined,
      tooltip: {
        trigger: points ? "item" : "axis", confine: true, backgroundColor: c.card, borderColor: c.line, textStyle: { color: c.ink },
        axisPointer: { type: spec.series.some((s) => s.kind === "bar") ? "shadow" : "line" },
        ...(points
          ? { formatter: (p) => {
              const s = spec.series[p.seriesIndex];
              const name = s.labels.length ? s.labels[p.dataIndex] : s.name;
              return `${escape(name)}<br>${escape(spec.x_name)} ${format(spec.x_unit, p.value[0])}<br>${escape(spec.y_name)} ${format(spec.y_unit, p.value[1])}`;
            } }
          : { valueFormatter: (n) => format(spec.y_unit, n) }),
      },
      toolbox: {
        right: 0, top: 0, itemSize: 14, iconStyle: { borderColor: c.dim },
        feature: {
          ...(spec.lying ? {} : {
            dataZoom: { yAxisIndex: false, title: { zoom: "zoom: draw a box", back: "one zoom back" } },
            restore: { title: "whole picture" },
          }),
          saveAsImage: { title: "save as a picture", name: spec.id, type: "svg" },
        },
      },
      // The wheel scrolls the page; with Ctrl it zooms the chart.
      dataZoom: spec.lying ? [] : [{ type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, moveOnMouseMove: false }],
      xAxis: spec.lying ? y : x, yAxis: spec.lying ? x : y,
      series: spec.series.map((s, k) => series(spec, s, k, c)),
    };
  };

  // A chart grows by what its legend needs, so that the picture itself stays as high.
  const fit = (plot, spec) => {
    const lines = spec.series.length > 1 ? rows(spec.series.map((s) => s.name), plot.clientWidth) : 0;
    plot.style.height = `${spec.height + 23 * Math.max(0, lines - 1)}px`;
  };
  const charts = [];
  for (const figure of document.querySelectorAll("figure.chart")) {
    const spec = JSON.parse(figure.querySelector("script.spec").textContent);
    const plot = figure.querySelector(".plot");
    fit(plot, spec);
    const chart = echarts.init(plot, null, { renderer: "svg" });
    chart.setOption(option(spec, plot.clientWidth));
    charts.push([chart, spec, plot]);
  }
  const again = () => { for (const [chart, spec, plot] of charts) { fit(plot, spec); chart.resize(); chart.setOption(option(spec, plot.clientWidth), true); } };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  let waiting = 0;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(again, 120); });

  // Paper shows what is folded on the screen, in ink on white.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")].filter((d) => !d.closest("figure"));
    for (const d of folded) d.open = true;
    again();
    for (const [chart] of charts) chart.setOption({ toolbox: { show: false } });
  });
  addEventListener("afterprint", () => { for (const d of folded) d.open = false; again(); });
  document.documentElement.dataset.drawn = String(charts.length);
})();

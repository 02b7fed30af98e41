// Draws the charts of a page with uPlot. Each has its data in `data-chart`; axis, smoothing and scale are those of its section.
function charts() {
  const probe = document.createElement("span"); // resolves CSS variables to colours
  probe.hidden = true;
  document.body.append(probe);
  const colour = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };

  const digits = (value) => Number(value.toPrecision(4));
  const short = (value) => {
    for (const [size, suffix] of [[1e9, "B"], [1e6, "M"], [1e3, "k"]]) if (Math.abs(value) >= size) return digits(value / size) + suffix;
    return value && Math.abs(value) < 1e-4 ? value.toExponential(2).replace(/\.?0*e/, "e") : String(digits(value));
  };
  const percent = (value) => `${digits(100 * value)}%`;

  // Exponential moving average without the bias of its start; gaps stay gaps.
  function smoothed(values, weight) {
    let mean = 0, share = 0;
    return values.map((value) => {
      if (value == null) return value;
      mean = weight * mean + (1 - weight) * value;
      share = weight * share + (1 - weight);
      return mean / share;
    });
  }

  function series(line, number, write, showsLast) {
    const stroke = line.dashed ? colour("muted") : colour(`series-${(number % 5) + 1}`);
    const last = showsLast ? write(line.y.at(-1)) : ""; // while no place is pointed at
    const look = { label: line.name, stroke, width: 1.6, spanGaps: true, value: (plot, value, series, place) => (place == null ? last : value == null ? "–" : write(value)) };
    look.points = { show: line.marked, size: 7, fill: stroke };
    if (line.dashed) Object.assign(look, { dash: [6, 4], width: 1 });
    if (line.bars) Object.assign(look, { fill: stroke, paths: uPlot.paths.bars({ size: [0.85, 100] }), points: { show: false } });
    return look;
  }

  function axis(label, write, whole, names) {
    const look = { stroke: colour("muted"), font: "12px system-ui", labelFont: "12px system-ui", label, labelSize: label ? 20 : 0, labelGap: 0, size: 32 };
    look.ticks = { stroke: colour("line"), size: 4 };
    look.grid = { show: false };
    look.values = (plot, ticks) => ticks.map((tick) => (tick == null ? "" : names ? (names[tick] ?? "").split(" to ")[0] : write(tick)));
    if (whole || names) look.incrs = [1, 2, 5].flatMap((step) => [...Array(12).keys()].map((power) => step * 10 ** power)).sort((a, b) => a - b);
    return look;
  }

  function draw(picture) {
    const section = picture.closest("section"), data = JSON.parse(picture.dataset.chart);
    const chosen = data.axes[section.dataset.axis ?? 0] ?? data.axes[0];
    const write = data.share ? percent : short, writeX = data.xShare ? percent : short;
    const weight = Number(section.dataset.smoothing ?? 0);
    const lines = chosen.lines.map((line) => (weight && !line.marked && !line.dashed && !line.bars ? { ...line, y: smoothed(line.y, weight) } : line));
    const isLogarithmic = section.dataset.scale === "log" && lines.every((line) => line.y.every((y) => y > 0));
    const values = lines.flatMap((line) => line.y);
    const range = (plot, low, high) => {
      if (isLogarithmic) return uPlot.rangeLog(low, high, 10, false);
      const [bottom, top] = uPlot.rangeNum(data.fromZero ? 0 : low, high, { min: { pad: 0.1, soft: data.fromZero ? 0 : undefined, mode: data.fromZero ? 1 : 0 }, max: { pad: 0.1, mode: 0 } });
      return [bottom, data.share && Math.max(...values) <= 1 ? Math.min(top, 1.02) : top]; // no share above 100%
    };
    const vertical = { ...axis(data.label, write), size: 56, grid: { stroke: colour("grid"), width: 1 } };
    const options = {
      width: picture.clientWidth, height: Math.max(190, Math.min(300, picture.clientWidth * 0.52)),
      scales: { x: { time: false, range: chosen.names ? [-0.6, chosen.names.length - 0.4] : undefined }, y: { range, distr: isLogarithmic ? 3 : 1 } },
      axes: [axis(chosen.name, writeX, chosen.whole, chosen.names), vertical],
      series: [{ label: chosen.name, value: (plot, value, series, place) => (place == null ? (chosen.logged ? "last" : "") : chosen.names ? chosen.names[value] : chosen.whole ? value.toLocaleString("en") : writeX(value)) },
        ...lines.map((line, number) => series(line, number, write, chosen.logged))],
      legend: { markers: { width: 0, fill: (plot, number) => plot.series[number].stroke(plot, number) } },
      cursor: { sync: { key: `${section.id} ${chosen.name}` }, focus: { prox: 24 }, drag: { x: true, y: false } },
      focus: { alpha: 0.4 },
    };
    picture.plot?.destroy();
    picture.replaceChildren();
    picture.plot = new uPlot(options, uPlot.join(lines.map((line) => [line.x, line.y])), picture);
    picture.drawnWidth = picture.clientWidth;
  }

  const pictures = [...document.querySelectorAll(".picture[data-chart]")];
  const all = () => pictures.forEach(draw);
  const resized = new ResizeObserver((entries) => entries.forEach(({ target }) => { if (target.clientWidth && target.clientWidth !== target.drawnWidth) draw(target); }));
  pictures.forEach((picture) => resized.observe(picture)); // draws each for the first time, also when it becomes visible
  new MutationObserver(all).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  for (const controls of document.querySelectorAll(".axes")) {
    controls.hidden = false;
    controls.addEventListener("input", ({ target }) => {
      const section = controls.closest("section");
      section.dataset[target.dataset.sets] = target.type === "checkbox" ? (target.checked ? "log" : "") : target.value;
      pictures.filter((picture) => section.contains(picture)).forEach(draw);
    });
  }
}

charts();

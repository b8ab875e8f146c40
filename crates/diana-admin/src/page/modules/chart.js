// Charts of counts per second: stacked areas, lines over them, a legend with values, a cursor for the pointer and the
// arrow keys, and the same as a table.
import { clock, make, setText, svg } from './dom.js';

const HEIGHT = 150;
const MARGIN = { left: 50, right: 6, top: 8, bottom: 18 };
const ROWS = 12; // of the table

// Returns the smallest "round" number that is not below `value`.
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 3, 4, 5, 6, 8, 10].find(factor => factor * power >= value * 0.999);
}

export class Chart {
  // `series`: [{ name, label, stacked }], drawn in this order; `format` shows a value.
  constructor(host, { title, series, format }) {
    Object.assign(this, { title, series, format, data: null, cursor: null });
    this.areas = svg('g');
    this.grid = svg('g', { class: 'grid' });
    this.line = svg('line', { class: 'cursor', y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, visibility: 'hidden' });
    this.plot = svg('svg', { class: 'plot', height: HEIGHT, role: 'img', tabindex: 0 }, this.grid, this.areas, this.line);
    this.values = new Map();
    const legend = make('ul', { className: 'legend' }, ...series.map(({ name, label }) => {
      const value = make('b');
      this.values.set(name, value);
      return make('li', {}, make('i', { className: `swatch c-${name}`, 'aria-hidden': 'true' }), make('span', { textContent: label }), value);
    }));
    this.when = make('span', { className: 'when quiet' });
    this.spoken = make('p', { className: 'visually-hidden', 'aria-live': 'polite' });
    this.table = make('table');
    this.details = make('details', { className: 'as-table' }, make('summary', { textContent: 'Show as table' }), make('div', { className: 'scroll' }, this.table));
    this.details.addEventListener('toggle', () => this.drawTable());
    host.replaceChildren(make('div', { className: 'legend-row' }, legend, this.when), this.plot, this.spoken, this.details);
    this.plot.addEventListener('pointermove', event => this.point(event));
    this.plot.addEventListener('pointerleave', () => this.moveTo(null));
    this.plot.addEventListener('blur', () => this.moveTo(null));
    this.plot.addEventListener('keydown', event => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  // `data`: { start, step, values: { name: [..] } }; values per second, or null.
  set(data) {
    this.data = data;
    this.draw();
    this.drawTable();
  }

  get length() {
    return this.data ? this.data.values[this.series[0].name].length : 0;
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!this.data || !width) return;
    const { data, length } = this;
    const stack = this.series.filter(series => series.stacked);
    const lines = this.series.filter(series => !series.stacked);
    const sums = Array.from({ length }, (_, i) => stack.reduce((sum, { name }) => sum + data.values[name][i], 0));
    const highest = lines.reduce((max, { name }) => Math.max(max, ...data.values[name]), Math.max(0, ...sums));
    const top = ceiling(highest);
    const dx = (width - MARGIN.left - MARGIN.right) / length;
    const x = i => (MARGIN.left + i * dx).toFixed(1);
    const y = value => (MARGIN.top + (HEIGHT - MARGIN.top - MARGIN.bottom) * (1 - value / top)).toFixed(1);
    this.x = { of: i => MARGIN.left + (i + 0.5) * dx, dx };
    const base = new Array(length).fill(0);
    const areas = stack.map(({ name }) => {
      const low = [...base];
      const high = base.map((value, i) => value + data.values[name][i]);
      high.forEach((value, i) => { base[i] = value; });
      const up = high.map((value, i) => `L${x(i)} ${y(value)}L${x(i + 1)} ${y(value)}`).join('');
      const down = low.map((value, i) => `L${x(i + 1)} ${y(value)}L${x(i)} ${y(value)}`).reverse().join('');
      return svg('path', { class: `area f-${name}`, d: `M${x(0)} ${y(0)}${up}${down}Z` });
    });
    const paths = lines.map(({ name }) => {
      let pen = 'M';
      const d = data.values[name].map((value, i) => {
        // No line at zero: it would hide the axis.
        if (!value) { pen = 'M'; return ''; }
        const move = `${pen}${x(i)} ${y(value)}L${x(i + 1)} ${y(value)}`;
        pen = 'L';
        return move;
      }).join('');
      return svg('path', { class: `line s-${name}`, d });
    });
    this.areas.replaceChildren(...areas, ...paths);
    this.drawGrid(width, top, y);
    this.plot.setAttribute('aria-label', this.summary());
    this.showValues();
  }

  drawGrid(width, top, y) {
    const horizontal = [0, 0.5, 1].flatMap(part => {
      const label = svg('text', { x: MARGIN.left - 6, y: Number(y(top * part)) + 4, 'text-anchor': 'end' });
      label.textContent = this.format(top * part);
      return [svg('line', { x1: MARGIN.left, x2: width - MARGIN.right, y1: y(top * part), y2: y(top * part) }), label];
    });
    const { start, step } = this.data;
    const end = start + step * this.length;
    const marks = width < 500 ? 3 : 5;
    const between = [60, 120, 300, 600, 900, 1200].find(seconds => (end - start) / seconds <= marks) || 1200;
    const times = [];
    for (let second = Math.ceil(start / between) * between; second < end; second += between) {
      const at = MARGIN.left + ((second - start) / (end - start)) * (width - MARGIN.left - MARGIN.right);
      if (at < MARGIN.left + 16 || at > width - 24) continue;
      const label = svg('text', { x: at.toFixed(1), y: HEIGHT - 4, 'text-anchor': 'middle' });
      label.textContent = clock(second, false);
      times.push(label);
    }
    this.grid.replaceChildren(...horizontal, ...times);
  }

  showValues() {
    const at = this.cursor === null ? this.length - 1 : Math.min(this.cursor, this.length - 1);
    const { start, step, values } = this.data;
    this.series.forEach(({ name }) => setText(this.values.get(name), this.format(values[name][at])));
    setText(this.when, this.cursor === null ? 'now' : clock(start + at * step));
    this.line.setAttribute('visibility', this.cursor === null ? 'hidden' : 'visible');
    if (this.cursor !== null && this.x) ['x1', 'x2'].forEach(side => this.line.setAttribute(side, this.x.of(at)));
  }

  summary() {
    const { step, values } = this.data;
    const minutes = Math.round(this.length * step / 60);
    const parts = this.series.map(({ name, label }) => {
      const all = values[name].filter(value => value !== null);
      if (!all.length) return `${label}: none`;
      return `${label}: ${this.format(all[all.length - 1])} now, at most ${this.format(Math.max(...all))}`;
    });
    return `${this.title}, last ${minutes} minutes. ${parts.join('; ')}. Arrow keys read single values.`;
  }

  point(event) {
    if (!this.x) return;
    const x = event.clientX - this.plot.getBoundingClientRect().left;
    const index = Math.floor((x - MARGIN.left) / this.x.dx);
    this.moveTo(index >= 0 && index < this.length ? index : null);
  }

  moveTo(index) {
    this.cursor = index;
    if (this.data) this.showValues();
  }

  key(event) {
    const last = this.length - 1;
    const from = this.cursor ?? last;
    const moves = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last, PageUp: from - 10, PageDown: from + 10 };
    if (event.key === 'Escape') return this.moveTo(null);
    if (!this.data || !(event.key in moves)) return;
    event.preventDefault();
    this.moveTo(Math.max(0, Math.min(last, moves[event.key])));
    const { start, step, values } = this.data;
    const texts = this.series.map(({ name, label }) => `${label} ${this.format(values[name][this.cursor])}`);
    this.spoken.textContent = `${clock(start + this.cursor * step)}: ${texts.join(', ')}`;
  }

  drawTable() {
    if (!this.details.open || !this.data) return;
    const { start, step, values } = this.data;
    const width = Math.max(1, Math.ceil(this.length / ROWS));
    const rows = [];
    for (let i = 0; i < this.length; i += width) {
      const cells = this.series.map(({ name }) => {
        const all = values[name].slice(i, i + width).filter(value => value !== null);
        const mean = all.length ? all.reduce((a, b) => a + b, 0) / all.length : null;
        return make('td', { className: 'number', textContent: this.format(mean) });
      });
      rows.unshift(make('tr', {}, make('th', { scope: 'row', textContent: clock(start + i * step) }), ...cells));
    }
    const names = this.series.map(({ label }) => make('th', { scope: 'col', className: 'number', textContent: label }));
    const head = [make('th', { scope: 'col', textContent: 'from' }), ...names];
    this.table.replaceChildren(make('caption', { textContent: `${this.title}: mean of ${width * step} s each` }), make('thead', {}, make('tr', {}, ...head)), make('tbody', {}, ...rows));
  }
}
